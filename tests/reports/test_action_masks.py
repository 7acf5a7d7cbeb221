"""Masks from an environment's action_masks(), as MaskablePPO calls it, and masks in info that come late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import vantage
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.errors import EnvError

SHORT: dict[str, Any] = {"eval_every": 0, "threads": 1, "tensorboard": False, "log_every_seconds": 1000,
                         "obs_norm": False, "num_envs": 2}
Info = dict[str, Any]


class Turns(gym.Env[np.ndarray, Any]):
    """Step t allows the actions other than t % 3 and ends after `length` steps; a forbidden action is an error."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int = 3, start: int = 0) -> None:
        self.action_space: spaces.Space[Any] = spaces.Discrete(3, start=start)
        self.length, self.start = length, start
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        assert self.allowed()[int(action) - self.start], "a forbidden action was taken"
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t >= self.length, False, {}

    def allowed(self) -> np.ndarray:
        return np.arange(3) != self.t % 3


class WithMethod(Turns):
    def action_masks(self) -> np.ndarray:
        return self.allowed()


class Wrapped(gym.Wrapper[Any, Any, Any, Any]):
    """As sb3-contrib's ActionMasker."""

    def action_masks(self) -> list[bool]:
        return [bool(each) for each in self.env.unwrapped.allowed()]  # type: ignore[attr-defined]


def make_wrapped() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Wrapped(Turns()), 100)


def make_vector(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.vector.SyncVectorEnv([WithMethod] * num_envs, autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)


class Own(gym.vector.SyncVectorEnv):
    """A vector environment with one method for all."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Turns] * num_envs, autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)

    def action_masks(self) -> np.ndarray:
        return np.stack([env.unwrapped.allowed() for env in self.envs])  # type: ignore[attr-defined]


class Parts(WithMethod):
    """MultiDiscrete with the masks of both parts in a row: the second action of the first part is forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 3])

    def allowed(self) -> np.ndarray:
        return np.array([1, 0, 1, 1, 1], bool)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        assert action[0] == 0
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Late(Turns):
    """Has `action_mask` in info from the second episode on, or in the steps alone."""

    def __init__(self, steps_alone: bool = False) -> None:
        super().__init__()
        self.steps_alone, self.episode = steps_alone, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Info]:
        obs, _ = super().reset(seed=seed)
        self.episode += 1
        return obs, {"action_mask": self.allowed()} if self.episode > 1 and not self.steps_alone else {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        self.t += 1
        info = {"action_mask": self.allowed()} if self.steps_alone else {}
        return np.zeros(1, np.float32), 1.0, self.t >= 3, False, info


class BoxWithMethod(Turns):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1, 1, (1,))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        return np.zeros(1, np.float32), 1.0, True, False, {}

    def action_masks(self) -> np.ndarray:
        raise RuntimeError("of a base class, for Discrete actions")


def make(env: Any, **keys: Any) -> Environments:
    return make_environments(vantage.configure("ppo", env=env, **keys).env, seed=0, num_envs=2, stream=0)


@pytest.mark.parametrize(("env", "keys"), [
    (WithMethod, {}), (make_wrapped, {}), (WithMethod, {"vector": "async"}), (make_vector, {}), (Own, {}),
    (WithMethod, {"env_kwargs": {"start": 5}})], ids=["env", "wrapper", "async", "vector", "own vector", "start"])
def test_the_method_is_the_mask(env: Any, keys: dict[str, Any]) -> None:
    envs = make(env, **keys)
    first = envs.reset()
    assert envs.spec.masked and any("masked" in note for note in envs.notes)
    masks = [first.action_mask] + [envs.step(np.full(2, (t + 1) % 3)).action_mask for t in range(4)]
    rows = [mask[0].tolist() for mask in masks if mask is not None]
    del rows[3]  # the task has ended, so that no action follows and no value is taken
    assert rows == [[False, True, True], [True, False, True], [True, True, False], [False, True, True]]
    envs.close()


def test_masks_of_two_parts_come_in_a_row() -> None:
    first = make(Parts).reset()
    assert first.action_mask is not None and first.action_mask[0].tolist() == [True, False, True, True, True]


@pytest.mark.parametrize("algo", ["ppo", "a2c", "acer"])
def test_no_forbidden_action_is_taken_in_training_evaluation_and_loops(algo: str, tmp_path: Path) -> None:
    config = vantage.configure(algo, env=WithMethod, steps=300, **SHORT | {"eval_every": 150, "eval_episodes": 2})
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done"
    assert vantage.evaluate(tmp_path / "run", episodes=3, deterministic=False).returns == [3, 3, 3]
    agent = vantage.load(tmp_path / "run")
    env = agent.make_env(seed=1)
    obs, info = env.reset()
    for _ in range(3):
        action, _ = agent.act(obs, agent.initial_state(), action_mask=info["action_mask"])
        obs, _, terminated, _, info = env.step(action)
    assert terminated


def test_an_export_takes_the_mask(tmp_path: Path) -> None:
    list(vantage.Trainer(vantage.configure("ppo", env=WithMethod, steps=50, **SHORT), run=tmp_path / "run"))
    assert "action_mask" in vantage.export(tmp_path / "run", format="onnx").inputs


def test_a_step_of_several_frames_ends_before_its_action_is_forbidden() -> None:
    """Action 1 is allowed in frames 0, 2, 3 and forbidden in frame 1; action 2 may take two frames."""
    envs = make(WithMethod, frame_skip="4", env_kwargs={"length": 5})
    envs.reset()
    step = envs.step(np.array([1, 2]))
    assert step.rewards.tolist() == [1, 2]
    assert step.action_mask is not None and step.action_mask.tolist() == [[True, False, True], [True, True, False]]


def test_random_starts_refuse_masks_of_the_method() -> None:
    with pytest.raises(vantage.ConfigError, match="random_start ignores action masks"):
        make(WithMethod, random_start=3)


@pytest.mark.parametrize("steps_alone", [False, True])
@pytest.mark.parametrize("vector", ["sync", "async"])
def test_a_mask_that_comes_late_says_what_to_do(steps_alone: bool, vector: str, tmp_path: Path) -> None:
    config = vantage.configure("ppo", env=Late, env_kwargs={"steps_alone": steps_alone}, steps=100, vector=vector,
                               **SHORT)
    with pytest.raises(EnvError, match=r"info has action_mask, unlike at the first reset; put it into every info, that "
                                       r"of reset included, or give the environment a method action_masks\(\)"):
        list(vantage.Trainer(config, run=tmp_path / "run"))


def test_the_method_has_no_effect_on_box_actions() -> None:
    envs = make(BoxWithMethod)
    assert not envs.spec.masked and envs.reset().action_mask is None
