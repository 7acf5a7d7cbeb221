"""The asynchronous runtime, with real processes: one worker is sync, failures are noticed, nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import assert_group_ends

import vantage
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runs.metrics import read_metrics

TESTS = Path(__file__).parents[1]
QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 0.2, "eval_every": 0}


@pytest.fixture(autouse=True, scope="module")
def importable_in_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, vantage.Report]:
    """The run of two workers, recurrent and with private statistics, and its last report. An evaluation always runs."""
    run = tmp_path_factory.mktemp("learnt") / "run"
    config = configure(env="tiny:DelayedReward", num_workers=2, steps=8_000, num_envs=4, rollout_length="4,6",
                       gamma=0.95, gae_lambda=0.95, lr="1e-2", hidden="32", memory="gru", memory_size=8,
                       reward_norm=False, shared_statistics=False, eval_every=500, eval_episodes=20)
    *_, last = vantage.train(config, run=run)
    return run, last


def configure(algo: str = "a3c", **options: Any) -> vantage.Config:
    return vantage.configure(algo, **({"env": "CartPole-v1", "num_workers": 1} | QUIET | options))


def noticed_kill(caplog: pytest.LogCaptureFixture) -> float:
    """When a warning first named a killed worker; 0 before that."""
    since_boot = time.monotonic() - time.time()
    return next((record.created + since_boot for record in caplog.records
                 if "killed by SIGKILL" in record.getMessage()), 0.0)


def children() -> list[int]:
    """Processes that this one started and that still run, the resource tracker apart."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.parametrize("options", [
    {"steps": 200 * 8},
    {"steps": 200 * 8, "memory": "lstm", "memory_size": 8},
    {"steps": 200 * 8, "env": "Pendulum-v1", "obs_norm": True, "reward_norm": True, "optimizer": "rmsprop_tf",
     "norm": "batch"},
    {"algo": "acer", "steps": 40 * 8, "replay_start": 40},
    {"algo": "acer", "steps": 40 * 8, "replay_start": 40, "env": "Pendulum-v1", "norm": "batch"},
], ids=["feed-forward", "lstm", "gaussian-batch-norm", "acer", "acer-gaussian-batch-norm"])
def test_one_worker_is_sync_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    options = {"num_envs": 2, "rollout_length": 4, "hidden": "16", **options}
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


def test_two_workers_learn_and_say_how_far_apart_they_are(learnt: tuple[Path, vantage.Report]) -> None:
    run, last = learnt
    assert last.status == "done" and 8_000 <= last.step < 8_000 + 2 * 4 * 6
    lags = [line["train/policy_lag"] for line in read_metrics(run) if "train/policy_lag" in line]
    assert 0 < sum(map(float, lags)) / len(lags) < 5  # type: ignore[arg-type]
    best = load_named(run, "best")
    assert best.state["progress"]["best_return"] > 0.9
    assert set(best.tensors) == {"model"}


def test_the_last_policy_is_evaluated_though_an_evaluation_runs_when_it_falls_due(
        learnt: tuple[Path, vantage.Report]) -> None:
    run, last = learnt
    evaluated = [line["step"] for line in read_metrics(run) if "eval/mean_reward" in line]
    assert len(evaluated) > 1 and evaluated[-1] == last.step
    progress = load_latest(run).state["progress"]
    assert not progress["evaluation_due"] and progress["evaluated_step"] == last.step
    assert progress["best_return"] == json.loads((run / "summary.json").read_text())["best_return"]


