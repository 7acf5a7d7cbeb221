"""How training speed grows with workers and nodes, and what memory a run under Ray takes. Not scores, nor predictions.

    python benchmarks/scaling.py waiting                  A3C's workers on an environment that waits 5 ms a step
    python benchmarks/scaling.py waiting --runtime ray    a Ray cluster on this machine, a worker on each node
    python benchmarks/scaling.py pong                     A3C's two workers against Ray's, alternating
    python benchmarks/scaling.py memory                   memory of a run under Ray on a waiting environment with images
    python benchmarks/scaling.py memory --pid PID         memory of the run under Ray that this process started

A waiting worker needs the cores for little, so that many of them fit one machine.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

import vantage

WAIT_SECONDS = 0.005
SETTLE_SECONDS = 8.0
"""Ray's processes of a node use the cores for some seconds after its worker has begun."""


class Waiting(gym.Env[np.ndarray, Any]):
    """Random observations, four numbers or an image; a step takes 5 ms and an episode 100 steps."""

    def __init__(self, images: bool = False) -> None:
        self.observation_space = (gym.spaces.Box(0, 255, (84, 84, 1), np.uint8) if images else
                                  gym.spaces.Box(-np.inf, np.inf, (4,), np.float32))
        self.action_space = gym.spaces.Discrete(2)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.t = 0
        return self.obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(WAIT_SECONDS)
        self.t += 1
        return self.obs(), float(action), self.t == 100, False, {}

    def obs(self) -> np.ndarray:
        space = self.observation_space
        noise = self.np_random.normal(size=space.shape)
        return (noise if space.dtype == np.float32 else 128 + 20 * noise).astype(space.dtype)


