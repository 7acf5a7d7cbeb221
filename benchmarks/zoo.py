"""Adds policies to the zoo that comes with Vantage, and writes the table of docs/zoo.md.

    .venv/bin/python benchmarks/zoo.py add runs/CartPole-v1/ppo-1 cartpole
    .venv/bin/python benchmarks/zoo.py page

`add` writes the policy of a run to src/vantage/zoo/NAME.safetensors, plays it as `vantage evaluate zoo:NAME` does, and
writes what it scores to the card beside it and the page. A game is recorded for the page, unless with --no-video.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image

import vantage
from vantage.agents.evaluate import evaluate_agent
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory
from vantage.runs.files import write_atomically
from vantage.runs.zoo import FOLDER, PREFIX, ScoreCard, names, score_card
from vantage.tools.curves import bootstrap_interval

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "zoo.md"
GAMES = 100
MOST_MB = 40
WIDTH = 240
FRAME_MS = 80
MOST_FRAMES = 150
COLOURS = 48
"""Pixels, milliseconds a frame, frames and colours of a game on the page: at most 250 kB each."""
MARKS = ("<!-- zoo: written by benchmarks/zoo.py -->\n", "<!-- /zoo -->\n")


def add(run: Path, name: str, folder: Path = FOLDER, *, checkpoint: str = "auto", episodes: int = GAMES) -> ScoreCard:
    """Write NAME.safetensors and NAME.json for the policy of `run`."""
    if not name.replace("-", "").isalnum():
        raise ConfigError(f"{name!r} is no name for the zoo; use letters, digits and hyphens, such as pong")
    agent = vantage.load(run, checkpoint=checkpoint)
    directory = RunDirectory.open(run)
    meta = directory.read_meta()
    path = agent.save(folder / f"{name}.safetensors")
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6
    if size > MOST_MB:
        path.unlink()
        raise ConfigError(f"{name} would make the zoo {size:.1f} MB; at most {MOST_MB} MB are shipped with Vantage")
    played = vantage.load(path)  # the file, not the run: their precision may differ
    result, = evaluate_agent(played, [played.deterministic], episodes=episodes)
    low, high = bootstrap_interval(np.array(result.returns)[:, None], "mean")
    card = ScoreCard(environment=result.env, algorithm=agent.config.algo, steps=agent.step, seed=agent.config.run.seed,
                     command=command_of(meta["argv"]), commit=meta["git_commit"] or "", episodes=result.episodes,
                     return_mean=result.return_mean, return_low=float(low[0]), return_high=float(high[0]),
                     deterministic=result.deterministic, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    write_atomically(folder / f"{name}.json", json.dumps(asdict(card), indent=2) + "\n")
    return card


def command_of(argv: Sequence[str]) -> str:
    """The command of a run, without where it was written."""
    words = iter(argv)
    chosen = []
    for word in words:
        if word in ("--run", "--root"):
            next(words, None)
        elif not word.startswith(("--run=", "--root=")):
            chosen.append(word)
    return shlex.join(["vantage", *chosen[1:]])


def shrink(video: Path) -> None:
    """Make a recorded GIF small enough for a page: fewer pixels, frames and colours.

    It keeps its speed.
    """
    with Image.open(video) as film:
        duration = int(film.info["duration"])
        stride = max(1, round(FRAME_MS / duration))
        size = (WIDTH, WIDTH * film.height // film.width)
        pictures: list[Image.Image] = []
        for number in range(0, min(film.n_frames, stride * MOST_FRAMES), stride):
            film.seek(number)
            pictures.append(film.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    # One palette for all frames, from a few of them: Pong's first has other colours than its game.
    few = pictures[::max(1, len(pictures) // 8)]
    strip = Image.new("RGB", (size[0], size[1] * len(few)))
    for place, picture in enumerate(few):
        strip.paste(picture, (0, size[1] * place))
    palette = strip.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    frames[0].save(video, save_all=True, append_images=frames[1:], duration=duration * stride,
                   loop=0)


def table() -> str:
    """The rows of docs/zoo.md: a policy with its game, how it was trained, and its score."""
    lines = ["| | policy | environment | algorithm | steps | score | actions | command |", "|---" * 8 + "|"]
    for name in names():
        card = score_card(name)
        video = f"images/zoo/{name}.gif"
        picture = ""
        if (PAGE.parent / video).exists():
            picture = f'<img src="{video}" alt="{name} plays" width="160">'
        cells = (picture, f"`{PREFIX}{name}`", card.environment, card.algorithm, f"{card.steps:,}", card.score(),
                 card.actions, f"`{card.command}`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The text of docs/zoo.md with today's table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    return before + MARKS[0] + table() + MARKS[1] + rest.partition(MARKS[1])[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    adding = commands.add_parser("add", help="add or replace a policy")
    adding.add_argument("run", type=Path)
    adding.add_argument("name")
    adding.add_argument("--checkpoint", default="auto")
    adding.add_argument("--no-video", action="store_true")
    commands.add_parser("page", help="write the table of docs/zoo.md")
    arguments = parser.parse_args()
    try:
        if arguments.command == "add":
            card = add(arguments.run, arguments.name, checkpoint=arguments.checkpoint)
            print(f"{PREFIX}{arguments.name}: {card.score()} over {card.episodes} games")
            if not arguments.no_video:
                video = PAGE.parent / "images" / "zoo" / f"{arguments.name}.gif"
                video.parent.mkdir(parents=True, exist_ok=True)
                print(vantage.record(f"{PREFIX}{arguments.name}", video).sentence())
                shrink(video)
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    except VantageError as error:
        print(f"zoo.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
