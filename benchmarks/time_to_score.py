"""Seconds until PPO plays to a score: Vantage, Stable-Baselines3 and SBX, each with its own recommended settings.

    python3 -m venv .venv-bench
    .venv-bench/bin/pip install -e '.[bench,box2d,mujoco]' sbx-rl
    .venv-bench/bin/python benchmarks/time_to_score.py CartPole-v1 Acrobot-v1 --seeds 0 1 2 3 4

Vantage trains with its defaults, Stable-Baselines3 with those of its model zoo (peer_settings.py), SBX with the same.
A contestant is a process of its own. Between updates, at most every `--every` seconds, it plays 20 games of seeds that
it has not played before, by the most probable actions (Pong: sampled ones), and ends once their mean reaches the score.
The clock runs from the start of the process, imports and compilation included, and stands still during these games.
Contestants run one after the other, in another order for each seed; rows that `--out` holds already are not run again.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import time

from contestants import TITLES, installed, thread_limits
from peer_settings import PEERS, peer_model

SCORES = {"CartPole-v1": 475, "LunarLander-v3": 200, "Acrobot-v1": -100, "Pendulum-v1": -200,
          "Hopper-v5": 2_000, "HalfCheetah-v5": 2_000, "Pong": 18}
SAMPLED = {"Pong"}
FIELDS = ("env", "library", "seed", "seconds", "steps", "score")
EPISODES = 20


class Clock:
    """Decides when to play, and when the score is reached."""

    def __init__(self, env: str, started: float, every: float, limit: float) -> None:
        self.threshold = SCORES[env]
        self.started = started
        self.every = every
        self.limit = limit
        self.next_games = every
        self.games = 0
        self.result: tuple[float, int, float] = (inf, 0, -inf)

    def goes_on(self, step: int, play: Callable[[int], float]) -> bool:
        """Whether to train on after `step`. `play` returns the mean of games of a seed."""
        seconds = time() - self.started
        if step == 0 or seconds < self.next_games:
            return True
        self.games += 1
        score = play(1_000_000 + self.games)
        self.started += time() - self.started - seconds  # the clock stood still
        self.next_games = seconds + self.every
        if score >= self.threshold:
            self.result = (seconds, step, score)
            return False
        self.result = (inf, step, max(score, self.result[2]))
        return seconds < self.limit


def run_vantage(env: str, seed: int, clock: Clock) -> None:
    import vantage

    deterministic = env not in SAMPLED
    algo = "pong-fast" if env == "Pong" else "ppo"
    with tempfile.TemporaryDirectory() as folder, \
            vantage.Trainer(algo, env=env, seed=seed, eval_every=0, tensorboard=False,
                            run=Path(folder) / "run") as trainer:
        for report in trainer:
            if not clock.goes_on(report.step, lambda games: trainer.evaluate(
                    EPISODES, deterministic=deterministic, seed=games).return_mean):
                return


def run_peer(library: str, env: str, seed: int, clock: Clock) -> None:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy

    model, total_steps, make_evaluation = peer_model(library, env, seed)

    class Games(BaseCallback):
        ended = False

        def _on_rollout_start(self) -> None:
            self.ended = not clock.goes_on(model.num_timesteps, self._play)

        def _play(self, games: int) -> float:
            envs = make_evaluation(games)
            mean, _ = evaluate_policy(model, envs, EPISODES, deterministic=env not in SAMPLED, warn=False)
            envs.close()
            return float(mean)

        def _on_step(self) -> bool:
            return not self.ended

    model.learn(total_steps, callback=Games())


def run_one(args: argparse.Namespace) -> None:
    """Train one contestant and print its result."""
    env = args.envs[0]
    clock = Clock(env, args.started, args.every, args.limit * 60)
    if args.one == "vantage":
        run_vantage(env, args.seeds[0], clock)
    else:
        run_peer(args.one, env, args.seeds[0], clock)
    print("result", *clock.result)


def measure(library: str, env: str, seed: int, args: argparse.Namespace) -> dict[str, object]:
    """The row of one contestant, from a process of its own on the first `--cores` cores."""
    cores = sorted(os.sched_getaffinity(0))[:args.cores]
    command = [sys.executable, __file__, env, "--one", library, "--seeds", str(seed), "--every", str(args.every),
               "--limit", str(args.limit), "--started", str(time())]
    ended = subprocess.run(command, env=os.environ | thread_limits(len(cores)), text=True, check=True,
                           stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    seconds, steps, score = ended.stdout.split("result ")[-1].split()
    return {"env": env, "library": library, "seed": seed, "seconds": round(float(seconds), 1), "steps": int(steps),
            "score": round(float(score), 1)}


def print_medians(rows: list[dict[str, object]], envs: list[str]) -> None:
    """The median seconds of each environment and library, and how many seeds reached the score."""
    for env in envs:
        parts = []
        for library, title in TITLES.items():
            seconds = [float(str(row["seconds"])) for row in rows if row["env"] == env and row["library"] == library]
            if seconds:
                reached = sum(each < inf for each in seconds)
                parts.append(f"{title} {statistics.median(seconds):.0f} s ({reached} of {len(seconds)})")
        print(f"{env} to {SCORES[env]}: {', '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("envs", nargs="*", default=list(SCORES), choices=list(SCORES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--libraries", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--every", type=float, default=1.0, help="seconds of training between games")
    parser.add_argument("--limit", type=float, default=60.0, help="minutes of training for each")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("time_to_score.csv"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(args)
        return
    rows: list[dict[str, object]] = []
    if args.out.exists():
        rows = list(csv.DictReader(args.out.open()))
    done = {(row["env"], row["library"], str(row["seed"])) for row in rows}
    libraries = installed(args.libraries)
    for env in args.envs:
        for number, seed in enumerate(args.seeds):
            for place in range(len(libraries)):
                library = libraries[(number + place) % len(libraries)]
                if (env, library, str(seed)) in done or (library == "sbx" and env not in PEERS["sbx"]):
                    continue
                rows.append(measure(library, env, seed, args))
                print(*rows[-1].values(), flush=True)
                with args.out.open("w", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS)
                    writer.writeheader()
                    writer.writerows(rows)
    print_medians(rows, args.envs)


if __name__ == "__main__":
    main()
