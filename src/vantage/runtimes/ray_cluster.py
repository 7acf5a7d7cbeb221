"""The cluster that the runtime `ray` joins or starts, what has room in it, and what went wrong there in one line."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.system import available_cores

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Member:
    """A worker, and the request that it works on."""

    worker: int
    actor: Any
    node: str = ""
    """Where it runs; empty before it has begun, perhaps because no node has room."""
    since: float = 0.0
    """When its request was sent."""
    updates: int = 0
    """Updates that the weights of its request have seen."""


def node_of(actor: Any) -> str:
    """The address of the node that an actor runs on, and the start of its id, since one machine may have several."""
    location = ray.get(actor.__ray_call__.remote(
        lambda _: (ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id())))
    return f"{location[0]}-{location[1][:6]}"


def describe(error: ray.exceptions.RayError) -> str:
    """The end of a process or node in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if missing := next((line for line in lines if "No module named" in line), None):
        return f"{missing}; install Vantage and your own modules on every node"
    return f"its process or node has ended: {lines[0] if lines else type(error).__name__}"


def connect(config: Config) -> bool:
    """Connect to the cluster, or start one here; False if the program has connected already and keeps it."""
    if ray.is_initialized():
        return False
    runtime, options = config.ray, {"log_to_driver": False, "logging_level": logging.ERROR}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with own_signals():
        if runtime.ray_address == "local":
            cpus = max(available_cores(), -int(-runtime.num_workers * runtime.worker_cpus // 1))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **options)
            return True
        if runtime.ray_address != "auto":
            check_answers(runtime.ray_address)
        try:
            ray.init(address=runtime.ray_address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"ray_address={runtime.ray_address}: {text[:300]}; start one with `ray start --head`, or "
                              "give --ray-address local") from None
    return True


def check_answers(address: str) -> None:
    """ConfigError unless something answers at HOST:PORT: Ray itself would wait for minutes."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"ray_address={address}: nothing answers ({error}); give the HOST:PORT that `ray start "
                          "--head` printed, or auto on a machine of the cluster") from None


@contextmanager
def own_signals() -> Iterator[None]:
    """Keep this process's signal handlers, which `ray.init` replaces: Ray's aborts three seconds after SIGTERM."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    former = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def room(config: Config) -> int:
    """The number of workers: that of the config, or as many as have room now. ConfigError where not one has."""
    runtime, free = config.ray, float(ray.available_resources().get("CPU", 0.0))
    fitting = int(free / runtime.worker_cpus + 1e-6)
    if fitting < 1:
        raise ConfigError(f"worker_cpus={runtime.worker_cpus:g}: no worker has room, {free:g} of "
                          f"{ray.cluster_resources().get('CPU', 0.0):g} CPUs of the cluster are free; add nodes or "
                          "give a smaller --worker-cpus")
    if not runtime.num_workers:
        return max(1, fitting - 1) if runtime.ray_address == "local" else fitting
    if runtime.num_workers > fitting:
        log.warning(f"num_workers={runtime.num_workers}: {fitting} have room, the others wait for free CPUs or new "
                    "nodes; give fewer --num-workers or a smaller --worker-cpus")
    return runtime.num_workers
