"""Keep what finished runs learned in results/: scores of their checkpoints, curve, and how they were made.

    .venv/bin/python benchmarks/keep.py runs/Pong/a3c-1 --name a3c-Pong --command "vantage train a3c --env Pong"

Several runs are seeds of one experiment. `--beside` draws other runs into the same curve.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from learning import evaluate, write

from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--name", required=True, help="folder in results/")
    parser.add_argument("--command", required=True, help="what trained them, as protocol.json will say")
    parser.add_argument("--commit", help="the code they were trained with; default the checkout's")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--beside", nargs="*", type=Path, default=[], metavar="RUN")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs:
        rows += evaluate(run, RunDirectory.open(run).config.run.seed, arguments.episodes)
        tell(run)
    write(Path("results") / arguments.name, [*arguments.runs, *arguments.beside], rows,
          RunDirectory.open(arguments.runs[0]).config, command=arguments.command, episodes=arguments.episodes,
          commit=arguments.commit)


def tell(run: Path) -> None:
    """Print the training return at each tenth of the run, and the resident memory at its start, middle and end."""
    rows: list[dict[str, Any]] = list(read_metrics(run))
    returns = [row for row in rows if row.get("rollout/ep_rew_mean") is not None]
    for row in tenths(returns):
        print(f"  {row['step']:>12,} steps  {row['seconds'] / 60:6.1f} minutes  {row['rollout/ep_rew_mean']:10.2f}")
    memory = [(row["seconds"], row["time/memory_mib"]) for row in rows if "time/memory_mib" in row]
    settled = [entry for entry in memory if entry[0] >= 120] or memory
    for seconds, mib in (settled[0], settled[len(settled) // 2], settled[-1]) if settled else ():
        print(f"  {seconds / 60:6.1f} minutes  {mib:,.0f} MiB")


def tenths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first row at or after each tenth of the last one's step."""
    return [next(row for row in rows if row["step"] * 10 >= rows[-1]["step"] * tenth) for tenth in range(1, 11)]


if __name__ == "__main__":
    main()
