"""Copies of runs at URLs: a resume from one goes on exactly, and what a kill left incomplete is no checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from stopping import saved_tensors

import vantage
from vantage.cli import main
from vantage.errors import CheckpointError, ConfigError
from vantage.runs.checkpoint import load_latest, load_named, newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.mirror import Mirror, fetch, mirror_of

RUN = Path("runs/tiny-Bandit/a2c-1")
OPTIONS = {"env": "tiny:Bandit", "steps": 400, "num_envs": 4, "threads": 1, "hidden": "8", "eval_every": 200,
           "eval_episodes": 2, "save_every": 100, "keep_checkpoints": 2, "tensorboard": False}


@pytest.fixture(params=["memory", "file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield "memory://bucket/runs" if request.param == "memory" else f"file://{tmp_path}/elsewhere"
    MemoryFileSystem.store.clear()


def copied(root: str) -> list[str]:
    """The names of the checkpoints at the URL."""
    fs, path = fsspec.core.url_to_fs(f"{root}/tiny-Bandit/a2c-1/checkpoints")
    fs.invalidate_cache()
    return sorted(Path(name).name for name in fs.ls(path, detail=False))


def test_a_resume_from_a_copy_is_that_of_the_run_bit_for_bit(root: str) -> None:
    whole = vantage.configure("a2c", **OPTIONS | {"steps": 800})
    list(vantage.Trainer(whole, run="whole"))
    for report in vantage.Trainer(whole.change(log_every_seconds=1e-9), root=root):
        if report.step >= 400:
            break
    assert copied(root) == sorted(path.name for path in (RUN / "checkpoints").glob("step-*"))
    stopped = newest_step(RUN)
    shutil.rmtree("runs")  # the machine is gone
    *_, last = vantage.Trainer.resume(f"{root}/tiny-Bandit/a2c-1")
    assert (last.run, last.status) == (str(RUN), "done") and stopped is not None and 400 <= stopped < last.step
    tensors, others = saved_tensors(Path("whole")), saved_tensors(RUN)
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    assert copied(root)[-1] == f"step-{last.step:012d}", "the resumed run goes on to be copied"
    for name in ("config.json", "metrics.jsonl", "summary.json", "best/manifest.json"):
        with fsspec.open(f"{root}/tiny-Bandit/a2c-1/{name}") as file:
            assert file.read() == (RUN / name).read_bytes()


def test_a_copy_holds_the_demonstrations_once_and_the_id_at_the_tracker(
        root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.core.url_to_fs(root)[0]
    put, sent = type(fs).put_file, []

    def put_file(self: object, source: str, target: str, **options: object) -> None:
        sent.append(Path(source).parts[-2:])
        put(self, source, target, **options)

    monkeypatch.setattr(type(fs), "put_file", put_file)
    episodes = [{"observations": np.zeros((1, 1), np.float32), "actions": np.array([1])}] * 4
    options = OPTIONS | {"demonstrations": episodes, "demo_passes": 1, "demo_coef": 1.0}
    for report in vantage.Trainer("a2c", **options, root=root, log_every_seconds=1e-9):
        (RUN / "tracker.json").write_text('{"wandb": "id"}')
        if report.step >= 200:
            break
    shutil.rmtree("runs")
    *_, last = vantage.Trainer.resume(f"{root}/tiny-Bandit/a2c-1")
    assert last.status == "done"
    assert (RUN / "tracker.json").read_text() == '{"wandb": "id"}'
    assert sent.count(("a2c-1", "demonstrations.safetensors")) == 1


def test_a_local_run_that_is_newer_than_its_copy_stays(root: str) -> None:
    url = f"{root}/tiny-Bandit/a2c-1"
    *_, last = vantage.Trainer(vantage.configure("a2c", **OPTIONS), root=root)
    fs, path = fsspec.core.url_to_fs(f"{url}/checkpoints/step-{last.step:012d}")
    fs.rm(path, recursive=True)
    assert main(["resume", url, "--steps", str(last.step + 100), "--extend-schedule"]) == 0
    assert (newest_step(RUN) or 0) > last.step
    assert copied(root) == sorted(path.name for path in (RUN / "checkpoints").iterdir())


def test_a_storage_that_fails_costs_a_warning_and_the_next_save_completes_it(
        root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Flaky(Exception):
        pass

    fs = fsspec.core.url_to_fs(root)[0]
    put, calls = type(fs).put_file, []

    def put_file(self: object, *args: str, **options: object) -> None:
        calls.append(args)
        if len(calls) == 2:  # in the first checkpoint, which the run soon removes
            assert not self.exists(f"{Path(args[1]).parent}/manifest.json")  # type: ignore[attr-defined]
            raise Flaky("503 slow down")
        put(self, *args, **options)

    monkeypatch.setattr(type(fs), "put_file", put_file)
    *_, last = vantage.Trainer(vantage.configure("a2c", **OPTIONS), root=root)
    assert [note for note in caplog.messages if "is not up to date: Flaky: 503 slow down; the next save" in note]
    assert last.status == "done" and copied(root)[-1] == f"step-{last.step:012d}"


def test_what_is_no_place_for_a_copy_is_one_line(root: str) -> None:
    config = vantage.configure("a2c", **OPTIONS)
    with fsspec.open(f"{root}/tiny-Bandit/a2c-1/config.json", "w") as file:
        file.write("{}")
    with pytest.raises(ConfigError, match=r"a2c-1 exists; continue it with `vantage resume .*a2c-1`"):
        list(vantage.Trainer(config, root=root))
    assert not Path("runs").exists()
    with pytest.raises(ConfigError, match="no such run"):
        fetch(f"{root}/tiny-Bandit/a2c-7")


def test_someone_elses_run_names_no_place_to_write(root: str, caplog: pytest.LogCaptureFixture) -> None:
    run = RunDirectory.create(vantage.configure("a2c", **OPTIONS))
    (run.path / "meta.json").write_text(json.dumps(run.read_meta() | {"mirror": root, "mirror_hmac": "0" * 64}))
    assert mirror_of(run) is None
    assert "no longer receives a copy" in caplog.text and not Mirror(root).exists


def test_what_is_damaged_or_lost_is_fetched_again_and_a_copy_without_its_manifest_is_no_checkpoint(root: str) -> None:
    *_, last = vantage.Trainer(vantage.configure("a2c", **OPTIONS), root=root)
    before, mirror = copied(root), Mirror(f"{root}/tiny-Bandit/a2c-1")
    for path in (RUN / "checkpoints").glob("*/model.safetensors"):
        path.write_bytes(b"damaged")
    assert load_latest(fetch(mirror.url)).step == last.step
    (RUN / "best/model.safetensors").write_bytes(b"damaged")
    assert load_named(fetch(mirror.url), "best").step > 0
    shutil.rmtree(RUN)
    mirror.push(RUN)
    assert copied(root) == before and before, "the copy outlives the disk of its run"
    assert load_latest(fetch(mirror.url)).step == last.step
    fs, newest = fsspec.core.url_to_fs(f"{mirror.url}/checkpoints/step-{last.step:012d}/manifest.json")
    fs.rm(newest)
    shutil.rmtree(RUN)
    assert load_latest(fetch(mirror.url)).step < last.step
    (RUN / "meta.json").write_text("{")
    with pytest.raises(ConfigError, match=r"meta\.json"):
        fetch(mirror.url)


def test_a_run_that_was_deleted_while_it_trains_resumes_from_its_copy(root: str) -> None:
    updates = vantage.Trainer(vantage.configure("a2c", **OPTIONS, log_every_seconds=1e-9), root=root)
    assert any(report.step >= 200 for report in updates)
    shutil.rmtree(RUN)
    url = f"{root}/tiny-Bandit/a2c-1"
    with pytest.raises(CheckpointError, match=f"deleted or renamed .* `vantage resume {url}`"):
        list(updates)
    *_, last = vantage.Trainer.resume(fetch(url))
    assert last.status == "done"
