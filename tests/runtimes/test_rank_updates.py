"""The update of data-parallel ranks, by learners in threads of one process, is that of one with all environments."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rollouts import begun
from test_ranks import PLAIN, configure
from torch import Tensor

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Needs
from vantage.errors import ConfigError, NonFiniteError
from vantage.learning.collect import collect
from vantage.learning.learner import Learner
from vantage.learning.learner_state import tensors_of
from vantage.learning.replay import Replay
from vantage.learning.running_statistics import observe
from vantage.runtimes.collectives import RankWeights
from vantage.runtimes.shared_gradients import RankMemory, SharedRankWeights
from vantage.runtimes.startup import new_model
from vantage.types import ActionSpec, ArraySpec, EnvSpec, Rollout

FIRST, SECOND = slice(0, 2), slice(2, 4)
CARTPOLE = EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,)))
BOTH = pytest.mark.parametrize("how", ["memory", "gloo"])


@dataclass(frozen=True)
class Averaged(A2C):
    """A2C with an average policy and no replay."""

    @property
    def needs(self) -> Needs:
        return replace(super().needs, average_decay=0.9)


@pytest.fixture
def rollout() -> Rollout:
    return play(configure(hidden="8"))


def play(config: vantage.Config) -> Rollout:
    """A rollout of 6 steps, as the config's algorithm learns from."""
    reuses = config.algorithm.needs.reuse is not None
    with begun(config.change(num_workers=1)) as one:
        return collect(one.model, one.envs, one.position, length=6, generator=one.generator, values=reuses).rollout


def part(rollout: Rollout, columns: slice) -> Rollout:
    cut: dict[str, Any] = {name: getattr(rollout, name)[:, columns]
                           for name in ("obs", "is_first", "actions", "rewards", "terminated", "valid", "behaviour")}
    values = None if rollout.values is None else rollout.values[:, columns]
    return Rollout(**cut, action_mask=None, values=values, state=tuple(part[columns] for part in rollout.state))


def learners(config: vantage.Config, count: int) -> list[Learner]:
    """One with all environments, or two that divide them."""
    config = config.change(num_workers=count)
    return [Learner(new_model(config, CARTPOLE), config) for _ in range(count)]


def update(pair: list[Learner], rollout: Rollout, metrics: list[dict[str, float]] | None = None) -> list[BaseException]:
    """One update by each of the pair from its half of the rollout; returns what they raised."""
    rows = [] if metrics is None else metrics
    return together(*(lambda learner=learner, columns=columns: rows.append(learner.update(part(rollout, columns), 0))
                      for learner, columns in zip(pair, (FIRST, SECOND), strict=True)))  # type: ignore[misc]


def sharing(config: vantage.Config, how: str, monkeypatch: pytest.MonkeyPatch) -> list[Learner]:
    """Two learners that share updates in memory, or as by gloo."""
    pair = learners(config, 2)
    if how == "memory":
        context = multiprocessing.get_context("spawn")
        curiosity = pair[0].curiosity
        columns = 64 if curiosity is None else len(curiosity.flat.vector) + 8
        memory = RankMemory(len(pair[0].flat.vector), 2, columns, config.optimizer, context)
        for rank, learner in enumerate(pair):
            SharedRankWeights(memory, learner, rank)
        return pair
    met, sent = Barrier(2), [[Tensor()], [Tensor()]]

    def exchange(weights: RankWeights, parts: list[Tensor], sizes: list[int]) -> list[Tensor]:
        sent[weights.rank] = parts
        met.wait()
        received = [each[weights.rank].clone() for each in sent]
        met.wait()
        assert list(map(len, received)) == list(sizes)
        return received

    monkeypatch.setattr(RankWeights, "_exchange", exchange)
    for rank, learner in enumerate(pair):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        RankWeights(learner)
    return pair


