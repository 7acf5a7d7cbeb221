"""Presets of public systems: their values, that each trains, resumes and evaluates, and that they are options alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import vantage
from vantage.cli.given import resolve
from vantage.cli.parser import parse
from vantage.config_groups import OptimizerConfig
from vantage.envs import make_environments, resolve_env
from vantage.errors import ConfigError
from vantage.models import make_model
from vantage.presets import catalogue
from vantage.systems import SYSTEMS

SYSTEMS_PAGE = Path(__file__).parents[2] / "docs" / "systems.md"
OWN = {"pytorch-a2c": ("Pong", "Breakout", "vantage/Snake-v0"), "rl-a3c-pytorch": ("Pong", "Seaquest"),
       "a3c-continuous": ("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
       "a3c-acer-pytorch": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "a3c-acer-pytorch-a3c": ("PongNoFrameskip-v4", "Pendulum-v1"),
       "practical-rl-a2c": ("SpaceInvadersNoFrameskip-v4",), "universe-a3c": ("Pong", "Breakout")}
SMALL = {"steps": 60, "memory_size": 16, "threads": 1, "tensorboard": False, "log_every_seconds": 0,
         "max_episode_steps": 30, "eval_every": 0, "eval_every_seconds": 0, "stop_at_eval": None}


@pytest.mark.parametrize(("name", "env"), [(name, env) for name, envs in OWN.items() for env in envs])
def test_a_preset_is_a_config_on_its_own_environments(name: str, env: str) -> None:
    config = vantage.configure(name, env=env)
    assert config.algo in ("a2c", "a3c", "acer")
    assert vantage.configure(name, env=env, lr="3e-4").optimizer.lr == "3e-4"


def test_every_system_has_environments_of_its_own_here() -> None:
    assert OWN.keys() == SYSTEMS.keys()


def test_values_are_the_systems_converted_to_means() -> None:
    config = vantage.configure("rl-a3c-pytorch", env="Pong")
    assert config.optimizer == OptimizerConfig("adam", "0.0001", 1e-3 / 20, 0.99, "0")
    assert config.runtime.rollout_length == "20"
    assert (config.env.crop, config.env.screen_size, config.env.max_frames) == ("rl-a3c-pytorch", "80", 3)
    assert config.policy.memory_size == 512
    lesson = vantage.configure("practical-rl-a2c", env="SpaceInvaders")
    assert lesson.algorithm.value_coef == "0.5" and lesson.policy.frame_stack == 4
    assert (lesson.env.num_envs, lesson.env.random_start) == (8, 30)
    many = vantage.configure("pytorch-a2c", env="Pong")
    assert many.env.num_envs * many.runtime.rollouts_per_update == 45
    assert (many.policy.hidden, many.policy.memory_size) == ("256,256", 256), "h_size of hyperparams.json"
    assert many.env.reward_terminates and not vantage.configure("pytorch-a2c", env="Breakout").env.reward_terminates
    assert vantage.configure("universe-a3c", env="Breakout").env.action_subset == "FIRE,RIGHT,LEFT"


def test_images_and_stacks_are_the_systems() -> None:
    half = vantage.configure("pytorch-a2c", env="Breakout")
    assert (half.env.crop, half.env.screen_size) == ("35,15,8,8", "80x72"), "every second of 160x144 pixels"
    assert half.policy.bptt is False
    snake = vantage.configure("pytorch-a2c", env="vantage/Snake-v0")
    assert snake.env.env_options == {"grid_size": 15, "unit_size": 4, "num_foods": 2}
    stacks = {name: (config.policy.frame_stack, config.policy.stack_pad)
              for name in OWN for config in [vantage.configure(name, env="Pong")]}
    assert stacks == {"pytorch-a2c": (3, "zeros"), "rl-a3c-pytorch": (1, "zeros"), "a3c-continuous": (1, "zeros"),
                      "a3c-acer-pytorch": (4, "repeat"), "a3c-acer-pytorch-a3c": (4, "repeat"),
                      "practical-rl-a2c": (4, "repeat"), "universe-a3c": (1, "zeros")}


@pytest.mark.parametrize("name", ["rl-a3c-pytorch", "practical-rl-a2c", "universe-a3c"])
def test_a_network_for_images_is_what_a_vector_is_refused_for(name: str) -> None:
    """Not an option that nobody gave."""
    config = vantage.configure(name, env="CartPole-v1").override({"runtime": "sync"}, source="test")
    envs = make_environments(config.env, seed=0, num_envs=1, stream=0)
    with pytest.raises(ConfigError, match=r"network=\w+ is for images"):
        make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic)
    envs.close()


def test_weights_begin_as_the_system_had_them_or_nearly() -> None:
    assert {name: vantage.configure(name, env=envs[0]).policy.init for name, envs in OWN.items()} == {
        "pytorch-a2c": "torch", "rl-a3c-pytorch": "columns", "a3c-continuous": "kaiming",
        "a3c-acer-pytorch": "kaiming", "a3c-acer-pytorch-a3c": "xavier", "practical-rl-a2c": "orthogonal",
        "universe-a3c": "xavier"}


def test_two_presets_of_one_algorithm_and_network_differ_in_the_options_they_name() -> None:
    one, other = (vantage.configure(name, env="Pong", network="a3c") for name in ("rl-a3c-pytorch", "universe-a3c"))
    named = SYSTEMS["rl-a3c-pytorch"].values, SYSTEMS["universe-a3c"].values
    keys = {key for values in named for key in values(resolve_env("Pong"))} | {"save_every", "schedule_steps"}
    assert {name for name, value in one.flat().items() if value != other.flat()[name]} <= keys


def test_the_list_shows_each_preset_and_what_was_converted() -> None:
    text = " ".join(catalogue().split())
    for name, system in SYSTEMS.items():
        assert name in text and system.title in text
        assert all(" ".join(note.split()[:3]) in text for note in system.notes)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean rl-a3c-pytorch"):
        vantage.configure("rl-a3c-torch", env="Pong")


def commands() -> list[str]:
    """The trainings that docs/systems.md names."""
    return sorted(set(re.findall(r"`vantage (train [^`]*?--env [^`]*)`", SYSTEMS_PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_on_systems_builds_its_environment(command: str) -> None:
    config, _ = resolve(parse(shlex.split(command)))
    make_environments(config.env, seed=0, num_envs=1, stream=0).close()


def test_presets_save_as_often_as_the_family_of_the_environment() -> None:
    save_every = {vantage.configure(name, env="Pong").run.save_every for name in ("rl-a3c-pytorch", "a2c")}
    assert len(save_every) == 1


@pytest.mark.parametrize(("name", "env"), [(name, env) for name, envs in OWN.items() for env in envs])
def test_a_preset_trains_resumes_and_evaluates(name: str, env: str, tmp_path: Path) -> None:
    """Asynchronous ones in this process: with one worker that is the same, bit for bit, as tests of workers show."""
    config = vantage.configure(name, env=env).override(SMALL, source="test")
    small = {"replay_size": 200} if config.algo == "acer" else {"algo": "a2c"}
    config = config.override({"runtime": "sync", "num_workers": 0, "num_envs": min(2, config.env.num_envs), **small},
                             source="test")
    *_, last = vantage.train(config, run=tmp_path / "run", argv=())
    assert last.status == "done" and last.step >= config.run.steps
    *_, more = vantage.resume(tmp_path / "run", steps=last.step + 20)
    assert more.step >= last.step + 20
    assert vantage.evaluate(tmp_path / "run", episodes=1).episodes == 1
