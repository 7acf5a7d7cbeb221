"""What the age of weights costs: a worker of the runtime `ray` that acts with the weights of N updates ago. No cluster.

    python benchmarks/lag.py CartPole-v1 --steps 100k --lags 0 1 4 16 --seeds 3 --out results/ray-lag/CartPole-v1.csv

Worker and learner are those of `--runtime ray`, by turns in one process, so that the lag is exact and a seed repeats.
a2c is trained with V-trace and without it, `--algo ppo` with it. A line of CSV for each run: the score of the last
weights over 100 games, and the steps after which the mean of the last 100 training games first reached the goal.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections import deque
from pathlib import Path
from typing import Any

import torch

import vantage
from vantage.keys.objects import pack
from vantage.learning.learner import Learner
from vantage.runtimes import ray_worker
from vantage.runtimes.startup import new_model

COLUMNS = ("algo", "env", "lag", "vtrace", "seed", "steps", "score", "steps_to_goal", "rho_mean")
GOALS = {"CartPole-v1": 400.0, "Acrobot-v1": -100.0, "MinAtar/Breakout-v1": 4.0}
WINDOW = 100


def checked(answer: Any) -> Any:
    """The answer of an actor, whose errors are values."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def train(config: vantage.Config, lag: int, goal: float) -> dict[str, Any]:
    """Train to the end with weights that are `lag` updates old; the first `lag` rollouts use the initial ones."""
    worker = ray_worker.RayWorker(pack(config, "the config"), 0, 0)
    checked(worker.begin())
    spec = worker._actor_learner.spec
    learner = Learner(new_model(config, spec), config)
    history: deque[Any] = deque(maxlen=lag + 1)
    recent: deque[float] = deque(maxlen=WINDOW)
    rhos: list[float] = []
    step, reached = 0, None
    while step < config.run.steps:
        history.append(weights(learner))
        reply = checked(worker.rollout(history[0], step))
        ray_worker.merge_statistics(learner, reply.statistics)
        metrics = learner.update(ray_worker.rollout_of(reply.payload, torch.device("cpu")), step)
        rhos.append(metrics.get("train/rho_mean", math.nan))
        step += reply.advance.steps
        recent.extend(episode.score for episode in reply.advance.episodes)
        if reached is None and len(recent) == WINDOW and statistics.fmean(recent) >= goal:
            reached = step
    worker._actor_learner.close()
    evaluator = ray_worker.RayWorker(pack(config, "the config"), 0, 0)
    evaluated, _ = checked(evaluator.evaluate(spec, weights(learner), step, 10_000, None))
    return {"steps": step, "score": round(evaluated.metrics["eval/mean_reward"], 2), "steps_to_goal": reached,
            "rho_mean": round(statistics.fmean(rhos), 4)}


def weights(learner: Learner) -> list[Any]:
    """A copy of what a worker receives."""
    return [part.detach().numpy().copy() for part in ray_worker.weight_parts(learner)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--algo", default="a2c", help="(default: a2c)")
    parser.add_argument("--steps", default="100k", help="(default: 100k)")
    parser.add_argument("--lags", nargs="+", type=int, default=[0, 1, 4, 16])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="CSV file; runs that it has are not repeated")
    arguments = parser.parse_args()
    done = set()
    if arguments.out.exists():
        with arguments.out.open() as file:
            done = {tuple(row[name] for name in COLUMNS[:5]) for row in csv.DictReader(file)}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            writer.writeheader()
        for seed in range(arguments.seeds):
            for lag in arguments.lags:
                for vtrace in (True, False) if lag and arguments.algo == "a2c" else (True,):
                    key = {"algo": arguments.algo, "env": arguments.env, "lag": lag, "vtrace": vtrace, "seed": seed}
                    if tuple(map(str, key.values())) in done:
                        continue
                    config = vantage.configure(
                        arguments.algo, env=arguments.env, runtime="ray", steps=arguments.steps, seed=seed,
                        num_workers=1, threads=1, device="cpu").change(eval_episodes=WINDOW)
                    if not vtrace:
                        config = config.change(vtrace=False)
                    row = key | train(config, lag, GOALS.get(arguments.env, float("inf")))
                    writer.writerow(row)
                    file.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    main()
