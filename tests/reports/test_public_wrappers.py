"""Reports that Gymnasium's wrappers and a vector of environments disagree: frozen stacks, ignored scales.

github.com/thu-ml/tianshou/issues/1272, github.com/Farama-Foundation/Gymnasium/pull/224.
"""

from __future__ import annotations

import numpy as np
import pytest
from environments import make


@pytest.mark.parametrize(("env", "shown"), [
    ("stacked", [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]), ("delayed", [[0], [0], [0], [1]]),
    ("timed", [[0, 0], [1, 1], [2, 2], [3, 3]])])
def test_wrapped_observations_follow_every_step(env: str, shown: list[list[int]]) -> None:
    envs = make(f"public_cases:{env}", 2)
    rows = [envs.reset().obs.copy(), *(envs.step(np.zeros(2, np.int64)).obs.copy() for _ in range(3))]
    for row, expected in zip(rows, shown, strict=True):
        assert row.tolist() == [expected] * 2


def test_a_rescaled_action_reaches_the_environment_in_its_own_scale() -> None:
    envs = make("public_cases:rescaled", 4)
    envs.reset()
    actions = np.array([[-1], [0], [1], [5]], np.float32)
    assert envs.step(actions).rewards.tolist() == [100, 150, 200, 200]
