"""Training speed on vector observations of PPO and A2C: Vantage, Stable-Baselines3 and SBX in turn. No scores.

    python3 -m venv .venv-bench
    .venv-bench/bin/pip install -e '.[bench]' sbx-rl
    .venv-bench/bin/python benchmarks/vectors.py --algo ppo --env CartPole-v1 --rounds 5

All do the same work: PPO with 8 environments, rollouts of 128, 10 epochs and minibatches of 64; A2C with 8 environments
and rollouts of 16; two networks of 64 and 64 units, one thread. Each contestant is a process that warms up, which
compiles SBX, and then trains for some seconds; a round runs one after the other, and what counts is the ratio within
a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from contestants import TITLES, installed, thread_limits

NAMES = {"ppo": ("vantage", "sb3", "sbx"), "a2c": ("vantage", "sb3")}
NUM_ENVS = 8
ROLLOUT_LENGTH = {"ppo": 128, "a2c": 16}


def vantage_rate(algo: str, env: str, seconds: float, warm_up: float) -> float:
    """Agent steps per second of Vantage, with its metrics and checkpoints as always."""
    import vantage

    same_work: dict[str, Any] = {"hidden": (64, 64), "separate": True, "memory": "none", "norm": "none",
                                 "activation": "tanh", "num_envs": NUM_ENVS, "obs_norm": False,
                                 "reward_norm": False, "rollout_length": ROLLOUT_LENGTH[algo]}
    if algo == "ppo":
        same_work |= {"epochs": 10, "minibatch_size": 64, "past_rollouts": 0, "lr": 3e-4}
    with tempfile.TemporaryDirectory() as folder:
        trainer = vantage.Trainer(algo, env=env, steps=10**9, eval_every=0, threads=1, num_workers=1,
                                  device="cpu", tensorboard=False, run=Path(folder) / "run", **same_work)
        ends = perf_counter() + warm_up
        while perf_counter() < ends:
            trainer.update()
        before = trainer.step
        started = perf_counter()
        while perf_counter() < started + seconds:
            trainer.update()
        rate = (trainer.step - before) / (perf_counter() - started)
        trainer.close()
    return rate


def baselines_rate(name: str, algo: str, env: str, seconds: float, warm_up: float) -> float:
    """Agent steps per second of Stable-Baselines3, or of SBX, which has its interface."""
    import torch
    from deadline import StopAfter
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    if name == "sbx":
        import sbx as library
    else:
        import stable_baselines3 as library

    options: dict[str, Any] = {"n_steps": ROLLOUT_LENGTH[algo], "device": "cpu"}
    if algo == "ppo":
        options |= {"n_epochs": 10, "batch_size": 64}
    model = getattr(library, algo.upper())("MlpPolicy", make_vec_env(env, n_envs=NUM_ENVS, seed=0), **options)
    model.learn(10**9, callback=StopAfter(warm_up))
    before = model.num_timesteps
    started = perf_counter()
    model.learn(10**9, callback=StopAfter(seconds), reset_num_timesteps=False)
    return float(model.num_timesteps - before) / (perf_counter() - started)


def measure(name: str, args: argparse.Namespace) -> float:
    """The rate of one contestant in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--algo", args.algo, "--env", args.env,
               "--seconds", str(args.seconds), "--warm-up", str(args.warm_up)]
    ended = subprocess.run(command, env=os.environ | thread_limits(), text=True, check=True,
                           stdout=subprocess.PIPE)
    return float(ended.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algo", choices=list(NAMES), default="ppo")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each contestant in a round")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds before, not counted")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        rate = vantage_rate if args.one == "vantage" else None
        common = (args.algo, args.env, args.seconds, args.warm_up)
        print(rate(*common) if rate else baselines_rate(args.one, *common))
        return
    names = installed(NAMES[args.algo])
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(args.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            rates[name].append(measure(name, args))
        print(", ".join(f"{TITLES[name]} {rates[name][-1]:,.0f}" for name in names), flush=True)
    for name in names:
        ratios = [ours / theirs for ours, theirs in zip(rates["vantage"], rates[name], strict=True)]
        print(f"{TITLES[name]}: {statistics.median(rates[name]):,.0f} steps/s; Vantage makes "
              f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f} times as many")


if __name__ == "__main__":
    main()
