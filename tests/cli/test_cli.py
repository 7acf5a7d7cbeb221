"""Trainings by the command: what they leave behind, signals, kills, failures and lost output."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import zygote
from checkpoints import flip
from faulty_envs import Counter
from processes import assert_group_ends, wait_for
from zygote import Command

from vantage.cli import main
from vantage.errors import EnvError
from vantage.runs.checkpoint import load_latest

pytestmark = pytest.mark.integration

CARTPOLE = ["train", "a2c", "--env", "CartPole-v1", "--seed", "0", "--threads", "1", "--no-tensorboard"]


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    return Command(["-m", "vantage", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_train_evaluate_plot_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                        caplog: pytest.LogCaptureFixture) -> None:
    run = str(tmp_path / "run")
    caplog.set_level(logging.INFO)
    status, out, _ = call([*CARTPOLE, "--steps", "1k", "--run", run], capsys)
    assert status == 0 and "defaults: all algorithms on classic control: measured" in out
    assert "Next: vantage evaluate" in out
    assert not caplog.messages, "a root logger that an environment sets up receives nothing"
    status, _, err = call([*CARTPOLE, "--run", run], capsys)
    assert status == 2 and "vantage resume" in err, "a run is not overwritten"
    evaluations = [call(["evaluate", run, "--episodes", "5", mode, "--json"], capsys)
                   for mode in ("--stochastic", "--stochastic", "--deterministic")]
    assert evaluations[0] == evaluations[1] != evaluations[2]
    result = json.loads(evaluations[2][1])
    assert result["episodes"] == 5 == len(result["returns"]) and result["deterministic"] is True
    assert set(result) >= {"env", "return_mean", "return_std", "return_min", "return_max", "length_mean"}
    assert call(["plot", run, "-o", str(tmp_path / "curve.png")], capsys)[0] == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert call(["resume", run, "--steps", "1200", "--extend-schedule"], capsys)[0] == 0
    assert load_latest(tmp_path / "run").step >= 1_200
    for path in tmp_path.glob("run/checkpoints/*/model.safetensors"):
        flip(path)
    status, _, err = call(["resume", run, "--steps", "2k"], capsys)
    assert status == 1 and "model.safetensors" in err, "never from scratch in silence"


def train_long(run: Path, *words: str) -> list[str]:
    return [*CARTPOLE, "--eval-every", "0", "--log-every-seconds", "0.1", "--run", str(run), *words]


def assert_resumes_to_the_same_weights(run: Path, *words: str) -> None:
    whole = run.with_name("whole")
    assert main(train_long(whole, *words)) == 0
    assert load_latest(run).step < load_latest(whole).step
    assert main(["resume", str(run)]) == 0
    ours, theirs = load_latest(run).tensors, load_latest(whole).tensors
    for group in ("model", "optimizer"):
        for name, tensor in theirs[group].items():
            assert torch.equal(ours[group][name], tensor), name


def test_a_killed_run_of_ranks_resumes_to_the_same_weights(tmp_path: Path) -> None:
    run, ranks = tmp_path / "run", ["--num-workers", "2", "--steps", "3k", "--save-every", "250"]
    process = start(train_long(run, *ranks))
    wait_for(lambda: len(list(run.glob("checkpoints/step-*/manifest.json"))) >= 3, process)
    process.kill()
    process.communicate()
    assert_resumes_to_the_same_weights(run, *ranks)


def test_a_signal_saves_and_names_the_way_back(tmp_path: Path) -> None:
    run, long = tmp_path / "run", ["--steps", "16k", "--save-every", "1k"]
    words, metrics, before = train_long(run, *long), run / "metrics.jsonl", 0
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        process = start(words)
        wait_for(lambda least=before: metrics.exists() and metrics.stat().st_size > least, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == status and "vantage resume" in out and err.startswith("stopping")
        assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
        words, before = ["resume", str(run)], metrics.stat().st_size
    assert_resumes_to_the_same_weights(run, *long)


def test_a_signal_before_training_leaves_nothing(tmp_path: Path) -> None:
    process = start(["train", "a2c", "--env", "odd:Misbehaving", "--env-kwargs", '{"how": "slow start"}',
                     "--threads", "1"], cwd=tmp_path)
    wait_for(lambda: (tmp_path / "starting").exists(), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143 and err == "vantage: stopped before training began\n"
    assert not (tmp_path / "runs").exists()


HANGING = ["train", "a2c", "--env", "odd:Misbehaving", "--env-kwargs", '{"how": "hang"}', "--vector", "async",
           "--num-envs", "2", "--no-tensorboard"]


@pytest.mark.parametrize("killed", [True, False])
def test_hanging_workers_end_with_a_killed_run_and_at_a_second_signal(killed: bool, tmp_path: Path) -> None:
    process = start([*HANGING, "--run", str(tmp_path / "run")], start_new_session=True)
    wait_for(lambda: (tmp_path / "run" / "checkpoints").exists(), process)
    time.sleep(1)  # the workers hang after 40 steps
    if killed:
        process.kill()
    else:
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: b"stopping" in os.read(process.stderr.fileno(), 100), process)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == (-signal.SIGKILL if killed else 130)
    assert_group_ends(process.pid, 5)  # communicate would wait for the workers, which have its pipes too
    process.communicate()


@pytest.mark.parametrize(("number", "status", "several"), [
    (signal.SIGTERM, 143, ["--vector", "async"]),
    (signal.SIGINT, 130, ["--num-workers", "2"]),
])
def test_no_process_is_left_behind(number: int, status: int, several: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start([*CARTPOLE, "--steps", "10M", *several, "--num-envs", "2", "--run", str(run)],
                    start_new_session=True)
    wait_for(lambda: any(path.stat().st_size for path in run.glob("metrics.jsonl")), process)
    os.killpg(process.pid, number)  # as Ctrl-C in a terminal or a scheduler's timeout: the whole group
    _, err = process.communicate(timeout=30)
    assert process.returncode == status and "Traceback" not in err
    assert_group_ends(process.pid, 5)


def test_what_an_environment_started_ends_with_a_killed_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(["train", "a2c", "--env", "odd:Leaving", "--num-envs", "1", "--steps", "100M", "--no-tensorboard",
                     "--threads", "1", "--run", str(run)], start_new_session=True)
    wait_for(lambda: (run / "checkpoints").exists(), process)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert_group_ends(process.pid, 5)  # communicate would wait for them, which have its pipes too
    process.communicate()


def test_an_environment_that_hangs_in_native_code_is_named_by_its_stack(tmp_path: Path) -> None:
    run = tmp_path / "run"
    program = ("import sys; from vantage import cli; from vantage._host import time_limit; "
               "time_limit.GRACE_SECONDS = 0.25; sys.exit(cli.main())")
    done = zygote.call(["-c", program, "train", "a2c", "--env", "odd:Misbehaving", "--env-kwargs",
                        '{"how": "hang in native code"}', "--env-timeout", "1", "--no-tensorboard", "--threads", "1",
                        "--run", run])
    err = done.stderr
    assert done.returncode == 1 and re.search(r'File ".*odd\.py", line \d+ in play', err), err
    assert "vantage: no answer from odd:Misbehaving for 1 s in native code, at the stack above; it hangs, or" in err
    assert load_latest(run).step == 0


@pytest.mark.parametrize(("how", "cause"), [("raise", "the simulator broke"), ("exit", "SystemExit")])
def test_a_failing_environment_is_status_1_with_its_cause_and_a_checkpoint(
        how: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    status, out, err = call(["train", "a2c", "--env", "odd:Misbehaving", "--env-kwargs", json.dumps({"how": how}),
                             "--num-envs", "2", "--threads", "1", "--no-tensorboard", "--run", str(run)], capsys)
    assert status == 1 and cause in err and "environment" in err
    step = load_latest(run).step
    assert step > 0 and f"failed; fix the error, then continue from step {step:,} with: vantage resume {run}\n" in out


def test_a_run_that_fails_in_its_first_steps_is_resumed_from_step_0(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--env", "faulty_envs:Counter", "--steps", "40", "--eval-every", "0", "--no-tensorboard", "--run", "run"]
    status, out, _ = call(["train", "a2c", *short, "--env-kwargs", '{"fault": "raise"}'], capsys)
    assert status == 1 and "failed; fix the error, then continue from step 0 with: vantage resume run\n" in out
    monkeypatch.setattr(Counter, "fault", property(lambda self: "", lambda self, fault: None), raising=False)
    assert call(["resume", "run"], capsys)[0] == 0 and load_latest(Path("run")).step >= 40


def test_a_run_outlives_its_standard_output(tmp_path: Path) -> None:
    def shell(arguments: str, redirection: str) -> tuple[int, bytes]:
        command = f"{sys.executable} -m vantage {arguments} {redirection}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE,
                              env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60)
        return done.returncode, done.stderr

    assert shell(f"{' '.join(CARTPOLE)} --steps 200 --run run", ">/dev/full") == (0, b"")
    assert load_latest(tmp_path / "run").step >= 200
    status, err = shell("evaluate run --episodes 1", ">/dev/full")
    assert status == 1 and b"No space left" in err
    assert shell("list presets", ">&-") == (0, b"")


def test_a_report_evaluates_draws_and_says_what_to_type_next(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    status, out, _ = call([*CARTPOLE, "--steps", "500", "--log-every-seconds", "0", "--report", "--run", str(run)],
                          capsys)
    assert status == 0 and (run / "curve.png").exists() and (run / "game.mp4").stat().st_size > 1_000
    go_on = f"resume {run} --steps {2 * load_latest(run).step} --extend-schedule"
    assert all(word in out for word in ("mean", "curve.png, the", go_on, "evaluate"))
    (run / "curve.png").unlink()
    (run / "curve.png").mkdir()
    status, out, _ = call(["resume", str(run), "--steps", "600", "--extend-schedule", "--report"], capsys)
    assert status == 0 and "no curve: " in out and "curve.png is a directory" in out and "Next:" in out
    assert "curve.png, the" not in out
    goal = str(tmp_path / "goal")
    status, out, _ = call([*CARTPOLE, "--steps", "1M", "--stop-at-return", "5", "--report", "--run", goal], capsys)
    assert status == 0 and "reached stop_at_return=5" in out and f"resume {goal}" not in out
    assert call(["resume", goal], capsys)[0] == 2


def test_a_report_that_is_interrupted_says_that_the_training_is_saved(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vantage.tools.final_report.evaluate", interrupted)
    run = tmp_path / "run"
    status, out, _ = call([*CARTPOLE, "--steps", "200", "--report", "--run", str(run)], capsys)
    assert status == 130 and f"saved in {run}" in out and f"vantage report {run}" in out
    assert load_latest(run).step >= 200


def test_a_report_whose_evaluation_fails_goes_on(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise EnvError("the simulator is gone")

    monkeypatch.setattr("vantage.tools.final_report.evaluate", failing)
    status, out, _ = call([*CARTPOLE, "--steps", "200", "--report", "--run", str(tmp_path / "run")], capsys)
    assert status == 0 and "no evaluation: the simulator is gone" in out and "Next:" in out


def test_bench_prints_the_parts_and_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(["bench", "a2c", *CARTPOLE[2:], "--seconds", "0.2", "--json"], capsys)
    result = json.loads(out)
    assert status == 0 and min(result.values()) > 0


def test_a_command_without_a_seed_draws_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = set()
    for name in ("first", "second"):
        run = tmp_path / name
        assert main(["train", "a2c", "--env", "tiny:Bandit", "--steps", "16", "--threads", "1", "--no-tensorboard",
                     "--run", str(run)]) == 0
        seed = json.loads((run / "config.json").read_text())["run"]["seed"]
        assert f"- seed {seed}, drawn for this run" in capsys.readouterr().out and 0 <= seed < 2**31
        seeds.add(seed)
    assert len(seeds) == 2
