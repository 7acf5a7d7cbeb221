"""Networks whose outputs are NaN: the policy is named, and not the environment that would meet its actions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny import Bandit
from torch import nn

import vantage


class Dose(Bandit):
    """Fails on an action that is NaN, as numpy's poisson does; takes a choice if `discrete`."""

    def __init__(self, discrete: bool = False, bound: float = 1) -> None:
        super().__init__()
        if not discrete:
            self.action_space = spaces.Box(-bound, bound, (2,), np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        if np.isnan(action).any():
            raise ValueError("lam value too large")
        return 0.0, True


class Uninitialised(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), torch.nan))

    def forward(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True) + self.scale


class Divides(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + x.sum(-1, keepdim=True) / x.sum(-1, keepdim=True)


SCALE = r"not finite in the network: .*scale.*; initialise what is named"
LAYERS = "its parameters and the observations are finite, so look for a division by 0"


@pytest.mark.parametrize(("algo", "network", "reason"), [
    ("ppo", Uninitialised, SCALE), ("a3c", Uninitialised, SCALE), ("a2c", Divides, LAYERS), ("acer", Divides, LAYERS)])
def test_the_policy_is_named_before_its_action_reaches_the_environment(
        algo: str, network: Any, reason: str, tmp_path: Path) -> None:
    keys = {"num_workers": 1} if algo == "a3c" else {"num_envs": 2}
    with pytest.raises(vantage.NonFiniteError) as error:
        vantage.train(algo, env=Dose, network=network, steps=64, threads=1, tensorboard=False, eval_every=0,
                      run=tmp_path / "run", progress=False, **keys)
    text = str(error.value)
    assert re.search("the policy gave the action nan: " + reason, text), text
    assert "lam value" not in text and "lr" not in text


def test_infinite_bounds_of_actions_are_not_what_is_at_fault(tmp_path: Path) -> None:
    with pytest.raises(vantage.NonFiniteError, match=LAYERS):
        vantage.train("ppo", env=lambda: Dose(bound=np.inf), network=Divides, steps=64, num_envs=2, threads=1,
                      tensorboard=False, eval_every=0, run=tmp_path / "run", progress=False)


def test_the_loss_of_discrete_actions_names_the_network_before_the_learning_rate(tmp_path: Path) -> None:
    with pytest.raises(vantage.NonFiniteError) as error:
        vantage.train("ppo", env=lambda: Dose(discrete=True), network=Divides, steps=64, num_envs=2, threads=1,
                      tensorboard=False, eval_every=0, run=tmp_path / "run", progress=False)
    assert str(error.value).startswith("the network's outputs are not finite: its parameters and the observations")