def together(*tasks: Callable[[], object]) -> list[BaseException]:
    """Run the tasks at once in threads; returns what they raised."""
    raised: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except NonFiniteError as error:
            raised.append(error)

    threads = [Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "they wait for each other for ever"
    return raised


@BOTH
@pytest.mark.parametrize(("optimizer", "max_grad_norm"), [
    ("rmsprop_tf", 0.0), ("rmsprop_tf", 0.05), ("rmsprop", 0.05), ("adam", 0.05), ("amsgrad", 0.05)])
def test_an_update_of_ranks_is_that_of_one_process_with_all_environments(
        optimizer: str, max_grad_norm: float, how: str, rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of their average policies."""
    config = configure(algo="test_rank_updates:Averaged", optimizer=optimizer, max_grad_norm=max_grad_norm, lr=0.01,
                       hidden="8")
    rollout.valid[2:5, 3] = False  # so that the two means run over different numbers
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    before = whole.flat.vector.clone()
    metrics: list[dict[str, float]] = []
    for _ in range(3):
        assert not update([first, second], rollout, metrics)
        expected = whole.update(rollout, 0)
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-4, atol=1e-6)
    assert torch.equal(first.flat.vector, second.flat.vector)
    assert whole.average is not None and first.average is not None and second.average is not None
    torch.testing.assert_close(first.average.vector, whole.average.vector, rtol=1e-4, atol=1e-6)
    assert torch.equal(first.average.vector, second.average.vector)
    assert not torch.equal(first.average.vector, before)
    for name in ("train/policy_loss", "train/value_loss", "train/entropy", "train/grad_norm"):
        assert metrics[-2][name] == metrics[-1][name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)
    statistics, alone = tensors_of(first)["optimizer"], tensors_of(whole)["optimizer"]
    assert statistics.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(statistics[name], tensor, rtol=1e-3, atol=1e-8)


@BOTH
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_ranks_normalise_values_by_the_targets_of_all(algo: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reuse = {"minibatch_size": 100, "epochs": 2} if algo == "ppo" else {}
    config = vantage.configure(algo, **PLAIN | reuse | {"hidden": "8", "lr": 0.01, "optimizer": "rmsprop",
                                                        "value_norm": "popart", "reward_norm": False, "eval_ema": 0.5})
    rollout = play(config)
    rollout = replace(rollout, rewards=1000 * torch.arange(24.0).view(6, 4))
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    for _ in range(3):
        assert not update([first, second], rollout)
        whole.update(rollout, 0)
    for each in (first, second):
        for name in ("model", "ema"):
            expected = tensors_of(whole)[name]
            assert expected["value_norm.var"] > 1e6
            for key, tensor in tensors_of(each)[name].items():
                torch.testing.assert_close(tensor, expected[key], rtol=1e-3, atol=1e-5)


def test_a_loss_that_is_not_finite_is_named_by_a_rank_without_a_part_of_the_minibatch(rollout: Rollout) -> None:
    (learner,) = learners(configure(hidden="8"), 1)
    empty = part(rollout, slice(0, 0))
    with pytest.raises(NonFiniteError, match="weights were not changed"):
        loss = learner._backward(None, (learner.flat.parameters[0].sum() * torch.nan, {}), empty.valid)
        learner._move(loss, "rewards", empty.rewards, 0)


@BOTH
@pytest.mark.parametrize(("algo", "options"), [
    ("a2c", {"advantage_norm": True}), ("ppo", {"minibatch_size": 5}), ("ppo", {"max_kl": 1e-4, "epochs": 9}),
    ("ppo", {"minibatch_size": 1, "advantage_norm_over": "minibatch"}),
    ("ppo", {"minibatch_size": 1, "epochs": 1, "obs_norm": True}), ("ppo", {"memory": "lstm", "memory_size": 8}),
    ("ppo", {"memory": "lstm", "memory_size": 8, "minibatch_size": 12})])
def test_ranks_share_minibatches_and_the_statistics_of_advantages(
        algo: str, options: dict[str, Any], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reuse = {"minibatch_size": 8, "epochs": 2} if algo == "ppo" else {}
    config = vantage.configure(algo, **PLAIN | reuse | {"hidden": "8", "lr": 0.01, "optimizer": "rmsprop",
                                                        "advantage_norm": True} | options)
    rollout = play(config)
    rollout.valid[2:5, 3] = False
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    metrics: list[dict[str, float]] = []
    assert not update([first, second], rollout, metrics)
    expected = whole.update(rollout, 0)
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-4, atol=1e-5)
    assert torch.equal(first.flat.vector, second.flat.vector)
    for name in expected.keys() - {"train/explained_variance"}:  # the mean of each rank's
        assert metrics[0][name] == metrics[1][name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)


def test_more_numbers_than_ranks_have_room_for_are_refused() -> None:
    config = configure()
    (learner,) = learners(config, 1)
    memory = RankMemory(len(learner.flat.vector), 1, 4, config.optimizer, multiprocessing.get_context("spawn"))
    weights = SharedRankWeights(memory, learner, 0)
    assert weights.all_gather(torch.arange(4.0)).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ConfigError, match="exchanges 5 numbers in an update, and ranks on one CPU have room for 4"):
        weights.all_gather(torch.zeros(5))


@pytest.mark.parametrize("options", [{}, {"memory": "lstm", "memory_size": 8}], ids=["steps", "lstm"])
def test_ranks_share_the_minibatches_of_past_rollouts(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure("ppo", **PLAIN | options | {
        "minibatch_size": 8, "epochs": 2, "hidden": "8", "lr": 0.01, "optimizer": "rmsprop", "past_rollouts": 1})
    older, newest = play(config), play(config.change(seed=1))

    def joined(columns: slice) -> Rollout:
        parts = part(older, columns), part(newest, columns)
        past = Replay(2 * parts[0].rewards.shape[1], parts[0], 10**9)
        for each in parts:
            past.add(each)
        return past.all(parts[1])

    (whole,), (first, second) = learners(config, 1), sharing(config, "memory", monkeypatch)
    assert not together(lambda: first.update(joined(FIRST), 0), lambda: second.update(joined(SECOND), 0))
    expected = whole.update(joined(slice(0, 4)), 0)
    assert expected["train/grad_norm"] > 0
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-4, atol=1e-5)
    assert torch.equal(first.flat.vector, second.flat.vector)


@BOTH
def test_ranks_normalise_by_the_statistics_of_all_environments(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(hidden="8", obs_norm=True, reward_norm=True)
    rollout = play(config)
    rollout.rewards[:, 3] = 9.0  # so that the ranks' means differ
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)

    def learn(learner: Learner, rollout: Rollout) -> None:
        for step in range(3):
            learner.update(rollout, step)
            observe(learner, rollout, step)

    assert not together(lambda: learn(first, part(rollout, FIRST)), lambda: learn(second, part(rollout, SECOND)))
    learn(whole, rollout)
    for group in ("model", "rewards"):
        ours, others, expected = (tensors_of(learner)[group] for learner in (first, second, whole))
        for name, tensor in ours.items():
            assert torch.equal(tensor, others[name])
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)


@BOTH
def test_numbers_that_are_not_finite_change_nothing_in_any_process(
        how: str, rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout.rewards[1, 3] = float("nan")  # the second's alone
    first, second = sharing(configure(hidden="8"), how, monkeypatch)
    before = first.flat.vector.clone()
    assert [type(error) for error in update([first, second], rollout)] == [NonFiniteError] * 2
    assert torch.equal(first.flat.vector, before) and torch.equal(second.flat.vector, before)


@BOTH
def test_a_rollout_of_resets_alone_has_no_weight(how: str, rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(hidden="8")
    rollout.valid[:, 2:] = False
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    assert not update([first, second], rollout)
    whole.update(part(rollout, FIRST), 0)
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-5, atol=1e-7)


def test_no_rank_leaves_a_barrier_before_all_have_reached_it() -> None:
    config = configure(num_envs=6, num_workers=3)
    trio = learners(config, 3)
    memory = RankMemory(len(trio[0].flat.vector), 3, 64, config.optimizer, multiprocessing.get_context("spawn"))
    rounds, reached, behind = 100, torch.zeros(3, dtype=torch.int64), []

    def visit(rank: int) -> None:
        weights = SharedRankWeights(memory, trio[rank], rank)
        for number in range(rounds):
            reached[rank] = number
            weights.barrier()
            if (reached < number).any():
                behind.append(reached.clone())
            weights.barrier()

    together(*(lambda rank=rank: visit(rank) for rank in range(3)))  # type: ignore[misc]
    assert not behind and reached.tolist() == [rounds - 1] * 3
