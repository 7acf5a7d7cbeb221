"""The config keys of each runtime: who holds the environments, and when weights move."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vantage.errors import ConfigError
from vantage.keys.fields import check_fields, key
from vantage.keys.given_fields import remembering_arguments

_ENVS_PER_WORKER = ("environments of each worker, instead of num_envs; 0: num_envs divided by "
                    "num_workers")


def _rollout_lengths(runtime: Sync | Hogwild | Ray) -> tuple[int, ...]:
    """The lengths of rollouts, which workers take in turn; one, except under Hogwild."""
    length = runtime.rollout_length
    return length if isinstance(length, tuple) else (length,)


@remembering_arguments
@dataclass(frozen=True)
class Sync:
    """Collect and learn in turns, in one process or in data-parallel ranks."""

    rollout_length: int = key(5, "steps of each environment in a rollout", low=1, high=1_000_000)
    rollouts_per_update: int = key(
        1, "consecutive rollouts of each environment in one update", low=1, high=10_000)
    num_workers: int = key(
        0, "data-parallel ranks, which split the environments; 0: on Atari one per core while each "
        "has eight environments, else 1", low=0, high=1024)
    device: str = key(
        "auto", "cpu, cuda, cuda:0, or auto; a list such as cuda:0,cuda:1 gives each rank a GPU")
    threads: int = key(
        0, "CPU threads of each process; 0: one, or all cores for large images and networks",
        low=0, high=4096)

    def __post_init__(self) -> None:
        check_fields(self)

    rollout_lengths = property(_rollout_lengths)


@remembering_arguments
@dataclass(frozen=True)
class Hogwild:
    """Workers that act and learn on shared weights without a lock (Niu et al. 2011).

    https://arxiv.org/abs/1106.5730
    """

    rollout_length: tuple[int, ...] | int = key(
        5, "steps of each environment in a rollout; a list such as 16,32 gives each worker in turn "
        "its own", low=1, high=1_000_000)
    rollouts_per_update: int = key(
        1, "consecutive rollouts of each environment in one update", low=1, high=10_000)
    num_workers: int = key(
        0, "worker processes; 0: one per core, or as many as divide num_envs", low=0, high=1024)
    envs_per_worker: int = key(0, _ENVS_PER_WORKER, low=0, high=100_000)
    device: str = key(
        "auto", "cpu, cuda, cuda:0, or auto: the GPUs with a3g, else the CPU; workers take turns "
        "in a list such as cuda:0,cuda:1")
    threads: int = key(0, "CPU threads of each worker; 0: one", low=0, high=4096)
    shared_statistics: bool = key(
        True, "share the optimiser's statistics among workers; off: each worker has its own")
    lock: bool = key(
        False, "let one worker at a time step the optimiser, for comparison; off: no lock")
    max_restarts: int = key(
        10, "number of worker restarts before the run gives up", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rollout_lengths:
            raise ConfigError("rollout_length is empty; write for example 20 or 16,32,64")

    rollout_lengths = property(_rollout_lengths)


@remembering_arguments
@dataclass(frozen=True)
class Ray:
    """Workers in a Ray cluster, whose rollouts or gradients this process learns from."""

    rollout_length: int = key(5, "steps of each environment in a rollout", low=1, high=1_000_000)
    rollouts_per_update: int = key(
        1, "rollouts in one update: of any workers, or with send=gradients of one",
        low=1, high=10_000)
    num_workers: int = key(
        0, "worker processes; 0: as many as fit when the run starts, beside the learner's core, "
        "or as many of them as divide num_envs", low=0, high=100_000)
    envs_per_worker: int = key(0, _ENVS_PER_WORKER, low=0, high=100_000)
    device: str = key(
        "auto", "device of the learner: cpu, cuda, cuda:0, or auto; workers act on CPUs")
    threads: int = key(0, "CPU threads of each worker; 0: worker_cpus", low=0, high=4096)
    ray_address: str = key(
        "local", "local: this machine alone; auto: the cluster that this machine is part of; or "
        "HOST:PORT of its head")
    worker_cpus: float = key(1.0, "CPUs that each worker reserves", low=0.001, high=4096)
    send: str = key(
        "auto", "what workers send: rollouts to a central learner (V-trace), or gradients to a "
        "parameter server; auto: gradients with a3c or a replay, else rollouts",
        choices=("auto", "rollouts", "gradients"))
    max_policy_lag: int = key(
        0, "drop rollouts and gradients of weights more than this many updates old; 0: 8 rounds "
        "of all workers", low=0, high=10**9)
    max_restarts: int = key(
        10, "number of worker restarts before the run gives up", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        is_name = self.ray_address in ("local", "auto")
        if not is_name and not re.fullmatch(r"[^:/\s]+:\d{1,5}", self.ray_address):
            raise ConfigError(f"ray_address={self.ray_address!r} is not an address; give local, "
                              "auto or HOST:PORT")

    rollout_lengths = property(_rollout_lengths)
