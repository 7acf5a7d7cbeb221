"""Reports that actions which are not allowed have a part in the value that is bootstrapped from.

github.com/thu-ml/tianshou/issues/309 and pull/310.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from environments import make

from vantage.config.config import Config
from vantage.learning.collect import Position, collect
from vantage.models.build import make_model


@pytest.mark.parametrize(("last", "mask"), [
    ("right", [True, False, False]), ("missing", [True] * 3), ("none allowed", [True] * 3)])
def test_a_time_limits_observation_has_its_own_mask(last: str, mask: list[bool]) -> None:
    envs = make("public_cases:MaskedTimeLimit", 1, options={"last": last})
    assert envs.reset().action_mask.tolist() == [[True, False, True]]
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(6)]
    assert [step.action_mask[0].tolist() for step in steps] == [
        [True, False, True], [True, False, True], [True, False, False], [True, False, False], mask,
        [True, False, True]]
    assert [bool(step.is_first[0]) for step in steps] == [False] * 5 + [True]


def test_a_critic_of_actions_values_a_time_limit_by_the_allowed_ones() -> None:
    envs = make("public_cases:MaskedTimeLimit", 2)
    model = make_model(Config().policy, envs.spec, critic="action")
    with torch.no_grad():
        model.value_head.weight.zero_()
        model.value_head.bias.copy_(torch.tensor([10.0, -1000.0, -1000.0]))
    position = Position.after(envs.reset(), model.initial_state(2), torch.device("cpu"))
    rollout = collect(model, envs, position, length=5, generator=torch.Generator().manual_seed(0)).rollout
    _, values = model.unroll(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask)
    assert values[5].tolist() == [10.0, 10.0]


def test_a_subset_without_an_allowed_action_is_no_error_where_no_action_follows() -> None:
    envs = make("public_cases:MaskedTimeLimit", 1, options={"last": "none allowed"}, action_subset="0,1")
    envs.reset()
    masks = [envs.step(np.zeros(1, np.int64)).action_mask[0].tolist() for _ in range(6)]
    assert masks == [[True, False]] * 4 + [[True, True], [True, False]]
