"""Values for this machine of keys that are "auto": device, processes, threads, precision."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import re
import sys

import torch

from vantage._host.extras import require
from vantage._host.system import (
    available_cores,
    compute_for_long,
    free_memory,
    keep_freed_memory,
    use_threads,
)
from vantage.config.checks import check_sources, check_together, why_not_parallel
from vantage.config.config import Config
from vantage.config.num_envs import most_workers
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.envs.batched import is_vector
from vantage.envs.ids import check_processes, is_atari, resolve_env
from vantage.envs.make import make_environments
from vantage.errors import ConfigError
from vantage.learning.optimizers import make_optimizer
from vantage.runtimes.startup import new_model

log = logging.getLogger(__name__)

LEAST_ENVS = 8
"""Fewest Atari environments for which another process is started."""

LEAST_BUSY = 0.75
"""Smallest share of the cores that processes with equally many threads must use."""

MOST_PER_CORE = 4
"""Workers per core above which a warning is logged."""

WORKER_MIB = 100
"""Least private memory of a process with torch; 151 MiB were measured."""

ENV_MIB = 20
"""Least private memory of an environment's process; 24 MiB were measured."""

MOST_FOR_ONE_THREAD = 200_000
"""Most weights of a network without images for which one thread is at least as fast as two.

Next to a busy process one thread is then 1.3 to 8 times as fast. PPO on HalfCheetah has 143,000
weights with hidden=256,256; with 512,512 it has 547,000, and two threads are faster.
"""


MOST_PIXELS = 400
"""Most pixels of an image for which one thread is at least as fast as two."""


def prepare(config: Config) -> Config:
    """`config` with values for its "auto" keys.

    Sets how this process uses threads, cores and memory. Raises ConfigError for devices, optimisers
    and trackers that training cannot use.
    """
    runtime = config.runtime
    hogwild = isinstance(runtime, Hogwild)
    cores = available_cores()
    check_together(config)  # again: it may have been changed since, or edited
    check_sources(config)
    make_optimizer(config.optimizer, torch.zeros(1))  # raises ConfigError for unusable optimisers
    if config.run.track != "none":
        require(config.run.track, config.run.track)
    if config.run.log_weights:
        require("tensorboard", "tensorboard")
    config = config.change(device=resolve_device(config))
    # The run sets the number of workers when it has joined the cluster.
    if isinstance(runtime, Ray):
        workers = runtime.num_workers
        threads = runtime.threads or max(1, int(runtime.worker_cpus))
        own = cores
    else:
        if hogwild:
            workers = runtime.num_workers or most_workers(config.env.num_envs, cores)
        else:
            workers = _ranks(config)
        if workers > MOST_PER_CORE * cores:
            log.warning("num_workers=%d on %d cores: more than %d per core only wait for each "
                        "other; give fewer", workers, cores, MOST_PER_CORE)
        if hogwild:
            check_together(config.change(num_workers=workers))  # with the share of each worker
        _check_memory(config, workers)
        threads = runtime.threads or (1 if hogwild else threads_of(config, workers))
        own = threads
    if workers > 1 or not isinstance(runtime, Sync):
        check_processes(resolve_env(config.env.id, config.env.atari_protocol))
    use_threads(own)
    keep_freed_memory()
    compute_for_long()
    return config.change(threads=threads, num_workers=workers, precision=_precision(config))


