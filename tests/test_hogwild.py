"""The asynchronous runtime, with real processes: one worker is sync, failures are noticed, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.errors import ConfigError, EnvError, NonFiniteError
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runs.metrics import read_metrics

TESTS = Path(__file__).parent
QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 0.2, "eval_every": 0}


@pytest.fixture(autouse=True)
def importable_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def configure(algo: str = "a3c", **options: Any) -> vantage.Config:
    return vantage.configure(algo, **({"env": "CartPole-v1", "num_workers": 1} | QUIET | options))


def children() -> list[int]:
    """Processes that this one started and that still run, the resource tracker apart."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.parametrize("options", [
    {"hidden": "16", "steps": 200 * 40},
    {"hidden": "16", "steps": 200 * 40, "memory": "lstm", "memory_size": 8},
    {"hidden": "16", "steps": 200 * 40, "env": "Pendulum-v1", "obs_norm": True, "reward_norm": True,
     "optimizer": "rmsprop_tf"},
    {"algo": "acer", "hidden": "16", "steps": 50 * 40, "replay_start": 200},
    {"algo": "acer", "hidden": "16", "steps": 50 * 40, "replay_start": 200, "env": "Pendulum-v1"},
], ids=["feed-forward", "lstm", "gaussian", "acer", "acer-gaussian"])
def test_one_worker_is_sync_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    options = {"num_envs": 4, "rollout_length": 10, **options}
    acer = options.pop("algo", None)
    runs = {"sync": (acer or "a2c", {"num_workers": 0}), "hogwild": (acer or "a3c", {"runtime": "hogwild"})}
    for name, (algo, own) in runs.items():
        *_, last = vantage.train(configure(algo, **options, **own), run=tmp_path / name)
        assert last.status == "done" and last.step == options["steps"]
    ours, theirs = (load_latest(tmp_path / name).tensors for name in ("hogwild", "sync"))
    for name, tensor in theirs.get("average", {}).items():
        assert torch.equal(ours["average"][name], tensor)
    for name, tensor in theirs["model"].items():
        assert torch.equal(ours["model"][name], tensor), name
    for name, tensor in theirs["optimizer"].items():
        assert torch.equal(ours["optimizer"][name].flatten(), tensor.flatten()), name


def test_two_workers_learn_and_say_how_far_apart_they_are(tmp_path: Path) -> None:
    config = configure(env="tiny:DelayedReward", num_workers=2, steps=40_000, num_envs=4, rollout_length="4,6",
                       gamma=0.95, gae_lambda=0.95, lr="5e-3", eval_every=10_000, eval_episodes=20, reward_norm=False)
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.status == "done" and 40_000 <= last.step < 40_000 + 2 * 4 * 6
    lags = [line["train/policy_lag"] for line in read_metrics(tmp_path / "run") if "train/policy_lag" in line]
    assert 0 < sum(map(float, lags)) / len(lags) < 5  # type: ignore[arg-type]
    best = load_named(tmp_path / "run", "best")
    assert best.state["progress"]["best_return"] > 0.9
    assert set(best.tensors) == {"model"}


def test_a_resume_goes_on_with_weights_statistics_and_counters(tmp_path: Path) -> None:
    notes: list[str] = []
    config = configure(steps=4_096, memory="gru", memory_size=8, shared_statistics=False, num_workers=2)
    *_, first = vantage.train(config, run=tmp_path / "run")
    saved = load_latest(tmp_path / "run")
    *_, last = vantage.resume(tmp_path / "run", steps=8_192, notify=notes.append)
    assert last.step >= 8_192 and last.seconds > first.seconds and any("not to the same bits" in note for note in notes)
    resumed = load_latest(tmp_path / "run")
    assert resumed.state["workers_started"] == 4, "new workers have environments of their own"
    assert resumed.tensors["optimizer"]["step"].sum() > saved.tensors["optimizer"]["step"].sum()
    assert resumed.state["progress"]["episodes"] > saved.state["progress"]["episodes"]


