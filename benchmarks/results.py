"""Writes the tables and pictures of results/ and README from the folders of results/. It trains and evaluates nothing.

    .venv/bin/python benchmarks/results.py             # tables between marks, and pictures that show other numbers
    .venv/bin/python benchmarks/results.py --commands  # first adapt the commands to today's defaults

A page has the mark <!-- table NAME --> before a table and <!-- /table --> behind it; the rest is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import get_args

import numpy as np
from experiments import RESULTS, Experiment, differences, experiments, todays_command
from PIL import Image

from vantage.runs.files import whole_file, write_atomically
from vantage.tools.curves import Axis, Group, bootstrap_interval, middle
from vantage.tools.plot import digest, draw, save

README = RESULTS.parent / "README.md"
PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
ALGORITHMS = ("a2c", "ppo", "a3c", "acer")
GAMES = ("Pong", "Breakout", "SpaceInvaders", "Qbert", "BeamRider", "Seaquest", "MsPacman", "Asteroids")
CONTROL = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "LunarLander-v3",
           "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3", "Hopper-v5", "HalfCheetah-v5",
           "Walker2d-v5", "Ant-v5")
HUMAN = {"Pong": (-20.7, 14.6), "Breakout": (1.7, 30.5), "SpaceInvaders": (148.0, 1668.7), "Qbert": (163.9, 13455.0),
         "BeamRider": (363.9, 16926.5), "Seaquest": (68.4, 42054.7), "MsPacman": (307.3, 6951.6),
         "Asteroids": (719.1, 47388.7)}
"""Scores of a random player and of a human: Wang et al. 2016, arXiv:1511.06581."""
ATARI_STEPS = 10_000_000
"""Agent steps of published scores."""
PLAIN_FLAGS = " --threads 1 --num-workers 1 --eval-every 0 --tensorboard false"
"""Flags of most commands. A page writes FLAGS for them; results/README.md has them in full."""
FEWEST_SEEDS = 3
"""Below that, a mean over seeds has no interval."""


def number(value: float) -> str:
    """A score: two digits behind the point below 10, none from 1,000."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1_000 else 0
    return f"{value:,.{digits}f}"


def steps(value: int) -> str:
    """10M, 0.8M or 300k."""
    return f"{value / 1e6:.2g}M" if value >= 600_000 else f"{value / 1e3:.0f}k"


def center(scores: Sequence[float]) -> float:
    """The interquartile mean over seeds; the mean of fewer than three."""
    values = np.array(scores)[:, None]
    return float(middle(values, "iqm")[0]) if len(scores) >= FEWEST_SEEDS else fmean(scores)


def score(experiment: Experiment) -> str:
    """The interquartile mean with its interval, or the scores of one or two seeds."""
    scores = list(experiment.scores.values())
    if len(scores) < FEWEST_SEEDS:
        return ", ".join(map(number, scores))
    low, high = bootstrap_interval(np.array(scores)[:, None], "iqm")
    return f"{number(center(scores))} ({number(float(low[0]))} to {number(float(high[0]))})"


def published(experiment: Experiment) -> str:
    """The highest published score of the algorithm there, with the letter of its source.

    Atari's are those after 10M steps: none beside fewer.
    """
    if experiment.suite == "presets" or (experiment.env in GAMES and experiment.steps < ATARI_STEPS):
        return ""
    values = PUBLISHED["scores"].get(experiment.env, {}).get(experiment.config.algo)
    if not values:
        return ""
    value, source = max(values)
    return f"{number(value)} ({source})"


def seeds(experiment: Experiment) -> str:
    """0–4, or a list."""
    every = sorted(experiment.scores)
    if len(every) > 2 and every == list(range(every[0], every[-1] + 1)):
        return f"{every[0]}–{every[-1]}"
    return ", ".join(map(str, every))


def row(experiment: Experiment) -> list[str]:
    """The cells of a table."""
    link = f"[{experiment.commit or 'not recorded'}]({experiment.folder}/protocol.json)"
    return [experiment.env, experiment.trained, steps(experiment.steps), seeds(experiment), score(experiment),
            published(experiment), f"`{experiment.command.replace(PLAIN_FLAGS, ' FLAGS')}`", link]


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    head, *lines = [f"| {' | '.join(cells)} |\n" for cells in (titles, *rows)]
    return "".join([head, "|---" * len(titles), "|\n", *lines])


def order(experiment: Experiment) -> tuple[int, str, int, str]:
    """Environments and algorithms in the order of this file."""
    envs = [*GAMES, *CONTROL]
    place = envs.index(experiment.env) if experiment.env in envs else len(envs)
    algo = experiment.config.algo
    return place, experiment.env, ALGORITHMS.index(algo) if algo in ALGORITHMS else 9, experiment.folder


