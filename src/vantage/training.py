"""`train` and `resume`: a run as a generator of reports; `load`: its policy, without an environment."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from vantage.config import Config
from vantage.config_groups import Hogwild, Sync
from vantage.consistency import why_not_parallel
from vantage.envs import make_environments
from vantage.envs.ids import resolve_env
from vantage.errors import CheckpointError, ConfigError
from vantage.learning.collect import Array, tensor_obs
from vantage.learning.optimizers import check_optimizer
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.runs.checkpoint import Checkpoint, fitting, load_latest
from vantage.runs.directory import RunDirectory
from vantage.runs.initial import check_fits
from vantage.runs.lock import locked
from vantage.runs.policy import SavedPolicy, read_policy
from vantage.runtimes.actor_learner import ActorLearner, replay_share
from vantage.runtimes.progress import goal_reached
from vantage.runtimes.sync import SyncRun
from vantage.runtimes.train_loop import Run, follow
from vantage.system import compute_for_long, cores_for, keep_freed_memory
from vantage.types import EnvSpec, Obs, Report, State

LEAST_ENVS = 8
"""Atari environments that a process needs to be started for them."""

LEAST_BUSY = 0.75
"""Share of the cores that processes of equally many threads must use."""

P = ParamSpec("P")
_UNFINISHED: WeakSet[Generator[Report]] = WeakSet()


def _closed_at_exit(make: Callable[P, Generator[Report]]) -> Callable[P, Generator[Report]]:
    """A program that ends with what `make` gave in hand closes that: it is saved, and its processes end."""
    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Generator[Report]:
        reports = make(*args, **kwargs)
        _UNFINISHED.add(reports)
        return reports

    return made


@atexit.register
def _close_unfinished() -> None:
    for reports in list(_UNFINISHED):
        with contextlib.suppress(ValueError):  # another thread, which ends with the program, goes on with it
            reports.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_UNFINISHED.clear)


@_closed_at_exit
def train(config: Config, *, run: str | Path | None = None, root: str | Path = "runs",
          argv: Sequence[str] | None = None, should_stop: Callable[[], bool] = lambda: False,
          notify: Callable[[str], None] = lambda text: None) -> Generator[Report]:
    """Train as `config` says, in a new run directory; yields a report every `log_every_seconds` and one at the end.

    Closing the generator stops cleanly, with a checkpoint. `should_stop` is asked after every update. `notify` gets
    what a person should know once, such as what was decided about the environment. Raises ConfigError if the
    directory `run` exists, and where the policy of `init_from` is not one that the run could have.
    """
    config = prepare(config)
    initial = read_initial(config, notify)
    directory = RunDirectory.create(config, env_name=config.env.id, path=None if run is None else Path(run),
                                    root=Path(root), argv=sys.argv if argv is None else argv)
    with locked(directory.path):
        try:
            session = start(config, directory, None, notify, initial)
        except BaseException:
            directory.remove()
            raise
        yield from follow(session, should_stop)


@_closed_at_exit
def resume(run: str | Path, *, steps: int | None = None, extend_schedule: bool = False,
           max_minutes: float | None = None, device: str | None = None, trust: bool = False,
           should_stop: Callable[[], bool] = lambda: False,
           notify: Callable[[str], None] = lambda text: None) -> Generator[Report]:
    """Go on with the run in directory `run` from its newest good checkpoint, as if it had never stopped.

    `steps` is the new total; schedules keep running over the former total unless `extend_schedule`. `max_minutes` is
    for this time alone. `trust` allows code from outside Vantage that the config of someone else's run names.
    """
    directory = RunDirectory.open(Path(run), trust=trust, runs_code=True)
    kept = directory.config
    if extend_schedule or steps not in (None, kept.run.steps):
        span = 0 if extend_schedule else kept.run.schedule_steps or kept.run.steps
        kept = kept.change(steps=kept.run.steps if steps is None else steps, schedule_steps=span)
    if isinstance(kept.runtime, Sync) and kept.runtime.num_workers == 0:  # begun when A2C had one process
        kept = kept.change(num_workers=1)
    if device is not None:
        kept = kept.change(device=_devices(kept.change(device=device)))
    if isinstance(kept.runtime, Sync) and why_not_parallel(kept) is not None:  # it moves to a GPU
        notify(f"one process instead of {kept.runtime.num_workers}: this resume is not exact")
        kept = kept.change(num_workers=1, threads=kept.all_threads)
    kept = prepare(kept)
    config = kept if max_minutes is None else kept.change(max_minutes=max_minutes)
    with locked(directory.path):
        checkpoint = load_latest(directory.path)
        for message in checkpoint.skipped:
            notify(message)
        if checkpoint.step >= config.run.steps and not checkpoint.state["progress"].get("evaluation_due"):
            raise ConfigError(f"{run} has done its {checkpoint.step:,} steps; give a larger total with --steps to go "
                              "on")
        if reached := goal_reached(checkpoint.state["progress"], config):
            raise ConfigError(f"{run} has ended: {reached}; to train its policy further, begin a run with --init-from "
                              f"{run} and another goal")
        session = start(config, directory, checkpoint, notify)
        try:
            directory.change_config(kept)
        except BaseException:
            session.close("interrupted")
            raise
        yield from follow(session, should_stop)


def read_initial(config: Config, notify: Callable[[str], None] = lambda text: None) -> SavedPolicy | None:
    """The policy that a run of `config` begins from, None without `init_from`; ConfigError if it does not fit."""
    if config.policy.init_from is None:
        return None
    policy = _read_given(config.policy.init_from, config.policy.init_checkpoint)
    envs = make_environments(config.change(vector="sync"), num_envs=1, stream=0, threads=1)
    envs.close()
    with torch.random.fork_rng(devices=[]):
        check_fits(policy, make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic), config)
    known = policy.known
    for message in policy.skipped:
        notify(message)
    notify(f"weights and normalisers of {known.config.algo} on {known.config.env.id}, step {known.step:,}, from "
           f"{config.policy.init_from}")
    if config.env.reward_norm and policy.rewards is None:
        notify("the deviation of returns is not among them: reward_norm begins anew")
    return policy


def check(config: Config) -> None:
    """Raise what would keep a run of `config` from its first step on this machine, and leave nothing behind.

    One environment stands for all, and the CPU for the device, once torch is found to have that.
    """
    tried = prepare(config).change(device="cpu", vector="sync", num_envs=1)
    if isinstance(tried.runtime, Sync):
        tried = tried.change(num_workers=1)
    read_initial(tried)
    workers = 1 if isinstance(tried.runtime, Sync) else tried.runtime.num_workers
    actor_learner = ActorLearner(tried, replay_bytes=replay_share(workers))
    try:
        actor_learner.begin()
    finally:
        actor_learner.close()


def _read_given(path: str, checkpoint: str) -> SavedPolicy:
    """The policy in `path`, whose errors are those of a key that a person gave."""
    try:
        return read_policy(Path(path), checkpoint, key="init_checkpoint")
    except ConfigError as error:
        raise ConfigError(f"init_from={path}: {error}") from None
    except CheckpointError as error:
        what, *details = (line.strip().rstrip(":") for line in str(error).splitlines())
        what = ": ".join([what.split("; ")[0], *details[:1]])  # its remedy is for those who would go on with that run
        raise ConfigError(f"init_from={path}: {what}; give a run with a whole checkpoint") from None


def start(config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
          notify: Callable[[str], None], initial: SavedPolicy | None = None) -> Run:
    """The run under the config's runtime; a new one may begin from the policy `initial`."""
    if isinstance(config.runtime, Sync):
        return SyncRun(config, directory, checkpoint, notify, initial)
    from vantage.runtimes.hogwild import HogwildRun

    return HogwildRun(config, directory, checkpoint, notify, initial)


