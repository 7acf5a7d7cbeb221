"""A new or resumed training as a generator, which `session` and the command advance.

Under torchrun every process calls `train_updates` or `resume_updates`: rank 0 trains and yields
reports, the others share its updates and yield none.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from vantage._host.extras import needs
from vantage._host.system import available_cores
from vantage.config.checks import why_not_parallel
from vantage.config.config import Config
from vantage.config.configure import Env, configure
from vantage.config.groups import Group, keys_of
from vantage.config.num_envs import most_workers
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.envs.batched import is_vector
from vantage.envs.ids import resolve_env
from vantage.envs.make import make_single
from vantage.errors import CheckpointError, ConfigError, VantageError, for_reader
from vantage.keys.schedules import Schedule
from vantage.runs.checkpoint import Checkpoint, load_to_resume
from vantage.runs.compatibility import check_fits, continuing
from vantage.runs.demonstration_file import read_source
from vantage.runs.directory import RunDirectory
from vantage.runs.files import is_url, working_directory
from vantage.runs.handed_over import handed_over
from vantage.runs.hub import local_path
from vantage.runs.lock import locked
from vantage.runs.mirror import fetch, mirror_to
from vantage.runs.policy_file import SavedPolicy, read_policy
from vantage.runs.validation import read_spec
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.collectives import torchrun_rank_and_size
from vantage.runtimes.hogwild import HogwildRun
from vantage.runtimes.machine import prepare, resolve_device
from vantage.runtimes.progress import goal_reached
from vantage.runtimes.rank_worker import follow_torchrun
from vantage.runtimes.startup import load_learner, new_model
from vantage.runtimes.sync import SyncRun
from vantage.runtimes.train_loop import Run, updates
from vantage.types import Report

log = logging.getLogger(__name__)


def config_of(algorithm: Any, groups: Sequence[Group], env: Env | None,
              keys: dict[str, Any]) -> Config:
    """`algorithm` if it is a config, else the config of `configure` with these arguments."""
    if isinstance(algorithm, Config):
        if groups:
            keys = {**keys_of(groups[0]), **keys}
        extra = list(keys) if env is None else ["env", *keys]
        if extra:
            raise ConfigError(f"{extra[0]} beside a config; change it in the config: config.change("
                              f"{extra[0]}=...)")
        return algorithm
    return configure(algorithm, *groups, env=env, **keys)


def train_updates(config: Config, *, asked: Config | None = None, run: str | Path | None = None,
                  root: str | Path = "runs", argv: Sequence[str] | None = None,
                  on_start: Callable[[Run], object] | None = None) -> Generator[Report | None]:
    """Train in a new run directory; yields what `train_loop.updates` does.

    Keys that `asked`, by default `config`, leaves to the machine stay "auto" in config.json.
    `on_start` is called with the run before its first update.
    """
    if follow_torchrun() is not None:
        return
    runtime = runtime_of(config)
    if asked is None:
        asked = config
    if run is not None and str(root) != "runs" and not is_url(root):
        raise ConfigError(f"root={root} has no effect beside run={run}, which names the directory "
                          "itself; leave one out")
    start = working_directory()
    config = prepare(_with_torchrun(config))
    initial = read_initial(config)
    path = None if run is None else Path(run)
    folder = Path("runs" if is_url(root) else root)
    if working_directory() != start:  # changed by the environment that `prepare` has tried
        path = None if path is None else start / path
        folder = start / folder
    directory = RunDirectory.create(config, asked=asked, path=path, root=folder, argv=argv)
    with locked(directory.path):
        try:
            if is_url(root):
                mirror_to(directory, str(root))
            session = runtime(config, directory, None, initial)
        except BaseException:
            directory.remove()
            raise
        if on_start is not None:
            on_start(session)
        yield from updates(session)


def resume_updates(run: str | Path, *, steps: int | None = None, extend_schedule: bool = False,
                   max_minutes: float | None = None, device: str | None = None, trust: bool = False,
                   env: Any = None, network: Any = None, memory: Any = None, algorithm: Any = None,
                   on_start: Callable[[Run], object] | None = None) -> Generator[Report | None]:
    """Continue the run in `run` from its newest checkpoint, as `Trainer.resume` describes.

    Yields what `train_loop.updates` does. `on_start` is called with the run before its first
    update.
    """
    if follow_torchrun() is not None:
        return
    path = fetch(str(run)) if is_url(run) else Path(run)
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    directory = RunDirectory.open(path, trust=trust, runs_code=True, trains=True, call="resume",
                                  objects=objects)
    saved = _resumed_config(_with_torchrun(_on_this_machine(directory)), steps, extend_schedule,
                            device)
    config = saved if max_minutes is None else saved.change(max_minutes=max_minutes)
    with locked(directory.path):
        checkpoint = load_to_resume(directory.path)
        if checkpoint is not None:
            _check_unfinished(checkpoint, config, directory)
        with continuing(checkpoint):
            if checkpoint is not None:
                config = config.with_shifts(read_spec(checkpoint.state["spec"]).shifts)
            session = runtime_of(config)(config, directory, checkpoint,
                                         read_initial(config) if checkpoint is None else None)
        try:
            session.recorder.directory = directory.change_config(saved, device=device)
        except BaseException:
            session.close("interrupted")
            raise
        if on_start is not None:
            on_start(session)
        yield from updates(session)


def _check_unfinished(checkpoint: Checkpoint, config: Config, directory: RunDirectory) -> None:
    """Raises ConfigError if the run has nothing left to do."""
    run = directory.path
    lr_ended = config.at("lr", checkpoint.step) == 0
    progress = checkpoint.state["progress"]
    if checkpoint.step >= config.run.steps and not progress.get("evaluation_due"):
        # The process may have been killed between the last checkpoint and the summary.
        with contextlib.suppress(VantageError):
            summary = directory.read_summary()
            if summary:
                directory.write_summary(summary | {"status": "done"})
        raise ConfigError(f"{run} {_why_done(checkpoint.step, config, directory.config)}")
    reached = goal_reached(progress, config)
    if reached:
        raise ConfigError(f"{run} has ended: {reached}; to train its policy further, begin a run "
                          f"with --init-from {run} and another goal")
    if config.run.steps > max(directory.config.run.steps, config.schedule_steps):
        _check_lr(config, max(checkpoint.step, directory.config.run.steps), run)
    if lr_ended:
        log.warning(for_reader("the schedule of lr has ended at 0, so nothing more is learned; "
                               "resume with --extend-schedule"))


def _why_done(step: int, asked: Config, own: Config) -> str:
    """Why a run with the config `own` has nothing to do at `step`, and how to go on."""
    if step < own.run.steps:
        return (f"has {step:,} steps already, and steps={asked.run.steps:,} asks for no more; give "
                f"a larger total, or leave --steps out to go on to {own.run.steps:,}")
    longer = f"a larger total to go on, such as --steps {2 * step}"
    if own.at("lr", step) == 0:
        return f"has done its {step:,} steps; give {longer} and --extend-schedule, as lr is 0 now"
    return f"has done its {step:,} steps; give {longer}"


def _check_lr(config: Config, step: int, run: Path) -> None:
    """Raises ConfigError if the schedule of lr is 0 at every step from `step` to the new total."""
    lr = config.optimizer.lr
    total = config.run.steps
    if not isinstance(lr, Schedule) or not lr.is_zero(step, total, config.schedule_steps):
        return
    remedy = "begin a run from its weights, with --init-from and another --lr"
    if not lr.is_zero(step, total, total):
        remedy = "add --extend-schedule, which stretches it over the new total"
    raise ConfigError(f"{run}: the schedule of lr has ended at 0, so nothing would be learned up "
                      f"to step {total:,}; {remedy}")


def _with_torchrun(config: Config) -> Config:
    """`config` with the ranks that torchrun has started, and on GPUs a GPU for each."""
    launched = torchrun_rank_and_size()
    if launched is None:
        return config
    _, num_ranks = launched
    if not isinstance(config.runtime, Sync):
        raise ConfigError(f"torchrun starts data-parallel ranks, which {config.algo} does not "
                          "have; start it without")
    gpus = int(os.environ["LOCAL_WORLD_SIZE"])
    device = config.runtime.device
    if device == "auto" and torch.cuda.is_available():
        device = "cuda"
    if device == "cuda":
        device = ",".join(f"cuda:{rank % gpus}" for rank in range(num_ranks))
    return config.change(num_workers=num_ranks, device=device)


def _on_this_machine(directory: RunDirectory) -> Config:
    """The config of a run, with "auto" keys adapted to a machine with fewer cores or no GPU."""
    config = directory.config
    asked = directory.asked.automatic()
    cores = available_cores()
    try:
        resolve_device(config)
    except ConfigError:
        if "device" not in asked:
            raise
        log.warning("device=%s is not on this machine: this resume is not exact",
                    config.runtime.device)
        config = config.change(device="auto")
    workers = config.runtime.num_workers
    if isinstance(config.runtime, Hogwild) and "num_workers" in asked and workers > cores:
        fewer = most_workers(config.env.num_envs, cores)
        log.warning("%d workers instead of %d, as this machine has fewer cores", fewer, workers)
        config = config.change(num_workers=fewer)
    return config


def _resumed_config(config: Config, steps: int | None, extend_schedule: bool,
                    device: str | None) -> Config:
    """The config that a resumed run continues with and saves."""
    if extend_schedule or steps not in (None, config.run.steps):
        span = 0 if extend_schedule else config.schedule_steps
        config = config.change(steps=config.run.steps if steps is None else steps,
                               schedule_steps=span)
    if device is not None:
        config = config.change(device=resolve_device(config.change(device=device)))
    falls_back = isinstance(config.runtime, Sync) and torchrun_rank_and_size() is None
    if falls_back and why_not_parallel(config) is not None:  # moved to a GPU
        log.warning("one process instead of %d: this resume is not exact",
                    config.runtime.num_workers)
        config = config.change(num_workers=1, threads=config.all_threads)
    return prepare(config)


def read_initial(config: Config) -> SavedPolicy | None:
    """The policy of `init_from`, or None. `load_learner` checks that it fits."""
    path = config.policy.init_from
    if path is None:
        return None
    try:
        return read_policy(local_path(path), config.policy.init_checkpoint, key="init_checkpoint",
                           runs_code=False)
    except ConfigError as error:
        raise ConfigError(f"init_from={path}: {error}") from None
    except CheckpointError as error:
        what, *details = (line.strip().rstrip(":") for line in str(error).splitlines())
        # The remedy after the semicolon is for a resume of that run.
        what = ": ".join([what.split("; ")[0], *details[:1]])
        raise ConfigError(f"init_from={path}: {what}; give a run with a whole checkpoint") from None


def check_initial(config: Config) -> None:
    """Raises ConfigError if the policy of `init_from` does not fit. Builds one environment."""
    policy = read_initial(config)
    if policy is None:
        return
    envs = make_single(config.env, seed=config.run.seed, stream=0, draws=False,
                       num_envs=config.envs_per_process)
    envs.close()
    check_fits(policy, new_model(config, envs.spec), config)


def check(config: Config) -> None:
    """Raises the errors of `config` before its first step. Builds one environment on the CPU."""
    tried = prepare(config).change(device="cpu", vector="sync")
    vector = is_vector(resolve_env(tried.env.id, tried.env.atari_protocol))  # its size may be fixed
    num_envs = tried.envs_per_process if vector else 1
    if isinstance(tried.runtime, Sync):
        tried = tried.change(num_envs=num_envs, num_workers=1)
    else:
        tried = tried.change(envs_per_worker=num_envs)
    initial = read_initial(tried)
    with closing(ActorLearner(tried)) as one:
        load_learner(one.learner, tried, None, initial)
        if tried.cloning.demonstrations is not None:
            read_source(tried, one.spec)
        one.begin()


def runtime_of(config: Config) -> Callable[..., Run]:
    """The class of runs under the config's runtime; ConfigError if Ray is not installed."""
    if isinstance(config.runtime, Ray):
        with needs("ray"):
            from vantage.runtimes.ray import RayRun
        return RayRun
    return SyncRun if isinstance(config.runtime, Sync) else HogwildRun
