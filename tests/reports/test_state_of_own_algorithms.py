"""Algorithms of the user's own with modules, tensors or generators that no checkpoint holds: named, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.acer import ACER
from vantage.algorithms.ppo import PPO
from vantage.learning.own_state import own_state

SHORT: dict[str, Any] = {"env": "tiny:Bandit", "num_envs": 4, "rollout_length": 8, "steps": 128, "hidden": "4",
                         "threads": 1, "tensorboard": False, "eval_every": 0}


@dataclass(frozen=True)
class Eager(A2C):
    """Makes a module when it is made."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "predictor", nn.Linear(1, 1))


@dataclass(frozen=True)
class Lazy(A2C):
    """Makes a generator when it first learns."""

    @cached_property
    def noise(self) -> torch.Generator:
        return torch.Generator().manual_seed(0)

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        self.noise.get_state()
        return super().loss(model, rollout, update)


@dataclass(frozen=True)
class InItsClass(PPO):
    """Holds a tensor in its class."""

    total = torch.zeros(1)


@dataclass(frozen=True)
class InContainers(ACER):
    """Holds a module in a list, and numpy's generator in a dict."""

    parts = [nn.Linear(1, 2)]  # noqa: RUF012
    draws = {"first": np.random.default_rng(0)}  # noqa: RUF012


@dataclass(frozen=True)
class Plain(A2C):
    """Holds nothing but hyperparameters and a constant; its module is saved."""

    factor: float = 2.0
    names = ("a", "b")

    def build(self, spec: Any, model: Any) -> nn.Module:
        return nn.Linear(1, 1)


@contextmanager
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The lines about what an algorithm holds."""
    lines: list[str] = []
    caplog.clear()
    with caplog.at_level(logging.WARNING, "vantage"):
        yield lines
    lines += [record.getMessage() for record in caplog.records if " holds " in record.getMessage()]


@pytest.mark.parametrize(("algo", "names"), [
    ("Eager", "predictor (Linear)"), ("Lazy", "noise (Generator)"), ("InItsClass", "total (Tensor)"),
    ("InContainers", "draws (Generator), parts (Linear)")])
def test_what_no_checkpoint_holds_is_named_in_a_run_and_in_its_resume(
        algo: str, names: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, run = vantage.configure(f"{__name__}:{algo}", **SHORT), tmp_path / "run"
    with warned(caplog) as lines:
        list(vantage.Trainer(config, run=run))
    assert lines == [line(algo, names)]
    with warned(caplog) as lines:
        list(vantage.Trainer.resume(run, steps=256, extend_schedule=True))
    assert lines == [line(algo, names)]


def line(algo: str, names: str) -> str:
    return (f"algorithm={__name__}:{algo} holds {names}, which no checkpoint saves: a resume begins it anew. Return "
            "modules and tensors from build, and draw from update.generator")


def test_what_workers_make_is_named_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = vantage.configure(f"{__name__}:Lazy", **SHORT | {"runtime": "hogwild", "num_workers": 1})
    with warned(caplog) as lines:
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert lines == [line("Lazy", "noise (Generator)")]


@pytest.mark.parametrize("algorithm", [A2C(), PPO(), ACER(), Plain()])
def test_hyperparameters_are_no_state(algorithm: Any) -> None:
    assert own_state(algorithm) == frozenset()
