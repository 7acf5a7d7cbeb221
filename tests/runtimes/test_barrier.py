"""Learners of several processes make the update of one that has all the environments."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

import vantage
from vantage.errors import NonFiniteError
from vantage.learning.collect import collect
from vantage.learning.learner import Learner
from vantage.models.actor_critic import make_model
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.barrier import RankMemory, RankWeights
from vantage.types import Rollout

T, B = 6, 4
CONTEXT = multiprocessing.get_context("spawn")


def configure(**options: Any) -> vantage.Config:
    values: dict[str, Any] = {"env": "CartPole-v1", "num_envs": B, "rollout_length": T, "hidden": "8", "num_workers": 2,
                              "obs_norm": False, "reward_norm": False, "advantage_norm": False, "threads": 1}
    return vantage.configure("a2c", **(values | options))


def rollout_of(config: vantage.Config) -> Rollout:
    one = ActorLearner(config)
    try:
        one.begin()
        return collect(one.model, one.groups, one.position, length=T, generator=one.generator).rollout
    finally:
        one.close()


def part(rollout: Rollout, columns: slice) -> Rollout:
    """Some environments of a rollout without memory or masks."""
    cut: dict[str, Any] = {name: getattr(rollout, name)[:, columns]
                           for name in ("obs", "is_first", "actions", "rewards", "terminated", "valid", "behaviour")}
    return Rollout(**cut, action_mask=None, state=())


def learner(config: vantage.Config, like: ActorLearner) -> Learner:
    torch.manual_seed(3)
    return Learner(make_model(config.policy, like.spec, critic=config.algorithm.needs.critic), config)


def together(*tasks: Callable[[], object]) -> list[BaseException]:
    """What each raised, run at once in threads of this process, whose memory is the processes' shared one."""
    raised: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except NonFiniteError as error:
            raised.append(error)

    threads = [Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "they wait for each other for ever"
    return raised


def joined(config: vantage.Config, size: int) -> tuple[RankMemory, list[Learner]]:
    one = ActorLearner(config)
    one.close()
    learners = [learner(config, one) for _ in range(size)]
    memory = RankMemory(learners[0].model, config, CONTEXT)
    for rank, each in enumerate(learners):
        memory.join(each, rank)
    return memory, learners


@pytest.mark.parametrize("optimizer", ["rmsprop_tf", "rmsprop", "adam", "amsgrad"])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05, 100.0])
def test_updates_are_those_of_one_learner_with_all_environments(optimizer: str, max_grad_norm: float) -> None:
    config = configure(optimizer=optimizer, max_grad_norm=max_grad_norm, lr=0.01)
    rollout = rollout_of(config)
    rollout.valid[2:5, 3] = False  # so that the two means run over different numbers
    one = ActorLearner(config)
    one.close()
    whole = learner(config, one)
    _, (first, second) = joined(config, 2)
    snapshot: dict[int, dict[str, float]] = {}

    def learn(rank: int, each: Learner, columns: slice) -> None:
        for step in range(3):
            snapshot[rank] = each.update(part(rollout, columns), step)
            assert isinstance(each.sink, RankWeights)
            each.sink.barrier()

    together(lambda: learn(0, first, slice(0, 2)), lambda: learn(1, second, slice(2, 4)))
    for step in range(3):
        expected = whole.update(rollout, step)
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-4, atol=1e-6)
    assert first.flat.vector.data_ptr() == second.flat.vector.data_ptr()
    for name in ("train/policy_loss", "train/value_loss", "train/entropy", "train/grad_norm"):
        assert snapshot[0][name] == snapshot[1][name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)
    statistics, alone = first.tensors()["optimizer"], whole.tensors()["optimizer"]
    assert statistics.keys() == alone.keys()
    for name, tensor in alone.items():
        assert statistics[name].shape == tensor.shape
        torch.testing.assert_close(statistics[name], tensor, rtol=1e-3, atol=1e-8)


def test_each_process_starts_from_the_first_ones_weights() -> None:
    config = configure()
    _, (first, second) = joined(config, 2)
    with torch.no_grad():
        first.model.value_head.bias.fill_(7.0)
    assert second.model.value_head.bias.item() == 7.0


def test_numbers_that_are_not_finite_change_nothing_in_any_process() -> None:
    config = configure()
    rollout = rollout_of(config)
    rollout.rewards[1, 3] = float("nan")  # the second's alone
    _, (first, second) = joined(config, 2)
    before = first.flat.vector.clone()
    raised = together(lambda: first.update(part(rollout, slice(0, 2)), 0),
                      lambda: second.update(part(rollout, slice(2, 4)), 0))
    assert [type(error) for error in raised] == [NonFiniteError] * 2
    assert torch.equal(first.flat.vector, before)


def test_a_rollout_of_resets_alone_has_no_weight() -> None:
    config = configure()
    rollout = rollout_of(config)
    rollout.valid[:, 2:] = False
    one = ActorLearner(config)
    one.close()
    whole = learner(config, one)
    _, (first, second) = joined(config, 2)
    together(lambda: first.update(part(rollout, slice(0, 2)), 0), lambda: second.update(part(rollout, slice(2, 4)), 0))
    whole.update(part(rollout, slice(0, 2)), 0)
    torch.testing.assert_close(first.flat.vector, whole.flat.vector, rtol=1e-5, atol=1e-7)


def test_nobody_goes_on_before_all_have_come() -> None:
    memory, _ = joined(configure(num_envs=6, num_workers=3), 3)
    rounds, seen = 200, torch.zeros(3, dtype=torch.int64)
    behind: list[Tensor] = []

    def visit(weights: RankWeights) -> None:
        for number in range(rounds):
            seen[weights.rank] = number
            weights.barrier()
            if (seen < number).any():
                behind.append(seen.clone())
            weights.barrier()

    together(*(partial(visit, memory.sink(rank)) for rank in range(3)))
    assert not behind
    assert seen.tolist() == [rounds - 1] * 3


def test_who_waits_asks_whether_the_others_live() -> None:
    memory, _ = joined(configure(), 2)
    weights = memory.sink(0)

    def check() -> None:
        raise InterruptedError("the other has ended")

    weights.check = check
    with pytest.raises(InterruptedError):
        weights.barrier()
