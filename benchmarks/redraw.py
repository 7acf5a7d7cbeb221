"""Draws each results/NAME/curve.png from its curve.csv and the environment that protocol.json names.

    .venv/bin/python benchmarks/redraw.py
"""

from __future__ import annotations

import json
from pathlib import Path

from vantage.tools.plot import redraw

RESULTS = Path(__file__).resolve().parents[1] / "results"


def env_of(folder: Path) -> str:
    """The environment of the results in a folder."""
    protocol = json.loads((folder / "protocol.json").read_text())
    env = protocol.get("config", protocol)["env"]
    return str(env["id"] if isinstance(env, dict) else env)


if __name__ == "__main__":
    for csv in sorted(RESULTS.glob("*/curve.csv")):
        redraw(csv, csv.with_suffix(".png"), env=env_of(csv.parent))
        print(csv.with_suffix(".png"))
