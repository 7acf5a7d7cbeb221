"""Draws each results/NAME/curve.png from its curve.csv and the environment that protocol.json names.

    .venv/bin/python benchmarks/redraw.py
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import get_args

import numpy as np

from vantage.runs.files import whole_file
from vantage.tools.curves import Axis, Group
from vantage.tools.plot import draw, save

RESULTS = Path(__file__).resolve().parents[1] / "results"


def env_of(folder: Path) -> str:
    """The environment of the results in a folder."""
    protocol = json.loads((folder / "protocol.json").read_text())
    env = protocol.get("config", protocol)["env"]
    return str(env["id"] if isinstance(env, dict) else env)


def redraw(numbers: Path, output: Path, *, env: str, metric: str = "rollout/ep_rew_mean") -> None:
    """Draw what `vantage.plot` wrote to a CSV file again, without the lines of single runs, which it does not hold."""
    with numbers.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x: Axis = next(name for name in get_args(Axis) if name in rows[0])
    groups = []
    for label in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == label]
        at, value = (np.array([float(row[name]) for row in own]) for name in (x, "value"))
        low, high = (np.array([float(row[name] or "nan") for row in own]) for name in ("low", "high"))
        groups.append(Group(label, env, (), at, value, (low, high) if own[0]["low"] else None))
    with whole_file(output, ".png") as picture:
        save(draw(groups, x, metric), picture, numbers)


if __name__ == "__main__":
    for path in sorted(RESULTS.glob("*/curve.csv")):
        redraw(path, path.with_suffix(".png"), env=env_of(path.parent))
        print(path.with_suffix(".png"))
