"""Actions since the last seeded reset, for exact resumes. `replay` steps environments with them."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from vantage.envs.interface import Array, Snapshot
from vantage.specs import ActionSpec

MAX_REPLAY_STEPS = 1_000_000
"""Largest number of steps since a seeded reset in a checkpoint."""
MAX_REPLAY_BYTES = 100 * 10**6
"""Largest memory of the actions: an endless episode must not fill memory and checkpoints."""
MAX_REPLAY_SECONDS = 60.0
"""Longest replay in seconds; an unlimited one could take as long as training."""
MIN_REPLAY_STEPS = 10_000
"""Steps that are always kept, so that slow environments with a time limit can be restored."""
_ROW_BYTES = 41
"""Python's memory per row: the bytes object and its place in a deque."""
_MEASURED_EVERY = 1_000


class History:
    """The actions of all environments since their oldest seeded reset within the limits.

    If an environment passes a limit, its actions are dropped until its next seeded reset.
    """

    def __init__(self, num_envs: int, spec: ActionSpec, *, limit: int = MAX_REPLAY_STEPS,
                 max_bytes: int = MAX_REPLAY_BYTES, least: int = MIN_REPLAY_STEPS) -> None:
        if spec.dtype == "float32":
            dtype: type[np.number[Any]] = np.float32
        else:
            dtype = np.int8 if max(spec.sizes) <= 128 else np.int32
        self._dtype = np.dtype(dtype)
        self._shape = (num_envs, *spec.shape)
        row = math.prod(self._shape) * self._dtype.itemsize + _ROW_BYTES
        self._limits = {f"{limit:,} steps": limit,
                        f"{max_bytes / 10**6:,.0f} MB of actions": max_bytes // row}
        self._limit = min(self._limits.values())
        self._least = least
        self._rows: deque[bytes] = deque()  # half the memory of small arrays
        self._total = 0
        self._seeded_at = np.zeros(num_envs, np.int64)
        self._seconds = 0.0
        self._is_needed = True

    @property
    def lengths(self) -> Array:
        """Number of actions of each environment since its last seeded reset."""
        return self._total - self._seeded_at

    @property
    def starts(self) -> Array:
        """Row of each environment's first action; negative if it was dropped."""
        return len(self._rows) - self.lengths

    @property
    def actions(self) -> Array:
        """[T, B, ...] as simulators take them. Rows before an environment's start are padding."""
        rows = self._array()
        return rows if rows.dtype == np.float32 else rows.astype(np.int64)

    @property
    def passed(self) -> str:
        """The limit that the longest history exceeds, in words; "" for none."""
        longest = int(self.lengths.max())
        for words, limit in self._limits.items():
            if longest > limit:
                return words
        return ""

    def append(self, actions: Array, seconds: float = 0.0) -> None:
        """Add the actions of a step that took the environments `seconds`."""
        self._total += 1
        self._seconds += seconds
        if self._total % _MEASURED_EVERY == 0 and self._seconds > 0:
            steps = int(MAX_REPLAY_SECONDS * self._total / self._seconds)
            self._limits[f"{MAX_REPLAY_SECONDS:g} s of steps"] = max(self._least, steps)
            self._limit = min(self._limits.values())
        if self._is_needed:
            self._rows.append(actions.astype(self._dtype).tobytes())
            if len(self._rows) > self._limit:
                self._trim(self._limit)

    def _trim(self, most: int) -> None:
        """Drop rows that no environment with at most `most` rows needs."""
        lengths = self.lengths
        within = lengths[lengths <= most]
        self._is_needed = len(within) > 0
        for _ in range(len(self._rows) - int(within.max(initial=0))):
            self._rows.popleft()

    def restart(self, which: Array) -> None:
        """Forget the actions of environments after a seeded reset."""
        self._seeded_at[which] = self._total
        self._trim(len(self._rows))

    def snapshot(self) -> dict[str, Array]:
        """All histories concatenated, and the length of each (-1 if dropped)."""
        rows = self._array()
        dropped = self.starts < 0
        starts = np.where(dropped, len(rows), self.starts)
        histories = [rows[start:, env] for env, start in enumerate(starts.tolist())]
        return {"actions": np.concatenate(histories),
                "action_counts": np.where(dropped, -1, self.lengths)}

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a `snapshot`; ValueError for counts and actions that it never returns.

        Histories beyond the limits, as saved by older versions, are dropped.
        """
        counts = snapshot["action_counts"]
        actions = snapshot["actions"]
        lengths = np.maximum(counts, 0)
        if (counts.dtype.kind != "i" or counts.min() < -1 or counts.max() > MAX_REPLAY_STEPS
                or lengths.sum() != len(actions)):
            raise ValueError(f"action_counts is {counts!s:.80} for {len(actions)} actions")
        if (actions.shape[1:] != self._shape[1:] or actions.dtype != self._dtype
                or not np.isfinite(actions).all()):
            raise ValueError(f"actions is {actions.dtype} {list(actions.shape)}, or not finite; an "
                             f"action here is finite {self._dtype} {list(self._shape[1:])}")
        counts = np.where(counts > self._limit, -1, counts)
        rows = np.zeros((int(counts.max(initial=0)), *self._shape), self._dtype)
        for env, part in enumerate(np.split(actions, np.cumsum(lengths)[:-1])):
            if counts[env] > 0:
                rows[len(rows) - len(part):, env] = part
        self._rows = deque(row.tobytes() for row in rows)
        self._total = 0
        # A dropped history stays dropped: its length is beyond every limit.
        self._seeded_at = -np.where(counts < 0, MAX_REPLAY_STEPS + 1, counts)
        self._seconds = 0.0
        self._is_needed = bool((counts >= 0).any())

    def _array(self) -> Array:
        return np.frombuffer(b"".join(self._rows), self._dtype).reshape(-1, *self._shape)
