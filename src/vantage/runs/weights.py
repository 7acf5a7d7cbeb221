"""A policy in one file, without its run: weights in safetensors, and in the header all that building the model takes.

`vantage export --format safetensors` writes it, `vantage.load` reads it. ONNX files hold the same description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vantage.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys import read_json_object
from vantage.runs.trust import check_code, foreign_code
from vantage.types import EnvSpec

SUFFIX = ".safetensors"
_KIND = "policy 1"


@dataclass(frozen=True, slots=True)
class Description:
    """What a policy is, where it comes from, and what it scored; text in the header of its file."""

    config: Config
    spec: EnvSpec
    step: int
    checkpoint: str
    """The directory within its run that it was read from."""
    scores: Mapping[str, float]
    """Raw returns by the names that metrics.jsonl gives them."""

    def to_header(self) -> dict[str, str]:
        """As a header; what only people read, such as `env`, stands beside what the model is built from."""
        return {"vantage": _KIND, "vantage_version": version("vantage-rl"), "env": self.config.env.id,
                "algo": self.config.algo, "step": str(self.step), "checkpoint": self.checkpoint,
                "scores": json.dumps(dict(self.scores)), "spec": json.dumps(self.spec.to_json()),
                "config": self.config.to_json()}

    @classmethod
    def from_header(cls, header: Mapping[str, str], *, source: str, trust: bool) -> Description:
        """What `to_header` gave; `source` names the file in the message of an error.

        A file carries no signature, so that code from outside Vantage always needs `trust`.
        """
        if header.get("vantage") != _KIND:
            raise ConfigError(f"{source} is not a policy that `vantage export --format safetensors` wrote; give such a "
                              "file or a run directory")
        try:
            check_code(foreign_code(read_json_object(header["config"], source=source)), source=source, trusted=trust)
            return cls(Config.from_json(header["config"], source=source), EnvSpec.from_json(json.loads(header["spec"])),
                       int(header["step"]), header["checkpoint"], json.loads(header["scores"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{source}: its header is damaged: {type(error).__name__}: {error}; export the "
                                  "policy again") from None


def write_weights(path: Path, tensors: Mapping[str, Tensor], description: Description) -> None:
    """A file at `path`, in place of any other; OSError where it cannot be written."""
    # "pt" is how other readers of safetensors know which library the tensors are of.
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()},
                          metadata={"format": "pt", **description.to_header()}))


def read_weights(path: Path, *, trust: bool = False) -> tuple[dict[str, Tensor], Description]:
    """What `write_weights` wrote. ConfigError if there is no such file, CheckpointError if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            description = Description.from_header(file.metadata() or {}, source=str(path), trust=trust)
            return {name: file.get_tensor(name) for name in file.keys()}, description  # noqa: SIM118  no mapping
    except SafetensorError as error:
        raise CheckpointError(f"{path}: no whole safetensors file: {error}; export the policy again") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
