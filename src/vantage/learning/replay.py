"""Experience replay: a ring of rollouts, from which whole rollouts are drawn uniformly. No learning here.

A row is the rollout of one environment as it was collected: raw single observations, the policy's state before the
first and the parameters of the distribution that acted, so that it can be learnt from long after. Frames that a stack
repeats are stored once: rollouts of 20 with stacks of 4 take 24 frames of 84x84 bytes instead of 84.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.types import Rollout

_SAVED_BYTES = 1 << 26
"""About what a group of `Replay.tensors` comes to, since saving holds one group in memory at a time."""

_PARTS = ("is_first", "actions", "rewards", "terminated", "valid", "action_mask", "behaviour")
_STATE = "state."


class Replay:
    """The last `capacity` rollouts of single environments, on the CPU.

    `like` is a rollout [T, B] as they will come; its contents do not matter. ConfigError if the rows would take more
    than `max_bytes`. The system gives memory to a row when it is first written.
    """

    def __init__(self, capacity: int, like: Rollout, max_bytes: int) -> None:
        self.capacity = capacity
        self.rollouts = 0
        """Rows that have ever been stored; the newest is at (rollouts - 1) mod capacity."""
        parts = _rows(like)
        self.nbytes = capacity * sum(part[0].nbytes for part in parts.values())
        """Memory of all rows, filled or not."""
        if self.nbytes > max_bytes:
            raise ConfigError(f"the replay would take {self.nbytes / 2**30:.1f} GB, more than its part of half the "
                              f"free memory, {max_bytes / 2**30:.1f} GB; give a smaller --replay-size, for "
                              "a resume replay_size in its config.json")
        self._rows = {name: torch.empty((capacity, *part.shape[1:]), dtype=part.dtype) for name, part in parts.items()}
        self._steps_per_row = like.rewards.shape[0]

    def __len__(self) -> int:
        """Rows that can be drawn."""
        return min(self.rollouts, self.capacity)

    @property
    def steps(self) -> int:
        """Agent steps that can be drawn."""
        return len(self) * self._steps_per_row

    def add(self, rollout: Rollout) -> None:
        """Store the rollout [T, B] of each environment in place of the oldest."""
        num_envs = rollout.rewards.shape[1]
        newest = max(0, num_envs - self.capacity)  # of those that would share a row the last
        slots = torch.arange(self.rollouts + newest, self.rollouts + num_envs) % self.capacity
        for name, part in _rows(rollout).items():
            self._rows[name][slots] = part[newest:].to("cpu")
        self.rollouts += num_envs

    def sample(self, like: Rollout, generator: torch.Generator) -> Rollout:
        """As many stored rollouts as `like` has environments, drawn uniformly with replacement, on its device."""
        rows = torch.randint(len(self), (like.rewards.shape[1],), generator=generator)
        device = like.rewards.device
        found = {name: part.index_select(0, rows).to(device) for name, part in self._rows.items()}
        timed = {name: part.transpose(0, 1) for name, part in found.items() if not name.startswith(_STATE)}
        changed: dict[str, Any] = {name: timed[name] for name in _PARTS if name in timed}
        changed["obs"] = {key: timed[f"obs.{key}"] for key in like.obs} if isinstance(like.obs, Mapping) \
            else timed["obs"]
        return replace(like, **changed, activation_cache=None, state=tuple(found[f"{_STATE}{i}"] for i in range(len(like.state))))

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint must hold, in groups of some 64 megabytes: the count, then the rows in order."""
        step = max(1, _SAVED_BYTES * self.capacity // max(1, self.nbytes))
        groups = {f"rows_{i}": {name: part[start:min(start + step, len(self))] for name, part in self._rows.items()}
                  for i, start in enumerate(range(0, len(self), step))}
        return {"count": {"rollouts": torch.tensor(self.rollouts)}, **groups}

    def load(self, groups: Iterable[tuple[str, Mapping[str, Tensor]]]) -> None:
        """Take up what `tensors` gave, a group at a time; ValueError, KeyError or RuntimeError if of another ring."""
        rollouts, start = 0, 0
        for name, group in groups:
            if name == "count":
                rollouts = int(group["rollouts"])
                continue
            rows = len(group["rewards"])
            if start + rows > self.capacity:
                raise ValueError(f"it holds more than the {self.capacity:,} rollouts of this replay_size")
            for part, tensor in self._rows.items():
                tensor[start:start + rows] = group[part]
            start += rows
        if start != min(rollouts, self.capacity):
            raise ValueError(f"it holds {start:,} rollouts, not {min(rollouts, self.capacity):,}")
        self.rollouts = rollouts


def _rows(rollout: Rollout) -> dict[str, Tensor]:
    """All parts of a rollout by name, the environment first: [B, T, ...], states [B, ...]."""
    obs = rollout.obs
    timed = {f"obs.{key}": part for key, part in obs.items()} if isinstance(obs, Mapping) else {"obs": obs}
    timed |= {name: getattr(rollout, name) for name in _PARTS if getattr(rollout, name) is not None}
    rows = {name: part.transpose(0, 1) for name, part in timed.items()}
    return rows | {f"{_STATE}{i}": part for i, part in enumerate(rollout.state)}
