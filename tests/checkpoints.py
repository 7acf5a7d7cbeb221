"""Small checkpoints for tests, and ways to change them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from vantage.runs import checkpoint
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.spec_json import spec_to_json
from vantage.runtimes.progress import Progress
from vantage.types import ActionSpec, ArraySpec, EnvSpec

STATE = {"spec": json.loads(json.dumps(spec_to_json(EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,)))))),
         "progress": Progress(1.0).state() | {"step": 1, "episodes": 1, "seconds": 0.1, "recent": [[2.5, 7]]}}


def save(run: Path, step: int, keep: int = 3, mark: int | None = None) -> Path:
    return checkpoint.save(run, step, **content(step if mark is None else mark), keep=keep)


def content(mark: int) -> dict[str, Any]:
    return {"tensors": {"model": {"weight": torch.arange(6.0) + mark}, "optimizer": {"t": torch.tensor(mark)}},
            "state": STATE | {"mark": mark}}


def assert_is(saved: Checkpoint, mark: int) -> None:
    assert saved.state == STATE | {"mark": mark}
    assert torch.equal(saved.tensors["model"]["weight"], torch.arange(6.0) + mark)
    assert saved.tensors["optimizer"]["t"].item() == mark


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def replace_file(checkpoint: Path, name: str, data: bytes) -> None:
    """Replace a file of a checkpoint, with the right hash in its manifest."""
    (checkpoint / name).write_bytes(data)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
