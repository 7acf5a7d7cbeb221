"""Reading a trained policy, its tensors and description, from a run or an exported file.

`vantage export --format safetensors` writes such files; their header holds all that is needed to
build the model. ONNX files hold the same description. No model is built here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any
from zipfile import ZipFile, is_zipfile

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vantage.config.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.fields import read_json_object
from vantage.keys.json_text import parse
from vantage.learning.weights import EMA
from vantage.runs.checkpoint import load_named
from vantage.runs.directory import RunDirectory
from vantage.runs.handed_over import check_objects, replacing
from vantage.runs.meta import other_version
from vantage.runs.spec_json import spec_to_json
from vantage.runs.trust import SIGNATURE, check_code, foreign_code, is_own, signature
from vantage.runs.validation import check_finite, read_spec
from vantage.types import EnvSpec

SUFFIX = ".safetensors"
_KIND = "policy 1"


@dataclass(frozen=True, slots=True)
class Description:
    """The config, origin and scores of a policy."""

    config: Config
    spec: EnvSpec
    step: int
    checkpoint: str
    """The checkpoint's directory within the run."""
    scores: Mapping[str, float]
    """Raw returns by their names in metrics.jsonl."""

    def to_header(self) -> dict[str, str]:
        """The header of a file. `env`, `algo` and the version are there for people only."""
        return {
            "vantage": _KIND,
            "vantage_version": version("vantage-rl"),
            "env": self.config.env.id,
            "algo": self.config.algo,
            "step": str(self.step),
            "checkpoint": self.checkpoint,
            "scores": json.dumps(dict(self.scores)),
            "spec": json.dumps(spec_to_json(self.spec)),
            "config": self.config.to_json(),
        }


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """A policy that has been read."""

    tensors: Mapping[str, Tensor]
    description: Description
    rewards: Mapping[str, Tensor] | None = None
    """The statistics of the reward normaliser; None without one, and for exported files."""


def read_policy(path: Path, checkpoint: str | int = "auto", *, key: str = "checkpoint",
                trust: bool = False, runs_code: bool = True,
                objects: Mapping[str, Any] | None = None, call: str = "") -> SavedPolicy:
    """The policy in an exported file, or in the run at `path` at the `checkpoint` of `load_named`.

    Messages call that option `key`. `trust`, `runs_code`, `objects` and `call` are those of
    `RunDirectory.open`; without `runs_code`, the caller only uses the tensors.
    """
    if path.suffix.lower() == SUFFIX and not path.is_dir():
        if checkpoint != "auto":
            raise ConfigError(f"{key}={checkpoint!r}: {path} is a file with a single policy; leave "
                              "it out")
        return SavedPolicy(*read_weights(path, trust=trust, runs_code=runs_code, objects=objects,
                                         call=call))
    if os.path.isfile(path) and is_zipfile(path):  # not is_file: a name may be too long
        raise ConfigError(f"{path} is a zip file{_kind_of_zip(path)}; give a run directory, or a "
                          f"file that ends in {SUFFIX}")
    run = RunDirectory.open(path, trust=trust, runs_code=runs_code, objects=objects, call=call)
    saved = load_named(run.path, checkpoint, key=key)
    progress = saved.state["progress"]
    scores = {}
    if progress["recent"]:
        scores["rollout/ep_rew_mean"] = fmean(score for score, _ in progress["recent"])
    best = progress.get("best_return")
    if saved.path.name == "best" and run.config.run.evaluates and best is not None:
        scores["eval/mean_reward"] = float(best)
    deterministic = progress.get("deterministic")
    if deterministic is not None:
        scores["eval/deterministic"] = float(bool(deterministic))
    description = Description(run.config, read_spec(saved.state["spec"]), saved.step,
                              str(saved.path.relative_to(run.path)), scores)
    tensors = saved.tensors.get(EMA, saved.tensors["model"])
    return SavedPolicy(tensors, description, saved.tensors.get("rewards"))


def _kind_of_zip(path: Path) -> str:
    """Whose zip file it is, and how its weights are read, if it is of Stable-Baselines3."""
    with suppress(Exception), ZipFile(path) as file:  # a damaged one raises errors of many kinds
        if "policy.pth" in file.namelist():
            return " of Stable-Baselines3, whose weights docs/migrate-sb3.md shows how to load"
    return ""


def write_weights(path: Path, tensors: Mapping[str, Tensor], description: Description) -> None:
    """Write a policy file, replacing any other at `path`; OSError if it cannot be written."""
    header = description.to_header()
    header["format"] = "pt"  # by which other readers of safetensors recognise PyTorch's tensors
    header[SIGNATURE] = signature(description.config.to_json()) or ""
    # Cloned, because layers may share their weights.
    path.write_bytes(save({name: tensor.contiguous().clone() for name, tensor in tensors.items()},
                          metadata=header))


def read_weights(path: Path, *, trust: bool = False, runs_code: bool = True,
                 objects: Mapping[str, Any] | None = None,
                 call: str = "") -> tuple[dict[str, Tensor], Description]:
    """Read a policy file.

    Code from outside Vantage needs `trust`, unless this user wrote the file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("vantage") != _KIND:
                raise ConfigError(f"{path} is not a policy written by `vantage export --format "
                                  "safetensors`; give such a file or a run directory")
            objects = objects or {}
            config = _read_config(header, path, trust=trust, runs_code=runs_code, objects=objects)
            check_objects(config, objects, path, call)
            description = _read_description(header, config)
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
            check_finite({"model": tensors})
            return tensors, description
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}; export the "
                              "policy again") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _read_config(header: Mapping[str, str], path: Path, *, trust: bool, runs_code: bool,
                 objects: Mapping[str, Any]) -> Config:
    """The config in the header of a policy file, once its code is trusted."""
    text = header["config"]
    values = read_json_object(text, source=str(path))
    paths = foreign_code(values, runs_code=runs_code, given=objects)
    check_code(paths, source=str(path), trusted=trust or is_own(text, header.get(SIGNATURE)))
    try:
        return Config.from_json(text, source=str(path), objects=replacing(objects), trains=False)
    except ConfigError as error:
        if note := other_version({"vantage": header.get("vantage_version")}):
            raise ConfigError(f"{error}; {note}") from error.__cause__
        raise


def _read_description(header: Mapping[str, str], config: Config) -> Description:
    """The description in the header of a policy file; ValueError if it is not valid."""
    spec = read_spec(parse(header["spec"]))
    step = header["step"]
    checkpoint = header["checkpoint"]
    scores = parse(header["scores"])
    are_scores = isinstance(scores, dict) and all(
        type(score) in (int, float) for score in scores.values())
    if not re.fullmatch("[0-9]{1,18}", step) or not checkpoint.isprintable() or not are_scores:
        raise ValueError(f"step, checkpoint or scores: {step!r:.80}, {checkpoint!r:.80}, "
                         f"{scores!r:.200}")
    return Description(config, spec, int(step), checkpoint, scores)
