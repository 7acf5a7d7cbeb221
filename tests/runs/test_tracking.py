"""Trackers beside a run: what they receive, that a resume continues them, and that none of them can stop a training."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import train_shortly
from stopping import stop_after

import vantage
from vantage._host import extras
from vantage.cli import main
from vantage.keys.typed_values import plain
from vantage.runs import tracking
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics
from vantage.runs.tracking import Tracker, mlflow_name

CLIENT = '''
"""A client that writes its calls to calls.jsonl, and fails as the environment variable FAULT says."""

import json
import os
import threading
from types import SimpleNamespace

FAULT, ATTEMPTS, END = os.environ.get("FAULT", ""), [], threading.Event()


def note(what, **values):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps([what, values]) + "\\n")


def log(values, step):
    if FAULT == "once" and not ATTEMPTS:
        ATTEMPTS.append(step)
        raise RuntimeError("bad gateway")
    if FAULT == "exit":
        raise SystemExit(3)
    note("log", step=step, **values)


def init(*, id, resume, name, config, project, dir, settings):
    print("a client may print")
    if FAULT == "init":
        raise ValueError("not logged in\\nrun the login command")
    if FAULT == "hang":
        END.wait()
        raise SystemExit  # writes nothing to the folder of the next test
    note("init", id=id, name=name, config=config)
    return SimpleNamespace(
        id=id or "fresh", offline=False, url="https://tracker.example/fresh", log=log,
        summary=SimpleNamespace(update=lambda summary: note("summary", **summary)),
        finish=lambda exit_code: note("finish", code=exit_code))


def teardown():
    pass


Settings = dict
'''


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stand-in for wandb; returns where it writes its calls."""
    package = tmp_path / "clients" / "wandb.py"
    package.parent.mkdir()
    package.write_text(CLIENT)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    yield tmp_path / "calls.jsonl"
    sys.modules.pop("wandb").END.set()


def calls(path: Path, what: str) -> list[dict[str, Any]]:
    return [values for name, values in map(json.loads, path.read_text().splitlines()) if name == what]


