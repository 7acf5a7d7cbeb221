"""The interface of a user's vector environment in tensors. `tensor_env` trains on it."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
from torch import Tensor

TensorObs = Any
"""A tensor [B, *shape], or a dict or tuple of them as the observation space is."""


class VecEnv(Protocol):
    """B environments with observations, rewards and ends as tensors on one device.

    Actions arrive on the same device. A class or function of `num_envs` builds it; no base class is
    needed.

    The step after an episode's end only resets (Gymnasium's NEXT_STEP): it ignores the action and
    returns the first observation of the next episode, the reward 0 and no end.

    With `metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}`, the step that ends an episode
    returns the first observation of the next one. `info` may then have `time_outs` [B], True at
    time limits (else `truncated` is), and `final_obs`, the last observations of episodes that
    ended.

    Optional: `snapshot() -> dict[str, Tensor]` and `restore(snapshot)`, with everything needed to
    continue, random generators included. Resumed runs are then exact; without them, they begin new
    episodes.
    """

    num_envs: int
    single_observation_space: gym.Space[Any]
    single_action_space: gym.Space[Any]

    def reset(self, *, seed: int | None = None) -> tuple[TensorObs, dict[str, Any]]:
        """Begin an episode in each environment; `seed` decides all that is random from here on.

        An `action_mask` [B, A] in `info`, here and of every step, is True where an action is
        allowed; masks of the parts of Dict and Tuple actions may be nested as these.
        """

    def step(self, actions: Tensor) -> tuple[TensorObs, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards [B], terminated and truncated [B] bool, and info.

        Actions are int64 [B] for Discrete spaces and int64 [B, *shape] for MultiDiscrete and
        MultiBinary ones. Boxes get float32 [B, *shape], clipped to the bounds: int64 if the Box
        holds integers, float64 if actions are scaled to bounds for which float32 is too coarse.
        Dict and Tuple spaces get a dict or tuple of these.
        """

    def close(self) -> None:
        """Release what the environment holds."""
