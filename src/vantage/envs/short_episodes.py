"""Training environments that cut their episodes short, so that starts are learned sooner."""

from __future__ import annotations

from typing import Any

import numpy as np

from vantage.envs.config import EnvConfig
from vantage.envs.interface import Array, Info


def short_environments(config: EnvConfig, num_envs: int, place: int) -> Array:
    """[B] bool: which environments have short episodes.

    `place` is the index of the first among all that run at the same time. The share of short ones
    therefore does not depend on the number of processes, nor on replaced workers.
    """
    short_steps = config.short_episode_steps
    limit = config.max_episode_steps
    if short_steps == 0 or (limit > 0 and short_steps >= limit):
        return np.zeros(num_envs, bool)
    short: Array = (np.arange(place, place + num_envs) + 1) % config.short_episode_every == 0
    return short


def keep_if_shorter(short: Array, config: EnvConfig, limit: float) -> None:
    """Mark no environment `short` [B] whose episodes end after `limit` steps anyway."""
    short &= config.short_episode_steps < limit


class SideBySide:
    """Vectors of Atari games in one batch, each with its own time limit and places in the batch."""

    def __init__(self, vectors: list[tuple[Any, Array]]) -> None:
        self.vectors = vectors
        self._latest: list[tuple[Array, Info]] = [(np.empty(0), {}) for _ in vectors]

    def reset(self, seeds: Array | None, which: Array, *, compact: bool) -> tuple[Array, Info]:
        """Reset where `which` is True. With `compact` a vector takes the seeds of those alone."""
        for i, (vector, places) in enumerate(self.vectors):
            reset_mask = which[places]
            if not reset_mask.any():
                continue
            seed: Any = None
            if seeds is not None:
                seed = seeds[places][reset_mask] if compact else seeds[places].tolist()
            self._latest[i] = vector.reset(seed=seed, options={"reset_mask": reset_mask})
        return self._joined()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, Info]:
        outcomes = [vector.step(actions[places]) for vector, places in self.vectors]
        self._latest = [(obs, info) for obs, *_, info in outcomes]
        rewards, terminated, truncated = (self._join([outcome[i] for outcome in outcomes])
                                          for i in (1, 2, 3))
        obs, info = self._joined()
        return obs, rewards, terminated, truncated, info

    def info(self) -> Info:
        """What the first game reported at its last reset or step."""
        return {"lives": int(self._joined()[1]["lives"][0])}

    def close(self) -> None:
        for vector, _ in self.vectors:
            vector.close()

    def _joined(self) -> tuple[Array, Info]:
        return (self._join([obs for obs, _ in self._latest]),
                {"lives": self._join([info["lives"] for _, info in self._latest])})

    def _join(self, parts: list[Array]) -> Array:
        if len(parts) == 1:
            return parts[0]
        joined = np.empty((sum(len(part) for part in parts), *parts[0].shape[1:]), parts[0].dtype)
        for (_, places), part in zip(self.vectors, parts, strict=True):
            joined[places] = part
        return joined