def test_an_evaluation_can_end_the_run(tmp_path: Path) -> None:
    config = configure(env="tiny:Bandit", steps=10**7, num_envs=4, lr="1e-2", eval_every=1_000, eval_episodes=30,
                       stop_at_eval=0.95)
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.status == "done" and last.step < 10**6
    with pytest.raises(ConfigError, match="eval-every"):
        configure(stop_at_eval=1.0)


def test_a_killed_worker_is_noticed_and_replaced(tmp_path: Path) -> None:
    killed, noticed = 0.0, 0.0
    notes: list[str] = []

    def notify(text: str) -> None:
        nonlocal noticed
        notes.append(text)
        if "SIGKILL" in text:
            noticed = time.monotonic()

    reports = vantage.train(configure(steps=10**9, num_workers=2), run=tmp_path / "run", notify=notify)
    at = 0
    for report in reports:
        if report.step > 2_000 and not killed:
            killed = time.monotonic()
            os.kill(children()[0], signal.SIGKILL)
            at = report.step
        if noticed and report.step > at + 5_000 and len(children()) == 2:
            break
    reports.close()
    assert noticed - killed < 2  # within a second, on a machine that does other things too
    assert any("replaced (1 of 10)" in note for note in notes)
    assert not children()


def test_a_worker_that_raises_too_often_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    notes: list[str] = []
    config = configure(env="tiny:Misbehaving", steps=10**9, num_envs=2, rollout_length=5, max_restarts=1)
    with pytest.raises(EnvError, match=r"1 were replaced already(.|\n)*the simulator broke"):
        list(vantage.train(config, run=tmp_path / "run", notify=notes.append))
    assert any("replaced (1 of 1)" in note and "tiny.py" in note for note in notes)
    assert load_latest(tmp_path / "run").step > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert not children()


def test_a_hanging_worker_is_replaced(tmp_path: Path) -> None:
    config = configure(env="tiny:Misbehaving", env_kwargs={"how": "hang"}, steps=10**9, num_envs=2, rollout_length=5,
                       env_timeout=4, max_restarts=1)
    notes: list[str] = []
    with pytest.raises(EnvError, match="no update for 4 s"):
        list(vantage.train(config, run=tmp_path / "run", notify=notes.append))
    assert any("no update for 4 s" in note and "replaced (1 of 1)" in note for note in notes)
    assert not children()


def test_a_run_that_lost_a_worker_still_ends_at_its_steps(tmp_path: Path) -> None:
    """What a killed worker had not told of counts all the same; else the others end and nobody notices."""
    config = configure(steps=30_000, num_workers=2, log_every_seconds=0.05)
    killed: list[int] = []
    for report in vantage.train(config, run=tmp_path / "run"):
        workers = children()
        if report.step > 2_000 and not killed and workers:
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)
    assert killed and report.status == "done" and 30_000 <= report.step < 32_000


def test_the_last_policy_is_evaluated_though_an_evaluation_runs_when_it_falls_due(tmp_path: Path) -> None:
    config = configure(steps=8_192, eval_every=1_024, eval_episodes=20, num_workers=2)
    *_, last = vantage.train(config, run=tmp_path / "run")
    evaluated = [line["step"] for line in read_metrics(tmp_path / "run") if "eval/mean_reward" in line]
    assert evaluated[-1] == last.step


def test_an_evaluator_that_dies_between_evaluations_is_replaced(tmp_path: Path) -> None:
    config = configure(steps=200_000, eval_every=20_000, eval_episodes=1, num_workers=1)
    notes: list[str] = []
    killed = False
    for report in vantage.train(config, run=tmp_path / "run", notify=notes.append):
        if not killed and "eval/mean_reward" in report.metrics:
            os.kill(max(children()), signal.SIGKILL)  # started last
            killed = True
    assert killed and report.status == "done"
    assert any("the evaluator failed and is replaced (1 of 10)" in note for note in notes)


