"""Folders of results/: what their runs scored, with which config, and the command that trains them today.

Nothing is written here; results.py writes the pages.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vantage.cli.arguments import read
from vantage.cli.entry import COMMANDS
from vantage.config.config import Config
from vantage.config.flat import flatten, of_run
from vantage.config.presets.systems import SYSTEMS
from vantage.envs.ids import resolve_env
from vantage.keys.typed_values import in_text

RESULTS = Path(__file__).resolve().parents[1] / "results"

BOOKKEEPING = frozenset((
    "algo", "seed", "steps", "schedule_steps", "max_minutes", "stop_at_return", "stop_at_eval", "return_window",
    "eval_every", "eval_every_seconds", "eval_episodes", "eval_deterministic", "max_eval_share", "save_every",
    "keep_checkpoints", "log_every_seconds", "log_weights", "tensorboard", "track", "device", "threads", "num_workers",
    "vector", "env_timeout"))
"""Keys that do not change what is learned in how many steps; the length of schedules is compared apart."""

NEWER = {"obs_as": (), "obs_sets": (), "one_hot": (), "torsos": (),
         "scale_actions": ("Pendulum-v1",), "std_lr_scale": (),
         "bounds_coef": ("Pendulum-v1", "BipedalWalker-v3")}
"""Keys that older configs lack, and the environments of results/ where their default now has
another effect than then: for scale_actions a Box with bounds other than [-1, 1], for bounds_coef
any Box. The folders with discrete or nested observations have these keys."""

_IMAGE_NORM = {False: "none", True: "global"}
"""Its values when the key was a switch."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """All seeds of one setting: a folder with scores.csv and protocol.json."""

    folder: str
    protocol: Mapping[str, Any]
    config: Config
    """Of its first run, read as today's code reads it."""
    scores: Mapping[int, float]
    """By seed, the mean of 100 games of the latest policy."""
    steps: int
    """Agent steps of the longest of its runs."""

    @property
    def command(self) -> str:
        """It trains these runs with today's code; SEED stands for each seed."""
        return str(self.protocol["command"])

    @property
    def commit(self) -> str:
        """Of the code that trained them; '' where it was not recorded."""
        named = re.match("[0-9a-f]{7,40}", str(self.protocol.get("commit")))
        return named[0][:7] if named else ""

    @property
    def trained(self) -> str:
        """The algorithm or the preset that the command names."""
        return shlex.split(self.command)[2]

    @property
    def env(self) -> str:
        return self.config.env.id

    @property
    def suite(self) -> str:
        """The table that has its row."""
        game = resolve_env(self.env, self.config.env.atari_protocol)
        if self.config.runtime_name == "ray":
            return "ray"
        if self.trained in SYSTEMS or game.family == "other":
            return "presets"
        if game.family == "toy_text":
            return "toy"
        if game.atari:
            return "atari" if self.folder == f"{self.config.algo}-{self.env}" else self.env.lower()
        return "control"


def read_experiment(folder: Path) -> Experiment | None:
    """The experiment in a folder; None for a folder of another kind, such as a study."""
    if not (folder / "scores.csv").exists() or not (folder / "protocol.json").exists():
        return None
    protocol = json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    with (folder / "scores.csv").open(newline="", encoding="utf-8") as file:
        latest = [row for row in csv.DictReader(file) if row["checkpoint"] == "latest"]
    scores = {int(row["seed"]): float(row["return_mean"]) for row in latest}  # the last of each seed
    steps = max(int(row["step"]) for row in latest)
    return Experiment(folder.name, protocol, config_of(protocol["config"]), scores, steps)


def experiments() -> Iterator[Experiment]:
    """Every experiment of results/, by the names of their folders."""
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        if (experiment := read_experiment(folder)) is not None:
            yield experiment


def config_of(saved: Mapping[str, Any]) -> Config:
    """The config of a protocol.json: older ones have keys of all algorithms, and a switch for `image_norm`."""
    values = of_run(flatten(saved, source="protocol.json"))
    if isinstance(values.get("image_norm"), bool):
        values["image_norm"] = _IMAGE_NORM[values["image_norm"]]
    config = Config.of(str(values.pop("algo")))
    runtime = values.pop("runtime", config.runtime_name)
    if runtime != config.runtime_name:
        config = config.override({"runtime": runtime})
    return config.override({name: value for name, value in values.items() if name in config.flat_keys()})


def config_of_command(command: str) -> Config:
    """The config that `vantage train ... --dry-run` prints, changed as by `; vantage resume RUN --steps N`."""
    first, *resumes = command.split("; ")
    words = shlex.split(first.replace("SEED", "0"))
    if "--seeds" in words:
        place = words.index("--seeds")
        del words[place:place + 2]
    call = read(COMMANDS["train"], words[2:], "vantage train")
    config: Config = call.args[0].config()  # type: ignore[attr-defined]
    for resume in resumes:
        words = shlex.split(resume)
        steps = words[words.index("--steps") + 1]
        config = config.override({"steps": steps, "schedule_steps": 0 if "--extend-schedule" in words else
                                  config.run.schedule_steps or config.run.steps})
    return config


def differences(experiment: Experiment) -> dict[str, tuple[str, str]]:
    """Keys by which the command's config differs from that of the runs: their value, and the command's."""
    ran, today = experiment.config, config_of_command(experiment.command)
    saved = flatten(experiment.protocol["config"], source=experiment.folder)
    ignored = {name for name, envs in NEWER.items() if name not in saved and experiment.env not in envs}
    pairs = {name: (in_text(value), in_text(today.flat().get(name))) for name, value in ran.flat().items()
             if name not in BOOKKEEPING | ignored}
    pairs["schedule_steps"] = (f"{ran.run.schedule_steps or ran.run.steps}",
                               f"{today.run.schedule_steps or today.run.steps}")
    pairs["algo"] = ran.algo, today.algo
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def todays_command(experiment: Experiment) -> str:
    """The command, with flags where today's defaults are not the config of the runs."""
    first, *resumes = experiment.command.split("; ")
    words = shlex.split(first)
    for name, (ran, _) in differences(experiment).items():
        words = with_flag(words, f"--{name.replace('_', '-')}", ran)
    return "; ".join([shlex.join(words).replace("'SEED'", "SEED"), *resumes])


def with_flag(words: Sequence[str], flag: str, value: str) -> list[str]:
    """The words of a command with another value of a flag."""
    others = list(words)
    if flag in others:
        place = others.index(flag)
        del others[place:place + 2]
    return [*others, flag, value]
