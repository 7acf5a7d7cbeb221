"""`vantage search` from its options to its results: what is checked first, what is printed, what is written."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vantage.errors import ConfigError
from vantage.tools.display import say
from vantage.tools.search.space import extremes, read_grid, read_space

if TYPE_CHECKING:
    from vantage.tools.search.plan import Plan, Pruner, Sampler
    from vantage.tools.search.search import Search
    from vantage.tools.search.show import View
    from vantage.tools.search.study import Trials

DEFAULT_TRIALS = 30


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options beside config keys."""

    grid: str | None = None
    space: str | None = None
    trials: int | None = None
    seeds: int = 1
    jobs: int = 1
    sampler: Sampler = "tpe"
    pruner: Pruner | None = None
    """None: asha for a space, none for a grid."""
    reduction: int = 3
    min_steps: int | None = None
    storage: str | None = None
    run: str | None = None


class Stopping(Protocol):
    """Tells when a signal has come."""

    signal: int
    display: Any

    def requested(self) -> bool:
        """A signal has arrived."""


def check_libraries() -> None:
    """ConfigError where Optuna is missing."""
    if find_spec("optuna") is None:
        raise ConfigError("vantage search needs optuna, which is missing: pip install 'vantage-rl[search]'")


def search(algo: str, env: str, given: Mapping[str, Any], options: Options, stop: Stopping) -> int:
    """Run the search, or go on with it; returns the command's exit status."""
    plan, total = make_plan(algo, env, given, options)
    if options.jobs < 1:
        raise ConfigError(f"--jobs {options.jobs} is below 1")
    _check_weights(plan)
    from vantage.tools.search.directory import find_directory
    from vantage.tools.search.search import Search, opened
    from vantage.tools.search.show import make_display
    from vantage.tools.search.study import explaining, open_storage

    storage = None if options.storage is None else open_storage(options.storage)
    directory = find_directory(plan, None if options.run is None else Path(options.run), options.storage)
    with explaining(), opened(plan, directory, storage, total) as trials:
        display = make_display()
        running = Search(plan, trials, jobs=options.jobs, display=display, argv=sys.argv)
        _introduce(plan, trials, directory, running.view())
        with display:
            stop.display = display
            done = running.run(stop.requested)
            display.show(running.view())
        return _finish(plan, trials, running, directory, 0 if done else stop.signal)


def make_plan(algo: str, env: str, given: Mapping[str, Any], options: Options) -> tuple[Plan, int]:
    """What is to be searched, and in how many trials; ConfigError where that does not fit together."""
    from vantage.tools.search.plan import Plan

    if (options.grid is None) == (options.space is None):
        raise ConfigError("what is to be searched? Give --grid FILE.json or --space FILE.json"
                          + (", not both" if options.grid is not None else ""))
    if options.grid is not None:
        space = read_grid(Path(options.grid))
        if options.trials is not None:
            raise ConfigError(f"--trials {options.trials}: a grid has as many trials as points; leave it out")
        total = len(space.points or ())
    else:
        space = read_space(Path(options.space or ""))
        total = DEFAULT_TRIALS if options.trials is None else options.trials
        if total < 1:
            raise ConfigError(f"--trials {total} is below 1")
    pruner = options.pruner or ("asha" if space.points is None else "none")
    return Plan(algo, env, given, space, seeds=options.seeds, sampler=options.sampler, pruner=pruner,
                reduction=options.reduction, min_steps=options.min_steps), total


def _check_weights(plan: Plan) -> None:
    """ConfigError where the first trial could not begin from the weights that are given, as then none could."""
    config = plan.config(next(extremes(plan.space)), plan.base.seed)
    if config.init_from is not None:
        from vantage.training import read_initial

        read_initial(config)


def _introduce(plan: Plan, trials: Trials, directory: Path, view: View) -> None:
    """Where it is, what it goes by, and how far it had come."""
    say(f"{directory}: {plan.algo} on {plan.base.env}, {trials.total} trials of {plan.base.steps:,} steps"
        + (f" on {plan.seeds} seeds" if plan.seeds > 1 else ""))
    say(f"- value: {plan.objective}")
    if len(plan.rungs) > 1:
        say(f"- pruned by successive halving at {', '.join(f'{step:,}' for step in plan.rungs[:-1])} steps")
    if view.rows:
        say(f"- going on: {view.sentence()}")


def _finish(plan: Plan, trials: Trials, running: Search, directory: Path, signal_number: int) -> int:
    """Write and print the results; returns the exit status."""
    from vantage.tools.search.directory import write_best
    from vantage.tools.search.results import write_plots, write_tables

    view = running.view()
    best = view.best
    written = write_tables(plan, view, directory)
    if best is not None:
        write_best(plan, best, directory)
    if signal_number:
        say(f"stopped by {signal.Signals(signal_number).name}, trials under way saved; {view.sentence()}. The same "
            "command goes on")
        return 128 + signal_number
    written += write_plots(trials, view, directory)
    say(f"{view.sentence()}")
    for path in written:
        say(f"  {path}")
    if best is None:
        first = next((row.error for row in view.rows if row.error), "none was complete")
        say(f"no trial has a value: {first}")
        return 1
    say(f"best: trial {best.number}, {best.value:.6g}, {plan.objective}")
    for name, value in best.values.items():
        say(f"  --{name.replace('_', '-')} {value}")
    say(f"Next: vantage train --from-search {directory} --seed {plan.base.seed + plan.seeds}")
    return 0
