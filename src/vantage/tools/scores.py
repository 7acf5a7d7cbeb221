"""Final scores of the seeds of one experiment, summarised in a table and written with curve and protocol."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from vantage.agents.agent import load
from vantage.agents.evaluate import evaluate_agent
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file, write_atomically
from vantage.tools.plot import bootstrap_interval, middle, plot

EPISODES = 100
"""Games of each final evaluation."""
_COLUMNS = ("seed", "checkpoint", "step", "return_mean", "return_std", "return_min", "return_max",
            "length_mean", "minutes", "threads")

Row = dict[str, Any]


def score(run: Path, *, episodes: int = EPISODES) -> list[Row]:
    """A row for the latest checkpoint of the run, and one for the best if there is one."""
    directory = RunDirectory.open(run, trust=True)
    checkpoints = ["latest", "best"] if (run / "best").exists() else ["latest"]
    agents = [(checkpoint, load(run, checkpoint=checkpoint, trust=True))
              for checkpoint in checkpoints]
    results = [(checkpoint,
                asdict(evaluate_agent(agent, [agent.deterministic], episodes=episodes)[0]))
               for checkpoint, agent in agents]
    common = {"seed": directory.config.run.seed,
              "minutes": round(directory.read_summary()["seconds"] / 60, 2),
              "threads": directory.config.runtime.threads or os.cpu_count()}
    return [{name: (result | common | {"checkpoint": checkpoint})[name] for name in _COLUMNS}
            for checkpoint, result in results]


def write_results(folder: Path, runs: Sequence[Path], rows: Sequence[Row], *, command: str) -> str:
    """Write scores.csv, curve.png, curve.csv, protocol.json and table.md of the `runs`; returns the table.

    `rows` are their scores.
    """
    with whole_file(folder / "scores.csv") as path, path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    plot(runs, folder / "curve.png", csv=folder / "curve.csv", trust=True)
    first = RunDirectory.open(runs[0], trust=True)
    meta, clock = first.read_meta(), None
    with suppress(Exception):  # a container may hide it
        clock = round(psutil.cpu_freq().current / 1000, 1)
    machine = {"cores": os.cpu_count(), "ghz": clock,
               "memory_gib": round(psutil.virtual_memory().total / 2**30),
               **meta.get("versions", {})}
    protocol = {"command": command, "commit": meta.get("git_commit"), "episodes": EPISODES,
                "machine": machine, "config": json.loads(first.config.to_json())}
    write_atomically(folder / "protocol.json", json.dumps(protocol, indent=2) + "\n")
    text = table(first.config.algo, first.config.env.id, max(row["step"] for row in rows), rows,
                 command)
    write_atomically(folder / "table.md", text + "\n")
    return text


def table(algo: str, env: str, steps: int, rows: Sequence[Row], command: str) -> str:
    """The scores as a Markdown table of one row, like those of results/README.md.

    The IQM is the mean of the scores without the lowest and highest floor(seeds/4), Agarwal et al.
    2021, arXiv:2108.13264; its interval is a 95% percentile bootstrap over seeds.
    """
    latest, best = ([row["return_mean"] for row in rows if row["checkpoint"] == checkpoint]
                    for checkpoint in ("latest", "best"))
    values = np.array(latest)[:, None]
    low, high = bootstrap_interval(values, "iqm")
    minutes = [row["minutes"] for row in rows]
    cells: Mapping[str, str] = {
        "environment": env, "algorithm": algo, "steps": f"{steps:,}", "seeds": str(len(latest)),
        "latest: IQM (95% bootstrap interval)": f"{middle(values, 'iqm')[0]:.1f} ({low[0]:.1f} to {high[0]:.1f})",
        "latest: median (min to max)": _spread(latest), "best: median (min to max)": _spread(best),
        "minutes a run": f"{min(minutes):.1f} to {max(minutes):.1f}", "command": f"`{command}`"}
    return "\n".join(f"| {' | '.join(line)} |"
                     for line in (cells, ["---"] * len(cells), cells.values()))


def _spread(scores: Sequence[float]) -> str:
    return f"{median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})" if scores else ""
