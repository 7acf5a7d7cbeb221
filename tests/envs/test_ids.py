"""Environments by name: games, protocols, families, packages and what cannot be built."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import gymnasium as gym
import pytest
from environments import make
from gymnasium.envs.classic_control import CartPoleEnv

import vantage
from vantage.envs import ids
from vantage.envs.ids import PROTOCOLS, check_processes, resolve_env
from vantage.errors import ConfigError, EnvError


@pytest.mark.parametrize(("name", "game", "protocol"), [
    ("SPACEINVADERS", "space_invaders", "classic"), ("space_invaders", "space_invaders", "classic"),
    ("PongNoFrameskip-v4", "pong", "classic"), ("ALE/SpaceInvaders-v5", "space_invaders", "v5"),
    ("ale_py:ALE/SpaceInvaders-v5", "space_invaders", "v5")])
def test_an_atari_name_means_a_game_and_a_protocol(name, game, protocol):
    atari = resolve_env(name).atari
    assert (atari.game, atari.protocol.name) == (game, protocol)


def test_atari_protocol_overrides_the_meaning_of_the_name():
    assert resolve_env("Pong", "machado").atari.protocol is PROTOCOLS["machado"]


def test_measured_values_of_a_game_are_not_those_of_a_class_of_the_same_name(monkeypatch):
    games = SimpleNamespace(Pong=CartPoleEnv, Other=CartPoleEnv)
    monkeypatch.setitem(sys.modules, "mygames", games)
    own, other = (vantage.configure("ppo", env=name) for name in ("mygames:Pong", "mygames:Other"))
    assert own.env.screen_size == other.env.screen_size and own.run.steps == other.run.steps


def test_an_environment_belongs_to_a_family():
    families = {"CartPole-v1": "classic", "LunarLander-v3": "box2d", "HalfCheetah-v5": "mujoco", "Pong": "atari",
                "FrozenLake-v1": "toy_text", "faulty_envs:Counter": "other",
                "faulty_envs:RegisteredByModule-v0": "other"}
    assert {name: resolve_env(name).family for name in families} == families


@pytest.mark.parametrize(("name", "says"), [
    ("PongDeterministic-v4", r"did you mean Pong \(the classic protocol.* or ALE/Pong-v5"),
    ("LunarLander-v2", "did you mean LunarLander-v3"),
    ("", "not a Gymnasium id"),
    ("no_such_module:Env", "cannot be imported: ModuleNotFoundError.*install it, or start in the folder"),
    ("faulty_envs.Counter", "did you mean faulty_envs:Counter"),
    ("parking.py", r"not a Gymnasium id.*for example parking:MyClass"),
    ("./town/parking.py:Lot", "; give town.parking:Lot"),
    ("Faulty_env:Counter", r"mean faulty_envs:Counter\?"),
    ("../parking.py:Lot", r"; start in \.\. and give parking:Lot"),
    ("pettingzoo_modules.spread_v3", r"did you mean pettingzoo_modules\.spread_v3:parallel_env, a function of this"),
    ("pettingzoo_modules.four_v3", r"mean pettingzoo_modules\.four_v3:env, a game in turns, with self_play=20\?$"),
    ("pettingzoo_modules.four_v3:parallel_env", r"has no parallel_env; it has env, a game in turns: give pettingzoo_"
     r"modules\.four_v3:env with self_play=20$"),
    ("pettingzoo_modules.spread_v3:env_", r"has no class 'env_'; it has env, parallel_env, "),
    ("vantage.envs.snak:Snake", r"did you mean vantage\.envs\.snake:Snake\?"),
    ("gymnasium:CartPol-v1", r"did you mean gymnasium:CartPole-v1\?"),
])
def test_a_name_that_cannot_be_used_is_refused_with_the_remedy(name, says):
    with pytest.raises(ConfigError, match=says):
        resolve_env(name)


def test_a_module_has_no_functions_of_another_that_lies_beside_it(tmp_path, monkeypatch):
    (tmp_path / "plain_module.py").write_text("")
    (tmp_path / "beside_it.py").write_text("def parallel_env(): ...")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as error:
        resolve_env("plain_module.beside_it")
    assert "parallel_env" not in str(error.value)


@pytest.mark.parametrize(("name", "options", "error", "says"), [
    ("faulty_envs:NotAnEnv", {}, ConfigError, "a NotAnEnv, not a gymnasium.Env"),
    ("faulty_envs:Spaceless", {}, ConfigError, "has no action_space; set it"),
    ("faulty_envs:Resetting", {}, ConfigError, r"that resets itself \(autoreset_mode=SAME_STEP\)"),
    ("faulty_envs:Sequences", {}, ConfigError, "Sequence.* have no largest length: pad them"),
    ("faulty_envs:Echo", {"kind": "tuple of text"}, ConfigError, "part '1' of the action: Text space actions are not"),
    ("faulty_envs:Echo", {"kind": "text"}, ConfigError, "Text space actions are not supported"),
    ("faulty_envs:Counter", {"fault": "reset"}, EnvError, "RuntimeError: reset failed"),
    ("faulty_envs:Counter", {"bad_init": True}, EnvError, "OSError: no simulator here")])
def test_an_environment_that_cannot_be_built_is_refused(name, options, error, says):
    with pytest.raises(error, match=says):
        make(name, options=options)


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    for name in ("LunarLander-v3", "gymnasium.envs.box2d.lunar_lander:LunarLander"):
        with pytest.raises(ConfigError, match=r"Box2D is not installed.*pip install"):
            make(name)


def test_an_id_is_found_by_its_packages_plugin_or_answered_with_the_package(monkeypatch):
    def register():
        gym.register("Plugged/Bandit-v0", entry_point="tiny:Bandit")

    plugins = [SimpleNamespace(name=name, value="plugged:register", load=lambda: register)
               for name in ("Plugged", "Broken")]
    monkeypatch.setattr(ids, "entry_points", lambda group: plugins)
    assert resolve_env("Plugged/Bandit-v0").name == "Plugged/Bandit-v0"
    with pytest.raises(ConfigError, match=r"did you mean Plugged/Bandit-v0\?"):
        resolve_env("Plugged/Bandt-v0")
    gym.registry.pop("Plugged/Bandit-v0")
    assert resolve_env("tiny:Plugged/Bandit-v0").name == "tiny:Plugged/Bandit-v0"
    plugins[1].load = lambda: 1 / 0
    with pytest.raises(ConfigError, match="the plugin plugged:register of Gymnasium fails: ZeroDivisionError"):
        resolve_env("Broken/Bandit-v0")
    with pytest.raises(ConfigError, match="did you mean tiny:Tiny-Bandit-v0, which imports its package"):
        resolve_env("Tiny-Bandit-v0")
    gym.registry.pop("Plugged/Bandit-v0")


def test_an_id_of_ones_own_that_is_called_like_a_game_is_ones_own():
    gym.register("Othello-v0", entry_point="tiny:Bandit")
    try:
        env = resolve_env("Othello-v0")
        assert env.atari is None and env.family == "other"
        assert "Othello-v0" in ids.known_names()
        assert resolve_env("Othello").atari.game == "othello"
    finally:
        gym.registry.pop("Othello-v0")
    with pytest.raises(ConfigError, match="an Atari id that Vantage does not support"):
        resolve_env("Othello-v0")


def test_the_name_of_a_class_and_the_path_of_a_run_are_answered_as_such(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["__main__"], "Irrigation", CartPoleEnv, raising=False)
    run = tmp_path / "runs/x"
    run.mkdir(parents=True)
    (run / "meta.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, says in (("Irrigation", r"a class is given without quotes: env=Irrigation$"),
                       ("runs/x", r"is a run: vantage\.resume\('runs/x'\) continues it, vantage\.evaluate\('runs/x'\)"),
                       ("runs/y", "class; `vantage list environments` names them$")):
        with pytest.raises(ConfigError, match=f"(?i){says}"):
            resolve_env(name)


def test_an_environment_of_a_notebook_is_refused_by_worker_processes(monkeypatch):
    class Mine(gym.Env):
        __module__ = "__main__"

    gym.register("Mine-v0", entry_point=Mine)
    env = resolve_env("Mine-v0")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    check_processes(env)  # the module of a script is imported again
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with pytest.raises(ConfigError, match=r"defined in a notebook .* give its class as env"):
        check_processes(env)
    gym.registry.pop("Mine-v0")
