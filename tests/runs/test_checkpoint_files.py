"""One checkpoint on disk: it comes back equal, and what is damaged or crafted in it is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import STATE, assert_is, replace_file, save

from vantage.errors import CheckpointError
from vantage.runs import checkpoint
from vantage.runs.checkpoint import load, load_latest, load_named


def test_tensors_of_every_kind_come_back_equal(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    group = {
        "image": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "transposed": base.T,
        "row": base[1], "same row": base[1], "all": base,
        "scalar": torch.tensor(3), "empty": torch.empty(0, 3), "bool": torch.tensor([True, False]),
        "uint8": torch.tensor([0, 255], dtype=torch.uint8), "double": torch.tensor([1 / 3], dtype=torch.float64),
        "bfloat16": torch.tensor([1.5], dtype=torch.bfloat16), "expanded": torch.ones(1).expand(3),
        "not finite": torch.tensor([float("nan"), float("inf")]), "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = checkpoint.save(tmp_path, 1, tensors={"model": {}, "envs": group}, state=STATE, keep=1)
    loaded = load(path).tensors["envs"]
    assert set(loaded) == set(group)
    for name, tensor in group.items():
        assert loaded[name].dtype == tensor.dtype
        torch.testing.assert_close(loaded[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)
    loaded["row"].zero_()
    assert torch.equal(loaded["all"], base), "each has its own memory"


def test_a_renamed_checkpoint_does_not_pass_for_a_newer_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = save(tmp_path, 1)
    save(tmp_path, 2)
    older.rename(older.with_name("step-000000000009"))
    assert_is(load_latest(tmp_path), 2)
    assert "manifest.json is of step 1; rename the folder to step-000000000001" in caplog.text


def test_state_comes_back_equal_beside_a_manifest_of_all_files(tmp_path: Path) -> None:
    state = STATE | {"rng": {"state": 2**127 + 1, "inc": 5}, "best": float("-inf"), "seconds": 0.1, "text": "é\n",
                     "none": None, "list": [[1, 2], []], "true": True}
    path = tmp_path / "checkpoints/step-000000012345"
    saved = load(checkpoint.save(tmp_path, 12_345, tensors={"model": {}}, state=state, keep=1))
    assert (saved.state, saved.step, saved.path) == (state, 12_345, path)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["version"], manifest["step"]) == (2, 12_345)
    assert {path / name for name in manifest["files"]} | {path / "manifest.json"} == set(path.iterdir())
    entry = manifest["files"]["state.json"]
    assert entry["size"] == (path / "state.json").stat().st_size and len(entry["sha256"]) == 64


@pytest.mark.parametrize(("name", "data", "message"), [
    ("model.safetensors", b"other", r"model\.safetensors is damaged: it has 5 bytes, manifest\.json says"),
    ("state.json", b"", r"state\.json is damaged"),
    ("optimizer.safetensors", None, r"optimizer\.safetensors cannot be read: No such file"),
    ("manifest.json", None, r"manifest\.json cannot be read: No such file"),
    ("manifest.json", b"", r"manifest\.json is damaged: manifest\.json is not JSON")])
def test_damage_is_named_and_the_checkpoint_before_is_used(
        tmp_path: Path, name: str, data: bytes | None, message: str, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    (newest / name).unlink() if data is None else (newest / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"checkpoints/step-000000000002: {message}"):
        load(newest)
    assert_is(load_latest(tmp_path), 1)
    [logged] = caplog.messages
    assert "step-000000000002" in logged and logged.endswith("; step-000000000001 is used instead")
    shutil.copytree(newest, tmp_path / "best")
    assert_is(load_named(tmp_path), 1)
    assert "/best: " in caplog.messages[-1] and caplog.messages[-1].endswith("; step-000000000001 is used instead")


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    for file in path.iterdir():
        whole = file.read_bytes()
        for at in range(len(whole)):
            changed = bytearray(whole)
            changed[at] ^= 1 << (at % 8)
            file.write_bytes(changed)
            with pytest.raises(CheckpointError):
                load(path)
        file.write_bytes(whole)
    assert_is(load(path), 1)


def test_a_file_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    os.truncate(path / "model.safetensors", 2**43)  # without blocks on the disk
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged: it has 8,796,093,022,208 bytes"):
        load(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["model.safetensors"]["size"] = 2**43
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is larger than the memory"):
        load(path)


@pytest.mark.parametrize(("name", "data", "message"), [
    ("state.json", b"[" * 100_000, "state.json is not JSON"), ("state.json", b"[]", "state.json holds list"),
    ("state.json", b'{"step": 2, "state": {}}', "state.json is of step 2"), ("state.json", b"\xff", "is damaged"),
    (None, {"step": "1"}, "manifest.json is damaged"), (None, {"step": -1}, "manifest.json is damaged"),
    (None, {"version": 1}, "manifest.json is damaged or of another version"),
    (None, {"files": {}}, "manifest.json is damaged"),
    (None, {"files": {"state.json": None}}, "state.json is damaged")])
def test_a_checkpoint_of_a_stranger_is_refused_where_its_content_is_not_what_it_claims(
        tmp_path: Path, name: str | None, data: Any, message: str) -> None:
    path = save(tmp_path, 1)
    if name is not None:
        replace_file(path, name, data)
    else:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(manifest | data))
    with pytest.raises(CheckpointError, match=message):
        load(path)
