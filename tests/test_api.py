"""The Python API: functions that are documented, typed, print nothing and agree with the command."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from conftest import train_shortly
from tiny import Bandit, Tiny
from torch.nn import Identity

import vantage
from vantage.agents.evaluate import evaluate
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Needs
from vantage.cli import main
from vantage.cli.tools import _plain
from vantage.config.algorithms import ALGORITHMS
from vantage.config.run import RunConfig
from vantage.config.runtimes import Hogwild, Sync
from vantage.envs.config import EnvConfig
from vantage.errors import ConfigError
from vantage.learning.config import CloningConfig, OptimizerConfig
from vantage.models.config import PolicyConfig
from vantage.tools.search.worker import Worker


def test_a_public_function_is_typed_and_explained_with_an_example() -> None:
    functions = [name for name in vantage.__all__ if inspect.isfunction(getattr(vantage, name))]
    assert {"train", "resume", "evaluate", "record", "plot", "report", "export", "search"} <= set(functions)
    for name in functions:
        function = getattr(vantage, name)
        parameters, text = inspect.signature(function).parameters.values(), inspect.getdoc(function) or ""
        assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters), name
        assert f" vantage.{name}(" in text and all(re.search(rf"\b{each.name}\b", text) for each in parameters), name


@dataclass(frozen=True, slots=True)
class Slotted:
    """An algorithm whose instances have no __dict__."""

    gamma: float = 0.9
    needs: ClassVar[Needs] = Needs()

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        return rollout.rewards.sum() * 0, {}


class Pays(Tiny):
    """A reward that float32 rounds to 16777216."""

    def play(self, action: Any) -> tuple[Any, bool]:
        return 16777217.0, True


def test_raw_rewards_have_all_their_digits() -> None:
    with vantage.Trainer("a2c", env=Pays, steps=16, num_envs=2, rollout_length=4, threads=1, eval_every=0) as trainer:
        trainer.update()
    env = trainer.agent.make_env()
    env.reset()
    _, reward, terminated, _, _ = env.step(0)
    assert (reward, terminated) == (16777217.0, True)
    assert vantage.evaluate(trainer.agent, episodes=1).returns == [16777217.0]


@pytest.mark.parametrize(("given", "says"), [
    ({"intrinsic_coef": 2.0}, "intrinsic_coef=2.0 has no effect without curiosity; give curiosity='rnd'"),
    ({"memory_size": 64}, "memory_size=64 has no effect without a memory"),
    ({"eval_every": 0, "eval_episodes": 5}, "eval_episodes=5 has no effect without evaluations"),
    ({"run": "out"}, "'run'; it is an argument of vantage.train and vantage.Trainer")])
def test_keys_without_effect_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(vantage.ConfigError, match=says):
        vantage.configure("ppo", env="CartPole-v1", **given)


def test_groups_have_effect_and_a_whole_config_can_be_given_again() -> None:
    with pytest.raises(vantage.ConfigError, match="memory_size=64 has no effect"):
        vantage.configure("ppo", vantage.PolicyConfig(memory_size=64), env="CartPole-v1")
    with pytest.raises(vantage.ConfigError, match="advantage_norm_over=rollout has no effect"):
        vantage.configure(vantage.PPO(advantage_norm=False, advantage_norm_over="rollout"), env="CartPole-v1")
    config = vantage.configure("ppo", env="CartPole-v1").change(memory_size=64)
    assert vantage.configure("ppo", config.policy, env="CartPole-v1").policy == config.policy
    assert vantage.configure("ppo", replace(config.run, eval_every=0), env="CartPole-v1").run.eval_every == 0
    keys = config.flat()
    assert vantage.configure(keys.pop("algo"), **keys) == config


def test_instances_give_the_keys_that_were_given_to_them() -> None:
    given = vantage.configure(vantage.PPO(epochs=2), vantage.PolicyConfig(hidden=(9,)), vantage.RunConfig(seed=3),
                              vantage.EnvConfig(num_envs=4), vantage.OptimizerConfig(lr=0.5), env="CartPole-v1")
    assert given == vantage.configure("ppo", env="CartPole-v1", epochs=2, hidden=[9], seed=3, num_envs=4, lr=0.5)
    # Given are also the defaults of the classes, which are not those of the environment.
    defaults = vantage.configure(vantage.PPO(0.99, epochs=3), vantage.RunConfig(1_000_000), env="CartPole-v1")
    assert defaults == vantage.configure("ppo", env="CartPole-v1", gamma=0.99, epochs=3, steps="1M")
    assert vantage.configure(vantage.PPO(), env="CartPole-v1") == vantage.configure("ppo", env="CartPole-v1")
    # dataclasses.replace passes all fields.
    assert vantage.configure(replace(vantage.PPO(), gamma=0.9), env="CartPole-v1") == vantage.configure(
        "ppo", env="CartPole-v1", gamma=0.9)
    assert vantage.configure(Slotted(gamma=0.5), env="CartPole-v1").algorithm.gamma == 0.5
    hogwild = vantage.configure("acer", vantage.Hogwild(num_workers=2), env="CartPole-v1")
    assert hogwild == vantage.configure("acer", env="CartPole-v1", runtime="hogwild", num_workers=2)


@pytest.mark.parametrize(("groups", "keys", "says"), [
    ([vantage.RunConfig(seed=1)], {"seed": 2}, "seed is given twice"),
    ([vantage.EnvConfig(id="Pong")], {}, "EnvConfig has id='Pong'; give the environment as env"),
    ([{"seed": 1}], {}, "is not a group of config keys"),
    ([vantage.Hogwild()], {}, "runtime=hogwild contradicts ppo")])
def test_a_group_that_does_not_fit_is_refused(groups: list[Any], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(vantage.ConfigError, match=says):
        vantage.configure("ppo", *groups, env="CartPole-v1", **keys)


@pytest.mark.parametrize("call", [vantage.train, vantage.configure, vantage.Trainer])
def test_keys_in_place_of_the_algorithm_are_refused(call: Any) -> None:
    with pytest.raises(ConfigError, match="algorithm is a mapping of algo, lr; give its name or class, and keys"):
        call({"algo": "ppo", "lr": 1e-3}, env="CartPole-v1")


def test_a_trainer_takes_groups_but_not_beside_a_config(tmp_path: Path) -> None:
    small = [vantage.RunConfig(steps=40, tensorboard=False), vantage.EnvConfig(num_envs=2)]
    with vantage.Trainer("a2c", *small, env="CartPole-v1", threads=1, run=tmp_path / "run") as trainer:
        assert (trainer.config.run.steps, trainer.config.env.num_envs) == (40, 2)
        with pytest.raises(vantage.ConfigError, match="steps beside a config"):
            vantage.Trainer(trainer.config, *small)


def test_help_explains_every_config_field(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "650")
    shown = ""
    for algo in ("a2c", "ppo", "a3c", "acer"):
        with pytest.raises(SystemExit):
            main(["train", algo, "--help-all"])
        shown += " ".join(capsys.readouterr().out.split())
    for kind in (EnvConfig, PolicyConfig, OptimizerConfig, CloningConfig, Sync, Hogwild, RunConfig, *{
            algorithm for algorithm, _ in ALGORITHMS.values()}):
        for field in fields(kind):
            text = field.metadata["help"]
            assert len(text) > 5 and (text in shown or field.name == "id")


def make_bandit() -> Bandit:
    """A factory of environments."""
    return Bandit()


def test_classes_and_factories_are_imported_again_by_resume_and_evaluate() -> None:
    config = vantage.configure(A2C, env=make_bandit, network=Identity, steps=80, num_envs=2, eval_every=0,
                               tensorboard=False, threads=1)
    for report in vantage.Trainer(config, run="run"):
        if report.step:
            break
    *_, last = vantage.Trainer.resume("run", steps=120, extend_schedule=True)
    assert (last.status, last.step) == ("done", 128)
    assert vantage.evaluate("run", episodes=2).env == f"{__name__}:make_bandit"


def loop(env: gym.Env[Any, Any], agent: vantage.Agent, episodes: int) -> list[float]:
    """The scores of a loop as the documentation writes it."""
    scores = []
    for _ in range(episodes):
        obs, info = env.reset()
        state, score, over = agent.initial_state(), 0.0, False
        while not over:
            assert env.observation_space.contains(obs)
            action, state = agent.act(obs, state, action_mask=info.get("action_mask"))
            obs, reward, terminated, truncated, info = env.step(action)
            score, over = score + reward, terminated or truncated
        scores.append(score)
    return scores


@pytest.mark.parametrize(("env", "keys"), [
    ("CartPole-v1", {"max_episode_steps": 30, "memory": "lstm", "memory_size": 8}),
    ("Pendulum-v1", {"max_episode_steps": 9}), ("tiny:MaskedBandit", {}), ("tiny:Picture", {}),
    ("Breakout", {"max_episode_steps": 12, "action_subset": "0,2,3", "screen_size": 20, "network": "minatar",
                  "memory": "none", "image_norm_steps": 100})])
def test_a_loop_over_make_env_plays_the_games_of_evaluate(env: str, keys: dict[str, Any], tmp_path: Path) -> None:
    agent = vantage.load(train_shortly(tmp_path / "run", env, steps=10, **keys))
    assert agent.deterministic is (env not in ("Breakout", "tiny:Picture")), "images and discrete actions"
    agent = replace(agent, deterministic=True)
    expected = evaluate(tmp_path / "run", episodes=3, deterministic=True, seed=5, num_envs=1).returns
    own = agent.make_env(seed=5)
    assert loop(own, agent, 3) == pytest.approx(expected)
    with pytest.raises(gym.error.ResetNeeded):
        own.step(own.action_space.sample())
    obs, info = own.reset(seed=5)
    own.step(agent.act(obs, agent.initial_state(), action_mask=info.get("action_mask"))[0])
    assert loop(own, agent, 2) == pytest.approx(expected[1:]), "the first game was left"
    own.close()


def test_make_env_keeps_the_info_of_the_environment() -> None:
    agent = vantage.train("a2c", env="tiny:Leveled", run="run", steps=16, num_envs=2, rollout_length=4, hidden=[4],
                          threads=1, eval_every=0, tensorboard=False, reset_options={"level": 4})
    assert repr(replace(agent, step=8)).startswith("<Agent a2c on tiny:Leveled: step 8 of 16, ")
    env = agent.make_env()
    assert env.reset()[1] == {"level": 4}
    info = env.step(1)[4]
    assert info["is_success"] is True and info["name"] == "text" and info["nested"] == {"depth": 1}


def test_make_env_draws_or_says_that_it_cannot(cartpole_run: Path, tmp_path: Path) -> None:
    agent = vantage.load(cartpole_run)
    env = agent.make_env(render_mode="rgb_array")
    with pytest.raises(gym.error.ResetNeeded):
        env.render()
    env.reset()
    assert env.render().shape == (400, 600, 3) and env.metadata["render_fps"] == 50
    env.close()
    assert agent.make_env().render() is None
    with pytest.raises(vantage.ConfigError, match="render_mode='human' is not rgb_array or None"):
        agent.make_env(render_mode="human")  # type: ignore[arg-type]
    with pytest.raises(vantage.ConfigError, match="to be drawn, it has to take render_mode"):
        vantage.load(train_shortly(tmp_path / "run", "tiny:Bandit", steps=10)).make_env(render_mode="rgb_array")


def test_tools_take_paths_as_text_and_print_nothing(cartpole_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = str(cartpole_run)
    assert [group.label for group in vantage.plot(run, "curve.png", csv="curve.csv")] == ["a2c (1 seed)"]
    assert vantage.record(run, "game.mp4", deterministic=True).path == Path("game.mp4")
    assert vantage.export(run, format="safetensors", output="p.safetensors").path == Path("p.safetensors")
    assert all(Path(name).stat().st_size for name in ("curve.png", "curve.csv", "game.mp4"))
    assert capfd.readouterr().out == ""
    with pytest.raises(vantage.ConfigError, match="x='step' is not one of steps"):
        vantage.plot([run], x="step")  # type: ignore[arg-type]


def test_a_wrong_argument_is_named(cartpole_run: Path) -> None:
    agent = vantage.load(cartpole_run)
    with pytest.raises(vantage.ConfigError, match="deterministic='no' is not True, False or None"):
        vantage.evaluate(agent, episodes=1, deterministic="no")
    with pytest.raises(vantage.ConfigError, match="seed=-1 is below 0"):
        agent.make_env(seed=-1)
    with pytest.raises(vantage.ConfigError, match=r"name it policy\.safetensors"):
        agent.save("")
    with pytest.raises(vantage.ConfigError, match="no such run directory"):
        vantage.load("a" * 300)
    with pytest.raises(vantage.ConfigError, match=r"runtime=\['sync'\] is not one of"):
        vantage.configure("a2c", env="CartPole-v1", runtime=["sync"])


@pytest.mark.parametrize(("value", "expected"), [
    (np.datetime64("2020-01-01"), "2020-01-01"), (float("nan"), None), (np.array([1.0, np.inf]), [1.0, None]),
    ({"a": (np.int64(3), True)}, {"a": [3, True]})])
def test_what_infos_hold_becomes_json(value: object, expected: object) -> None:
    assert _plain({"x": value}) == {"x": expected}


def test_a_search_from_python_returns_its_trials_best_first(
        capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def train_here(study: Any, plan: Any, options: Any, directory: Path, stop: Any) -> bool:
        reader, writer = Pipe()
        with writer:  # open: nobody stops it
            Worker(plan, None, directory, options.jobs, reader, verbose=False).work()
        return False

    # Other tests start processes and look at the pictures.
    monkeypatch.setattr("vantage.tools.search.scheduler.train", train_here)
    monkeypatch.setattr("vantage.tools.search.scheduler.write_plots", lambda *_: None)
    keys: dict[str, Any] = {"steps": 400, "num_envs": 4, "hidden": [8], "eval_every": 0, "tensorboard": False,
                            "threads": 1}
    result = vantage.search("a2c", env=Bandit, grid={"lr": [1e-3, 1e-2]}, **keys)
    assert capfd.readouterr() == ("", "")
    assert result.best is not None and result.best == result.trials[0] and result.config is not None
    assert {trial.state for trial in result.trials} == {"complete"} and len(result.trials) == 2
    assert result.best.value == max(trial.value or 0 for trial in result.trials)
    assert result.config.optimizer.lr == result.best.keys["lr"] and result.config.env.id == "tiny:Bandit"
    with pytest.raises(vantage.ConfigError, match=r"^grid: unknown key 'lrr'; did you mean lr"):
        vantage.search("a2c", env=Bandit, grid={"lrr": [1]}, **keys)


@pytest.mark.parametrize("name", ["episodes", "seed", "num_envs"])
@pytest.mark.parametrize("number", ["3", 1.5, [2]])
def test_numbers_of_games_are_whole(name: str, number: object, cartpole_run: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name}={number!r} is not a whole number")):
        vantage.evaluate(cartpole_run, **{name: number})
    games = {"episodes": 1, "seed": 1, name: np.int64(2)}
    assert vantage.evaluate(cartpole_run, **games).episodes == games["episodes"]


def test_training_code_of_ones_own_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")  # where no key can be written
    agent = vantage.train("a2c", env="tiny:Bandit", steps=16, threads=1, tensorboard=False, run=tmp_path / "run")
    assert agent.step >= 16


def test_a_root_beside_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(vantage.ConfigError, match="root=elsewhere has no effect beside run="):
        vantage.train("a2c", env="tiny:Bandit", steps=16, root="elsewhere", run=tmp_path / "run")
