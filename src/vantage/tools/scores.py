"""Final scores of the seeds of one experiment, as a table, with their curve and protocol."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from vantage.agents.agent import load
from vantage.agents.evaluate import evaluate_agent
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file, write_atomically
from vantage.tools.curves import bootstrap_interval, middle
from vantage.tools.plot import plot

EPISODES = 100
"""Games of each final evaluation."""
_COLUMNS = ("seed", "checkpoint", "step", "return_mean", "return_std", "return_min", "return_max",
            "length_mean", "minutes", "threads")

Row = dict[str, Any]


def score(run: Path) -> list[Row]:
    """A row for the latest checkpoint of the run, and one for the best if there is one."""
    directory = RunDirectory.open(run, trust=True)
    config = directory.config
    minutes = round(directory.read_summary()["seconds"] / 60, 2)
    checkpoints = ["latest", "best"] if (run / "best").exists() else ["latest"]
    # Load all before playing: the run may train on.
    agents = [load(run, checkpoint=checkpoint, trust=True) for checkpoint in checkpoints]
    rows = []
    for checkpoint, agent in zip(checkpoints, agents, strict=True):
        result, = evaluate_agent(agent, [agent.deterministic], episodes=EPISODES)
        row = {
            **asdict(result),
            "seed": config.run.seed,
            "checkpoint": checkpoint,
            "minutes": minutes,
            "threads": config.runtime.threads or os.cpu_count(),
        }
        rows.append({name: row[name] for name in _COLUMNS})
    return rows


def write_results(folder: Path, runs: Sequence[Path], rows: Sequence[Row], *, command: str) -> str:
    """Write the scores of `runs`; returns the table and the names of the files.

    These are scores.csv, with the `rows`, curve.png, curve.csv, protocol.json and table.md.
    """
    with whole_file(folder / "scores.csv") as path, path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    first = RunDirectory.open(runs[0], trust=True)
    config = first.config
    meta = first.read_meta()
    protocol = {
        "command": command,
        "commit": meta.get("git_commit"),
        "episodes": EPISODES,
        "machine": {**_machine(), **meta.get("versions", {})},
        "config": json.loads(config.to_json()),
    }
    write_atomically(folder / "protocol.json", json.dumps(protocol, indent=2) + "\n")
    steps = max(row["step"] for row in rows)
    table = markdown_table(config.algo, config.env.id, steps, rows, command)
    write_atomically(folder / "table.md", table + "\n")
    files = "scores.csv; protocol.json; table.md"
    try:
        plot(runs, folder / "curve.png", csv=folder / "curve.csv", trust=True)
    except ConfigError as error:  # such as where no training game of a seed has ended
        return f"{table}\nno curve: {error}\nin {folder}: {files}"
    return (f"{table}\nin {folder}: curve.png and curve.csv, the mean with its 95% bootstrap "
            f"interval; {files}")


def _machine() -> dict[str, Any]:
    ghz = None
    with suppress(Exception):  # a container may hide it
        ghz = round(psutil.cpu_freq().current / 1000, 1)
    memory = round(psutil.virtual_memory().total / 2**30)
    return {"cores": os.cpu_count(), "ghz": ghz, "memory_gib": memory}


def markdown_table(algo: str, env: str, steps: int, rows: Sequence[Row], command: str) -> str:
    """The scores as a Markdown table of one row, like those of results/README.md.

    The IQM is the mean of the scores without the lowest and highest floor(seeds/4), Agarwal et al.
    2021, arXiv:2108.13264; its interval is a 95% percentile bootstrap over seeds.
    """
    latest = _returns(rows, "latest")
    values = np.array(latest)[:, None]
    iqm = middle(values, "iqm")
    low, high = bootstrap_interval(values, "iqm")
    minutes = [row["minutes"] for row in rows]
    cells = {
        "environment": env,
        "algorithm": algo,
        "steps": f"{steps:,}",
        "seeds": f"{len(latest)}",
        "latest: IQM (95% bootstrap interval)": f"{iqm[0]:.1f} ({low[0]:.1f} to {high[0]:.1f})",
        "latest: median (min to max)": _spread(latest),
        "best: median (min to max)": _spread(_returns(rows, "best")),
        "minutes a run": f"{min(minutes):.1f} to {max(minutes):.1f}",
        "command": f"`{command}`",
    }
    lines = (cells, ["---"] * len(cells), cells.values())
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _returns(rows: Sequence[Row], checkpoint: str) -> list[float]:
    return [row["return_mean"] for row in rows if row["checkpoint"] == checkpoint]


def _spread(scores: Sequence[float]) -> str:
    return f"{median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})" if scores else ""
