"""What is in a run directory, read without Vantage: the judge of a resume must not share its errors."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

Tensors = dict[str, Tensor]


def complete_checkpoints(run: Path) -> dict[int, Path]:
    """Checkpoints whose files all match the manifest, by step, the newest last."""
    steps = {}
    for path in sorted(run.glob("checkpoints/step-*")):
        if _is_complete(path):
            steps[int(path.name.removeprefix("step-"))] = path
    return steps


def _is_complete(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for name, entry in json.loads((path / "manifest.json").read_bytes())["files"].items():
            data = (path / name).read_bytes()
            if {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} != entry:
                return False
        return True
    return False


def last_tensors(run: Path) -> Tensors:
    """Weights and statistics of the optimiser in the newest complete checkpoint."""
    *_, path = complete_checkpoints(run).values()
    return {f"{group}/{name}": tensor for group in ("model", "optimizer")
            for name, tensor in load_file(path / f"{group}.safetensors").items()}


def equal(ours: Tensors, theirs: Tensors) -> bool:
    """The same names, and the same bits."""
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def logged_steps(run: Path) -> list[int]:
    """The steps of the lines of metrics.jsonl that are whole."""
    steps = []
    for line in (run / "metrics.jsonl").read_bytes().splitlines() if (run / "metrics.jsonl").exists() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            steps.append(json.loads(line)["step"])
    return steps


def summary(run: Path) -> dict[str, object]:
    """summary.json; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((run / "summary.json").read_bytes()))
    return {}
