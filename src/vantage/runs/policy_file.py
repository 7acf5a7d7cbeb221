"""A trained policy read from a run or from an exported file: tensors and their description. No model is built here.

`vantage export --format safetensors` writes the file: weights in safetensors, and in its header all that is needed to
build the model. ONNX files hold the same description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vantage.config.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.fields import read_json_object
from vantage.keys.json_text import parse
from vantage.runs.checkpoint import load_named
from vantage.runs.directory import RunDirectory
from vantage.runs.handed_over import check_objects, check_values, replacing
from vantage.runs.meta import other_version
from vantage.runs.trust import SIGNATURE, check_code, foreign_code, is_own, signature
from vantage.runs.validation import check_finite, read_spec
from vantage.types import EnvSpec

SUFFIX = ".safetensors"
_KIND = "policy 1"


@dataclass(frozen=True, slots=True)
class Description:
    """What a policy is, where it comes from, and what it scored."""

    config: Config
    spec: EnvSpec
    step: int
    checkpoint: str
    """The checkpoint's directory within the run."""
    scores: Mapping[str, float]
    """Raw returns by their names in metrics.jsonl."""

    def to_header(self) -> dict[str, str]:
        """The header of a file.

        `env`, `algo` and the versions are for people; reading does not use them.
        """
        return {"vantage": _KIND, "vantage_version": version("vantage-rl"),
                "env": self.config.env.id, "algo": self.config.algo, "step": str(self.step),
                "checkpoint": self.checkpoint, "scores": json.dumps(dict(self.scores)),
                "spec": json.dumps(self.spec.to_json()), "config": self.config.to_json()}


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """A policy that has been read."""

    tensors: Mapping[str, Tensor]
    description: Description
    rewards: Mapping[str, Tensor] | None = None
    """The statistics of the reward normaliser; None without one, and for exported files."""


def read_policy(path: Path, checkpoint: str = "auto", *, key: str = "checkpoint",
                trust: bool = False, runs_code: bool = True,
                objects: Mapping[str, Any] | None = None, call: str = "") -> SavedPolicy:
    """The policy in an exported file, or in the run at `path` at the `checkpoint` named as in `load_named`.

    Error messages call that option `key`. `trust`, `runs_code`, `objects` and `call` are those of `RunDirectory.open`;
    without `runs_code` the caller only takes the tensors.
    """
    if path.suffix.lower() == SUFFIX and not path.is_dir():
        if checkpoint != "auto":
            raise ConfigError(f"{key}={checkpoint!r}: {path} is a file with a single policy; leave "
                              "it out")
        return SavedPolicy(*read_weights(path, trust=trust, runs_code=runs_code, objects=objects,
                                         call=call))
    run = RunDirectory.open(path, trust=trust, runs_code=runs_code, objects=objects, call=call)
    saved = load_named(run.path, checkpoint, key=key)
    progress, scores = saved.state["progress"], {}
    if progress["recent"]:
        scores["rollout/ep_rew_mean"] = fmean(score for score, _ in progress["recent"])
    best = progress.get("best_return")
    if saved.path.name == "best" and run.config.run.evaluates and best is not None:
        scores["eval/mean_reward"] = float(best)
    if (deterministic := progress.get("deterministic")) is not None:
        scores["eval/deterministic"] = float(bool(deterministic))
    description = Description(run.config, read_spec(saved.state["spec"]), saved.step,
                              str(saved.path.relative_to(run.path)), scores)
    return SavedPolicy(saved.tensors["model"], description, saved.tensors.get("rewards"))


def write_weights(path: Path, tensors: Mapping[str, Tensor], description: Description) -> None:
    """Write a policy file, replacing any other at `path`; OSError if it cannot be written."""
    # Other readers of safetensors recognise PyTorch's tensors by format "pt".
    header = {"format": "pt", **description.to_header(),
              SIGNATURE: signature(description.config.to_json()) or ""}
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()},
                          metadata=header))


def read_weights(path: Path, *, trust: bool = False, runs_code: bool = True,
                 objects: Mapping[str, Any] | None = None,
                 call: str = "") -> tuple[dict[str, Tensor], Description]:
    """Read a policy file.

    Code from outside Vantage needs `trust`, unless this user wrote the file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header, source = file.metadata() or {}, str(path)
            if header.get("vantage") != _KIND:
                raise ConfigError(f"{path} is not a policy written by `vantage export --format "
                                  "safetensors`; give such a file or a run directory")
            objects = objects or {}
            values = read_json_object(header["config"], source=source)
            paths = foreign_code(values, runs_code=runs_code, given=objects)
            check_code(paths, source=source,
                       trusted=trust or is_own(header["config"], header.get(SIGNATURE)))
            try:
                config = Config.from_json(header["config"], source=source,
                                          objects=replacing(objects))
            except ConfigError as error:
                if note := other_version({"vantage": header.get("vantage_version")}):
                    raise ConfigError(f"{error}; {note}") from error.__cause__
                raise
            check_values(config, objects, path)
            if call:
                check_objects(config, path, call)
            spec, scores = read_spec(parse(header["spec"])), parse(header["scores"])
            step, checkpoint = header["step"], header["checkpoint"]
            if not (re.fullmatch("[0-9]{1,18}", step) and checkpoint.isprintable()
                    and isinstance(scores, dict)
                    and all(type(score) in (int, float) for score in scores.values())):
                raise ValueError(f"step, checkpoint or scores: {step!r:.80}, {checkpoint!r:.80}, "
                                 f"{scores!r:.200}")
            description = Description(config, spec, int(step), checkpoint, scores)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
            check_finite({"model": tensors})
            return tensors, description
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}; export the "
                              "policy again") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
