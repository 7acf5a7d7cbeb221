"""Actions since the last seeded reset, from which a snapshot is replayed. No environment is stepped here."""

from __future__ import annotations

import numpy as np

from vantage.envs.interface import Array, Snapshot
from vantage.specs import ActionSpec

# Without a limit, an episode that never ends would fill the memory, and its replay would take as long as training.
MAX_REPLAY_STEPS = 1_000_000


class History:
    """One log of the actions of all environments, and where in it each had its last seeded reset."""

    def __init__(self, num_envs: int, spec: ActionSpec, *, limit: int = MAX_REPLAY_STEPS) -> None:
        dtype = np.float32 if spec.kind == "box" else np.int8 if max(spec.sizes) <= 128 else np.int32
        self.starts = np.zeros(num_envs, np.int64)
        """Row of each environment's first action; negative if it was dropped."""
        self._limit = limit
        self._log = np.zeros((min(1024, limit), num_envs, *spec.shape), dtype)
        self._end = 0

    @property
    def actions(self) -> Array:
        """[T, B, ...] as the simulators take them; rows above an environment's start are not its own."""
        rows = self._log[:self._end]
        return rows if rows.dtype == np.float32 else rows.astype(np.int64)

    @property
    def lengths(self) -> Array:
        """Actions of each environment since its last seeded reset."""
        return self._end - self.starts

    def append(self, actions: Array) -> None:
        if self._end == len(self._log):
            self._make_room()
        self._log[self._end] = actions
        self._end += 1

    def restart(self, which: Array) -> None:
        """Forget the actions of environments that had a seeded reset."""
        self.starts[which] = self._end

    def snapshot(self) -> dict[str, Array]:
        """All histories one after the other, and the length of each (-1 if dropped)."""
        starts = np.where(self.starts < 0, self._end, self.starts)
        actions = np.concatenate([self._log[start:self._end, env] for env, start in enumerate(starts.tolist())])
        return {"actions": actions, "action_counts": np.where(self.starts < 0, -1, self._end - starts)}

    def restore(self, snapshot: Snapshot) -> None:
        counts = snapshot["action_counts"].astype(np.int64)
        lengths = np.maximum(counts, 0)
        self._end = int(lengths.max())
        self.starts = np.where(counts < 0, -1, self._end - lengths)
        self._log = np.zeros((max(self._end, len(self._log)), *self._log.shape[1:]), self._log.dtype)
        for env, part in enumerate(np.split(snapshot["actions"], np.cumsum(lengths)[:-1])):
            self._log[self._end - len(part):self._end, env] = part

    def _make_room(self) -> None:
        """Discard rows that no environment needs. If they are less than half, double the log; at the limit, drop the
        environments that need them."""
        capacity = len(self._log)
        oldest = int(self.starts.min(where=self.starts >= 0, initial=capacity))
        if oldest <= capacity // 2:
            if capacity < self._limit:
                self._log = np.concatenate([self._log, np.zeros_like(self._log)])[:self._limit]
                return
            oldest = capacity // 2 + 1
        self._log[:capacity - oldest] = self._log[oldest:].copy()
        self._end -= oldest
        self.starts = np.where(self.starts < oldest, -1, self.starts - oldest)
