"""Actions since the last seeded reset, which a resume replays. No environment is stepped here."""

from __future__ import annotations

from collections import deque

import numpy as np

from vantage.envs.interface import Array, Snapshot
from vantage.specs import ActionSpec

# Without a limit, an episode that never ends would fill the memory, and its replay would take as long as training.
MAX_REPLAY_STEPS = 1_000_000


class History:
    """The latest actions of all environments, from the oldest seeded reset on or the last `limit` steps."""

    def __init__(self, num_envs: int, spec: ActionSpec, *, limit: int = MAX_REPLAY_STEPS) -> None:
        self._dtype = np.dtype(np.float32 if spec.kind == "box" else np.int8 if max(spec.sizes) <= 128 else np.int32)
        self._shape, self._limit = (num_envs, *spec.shape), limit
        self._rows: deque[bytes] = deque(maxlen=limit)  # half the memory of small arrays
        self._total, self._seeded_at = 0, np.zeros(num_envs, np.int64)

    @property
    def lengths(self) -> Array:
        """Actions of each environment since its last seeded reset."""
        return self._total - self._seeded_at

    @property
    def starts(self) -> Array:
        """Row of each environment's first action; negative if it was dropped."""
        return len(self._rows) - self.lengths

    @property
    def actions(self) -> Array:
        """[T, B, ...] as the simulators take them. Rows before an environment's start are padding."""
        rows = self._array()
        return rows if rows.dtype == np.float32 else rows.astype(np.int64)

    def append(self, actions: Array) -> None:
        self._rows.append(actions.astype(self._dtype).tobytes())
        self._total += 1

    def restart(self, which: Array) -> None:
        """Forget the actions of environments that had a seeded reset."""
        self._seeded_at[which] = self._total
        for _ in range(len(self._rows) - int(self.lengths.max())):
            self._rows.popleft()

    def snapshot(self) -> dict[str, Array]:
        """All histories one after the other, and the length of each (-1 if dropped)."""
        rows, dropped = self._array(), self.starts < 0
        starts = np.where(dropped, len(rows), self.starts)
        return {"actions": np.concatenate([rows[start:, env] for env, start in enumerate(starts.tolist())]),
                "action_counts": np.where(dropped, -1, self.lengths)}

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from what `snapshot` returned; ValueError for counts and actions that it never returns."""
        counts, actions = snapshot["action_counts"], snapshot["actions"]
        lengths = np.maximum(counts, 0)
        if counts.dtype.kind != "i" or counts.min() < -1 or counts.max() > MAX_REPLAY_STEPS \
                or lengths.sum() != len(actions):
            raise ValueError(f"action_counts is {counts!s:.80} for {len(actions)} actions")
        if actions.shape[1:] != self._shape[1:] or actions.dtype != self._dtype or not np.isfinite(actions).all():
            raise ValueError(f"actions is {actions.dtype} {list(actions.shape)}, or not finite; an action here is "
                             f"finite {self._dtype} {list(self._shape[1:])}")
        rows = np.zeros((int(lengths.max()), *self._shape), self._dtype)
        for env, part in enumerate(np.split(actions, np.cumsum(lengths)[:-1])):
            rows[len(rows) - len(part):, env] = part
        self._rows = deque((row.tobytes() for row in rows), maxlen=self._limit)
        self._total, self._seeded_at = 0, -np.where(counts < 0, self._limit + 1, lengths)

    def _array(self) -> Array:
        return np.frombuffer(b"".join(self._rows), self._dtype).reshape(-1, *self._shape)
