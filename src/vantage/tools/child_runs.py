"""The runs of a command that trains several: their shares of the cores, and how each continues."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vantage._host.system import available_cores
from vantage.config.config import Config
from vantage.config.flat import flatten
from vantage.config.num_envs import most_workers
from vantage.config.runtimes import Hogwild, Ray
from vantage.errors import ConfigError
from vantage.keys.fields import read_json_object
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.files import read_text
from vantage.runs.lock import locked
from vantage.runs.meta import meta_of, reading
from vantage.runs.metrics import FILE_NAME
from vantage.runs.trust import (
    SIGNATURE,
    check_code,
    connections,
    foreign_code,
    is_own,
    same_code,
)
from vantage.runtimes.machine import threads_of
from vantage.runtimes.progress import goal_reached
from vantage.runtimes.training import resume_updates, train_updates
from vantage.types import Report


class ForeignRunError(ConfigError):
    """The run to continue is of someone else, and names other code than the command."""


def share_cores(config: Config, jobs: int) -> Config:
    """`config` with its share of the cores where `jobs` runs train at a time.

    Numbers of threads and workers that it sets itself stay.
    """
    runtime = config.runtime
    if isinstance(runtime, Ray):
        from vantage.runtimes.ray_cluster import workers_per_run

        return config.change(num_workers=runtime.num_workers or workers_per_run(config, jobs))
    if isinstance(runtime, Hogwild):
        cores = max(1, available_cores() // jobs)
        workers = runtime.num_workers or most_workers(config.env.num_envs, cores)
        return config.change(num_workers=workers)
    return config.change(threads=runtime.threads or threads_of(config, jobs))


def updates_to(target: int, run: Path, config: Config, argv: Sequence[str],
               jobs: int = 1) -> Generator[Report | None]:
    """The updates that a run lacks up to `target` steps, from its newest checkpoint; none if done.

    A new run takes its share of the cores, where `jobs` train at a time. ForeignRunError for a run
    of someone else that names other code than `config`.
    """
    if not (run / "config.json").exists():
        with suppress(OSError):  # killed while it was made: it holds nothing else
            (run / "meta.json").unlink(missing_ok=True)
            run.rmdir()
        shared = share_cores(config, jobs) if jobs > 1 else config
        yield from train_updates(shared, asked=config, run=run, argv=argv)
        return
    if newest_step(run) is None and not (run / "best").exists():
        with locked(run):  # killed before its first checkpoint
            (run / FILE_NAME).unlink(missing_ok=True)
        yield from _continue(run, config, target)
        return
    checkpoint = load_latest(run)
    progress: Any = checkpoint.state["progress"]
    is_done = checkpoint.step >= target or goal_reached(progress, config)
    if not is_done or progress.get("evaluation_due"):
        yield from _continue(run, config, target)


def _continue(run: Path, config: Config, target: int) -> Generator[Report | None]:
    yield from resume_updates(run, steps=target, trust=trusts(config, run))


def trusts(config: Config, run: Path) -> bool:
    """Whether `run` names only code that `config` names too, which is trusted, whoever wrote it.

    ForeignRunError for a run of someone else that names other code.
    """
    source = run / "config.json"
    with reading(source):
        text = read_text(source)
        values = read_json_object(text, source=str(source))
        flat = flatten(values, source=str(source))
    asked = flatten(read_json_object(config.to_json(), source="config"), source="config")
    trusted = same_code(flat, asked)
    try:
        check_code(foreign_code(values), source=str(source),
                   trusted=trusted or is_own(text, meta_of(run).get(SIGNATURE)),
                   connects=connections(values),
                   remedy=f"continue it by `vantage resume {shlex.quote(str(run))} --trust`")
    except ConfigError as error:
        raise ForeignRunError(str(error)) from None
    return trusted
