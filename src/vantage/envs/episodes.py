"""One environment, run episode after episode: seeded, converted, checked. Vectors of them are in `single`.

Worker processes import this module, so it must not import torch.
"""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from vantage.envs.building import build, build_rendered, close
from vantage.envs.ids import EnvId
from vantage.envs.interface import IDLE, MASK, Array, Seeds
from vantage.envs.options import EnvOptions
from vantage.envs.spaces import blank_obs, make_actor, make_masker, make_observer, policy_spaces
from vantage.envs.wrappers import apply_options
from vantage.errors import EnvError
from vantage.specs import EnvSpec
from vantage.system import die_with

ERROR, EPISODES = "error", "episodes"
"""Keys: of `info`, for a failure in a worker process; of a reset's options, for the episode numbers."""


@dataclass(frozen=True, slots=True)
class EnvPlan:
    """How to build the environments of one vector. Worker processes receive it by pickle."""

    env: EnvId
    kwargs: str
    """Keyword arguments of the environment, as JSON."""
    max_episode_steps: int
    """0 keeps the environment's own limit."""
    seeds: Seeds
    rebuild: bool
    """Build a new instance for each episode, because a reset does not clear the last one."""
    options: EnvOptions
    rendered: bool = False
    """Build with a render mode."""

    def build(self) -> gym.Env[Any, Any]:
        make = build_rendered if self.rendered else build
        built = make(self.env, json.loads(self.kwargs), limited=not self.max_episode_steps)
        return apply_options(built, self.options, self.max_episode_steps)


@dataclass(frozen=True, slots=True)
class EpisodesFactory:
    """Makes the `Episodes` of one environment, here or in a worker process."""

    plan: EnvPlan
    spec: EnvSpec
    index: int
    """Among all environments of the run."""
    place: int
    """Among those of the vector."""
    parent: int = 0
    """Id of the process that starts a worker for the environment; 0 if the environment is stepped in that process."""

    def __call__(self) -> Episodes:
        if self.parent not in (0, os.getpid()):  # Gymnasium makes one in the parent too, for its spaces
            die_with(self.parent)
        return Episodes(self)


class Episodes(gym.Env[Any, Any]):
    """The episodes of one environment, in the shapes that a policy sees.

    The first reset builds the environment, so that errors of building are reported like those of stepping. A worker
    process returns errors as `info["error"]`: Gymnasium's own transport loses the cause and formats the traceback as a
    %-template.
    """

    def __init__(self, factory: EpisodesFactory) -> None:
        self.observation_space, self.action_space = policy_spaces(factory.spec)
        self._factory, self._plan, self._spec = factory, factory.plan, factory.spec
        self.env: gym.Env[Any, Any] | None = None
        self._mask = make_masker(factory.spec.action)
        self._episode = IDLE
        self._steps = 0
        self._over = self._idle = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode, or the one that `options` names. The seed comes from the plan alone."""
        episode = self._episode + 1 if options is None else int(options[EPISODES][self._factory.place])
        self._idle = episode == IDLE
        if self._idle:
            return blank_obs(self._spec.obs), {}
        try:
            return self._begin(episode)
        except (Exception, SystemExit) as error:
            return blank_obs(self._spec.obs), self._failure(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._idle:
            return blank_obs(self._spec.obs), 0.0, False, False, {}
        try:
            return self._step(action)
        except (Exception, SystemExit) as error:
            return blank_obs(self._spec.obs), 0.0, False, False, self._failure(error)

    def close(self) -> None:
        if self.env is not None:
            env, self.env = self.env, None
            close(env, self._plan.env.name)

    def _begin(self, episode: int) -> tuple[Any, dict[str, Any]]:
        self._episode, self._steps, self._over = episode, 0, False
        if self.env is None or self._plan.rebuild:
            self.close()
            self.env = self._plan.build()
            observer, actor = make_observer(self.env.observation_space), make_actor(self.env.action_space)
            if (observer.spec, actor.spec) != (self._spec.obs, self._spec.action):
                raise ValueError(f"instances have different spaces: {observer.spec}, {actor.spec} here, {self._spec}")
            self._observe, self._act = observer.convert, actor.convert
        result = self.env.reset(seed=self._plan.seeds.of(self._factory.index, episode))
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise TypeError(f"reset() returned a {type(result).__name__}, not (observation, info): old gym interface?")
        return self._observe(result[0]), self._info(result[1])

    def _step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.env is not None
        self._steps += 1
        result = self.env.step(self._act(action))
        if len(result) != 5:
            raise TypeError(f"step() returned {len(result)} values, not (observation, reward, terminated, truncated, "
                            "info): old gym interface?")
        obs, reward, terminated, truncated, info = result
        if type(reward) is not float:
            reward = _number(reward)
        terminated, truncated = _flag(terminated, "terminated"), _flag(truncated, "truncated")
        self._over = terminated or truncated
        return self._observe(obs), reward, terminated, truncated, self._info(info)

    def _info(self, info: dict[str, Any]) -> dict[str, Array]:
        """Only the mask: other entries would cost time in each step, most of all in worker processes."""
        if self._over and self._spec.masked:  # the next step only resets, so the mask is not used
            return {MASK: np.ones(sum(self._spec.action.sizes), bool)}
        if self._spec.masked != (MASK in info):
            raise ValueError("info lacks action_mask, which the first reset had" if self._spec.masked else
                             "info has an action_mask, which the first reset lacked")
        return {MASK: self._mask(info[MASK])} if self._spec.masked else {}

    def _failure(self, error: Exception | SystemExit) -> dict[str, Any]:
        place = self._plan.seeds.place(self._factory.index, self._episode, self._steps)
        message = f"{place}: {type(error).__name__}: {error}"
        if not self._factory.parent:
            raise EnvError(message) from error
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


def _number(reward: Any) -> float:
    if isinstance(reward, int | np.number | np.bool_) or (isinstance(reward, np.ndarray) and reward.ndim == 0):
        return float(reward)
    raise TypeError(f"the reward is {reward!r}, a {type(reward).__name__}, not a number")


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError(f"{name} is {value!r}, a {type(value).__name__}, not a bool")
