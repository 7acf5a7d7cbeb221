"""Where the limit of the runtime `ray` lies on many nodes: a queueing model of costs that are measured here.

    python benchmarks/ray_model.py --env Pong --algo pong-fast --workers-per-node 16 \\
        --learner-speed 1 20
    python benchmarks/ray_model.py --env waiting --algo a2c --nodes 1 2 4 8 --gbit 0     as scaling.py measures it

The first line has the costs of a rollout, or of a gradient. The table has the predicted speed, what limits it, and the
traffic and memory of the learner's node. `--learner-speed 20` is a learner that takes a twentieth of the time.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scaling import waiting

import vantage
from vantage.keys.objects import pack


@dataclass(frozen=True, slots=True)
class Costs:
    """What one rollout, or one gradient, costs."""

    steps: int
    """Agent steps of the fresh rollout."""
    reply_bytes: int
    """What a worker sends."""
    weight_bytes: int
    """What it receives before."""
    act_seconds: float
    """The worker's, from the weights to the reply."""
    learn_seconds: float
    """The learner's: statistics, the update, and new weights in the object store."""
    message_seconds: float
    """The learner's, to receive a reply and to send a request."""
    latency_seconds: float
    """From a request to an idle worker that does nothing, to its reply."""

    def predict(self, workers: int, *, gbit: float = 0.0, overlaps: bool = True) -> tuple[float, str]:
        """Agent steps per second of so many workers on cores of their own, and the busiest part.

        The exact mean value analysis of a closed queueing network (Reiser and Lavenberg 1980): n workers, each in turn
        on its own for Z seconds, then in the queue of the learner and of both directions of the learner's link, whose
        demands are D_i.

            R_i(n) = D_i (1 + Q_i(n-1)),   X(n) = n / (Z + Σ_i R_i(n)),   Q_i(n) = X(n) R_i(n)

        `overlaps`: the learner sends the next request before it learns, so that Z is shorter by its work.
        """
        demands = {"learner": self.learn_seconds + self.message_seconds}
        if gbit:
            demands |= {"network to the learner": self.reply_bytes * 8 / (gbit * 1e9),
                        "network from the learner": self.weight_bytes * 8 / (gbit * 1e9)}
        alone = self.act_seconds + self.latency_seconds - (demands["learner"] if overlaps else self.message_seconds)
        queues, rate = dict.fromkeys(demands, 0.0), 0.0
        for n in range(1, workers + 1):
            times = {name: demand * (1 + queues[name]) for name, demand in demands.items()}
            rate = n / (max(0.0, alone) + sum(times.values()))
            queues = {name: rate * seconds for name, seconds in times.items()}
        busiest = max(demands, key=demands.__getitem__)
        return rate * self.steps, busiest if rate * demands[busiest] > 0.9 else "workers"


def measure_costs(config: vantage.Config, *, repeats: int = 40, seconds: float = 15.0) -> Costs:
    """A worker and a learner by turns in this process, and empty messages of the same size through Ray."""
    import torch

    from vantage.learning.learner import Learner
    from vantage.runtimes import ray_worker
    from vantage.runtimes.startup import new_model

    torch.set_num_threads(1)
    worker = ray_worker.RayWorker(pack(config.change(device="cpu"), "the config"), 0, 0)
    if isinstance(answer := worker.begin(), Exception):
        raise answer
    learner = Learner(new_model(config, worker._actor_learner.spec), config)
    gradients = config.ray.send == "gradients"
    acting, learning, steps = [], [], 0
    arrays: list[np.ndarray] = []
    begun = time.perf_counter()
    while len(acting) < repeats and (len(acting) < 4 or time.perf_counter() < begun + seconds):
        weights = [part.numpy() for part in ray_worker.weight_parts(learner)]
        started = time.perf_counter()
        reply: Any = (worker.gradient if gradients else worker.rollout)(weights, 0)
        if isinstance(reply, Exception):
            raise reply
        acting.append(time.perf_counter() - started)
        started = time.perf_counter()
        ray_worker.merge_statistics(learner, reply.statistics)
        if gradients:
            learner.sink.apply(ray_worker.tensor(reply.payload["gradient"]).clone(), reply.payload["num_valid"],
                               reply.payload["loss"], {}, lr=1e-6, max_grad_norm=0.0)
        else:
            learner.update(ray_worker.rollout_of(reply.payload, learner.flat.vector.device), 0)
        argument = ray_worker.weights_argument(learner)
        learning.append(time.perf_counter() - started)
        steps += reply.advance.steps
        arrays = list(_arrays(reply.payload))
    size = sum(array.nbytes for array in arrays)
    skip = len(acting) // 4  # torch's first calls are slow
    message, latency = measure_messages(arrays, argument)
    return Costs(round(steps / len(acting)), size, sum(array.nbytes for array in weights),
                 statistics.fmean(acting[skip:]), statistics.fmean(learning[skip:]), message, latency)


