"""The interface of a vector environment in tensors, which a user writes. `tensor_env` trains on it."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
from torch import Tensor

TensorObs = Any
"""A tensor [B, *shape], or a dict or tuple of them as the observation space is."""


class VecEnv(Protocol):
    """B environments whose observations, rewards and ends are tensors on one device; actions arrive there too.

    A class or function that takes `num_envs` builds it. No base class is needed, and no metadata.

    An episode's end is followed by a step that only resets (Gymnasium's NEXT_STEP): that step ignores the action,
    returns the first observation of the next episode, the reward 0 and no end.

    It may also have `snapshot() -> dict[str, Tensor]`, everything that `restore(snapshot)` needs to continue,
    random generators included. A resumed run is then exact; without them it begins new episodes.
    """

    num_envs: int
    single_observation_space: gym.Space[Any]
    single_action_space: gym.Space[Any]

    def reset(self, *, seed: int | None = None) -> tuple[TensorObs, dict[str, Any]]:
        """Begin an episode in each environment; `seed` decides all that is random from here on.

        An `action_mask` [B, A] in `info`, here and of every step, is True where an action is allowed.
        """

    def step(self, actions: Tensor) -> tuple[TensorObs, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards [B], terminated and truncated [B] bool, and info.

        Actions are int64 [B] for Discrete spaces, int64 [B, *shape] for MultiDiscrete and MultiBinary ones, and
        float32 [B, *shape] for Boxes, clipped to the bounds.
        """

    def close(self) -> None:
        """Release what the environment holds."""
