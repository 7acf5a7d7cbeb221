"""Writes results/atari.md: the Atari scores in results/ beside published ones. It trains and evaluates nothing.

    .venv/bin/python benchmarks/atari_page.py

A row is a folder results/ALGORITHM-GAME/, as run_queue.py writes it.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).resolve().parents[1] / "results"
STEPS = 10_000_000
"""Agent steps of the published scores."""


@dataclass(frozen=True, slots=True)
class Game:
    """Scores of a random player and of a human (Wang et al. 2016, arXiv:1511.06581), and those that are published."""

    name: str
    random: float
    human: float
    published: dict[str, tuple[float, ...]]
    """By algorithm: Schulman et al. 2017, then RL Baselines3 Zoo where it has one."""

    def human_normalised(self, score: float) -> float:
        """0 for the random player, 1 for the human."""
        return (score - self.random) / (self.human - self.random)


GAMES = (Game("Pong", -20.7, 14.6, {"a2c": (19.7, 17.3), "ppo": (20.7, 21.0), "acer": (20.7,)}),
         Game("Breakout", 1.7, 30.5, {"a2c": (303.0, 279.8), "ppo": (274.8, 398.0), "acer": (456.4,)}),
         Game("SpaceInvaders", 148.0, 1668.7, {"a2c": (744.5, 627.2), "ppo": (942.5, 960.3), "acer": (1213.9,)}),
         Game("Qbert", 163.9, 13455.0, {"a2c": (10065.7, 3882.3), "ppo": (14293.3, 15627.1), "acer": (15316.6,)}),
         Game("BeamRider", 363.9, 16926.5, {"a2c": (3031.7, 2890.3), "ppo": (1590.0, 3397.0), "acer": (3863.3,)}),
         Game("Seaquest", 68.4, 42054.7, {"a2c": (1714.3, 1721.5), "ppo": (1204.5, 1783.6), "acer": (1739.5,)}),
         Game("MsPacman", 307.3, 6951.6, {"a2c": (1626.9, 1671.7), "ppo": (2096.5, 1754.4), "acer": (2718.5,)}))
ALGORITHMS = ("a2c", "ppo", "a3c", "acer")

HEAD = """# Atari

`python benchmarks/atari_page.py` writes this page from the folders beside it. A score is the raw mean of 100 games of
the latest policy, with sampled actions and the protocol `classic` (no sticky actions, up to 30 no-ops, whole games).
The published values are those after 10M agent steps: first the mean of the last 100 training games of three runs
(Schulman et al. 2017, arXiv:1707.06347, table 6), then one run of RL Baselines3 Zoo (its benchmark.md, commit 22e3ff2),
evaluated over 600,000 frames. **Below** marks a median under the first of them, "early" fewer than 10M steps, which
are not comparable. Human-normalised: 0 is a random player, 1 a human (Wang et al. 2016, arXiv:1511.06581).
"""


@dataclass(frozen=True, slots=True)
class Row:
    """All seeds of one algorithm on one game."""

    algo: str
    game: Game
    steps: int
    scores: tuple[float, ...]
    """By seed, the latest policy of each."""
    command: str

    @property
    def folder(self) -> str:
        """Its folder in results/."""
        return f"{self.algo}-{self.game.name}"

    def cells(self) -> list[str]:
        """Its line of the table."""
        published, score = self.game.published.get(self.algo, ()), median(self.scores)
        mark = "early" if self.steps < STEPS else "**below**" if published and score < published[0] else ""
        return [self.game.name, self.algo, f"{self.steps / 1e6:.1f}M", f"{score:,.1f}",
                ", ".join(f"{each:,.1f}" for each in self.scores), ", ".join(f"{each:,.1f}" for each in published),
                mark, f"{self.game.human_normalised(score):.2f}", f"`{re.split('[;,] ', self.command)[0]}`"]


def read_row(algo: str, game: Game) -> Row | None:
    """The row of a folder; None without one that has scores."""
    folder = RESULTS / f"{algo}-{game.name}"
    if not (folder / "scores.csv").exists():
        return None
    with (folder / "scores.csv").open(newline="") as file:
        latest = {row["seed"]: row for row in csv.DictReader(file) if row["checkpoint"] == "latest"}  # the last of each
    protocol = json.loads((folder / "protocol.json").read_text())
    return Row(algo, game, min(int(row["step"]) for row in latest.values()),
               tuple(float(row["return_mean"]) for row in latest.values()), protocol["command"])


def page() -> str:
    """The whole page."""
    rows = [row for game in GAMES for algo in ALGORITHMS if (row := read_row(algo, game)) is not None]
    titles = ["game", "algorithm", "steps", "median", "seeds", "published", "", "human-normalised", "command"]
    table = [titles, ["---"] * len(titles), *(row.cells() for row in rows)]
    lines = [HEAD, *(f"| {' | '.join(cells)} |" for cells in table), ""]
    for algo in ALGORITHMS:
        if whole := [row.game.human_normalised(median(row.scores)) for row in rows
                     if row.algo == algo and row.steps >= STEPS]:
            games = f"{len(whole)} game{'s' * (len(whole) > 1)}"
            lines.append(f"Human-normalised median of {algo}, {games} at 10M steps: {median(whole):.2f}.\n")
    lines.append("Curves, by agent steps and by minutes:\n")
    pictures = [f"{row.folder}{suffix}/curve.png" for row in rows for suffix in ("", "-minutes")]
    lines += [f"![{picture}]({picture})" for picture in pictures if (RESULTS / picture).exists()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "atari.md").write_text(page())
    print(RESULTS / "atari.md")
