"""`vantage search` from its options to its results: what is checked first, what is printed, what is written."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vantage.errors import ConfigError, VantageError
from vantage.tools.display import say
from vantage.tools.search.space import kinds, read_grid, read_space

if TYPE_CHECKING:
    from vantage.config import Config
    from vantage.tools.search.plan import Plan, Pruner, Sampler
    from vantage.tools.search.search import Search
    from vantage.tools.search.show import View
    from vantage.tools.search.study import Trials

DEFAULT_TRIALS = 30
MOST_TRIALS, MOST_JOBS = 100_000, 1_024


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options beside config keys."""

    grid: str | None = None
    space: str | None = None
    trials: int | None = None
    seeds: int = 1
    jobs: int = 1
    sampler: Sampler | None = None
    pruner: Pruner | None = None
    """None: asha for a space, none for a grid."""
    reduction: int | None = None
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
    _check_count("--jobs", options.jobs, MOST_JOBS)
    _check_start(plan)
    from vantage.tools.search.directory import find_directory, without_password
    from vantage.tools.search.search import Search, opened
    from vantage.tools.search.show import make_display
    from vantage.tools.search.study import explaining, open_storage

    storage = None if options.storage is None else open_storage(options.storage)
    directory = find_directory(plan, None if options.run is None else Path(options.run), options.storage)
    with explaining(), opened(plan, directory, storage, total) as trials:
        display = make_display()
        argv = [without_password(word) for word in sys.argv]  # runs write it down
        running = Search(plan, trials, jobs=options.jobs, display=display, argv=argv)
        _introduce(plan, trials, directory, running.view(), options.trials)
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
        _check_count("--trials", total, MOST_TRIALS)
    chosen = {name: value for name in ("sampler", "reduction") if (value := getattr(options, name)) is not None}
    plan = Plan(algo, env, given, space, seeds=options.seeds, min_steps=options.min_steps,
                pruner=options.pruner or ("asha" if space.points is None else "none"), **chosen)
    _check_effects(plan, options)
    return plan, total


def _check_count(name: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise ConfigError(f"{name} {number} is " + ("below 1" if number < 1 else f"above {most:,}"))


def _check_effects(plan: Plan, options: Options) -> None:
    """ConfigError where an option that was given would change nothing."""
    if plan.space.points is not None and options.sampler is not None:
        raise ConfigError(f"--sampler {options.sampler} has no effect on a grid, all of whose points are run; leave it "
                          "out")
    comparing: dict[str, int | str | None] = {"--min-steps": options.min_steps, "--reduction": options.reduction}
    if plan.pruner == "asha":
        comparing["--pruner"] = options.pruner
    name = next((name for name, value in comparing.items() if value is not None), None)
    if name is None or len(plan.rungs) > 1:
        return
    if plan.pruner == "none":
        raise ConfigError(f"{name} {comparing[name]} has no effect without pruning; leave it out, or give --pruner "
                          "asha")
    raise ConfigError(f"{name} {comparing[name]} has no effect: trials of {plan.base.steps:,} steps are first compared "
                      f"at their end, with eval_every={plan.base.eval_every}; leave it out, or give a smaller "
                      "--eval-every or more --steps")


def _check_start(plan: Plan) -> None:
    """Raise what would keep trials from their first step, as training would, before anything is made."""
    from vantage.training import check

    for point in kinds(plan.space):
        try:
            check(plan.config(point, plan.base.seed))
        except ConfigError as error:
            if _refusal(plan.base) == str(error):
                raise
            raise plan.space.refusal(point, error) from None


def _refusal(config: Config) -> str:
    """What keeps a run of `config` from beginning; nothing if it may."""
    from vantage.training import check

    try:
        check(config)
    except ConfigError as error:
        return str(error)
    return ""


def _introduce(plan: Plan, trials: Trials, directory: Path, view: View, asked: int | None) -> None:
    """Where it is, what it goes by, and how far it had come."""
    say(f"{directory}: {plan.algo} on {plan.base.env}, {trials.total} trials of {plan.base.steps:,} steps"
        + (f" on {plan.seeds} seeds" if plan.seeds > 1 else ""))
    say(f"- value: {plan.objective}")
    if len(plan.rungs) > 1:
        say(f"- pruned by successive halving at {', '.join(f'{step:,}' for step in plan.rungs[:-1])} steps")
    if view.rows:
        say(f"- going on: {view.sentence()}")
    if asked is not None and asked < trials.total:
        say(f"- --trials {asked}: the study has {trials.total} already; they stay, and none is added")


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
        raise VantageError(_without_value(view, directory))
    say(f"best: trial {best.number}, {best.value:.6g}, {plan.objective}")
    for name, value in best.values.items():
        say(f"  --{name.replace('_', '-')} {value}")
    say(f"Next: vantage train --from-search {directory} --seed {plan.base.seed + plan.seeds}")
    return 0


def _without_value(view: View, directory: Path) -> str:
    """Which trials failed of what, where no other has come to its end."""
    failed: dict[str, list[str]] = {}
    for row in view.rows:
        if row.error:
            failed.setdefault(row.error, []).append(str(row.number))
    shown = [f"trial{'s' * (len(numbers) > 1)} {', '.join(numbers[:8])}{' ...' * (len(numbers) > 8)}: {why}"
             for why, numbers in failed.items()]
    more = f"; {len(shown) - 3} other errors in results.md" if len(shown) > 3 else ""
    return (f"no trial has a value: {view.count('failed')} of {view.total} failed; {'; '.join(shown[:3])}{more}. Their "
            f"runs are in {directory}/trial-*, their errors in {directory / 'results.md'}. Failed trials are not tried "
            "again: mend what they say, then search anew with another --run")
