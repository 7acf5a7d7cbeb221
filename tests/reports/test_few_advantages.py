"""Advantages without a deviation: one step, one valid step, equal ones. Normalised they would be 0, or rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.algorithms.losses import normalise

ONE = {"num_envs": 1, "rollout_length": 1, "obs_norm": False, "reward_norm": False, "eval_every": 0, "threads": 1,
       "hidden": "8", "tensorboard": False, "log_every_seconds": 1000, "lr": "3e-2", "entropy_coef": 0,
       "advantage_norm": True}


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers])


@pytest.mark.parametrize(("x", "valid", "expected"), [
    (row(3.0), [True], row(3.0)),
    (row(3.0, 7.0, -1.0), [False, True, False], row(3.0, 7.0, -1.0)),
    (row(0.1, 0.1, 0.1, 0.1, 0.1), [True] * 5, row(0.1, 0.1, 0.1, 0.1, 0.1)),
    (row(0.0, 0.0), [True, True], row(0.0, 0.0)),
    (row(1.0, 3.0), [True, True], row(-1.0, 1.0)),
    (row(1.0, 99.0, 3.0), [True, False, True], row(-1.0, 97.0, 1.0))])
def test_only_steps_that_differ_are_normalised(x: torch.Tensor, valid: list[bool], expected: torch.Tensor) -> None:
    torch.testing.assert_close(normalise(x, torch.tensor([valid])), expected)


def test_one_step_in_each_of_two_processes_is_two_steps() -> None:
    other = normalise_sums(3.0)
    result = normalise(row(1.0), torch.tensor([[True]]), other)
    torch.testing.assert_close(result, row(-1.0))


def normalise_sums(x: float) -> Any:
    """What another process with the single step `x` adds: the sums of its steps, then of their squared distances."""
    parts = iter([torch.tensor([x, 1.0]), torch.tensor([(x - 2.0) ** 2, 1.0])])
    return lambda sums: sums + next(parts)


@pytest.mark.parametrize(("algo", "keys"), [
    ("ppo", {"minibatch_size": 1, "epochs": 1}),
    ("ppo", {"minibatch_size": 1, "epochs": 1, "advantage_norm_over": "minibatch"}),
    ("ppo", {"num_envs": 3, "minibatch_size": 2, "advantage_norm_over": "minibatch", "epochs": 1}),
    ("a2c", {})], ids=["rollout", "minibatch", "last minibatch", "a2c"])
def test_a_bandit_is_learned_from_one_step_at_a_time(algo: str, keys: dict[str, Any], tmp_path: Path) -> None:
    config = vantage.configure(algo, env="tiny:Bandit", steps=150, **{**ONE, **keys})
    list(vantage.Trainer(config, run=tmp_path / "run"))
    agent = vantage.load(tmp_path / "run", checkpoint="latest")
    params, _ = agent.model.step(torch.zeros(1, 1), torch.ones(1, dtype=torch.bool), agent.initial_state(), None)
    assert params.softmax(-1)[0, 1] > 0.9
