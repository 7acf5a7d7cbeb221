"""The speeds of `vantage bench`: those of a training, for every runtime."""

from __future__ import annotations

import pytest

import vantage
from vantage.tools.bench import bench


@pytest.mark.parametrize("algo", ["a3c", "acer"])
def test_the_parts_take_the_time_of_training(algo: str) -> None:
    config = vantage.configure(algo, env="CartPole-v1", threads=1, hidden="8", log_weights=True)
    measured = bench(config.change(num_workers=2) if algo == "a3c" else config, seconds=0.4)
    assert 0 < measured.whole < min(measured.env, measured.act, measured.learn) and 0.3 < measured.ratio < 1.3
