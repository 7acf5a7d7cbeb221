"""The runtime `ray` with real actors on nodes of this machine: it learns, survives faults, and leaves nothing."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_envs import acting
from ray_training import ROLLOUT, Training, configure, no_actor_is_left
from zygote import Command

import vantage
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.keys.metric_names import is_metric
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from vantage.runtimes import ray as ray_runtime  # noqa: E402
from vantage.runtimes import ray_cluster  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray"),
              pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """One for all tests, whose first node has room for two workers; it notices within 2 s that a node has gone."""
    watch = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        cluster = Cluster(initialize_head=True, head_node_args={
            "num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False, "_system_config": watch})
        assert ray_cluster.connect(configure(ray_address=cluster.address))
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    assert not [name for name in os.listdir("/dev/shm") if "plasma" in name]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No actor outlives its run."""
    yield
    no_actor_is_left()


@pytest.mark.parametrize(("algo", "own"), [("a2c", {"eval_every": 4_000}), ("acer", {"replay_start": 200})])
def test_workers_learn_and_nothing_of_them_is_left(algo: str, own: dict[str, int], tmp_path: Path) -> None:
    """`test_user_programs` has ppo."""
    config = configure(algo, steps=4_000, **own)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done" and last.metrics["rollout/ep_rew_mean"] > 0.8
    assert last.metrics.get("eval/mean_reward", 1.0) > 0.9
    lags = [line["train/policy_lag"] for line in read_metrics(tmp_path / "run") if "train/policy_lag" in line]
    assert lags and 0 < max(map(float, lags)) <= 16  # type: ignore[arg-type]


def test_a_coefficient_that_is_set_reaches_learner_and_workers(tmp_path: Path) -> None:
    with vantage.Trainer(configure("a3c", steps=10**9, num_workers=1), run=tmp_path / "run") as trainer:
        trainer.update()
        trainer.lr = 0.0
        trainer.entropy_coef = 1e9
        while abs(trainer.update().metrics["train/learning_rate"]) > 0:
            pass
        update = trainer.update()
        assert trainer.entropy_coef == 1e9 and update.metrics["train/learning_rate"] == 0
        while trainer.update().metrics["train/grad_norm"] < 1e3:  # of the worker's gradient
            pass
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert float(saved["optimizer"]["lr"]) == 0