def prepare(config: Config) -> Config:
    """`config` with what "auto" means on this machine; sets how this process uses threads, cores and memory.

    ConfigError for devices and optimisers that training cannot use.
    """
    hogwild = isinstance(config.runtime, Hogwild)
    if hogwild and config.env.vector == "async":
        raise ConfigError("vector='async': the workers of a3c and a3g are processes already; leave it sync")
    check_optimizer(config.optimizer)
    config = config.change(device=_devices(config))
    workers = cores_for(config.runtime.num_workers) if hogwild else _processes(config)
    threads = config.runtime.threads or (1 if hogwild else cores_for(0) // max(1, workers) or 1)
    torch.set_num_threads(threads)
    keep_freed_memory()
    compute_for_long()
    return config.change(threads=threads, num_workers=workers)


def _processes(config: Config) -> int:
    """How many processes share the update of `config` under sync; ConfigError where so many cannot.

    Unless asked for, only for Atari, whose emulators and convolutions keep each busy for milliseconds between two
    meetings, with enough environments in each for its convolutions, and where few cores are left over.
    """
    alone = multiprocessing.current_process().daemon  # such as a Pool's, which may have no children
    if config.runtime.num_workers:
        why = why_not_parallel(config) or ("a daemonic process, such as one of multiprocessing.Pool, cannot start others; "
                                        "give num_workers=1" if alone and config.runtime.num_workers > 1 else None)
        if why is not None:
            raise ConfigError(f"num_workers={config.runtime.num_workers}: {why}")
        return config.runtime.num_workers
    if config.algorithm.needs.replay is not None:
        return 0
    if config.runtime.threads or alone or resolve_env(config.env.id, config.env.atari_protocol).atari is None:
        return 1
    cores = cores_for(0)
    return max((n for n in range(2, min(cores, config.env.num_envs // LEAST_ENVS) + 1)
                if cores // n * n >= LEAST_BUSY * cores and why_not_parallel(config.change(num_workers=n)) is None),
               default=1)


def _devices(config: Config) -> str:
    """The devices that `config` means; ConfigError for those that torch cannot use."""
    count = torch.cuda.device_count()
    device = config.runtime.device
    if config.algo == "a3g" and device == "auto" and count == 0:
        raise ConfigError("a3g is for machines with GPUs, and torch finds no CUDA device here; use a3c, which is the "
                          "same on CPUs")
    if device == "auto":
        device = "cpu" if count == 0 else ",".join(f"cuda:{i}" for i in range(count)) if isinstance(config.runtime, Hogwild) \
            else "cuda"
    for part in device.split(","):
        kind, _, index = part.partition(":")
        if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
            raise ConfigError(f"device={device!r} is not a device; use cpu, cuda, cuda:0 or auto")
        if kind == "cuda" and int(index or 0) >= count:
            raise ConfigError(f"device={device!r}: torch can use {count} CUDA devices on this machine; use --device cpu"
                              + (", or a3c, which is the same on CPUs" if config.algo == "a3g" else ""))
    if "," in device and isinstance(config.runtime, Sync):
        raise ConfigError(f"device={device!r}: a single process takes one device; a list is for the workers of a3g")
    return device


@dataclass(frozen=True, slots=True)
class Agent:
    """A trained policy that acts; frozen, on the CPU, without an environment."""

    model: ActorCritic
    config: Config
    step: int
    checkpoint: str
    """The directory that it was read from, within the run."""
    scores: Mapping[str, float]
    """Raw returns when it was saved: `rollout/ep_rew_mean`, and of a best checkpoint `eval/mean_reward`."""

    def initial_state(self, batch: int = 1) -> State:
        """The state before an episode's first observation."""
        return self.model.initial_state(batch)

    @torch.no_grad()
    def act(self, obs: Obs | Array, state: State, *, is_first: Tensor | np.ndarray | None = None,
            deterministic: bool = True, generator: torch.Generator | None = None,
            action_mask: Tensor | np.ndarray | None = None) -> tuple[np.ndarray, State]:
        """Actions [B, ...] for observations [B, ...], and the state to pass next time.

        Observations are as the policy was trained on them: images [C, H, W] in uint8, all else float32 vectors,
        Discrete ones one-hot, Dict spaces as a mapping with keys joined by "/". Box actions are not clipped.
        ValueError where their shapes are others, and where the policy was trained with masks and none is given.

        `is_first` [B] marks observations that open an episode, for which `state` is cleared; None: none does, which
        also suits a new `initial_state`, unless stack_pad is repeat.
        """
        tensors = tensor_obs(obs, torch.device("cpu"))
        spec = self.model.spec
        _check_obs(tensors, spec)
        if spec.masked and action_mask is None:
            raise ValueError(f"the policy knows action masks: give action_mask [B, {sum(spec.action.sizes)}]")
        batch = len(tensors if isinstance(tensors, Tensor) else next(iter(tensors.values())))
        first = torch.zeros(batch, dtype=torch.bool) if is_first is None else torch.as_tensor(is_first).bool()
        mask = None if action_mask is None else torch.as_tensor(action_mask).bool()
        params, state = self.model.step(tensors, first, state, mask)
        distribution = self.model.distribution
        if deterministic:
            return distribution.mode(params).numpy(), state
        return distribution.sample(params, generator or torch.default_generator).numpy(), state


def _check_obs(obs: Obs, spec: EnvSpec) -> None:
    expected = {key: part.shape for key, part in spec.obs.items()} if isinstance(spec.obs, Mapping) else spec.obs.shape
    given = {key: tuple(part.shape[1:]) for key, part in obs.items()} if isinstance(obs, Mapping) \
        else tuple(obs.shape[1:])
    if given != expected:
        raise ValueError(f"observations have shape {given} after the batch's axis, the policy was trained on "
                         f"{expected}: images are [C, H, W], Discrete ones one-hot, all else a flat vector")


def load(run: str | Path, *, checkpoint: str = "auto", trust: bool = False,
         notify: Callable[[str], None] = warnings.warn) -> Agent:
    """The policy of a run: its best checkpoint if there is one, else the latest; or `latest`, `best`, or a step.

    `run` may also be a file that `vantage export --format safetensors` wrote. The environment is not built, nor need
    it be installed. `notify` gets what is wrong with a checkpoint that had to be passed over. `trust`
    allows code from outside Vantage that the file or the config of someone else's run names.
    """
    policy = read_policy(Path(run), checkpoint, trust=trust)
    for message in policy.skipped:
        notify(message)
    known = policy.known
    model = make_model(known.config.policy, known.spec, critic=known.config.algorithm.needs.critic)
    path = Path(run)
    with fitting(*((path / known.checkpoint, "config.json") if path.is_dir() else (path, "its header"))):
        model.load_state_dict(policy.tensors)
    return Agent(model.eval(), known.config, known.step, known.checkpoint, known.scores)
