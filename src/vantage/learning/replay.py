"""Experience replay: a ring buffer of whole rollouts. No learning here.

A row is the rollout of one environment: raw single observations, the policy's state before the
first, and the parameters of the distribution that acted. Frames that a stack repeats are stored
once: rollouts of 20 with stacks of 4 take 24 frames of 84x84 bytes instead of 84.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.types import Rollout

_SAVED_BYTES = 1 << 26
"""Approximate size of a group of `Replay.tensors`; saving holds one group in memory at a time."""

_MOST = 1 << 53
"""Rollouts that no run stores: a larger count is not what Vantage writes."""

_PARTS = ("is_first", "actions", "rewards", "terminated", "valid", "action_mask", "behaviour",
          "bootstraps")
_STATE = "state."
_STACKS = "stacks."
"""Rows that other rows determine: checkpoints lack them."""


class Replay:
    """The last `capacity` rollouts of single environments, on the CPU.

    The rollouts to store have the shapes [T, B] of `like`. ConfigError if the rows would take more
    than `max_bytes`; it names the config key `key`. The system allocates a row's memory when it is
    first written.
    """

    def __init__(self, capacity: int, like: Rollout, max_bytes: int, *,
                 key: str = "replay_size") -> None:
        self.capacity = capacity
        self.rollouts = 0
        """Count of rows stored so far; the newest is at (rollouts - 1) mod capacity."""
        parts = _rows(like)
        self.nbytes = capacity * sum(part[0].nbytes for part in parts.values())
        """Memory of all rows, including empty ones."""
        if self.nbytes > max_bytes:
            raise ConfigError(f"the rollouts of {key} would take {self.nbytes / 2**30:.1f} GB, "
                              "more than their part of half the free memory, "
                              f"{max_bytes / 2**30:.1f} GB; give a smaller "
                              f"--{key.replace('_', '-')}, for a resume {key} in its config.json")
        self._rows = {name: torch.empty((capacity, *part.shape[1:]), dtype=part.dtype)
                      for name, part in parts.items()}
        self._saved = {name: part for name, part in self._rows.items()
                       if name != "values" and not name.startswith(_STACKS)}
        self._steps_per_row = like.rewards.shape[0]

    def __len__(self) -> int:
        """Rows that can be sampled."""
        return min(self.rollouts, self.capacity)

    @property
    def steps(self) -> int:
        """Agent steps that can be sampled."""
        return len(self) * self._steps_per_row

    def add(self, rollout: Rollout) -> None:
        """Store the rollout [T, B] of each environment, in place of the oldest rows."""
        num_envs = rollout.rewards.shape[1]
        # The last of several that would be written to the same row.
        start = max(0, num_envs - self.capacity)
        slots = torch.arange(self.rollouts + start, self.rollouts + num_envs) % self.capacity
        for name, part in _rows(rollout).items():
            self._rows[name][slots] = part[start:].to("cpu")
        self.rollouts += num_envs

    def sample(self, like: Rollout, generator: torch.Generator) -> Rollout:
        """A stored rollout for each environment of `like`, on its device.

        Drawn uniformly with replacement.
        """
        num_envs = like.rewards.shape[1]
        return self._take(torch.randint(len(self), (num_envs,), generator=generator), like)

    def all(self, like: Rollout) -> Rollout:
        """All stored rollouts side by side, on the device of `like`, which is the newest one.

        They are in the order of the ring. On a CPU they are views of the rows.
        """
        rows = {name: part[:len(self)] for name, part in self._rows.items()}
        num_envs = like.rewards.shape[1]
        first = (self.rollouts - num_envs) % self.capacity
        return replace(self._rollout(rows, like), current=slice(first, first + num_envs))

    def set_stacks(self, stacks: Sequence[Tensor]) -> None:
        """Store the stacks [T+1, B, ...] of all stored rollouts, which `load` does not restore."""
        for i, part in enumerate(stacks):
            self._rows[f"{_STACKS}{i}"][:len(self)] = part.transpose(0, 1)

    def _take(self, rows: Tensor, like: Rollout) -> Rollout:
        return self._rollout({name: part.index_select(0, rows)
                              for name, part in self._rows.items()}, like)

    def _rollout(self, rows: Mapping[str, Tensor], like: Rollout) -> Rollout:
        """The `rows` [B, T, ...] as a rollout [T, B, ...] on the device of `like`."""
        parts = {name: part.to(like.rewards.device) for name, part in rows.items()}
        timed = {name: part.transpose(0, 1) for name, part in parts.items()
                 if not name.startswith(_STATE)}
        changes: dict[str, Any] = {name: timed[name] for name in _PARTS if name in timed}
        changes["obs"] = ({key: timed[f"obs.{key}"] for key in like.obs}
                          if isinstance(like.obs, Mapping) else timed["obs"])
        changes["state"] = tuple(parts[f"{_STATE}{i}"] for i in range(len(like.state)))
        if like.stacks is not None:
            changes["stacks"] = tuple(timed[f"{_STACKS}{i}"] for i in range(len(like.stacks)))
        return replace(like, **changes, values=timed.get("values"), activation_cache=None)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Tensors for a checkpoint in groups of about 64 MB: the count, then the rows in order."""
        size = max(1, _SAVED_BYTES * self.capacity // max(1, self.nbytes))
        groups = {"count": {"rollouts": torch.tensor(self.rollouts)}}
        for i, start in enumerate(range(0, len(self), size)):
            end = min(start + size, len(self))
            groups[f"rows_{i}"] = {name: part[start:end] for name, part in self._saved.items()}
        return groups

    def load(self, groups: Iterable[tuple[str, Mapping[str, Tensor]]], *,
             multiple: int = 1) -> None:
        """Restore the groups of `tensors`.

        ValueError, KeyError or RuntimeError if they do not fit this replay, or if the count of rows
        is not a multiple of `multiple`. After an error no more rows count than before.
        """
        rollouts = 0
        start = 0
        for name, group in groups:
            if name == "count":
                rollouts = int(group["rollouts"])
                continue
            rows = len(group["rewards"])
            if start + rows > self.capacity:
                raise ValueError(f"it holds more than the {self.capacity:,} rollouts of this "
                                 "replay")
            for name, tensor in self._saved.items():
                part = group[name]
                fits = part.dtype == tensor.dtype and part.shape[1:] == tensor.shape[1:]
                if not fits or not part.isfinite().all():
                    raise ValueError(f"{name} is {part.dtype} {list(part.shape[1:])}, not finite "
                                     f"{tensor.dtype} {list(tensor.shape[1:])}")
                tensor[start:start + rows] = part
            start += rows
        if start != min(rollouts, self.capacity):
            raise ValueError(f"it holds {start:,} rollouts, not {min(rollouts, self.capacity):,}")
        if rollouts % multiple or rollouts > _MOST:
            raise ValueError(f"it counts {rollouts:,} rollouts, no multiple of {multiple:,} up to "
                             f"{_MOST:,}")
        self.rollouts = rollouts


def _rows(rollout: Rollout) -> dict[str, Tensor]:
    """All parts of a rollout by name, the environment first: [B, T, ...], states [B, ...]."""
    obs = rollout.obs
    if isinstance(obs, Mapping):
        timed = {f"obs.{key}": part for key, part in obs.items()}
    else:
        timed = {"obs": obs}
    timed |= {f"{_STACKS}{i}": part for i, part in enumerate(rollout.stacks or ())}
    for name in (*_PARTS, "values"):
        part = getattr(rollout, name)
        if part is not None:
            timed[name] = part
    rows = {name: part.transpose(0, 1) for name, part in timed.items()}
    return rows | {f"{_STATE}{i}": part for i, part in enumerate(rollout.state)}