def rows(run: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl without what is not finite."""
    return [{name: value for name, value in record.items() if value is not None} for record in read_metrics(run)]


def test_a_tracker_receives_config_rows_and_summary(client: Path) -> None:
    run = train_shortly(Path("CartPole/first"), "CartPole-v1", track="wandb", eval_every=100, eval_episodes=1,
                        max_episode_steps=30, log_every_seconds=0)
    [opened], directory = calls(client, "init"), RunDirectory.open(run)
    config = {key: plain(value) for key, value in directory.config.flat().items()}
    assert (opened["id"], opened["name"], opened["config"]) == (None, "CartPole/first", config)
    names = set(rows(run)[-1]) - {"step"}
    assert {"seconds", "eval/mean_reward", "train/entropy"} <= names
    sent = dict[float, dict[str, float]]()  # a step may arrive in parts
    for row in calls(client, "log"):
        sent.setdefault(row["step"], {}).update(row)
    assert list(sent) == [row["step"] for row in rows(run)]
    assert [set(row) for row in sent.values()] == [set(row) for row in rows(run)]
    assert [row.get("eval/mean_reward") for row in sent.values()] == [row.get("eval/mean_reward") for row in rows(run)]
    assert calls(client, "summary") == [directory.read_summary()] and calls(client, "finish") == [{"code": 0}]


def test_a_resume_continues_the_same_tracker_run_and_sends_no_row_twice(client: Path) -> None:
    config = vantage.configure("a2c", env="CartPole-v1", track="wandb", steps=400, num_envs=1, log_every_seconds=0,
                               tensorboard=False, eval_every=0, threads=1, save_every=100)
    run = Path("run")
    step = stop_after(10, run, config)
    assert json.loads((run / "tracker.json").read_text()) == {"wandb": "fresh"}
    with (run / "metrics.jsonl").open("a") as file:  # as if killed here, after its last checkpoint
        file.write(f'{{"step": {step + 20}, "seconds": 1}}\n')
    assert [report.status for report in vantage.Trainer.resume(run)][-1] == "done"
    assert [opened["id"] for opened in calls(client, "init")] == [None, "fresh"]
    steps = [row["step"] for row in calls(client, "log")]
    expected = [row["step"] for row in rows(run) if not step < row["step"] <= step + 20]
    assert steps == expected
    assert [done["code"] for done in calls(client, "finish")] == [255, 0]


@pytest.mark.parametrize(("fault", "warning"), [
    ("init", "wandb: ValueError: not logged in run the login command; the run is not tracked any further"),
    ("exit", "wandb: SystemExit: 3; training goes on"),
    ("once", "wandb: RuntimeError: bad gateway; training goes on"),
])
def test_a_tracker_that_fails_costs_one_warning(
        client: Path, fault: str, warning: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", fault)
    run = train_shortly(Path("run"), "CartPole-v1", track="wandb", log_every_seconds=0)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [warning]
    if fault == "once":
        assert [row["step"] for row in calls(client, "log")] == [row["step"] for row in rows(run)], "sent again"


def test_a_tracker_that_hangs_delays_no_step_and_the_end_by_its_grace_alone(
        client: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "hang")
    monkeypatch.setattr(tracking, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(tracking, "MOST_WAITING", 3)
    tracker = Tracker(Path(), vantage.configure("a2c", env="CartPole-v1", track="wandb"))
    begin = time.monotonic()
    for step in range(5):
        tracker.log(step, {"a": 1.0})
    tracker.close({"status": "done"})
    assert time.monotonic() - begin < 3
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "wandb: it does not answer; further metrics are not sent"]


def test_a_missing_client_is_named_before_a_run_exists(capsys: pytest.CaptureFixture[str],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert main(["train", "a2c", "--env", "CartPole-v1", "--track", "mlflow"]) == 2
    assert "mlflow is not installed: pip install " in capsys.readouterr().err
    assert not Path("runs").exists()


def track_two_sessions(name: str) -> str:
    """Send two sessions of one run to the client `name`; the run's id."""
    for step in (10, 20):
        tracker = Tracker(Path(), vantage.configure("a2c", env="CartPole-v1", track=name, seed=step))
        tracker.log(step, {"seconds": 1.0, "rollout/ep_rew_mean": step / 10})
        tracker.close({"status": "done", "steps": step})
    return str(json.loads(Path("tracker.json").read_text())[name])


@pytest.mark.parametrize(("name", "accepted"), [
    ("rollout/ep_rew_mean", "rollout/ep_rew_mean"), ("my/acc%", "my/acc_"), ("my/x, y (z)", "my/x_ y _z_"),
    ("info/../a//b", "info/_/a/_/b"), ("größe", "größe")])
def test_any_metric_has_a_name_that_mlflow_accepts(name: str, accepted: str) -> None:
    utils = pytest.importorskip("mlflow.utils.validation", reason="pip install 'vantage-rl[mlflow]'")
    assert mlflow_name(name) == accepted
    utils._validate_metric_name(accepted)


@pytest.mark.filterwarnings("ignore")  # of the client
def test_mlflow_keeps_one_run_in_a_local_database(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="pip install 'vantage-rl[mlflow]'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    identity = track_two_sessions("mlflow")
    with closing(sqlite3.connect("mlflow.db")) as database:
        assert database.execute("SELECT run_uuid, status FROM runs").fetchall() == [(identity, "FINISHED")]
        points = set(database.execute("SELECT key, step, value FROM metrics"))
        params = dict(database.execute("SELECT key, value FROM params"))
    assert params["env"] == "CartPole-v1" and params["seed"] == "10" and params["track"] == "mlflow"
    assert points >= {("rollout/ep_rew_mean", 10, 1.0), ("rollout/ep_rew_mean", 20, 2.0), ("summary/steps", 20, 20.0)}


@pytest.mark.filterwarnings("ignore")  # of the client
def test_wandb_keeps_one_run_offline_in_the_run_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="pip install 'vantage-rl[wandb]'")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    identity = track_two_sessions("wandb")
    sessions = list(Path("wandb").glob(f"offline-run-*-{identity}*/run-{identity}.wandb"))
    assert sessions and all(b"rollout/ep_rew_mean" in path.read_bytes() for path in sessions)