def test_rollouts_by_weights_older_than_the_bound_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two workers gets its weights one update before its own is made, so that many see two."""
    monkeypatch.setattr(ray_cluster, "RATE_SECONDS", 0.1)
    metrics = []
    with vantage.Trainer(configure(steps=100_000, max_policy_lag=1), run=tmp_path / "run") as reports:
        for report in reports:
            metrics.append(report.metrics)
            if report.step >= 4_000 and report.metrics.get("ray/dropped_steps", 0.0) > 0:
                break
    lags = [line["train/policy_lag"] for line in read_metrics(tmp_path / "run") if "train/policy_lag" in line]
    assert lags and max(map(float, lags)) <= 1  # type: ignore[arg-type]
    assert max(each.get("ray/dropped_steps", 0.0) for each in metrics) > 0
    last = metrics[-1]
    assert all(map(is_metric, last)) and any(name.startswith("ray/fps/") for name in last)


# Faults


def test_killed_workers_and_nodes_are_replaced_and_new_nodes_used(
        cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(ray_cluster, "RATE_SECONDS", 0.5)
    second = cluster.add_node(num_cpus=1)
    training = Training(tmp_path, monkeypatch, num_workers=3)
    run = training.run
    training.until(lambda: len(training.nodes()) == 3)
    first, elsewhere = sorted(set(training.nodes()), key=training.nodes().count, reverse=True)

    victim = next(member for member in run._requests.values() if member.node == first)
    os.kill(ray.get(victim.actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
    training.until(lambda: run._restarts.count == 1)
    training.learns()
    training.until(lambda: training.nodes().count(first) == 2)

    cluster.remove_node(second, allow_graceful=False)
    training.until(lambda: run._restarts.count == 2)
    training.learns()
    assert set(training.nodes()) == {first}, "the others train; the third waits for room"

    third = cluster.add_node(num_cpus=1)
    training.until(lambda: len(training.nodes()) == 3)
    [added] = set(training.nodes()) - {first, elsewhere}
    training.until(lambda: run.progress.extra.get(f"ray/fps/{added}", 0) > 0)
    training.learns()
    training.assert_only_work_in_flight_is_lost()
    metrics = {name: value for line in read_metrics(tmp_path / "run") for name, value in line.items()}
    assert {f"ray/{name}/{node}" for name in ("fps", "policy_lag") for node in (first, elsewhere, added)} <= {*metrics}
    assert [metrics[f"ray/restarts/{node}"] for node in (first, elsewhere)] == [1, 1]
    assert all(is_metric(name) for name in metrics.keys() - {"step", "seconds"})
    assert sum("replaced" in note for note in caplog.messages) == 2
    cluster.remove_node(third, allow_graceful=False)
    while sum(node["Alive"] for node in ray.nodes()) > 1:  # otherwise the next test may begin on it
        time.sleep(0.1)


def test_an_environment_that_raises_or_hangs_in_one_worker_alone_costs_its_rollout(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    training = Training(tmp_path, monkeypatch, "raise hang", env_timeout=3.0)
    training.until(lambda: training.run._restarts.count == 2)
    training.until(lambda: len(training.nodes()) == 2)
    training.learns()
    training.assert_only_work_in_flight_is_lost()
    assert [word in text for text, word in zip([note for note in caplog.messages if "replaced" in note],
                                               ["the simulator broke", "no answer for 3 s"], strict=True)] == [True] * 2


def test_workers_divide_the_environments_of_the_run_and_a_slow_one_does_not_slow_the_others(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(tmp_path, monkeypatch, "slow", num_envs=6)
    training.learns(2_000)
    training.updates.close()
    assert acting(training.folder) == [3, 3]
    steps = sorted(path.stat().st_size for path in training.folder.glob("*.steps") if path.stat().st_size)
    assert len(steps) == 6 and 2 * steps[2] < steps[3], "three environments in each of two workers"


def test_a_killed_driver_leaves_no_actor_and_is_resumed_and_sigint_saves(cluster: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def call(*arguments: str) -> subprocess.Popen[str]:
        return Command(["-m", "vantage", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def trains_to(step: int, driver: subprocess.Popen[str]) -> None:
        while (newest_step(run) or 0) < step:
            assert driver.poll() is None, driver.communicate()[0]
            time.sleep(0.05)

    folder = tmp_path / "counted"
    folder.mkdir()
    flags = ["--env=process_envs:Counted", f"--env-kwargs={json.dumps({'folder': str(folder)})}", "--runtime=ray",
             f"--ray-address={cluster.address}", "--num-workers=2",
             "--envs-per-worker=4", "--rollout-length=8", "--save-every=500", "--log-every-seconds=0.1", "--hidden=16",
             "--no-tensorboard", "--eval-every=0", "--steps=1B", "--threads=1"]
    driver = call("train", "a2c", *flags, f"--run={run}")
    trains_to(1_000, driver)
    driver.kill()
    driver.wait()
    no_actor_is_left()
    saved, stepped = newest_step(run) or 0, sum(path.stat().st_size for path in folder.iterdir())
    print(f"the driver was killed after {stepped} steps of its environments, its last checkpoint is of step {saved}")
    assert 0 <= stepped - saved < 500 + ROLLOUT + 2 * ROLLOUT, "since the last checkpoint, and in flight"

    driver = call("resume", str(run))
    trains_to(saved + 500, driver)
    driver.send_signal(signal.SIGINT)
    output = driver.communicate(timeout=60)[0]
    assert driver.returncode == 130 and "saved; go on with: vantage resume" in output
    assert "Traceback" not in output and "ray" not in output.lower().replace("--runtime ray", "").replace(str(run), "")
    checkpoint = load_latest(run)
    assert checkpoint.step == max(int(line["step"]) for line in read_metrics(run))  # type: ignore[call-overload]
    assert checkpoint.state["workers_started"] == 4 and checkpoint.tensors["optimizer"]


def test_an_environment_that_fails_everywhere_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    config = configure(steps=10**9, num_workers=1, max_restarts=0, env="odd:Misbehaving", env_kwargs={"how": "raise"})
    with pytest.raises(EnvError, match=r"(?s)worker.*the simulator broke"):
        list(vantage.Trainer(config, run=tmp_path / "run"))


def test_what_ray_prints_goes_to_the_log(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """As where a node ends."""
    caplog.set_level(logging.DEBUG, ray_cluster.log.name)
    worker, deadline = ray._private.worker.global_worker, time.monotonic() + 20
    ray._private.utils.publish_error_to_driver("node_died", "a page of Ray's own", worker.gcs_client)
    while not any("a page of Ray's own" in note for note in caplog.messages):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


# What a user can get wrong


def test_another_version_on_a_node_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runtime, "versions", lambda: "Vantage 9.9 on Python 3.11.0")
    with pytest.raises(VantageError, match=r"the machine that trains Vantage 9\.9 .*install the same on all$"):
        list(vantage.Trainer(configure(num_workers=1), run=tmp_path / "run"))


def test_too_few_cpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no worker has room, the largest machine .* give a smaller worker_cpus"):
        list(vantage.Trainer(configure(worker_cpus=64), run=tmp_path / "run"))
    monkeypatch.setattr(ray_cluster, "_free_cpus", lambda: 0.0)
    monkeypatch.setattr(ray_cluster, "ROOM_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"no worker has room, 0 CPUs of the cluster are free; wait for"):
        list(vantage.Trainer(configure(), run=tmp_path / "run"))


def test_an_address_without_a_cluster_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ray_cluster.check_answers(cluster.address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("", 0)) as mute:
        for port, why in ((1, "refused"), (mute.getsockname()[1], "timed out")):
            with pytest.raises(ConfigError, match=f"ray_address=127.0.0.1:{port}: .*{why}.*; give the HOST:PORT that"):
                ray_cluster.connect(configure(ray_address=f"127.0.0.1:{port}"))
    for address in ("somewhere", "host:port", "host:6379/x"):
        with pytest.raises(ConfigError, match="give local, auto or HOST:PORT"):
            configure(ray_address=address)


def test_a_cluster_of_another_python_is_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9\n    Python: 3.10.1")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match=r"Python: 3.10.1; install the same on all machines$"):
        ray_cluster.connect(configure(ray_address=cluster.address))


# Search


def test_trials_of_a_search_share_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    result = vantage.search("a2c", env="tiny:Bandit", grid={"lr": ["1e-2", "1e-3"]}, jobs=2, run=tmp_path / "search",
                            runtime="ray", ray_address=cluster.address, steps=600, num_envs=4, rollout_length=8,
                            threads=1, hidden="16", tensorboard=False, eval_every=0)
    assert [trial.state for trial in result.trials] == ["complete"] * 2
    for trial in result.trials:
        assert RunDirectory.open(Path(trial.runs) / "seed-0").config.runtime.num_workers == 1, "of two that fit"