def test_a_resume_goes_on_with_weights_statistics_and_counters(
        learnt: tuple[Path, vantage.Report], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    run = shutil.copytree(learnt[0], tmp_path / "run")
    first, saved = learnt[1], load_latest(run)
    *_, last = vantage.resume(run, steps=10_000)
    assert last.step >= 10_000 and last.seconds > first.seconds
    assert any("this resume is not exact" in note for note in caplog.messages)
    resumed = load_latest(run)
    assert resumed.state["workers_started"] == 4, "new workers have environments of their own"
    assert (resumed.tensors["optimizer"]["step"] > saved.tensors["optimizer"]["step"]).all()
    assert resumed.state["progress"]["episodes"] > saved.state["progress"]["episodes"]
    assert last.metrics["rollout/ep_rew_mean"] > 0.8, "the weights are not forgotten"


def test_rollout_lengths_without_a_worker_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    config = configure(env="tiny:Bandit", steps=100, num_workers=1, num_envs=1, rollout_length="5,7,9")
    list(vantage.train(config, run=tmp_path / "run"))
    assert "3 rollout lengths are more than there are workers: the last are not used" in caplog.messages


def test_an_evaluation_can_end_the_run(tmp_path: Path) -> None:
    config = configure(env="tiny:Bandit", steps=10**7, num_envs=4, lr="1e-2", eval_every=1_000, eval_episodes=30,
                       stop_at_eval=0.95)
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.status == "done" and last.step < 10**6
    with pytest.raises(ConfigError, match="--eval-every or --eval-every-seconds"):
        configure(stop_at_eval=1.0)


def test_a_worker_killed_with_the_lock_in_hand_is_noticed_and_replaced_and_the_run_ends_at_its_steps(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it had not told of counts all the same; else the others end and nobody notices."""
    caplog.set_level("INFO", logger="vantage")
    most = 0
    config = configure(env="tiny:KilledInUpdate", env_kwargs={"marker": str(tmp_path / "killed")}, steps=8_000,
                       num_workers=2, rollout_length=5, lock=True)
    for report in vantage.train(config, run=tmp_path / "run"):
        last = report
        most = max(most, len(children()) if noticed_kill(caplog) else 0)
    # A second, on a machine that does other things too.
    assert noticed_kill(caplog) - float((tmp_path / "killed").read_text()) < 2
    assert any("held the lock" in note for note in caplog.messages)
    assert sum("replaced" in note for note in caplog.messages) == 1 and most == 2
    assert last.status == "done" and 8_000 <= last.step < 8_000 + 2 * 8 * 5
    assert not children()


def test_a_killed_worker_is_noticed_though_what_it_forked_holds_its_pipe(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    marker = tmp_path / "killed"
    config = configure(env="tiny:KilledAfterFork", env_kwargs={"marker": str(marker)}, steps=2_000, num_workers=1,
                       num_envs=1, rollout_length=5, env_timeout=20)
    try:
        *_, last = vantage.train(config, run=tmp_path / "run")
    finally:
        with contextlib.suppress(OSError):  # it was never there, or its minute is over
            os.kill(int((tmp_path / "killed.pid").read_text()), signal.SIGKILL)
    assert last.status == "done" and sum("replaced" in note for note in caplog.messages) == 1
    assert noticed_kill(caplog) - float(marker.read_text()) < 2


def test_a_worker_that_raises_too_often_ends_the_run_with_its_traceback(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    config = configure(env="tiny:Misbehaving", steps=10**9, num_envs=2, rollout_length=5, max_restarts=1)
    with pytest.raises(EnvError, match=r"1 were replaced already(.|\n)*the simulator broke"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert any("replaced (1 of 1)" in note and "tiny.py" in note for note in caplog.messages)
    assert load_latest(tmp_path / "run").step > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert not children()


def test_a_worker_that_ends_before_its_time_with_status_0_has_failed(tmp_path: Path) -> None:
    config = configure(env="tiny:Misbehaving", env_kwargs={"how": "end"}, steps=10**9, num_envs=2, rollout_length=5,
                       max_restarts=0)
    with pytest.raises(VantageError, match="exit status 0, as where a simulator"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert not children()


def test_an_environment_may_have_processes_of_its_own_and_end_them(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(env="tiny:Served", steps=64, num_envs=1, eval_every=64, eval_episodes=1, env_timeout=60)
    caplog.set_level("INFO", logger="vantage")
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.status == "done" and "eval/mean_reward" in last.metrics
    assert not any("replaced" in note for note in caplog.messages) and not children()


def test_a_process_that_is_being_started_does_not_outlive_an_interrupt(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SpawnProcess.start

    def interrupted(process: SpawnProcess) -> None:
        begin(process)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # the other thread takes it, which blocks no signal

    released = threading.Event()
    other = threading.Thread(target=released.wait)
    other.start()
    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt) as kept:  # its traceback holds all that was there
            list(vantage.train(configure(), run=tmp_path / "run"))
    finally:
        signal.signal(signal.SIGINT, former)
        released.set()
        other.join()
    assert kept.tb is not None and not children()


def test_a_hanging_worker_is_noticed(tmp_path: Path) -> None:
    config = configure(env="tiny:Misbehaving", env_kwargs={"how": "hang"}, steps=10**9, num_envs=2, rollout_length=5,
                       env_timeout=10, max_restarts=0)
    with pytest.raises(EnvError, match=r"0 were replaced already(.|\n)*no update for 10 s"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert load_latest(tmp_path / "run").step > 0, "it had begun to learn"
    assert not children()


def test_an_evaluator_by_the_clock_that_dies_between_evaluations_is_replaced(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(steps=10**9, eval_every_seconds=0.2, eval_episodes=1)
    caplog.set_level("INFO", logger="vantage")
    evaluated, killed = 0, 0
    reports = vantage.train(config, run=tmp_path / "run")
    for report in reports:
        evaluated += "eval/mean_reward" in report.metrics
        if not killed and evaluated == 2:
            os.kill(max(children()), signal.SIGKILL)  # started last
            killed = evaluated
        if killed and evaluated > killed + 1:
            break
    reports.close()
    assert any("the evaluator failed and is replaced (1 of 10)" in note for note in caplog.messages)


def test_a_caller_that_pauses_costs_no_workers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    reports = vantage.train(configure(steps=10**9, env_timeout=2.5, log_every_seconds=0), run=tmp_path / "run")
    for _ in range(3):
        assert next(reports).step >= 0
    os.kill(stopped := children()[0], signal.SIGSTOP)  # as a worker that waits to be heard
    time.sleep(4)
    os.kill(stopped, signal.SIGCONT)
    for _ in range(3):
        next(reports)
    reports.close()
    assert not any("replaced" in note for note in caplog.messages)


def test_what_no_restart_can_mend_ends_the_run_at_once(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="reset failed at 100% of"):
        list(vantage.train(configure(env="faulty_envs:Counter", env_kwargs={"fault": "reset"}), run=tmp_path / "run"))
    with pytest.raises(NonFiniteError, match="not finite"):
        list(vantage.train(configure(reward_scale=1e30, reward_norm=False, steps=10**6),
                           run=tmp_path / "other"))
    assert not children()


@pytest.mark.parametrize(("number", "status", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)])
def test_a_signal_to_all_stops_within_five_seconds_and_saves(
        number: int, status: int, workers: int, tmp_path: Path) -> None:
    process = start(tmp_path, "--env", "CartPole-v1", "--num-workers", str(workers))
    process_group_signal(process, number)
    started = time.monotonic()
    out, err = process.communicate(timeout=20)
    assert process.returncode == status and time.monotonic() - started < 6 and "Traceback" not in err
    assert "vantage resume" in out and load_latest(tmp_path / "run").step > 0
    assert_group_ends(process.pid, 5)  # the resource tracker needs a moment


def test_no_worker_outlives_a_killed_main_process(tmp_path: Path) -> None:
    process = start(tmp_path, "--env", "tiny:Misbehaving", "--env-kwargs", '{"how": "hang"}', "--num-envs", "1",
                    "--num-workers", "1")
    process.kill()
    process.wait()
    assert_group_ends(process.pid, 2)  # communicate would wait for the workers, which have its pipes too
    process.communicate()


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A training whose workers have begun to learn, or to hang, in a process group of its own."""
    command = [sys.executable, "-m", "vantage.cli", "train", "a3c", *arguments,
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


def test_fifteen_trainings_leave_nothing_behind(tmp_path: Path) -> None:
    """Three of them with a worker, an evaluator and a lock, whose semaphore has a name in /dev/shm."""
    had: set[int] = set()

    def mapped() -> set[int]:
        """Inodes, for a semaphore is mapped under another name."""
        return {int(inode) for inode in re.findall(r"(\d+) +/dev/shm/", Path("/proc/self/maps").read_text())}

    def named() -> set[int]:
        return {entry.inode() for entry in os.scandir("/dev/shm")}

    def train(numbers: range) -> None:
        for number in numbers:
            algo, own = ("a3c", {"lock": True, "eval_every": 32, "eval_episodes": 1}) if number % 5 == 0 else (
                "a2c", {"num_workers": 0})
            for _ in vantage.train(configure(algo, steps=64, num_envs=2, log_every_seconds=0, **own),
                                   run=tmp_path / str(number)):
                had.update(mapped() & named())

    def left() -> tuple[int, int, list[int], set[int]]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), children(), mapped()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    train(range(5))
    before, memory = left(), resident()
    train(range(5, 15))
    assert left() == before
    assert had and not had & named()
    assert resident() - memory < 4 * 2**20  # measured: 0.1 MiB


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
