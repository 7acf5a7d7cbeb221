"""Training environments of which some cut their episodes short, so that starts are learned sooner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vantage.config_groups import EnvConfig
from vantage.envs.interface import MASK, Array, Info, Obs, Outcome, Seeds, Simulators


def with_short_episodes(make: Callable[[EnvConfig, Seeds], Simulators], config: EnvConfig, seeds: Seeds) -> Simulators:
    """What `make` builds, every `short_episode_every`-th environment of the run with a time limit of its own.

    An environment's index in the run decides, so the number of processes does not matter.
    """
    every, steps = config.short_episode_every, config.short_episode_steps
    short = np.array([steps > 0 and env % every == every - 1 for env in seeds.envs])
    if not short.any():
        return make(config, seeds)
    limited = replace(config, max_episode_steps=min(steps, config.max_episode_steps or steps))
    parts = [(make(options, replace(seeds, envs=[seeds.envs[i] for i in which.nonzero()[0].tolist()])), which)
             for options, which in ((config, ~short), (limited, short)) if which.any()]
    both, first = _SideBySide(parts), parts[0][0]
    note = f"of {every} environments, one cuts its episodes after {steps} steps"
    return replace(first, reset=both.reset, step=both.step, close=both.close, short=short, notes=(note, *first.notes))


class _SideBySide:
    """Simulators of one kind in one batch; `which` [B] bool are the places of each part."""

    def __init__(self, parts: list[tuple[Simulators, Array]]) -> None:
        self._parts = parts
        self._latest: list[tuple[Obs, Info]] = [({}, {}) for _ in parts]

    def reset(self, episodes: Array | None, which: Array) -> tuple[Obs, Info]:
        for i, (part, mine) in enumerate(self._parts):
            if which[mine].any():  # Gymnasium refuses a reset of none
                self._latest[i] = part.reset(None if episodes is None else episodes[mine], which[mine])
        return self._joined()

    def step(self, actions: Array) -> Outcome:
        outcomes = [part.step(actions[mine]) for part, mine in self._parts]
        self._latest = [(obs, info) for obs, *_, info in outcomes]
        rewards, terminated, truncated = (self._join([outcome[i] for outcome in outcomes]) for i in (1, 2, 3))
        obs, info = self._joined()
        return obs, rewards, terminated, truncated, info

    def close(self) -> None:
        for part, _ in self._parts:
            part.close()

    def _joined(self) -> tuple[Obs, Info]:
        observations, infos = zip(*self._latest, strict=True)
        info = {name: self._join([info[name] for info in infos]) for name in ("lives", MASK) if name in infos[0]}
        if isinstance(observations[0], Mapping):
            return {name: self._join([obs[name] for obs in observations]) for name in observations[0]}, info
        return self._join(observations), info

    def _join(self, arrays: Any) -> Array:
        joined = np.empty((len(self._parts[0][1]), *arrays[0].shape[1:]), arrays[0].dtype)
        for (_, mine), array in zip(self._parts, arrays, strict=True):
            joined[mine] = array
        return joined
