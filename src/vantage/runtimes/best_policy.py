"""The best policy of a run so far, in best/, and its score. `recorder` says when to save it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from vantage.errors import CheckpointError, ConfigError
from vantage.runs.checkpoint import load_named, save_as
from vantage.runs.checkpoint_files import Groups
from vantage.runtimes.progress import Progress
from vantage.runtimes.save_failures import SaveFailures


class _Waiting(NamedTuple):
    """A policy that waits for the games after it."""

    step: int
    episodes: int
    tensors: Groups


class BestPolicy:
    """Saves policies with the best score so far.

    `tensors` returns a copy of those of the current policy, `state` what is saved beside them. A
    run without evaluations scores a policy by the training games after it: those before it were
    played by earlier policies and do not show what its last update did.
    """

    def __init__(self, progress: Progress, failures: SaveFailures, tensors: Callable[[], Groups],
                 state: Callable[[], dict[str, Any]]) -> None:
        self._progress = progress
        self._failures = failures
        self._tensors = tensors
        self._state = state
        self._waiting: _Waiting | None = None

    def load_score(self, run: Path) -> None:
        """Load the best score from best/, which after a kill may be newer than the checkpoint."""
        with contextlib.suppress(CheckpointError, ConfigError):  # there is none, or it is damaged
            best = load_named(run, "best").state["progress"]
            if best.get("best_return") is not None:
                self._progress.best_return = best["best_return"]

    def save_if_best(self, run: Path, score: float, step: int, tensors: Groups | None = None, *,
                     solved: bool = False) -> None:
        """Save the policy of `step` if no earlier score is higher, or if it has `solved` the task.

        `tensors` are those of the policy, by default of the current one.
        """
        # An equal score replaces the former: where a task has a highest score, the first policy
        # that reaches it is rarely the most robust.
        former = self._progress.best_return
        if former is not None and score < former and not solved:
            return
        self._progress.best_return = score
        try:
            save_as(run, "best", step, tensors=tensors or self._tensors(), state=self._state())
        except CheckpointError as error:
            self._progress.best_return = former
            self._failures.failed("best", error, f". The policy of step {step:,}, the best so far, "
                                  "was not saved to best/.")
        else:
            self._failures.saved(run / "best")

    def wait_for_games(self) -> None:
        """Let the current policy wait for the games after it."""
        self._waiting = _Waiting(self._progress.step, self._progress.episodes, self._tensors())

    def judge(self, run: Path, *, games: int | None = None) -> None:
        """Score the policy that waits by the recent games, and save it if it is the best.

        Only once `games` have ended after it; by default all that are recent.
        """
        waiting = self._waiting
        progress = self._progress
        if waiting is None or progress.return_mean is None or not progress.window_is_full:
            return
        least = len(progress.recent) if games is None else games
        if progress.episodes - waiting.episodes >= least:
            self._waiting = None
            self.save_if_best(run, progress.return_mean, waiting.step, waiting.tensors)
