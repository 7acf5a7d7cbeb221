"""The runtime `ray` with real actors on a cluster of this machine: it learns, replaces what dies, leaves nothing."""

from __future__ import annotations

import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.learning.learner import Learner
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.metrics import read_metrics
from vantage.training import train_updates

ray = pytest.importorskip("ray")

from vantage.runtimes import ray as ray_runtime  # noqa: E402
from vantage.runtimes import ray_cluster  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One for all tests, with room for three workers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        with ray_cluster.own_signals():
            ray.init(address="local", num_cpus=3, include_dashboard=False, object_store_memory=100 * 2**20,
                     log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


def configure(algo: str = "a2c", **options: Any) -> vantage.Config:
    values = {"env": "tiny:Bandit", "runtime": "ray", "num_workers": 2, "num_envs": 4, "rollout_length": 8,
              "threads": 1, "lr": "1e-2", "hidden": "16", "tensorboard": False, "log_every_seconds": 0.2,
              "eval_every": 0, "device": "cpu"}
    return vantage.configure(algo, **(values | options))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No actor outlives its run."""
    yield
    from ray._private.state import actors  # the public list needs the dashboard

    deadline = time.monotonic() + 10
    while (running := [actor for actor in actors().values() if actor["State"] != "DEAD"]):
        assert time.monotonic() < deadline, running
        time.sleep(0.1)


@pytest.mark.parametrize("algo", ["a2c", "ppo", "a3c", "acer"])
def test_workers_learn_and_nothing_of_them_is_left(algo: str, tmp_path: Path) -> None:
    own = {"acer": {"replay_start": 200}, "ppo": {"minibatch_size": 32}}.get(algo, {})
    config = configure(algo, steps=4_000, eval_every=4_000, eval_episodes=10, **own)
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.status == "done" and last.metrics["eval/mean_reward"] > 0.9
    lags = [line["train/policy_lag"] for line in read_metrics(tmp_path / "run") if "train/policy_lag" in line]
    assert lags and 0 < max(map(float, lags)) <= 16  # type: ignore[arg-type]


def begun(config: vantage.Config, run: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The updates of a run and the run itself, once both workers have sent something."""
    runs: list[ray_runtime.RayRun] = []
    prepare = ray_runtime.RayRun._prepare
    monkeypatch.setattr(ray_runtime.RayRun, "_prepare", lambda self, *args: runs.append(self) or prepare(self, *args))
    updates = train_updates(config, run=run)
    for _ in updates:
        if runs and runs[0]._requests and all(member.node for member in runs[0]._requests.values()):
            break
    return updates, runs[0]


def test_a_killed_worker_is_replaced_and_only_its_rollout_is_lost(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    updates, run = begun(configure(steps=10**9), tmp_path / "run", monkeypatch)
    with closing(updates):
        victim = next(iter(run._requests.values()))
        os.kill(ray.get(victim.actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        step = run.progress.step
        for _ in updates:
            nodes = [member.node for member in run._requests.values()]
            if run._restarts and len(nodes) == 2 and all(nodes):
                break
        assert run.progress.step > step, "training goes on meanwhile"
    assert any("worker" in note and "replaced (1 of 10)" in note for note in caplog.messages)
    assert load_latest(tmp_path / "run").state["workers_started"] == 3


def test_a_resume_goes_on_with_weights_and_counters(tmp_path: Path) -> None:
    with closing(train_updates(configure(steps=10**9), run=tmp_path / "run")) as updates:
        for report in updates:
            if report is not None and report.step > 0:
                break
    step = newest_step(tmp_path / "run")
    saved = load_latest(tmp_path / "run")
    assert step == saved.step > 0 and saved.tensors["optimizer"]
    *_, last = vantage.resume(tmp_path / "run", steps=step + 500)
    assert last.status == "done" and last.step >= step + 500
    assert load_latest(tmp_path / "run").state["workers_started"] == 4


@pytest.mark.parametrize(("options", "says"), [
    ({"env": "tiny:Misbehaving", "env_kwargs": {"how": "raise"}, "max_restarts": 1}, "the simulator broke"),
    ({"env": "tiny:Misbehaving", "env_kwargs": {"how": "hang"}, "env_timeout": 1.0, "max_restarts": 0},
     "no answer for 1 s")])
def test_an_environment_that_fails_everywhere_ends_the_run_with_its_reason(
        options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=f"(?s)worker.*{says}"):
        list(vantage.train(configure(steps=10**9, num_workers=1, **options), run=tmp_path / "run"))


def test_another_version_on_a_node_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runtime, "versions", lambda: "Vantage 9.9 on Python 3.11.0")
    with pytest.raises(VantageError, match=r"the machine that trains Vantage 9\.9 .*install the same on all$"):
        list(vantage.train(configure(), run=tmp_path / "run"))


def test_too_few_cpus_and_an_address_without_answer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no worker has room, .* give a smaller --worker-cpus"):
        list(vantage.train(configure(worker_cpus=64), run=tmp_path / "run"))
    with pytest.raises(ConfigError, match="nothing answers"):
        ray_cluster.check_answers("127.0.0.1:1")
    for address in ("somewhere", "host:port", "host:6379/x"):
        with pytest.raises(ConfigError, match="give local, auto or HOST:PORT"):
            configure(ray_address=address)


@pytest.mark.parametrize(("algo", "options", "says"), [
    ("ppo", {"send": "gradients"}, "give --send rollouts"), ("acer", {"send": "rollouts"}, "give --send gradients"),
    ("a2c", {"norm": "batch"}, "norm layer"), ("a3g", {}, "contradicts a3g"),
    ("a2c", {"runtime": "sync", "ray_address": "auto"}, "give --runtime ray")])
def test_what_has_no_effect_or_no_meaning_is_refused(algo: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configure(algo, **options)


def test_own_signal_handlers_survive_the_connection() -> None:
    def handler(number: int, frame: Any) -> None: ...

    former = signal.signal(signal.SIGTERM, handler)
    try:
        with ray_cluster.own_signals():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, former)


def test_ppo_learns_from_an_older_policy_with_values_and_weights_of_the_current_one(tmp_path: Path) -> None:
    """The importance weights of an unchanged policy are 1, and V-trace is then GAE."""
    from vantage.learning.minibatches import by_current_policy
    from vantage.runtimes.actor_learner import ActorLearner

    one = ActorLearner(configure("ppo", runtime="sync", num_workers=1))
    one.begin()
    with_values = one.collect()[0].rollout
    current = by_current_policy(with_values, one.model)
    assert current.rhos is not None and torch.allclose(current.rhos, torch.ones_like(current.rhos), atol=1e-5)
    learner = Learner(one.model, one.config)
    update, algorithm = learner._coefficients(0), one.config.algorithm
    for ours, theirs in zip(algorithm.estimate(current, update), algorithm.estimate(with_values, update), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        learner.flat.vector.add_(0.1 * torch.randn(len(learner.flat.vector)))
    assert (by_current_policy(with_values, one.model).rhos - 1).abs().max() > 1e-3  # type: ignore[operator]
    one.close()
