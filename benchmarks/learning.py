"""What the defaults learn: one environment over several seeds, evaluated, with curve, scores and protocol in results/.

    .venv/bin/python benchmarks/learning.py CartPole-v1 --seeds 5 --steps 300k
    .venv/bin/python benchmarks/learning.py Pong --seeds 1 --steps 8M

Runs go to runs/results/<env>-<seed> and are resumed if they are there, so that a long one may be stopped at any time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import vantage
from vantage.keys import convert
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics
from vantage.tools.plot import plot

COLUMNS = ("seed", "checkpoint", "step", "return_mean", "return_std", "return_min", "return_max", "length_mean",
           "minutes", "threads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--name", help="folder in results/; default a2c-<env>")
    parser.add_argument("--algo", default="a2c")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", required=True)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="config keys other than the defaults")
    arguments = parser.parse_args()
    overrides = dict(part.split("=", 1) for part in arguments.set)
    steps = convert("steps", arguments.steps, int, source="--steps")
    name = arguments.name or f"{arguments.algo}-{arguments.env.replace('/', '-').replace(':', '-')}"
    runs, rows = [], []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        config = vantage.configure(arguments.algo, env=arguments.env, steps=steps, seed=seed, **overrides)
        run = Path("runs/results") / f"{name}-{seed}"
        train(config, run)
        rows += evaluate(run, seed, arguments.episodes)
        runs.append(run)
    command = (f"python benchmarks/learning.py {arguments.env} --algo {arguments.algo} --seeds {arguments.seeds} "
               f"--first-seed {arguments.first_seed} --steps {arguments.steps} --episodes {arguments.episodes}"
               + (f" --set {' '.join(arguments.set)}" if arguments.set else ""))
    write(Path("results") / name, runs, rows, config.change(seed=arguments.first_seed), command=command,
          episodes=arguments.episodes)


def train(config: vantage.Config, run: Path) -> None:
    """Train, or go on where an earlier call was stopped."""
    if (run / "summary.json").exists() and RunDirectory.open(run).read_summary().get("status") == "done":
        return
    reports = vantage.resume(run) if run.exists() else vantage.train(config, run=run)
    *_, last = reports
    print(f"{run}: {last.step:,} steps, {last.seconds / 60:.1f} minutes, "
          f"training return {last.metrics.get('rollout/ep_rew_mean', float('nan')):.1f}", flush=True)


def evaluate(run: Path, seed: int, episodes: int) -> list[dict[str, Any]]:
    """Scores of the latest and of the best checkpoint."""
    rows = []
    minutes = RunDirectory.open(run).read_summary()["seconds"] / 60
    for checkpoint in ("latest", "best"):
        if checkpoint == "best" and not (run / "best").exists():
            continue
        result = vantage.evaluate(run, episodes=episodes, checkpoint=checkpoint)
        print(f"seed {seed}, {checkpoint}: {result.sentence()}", flush=True)
        rows.append({**{key: result.as_dict().get(key) for key in COLUMNS}, "seed": seed, "checkpoint": checkpoint,
                     "minutes": round(minutes, 2),
                     "threads": RunDirectory.open(run).config.runtime.threads or os.cpu_count()})
    return rows


def first_step(run: Path, metric: str, score: float) -> int | None:
    """Agent steps at which `metric` first reached `score`."""
    steps = (int(record["step"] or 0) for record in read_metrics(run)
             if (record.get(metric) or float("-inf")) >= score)
    return next(steps, None)


def write(folder: Path, runs: list[Path], rows: list[dict[str, Any]], config: vantage.Config, *, command: str,
          episodes: int, commit: str | None = None) -> None:
    """scores.csv, curve.png, curve.csv and protocol.json in results/<name>."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    plot(runs, folder / "curve.png", csv=folder / "curve.csv")
    checkout = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    protocol = {"command": command, "commit": commit or checkout.stdout.strip(), "episodes": episodes,
                "machine": machine(), "config": json.loads(config.to_json())}
    (folder / "protocol.json").write_text(json.dumps(protocol, indent=2) + "\n")
    for checkpoint in ("latest", "best"):
        scores = [row["return_mean"] for row in rows if row["checkpoint"] == checkpoint]
        if scores:
            print(f"{checkpoint}: median {median(scores):.2f}, min {min(scores):.2f}, max {max(scores):.2f}")


def machine() -> dict[str, Any]:
    """Cores, clock, memory and versions; no names."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    clock = re.search(r"cpu MHz\s*:\s*([\d.]+)", info)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": os.cpu_count(), "ghz": round(float(clock[1]) / 1000, 1) if clock else None,
            "memory_gib": round(memory), "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "gymnasium", "ale-py", "numpy")}}


if __name__ == "__main__":
    main()