def threads_of(config: Config, processes: int) -> int:
    """Threads of each of `processes`, at most OMP_NUM_THREADS.

    They are its share of the cores, or one for a small network.

    Threads synchronise at each operation, which for a small network takes longer than the
    operation. Next to processes of environments this holds for larger networks too: A2C on
    BipedalWalker on 2 cores with vector=async makes 950 steps/s with two threads, 1,580 with one.
    Networks for images of more than `MOST_PIXELS` are not small.
    """
    threads = min(max(1, available_cores() // processes), _most_threads())
    env = resolve_env(config.env.id, config.env.atari_protocol)
    # Vector environments are excluded: they may be slow or impossible to build twice.
    if threads == 1 or env.atari is not None or is_vector(env) or "cuda" in config.runtime.device:
        return threads
    envs = make_environments(config.change(vector="sync").env, seed=config.run.seed, num_envs=1,
                             stream=0, threads=1)
    envs.close()
    weights = sum(weight.numel() for weight in new_model(config, envs.spec).parameters())
    images = any(part.kind == "image" and math.prod(part.shape[-2:]) > MOST_PIXELS
                 for part in envs.spec.parts)
    envs_use_cores = config.env.vector == "async"
    if (weights <= MOST_FOR_ONE_THREAD or envs_use_cores) and not images:
        return 1
    return threads


def _most_threads() -> int:
    """OMP_NUM_THREADS, or no limit where it is unset or says no number."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(first)) if first.isdecimal() else sys.maxsize


def _check_memory(config: Config, workers: int) -> None:
    """Raises ConfigError if so many processes cannot fit into the memory."""
    free = free_memory() >> 20
    envs = config.env.num_envs if config.env.vector == "async" else 0
    for name, number, each in (("num_workers", workers, WORKER_MIB), ("num_envs", envs, ENV_MIB)):
        if number > 1 and number * each > free:
            raise ConfigError(f"{name}={number}: so many processes need at least {number * each:,} "
                              f"MiB, and {free:,} MiB of memory are free; give at most "
                              f"{max(1, free // each)}")


def _ranks(config: Config) -> int:
    """Number of processes that share each update under sync. ConfigError if so many cannot.

    The default is above one only on Atari, whose emulators and convolutions keep processes busy for
    milliseconds between updates; each gets at least `LEAST_ENVS`, and together they use at least
    `LEAST_BUSY` of the cores.
    """
    # A process of a Pool, for example, cannot start others.
    daemon = multiprocessing.current_process().daemon
    workers = config.runtime.num_workers
    if workers:
        why = why_not_parallel(config)
        if daemon and workers > 1:
            why = ("a daemonic process, such as one of multiprocessing.Pool, cannot start others; "
                   "give --num-workers 1")
        if why is not None:
            raise ConfigError(f"num_workers={workers}: {why}")
        return workers
    if config.runtime.threads or daemon or not is_atari(config.env.id):
        return 1
    cores = available_cores()
    most = min(cores, config.env.num_envs // LEAST_ENVS)
    for number in range(most, 1, -1):
        uses_cores = cores // number * number >= LEAST_BUSY * cores
        if uses_cores and why_not_parallel(config.change(num_workers=number)) is None:
            return number
    return 1


def _precision(config: Config) -> str:
    """The config's precision, or for "auto" bfloat16 on Atari with AVX512_BF16, where it is faster.

    GPUs have not been measured.
    """
    if config.policy.precision != "auto":
        return config.policy.precision
    has_bfloat16 = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    on_cpu = config.runtime.device.startswith("cpu")
    faster = has_bfloat16 and on_cpu and is_atari(config.env.id)
    return "bfloat16" if faster else "float32"


def resolve_device(config: Config) -> str:
    """The devices of `config`, with "auto" resolved.

    ConfigError for devices that torch cannot use.
    """
    count = torch.cuda.device_count()
    device = config.runtime.device
    hogwild = isinstance(config.runtime, Hogwild)
    hint = "use a3c, which is the same on CPUs" if config.algo == "a3g" else "use --device cpu"
    if device == "auto":
        if hogwild and config.algo != "a3g":
            return "cpu"  # each worker would need a CUDA context of its own, hundreds of MiB
        if config.algo == "a3g" and count == 0:
            raise ConfigError("a3g is for machines with GPUs, and torch finds no CUDA device here; "
                              f"{hint}")
        if count == 0:
            return "cpu"
        return ",".join(f"cuda:{i}" for i in range(count)) if hogwild else "cuda"
    for part in device.split(","):
        match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", part)
        if match is None:
            raise ConfigError(f"device={device!r} is not a device; use cpu, cuda, cuda:0 or auto")
        if match[1] == "cuda" and int(match[2] or 0) >= count:
            raise ConfigError(f"device={device!r}: torch can use {count} CUDA devices on this "
                              f"machine; {hint}")
    if "," in device and isinstance(config.runtime, Ray):
        raise ConfigError(f"device={device!r}: the learner of runtime=ray takes one device; give "
                          "cpu or cuda:0")
    if "," in device and not hogwild and config.runtime.num_workers <= 1:
        raise ConfigError(f"device={device!r}: a single process takes one device; give "
                          "--num-workers for a list")
    return device
