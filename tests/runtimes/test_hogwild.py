"""The asynchronous runtime with real processes: it learns, notices failures, stops in time and leaves nothing behind.

`test_worker` has what needs no processes.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import assert_group_ends, children, wait_for
from test_worker import assert_one_worker_is_sync
from zygote import Command

import vantage
from vantage.errors import ConfigError
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runs.metrics import read_metrics

pytestmark = pytest.mark.integration

QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 0.2, "eval_every": 0}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, vantage.Report]:
    """The run of two workers, recurrent and with private statistics, and its last report. An evaluation always runs."""
    run = tmp_path_factory.mktemp("learned") / "run"
    config = configure(env="tiny:DelayedReward", num_workers=2, steps=8_000, envs_per_worker=4, rollout_length="4,6",
                       gamma=0.95, gae_lambda=0.95, lr="1e-2", hidden="32", memory="gru", memory_size=8,
                       reward_norm=False, shared_statistics=False, eval_every=500, eval_episodes=20)
    *_, last = vantage.Trainer(config, run=run)
    return run, last


def configure(algo: str = "a3c", **options: Any) -> vantage.Config:
    return vantage.configure(algo, **({"env": "CartPole-v1", "num_workers": 1} | QUIET | options))


@pytest.mark.usefixtures("fresh_interpreters")
def test_one_worker_is_sync_bit_for_bit(tmp_path: Path) -> None:
    """`test_worker` has more policies and algorithms, without processes."""
    assert_one_worker_is_sync(tmp_path)


def test_two_workers_learn_and_the_last_policy_is_evaluated(learned: tuple[Path, vantage.Report]) -> None:
    """Though an evaluation runs when the last one falls due."""
    run, last = learned
    assert last.status == "done" and 8_000 <= last.step < 8_000 + 2 * 4 * 6
    lines = read_metrics(run)
    lags = [line["train/policy_lag"] for line in lines if "train/policy_lag" in line]
    assert 0 < sum(map(float, lags)) / len(lags) < 5  # type: ignore[arg-type]
    evaluated = [line["step"] for line in lines if "eval/mean_reward" in line]
    assert len(evaluated) > 1 and evaluated[-1] == last.step
    best, progress = load_named(run, "best"), load_latest(run).state["progress"]
    assert best.state["progress"]["best_return"] > 0.9 and set(best.tensors) == {"model"}
    assert not progress["evaluation_due"] and progress["evaluated_step"] == last.step
    assert progress["best_return"] == json.loads((run / "summary.json").read_text())["best_return"]


def test_a_resume_goes_on_with_weights_statistics_and_counters(
        learned: tuple[Path, vantage.Report], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    run = shutil.copytree(learned[0], tmp_path / "run")
    first, saved = learned[1], load_latest(run)
    *_, last = vantage.Trainer.resume(run, steps=9_000)
    assert last.step >= 9_000 and last.seconds > first.seconds
    assert any("this resume is not exact" in note for note in caplog.messages)
    resumed = load_latest(run)
    assert resumed.state["workers_started"] == 4, "new workers have environments of their own"
    # By one of the workers, if the other has not begun before the run ends.
    assert resumed.tensors["optimizer"]["step"].sum() > saved.tensors["optimizer"]["step"].sum() > 0
    assert resumed.state["progress"]["episodes"] > saved.state["progress"]["episodes"]
    assert last.metrics["rollout/ep_rew_mean"] > 0.8, "the weights are not forgotten"


def test_a_worker_killed_in_its_turn_is_noticed_within_a_second_and_replaced(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves a process that holds its pipe open; the others wait for its lock meanwhile."""
    marker = tmp_path / "killed"
    config = configure(env="odd:KilledInUpdate", env_kwargs={"marker": str(marker)}, steps=4_000, num_workers=2,
                       rollout_length=5, lock=True, env_timeout=30)
    most = 0
    for report in vantage.Trainer(config, run=tmp_path / "run"):
        last, most = report, max(most, len(children()))
    noticed_at = next(record.created for record in caplog.records if "killed by SIGKILL" in record.getMessage())
    # A second, on a machine that does other things too.
    assert noticed_at - os.stat(marker).st_mtime < 2
    assert sum("replaced (1 of 10)" in note for note in caplog.messages) == 1 and most == 2
    assert last.status == "done" and 4_000 <= last.step < 4_000 + 2 * 8 * 5
    assert not children()


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
        with pytest.raises(KeyboardInterrupt) as interrupt:  # its traceback keeps all objects alive
            list(vantage.Trainer(configure(), run=tmp_path / "run"))
    finally:
        signal.signal(signal.SIGINT, former)
        released.set()
        other.join()
    assert interrupt.tb is not None and not children()


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A training whose workers have begun to learn, or to hang, in a process group of its own."""
    command = ["-m", "vantage", "train", *arguments, "--steps=1e9", "--no-tensorboard",
               "--log-every-seconds=0.2", "--eval-every=0", "--run=run"]
    process = Command(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    metrics = folder / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size, process)
    return process


HANGING = ("a3c", "--env=odd:Misbehaving", '--env-kwargs={"how": "hang"}', "--num-envs=1", "--num-workers=1")


@pytest.mark.parametrize(("number", "status", "arguments"), [
    (signal.SIGINT, 130, HANGING), (signal.SIGTERM, 143, ("a3c", "--env=CartPole-v1", "--num-workers=2"))])
def test_a_signal_to_all_stops_within_five_seconds_and_saves(
        number: int, status: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    process = start(tmp_path, *arguments)
    os.killpg(process.pid, number)
    started = time.monotonic()
    out, err = process.communicate(timeout=20)
    assert process.returncode == status and time.monotonic() - started < 6 and "Traceback" not in err
    assert "vantage resume" in out and load_latest(tmp_path / "run").step > 0
    assert_group_ends(process.pid, 5)  # the resource tracker needs a moment


@pytest.mark.parametrize("arguments", [HANGING, ("a2c", "--env=CartPole-v1", "--num-workers=2")],
                         ids=["a3c", "a2c"])
def test_no_worker_outlives_a_killed_main_process(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Also no data-parallel rank."""
    process = start(tmp_path, *arguments)
    process.kill()
    process.wait()
    assert_group_ends(process.pid, 5)  # communicate would wait for the others, which have its pipes too
    process.communicate()


