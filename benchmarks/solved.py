"""How many agent steps until the frozen policy of an algorithm solves an environment, over seeds.

    .venv/bin/python benchmarks/solved.py CartPole-v1 475 a2c=300k acer=50k

Each algorithm has the steps that its schedules run over. Training is evaluated every `--eval-every` steps with the most
probable actions, and ends where 100 games have the mean that is asked for. Writes table.md, scores.csv and
protocol.json to results/solved-<env>/; runs that are done are not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from statistics import median
from typing import Any

from learning import first_step, machine, train

import vantage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("score", type=float)
    parser.add_argument("algorithms", nargs="+", metavar="ALGO=STEPS")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--eval-every", type=int, default=2500)
    arguments = parser.parse_args()
    rows = []
    for algo, steps in (pair.split("=") for pair in arguments.algorithms):
        for seed in range(arguments.seeds):
            config = vantage.configure(algo, env=arguments.env, steps=steps, seed=seed, threads=1, eval_episodes=100,
                                       eval_every=arguments.eval_every, stop_at_eval=arguments.score)
            run = Path("runs/results") / f"solved-{arguments.env.replace('/', '-')}-{algo}-{seed}"
            train(config, run)
            rows.append({"algo": algo, "seed": seed, "steps": steps,
                         "solved_at": first_step(run, "eval/mean_reward", arguments.score)})
    write(Path("results") / f"solved-{arguments.env.replace('/', '-')}", arguments, rows)


def write(folder: Path, arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """scores.csv, protocol.json and table.md, a line for each algorithm."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    command = (f"python benchmarks/solved.py {arguments.env} {arguments.score:g} {' '.join(arguments.algorithms)} "
               f"--seeds {arguments.seeds} --eval-every {arguments.eval_every}")
    (folder / "protocol.json").write_text(json.dumps({"command": command, "machine": machine()}, indent=2) + "\n")
    lines = [f"| {arguments.env} | {arguments.score:g} over 100 games at: median (each) | seeds |", "|---|---|---|"]
    for algo in dict.fromkeys(row["algo"] for row in rows):
        steps = [row["solved_at"] for row in rows if row["algo"] == algo]
        solved = sorted(step for step in steps if step is not None)
        half = f"{median(solved):,.0f}" if 2 * len(solved) > len(steps) else "not"
        each = ", ".join(f"{step:,}" for step in solved)
        lines.append(f"| {algo} | {half} ({each}) | {len(solved)} of {len(steps)} |")
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