def test_a_caller_that_pauses_costs_no_workers(tmp_path: Path) -> None:
    notes: list[str] = []
    reports = vantage.train(configure(steps=10**9, env_timeout=2.5, log_every_seconds=0), run=tmp_path / "run",
                            notify=notes.append)
    for _ in range(3):
        assert next(reports).step >= 0
    os.kill(stopped := children()[0], signal.SIGSTOP)  # as a worker that waits to be heard
    time.sleep(4)
    os.kill(stopped, signal.SIGCONT)
    for _ in range(3):
        next(reports)
    reports.close()
    assert not any("replaced" in note for note in notes)


def test_what_no_restart_can_mend_ends_the_run_at_once(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="reset failed at 100% of"):
        list(vantage.train(configure(env="faulty_envs:Counter", env_kwargs={"fault": "reset"}), run=tmp_path / "run"))
    with pytest.raises(NonFiniteError, match="not finite"):
        list(vantage.train(configure(lr="1e30", max_grad_norm="0", steps=10**6, optimizer="rmsprop"),
                           run=tmp_path / "other"))
    assert not children()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_stops_within_five_seconds_and_saves(number: int, status: int, tmp_path: Path) -> None:
    process = start(tmp_path, "--env", "CartPole-v1")
    process_group_signal(process, number)
    started = time.monotonic()
    out, err = process.communicate(timeout=20)
    assert process.returncode == status and time.monotonic() - started < 6 and "Traceback" not in err
    assert "vantage resume" in out and load_latest(tmp_path / "run").step > 0
    assert_group_ends(process.pid, 5)  # the resource tracker needs a moment


def test_no_worker_outlives_a_killed_main_process(tmp_path: Path) -> None:
    process = start(tmp_path, "--env", "tiny:Misbehaving", "--env-kwargs", '{"how": "hang"}', "--num-envs", "1")
    process.kill()
    process.communicate(timeout=20)
    assert_group_ends(process.pid, 2)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A training with two workers that have begun to learn, or to hang, in a process group of its own."""
    command = [sys.executable, "-m", "vantage.cli", "train", "a3c", *arguments, "--num-workers", "2",
               "--no-tensorboard", "--log-every-seconds", "0.2", "--eval-every", "0", "--run", "run"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    deadline = time.monotonic() + 60
    while not (folder / "run" / "metrics.jsonl").exists() or not (folder / "run" / "metrics.jsonl").stat().st_size:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def process_group_signal(process: subprocess.Popen[str], number: int) -> None:
    os.killpg(process.pid, number)


def assert_group_ends(group: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_many_trainings_leave_nothing_behind(tmp_path: Path) -> None:
    def left() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/dev/shm")), len(children())

    def train(number: int) -> None:
        list(vantage.train(configure(steps=256, num_envs=2), run=tmp_path / str(number)))

    train(0)
    before = left()
    for number in range(1, 5):
        train(number)
    assert left() == before


@pytest.mark.parametrize(("options", "says"), [
    ({"vector": "async"}, "processes already"), ({"runtime": "sync"}, "contradicts"), ({"device": "cuda:7"}, "CUDA"),
    ({"optimizer": "Adagrad"}, "cannot be shared"), ({"rollout_length": "5,x"}, "whole numbers"),
    ({"env": "tiny:TextObservation"}, "Text"),
])
def test_what_cannot_be_is_refused_before_any_process_starts(
        options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        list(vantage.train(configure(**options), run=tmp_path / "run"))
    assert not (tmp_path / "run").exists() and not children()


def test_a3g_without_a_gpu_says_what_to_use(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="a3c"):
        list(vantage.train(configure("a3g", device="cuda:0"), run=tmp_path / "run"))
    with pytest.raises(ConfigError, match="no CUDA device here; use a3c"):
        list(vantage.train(configure("a3g"), run=tmp_path / "run"))
