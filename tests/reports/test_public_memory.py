"""Reports that the state of an LSTM goes on from one game to the next when a policy is played.

github.com/isaac-sim/IsaacLab/pull/3838, github.com/ikostrikov/pytorch-a2c-ppo-acktr-gail/issues/206.
"""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from environments import make

from vantage.config.config import Config
from vantage.learning.evaluation import game_steps
from vantage.models.build import make_model


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@pytest.mark.parametrize("separate", [False, True])
def test_equal_games_have_equal_values_whatever_game_was_played_before(memory: str, separate: bool) -> None:
    envs = make("public_cases:OneArray", 1, evaluation=True)
    torch.manual_seed(0)
    policy = Config().override({"memory": memory, "memory_size": 8, "separate": separate}, source="test").policy
    model = make_model(policy, envs.spec, critic="state")
    played = game_steps(model, envs, deterministic=True, generator=torch.Generator())
    first, second = ([step.value for step in islice(played, 51)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 40, "the values follow the observations"
