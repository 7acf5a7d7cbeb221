"""The policy of a run or of an exported file as it was saved: read without an environment, not yet a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from torch import Tensor

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.runs.checkpoint import Checkpoint, load_named
from vantage.runs.directory import RunDirectory
from vantage.runs.weights import SUFFIX, Description, read_weights
from vantage.types import EnvSpec


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """A policy's tensors and what it is."""

    tensors: Mapping[str, Tensor]
    known: Description
    rewards: Tensor | None = None
    """Count, mean and variance of the reward normaliser; None where there was none, and of exported files."""
    skipped: tuple[str, ...] = ()
    """What was wrong with each checkpoint that had to be passed over."""


def read_policy(path: Path, checkpoint: str = "auto", *, key: str = "checkpoint", trust: bool = False) -> SavedPolicy:
    """The policy in `path`: a run, of which `checkpoint` chooses, or what `vantage export --format safetensors` wrote.

    ConfigError if there is none, CheckpointError if it is damaged; they call `checkpoint` by the name `key`.
    ConfigError too if using it would run code from outside Vantage, unless `trust` or this user made the run.
    """
    if path.suffix == SUFFIX and not path.is_dir():
        if checkpoint != "auto":
            raise ConfigError(f"{key}={checkpoint!r}: {path} is a file with a single policy; leave it out")
        return SavedPolicy(*read_weights(path, trust=trust))
    directory = RunDirectory.open(path, trust=trust, runs_code=True)
    found = load_named(directory.path, checkpoint, key=key)
    known = Description(directory.config, EnvSpec.from_json(found.state["spec"]), found.step,
                        str(found.path.relative_to(directory.path)), _scores(directory.config, found))
    return SavedPolicy(found.tensors["model"], known, found.tensors.get("rewards", {}).get("moments"), found.skipped)


def _scores(config: Config, found: Checkpoint) -> dict[str, float]:
    progress = found.state["progress"]
    scores = {}
    if progress["recent"]:
        scores["rollout/ep_rew_mean"] = fmean(score for score, _ in progress["recent"])
    if found.path.name == "best" and config.run.evaluates:
        scores["eval/mean_reward"] = float(progress["best_return"])
    return scores
