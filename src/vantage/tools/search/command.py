"""`vantage search`: its options, their checks and the search directory. Optuna is imported after the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from vantage.errors import ConfigError
from vantage.runs.lock import HeldError, locked
from vantage.tools.search.directory import find_directory
from vantage.tools.search.plan import Plan, Pruner, Sampler, check_start
from vantage.tools.search.space import MAX_POINTS, read_grid, read_space


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options beside config keys."""

    grid: str | None = None  # JSON of keys with lists: their product; an object of equally long lists: go together
    space: str | None = None  # JSON of keys with ranges or choices, which Optuna draws from
    trials: int | None = None  # trials of a --space in all; none: 30
    seeds: int = 1  # seeds of each trial, from --seed on; their mean counts
    jobs: int = 1  # runs at once, each in a process of its own
    sampler: Sampler | None = None  # how a --space is drawn from; none: tpe
    pruner: Pruner | None = None  # asha: successive halving; none: asha for a space, no pruning for a grid
    reduction: int | None = None  # asha goes on with one trial in so many, so many times as long; none: 3
    min_steps: int | None = None  # agent steps before asha first compares; none: steps / reduction^2
    storage: str | None = None  # Optuna URL or .db file that machines share; none: study.db in the directory
    run: str | None = None  # search directory; none: runs/search/ENV/ALGO-N, for the same command the same


class Stopping(Protocol):
    """Whether a signal has arrived, and which."""

    signal: int

    def requested(self) -> bool:
        """A signal has arrived."""


def check_libraries() -> None:
    """ConfigError where Optuna is missing."""
    if find_spec("optuna") is None:
        raise ConfigError("vantage search needs optuna, which is missing: pip install 'vantage-rl[search]'")


def search(algo: str, env: str, shared: Mapping[str, Any], options: Options, stop: Stopping) -> int:
    """Start or resume the search; returns the command's exit status."""
    plan, total = make_plan(algo, env, shared, options)
    check_start(plan)
    from vantage.tools.search.scheduler import Scheduler
    from vantage.tools.search.study import open_storage

    if options.storage is not None:  # before the directory exists
        open_storage(options.storage, Path())
    directory = find_directory(plan.algo, plan.base.env.id, plan.definition(),
                               None if options.run is None else Path(options.run))
    try:
        with locked(directory):
            return Scheduler(plan, directory, options.storage, options.jobs, stop).run(total)
    except HeldError:
        raise ConfigError(f"{directory}: this search is running already; stop that one first, or choose another "
                          "--run to search beside it with a --storage that both have") from None


def make_plan(algo: str, env: str, shared: Mapping[str, Any], options: Options) -> tuple[Plan, int]:
    """The plan and its number of trials; ConfigError where options contradict each other or have no effect."""
    if (options.grid is None) == (options.space is None):
        raise ConfigError("what is to be searched? Give --grid FILE.json or --space FILE.json"
                          + (", not both" if options.grid is not None else ""))
    for name, number, most in (("--jobs", options.jobs, 1_024), ("--trials", options.trials, MAX_POINTS)):
        if number is not None and not 1 <= number <= most:
            raise ConfigError(f"{name} {number} is " + ("below 1" if number < 1 else f"above {most:,}"))
    space = read_grid(Path(options.grid)) if options.grid is not None else read_space(Path(options.space or ""))
    if space.points is not None:
        if options.trials is not None:
            raise ConfigError(f"--trials {options.trials}: a grid has as many trials as points; leave it out")
        if options.sampler is not None:
            raise ConfigError(f"--sampler {options.sampler} has no effect on a grid, which runs every point; leave it "
                              "out")
    plan = Plan(algo, env, shared, space, seeds=options.seeds, sampler=options.sampler or "tpe",
                pruner=options.pruner or ("asha" if space.points is None else "none"),
                reduction=3 if options.reduction is None else options.reduction, min_steps=options.min_steps)
    for name, value in (("--min-steps", options.min_steps), ("--reduction", options.reduction),
                        ("--pruner", options.pruner if options.pruner == "asha" else None)):
        if value is not None and len(plan.rungs) == 1:
            raise ConfigError(f"{name} {value} has no effect" + (
                " without pruning; leave it out, or give --pruner asha" if plan.pruner == "none" else
                f": trials of {plan.base.run.steps:,} steps are first compared at their end; give a smaller "
                "--eval-every or more --steps"))
    return plan, options.trials or (30 if space.points is None else len(space.points))