def suite_table(every: Sequence[Experiment], suite: str) -> str:
    """All experiments of a suite. For a game these are other settings than the ones among all games."""
    own = [each for each in every if each.suite == suite]
    titles = ["environment", "trained by", "steps", "seeds", "score", "published", "command", "commit"]
    return markdown(titles, [row(each) for each in sorted(own, key=order)])


def human_normalised(every: Sequence[Experiment]) -> str:
    """The median over games of each algorithm, of 10M steps."""
    lines = []
    for algo in ALGORITHMS:
        whole = []
        for each in every:
            if each.suite == "atari" and each.config.algo == algo and each.steps >= ATARI_STEPS and each.env in HUMAN:
                low, high = HUMAN[each.env]
                whole.append((center(list(each.scores.values())) - low) / (high - low))
        if whole:
            lines.append(f"- {algo}: {median(whole):.2f} over {len(whole)} games\n")
    return "".join(lines)


def pictures(every: Sequence[Experiment]) -> str:
    """The curves of all games by steps, a line for each game."""
    lines = []
    for game in GAMES:
        folders = [each.folder for each in sorted(every, key=order) if each.suite == "atari" and each.env == game]
        lines.append(" ".join(f"![{folder}]({folder}/curve.png)" for folder in folders))
    return "\n".join(filter(None, lines)) + "\n"


def summary(every: Sequence[Experiment]) -> str:
    """README's table: an environment a row, an algorithm a column."""
    rows = []
    for env in (*GAMES, *CONTROL):
        cells = []
        for algo in ALGORITHMS:
            own = [each for each in every if (each.env, each.config.algo) == (env, algo)
                   and each.folder == f"{algo}-{env}"]
            cells.append(cell(own[0]) if own else "")
        if any(cells):
            rows.append([env, *cells])
    return markdown(["", *(algo.upper() for algo in ALGORITHMS)], rows)


def cell(experiment: Experiment) -> str:
    """The score and the steps in brackets; a star marks fewer than three seeds."""
    scores = list(experiment.scores.values())
    few = "*" if len(scores) < FEWEST_SEEDS else ""
    lowest = "" if few else f", lowest {number(min(scores))}"
    return f"{number(center(scores))}{few} ({steps(experiment.steps)}{lowest})"


def sources(every: Sequence[Experiment]) -> str:
    """The letters of published scores."""
    return "".join(f"- {letter}: {text}\n" for letter, text in PUBLISHED["sources"].items())


TABLES: dict[str, Callable[[Sequence[Experiment]], str]] = {
    "summary": summary, "pictures": pictures, "human-normalised": human_normalised, "sources": sources}
"""Tables that are no suite, by their names in marks."""


def page(text: str, every: Sequence[Experiment]) -> str:
    """The text of a page with today's tables between its marks."""
    def new_table(mark: re.Match[str]) -> str:
        name = mark[1]
        table = TABLES[name](every) if name in TABLES else suite_table(every, name)
        return f"<!-- table {name} -->\n{table}<!-- /table -->"

    return re.sub(r"<!-- table ([\w-]+) -->\n.*?<!-- /table -->", new_table, text, flags=re.DOTALL)


def pages() -> list[Path]:
    """The pages that may have tables."""
    return [README, *sorted(RESULTS.glob("*.md"))]


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


def is_drawn(numbers: Path) -> bool:
    """Whether the picture beside the numbers shows them."""
    picture = numbers.with_suffix(".png")
    if not picture.exists():
        return False
    with Image.open(picture) as image:
        return bool(image.info.get("Source") == digest(numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", action="store_true",
                        help="first add flags to commands where today's defaults are not the config of the runs")
    if parser.parse_args().commands:
        for each in experiments():
            if differences(each):
                path = RESULTS / each.folder / "protocol.json"
                first = {"command": todays_command(each), "ran_as": each.protocol.get("ran_as", each.command)}
                write_atomically(path, json.dumps(first | {name: value for name, value in each.protocol.items()
                                                           if name not in first}, indent=2) + "\n")
                print(f"{each.folder}: {first['command']}")
    for numbers in sorted(RESULTS.glob("*/curve.csv")):
        if not is_drawn(numbers):
            redraw(numbers, numbers.with_suffix(".png"), env=env_of(numbers.parent))
            print(numbers.with_suffix(".png"))
    every = list(experiments())
    for path in pages():
        text = path.read_text(encoding="utf-8")
        written = page(text, every)
        if written != text:
            write_atomically(path, written)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
