"""How a run ends, and what its recorder writes down."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stopping import stop_after

import vantage
from vantage.errors import CheckpointError, ConfigError
from vantage.runs.checkpoint import load_latest
from vantage.runs.checkpoint_files import Groups
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter, read_metrics
from vantage.runtimes import session
from vantage.runtimes.evaluator import EvaluationResult
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.recorder import Recorder
from vantage.runtimes.startup import new_model
from vantage.runtimes.train_loop import updates
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.tools.curves import make_curve

pytestmark = pytest.mark.integration


def config(**options: Any) -> vantage.Config:
    return vantage.configure("a2c", **({"env": "CartPole-v1", "tensorboard": False, "eval_every": 100} | options))


class Reached:
    """A run that is finished until it is saved: what its workers bring in at the end takes its mean below the goal."""

    def __init__(self) -> None:
        self.status = "running"
        self.recorder = SimpleNamespace(last_report=None, goal="the mean of the last games", finished=True,
                                        first_report=lambda: None, last_evaluation_due=False, save=lambda **_: None)

    def stop(self) -> None:
        self.recorder.finished, self.recorder.goal = False, None

    def close(self, status: str) -> None:
        self.status = status


def test_a_run_whose_goal_was_reached_is_done_whatever_comes_in_while_it_stops(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run = Reached()
    assert list(updates(run)) == [None]  # type: ignore[arg-type]
    assert run.status == "done" and caplog.messages == ["ended: the mean of the last games"]


@pytest.mark.parametrize("algo", ["a2c", "a3c"])
def test_a_run_that_cannot_start_leaves_none_of_its_files_open(algo: str, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    writers: list[MetricWriter] = []

    def fail(recorder: Recorder) -> None:
        writers.append(recorder._writer)
        raise ValueError("broken")

    monkeypatch.setattr(Recorder, "save", fail)
    with pytest.raises(ValueError, match="broken"):
        next(vantage.Trainer(vantage.configure(algo, env="CartPole-v1", num_workers=1), run=tmp_path / "run"))
    assert [(writer._file, writer._board) for writer in writers] == [(None, None)]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    chosen = config()
    directory = RunDirectory.create(chosen, path=tmp_path / "run", argv=())
    model = new_model(chosen, EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,))))

    def tensors() -> Groups:
        return {"model": {"w": torch.zeros(1)}}

    return Recorder(chosen, directory, None, Progress(1.0), model, tensors, tensors)


def evaluate(recorder: Recorder, score: float, step: int, steps: int = 0) -> None:
    metrics = {"eval/mean_reward": score, "eval/deterministic": 1.0}
    recorder.record_evaluation(EvaluationResult(metrics, False, score, steps), step)


def test_an_evaluation_that_is_due_when_a_goal_is_reached_is_made_though_late_games_miss_it(
        recorder: Recorder) -> None:
    recorder.progress.evaluation_due = True
    assert not recorder.finished and recorder.last_evaluation_due
    recorder.progress.solved = True
    assert not recorder.last_evaluation_due


def test_of_two_evaluations_between_two_reports_each_is_written_with_the_step_of_its_policy(
        recorder: Recorder) -> None:
    for step, score in ((100, 1.0), (200, 0.0)):
        recorder.progress.add(Advance(steps=100))
        evaluate(recorder, score, step)
        recorder.progress.add(Advance(steps=50))
    recorder.report()
    run = recorder.directory.path
    lines = [(line["eval/step"], line["eval/mean_reward"], line["step"]) for line in read_metrics(run)
             if "eval/step" in line]
    assert lines == [(100, 1.0, 100), (200, 0.0, 250)]
    for axis in ("steps", "frames"):
        curve = make_curve(recorder.config, read_metrics(run), axis, "eval/mean_reward", source=run)
        assert curve.x.tolist() == [100, 200] and curve.y.tolist() == [1.0, 0.0]


def test_an_evaluation_that_took_longer_than_its_interval_is_followed_by_one_of_the_last_policy(
        recorder: Recorder) -> None:
    recorder.config, progress = recorder.config.change(eval_every=0, eval_every_seconds=1e-9), recorder.progress
    progress.add(Advance(steps=100))
    progress.restart_evaluation_clock()  # begins
    evaluate(recorder, 1.0, 100, steps=5)
    assert not recorder.last_evaluation_due and progress.last_eval_steps == progress.eval_steps == 5
    progress.add(Advance(steps=1))
    evaluate(recorder, 1.0, 100)
    assert recorder.last_evaluation_due


def test_rates_are_of_the_steps_before_an_evaluation_which_has_a_share_of_its_own(recorder: Recorder) -> None:
    progress = recorder.progress
    assert "time/fps" not in recorder.report().metrics, "no step was made"
    progress.add(Advance(steps=100, updates=1, metrics={"train/entropy": 2.0}))
    before = recorder.report()
    progress.add(Advance(eval_seconds=1e9))
    evaluate(recorder, 1.0, 100)
    after = recorder.report()
    assert after.metrics["eval/mean_reward"] == 1.0
    for name in ("time/fps", "time/eval_share", "train/entropy"):
        assert after.metrics[name] == before.metrics[name], name
    assert len(read_metrics(recorder.directory.path)) == 1
    progress.add(Advance(steps=100))
    assert recorder.report().metrics["time/eval_share"] > 1


@pytest.mark.parametrize(("options", "goal"), [
    ({"stop_at_eval": -1.0, "eval_every": 64, "eval_episodes": 2}, r"stop_at_eval=-1, with the policy in best/"),
    ({"stop_at_return": 0.0}, "stop_at_return=0")])
def test_a_run_that_reached_its_goal_is_not_resumed(options: dict[str, Any], goal: str, tmp_path: Path) -> None:
    *_, last = vantage.Trainer(config(env="tiny:Bandit", steps=10**6, **options), run=tmp_path / "run")
    assert last.status == "done" and last.step < 10_000
    with pytest.raises(ConfigError, match=f"reached {goal}; .* init_from"):
        next(vantage.Trainer.resume(tmp_path / "run"))


def test_a_last_evaluation_that_was_cut_short_is_made_by_a_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert stop_after(2, run, config(env="tiny:Bandit", steps=128, eval_every=128)) == 128
    assert not any("eval/mean_reward" in line for line in read_metrics(run))
    *_, last = vantage.Trainer.resume(run)
    lines = read_metrics(run)
    assert last.step == 128 and [line["step"] for line in lines if "eval/step" in line] == [128]
    assert len({line["step"] for line in lines}) == len(lines), "one line a step"
    assert all(line["time/fps"] for line in lines) and last.metrics["time/fps"] > 0
    assert not load_latest(run).state["progress"]["evaluation_due"]
    with pytest.raises(ConfigError, match=r"has done its 128 steps; give a larger total to go on, such as steps=256 "):
        next(vantage.Trainer.resume(run))


def test_a_resume_to_fewer_steps_than_there_are_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    step = stop_after(2, run, config(env="tiny:Bandit", steps=512, lr="linear:1e-3:0", eval_every=0))
    with pytest.raises(ConfigError, match=f"has {step} steps already, and steps=1 asks for no more; give a larger "
                       "total, or leave steps out to go on to 512$"):
        next(vantage.Trainer.resume(run, steps=1))
    assert [report.step for report in vantage.Trainer.resume(run)][-1] == 512
    with pytest.raises(ConfigError, match="has done its 512 steps; give a larger total to go on, such as steps=1024 "
                       "and extend_schedule=True, as lr is 0 now"):
        next(vantage.Trainer.resume(run, steps=256))
    assert [report.step for report in vantage.Trainer.resume(run, steps=1024, extend_schedule=True)][-1] == 1024


def test_a_run_that_was_killed_after_its_last_checkpoint_is_recorded_as_done(tmp_path: Path) -> None:
    list(vantage.Trainer(config(env="tiny:Bandit", steps=64, eval_every=0), run=tmp_path / "run"))
    directory = RunDirectory.open(tmp_path / "run")
    done = directory.read_summary()
    directory.write_summary(done | {"status": "running"})
    with pytest.raises(ConfigError, match="has done its"):
        next(vantage.Trainer.resume(directory.path))
    assert directory.read_summary() == done and done["status"] == "done"


def test_a_resume_that_cannot_write_the_config_lets_go_of_what_it_started(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = vantage.Trainer(config(steps=10**6), run=tmp_path / "run")
    next(reports)
    reports.close()
    run = Reached()

    def full(directory: RunDirectory, changed: vantage.Config, *, device: str | None = None) -> None:
        raise ConfigError("no space")

    monkeypatch.setattr("vantage.runtimes.training.runtime_of", lambda config: lambda *arguments: run)
    monkeypatch.setattr(RunDirectory, "change_config", full)
    with pytest.raises(ConfigError, match="no space"):
        next(vantage.Trainer.resume(tmp_path / "run"))
    assert run.status == "interrupted"


@pytest.mark.parametrize("algo", ["a2c", "a3c"])
def test_a_program_that_ends_amid_a_training_saves_it_and_a_fork_that_ends_leaves_it_alone(
        algo: str, tmp_path: Path) -> None:
    """Workers' processes end too, for which the program would wait."""
    (tmp_path / "program.py").write_text(f"""
import os, sys, vantage
if __name__ == "__main__":
    options = dict(tensorboard=False, eval_every=0, log_every_seconds=0.1, steps=10**9)
    reports = vantage.Trainer(vantage.configure("{algo}", env="CartPole-v1", num_workers=1, **options), run="run")
    while next(reports).step == 0:
        pass
    if "{algo}" == "a2c":
        if (child := os.fork()) == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        assert "running" in open("run/summary.json").read()
""")
    assert subprocess.run([sys.executable, "program.py"], cwd=tmp_path, timeout=60).returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"
    assert load_latest(tmp_path / "run").step > 0


def test_runs_that_fail_at_the_end_of_the_program_keep_none_from_being_saved(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    closed = []

    def training(error: Exception | None) -> Generator[None]:
        try:
            yield
        finally:
            closed.append(error)
            if error is not None:
                raise error

    unfinished = [training(error) for error in (CheckpointError("no space"), None, ValueError("executing"), None)]
    for each in unfinished:
        next(each)
    monkeypatch.setattr(session, "_UNFINISHED", unfinished)
    session._close_unfinished()
    assert len(closed) == 4 and caplog.messages == ["a run could not be saved at the end of the program: no space"]
