"""Actions since the last seeded reset, from which a snapshot is replayed. No environment is stepped here."""

from __future__ import annotations

import numpy as np

from vantage.envs.interface import Array, Snapshot
from vantage.specs import ActionSpec

# Without a limit, an episode that never ends would fill the memory, and its replay would take as long as training.
MAX_REPLAY_STEPS = 1_000_000


class History:
    """The actions of each environment since its last seeded reset: with the seed, they determine its state."""

    def __init__(self, num_envs: int, spec: ActionSpec, *, limit: int = MAX_REPLAY_STEPS) -> None:
        dtype = np.float32 if spec.kind == "box" else np.int8 if max(spec.sizes) <= 128 else np.int32
        self.lengths = np.zeros(num_envs, np.int64)
        self.dropped = np.zeros(num_envs, bool)
        """The history grew past the limit."""
        self._limit = limit
        self._actions = np.zeros((num_envs, min(1024, limit), *spec.shape), dtype)
        self._rows = np.arange(num_envs)

    def append(self, actions: Array) -> None:
        if self.lengths.max() == self._actions.shape[1]:
            self._grow()
        self._actions[self._rows, self.lengths] = actions
        self.lengths += 1

    def restart(self, which: Array) -> None:
        """Forget the actions of environments that had a seeded reset."""
        self.lengths[which] = 0
        self.dropped[which] = False

    def before_end(self, steps: int) -> Array:
        """The action of each environment `steps` steps before its last; 0 if its history is shorter."""
        index = self.lengths - steps
        inside = (index >= 0).reshape(-1, *(1,) * (self._actions.ndim - 2))
        actions = np.where(inside, self._actions[self._rows, np.maximum(index, 0)], 0)
        return actions if actions.dtype == np.float32 else actions.astype(np.int64)

    def snapshot(self) -> dict[str, Array]:
        """All histories one after the other, and the length of each (-1 if dropped)."""
        parts = [self._actions[env, :length] for env, length in enumerate(self.lengths) if not self.dropped[env]]
        actions = np.concatenate(parts) if parts else self._actions[0, :0]
        return {"actions": actions, "action_counts": np.where(self.dropped, -1, self.lengths)}

    def restore(self, snapshot: Snapshot) -> None:
        counts = snapshot["action_counts"]
        self.dropped = counts < 0
        self.lengths = np.maximum(counts, 0).astype(np.int64)
        capacity = max(int(self.lengths.max()), self._actions.shape[1])
        self._actions = np.zeros((len(counts), capacity, *self._actions.shape[2:]), self._actions.dtype)
        for env, part in enumerate(np.split(snapshot["actions"], np.cumsum(self.lengths)[:-1])):
            self._actions[env, :len(part)] = part

    def _grow(self) -> None:
        capacity = self._actions.shape[1]
        if capacity < self._limit:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions[:, :self._limit - capacity])], 1)
        else:
            full = self.lengths == capacity
            self.lengths[full] = 0
            self.dropped |= full
