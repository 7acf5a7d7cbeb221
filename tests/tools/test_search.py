"""`vantage search`: after kills and stops no trial is lost or trained twice; poor trials are pruned."""

from __future__ import annotations

import csv
import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import optuna
import pytest
from matplotlib import pyplot
from zygote import call

from vantage.algorithms.a2c import A2C
from vantage.cli import main
from vantage.config.config import Config
from vantage.config.configure import configure
from vantage.errors import VantageError
from vantage.runs.checkpoint import newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics
from vantage.runtimes.trainer import Trainer
from vantage.tools.child_runs import ForeignRunError, updates_to
from vantage.tools.search.options import Options
from vantage.tools.search.plan import Plan, make_plan
from vantage.tools.search.scheduler import retry_trial_of
from vantage.tools.search.study import distinct, enqueue, load_study, open_storage, requeue
from vantage.tools.search.worker import Worker, is_of_machine

pytestmark = pytest.mark.integration

SHORT = ["--threads", "1", "--no-tensorboard", "--eval-every", "0", "--num-envs", "4", "--hidden", "8"]


def write(name: str, value: Any) -> str:
    Path(name).write_text(json.dumps(value))
    return name


def results(directory: Path) -> list[dict[str, str]]:
    """The rows by the trials' numbers."""
    with (directory / "results.csv").open(newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: int(row["trial"]))


def plan(space: Any = None, *, given: Any = None, **options: Any) -> Plan:
    file = write("space.json", space or {"lr": {"low": 1e-4, "high": 1e-2, "log": True}})
    return make_plan("a2c", "CartPole-v1", {"steps": 100_000, **(given or {})}, Options(space=file, **options))


def test_a_grid_is_the_full_product_and_lists_in_one_object_go_together() -> None:
    grid = write("grid.json", {"lr": ["1e-3", "linear:1e-3:0"],
                               "size": {"num_envs": [8, 16], "hidden": [[32], [64, 64]]}})
    assert make_plan("a2c", "CartPole-v1", {}, Options(grid=grid)).points == [
        {"lr": 0.001, "num_envs": 8, "hidden": "32"}, {"lr": 0.001, "num_envs": 16, "hidden": "64,64"},
        {"lr": "linear:1e-3:0", "num_envs": 8, "hidden": "32"},
        {"lr": "linear:1e-3:0", "num_envs": 16, "hidden": "64,64"}]


@dataclass(frozen=True)
class Tabled(A2C):
    """A field that is a list."""

    stages: list[int] = field(default_factory=lambda: [1, 2])


def test_the_lists_of_an_algorithm_are_values_of_a_search() -> None:
    grid = write("grid.json", {"stages": [[3], [4, 5]]})
    chosen = make_plan("test_search:Tabled", "CartPole-v1", {}, Options(grid=grid))
    assert chosen.points == [{"stages": "[3]"}, {"stages": "[4, 5]"}]
    assert [chosen.config(point, 0).flat()["stages"] for point in chosen.points] == [[3], [4, 5]]


def test_a_range_is_whole_where_its_key_counts_something() -> None:
    chosen = plan({"num_envs": {"low": 4, "high": 64, "log": True}, "gamma": {"low": 0, "high": 1},
                   "rollout_length": {"low": 5, "high": 20, "step": 5}, "memory": ["none", "lstm"],
                   "lr": {"low": 1e-4, "high": 0.01, "log": True, "as": "linear:{}:0"}})
    params = {"num_envs": 5, "gamma": 0.5, "memory": "none", "rollout_length": 10, "lr": 0.00123456789}
    values = chosen.suggest(optuna.trial.FixedTrial(params))
    assert values == {**params, "lr": "linear:0.0012346:0"}
    assert [type(value) for value in values.values()] == [int, float, int, str, str]


def test_trials_are_compared_where_evaluations_are() -> None:
    assert plan().rungs == (15_000, 45_000, 100_000)  # 11,111 up to a multiple of eval_every, then three times that
    assert plan(reduction=2).rungs == (25_000, 50_000, 100_000)
    assert plan(pruner="none").rungs == (100_000,)
    assert plan(given={"eval_every": 0}).rungs == (11_111, 33_333, 100_000)
    assert [plan().metric, plan(given={"eval_every": 0}).metric] == ["eval/mean_reward", "rollout/ep_rew_mean"]


def test_a_trial_keeps_its_values_in_the_queue_and_in_retries() -> None:
    chosen = plan()
    study = load_study(chosen, open_storage(None, Path()))
    for _ in range(2):
        enqueue(study, chosen, 1)
    trial = study.ask()
    values = chosen.suggest(trial)
    requeue(study)
    trial = study.ask()
    assert (trial.number, chosen.suggest(trial)) == (0, values)
    trial.report(3.0, 11_111)
    dead: Any = SimpleNamespace(name="worker 1", exitcode=-9)
    for _ in range(3):
        trial.set_user_attr("worker", "worker 1")
        retry_trial_of(dead, study)
        trial = study.ask()
        assert [other.number for other in distinct(study)] == [trial.number]
        assert chosen.suggest(trial) == values and study.trials[trial.number].intermediate_values == {11_111: 3.0}
    retry_trial_of(dead, study)
    assert [other.state.name for other in distinct(study)] == ["FAIL"]
    with pytest.raises(VantageError, match="correct what the messages above name"):
        retry_trial_of(dead, study)


