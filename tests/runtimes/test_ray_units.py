"""Parts of the runtime `ray` that need no cluster."""

from __future__ import annotations

import csv
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray_training import configure
from zygote import call

from vantage.errors import ConfigError
from vantage.learning.collect import join_rollouts
from vantage.learning.learner import Learner
from vantage.runtimes.startup import model_of_workers

ray = pytest.importorskip("ray")

from vantage.runtimes import ray_cluster, ray_worker  # noqa: E402
from vantage.runtimes.ray import RayRun  # noqa: E402


def test_a_module_that_a_node_lacks_is_one_line_and_not_tried_again() -> None:
    died = ray.exceptions.RayError("The actor died\nModuleNotFoundError: No module named 'mine'")
    error = ray_cluster.failure_of(died)
    assert isinstance(error, ConfigError) and "No module named 'mine'; install" in str(error)


def test_own_signal_handlers_survive_the_connection() -> None:
    def handler(number: int, frame: Any) -> None: ...

    former = signal.signal(signal.SIGTERM, handler)
    try:
        with ray_cluster.own_signals():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, former)


@pytest.mark.parametrize(("algo", "options", "says"), [
    ("ppo", {"send": "gradients"}, "give send='rollouts'"), ("acer", {"send": "rollouts"}, "give send='gradients'"),
    ("ppo", {"past_rollouts": 1}, "give past_rollouts=0"),
    ("a2c", {"norm": "batch"}, "norm='layer'"), ("a3g", {}, "contradicts a3g"),
    ("a2c", {"runtime": "sync", "ray_address": "auto"}, "it is for runtime='ray'")])
def test_what_has_no_effect_or_no_meaning_is_refused(algo: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configure(algo, **options)


def test_what_workers_send_follows_from_the_algorithm() -> None:
    assert [configure(algo).ray.send for algo in ("a2c", "ppo", "a3c", "acer")] == ["rollouts"] * 2 + ["gradients"] * 2


def test_small_weights_travel_in_the_request_and_large_ones_through_the_object_store(
        monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(ray, "put", lambda arrays: stored.append(arrays) or "reference")
    small, large = (Learner(model_of_workers(configure(hidden=hidden), is_new=False)[0], configure(hidden=hidden))
                    for hidden in ("16", "256,256"))
    arrays = ray_worker.weights_argument(small)
    assert not stored and np.shares_memory(arrays[0], small.flat.vector.detach().numpy())
    assert ray_worker.weights_argument(large) == "reference" and len(stored) == 1


def test_gradients_leave_the_buffers_of_a_module_behind_which_is_refused() -> None:
    run = RayRun.__new__(RayRun)
    run.config = configure("curious:CuriousA2C", send="gradients")
    with pytest.raises(ConfigError, match=r"buffers of the module of .*give send='rollouts'"):
        run._prepare(None, None)


def test_the_learner_reads_a_rollout_where_the_object_store_holds_it() -> None:
    arrays = {name: np.zeros((2, 3), np.float32) for name in ("is_first", "actions", "rewards", "terminated", "valid",
                                                              "behaviour")}
    arrays |= {"obs": {"image": np.zeros((3, 2, 4, 4), np.uint8)}, "state": (), "action_mask": None}
    rollout = join_rollouts([ray_worker.rollout_of(arrays, torch.device("cpu"))])
    assert np.shares_memory(rollout.obs["image"].numpy(), arrays["obs"]["image"])
    assert np.shares_memory(rollout.rewards.numpy(), arrays["rewards"])


def test_the_measurement_of_lag_acts_with_the_weights_of_so_many_updates_ago(tmp_path: Path) -> None:
    """Importance weights are 1 without lag alone."""
    tests = Path(__file__).parents[1]
    done = call([tests.parent / "benchmarks/lag.py", "tiny:Bandit", "--steps=3k", "--lags", "0", "4", "--seeds=1",
                 f"--out={tmp_path}/lag.csv"])
    assert done.returncode == 0, done.stderr
    with (tmp_path / "lag.csv").open() as file:
        rhos = {(row["lag"], row["vtrace"]): float(row["rho_mean"]) for row in csv.DictReader(file)}
    assert rhos[("0", "True")] == 1 != rhos[("4", "True")]
