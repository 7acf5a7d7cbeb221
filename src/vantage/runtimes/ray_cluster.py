"""The cluster of the runtime `ray`: joining or starting it, its room, nodes and errors."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import ray
from ray._private.services import canonicalize_bootstrap_address_or_die as find_cluster

from vantage._host.system import available_cores
from vantage.config.config import Config
from vantage.config.num_envs import most_workers
from vantage.errors import ConfigError, VantageError, for_reader
from vantage.runtimes.ray_guard import Guard

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
ROOM_SECONDS = 15.0
"""Seconds to wait for free CPUs, for example of a trial that has just ended."""
RATE_SECONDS = 5.0
"""Seconds over which the speed of a node is measured."""

_guards: list[Guard] = []
"""The guard of the cluster that this process has started, if it has."""


@dataclass(slots=True, eq=False)
class Member:
    """A worker, and the request that it works on."""

    worker: int
    actor: Any
    node: str = ""
    """Where it runs; empty while no node has room for it."""
    begun: bool = False
    """It has made its environments."""
    since: float = 0.0
    """When its request was sent."""
    updates: int = 0
    """Updates that the weights of its request have seen."""


def failure_of(error: ray.exceptions.RayError) -> VantageError:
    """The failure of a process or node in one line.

    ConfigError if a module is missing there, which a restart would not repair.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "No module named" in line:
            return ConfigError(f"{line}; install Vantage and your own modules on every node")
    reason = lines[0] if lines else type(error).__name__
    return VantageError(f"its process or node has ended: {reason}")


def connect(config: Config) -> bool:
    """Connect to the cluster, or start one here; False if this process was already connected."""
    if ray.is_initialized():
        return False
    address = config.ray.ray_address
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address == "local":
            needed = math.ceil(config.ray.num_workers * config.ray.worker_cpus)
            options["num_cpus"] = max(available_cores(), needed)
            options["include_dashboard"] = False
        else:
            address = find_cluster(address)
            check_answers(address)
        with own_signals(), ExitStack() as watched:
            if address == "local":
                _guards.append(Guard())
                watched.enter_context(_guards[-1])
            ray.init(address=address, **options)
        ray._private.worker.print_to_stdstream = _log_lines
    except Exception as error:  # Ray's own have no common class
        if address == "local":
            disconnect()  # ends what ray.init has started
        text = " ".join(str(error).split())
        remedy = ("give the HOST:PORT that `ray start --head` printed, or auto on a machine of its "
                  "cluster")
        if "ersion mismatch" in text:
            remedy = "install the same on all machines"
        raise ConfigError(f"ray_address={config.ray.ray_address}: {text:.300}; {remedy}") from None
    return True


def _log_lines(data: Mapping[str, Any], ignore_prefix: str) -> None:
    """Log the output that Ray would print over the display when a node ends.

    It prints even without log_to_driver: listen_error_messages in
    https://github.com/ray-project/ray/blob/master/python/ray/_private/worker.py (2.60, 2026-11).
    """
    log.debug("%s", data["lines"])


def disconnect() -> None:
    """Leave the cluster, and end one that `connect` has started."""
    ray.shutdown()
    while _guards:
        _guards.pop().close()


def check_answers(address: str) -> None:
    """Raises OSError unless a gRPC server answers at HOST:PORT. Ray itself would wait for minutes.

    It answers a client's preface with a frame of settings, type 4: RFC 9113, section 3.4.
    """
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), CONNECT_SECONDS) as connection:
        connection.settimeout(CONNECT_SECONDS)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        if connection.recv(9)[3:4] != b"\4":
            raise OSError("what answers there is not Ray")


@contextmanager
def own_signals() -> Iterator[None]:
    """Keep the signal handlers of this process, which `ray.init` replaces.

    Ray's handler aborts three seconds after SIGTERM.
    """
    main = threading.current_thread() is threading.main_thread()
    former = {number: signal.getsignal(number)
              for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def capacity(config: Config) -> int:
    """Number of workers that fit on the machines of the cluster. ConfigError if none fits."""
    cpus = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    fitting = sum(_that_fit(each, config) for each in cpus)
    if not fitting:
        raise ConfigError(f"worker_cpus={config.ray.worker_cpus:g}: no worker has room, the "
                          f"largest machine of the cluster has {max(cpus, default=0):g} CPUs; add "
                          "nodes or give a smaller --worker-cpus")
    return fitting


def resolve_num_workers(config: Config) -> int:
    """The number of workers: that of the config, or as many as have room now.

    ConfigError if none has.
    """
    runtime = config.ray
    most = capacity(config)
    started = monotonic()
    while not (fitting := _that_fit(_free_cpus(), config)):
        if monotonic() - started > ROOM_SECONDS:
            raise ConfigError(f"worker_cpus={runtime.worker_cpus:g}: no worker has room, "
                              f"{_free_cpus():g} CPUs of the cluster are free; wait for its other "
                              "work, add nodes or give a smaller --worker-cpus")
        sleep(0.2)
    fitting = min(fitting, most)
    if runtime.num_workers > fitting:
        log.warning(for_reader(
            f"num_workers={runtime.num_workers}: {fitting} have room, the others wait for free CPUs "
            "or new nodes; give fewer --num-workers or a smaller --worker-cpus"))
    most = max(1, fitting - (runtime.ray_address == "local"))
    return runtime.num_workers or most_workers(config.env.num_envs, most)


def _that_fit(cpus: float, config: Config) -> int:
    """Number of workers that have room on `cpus`."""
    return int(cpus / config.ray.worker_cpus + 1e-6)  # 0.3 CPUs for workers of 0.1 are three


def _free_cpus() -> float:
    return float(ray.available_resources().get("CPU", 0.0))


def workers_per_run(config: Config, jobs: int) -> int:
    """Workers of each of `jobs` runs at a time.

    Connects this process to its cluster, so that its runs need not.
    """
    if config.ray.ray_address == "local":
        fitting = int(available_cores() / config.ray.worker_cpus)
    else:
        connect(config)
        fitting = capacity(config)
    return most_workers(config.env.num_envs, max(1, fitting // jobs))


class NodeRates:
    """Sums what each node contributes, and turns the sums into metrics every `RATE_SECONDS`."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._sums: dict[str, Counter[str]] = {}
        self._restarts: Counter[str] = Counter()

    def count_reply(self, node: str, steps: int, lag: int) -> None:
        """Add a reply with so many `steps`, whose weights were `lag` updates old."""
        self._sums.setdefault(node, Counter()).update(steps=steps, lag=lag, replies=1)

    def count_restart(self, node: str) -> None:
        """Add a worker that was replaced."""
        self._restarts[node or "none"] += 1

    def due(self, now: float) -> bool:
        """The rates cover long enough."""
        return now - self._since > RATE_SECONDS

    def metrics(self, now: float, nodes: Sequence[str]) -> dict[str, float]:
        """Metrics since the last call. `nodes` has the node of each worker that runs."""
        metrics: dict[str, float] = {}
        for node, sums in self._sums.items():
            metrics[f"ray/fps/{node}"] = sums["steps"] / (now - self._since)
            metrics[f"ray/policy_lag/{node}"] = sums["lag"] / max(1, sums["replies"])
        for node, count in self._restarts.items():
            metrics[f"ray/restarts/{node}"] = float(count)
        self._since = now
        self._sums = {node: Counter() for node in nodes}
        return metrics
