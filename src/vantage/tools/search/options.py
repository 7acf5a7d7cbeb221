"""A search's options and its result, in plain types. Nothing that trains or imports Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vantage.config.config import Config

MOST = 10_000
"""Largest number of trials, points, seeds and jobs."""

Pruner = Literal["asha", "none"]
"""How poor trials end early: asynchronous successive halving, or never."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is searched, and how. The comments are the command's help."""

    grid: str | None = None  # JSON (file) of lists, all combined
    space: str | None = None  # JSON (file) of ranges and choices
    trials: int | None = None  # number of trials of a space (30)
    seeds: int = 1  # seeds of each trial, from --seed on, for a mean
    jobs: int = 1  # runs at once, each in its own process
    pruner: Pruner | None = None  # asha (for a space) ends poor trials early
    reduction: int | None = None  # asha continues one trial in so many (3)
    storage: str | None = None  # Optuna storage to share: URL or .db file
    run: str | None = None  # search directory (runs/search/ENV/ALGO-N)


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of a search, trained with every seed: a row of results.csv."""

    index: int
    state: str
    """complete, pruned, running, waiting or failed."""
    value: float | None
    """The mean return that it was last compared by; None before the first comparison."""
    compared_at: int
    """Agent steps at that comparison."""
    steps: int
    """Agent steps so far, of all seeds together."""
    keys: Mapping[str, Any]
    """The values of the searched config keys."""
    scores: Mapping[int, float | None]
    """The return of each seed."""
    runs: str
    """The folder of its run directories, which are seed-N."""
    error: str
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search that has ended or was stopped."""

    directory: Path
    """The folder with results.csv, the pictures and the runs of all trials."""
    trials: tuple[Trial, ...]
    """All trials, the best first."""
    config: Config | None
    """The config of the best trial, for `vantage.train`; None if no trial is complete."""

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest value."""
        return self.trials[0] if self.trials[0].state == "complete" else None