def _arrays(part: Any) -> Iterator[np.ndarray]:
    """All arrays of a reply."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, (tuple, list)) else (part,):
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, (dict, tuple, list)):
            yield from _arrays(value)


class Echo:
    """An actor that only answers."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = [array.copy() for array in arrays]

    def reply(self, weights: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The same arrays each time."""
        return self.arrays


def measure_messages(arrays: Sequence[np.ndarray], weights: Any) -> tuple[float, float]:
    """CPU seconds of this process for a message of such arrays, and seconds from a request to its reply."""
    import ray

    actors = [ray.remote(Echo).remote(arrays) for _ in range(2)]

    def seconds(number: int, clock: Callable[[], float], used: Sequence[Any]) -> float:
        pending = {actor.reply.remote(weights): actor for actor in used}
        started = clock()
        for _ in range(number):
            ready = ray.wait(list(pending), num_returns=1)[0][0]
            actor = pending.pop(ready)
            ray.get(ready)
            pending[actor.reply.remote(weights)] = actor
        elapsed = clock() - started
        ray.get(list(pending))
        return elapsed / number

    seconds(200, time.process_time, actors)
    result = seconds(1000, time.process_time, actors), seconds(300, time.perf_counter, actors[:1])
    for actor in actors:
        ray.kill(actor)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pong", help="an environment, or waiting: scaling.py's (default: Pong)")
    parser.add_argument("--algo", default="a2c", help="(default: a2c)")
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4, 8, 64, 512])
    parser.add_argument("--workers-per-node", type=int, default=1, help="(default: 1)")
    parser.add_argument("--gbit", type=float, default=10.0, help="of the learner's link, each way; 0: no limit")
    parser.add_argument("--learner-speed", nargs="+", type=float, default=[1.0], help="times that of this core")
    arguments = parser.parse_args()

    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config = (waiting(arguments.algo, 1, runtime="ray", device="cpu") if arguments.env == "waiting" else
              vantage.configure(arguments.algo, env=arguments.env, runtime="ray", num_workers=1, device="cpu",
                                threads=1))
    costs = measure_costs(config)
    ray.shutdown()
    print(costs, flush=True)
    print("\n| learner | nodes | workers | steps/s | limit | steps/s of a worker | to the learner | from the learner "
          "| in flight |\n|---|---|---|---|---|---|---|---|---|")
    for speed in arguments.learner_speed:
        faster = replace(costs, learn_seconds=costs.learn_seconds / speed)
        for nodes in arguments.nodes:
            workers = nodes * arguments.workers_per_node
            steps, limit = faster.predict(workers, gbit=arguments.gbit, overlaps=config.ray.send == "rollouts")
            rollouts = steps / costs.steps
            print(f"| {speed:g} x | {nodes} | {workers:,} | {steps:,.0f} | {limit} | {steps / workers:,.0f} | "
                  f"{rollouts * costs.reply_bytes / 2**20:,.1f} MiB/s | {rollouts * costs.weight_bytes / 2**20:,.1f} "
                  f"MiB/s | {workers * (costs.reply_bytes + costs.weight_bytes) / 2**20:,.0f} MiB |")


if __name__ == "__main__":
    main()
