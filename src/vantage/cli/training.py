"""Commands that train: train, search and resume."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from secrets import randbits
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated

from typing_extensions import Doc
from tyro.conf import Positional, arg

from vantage._host.terminal import MessageHandler, messages_to, write_line
from vantage._host.time_limit import Interrupted
from vantage.cli.arguments import Settings
from vantage.cli.stop_signals import Stop
from vantage.cli.tools import Trust
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.import_paths import load_class
from vantage.keys.objects import is_code
from vantage.learning.config import OPTIMIZERS
from vantage.runs.directory import RunDirectory
from vantage.runs.files import is_url
from vantage.tools.search.command import Options

if TYPE_CHECKING:
    from vantage.types import Report

Resumed = Positional[Annotated[str, Doc("run directory, or its copy at a URL"), arg(metavar="RUN")]]
Finish = Annotated[bool, Doc("at the end, evaluate, draw curve.png, record game.mp4 and print the "
                             "paths")]


def train(settings: Settings, *,
          run: Annotated[str | None, Doc("new run directory; none: runs/ENV/ALGO-N")] = None,
          root: Annotated[str, Doc("folder of new runs, or a URL, as s3://BUCKET/RUNS, for a "
                                   "copy")] = "runs",
          dry_run: Annotated[bool, Doc("print the resolved config as JSON and stop")] = False,
          report: Finish = False,
          seeds: Annotated[int, Doc("runs, with the seeds from --seed on; then their mean, "
                                    "interval and IQM")] = 1,
          jobs: Annotated[int, Doc("runs of --seeds at a time")] = 1) -> int:
    """Train an agent in a new run directory."""
    config = settings.config()
    note = settings.note
    if "seed" not in settings.values and seeds == 1 and not dry_run:  # another run for each call
        config = config.change(seed=randbits(31))
        note = f"seed {config.run.seed}, drawn for this run; {note}"
    _check_seeds(seeds, jobs, root, report)
    if dry_run:
        _check_imports(config)
        write_line(config.to_json())
        return 0
    if seeds > 1:
        return _train_seeds(config, seeds, jobs, run)
    from vantage.runtimes.training import train_updates

    return _follow(config, train_updates(config, run=run, root=root), report, note)


def _check_seeds(seeds: int, jobs: int, root: str, report: bool) -> None:
    """ConfigError for numbers of seeds and jobs out of range, and options that exclude seeds."""
    for name, value in (("seeds", seeds), ("jobs", jobs)):
        if not 1 <= value <= 1000:
            raise ConfigError(f"--{name} {value} is not from 1 to 1,000")
    if seeds > 1 and root != "runs":
        raise ConfigError("--root is for one run; name the directory of several seeds with --run")
    if jobs > seeds:
        raise ConfigError(f"--jobs {jobs} is more than --seeds {seeds}; give at most one job for "
                          "each seed")
    if report and seeds > 1:
        raise ConfigError("--report is for one run; leave it out with --seeds, which draws and "
                          "evaluates anyway")


def _train_seeds(config: Config, seeds: int, jobs: int, run: str | None) -> int:
    from vantage.runtimes.training import check
    from vantage.tools.display import say
    from vantage.tools.seeds import train_seeds

    check(config)
    with Stop() as stop:
        directory = train_seeds(config, seeds, jobs, run, stop.requested)
    if not stop.signal:
        return 0
    again = ["vantage", *sys.argv[1:]]
    if run is None:
        again += ["--run", str(directory)]
    say(f"stopped by {_name(stop)}, all runs saved; go on with: {join(again)}")
    return 128 + stop.signal


def _name(stop: Stop) -> str:
    return signal.Signals(stop.signal).name


def _check_imports(config: Config) -> None:
    """ConfigError for modules and files of the config that otherwise only a training would read."""
    if config.optimizer.optimizer not in OPTIMIZERS:  # the others are classes of torch
        import torch

        from vantage.learning.optimizers import make_optimizer

        make_optimizer(config.optimizer, torch.zeros(1))
    for name, path in (("network", config.policy.network), ("memory", config.policy.memory)):
        if is_code(path):
            load_class(path, what=name)
    if config.policy.init_from is not None:
        from vantage.runtimes.training import check_initial

        check_initial(config)


def resume(run: Resumed, *, steps: Annotated[int | None, Doc("new total of agent steps")] = None,
           extend_schedule: Annotated[bool, Doc("stretch schedules over the new total")] = False,
           max_minutes: Annotated[float | None,
                                  Doc("stop this session after this wall time")] = None,
           device: Annotated[str | None, Doc("cpu, cuda, cuda:0 or auto, from now on")] = None,
           report: Finish = False, trust: Trust = False) -> int:
    """Continue a run from its newest valid checkpoint."""
    path = Path(run)
    if is_url(run):
        from vantage.runs.mirror import fetch  # imports torch, before which a wrong RUN is refused

        path = fetch(run)
    # `resume_updates` checks the code and the cluster that the config names.
    config = RunDirectory.open(path, trust=trust).config
    from vantage.runtimes.training import resume_updates

    updates = resume_updates(path, steps=steps, extend_schedule=extend_schedule,
                             max_minutes=max_minutes, device=device, trust=trust)
    if steps:
        config = config.change(steps=steps)
    if max_minutes is not None:
        config = config.change(max_minutes=max_minutes)
    return _follow(config, updates, report)


def search(settings: Settings, *, study: Options) -> int:
    """Search for good values of config keys with many short trainings."""
    from vantage.tools.display import say
    from vantage.tools.search.command import search

    with Stop() as stop, messages_to(MessageHandler(say), logging.INFO):
        result = search(settings.algo, env=settings.env, stop=stop.requested, **asdict(study),
                        **settings.values)
    if stop.signal:
        say(f"stopped by {_name(stop)}, trials saved; the same command goes on")
        return 128 + stop.signal
    best = result.best
    assert best is not None
    assert result.config is not None
    next_seed = result.config.run.seed + study.seeds
    say(f"best: trial {best.index} with {best.value:.6g}, see {result.directory}/results.csv. "
        f"Next: vantage train --from-search {quote(str(result.directory))} --seed {next_seed}")
    return 0


def _follow(config: Config, updates: Generator[Report | None], report: bool, note: str = "") -> int:
    """Show the reports until the run ends or a signal asks it to stop; returns the exit status."""
    from vantage.tools.display import say

    last, stop = _show_until_stop(config, updates, note)
    if last is None:
        return 1
    if stop.signal or not report:
        say(_closing_line(last, stop))
        return 128 + stop.signal if stop.signal else 0
    from vantage.tools.final_report import final_report

    try:
        final_report(Path(last.run))
    except KeyboardInterrupt:
        say(f"the training is done and saved in {last.run}; for a report of it: vantage report "
            f"{quote(last.run)}")
        raise
    return 0


def _show_until_stop(config: Config, updates: Generator[Report | None],
                     note: str) -> tuple[Report | None, Stop]:
    """Show the reports of `updates`; returns the last one, if any, and the signals that arrived."""
    from vantage.tools.display import Display

    last = None
    with (Stop() as stop, closing(updates), Display(config) as display,
          messages_to(MessageHandler(display.note), logging.INFO)):
        stop.display = display
        try:
            if note:
                display.note(note)
            for update in updates:
                if update is not None:
                    last = update
                    if update.metrics:
                        display.show(update)
                if stop.requested():
                    break
            updates.close()  # saves the run; further signals still exit at once
        except Interrupted as error:
            display.note(f"interrupted environments {error}; their rollout is discarded")
        except Exception:
            if last is not None and Path(last.run).is_dir():  # the error itself says the rest
                display.note("failed; fix the error, then continue from step "
                             f"{_saved_step(last):,} with: vantage resume {quote(last.run)}")
            raise
    return last, stop


def _closing_line(last: Report, stop: Stop) -> str:
    """How the run ended, and the command that follows."""
    run = quote(last.run)
    if stop.signal:
        return (f"stopped by {_name(stop)} at step {_saved_step(last):,}, saved; go on with: "
                f"vantage resume {run}")
    return (f"{last.run}: {last.step:,} steps in {last.seconds:,.0f} s. Next: vantage evaluate "
            f"{run}")


def _saved_step(last: Report) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    from vantage.runs.checkpoint import newest_step

    return newest_step(Path(last.run)) or 0
