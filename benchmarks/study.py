"""What one option does to learning: variants of one setting over seeds, with scores, curve and table in results/.

    .venv/bin/python benchmarks/study.py a3c       step sizes, statistics and lock of asynchronous workers
    .venv/bin/python benchmarks/study.py acer      replay ratio, trust region, bias correction
    .venv/bin/python benchmarks/study.py bptt      gradients through whole rollouts or single steps, with memory

Runs go to runs/results/study-<name>-<variant>-<seed>; those that are done are not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from learning import COLUMNS, evaluate, first_step, machine, train

import vantage
from vantage.tools.plot import plot


@dataclass(frozen=True, slots=True)
class Study:
    """One setting, and what is changed about it."""

    algo: str
    env: str
    steps: int
    variants: dict[str, dict[str, Any]]
    solved: float
    """Training return whose first step is reported."""
    common: dict[str, Any] = field(default_factory=dict)
    """What all variants have other than the defaults."""


STUDIES = {
    "a3c": Study("a3c", "CartPole-v1", 150_000, {
        "default": {},
        "rollouts of 8": {"rollout_length": "8"},
        "rollouts of 32": {"rollout_length": "32"},
        "rollouts of 8 and 32": {"rollout_length": "8,32"},
        "private statistics": {"shared_statistics": False},
        "lock": {"lock": True},
    }, 450),
    "acer": Study("acer", "CartPole-v1", 50_000, {
        "default": {},
        "replay ratio 0": {"replay_ratio": 0},
        "replay ratio 1": {"replay_ratio": 1},
        "replay ratio 8": {"replay_ratio": 8},
        "no trust region": {"trust_region": "none"},
        "no bias correction": {"bias_correction": False},
    }, 300),
    "bptt": Study("a2c", "recall:Recall", 100_000, {
        "LSTM": {"memory": "lstm"},
        "LSTM, single steps": {"memory": "lstm", "bptt": False},
        "GRU": {"memory": "gru"},
        "GRU, single steps": {"memory": "gru", "bptt": False},
    }, 0.9, {"memory_size": 64}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    study, runs, rows = STUDIES[arguments.study], [], []
    for variant, overrides in study.variants.items():
        for seed in range(arguments.seeds):
            config = vantage.configure(study.algo, env=study.env, steps=study.steps, seed=seed, threads=1,
                                       **study.common, **overrides)
            run = Path("runs/results") / f"study-{arguments.study}-{variant.replace(',', '').replace(' ', '-')}-{seed}"
            train(config, run)
            latest = evaluate(run, seed, arguments.episodes)[0]
            rows.append({"variant": variant, **latest,
                         "solved_at": first_step(run, "rollout/ep_rew_mean", study.solved)})
            runs.append(run)
    write(Path("results") / f"study-{arguments.study}", study, arguments, runs, rows)


def write(folder: Path, study: Study, arguments: argparse.Namespace, runs: list[Path],
          rows: list[dict[str, Any]]) -> None:
    """scores.csv, curve.png, curve.csv, protocol.json and table.md."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ("variant", *COLUMNS, "solved_at"))
        writer.writeheader()
        writer.writerows(rows)
    plot(runs, folder / "curve.png", csv=folder / "curve.csv")
    command = f"python benchmarks/study.py {arguments.study} --seeds {arguments.seeds} --episodes {arguments.episodes}"
    (folder / "protocol.json").write_text(json.dumps(
        {"command": command, "algo": study.algo, "env": study.env, "steps": study.steps, "common": study.common,
         "variants": study.variants, "machine": machine()}, indent=2) + "\n")
    text = table(study, rows)
    (folder / "table.md").write_text(text)
    print(text)


def table(study: Study, rows: list[dict[str, Any]]) -> str:
    """A line for each variant."""
    lines = [f"| {study.algo} on {study.env}, {study.steps:,} steps | score of the latest: median (min to max) | "
             f"training return {study.solved:g} at: median | seeds that reach it | minutes a run |",
             "|---|---|---|---|---|"]
    for variant in study.variants:
        own = [row for row in rows if row["variant"] == variant]
        scores = [row["return_mean"] for row in own]
        solved = [row["solved_at"] for row in own if row["solved_at"] is not None]
        half = f"{median(solved):,.0f}" if 2 * len(solved) > len(own) else "not"
        lines.append(f"| {variant} | {median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f}) | {half} | "
                     f"{len(solved)} of {len(own)} | {mean(row['minutes'] for row in own):.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