def test_trainings_leave_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two of them with a worker, an evaluation and a lock, and with environments that have processes of their own."""
    def mapped() -> set[str]:
        return set(re.findall(r"/dev/shm/\S+|/tmp/\S+", Path("/proc/self/maps").read_text()))

    def train(*numbers: int) -> None:
        served = {"env": "odd:Served", "num_envs": 1, "lock": True, "eval_every": 64, "eval_episodes": 1}
        for number in numbers:
            algo, own = ("a3c", served) if number % 5 == 0 else ("a2c", {"num_workers": 0, "num_envs": 2})
            *_, last = vantage.Trainer(configure(algo, **({"steps": 64} | own)), run=tmp_path / str(number))
            assert last.status == "done" and ("eval/mean_reward" in last.metrics) == (algo == "a3c")

    def left() -> tuple[Any, ...]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), children(), mapped()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    train(0, 1)
    before, memory = left(), resident()
    train(*range(5, 13))
    assert left() == before
    assert resident() - memory < 4 * 2**20  # measured: 0.1 MiB
    assert not any("replaced" in note for note in caplog.messages)


@pytest.mark.parametrize(("options", "message"), [({"vector": "async"}, "processes already"),
                                                  ({"env": "tiny:TextObservation"}, "Text")])
def test_what_cannot_be_trained_is_refused_before_any_process_starts(
        options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        list(vantage.Trainer(configure(**options), run=tmp_path / "run"))
    assert not (tmp_path / "run").exists() and not children()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("options", [{}, {"device": "cuda:0"}])
def test_a3g_without_a_gpu_says_what_to_use(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a3c"):
        list(vantage.Trainer(configure("a3g", **options), run=tmp_path / "run"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_networks_of_workers_are_on_their_gpus_and_the_shared_weights_on_the_cpu(tmp_path: Path) -> None:
    gpus = torch.cuda.device_count()
    config = configure("a3g", env="tiny:Bandit", num_workers=2, steps=8_000, lr="1e-2", device="cuda:0,cuda:0"
                       if gpus == 1 else "cuda:0,cuda:1", eval_every=2_000, eval_episodes=20, shared_statistics=False)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done" and load_named(tmp_path / "run", "best").state["progress"]["best_return"] > 0.9


def test_a_worker_whose_configuration_cannot_work_is_not_replaced(tmp_path: Path) -> None:
    trainer = vantage.Trainer(configure(steps=10**9, log_every_seconds=0.1), run=tmp_path / "run")
    while next(trainer).step == 0:
        pass
    run = trainer._session.run
    with pytest.raises(ConfigError, match="rollouts of another shape"):
        run._lose(0, ConfigError("rollouts of another shape"))
    trainer.close()
