"""Checkpoints: after kills, full disks and damage the one before can be loaded, and a damaged one never is."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoints import assert_is, content, flip, save

from vantage.errors import CheckpointError, ConfigError
from vantage.runs import checkpoint, checkpoint_files
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runs.files import write_atomically


class Killed(BaseException):
    """As kill -9: nothing of the program runs after it."""


def steps(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


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


def points(action: Callable[[Path, int], object], tmp_path: Path) -> list[tuple[str, int]]:
    """Every place where `action` syncs or renames as it saves step 2 after step 1."""
    found = []
    for call in ("fsync", "rename"):
        run = tmp_path / f"count-{call}"
        run.mkdir()
        action(run, 1)
        with failing(call, -1, Killed()) as count:
            action(run, 2)
        assert count[0] > 0
        found += [(call, at) for at in range(count[0])]
    return found


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


def save_best(run: Path, step: int) -> Path:
    return checkpoint.save_as(run, "best", step, **content(step))


@pytest.mark.parametrize(("error", "raised", "message"), [
    (Killed(), Killed, None), (OSError(errno.EIO, "broken"), CheckpointError, "cannot save .*broken.*EIO.*free")])
@pytest.mark.parametrize("action", [
    lambda run, step: save(run, step, keep=2), save_best,
    lambda run, step: checkpoint.save(run, 9, **content(step), keep=1, again=True)], ids=["new", "best", "again"])
def test_a_kill_or_an_error_at_any_point_of_a_save_leaves_a_whole_checkpoint(
        action: Callable[[Path, int], object], error: BaseException, raised: type[BaseException], message: str | None,
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, (call, at) in enumerate(points(action, tmp_path)):
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


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_a_file_is_on_the_disk_before_it_has_its_name_and_a_checkpoints_name_after_that(
        call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    fsync, move = os.fsync, getattr(os, call)

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def check(source: Path, target: Path) -> None:
        assert {path.stat().st_ino for path in (source, *source.rglob("*"))} <= synced, "a loss of power leaves a part"
        synced.clear()
        move(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, call, check)
    if call == "replace":
        write_atomically(tmp_path / "summary.json", "{}")
    else:
        assert save(tmp_path, 1).parent.stat().st_ino in synced


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


def test_a_checkpoint_is_found_by_the_name_a_person_gives_it(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="has no best checkpoint; it has none"):
        load_named(tmp_path, "best")
    for step in (1000, 3000):
        save(tmp_path, step)
    assert_is(load_named(tmp_path), 3000)
    best = save_best(tmp_path, 2500)
    names = {"auto": 2500, "best": 2500, "latest": 3000, "1k": 1000, 1000: 1000, "step-000000003000": 3000}
    for name, step in names.items():
        assert_is(load_named(tmp_path, name), step)
    for name in ("bset", "5M", "-1", "nan", "1e400", 5):
        with pytest.raises(ConfigError, match="it has best, 3000, 1000"):
            load_named(tmp_path, name)
    flip(best / "model.safetensors", -3)
    assert_is(load_named(tmp_path, "auto"), 3000)
    assert "best: model.safetensors" in caplog.messages[0]
    with pytest.raises(CheckpointError, match=r"best: model\.safetensors"):
        load_named(tmp_path, "best")


@pytest.mark.parametrize(("name", "action"), [
    ("best", save_best), ("auto", save_best), ("latest", lambda run, step: save(run, step, keep=1)),
    (7, lambda run, step: checkpoint.save(run, 7, **content(step), keep=1, again=True))])
def test_a_checkpoint_that_training_replaces_or_removes_while_it_is_read_is_read_again(
        name: str | int, action: Callable[[Path, int], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    action(tmp_path, 1)
    read_manifest = checkpoint_files._read_manifest

    def replace_after(path: Path) -> Any:
        manifest = read_manifest(path)
        monkeypatch.setattr(checkpoint_files, "_read_manifest", read_manifest)
        action(tmp_path, 2)
        return manifest

    monkeypatch.setattr(checkpoint_files, "_read_manifest", replace_after)
    assert_is(load_named(tmp_path, name), 2)
    assert not caplog.messages


def test_without_a_valid_checkpoint_each_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no valid checkpoint; wait for .*`vantage resume '/.*my run'`"):
        load_latest(tmp_path / "my run")
    for step in (1, 2):
        flip(save(tmp_path, step) / "model.safetensors", -3)
    with pytest.raises(CheckpointError, match=r"(?s)vantage train`\n.*000002: model.*000001: model"):
        load_latest(tmp_path)