def test_no_trial_is_taken_twice() -> None:
    chosen = plan()
    studies = [load_study(chosen, open_storage(None, Path())) for _ in range(4)]
    enqueue(studies[0], chosen, 40)
    taken: list[int] = []

    def take(study: optuna.Study) -> None:
        taken.extend(study.ask().number for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take, studies))
    assert sorted(taken) == list(range(40))


def test_a_search_killed_while_it_retries_a_trial_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    chosen = plan()
    study = load_study(chosen, open_storage(None, Path()))
    enqueue(study, chosen, 1)
    study.ask().set_user_attr("worker", "worker 1")
    for name in ("vantage.tools.search.study.RETRY", "optuna.storages._CachedStorage.set_trial_state_values"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(name, kill)
            retry_trial_of(SimpleNamespace(name="worker 1", exitcode=-9), study)  # type: ignore[arg-type]
        requeue(study)
        assert [trial.state.name for trial in distinct(study)] == ["WAITING"]
        study.ask()


def test_a_full_disk_ends_the_search_and_fails_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Worker, trial: optuna.Trial) -> float:
        raise ValueError("cannot save") from OSError(28, "No space left on device")

    chosen = plan()
    study, worker = load_study(chosen, open_storage(None, Path())), Worker(chosen, None, Path(), 1, Pipe()[0])
    enqueue(study, chosen, 1)
    monkeypatch.setattr(Worker, "_train_trial", fail)
    trial = study.ask()
    with pytest.raises(SystemExit, match="cannot save"):
        worker(trial)
    with pytest.raises(VantageError, match="exit status 1"):
        retry_trial_of(SimpleNamespace(name=trial.user_attrs["worker"], exitcode=1), study)  # type: ignore[arg-type]
    assert [trial.state.name for trial in distinct(study)] == ["RUNNING"]
    with pytest.raises(VantageError, match="has taken the last trial"):
        worker(study.ask())
    assert not is_of_machine(FileNotFoundError(2, "no file"))


def test_a_kill_before_the_summary_or_the_first_checkpoint_costs_no_step() -> None:
    config = configure("a2c", env="tiny:DelayedReward", steps=600, num_envs=4, rollout_length=5, hidden="8", threads=1,
                       tensorboard=False, save_every=200, eval_every=0, lr=1e-3)
    run = Path("run")

    def steps() -> list[int]:
        return [report.step for report in updates_to(600, run, config, []) if report is not None]

    run.mkdir()  # killed while it was made
    with closing(updates_to(600, run, config, [])) as begun:
        next(begun)
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)
    (run / "metrics.jsonl").unlink()
    assert [steps()[0], steps()] == [0, []]
    directory = RunDirectory.open(run)
    directory.write_summary({**directory.read_summary(), "status": "running"})
    assert steps() == [] and read_metrics(run)[-1]["step"] == newest_step(run) == 600
    assert next(report.step for report in updates_to(800, run, config, []) if report is not None) == 600


def test_a_run_under_another_key_continues_with_the_code_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("a2c", env="tiny:DelayedReward", steps=600, num_envs=4, hidden="8", threads=1, tensorboard=False,
                       eval_every=0)
    run = Path("run")
    with closing(updates_to(600, run, config, [])) as begun:
        next(begun)
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("another user").resolve()))
    values = json.loads((run / "config.json").read_text())
    others = values | {"policy": values["policy"] | {"network": "stranger:Net"}}
    (run / "config.json").write_text(json.dumps(others))
    with pytest.raises(ForeignRunError, match=r"stranger:Net; .* by `vantage resume run --trust`, or set") as error:
        next(updates_to(600, run, config, []))
    assert is_of_machine(error.value)
    (run / "config.json").write_text(json.dumps(values))
    *_, last = updates_to(600, run, config, [])
    assert last is not None and (last.step, last.status) == (640, "done")


