"""Commands that train: train, search and resume."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vantage.cli.given import given, resolve, resolve_search
from vantage.cli.stop import Stop
from vantage.config import Config
from vantage.config_groups import OPTIMIZERS
from vantage.errors import ConfigError
from vantage.keys import convert

if TYPE_CHECKING:
    from vantage.tools.display import Display
    from vantage.types import Report


def run_train(arguments: argparse.Namespace) -> int:
    """`vantage train`."""
    if arguments.algo is None and arguments.from_search is None:
        raise ConfigError("which algorithm? Give a2c, a3c, a3g, acer or a preset, or --from-search DIR; see vantage "
                          "train --help")
    config, source = resolve(arguments) if arguments.from_search is None else resolve_search(arguments)
    kind = "defaults" if arguments.from_search is None else "config"
    if arguments.dry_run:
        if config.optimizer.optimizer not in OPTIMIZERS:  # only torch knows its own
            from vantage.learning.optimizers import check_optimizer

            check_optimizer(config.optimizer)
        if config.policy.init_from is not None:
            from vantage.training import read_initial

            read_initial(config)
        print(config.to_json())
        return 0
    from vantage.training import train_updates

    stop = Stop()
    updates = train_updates(config, run=arguments.run, argv=sys.argv)
    return _follow(config, updates, stop, report=arguments.report, notes=[f"{kind}: {source}"])


def run_search(arguments: argparse.Namespace) -> int:
    """`vantage search`."""
    from vantage.tools.search.command import Options, check_libraries, search

    check_libraries()
    numbers = {name: convert(name, value, int, source="--" + name.replace("_", "-"))
               for name in ("trials", "seeds", "jobs", "reduction", "min_steps")
               if (value := getattr(arguments, name)) is not None}
    algo, env, values = given(arguments)
    options = Options(grid=arguments.grid, space=arguments.space, sampler=arguments.sampler, pruner=arguments.pruner,
                      storage=arguments.storage, run=arguments.run, **numbers)
    stop = Stop()
    try:
        return search(algo, env, values, options, stop)
    finally:
        stop.over()


def run_resume(arguments: argparse.Namespace) -> int:
    """`vantage resume`."""
    from vantage.runs.directory import RunDirectory

    config = RunDirectory.open(Path(arguments.run), trust=arguments.trust).config
    steps = None if arguments.steps is None else convert("steps", arguments.steps, int, source="--steps")
    minutes = None if arguments.max_minutes is None else convert("max_minutes", arguments.max_minutes, float,
                                                                 source="--max-minutes")
    from vantage.training import resume_updates

    stop = Stop()
    updates = resume_updates(arguments.run, steps=steps, extend_schedule=arguments.extend_schedule,
                             max_minutes=minutes, device=arguments.device, trust=arguments.trust)
    shown = config.change(steps=steps or config.run.steps, max_minutes=minutes or config.run.max_minutes)
    return _follow(shown, updates, stop, report=arguments.report, notes=[])


def _follow(config: Config, updates: Generator[Report | None], stop: Stop, *, report: bool,
            notes: Sequence[str]) -> int:
    """Show the reports until the run ends or a signal asks it to stop; returns the exit status."""
    from vantage.presets import expectation
    from vantage.runs.checkpoint import newest_step
    from vantage.tools.display import Display, say

    last = None
    with ExitStack() as stack:
        stack.enter_context(closing(updates))
        display = stack.enter_context(Display(config, expectation(config)))
        stop.display = display
        stack.enter_context(_messages_to(display))
        try:
            for note in notes:
                display.note(note)
            for update in updates:
                if update is not None:
                    last = update
                    if update.metrics:
                        display.show(update)
                if stop.requested():
                    break
            updates.close()  # saves the run; further signals still exit at once
        finally:
            stop.over()
    if last is None:
        return 1
    if stop.signal:
        step = newest_step(Path(last.run)) or 0
        say(f"stopped by {signal.Signals(stop.signal).name} at step {step:,}, saved; go on with: "
            f"vantage resume {last.run}")
        return 128 + stop.signal
    if report:
        from vantage.tools.finish import final_report
        final_report(Path(last.run))
    else:
        say(f"{last.run}: {last.step:,} steps in {last.seconds:,.0f} s. Next: vantage evaluate {last.run}")
    return 0


@contextmanager
def _messages_to(display: Display) -> Iterator[None]:
    """Show Vantage's log messages above the display meanwhile."""
    logger, level = logging.getLogger("vantage"), logging.getLogger("vantage").level
    logger.addHandler(display)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(display)
        logger.setLevel(level)
