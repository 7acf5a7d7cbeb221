"""Presets of public systems: their values, that each trains, resumes and evaluates, and that they are options alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import vantage
from vantage.cli.arguments import read
from vantage.cli.entry import COMMANDS
from vantage.config.presets.systems import SYSTEMS
from vantage.envs.make import make_environments
from vantage.learning.config import OptimizerConfig

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "systems.md").read_text(encoding="utf-8")
OWN = {"pytorch-a2c": ("Pong", "Breakout", "vantage/Snake-v0"), "rl-a3c-pytorch": ("Pong", "Seaquest"),
       "a3c-continuous": ("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
       "a3c-acer-pytorch": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "a3c-acer-pytorch-a3c": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "practical-rl-a2c": ("SpaceInvadersNoFrameskip-v4",), "universe-a3c": ("Pong", "Breakout")}
SMALL = {"steps": 20, "memory_size": 16, "threads": 1, "tensorboard": False, "log_every_seconds": 0,
         "max_episode_steps": 12, "eval_every": 0, "eval_every_seconds": 0, "stop_at_eval": None}


def test_every_system_has_environments_here_and_its_conversions_on_the_page() -> None:
    assert OWN.keys() == SYSTEMS.keys()
    assert all(f"**`{name}`** ({system.title})" in PAGE for name, system in SYSTEMS.items())


def test_values_are_the_systems_converted_to_means() -> None:
    config = vantage.configure("rl-a3c-pytorch", env="Pong")
    assert config.optimizer == OptimizerConfig("adam", 0.0001, 1e-3 / 20, 0.99, 0.0)
    assert config.runtime.rollout_length == 20
    assert (config.env.crop, config.env.screen_size, config.env.max_frames) == ("rl-a3c-pytorch", "80", 3)
    lesson = vantage.configure("practical-rl-a2c", env="SpaceInvaders")
    assert (lesson.algorithm.value_coef, lesson.env.num_envs, lesson.env.random_start) == (0.5, 8, 30)
    many = vantage.configure("pytorch-a2c", env="Pong")
    assert many.env.num_envs * many.runtime.rollouts_per_update == 45
    assert (many.policy.hidden, many.policy.memory_size, many.policy.bptt) == ((256, 256), 256, False)
    assert many.env.reward_terminates and not vantage.configure("pytorch-a2c", env="Breakout").env.reward_terminates
    assert vantage.configure("universe-a3c", env="Breakout").env.action_subset == "FIRE,RIGHT,LEFT"
    snake = vantage.configure("pytorch-a2c", env="vantage/Snake-v0")
    assert snake.env.env_options == {"grid_size": 15, "unit_size": 4, "num_foods": 2}
    for env in OWN["a3c-continuous"]:
        assert vantage.configure("a3c-continuous", env=env).run.stop_at_eval == 300


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`vantage (train [^`]*?--env [^`]*)`", PAGE))))
def test_a_command_of_the_page_on_systems_builds_its_environment(command: str) -> None:
    call = read(COMMANDS["train"], shlex.split(command)[1:], "vantage train")
    make_environments(call.args[0].config().env, seed=0, num_envs=1, stream=0).close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "env"), [
    (name, env) for name, envs in OWN.items() for env in envs
    if env not in ("Breakout", "Seaquest", "BipedalWalkerHardcore-v3")])  # as the first of its preset
def test_a_preset_trains_resumes_and_evaluates(name: str, env: str, tmp_path: Path) -> None:
    """Asynchronous ones in this process: with one worker that is the same, bit for bit, as tests of workers show."""
    config = vantage.configure(name, env=env, lr="3e-4").override(SMALL, source="test")
    small = {"replay_size": 200} if config.algo == "acer" else {"algo": "a2c"}
    config = config.change(runtime="sync", num_workers=0, num_envs=1, **small)
    *_, last = vantage.Trainer(config, run=tmp_path / "run", argv=())
    assert last.status == "done" and last.step >= config.run.steps
    *_, more = vantage.Trainer.resume(tmp_path / "run", steps=last.step + 1)
    assert more.step >= last.step + 1
    assert vantage.evaluate(tmp_path / "run", episodes=1).episodes == 1