def test_a_killed_search_ends_as_an_undisturbed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.scheduler.write_plots", lambda *_: None)  # another test looks at them
    write("grid.json", {"lr": [1e-3, 1e-2], "entropy_coef": [0, 0.05]})
    command = ["search", "a2c", "--env", "process_envs:Signalling", "--grid", "grid.json", "--steps", "2000",
               "--save-every", "500", "--jobs", "2", *SHORT]
    directory = Path("runs/search/process_envs-Signalling/a2c-1")
    for name in ("worker", "search"):  # kill a worker in one of the first trials, then the search
        Path(name).touch()
    killed = call(["-m", "vantage", *command])
    assert killed.returncode == -signal.SIGKILL and not (directory / "results.csv").exists()
    assert not Path("worker").exists() and not Path("search").exists()

    assert main(command) == 0
    rows = results(directory)
    assert [(row["trial"], row["state"], row["lr"], row["entropy_coef"]) for row in rows] == [
        ("0", "complete", "0.001", "0.0"), ("1", "complete", "0.001", "0.05"), ("2", "complete", "0.01", "0.0"),
        ("3", "complete", "0.01", "0.05")]
    assert len(list(directory.glob("trial-*"))) == 4
    for row in rows:
        config = RunDirectory.open(Path(row["runs"]) / "seed-0").config
        *_, last = Trainer(config, run=f"whole-{row['trial']}")
        assert last.step == int(row["steps"])
        assert last.metrics["rollout/ep_rew_mean"] == pytest.approx(float(row["value"]), abs=1e-5)
    assert len({row["value"] for row in rows}) > 1


def test_poor_trials_are_pruned_and_the_best_is_what_train_takes(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("space.json", {"lr": {"low": 1e-4, "high": 0.1, "log": True, "as": "linear:{}:0"}})
    command = ["search", "a2c", "--env", "tiny:Bandit", "--space", "space.json", "--trials", "6", "--seeds", "2",
               "--steps", "1200", "--storage", "shared.db", *SHORT]
    own, backend = pyplot.figure(), matplotlib.get_backend()
    assert main(command) == 0
    directory = Path("runs/search/tiny-Bandit/a2c-1")
    rows = results(directory)
    complete, pruned = ([row for row in rows if row["state"] == state] for state in ("complete", "pruned"))
    assert complete and pruned and len(complete) + len(pruned) == len(rows) == 6
    assert max(int(row["steps"]) for row in pruned) < min(int(row["steps"]) for row in complete)
    trials = optuna.load_study(study_name=None, storage="sqlite:///shared.db").trials
    first = [trial.intermediate_values[133] for trial in trials]
    assert all(first[int(row["trial"])] < max(first[:int(row["trial"])])
               for row in pruned if row["compared_at"] == "133")
    for row in rows:
        steps = 1200 if row["state"] == "complete" else int(row["compared_at"])
        for seed in (0, 1):
            run = RunDirectory.open(Path(row["runs"]) / f"seed-{seed}")
            summary, update = run.read_summary(), run.config.env.num_envs * run.config.runtime.rollout_lengths[0]
            assert summary["status"] == "done" and 0 <= summary["steps"] - steps < update
            # On the schedule of the whole trial from its first step.
            assert (run.config.run.seed, run.config.run.schedule_steps) == (seed, 1200)
            assert str(run.config.optimizer.lr) == row["lr"]
    assert pyplot.fignum_exists(own.number) and matplotlib.get_backend() == backend
    assert {path.name for path in directory.iterdir()} >= {"history.png", "slices.png", "importance.png", "curves.png"}
    assert "shared.db" not in (run.path / "meta.json").read_text()  # a storage's URL may hold a password
    best = max(complete, key=lambda row: float(row["value"]))
    assert f"\n{best['trial']},complete," in (directory / "results.csv").read_text()[:400]
    capsys.readouterr()
    assert main(["train", "--from-search", str(directory), "--seed", "5", "--dry-run"]) == 0
    config = Config.from_json(capsys.readouterr().out, source="output")
    assert (config.env.id, str(config.optimizer.lr), config.run.seed, config.run.steps, config.run.schedule_steps) == (
        "tiny:Bandit", best["lr"], 5, 1200, 0)

    monkeypatch.setattr("vantage.tools.search.scheduler.write_plots", lambda *_: None)
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")}
    assert main(command) == 0
    assert results(directory) == rows
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")} == before


def test_a_stopped_search_saves_and_an_error_ends_one_trial_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write("grid.json", {"reward_scale": [1e30, 1]})
    Path("stop").touch()
    assert main(["search", "a2c", "--env", "process_envs:Signalling", "--grid", "grid.json", "--steps", "1M",
                 "--no-reward-norm", *SHORT]) == 130
    assert "stopped by SIGINT" in capsys.readouterr().out
    directory = Path("runs/search/process_envs-Signalling/a2c-1")
    failed, left = results(directory)
    assert failed["state"] == "failed" and "not finite" in failed["error"]
    assert left["state"] == "waiting"
    summary = RunDirectory.open(directory / "trial-001" / "seed-0").read_summary()
    assert summary["status"] == "interrupted" and summary["steps"] > 0


def test_a_search_without_a_value_ends_with_an_error(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.scheduler.train", lambda *_: None)
    write("grid.json", {"lr": [1e-3]})
    assert main(["search", "a2c", "--env", "tiny:Bandit", "--grid", "grid.json", *SHORT]) == 1
    error = capsys.readouterr().err
    assert "no trial has a value" in error and "a2c-1/results.csv" in error and error.count("\n") == 1
