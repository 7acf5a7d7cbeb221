"""Which state an LSTM or GRU begins past rollouts with: the stored one, of the weights that played them."""

from __future__ import annotations

import pytest
import torch
from rollouts import begun
from torch import Tensor

import vantage
from vantage.types import Rollout

QUIET = {"env": "tiny:Bandit", "num_envs": 2, "rollout_length": 4, "hidden": "8", "memory_size": 4, "lr": 0.1,
         "epochs": 1, "minibatch_size": 8, "threads": 1}


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_past_rollout_begins_with_the_state_that_was_stored_with_it(
        memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[Rollout] = []
    stored: list[Tensor] = []
    with begun(vantage.configure("ppo", memory=memory, past_rollouts=2, **QUIET)) as one:
        update = one.learner.update
        monkeypatch.setattr(one.learner, "update",
                            lambda rollout, step: learned.append(rollout) or update(rollout, step))
        for step in range(4):
            (rollout,), _ = one.collect()
            stored.append(rollout.state[0].clone())
            list(one.updates([rollout], step))
    expected = torch.cat([stored[number] for number in (1, 2, 3)])
    assert sorted(learned[3].state[0].tolist()) == sorted(expected.tolist())
    assert not torch.equal(stored[1], stored[2])
