"""Three, five and seven data-parallel ranks: their slices of the gradient begin at odd places."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import launch
from torch import Tensor

import vantage
from vantage.learning.config import OptimizerConfig
from vantage.learning.gradients import OwnWeights
from vantage.runs.checkpoint import load_latest
from vantage.runtimes.collectives import RankWeights
from vantage.runtimes.shared_gradients import RankMemory, SharedRankWeights


class Moved(OwnWeights):
    """A sink that only keeps the gradient that moves it."""

    gradient = Tensor()

    def __init__(self) -> None:
        pass

    def move(self, gradient: Tensor, lr: float) -> None:
        self.gradient = gradient.clone()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return {}


def learner(size: int) -> Any:
    """As much of a learner as the sinks use, with `size` weights."""
    flat = SimpleNamespace(vector=torch.zeros(size), gradient=torch.zeros(size),
                           critic=[])

    def move(vector: Tensor, gradient: Tensor, *, keep: bool) -> None:
        flat.vector, flat.gradient = vector, gradient

    flat.move = move
    return SimpleNamespace(flat=flat, sink=Moved(), average=None)


def apply_in_threads(sinks: Sequence[Any], gradients: Sequence[Tensor], metrics: Sequence[dict[str, float]]) -> None:
    """One call of `apply` by each rank, with 1, 2, 3, ... valid steps and the loss 1, 2, 3, ..."""
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            sinks[rank].apply(gradients[rank], rank + 1.0, rank + 1.0, metrics[rank], lr=0.5, max_grad_norm=0.0)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [Thread(target=run, args=(rank,), daemon=True) for rank in range(len(sinks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not errors and not any(thread.is_alive() for thread in threads)


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.distributed among the threads of this process."""
    meetings: dict[int, Barrier] = {}
    sent: dict[int, list[Tensor]] = {}

    def exchange(weights: RankWeights, parts: list[Tensor], sizes: list[int]) -> list[Tensor]:
        meeting = meetings.setdefault(weights.num_ranks, Barrier(weights.num_ranks))
        sent[weights.rank] = parts
        meeting.wait(20)
        received = torch.cat([sent[rank][weights.rank] for rank in range(weights.num_ranks)])
        meeting.wait(20)
        return list(torch.split(received, sizes))  # views of one vector, as of the true one

    monkeypatch.setattr(RankWeights, "_exchange", exchange)


@pytest.mark.parametrize("size", [1, 10, 33, 64])
@pytest.mark.parametrize("num_ranks", [2, 3, 5, 7])
@pytest.mark.usefixtures("exchange")
def test_the_mean_gradient_is_that_of_all_ranks_whatever_their_number(
        num_ranks: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learners = [learner(size) for _ in range(num_ranks)]
    sinks, own = [], [each.sink for each in learners]
    for rank, each in enumerate(learners):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: num_ranks)
        sinks.append(RankWeights(each))
    gradients = [torch.arange(size, dtype=torch.float32) + rank for rank in range(num_ranks)]
    total = sum(range(1, num_ranks + 1))
    expected = sum((rank + 1) * gradient for rank, gradient in enumerate(gradients)) / total
    metrics = [{"train/a": float(rank)} for rank in range(num_ranks)]
    apply_in_threads(sinks, gradients, metrics)
    for each in own:
        torch.testing.assert_close(each.gradient, expected)
    assert [row["train/a"] for row in metrics] == [pytest.approx(sum(
        rank * (rank + 1) for rank in range(num_ranks)) / total)] * num_ranks


@pytest.mark.parametrize("num_ranks", [3, 5, 7])
def test_ranks_of_one_machine_move_every_weight_whatever_their_number(num_ranks: int) -> None:
    size, config = 33, OptimizerConfig(optimizer="rmsprop_tf", optimizer_decay=1.0)
    memory = RankMemory(size, num_ranks, 64, config, multiprocessing.get_context("spawn"))
    learners = [learner(size) for _ in range(num_ranks)]
    sinks = [SharedRankWeights(memory, each, rank) for rank, each in enumerate(learners)]
    gradients = [each.flat.gradient for each in learners]
    for rank, gradient in enumerate(gradients):
        gradient.copy_(torch.arange(size, dtype=torch.float32) + rank)
    total = sum(range(1, num_ranks + 1))
    expected = sum((rank + 1) * gradient.clone() for rank, gradient in enumerate(gradients)) / total
    apply_in_threads(sinks, gradients, [{} for _ in learners])
    root = (1 + config.optimizer_eps) ** 0.5
    torch.testing.assert_close(learners[-1].flat.vector, -0.5 * expected / root)


@pytest.mark.parametrize("how", ["memory", "gloo"])
@pytest.mark.usefixtures("exchange")
def test_a_metric_is_the_mean_over_the_ranks_that_log_it(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learners = [learner(5) for _ in range(3)]
    sinks: list[Any] = []
    if how == "memory":
        memory = RankMemory(5, 3, 64, OptimizerConfig(), multiprocessing.get_context("spawn"))
        sinks = [SharedRankWeights(memory, each, rank) for rank, each in enumerate(learners)]
    else:
        for rank, each in enumerate(learners):
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            monkeypatch.setattr(dist, "get_world_size", lambda: 3)
            sinks.append(RankWeights(each))
    name = "train/" + "long" * 20
    for rows in ([{"train/a": 1.0}, {}, {"train/a": 5.0, name: 7.0}], [{}, {"train/a": 3.0}, {}]):
        gradients = [each.flat.gradient for each in learners]
        everyone = {"train/a": 4.0, name: 7.0} if name in rows[2] else {"train/a": 3.0}  # (1 * 1 + 3 * 5) / 4
        apply_in_threads(sinks, gradients, rows)
        assert rows == [everyone] * 3


@pytest.mark.timeout(120)
def test_three_ranks_of_torchrun_train_to_the_end(tmp_path: Path) -> None:
    launch(3, ["train", "a2c", "--env", "tiny:Bandit", "--num-envs", "9", "--rollout-length", "3", "--steps", "54",
               "--hidden", "5", "--threads", "1", "--tensorboard", "false", "--eval-every", "0", "--run", "run"],
           tmp_path)
    assert load_latest(tmp_path / "run").step == 54


def test_three_ranks_of_one_machine_train_to_the_end(tmp_path: Path) -> None:
    config = vantage.configure("ppo", env="tiny:Bandit", num_envs=9, num_workers=3, rollout_length=3, minibatch_size=9,
                               steps=54, hidden="5", threads=1, tensorboard=False, eval_every=0)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.step == 54 and "train/approx_kl" in last.metrics
