"""Checks of numbers from environments: errors if not finite, warnings for likely mistakes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import Array, Obs
from vantage.envs.parts import leaves_of, names_of
from vantage.errors import EnvError
from vantage.specs import ArraySpec

log = logging.getLogger(__name__)

Bounds = Mapping[str, tuple[Array, Array]]
"""Low and high bounds of parts by name, "" for the whole observation."""

LARGEST_REWARD = 1e6
# steps between checks that would cost more than 1% of CartPole's time at every step
CHECK_EVERY = 100


def bounds_of(space: gym.Space[Any], obs: ArraySpec | Mapping[str, ArraySpec]) -> Bounds:
    """Flat bounds of the vector Boxes in `space` by the name of the part ("" for the whole).

    They are shifted like the part. Images have no bounds: their values are bytes, or scaled by the
    values that occur.
    """
    leaves = leaves_of(space)
    bounds = {}
    for path, name in names_of(leaves).items():
        leaf = leaves[path]
        part = obs.get(name) if isinstance(obs, Mapping) else obs
        if part is None or part.kind != "vector":  # a set's mask is no part
            continue
        if isinstance(leaf, spaces.Box) and leaf.dtype != np.uint8:
            shift = np.array(part.shift or 0, np.float64)
            bounds[name] = (leaf.low.ravel().astype(np.float64) - shift,
                            leaf.high.ravel().astype(np.float64) - shift)
    return bounds


def _widened(bound: Array, slack: float) -> Array:
    """`bound` moved by `slack` relative to its size, for the rounding of float32."""
    with np.errstate(over="ignore"):  # no bound is further than infinity
        widened: Array = bound + slack * (1 + abs(bound))
        return widened


class Fault(NamedTuple):
    """What is wrong in the environment `env`, in words."""

    env: int
    words: str


def reset_step_fault(resetting: Any, rewards: Any, over: Any) -> Fault | None:
    """The first step that only resets, where `resetting`, and pays or ends an episode again.

    Takes arrays or tensors [B].
    """
    wrong = resetting & ((rewards != 0) | over)
    if not wrong.any():
        return None
    env = int(wrong.nonzero()[0][0])
    reward = float(rewards[env])
    what = f"pays {reward:g}" if reward else "ends an episode again"
    return Fault(env, f"the step after the end of an episode {what}")


class Checks:
    """Checks one group of environments.

    `place` describes an environment, with its seed, episode and step. Every `every`th call compares
    values with their bounds. `passed` returns the replay limit that an episode exceeds, in words,
    or "".
    """

    def __init__(self, bounds: Bounds, place: Callable[[int], str],
                 passed: Callable[[], str] = str, *, warn: bool, every: int = CHECK_EVERY) -> None:
        self._bounds = bounds
        self._accepted = {name: (_widened(low, -1e-4), _widened(high, 1e-4))
                          for name, (low, high) in bounds.items()}
        self._place = place
        self._passed = passed
        self._calls = 0
        self._every = every
        self._warned = set() if warn else {"observation", "reward", "episode", "reset step"}

    def __call__(self, obs: Obs, rewards: Array, actions: Array, lengths: Array) -> None:
        """Raise EnvError for numbers that are not finite; warn once of each likely mistake."""
        parts = tuple(obs.values()) if isinstance(obs, Mapping) else (obs,)
        # One product for all environments costs a third of np.isfinite; an overflow only leads to
        # the closer look.
        if not (np.vdot(rewards, rewards) <= LARGEST_REWARD**2
                and all(math.isfinite(np.vdot(part, part))
                        for part in parts if part.dtype.kind == "f")):
            self._look_closer(parts, rewards, actions, lengths)
        if self._calls % self._every == 0:
            self._compare_with_bounds(obs, lengths)
        self._calls += 1

    def reset_steps(self, resetting: Any, rewards: Any, over: Any) -> None:
        """Warn once of steps that only reset, where `resetting`, and pay or end an episode."""
        if "reset step" in self._warned:
            return
        if fault := reset_step_fault(resetting, rewards, over):
            self._warn("reset step", fault.env, f"{fault.words}, which has no effect: it only "
                       "resets; let it pay 0 and end nothing")

    def _look_closer(self, parts: tuple[Array, ...], rewards: Array, actions: Array,
                     lengths: Array) -> None:
        for env, reward in enumerate(rewards.tolist()):
            bad = [f"observation {part[env]}"
                   for part in parts if not np.isfinite(part[env]).all()]
            if not math.isfinite(reward):
                bad.insert(0, f"reward {reward}")
            if bad:
                after = f"action {actions[env]}" if lengths[env] else "reset"
                raise EnvError(f"{self._place(env)}: {bad[0]} is not finite after {after}")
            if abs(reward) > LARGEST_REWARD:
                self._warn("reward", env, f"the reward {reward:g} is beyond {LARGEST_REWARD:g} in "
                           "size, so that values hardly fit; set reward_scale or reward=clip")

    def _compare_with_bounds(self, obs: Obs, lengths: Array) -> None:
        for name, (lowest, highest) in self._accepted.items():
            part = obs[name] if isinstance(obs, Mapping) else obs
            outside = (part < lowest) | (part > highest)
            if outside.any():
                low, high = self._bounds[name]
                env, i = np.argwhere(outside)[0].tolist()
                title = f"observation {name!r}" if name else "observation"
                self._warn("observation", env, f"{title} has {part[env, i]:g} at index {i}, "
                           f"outside its Box of {low[i]:g} to {high[i]:g}; correct the "
                           "observation_space")
        limit = self._passed()
        if limit:
            self._warn("episode", int(lengths.argmax()), f"the episode is longer than {limit}, so "
                       "that a resume begins a new one; set max_episode_steps")

    def _warn(self, kind: str, env: int, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning(f"{self._place(env)}: {message}")
