"""Algorithms of the user's own that log other metrics than PPO, or some of them only now and then."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.ppo import PPO
from vantage.runtimes.progress import Advance, Progress

SHORT: dict[str, Any] = {"env": "tiny:Bandit", "num_envs": 4, "rollout_length": 8, "steps": 128, "hidden": "4",
                         "threads": 1, "tensorboard": False, "eval_every": 0}
PER_UPDATE = {"minibatch_size": 8, "epochs": 2}
"""Eight minibatches an update."""


@dataclass(frozen=True)
class Quiet(PPO):
    """PPO that logs nothing of its own."""

    def loss(self, model: Any, minibatch: Any, update: Any) -> Any:
        return super().loss(model, minibatch, update)[0], {}


@dataclass(frozen=True)
class Sometimes(PPO):
    """PPO that logs the numbers 0, 2, 4, ... in every second minibatch, beginning with the second."""

    minibatches = [0]  # noqa: RUF012  counts

    def loss(self, model: Any, minibatch: Any, update: Any) -> Any:
        self.minibatches[0] += 1
        loss, terms = super().loss(model, minibatch, update)
        number = self.minibatches[0] - 2
        return loss, {**terms, **({} if number % 2 else {"train/even": torch.tensor(float(number))})}


@dataclass(frozen=True)
class Rarely(A2C):
    """A2C that logs 6 in every second update of a process."""

    updates = [0]  # noqa: RUF012  counts

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        self.updates[0] += 1
        loss, terms = super().loss(model, rollout, update)
        return loss, terms if self.updates[0] % 2 else {**terms, "train/six": torch.tensor(6.0)}


def train(algo: str, run: Path, **options: Any) -> dict[str, float]:
    """The last metrics of a run."""
    *_, last = vantage.Trainer(vantage.configure(f"{__name__}:{algo}", **SHORT | options), run=run)
    assert last.status == "done"
    return last.metrics


def test_a_metric_of_some_minibatches_is_the_mean_over_these(tmp_path: Path) -> None:
    Sometimes.minibatches[0] = 0
    metrics = train("Sometimes", tmp_path / "run", **PER_UPDATE, steps=32)
    assert metrics["train/even"] == 3.0  # of 0, 2, 4 and 6


@pytest.mark.parametrize("runtime", [{"num_workers": 2}, {"runtime": "hogwild", "num_workers": 1}],
                         ids=["ranks", "hogwild"])
def test_other_processes_may_log_other_metrics(runtime: dict[str, Any], tmp_path: Path) -> None:
    assert "train/even" in train("Sometimes", tmp_path / "run", **PER_UPDATE, **runtime)


def test_a_metric_of_some_updates_is_the_mean_over_these(tmp_path: Path) -> None:
    Rarely.updates[0] = 0
    assert train("Rarely", tmp_path / "run", log_every_seconds=1000)["train/six"] == 6.0


def test_sums_of_updates_count_those_that_have_logged_a_metric() -> None:
    total = Advance(updates=1, metrics={"train/a": 1.0})
    total += Advance(updates=1)
    total += Advance(updates=2, metrics={"train/a": 6.0, "train/b": 8.0})
    progress = Progress(1.0)
    progress.add(total)
    progress.add(Advance(steps=1, updates=1, metrics={"train/b": 1.0}))
    metrics = progress.metrics()
    assert metrics["train/a"] == pytest.approx(7 / 3) and metrics["train/b"] == 3.0


@pytest.mark.parametrize("runtime", [{}, {"runtime": "hogwild", "num_workers": 1}], ids=["sync", "hogwild"])
def test_max_kl_without_a_divergence_to_compare_is_named_once(
        runtime: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vantage"):
        train("Quiet", tmp_path / "run", max_kl=0.01, **PER_UPDATE, **runtime)
    lines = [record.getMessage() for record in caplog.records if "max_kl" in record.getMessage()]
    assert lines == [f"max_kl has no effect: algorithm={__name__}:Quiet logs no train/approx_kl, which is compared "
                     "with it; return that from loss, or leave max_kl out"]


@pytest.mark.parametrize(("algo", "options"), [("Quiet", {}), ("Sometimes", {"max_kl": 0.01})])
def test_nothing_is_said_of_max_kl_where_it_works_or_is_not_set(
        algo: str, options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vantage"):
        train(algo, tmp_path / "run", **PER_UPDATE, **options)
    assert "max_kl" not in caplog.text
