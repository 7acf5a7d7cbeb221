"""Checkpoints: after kills, full disks and damage the one before can be loaded, and a damaged one never is."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from vantage.errors import CheckpointError, ConfigError
from vantage.runs import checkpoint
from vantage.runs.checkpoint import Checkpoint, load, load_latest, load_named
from vantage.types import ActionSpec, ArraySpec, EnvSpec

STATE = {"spec": json.loads(json.dumps(EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,))).to_json())),
         "progress": {"step": 1, "episodes": 1, "seconds": 0.1, "recent": [[2.5, 7]], "best_return": None}}


class Killed(BaseException):
    """As kill -9: nothing of the program runs after it."""


def save(run: Path, step: int, keep: int = 3, mark: int | None = None) -> Path:
    return checkpoint.save(run, step, **content(step if mark is None else mark), keep=keep)


def save_best(run: Path, step: int) -> Path:
    return checkpoint.save_best(run, step, **content(step))


def content(mark: int) -> dict[str, Any]:
    return {"tensors": {"model": {"weight": torch.arange(6.0) + mark}, "optimizer": {"t": torch.tensor(mark)}},
            "state": STATE | {"mark": mark}}


def assert_is(saved: Checkpoint, mark: int) -> None:
    assert saved.state == STATE | {"mark": mark}
    assert torch.equal(saved.tensors["model"]["weight"], torch.arange(6.0) + mark)
    assert saved.tensors["optimizer"]["t"].item() == mark


def steps(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@contextlib.contextmanager
def failing(call: str, at: int, error: BaseException) -> Iterator[list[int]]:
    """Within, the call number `at` (from 0) of os.<call> raises; yields how many there were."""
    original: Callable[..., Any] = getattr(os, call)
    count = [0]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == at + 1:
            raise error
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, wrapped)
        yield count


def points(action: Callable[[Path], object], prepare: Callable[[Path], object],
           tmp_path: Path) -> list[tuple[str, int]]:
    """Every place where `action` syncs or renames."""
    found = []
    for call in ("fsync", "rename"):
        run = tmp_path / f"count-{call}"
        run.mkdir()
        prepare(run)
        with failing(call, -1, Killed()) as count:
            action(run)
        assert count[0] > 0
        found += [(call, at) for at in range(count[0])]
    return found


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
    path = checkpoint.save(tmp_path, 1, tensors={"model": {}, "envs_0": group}, state=STATE, keep=1)
    loaded = load(path).tensors["envs_0"]
    assert set(loaded) == set(group)
    for name, tensor in group.items():
        assert loaded[name].dtype == tensor.dtype
        torch.testing.assert_close(loaded[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)
    loaded["row"].zero_()
    assert torch.equal(loaded["all"], base), "each has its own memory"


def test_state_comes_back_equal_beside_a_manifest_of_all_files(tmp_path: Path) -> None:
    state = STATE | {"rng": {"state": 2**127 + 1, "inc": 5}, "best": float("-inf"), "seconds": 0.1, "text": "é\n",
                     "none": None, "list": [[1, 2], []], "true": True}
    path = tmp_path / "checkpoints/step-000000012345"
    saved = load(checkpoint.save(tmp_path, 12_345, tensors={"model": {}}, state=state, keep=1))
    assert (saved.state, saved.step, saved.path) == (state, 12_345, path)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["version"], manifest["step"]) == (1, 12_345)
    assert {path / name for name in manifest["files"]} | {path / "manifest.json"} == set(path.iterdir())
    entry = manifest["files"]["state.json"]
    assert entry["size"] == (path / "state.json").stat().st_size and len(entry["sha256"]) == 64


def test_the_newest_are_kept_and_the_one_just_saved(tmp_path: Path) -> None:
    for step in (5, 30, 200, 1000):
        save(tmp_path, step, keep=2)
    assert steps(tmp_path) == ["step-000000000200", "step-000000001000"]
    save(tmp_path, 3, keep=1)
    assert steps(tmp_path) == ["step-000000000003"]


def test_damaged_checkpoints_do_not_count_among_the_kept_and_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=4)
    flip(tmp_path / "checkpoints/step-000000000003/state.json")
    save(tmp_path, 5, keep=2)
    assert steps(tmp_path) == [f"step-00000000000{step}" for step in (3, 4, 5)]


def test_nothing_is_pruned_unless_the_new_checkpoint_reads_back(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, keep=1)
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: write(path, data[:-1] + b"?"))
    with pytest.raises(CheckpointError, match="the disk returns other bytes"):
        save(tmp_path, 2, keep=1)
    assert steps(tmp_path) == ["step-000000000001"]


def test_a_step_is_saved_again_only_where_it_is_damaged_or_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    save(tmp_path, 1, mark=7)
    assert_is(load_latest(tmp_path), 1)
    flip(path / "model.safetensors")
    save(tmp_path, 1, mark=8)
    assert_is(load_latest(tmp_path), 8)
    checkpoint.save(tmp_path, 1, **content(9), keep=1, again=True)
    assert_is(load_latest(tmp_path), 9)
    assert steps(tmp_path) == ["step-000000000001"]


def save_new(run: Path, step: int) -> None:
    save(run, step, keep=2)


def save_again(run: Path, step: int) -> None:
    checkpoint.save(run, 9, **content(step), keep=1, again=True)


@pytest.mark.parametrize(("error", "raised", "message"), [
    (Killed(), Killed, None), (OSError(errno.EIO, "broken"), CheckpointError, "cannot save .*broken.*EIO.*free")])
@pytest.mark.parametrize("action", [save_new, save_again, save_best])
def test_a_kill_or_an_error_at_any_point_of_a_save_leaves_a_whole_checkpoint(
        action: Callable[[Path, int], object], error: BaseException, raised: type[BaseException], message: str | None,
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, (call, at) in enumerate(points(lambda run: action(run, 2), lambda run: action(run, 1), tmp_path)):
        run = tmp_path / str(number)
        run.mkdir()
        action(run, 1)
        with failing(call, at, error), pytest.raises(raised, match=message):
            action(run, 2)
        saved = load_named(run)
        assert saved.state["mark"] in (1, 2) and not caplog.messages
        assert_is(saved, saved.state["mark"])
        with failing("fsync", 1, OSError(errno.EIO, "broken")), pytest.raises(CheckpointError):
            action(run, 3)
        assert load_named(run).state["mark"] in (1, 2) and not list(run.rglob(".*.new"))
        action(run, 4)
        assert_is(load_named(run), 4)
        assert not list(run.rglob(".*")), f"left after {call} {at}"


def test_a_kill_while_removing_leaves_no_half_checkpoint(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path, 1, keep=1)

    def remove_half(path: Path, **_: object) -> None:
        if path.exists():
            (path / "manifest.json").unlink()
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil, "rmtree", remove_half)
        save(tmp_path, 2, keep=1)
    load_latest(tmp_path)
    assert not caplog.messages
    save(tmp_path, 3, keep=1)
    assert steps(tmp_path) == ["step-000000000003"]


@pytest.mark.parametrize(("name", "data", "message"), [
    ("model.safetensors", b"other", r"model\.safetensors is damaged: it has .*'size': 5.*manifest\.json says"),
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
    assert "step-000000000002" in logged


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


def stranger(path: Path, changes: dict[str, Any]) -> None:
    """Replace values in state.json, by dotted names, with right hashes in the manifest."""
    saved, manifest = (json.loads((path / name).read_text()) for name in ("state.json", "manifest.json"))
    for name, value in changes.items():
        *groups, last = name.split(".")
        entry = saved["state"]
        for group in groups:
            entry = entry[group]
        if value is ...:
            del entry[last]
        else:
            entry[last] = value
    data = json.dumps(saved).encode()
    (path / "state.json").write_bytes(data)
    manifest["files"]["state.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(("name", "value"), [
    ("progress", ...), ("progress", []), ("progress.seconds", ...), ("progress.step", -1), ("progress.step", "9"),
    ("progress.seconds", float("nan")), ("progress.recent", ...), ("progress.recent", [[1]]),
    ("progress.recent", [["a", 1]]), ("progress.best_return", "high"), ("workers_started", "all"), ("spec", ...),
    ("spec", []), ("spec.obs", {}), ("spec.obs", {"kind": "sound", "shape": [4]}), ("spec.obs.shape", [4, 4]),
    ("spec.obs.shape", [10**12]), ("spec.action.kind", "leap"), ("spec.action.sizes", []),
    ("spec.action.sizes", [-2]), ("spec.action", {"kind": "box", "sizes": [2], "low": [0], "high": [1]}),
    ("spec.masked", "no")])
def test_a_state_that_no_run_writes_is_refused_in_one_line(tmp_path: Path, name: str, value: Any) -> None:
    path = save(tmp_path, 1)
    stranger(path, {name: value})
    with pytest.raises(CheckpointError, match=rf"step-000000000001 .*: {name.split('.')[0]}[ .]") as error:
        load(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    tensors = {"model": {"weight": torch.tensor([1.0, value])}}
    path = checkpoint.save(tmp_path, 1, tensors=tensors, state=STATE, keep=1)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: weight has values that are not finite"):
        load(path)


@pytest.mark.parametrize("name", ["state.json", "manifest.json", "model.safetensors"])
def test_links_in_place_of_files_are_not_followed(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 1) / name
    file.symlink_to(file.rename(tmp_path / "elsewhere"))
    with pytest.raises(CheckpointError, match=f"{name} is a symbolic link"):
        load(file.parent)


def test_a_file_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    os.truncate(path / "model.safetensors", 2**43)  # without blocks on the disk
    with pytest.raises(CheckpointError, match=r"model\.safetensors is larger than the memory"):
        load(path)


def test_a_full_disk_takes_the_oldest_checkpoints_but_never_the_newest_valid_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=4)
    flip(tmp_path / "checkpoints/step-000000000004/state.json")
    write, capacity = Path.write_bytes, 3

    def limited(path: Path, data: bytes) -> int:
        if len(list(path.parents[1].glob("*step-*"))) > capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", limited)
    save(tmp_path, 5, keep=4)
    assert steps(tmp_path) == [f"step-00000000000{step}" for step in (3, 4, 5)]
    [message] = caplog.messages
    assert "the disk is full: removed step-000000000001, step-000000000002" in message
    capacity = 1
    with pytest.raises(CheckpointError, match=r"No space left on device \(ENOSPC\)"):
        save(tmp_path, 6, keep=4)
    assert_is(load_latest(tmp_path), 5)


@pytest.mark.parametrize(("name", "data", "message"), [
    ("../secret.safetensors", b"", "not a file of a checkpoint"), ("/etc/passwd", b"", "not a file of a checkpoint"),
    ("model.pkl", b"", "not a file of a checkpoint"), ("model.safetensors\n", b"", "not a file of a checkpoint"),
    ("state.json", b"[" * 100_000, "state.json is not JSON"), ("state.json", b"[]", "state.json holds list"),
    ("state.json", b'{"step": 2, "state": {}}', "state.json is of step 2"), ("state.json", b"\xff", "is damaged"),
    ("model.safetensors", b"\xff" * 7 + b"\x7f{}", "model.safetensors is not a safetensors file"),
    ("model.safetensors", b"\x80\x05cos\nsystem\n", "model.safetensors is not a safetensors file"),
    (None, {"step": "1"}, "manifest.json is damaged"), (None, {"step": -1}, "manifest.json is damaged"),
    (None, {"version": 2}, "manifest.json is damaged"),
    (None, {"files": {}}, "manifest.json is damaged"),
    (None, {"files": {"state.json": None}}, "state.json is damaged")])
def test_a_checkpoint_of_a_stranger_is_refused_where_its_content_is_not_what_it_claims(
        tmp_path: Path, name: str | None, data: Any, message: str) -> None:
    path = save(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    if name is None:
        manifest |= data
    else:
        with contextlib.suppress(OSError):
            (path / name).write_bytes(data)
        manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=message):
        load(path)


def test_a_checkpoint_is_found_by_the_name_a_person_gives_it(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="has no best checkpoint; it has none"):
        load_named(tmp_path, "best")
    for step in (1000, 3000):
        save(tmp_path, step)
    assert_is(load_named(tmp_path), 3000)
    best = save_best(tmp_path, 2500)
    for name, step in {"auto": 2500, "best": 2500, "latest": 3000, "1k": 1000, "step-000000003000": 3000}.items():
        assert_is(load_named(tmp_path, name), step)
    for name in ("bset", "5M", "-1", "nan", "1e400"):
        with pytest.raises(ConfigError, match="it has best, 3000, 1000"):
            load_named(tmp_path, name)
    flip(best / "model.safetensors", -3)
    assert_is(load_named(tmp_path, "auto"), 3000)
    assert "best: model.safetensors" in caplog.messages[0]
    with pytest.raises(CheckpointError, match=r"best: model\.safetensors"):
        load_named(tmp_path, "best")


def test_without_a_valid_checkpoint_each_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no valid checkpoint; wait for its first save.*vantage train"):
        load_latest(tmp_path)
    for step in (1, 2):
        flip(save(tmp_path, step) / "model.safetensors", -3)
    with pytest.raises(CheckpointError, match=r"(?s)no valid checkpoint.*000002: model.*000001: model"):
        load_latest(tmp_path)
