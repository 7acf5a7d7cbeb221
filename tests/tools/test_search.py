"""`vantage search`: after kills and stops no trial is lost or trained twice; poor trials are pruned."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.presets import configure
from vantage.runs.directory import RunDirectory
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Choices, Range, Space, read_grid, read_space
from vantage.tools.search.study import distinct, enqueue, load_study, open_storage, requeue
from vantage.tools.search.worker import describe, is_disk_error, run_state
from vantage.training import train

SHORT = ["--threads", "1", "--no-tensorboard", "--eval-every", "0", "--num-envs", "4", "--hidden", "8"]
GRID = {"lr": [1e-3, 1e-2], "entropy_coef": [0, 0.05]}
SEARCH = ["search", "a2c", "--env", "tiny:DelayedReward", "--grid", "grid.json", "--steps", "2000", "--save-every",
          "500", *SHORT]


def write(name: str, value: Any) -> Path:
    Path(name).write_text(json.dumps(value))
    return Path(name)


def results(directory: str = "runs/search/tiny-DelayedReward/a2c-1") -> list[dict[str, str]]:
    with (Path(directory) / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_grid_is_the_full_product_and_lists_in_one_object_go_together() -> None:
    space = read_grid(write("grid.json", {"lr": ["1e-3", "linear:1e-3:0"],
                                          "size": {"num_envs": [8, 16], "hidden": [[32], [64, 64]]}}))
    assert space.points == (
        {"lr": "1e-3", "num_envs": 8, "hidden": "32"}, {"lr": "1e-3", "num_envs": 16, "hidden": "64,64"},
        {"lr": "linear:1e-3:0", "num_envs": 8, "hidden": "32"},
        {"lr": "linear:1e-3:0", "num_envs": 16, "hidden": "64,64"})


def test_a_range_is_whole_where_its_key_counts_something() -> None:
    space = read_space(write("space.json", {
        "num_envs": {"low": 4, "high": 64, "log": True}, "rollout_length": {"low": 5, "high": 20, "step": 5},
        "gamma": {"low": 0, "high": 1}, "lr": {"low": "1e-4", "high": 0.01, "log": True, "as": "linear:{}:0"},
        "memory": ["none", "lstm"], "separate": [True, False]}))
    assert space.domains == {
        "num_envs": Range(4, 64, True, log=True), "rollout_length": Range(5, 20, True, step=5),
        "gamma": Range(0, 1, False), "lr": Range(1e-4, 0.01, False, log=True, text="linear:{}:0"),
        "memory": Choices(("none", "lstm")), "separate": Choices((True, False))}
    assert space.domains["lr"].value(0.00123456789) == "linear:0.0012346:0"  # type: ignore[union-attr]


def plan(**options: Any) -> Plan:
    space = Space({"lr": Range(1e-4, 1e-2, False, log=True)})
    return Plan("a2c", "CartPole-v1", {"steps": 100_000, **options.pop("given", {})}, space, **options)


def test_trials_are_compared_where_evaluations_are() -> None:
    assert plan().rungs == (15_000, 45_000, 100_000)  # 11,111 up to a multiple of eval_every, then three times that
    assert plan(min_steps=20_000, reduction=2).rungs == (20_000, 40_000, 100_000)
    assert plan(pruner="none").rungs == (100_000,)
    assert plan(given={"eval_every": 0}).rungs == (11_111, 33_333, 100_000)
    assert plan().metric == "eval/mean_reward"
    assert plan(given={"eval_every": 0}).metric == "rollout/ep_rew_mean"


def test_a_trial_returned_to_the_queue_keeps_its_number_and_values() -> None:
    storage = open_storage(None, Path())
    study = load_study(plan(), storage)
    enqueue(study, plan(), 2)
    enqueue(study, plan(), 2)
    trial = study.ask()
    value = trial.suggest_float("lr", 1e-4, 1e-2, log=True)
    requeue(storage, trial)
    again = study.ask()
    assert (again.number, again.suggest_float("lr", 1e-4, 1e-2, log=True)) == (trial.number, value)
    assert [row.user_attrs["index"] for row in study.trials] == [0, 1]


def test_a_trial_enqueued_twice_counts_once() -> None:
    study = load_study(plan(), open_storage(None, Path()))
    for _ in range(2):
        study.enqueue_trial({}, user_attrs={"index": 0})
    assert [trial.number for trial in distinct(study.trials)] == [0]


def test_a_kill_before_the_metrics_of_the_last_step_repeats_only_the_last_part() -> None:
    config = configure("a2c", env="tiny:DelayedReward", steps=600, num_envs=4, rollout_length=5, hidden="8", threads=1,
                       tensorboard=False, save_every=200, eval_every=0)
    *_, _ = train(config, run="run")
    run = RunDirectory.open(Path("run"))
    assert run_state(Path("run"), config, 600) == "done"
    run.write_summary({**run.read_summary(), "status": "running"})
    assert run_state(Path("run"), config, 600) == "begun"
    assert [path.name for path in Path("run/checkpoints").glob("step-*")]
    with pytest.raises(ConfigError, match=r"another run, with lr=.* instead of '1e-2'; move it away"):
        run_state(Path("run"), config.change(lr="1e-2"), 600)


def test_a_full_disk_differs_from_an_error_of_the_trial() -> None:
    try:
        raise VantageError("cannot save") from OSError(28, "No space left on device")
    except VantageError as error:
        assert is_disk_error(error) and "No space left" in describe(error)
    assert not is_disk_error(FileNotFoundError(2, "no file"))


def test_a_killed_search_ends_as_an_undisturbed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.scheduler.write_plots", lambda *_: None)  # another test looks at them
    write("grid.json", GRID)
    process = subprocess.Popen([sys.executable, "-m", "vantage.cli", *SEARCH, "--jobs", "2"], start_new_session=True,
                               stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    search = Path("runs/search/tiny-DelayedReward/a2c-1")
    deadline = time.monotonic() + 60
    while not list(search.glob("trial-*/seed-0/checkpoints/step-000000001*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    begun = sorted(search.glob("trial-*"))
    assert begun and not (search / "results.csv").exists()

    assert main(SEARCH) == 0
    rows = results()
    assert [(row["trial"], row["state"], row["lr"], row["entropy_coef"]) for row in rows] == [
        ("0", "complete", "0.001", "0"), ("1", "complete", "0.001", "0.05"), ("2", "complete", "0.01", "0"),
        ("3", "complete", "0.01", "0.05")]
    assert len(list(search.glob("trial-*"))) == 4
    for row in rows:
        config = RunDirectory.open(Path(row["runs"]) / "seed-0").config
        *_, last = train(config, run=f"whole-{row['trial']}")
        assert last.step == int(row["steps"])
        assert last.metrics["rollout/ep_rew_mean"] == pytest.approx(float(row["value"]), abs=1e-5)
    assert len({row["value"] for row in rows}) > 1


def test_poor_trials_are_pruned_and_the_best_is_what_train_takes(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("space.json", {"lr": {"low": 1e-4, "high": 0.1, "log": True, "as": "linear:{}:0"}})
    command = ["search", "a2c", "--env", "tiny:Bandit", "--space", "space.json", "--trials", "6", "--seeds", "2",
               "--steps", "1200", "--min-steps", "300", "--reduction", "4", *SHORT]
    assert main(command) == 0
    directory = Path("runs/search/tiny-Bandit/a2c-1")
    rows = results(str(directory))
    complete = [row for row in rows if row["state"] == "complete"]
    assert len(rows) == 6 and complete and all(row["state"] in ("complete", "pruned") for row in rows)
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert pruned and max(int(row["steps"]) for row in pruned) < min(int(row["steps"]) for row in complete)
    trials = optuna.load_study(study_name=None, storage=f"sqlite:///{directory}/study.db").trials
    first = [trial.intermediate_values[300] for trial in trials]
    assert all(first[int(row["trial"])] < max(first[:int(row["trial"])]) for row in pruned)
    for row in rows:
        steps = 1200 if row["state"] == "complete" else int(row["compared_at"])
        for seed in (0, 1):
            run = RunDirectory.open(Path(row["runs"]) / f"seed-{seed}")
            summary, update = run.read_summary(), run.config.env.num_envs * run.config.runtime.rollout_lengths[0]
            assert summary["status"] == "done" and 0 <= summary["steps"] - steps < update
            # On the schedule of the whole trial from its first step.
            assert (run.config.run.seed, run.config.run.schedule_steps) == (seed, 1200)
            assert run.config.optimizer.lr == row["lr"]
    assert {path.name for path in directory.iterdir()} >= {"results.md", "history.png", "slices.png", "importance.png",
                                                           "curves.png", "study.db"}
    best = max(complete, key=lambda row: float(row["value"]))
    capsys.readouterr()
    assert main(["train", "--from-search", str(directory), "--seed", "5", "--dry-run"]) == 0
    config = Config.from_json(capsys.readouterr().out, source="output")
    assert (config.env.id, config.optimizer.lr, config.run.seed, config.run.steps, config.run.schedule_steps) == (
        "tiny:Bandit", best["lr"], 5, 1200, 0)

    monkeypatch.setattr("vantage.tools.search.scheduler.write_plots", lambda *_: None)
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")}
    assert main(command) == 0
    assert "6 of 6 trials ended" in capsys.readouterr().out
    assert results(str(directory)) == rows
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")} == before


def test_a_stopped_search_saves_and_leaves_nothing_running_and_an_error_ends_one_trial_alone() -> None:
    write("grid.json", {"reward_scale": [1e30, 1]})
    command = [sys.executable, "-m", "vantage.cli", "search", "a2c", "--env", "tiny:DelayedReward", "--grid",
               "grid.json", "--steps", "1M", "--log-every-seconds", "0.1", "--no-reward-norm", *SHORT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True, env=environment)
    search = Path("runs/search/tiny-DelayedReward/a2c-1")
    deadline = time.monotonic() + 60
    record = search / "trial-001" / "seed-0" / "metrics.jsonl"
    while not (record.exists() and record.stat().st_size):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it, to all processes of the group
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped by SIGINT" in out
    failed, left = results(str(search))
    assert failed["state"] == "failed" and "not finite" in failed["error"]
    assert left["state"] == "waiting"
    summary = RunDirectory.open(search / "trial-001" / "seed-0").read_summary()
    assert summary["status"] == "interrupted" and summary["steps"] > 0