@contextmanager
def cluster(nodes: int) -> Iterator[None]:
    """A Ray cluster on this machine, one CPU on each node, that this program is connected to."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    these = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(nodes - 1):
        these.add_node(**node)
    ray.init(address=these.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
        these.shutdown()


def rate(config: vantage.Config, run: Path, seconds: float) -> tuple[float, float]:
    """Agent steps per second of a run, after all its workers have begun, and the cores that its processes use."""
    workers, under_ray = config.runtime.num_workers, config.runtime_name == "ray"

    def begun(report: Any) -> bool:
        return bool(report.metrics.get("ray/workers") == workers if under_ray else report.step >= 200 * workers)

    with closing(vantage.Trainer(config, run=run, argv=())) as reports:
        next(report for report in reports if begun(report))
        settled = time.perf_counter() + (SETTLE_SECONDS if under_ray else 0.0)
        start = last = next(report for report in reports if time.perf_counter() >= settled)
        since, elapsed, used = time.perf_counter(), 0.0, cpu_seconds()
        while elapsed < seconds:
            last = next(reports)
            elapsed = time.perf_counter() - since
        used = cpu_seconds() - used
    return (last.step - start.step) / elapsed, used / elapsed


def cpu_seconds() -> float:
    """CPU time of this process and of all that it has started and that still run."""
    total, this = 0.0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def waiting(algo: str, workers: int, **options: Any) -> vantage.Config:
    """Workers of one waiting environment each."""
    return vantage.configure(algo, env="scaling:Waiting", steps=10**9, num_workers=workers, envs_per_worker=1,
                             eval_every=0, rollout_length=20, log_every_seconds=0.5, tensorboard=False,
                             threads=1, **options)


def measure_waiting(arguments: argparse.Namespace) -> None:
    """Print steps per second and the efficiency for each number of workers."""
    under_ray = arguments.runtime == "ray"
    rates: dict[int, tuple[float, float]] = {}
    options: dict[str, Any] = {"runtime": "ray", "device": "cpu"} if under_ray else {}
    for workers in arguments.workers:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            config = waiting(arguments.algo, workers, **options)
            if under_ray:
                with cluster(workers):
                    rates[workers] = rate(config, Path(folder) / "run", arguments.seconds)
            else:
                rates[workers] = rate(config, Path(folder) / "run", arguments.seconds)
        print("{}: {:,.0f} steps/s on {:.2f} cores".format(workers, *rates[workers]), flush=True)
    first = arguments.workers[0]
    name = "nodes" if under_ray else "workers"
    print(f"\n| {name} | steps/s | to one | efficiency | cores used |\n|---|---|---|---|---|")
    for workers, (steps, cores) in rates.items():
        ratio = steps / rates[first][0] * first
        print(f"| {workers} | {steps:,.0f} | {ratio:.2f} | {ratio / workers:.2f} | {cores:.2f} |")


def measure_pong(arguments: argparse.Namespace) -> None:
    """Print the steps per second of A3C's two workers and of Ray's, and their ratio in each round.

    Each has the batch of its own defaults unless one is given for all.
    """
    common: dict[str, Any] = {"env": "Pong", "steps": 10**9, "num_workers": 2, "threads": 1, "device": "cpu",
                              "eval_every": 0, "log_every_seconds": 0.5, "tensorboard": False}
    batch = {name: value for name in ("envs_per_worker", "rollout_length")
             if (value := getattr(arguments, name)) is not None}
    contestants = {"a3c": vantage.configure("a3c", **common, **batch)}
    for algo in arguments.algos:
        contestants[f"{algo} under ray"] = vantage.configure(algo, runtime="ray", **common, **batch)
    rounds: list[dict[str, float]] = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            rounds.append({name: rate(config, Path(folder) / name, arguments.seconds)[0]
                           for name, config in contestants.items()})
        print(", ".join(f"{name} {steps:,.0f}" for name, steps in rounds[-1].items()), flush=True)
    print("\n| | steps/s, median | to a3c: min, median, max |\n|---|---|---|")
    for name in contestants:
        ratios = [steps[name] / steps["a3c"] for steps in rounds]
        print(f"| {name} | {statistics.median(steps[name] for steps in rounds):,.0f} | {min(ratios):.2f}, "
              f"{statistics.median(ratios):.2f}, {max(ratios):.2f} |")


def measure_memory(arguments: argparse.Namespace) -> None:
    """Print a line of CSV every 10 s: MiB of the driver, of its largest worker, and of the object stores."""
    print("seconds,step,driver_mib,largest_worker_mib,object_store_mib", flush=True)
    if arguments.pid is not None:
        driver, since = psutil.Process(arguments.pid), time.monotonic()
        while (elapsed := time.monotonic() - since) < arguments.minutes * 60 and driver.is_running():
            print_memory(driver, elapsed)
            time.sleep(10)
        return
    config = waiting("a2c", 2, runtime="ray", device="cpu").change(
        env_kwargs={"images": True}, log_every_seconds=10.0, max_minutes=arguments.minutes)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        since = time.monotonic()
        for report in vantage.Trainer(config, run=Path(folder) / "run", argv=()):
            if report.status == "running":
                print_memory(psutil.Process(), time.monotonic() - since, report.step)
    print(f"# Ray's files in /dev/shm after the end: {[file.name for file in Path('/dev/shm').glob('*plasma*')]}")


def print_memory(driver: psutil.Process, seconds: float, step: int | None = None) -> None:
    """One line of the CSV."""
    with suppress(psutil.NoSuchProcess, FileNotFoundError):  # a process that has just ended
        children = driver.children(recursive=True)
        workers = [private_mib(child) for child in children if child.name().startswith("ray::W")]
        store = sum(store_mib(child) for child in children if child.name() == "raylet")
        print(f"{seconds:.0f},{'' if step is None else step},{private_mib(driver):.1f},"
              f"{max(workers, default=0):.1f},{store:.1f}", flush=True)


def private_mib(process: psutil.Process) -> float:
    """Resident memory that a process shares with no other."""
    info = process.memory_info()
    return float(info.rss - info.shared) / 2**20


def store_mib(raylet: psutil.Process) -> float:
    """Memory that the object store of a node has touched: the blocks of its file in /dev/shm, which has no name."""
    files = [file for file in Path(f"/proc/{raylet.pid}/fd").iterdir() if "plasma" in os.readlink(file)]
    return sum(os.stat(file).st_blocks * 512 for file in files if "/dev/shm" in os.readlink(file)) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=(run.__doc__ or "").partition("\n")[0])
        parser.set_defaults(run=run)
        return parser

    one = command("waiting", measure_waiting)
    one.add_argument("--runtime", choices=("hogwild", "ray"), default="hogwild", help="(default: hogwild)")
    one.add_argument("--algo", default="a3c", help="a3c, or with --runtime ray also a2c, ppo, acer (default: a3c)")
    one.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    one.add_argument("--seconds", type=float, default=15.0, help="how long each (default: 15)")
    one = command("pong", measure_pong)
    one.add_argument("--algos", nargs="+", default=["a3c"], help="under Ray: a3c, a2c (default: a3c)")
    one.add_argument("--envs-per-worker", type=int, help="environments of each worker (default: as the algorithm's)")
    one.add_argument("--rollout-length", type=int, help="(default: as the algorithm's)")
    one.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    one.add_argument("--seconds", type=float, default=15.0, help="how long each (default: 15)")
    one = command("memory", measure_memory)
    one.add_argument("--pid", type=int, help="of the process that started a run; otherwise one is started")
    one.add_argument("--minutes", type=float, default=20.0, help="(default: 20)")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
