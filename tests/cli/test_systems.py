"""Presets of public systems: their values, that each trains, resumes and evaluates, and that they are options alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import vantage
from vantage.cli.arguments import read
from vantage.cli.entry import COMMANDS
from vantage.config_groups import OptimizerConfig
from vantage.envs import make_environments, resolve_env
from vantage.errors import ConfigError
from vantage.models import make_model
from vantage.presets import SYSTEMS

PAGE = (Path(__file__).parents[2] / "docs" / "systems.md").read_text(encoding="utf-8")
OWN = {"pytorch-a2c": ("Pong", "Breakout", "vantage/Snake-v0"), "rl-a3c-pytorch": ("Pong", "Seaquest"),
       "a3c-continuous": ("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
       "a3c-acer-pytorch": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "a3c-acer-pytorch-a3c": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "practical-rl-a2c": ("SpaceInvadersNoFrameskip-v4",), "universe-a3c": ("Pong", "Breakout")}
SMALL = {"steps": 60, "memory_size": 16, "threads": 1, "tensorboard": False, "log_every_seconds": 0,
         "max_episode_steps": 30, "eval_every": 0, "eval_every_seconds": 0, "stop_at_eval": None}


def test_every_system_has_environments_here_and_its_conversions_on_the_page() -> None:
    assert OWN.keys() == SYSTEMS.keys()
    assert all(f"**`{name}`** ({system.title})" in PAGE for name, system in SYSTEMS.items())


def test_values_are_the_systems_converted_to_means() -> None:
    config = vantage.configure("rl-a3c-pytorch", env="Pong")
    assert config.optimizer == OptimizerConfig("adam", "0.0001", 1e-3 / 20, 0.99, "0")
    assert config.runtime.rollout_length == "20"
    assert (config.env.crop, config.env.screen_size, config.env.max_frames) == ("rl-a3c-pytorch", "80", 3)
    lesson = vantage.configure("practical-rl-a2c", env="SpaceInvaders")
    assert (lesson.algorithm.value_coef, lesson.env.num_envs, lesson.env.random_start) == ("0.5", 8, 30)
    many = vantage.configure("pytorch-a2c", env="Pong")
    assert many.env.num_envs * many.runtime.rollouts_per_update == 45
    assert (many.policy.hidden, many.policy.memory_size, many.policy.bptt) == ("256,256", 256, False)
    assert many.env.reward_terminates and not vantage.configure("pytorch-a2c", env="Breakout").env.reward_terminates
    assert vantage.configure("universe-a3c", env="Breakout").env.action_subset == "FIRE,RIGHT,LEFT"
    for env in OWN["a3c-continuous"]:
        assert vantage.configure("a3c-continuous", env=env).run.stop_at_eval == 300


def test_images_stacks_and_first_weights_are_the_systems() -> None:
    half = vantage.configure("pytorch-a2c", env="Breakout")
    assert (half.env.crop, half.env.screen_size) == ("35,15,8,8", "80x72"), "every second of 160x144 pixels"
    snake = vantage.configure("pytorch-a2c", env="vantage/Snake-v0")
    assert snake.env.env_options == {"grid_size": 15, "unit_size": 4, "num_foods": 2}
    policies = {name: vantage.configure(name, env="Pong").policy for name in OWN}
    assert {name: (policy.frame_stack, policy.stack_pad, policy.init) for name, policy in policies.items()} == {
        "pytorch-a2c": (3, "zeros", "torch"), "rl-a3c-pytorch": (1, "zeros", "columns"),
        "a3c-continuous": (1, "zeros", "kaiming"), "a3c-acer-pytorch": (4, "repeat", "kaiming"),
        "a3c-acer-pytorch-a3c": (4, "repeat", "xavier"), "practical-rl-a2c": (4, "repeat", "orthogonal"),
        "universe-a3c": (1, "zeros", "xavier")}


def test_a_vector_is_refused_for_a_presets_network_not_for_an_option_that_nobody_gave() -> None:
    config = vantage.configure("rl-a3c-pytorch", env="CartPole-v1").override({"runtime": "sync"}, source="test")
    envs = make_environments(config.env, seed=0, num_envs=1, stream=0)
    with pytest.raises(ConfigError, match=r"network=\w+ is for images"):
        make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic)
    envs.close()


def test_two_presets_of_one_algorithm_and_network_differ_in_the_options_they_name() -> None:
    names = ("rl-a3c-pytorch", "universe-a3c")
    one, other = (vantage.configure(name, env="Pong", network="a3c").flat() for name in names)
    keys = {key for name in names for key in SYSTEMS[name].values(resolve_env("Pong"))} | {"save_every"}
    assert {name for name, value in one.items() if value != other[name]} <= keys
    assert one["save_every"] == other["save_every"] == vantage.configure("a2c", env="Pong").run.save_every


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`vantage (train [^`]*?--env [^`]*)`", PAGE))))
def test_a_command_of_the_page_on_systems_builds_its_environment(command: str) -> None:
    call = read(COMMANDS["train"], shlex.split(command)[1:], "vantage train")
    make_environments(call.args[0].config().env, seed=0, num_envs=1, stream=0).close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "env"), [(name, env) for name, envs in OWN.items() for env in envs])
def test_a_preset_trains_resumes_and_evaluates(name: str, env: str, tmp_path: Path) -> None:
    """Asynchronous ones in this process: with one worker that is the same, bit for bit, as tests of workers show."""
    config = vantage.configure(name, env=env, lr="3e-4").override(SMALL, source="test")
    small = {"replay_size": 200} if config.algo == "acer" else {"algo": "a2c"}
    config = config.change(runtime="sync", num_workers=0, num_envs=min(2, config.env.num_envs), **small)
    *_, last = vantage.train(config, run=tmp_path / "run", argv=())
    assert last.status == "done" and last.step >= config.run.steps
    *_, more = vantage.resume(tmp_path / "run", steps=last.step + 20)
    assert more.step >= last.step + 20
    assert vantage.evaluate(tmp_path / "run", episodes=1).episodes == 1
