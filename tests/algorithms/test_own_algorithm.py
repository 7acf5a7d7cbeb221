"""An algorithm named by an import path: the example trains by the command, and what is no algorithm is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import random_rollout

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Needs, Reuse, Update
from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models.actor_critic import make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

EXAMPLE = Path(__file__).parents[2] / "examples" / "huber_a2c.py"


def test_the_example_trains_by_the_command_with_flags_of_its_own(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    train = ["train", "huber_a2c:HuberA2C", "--env", "CartPole-v1"]
    assert main([*train, "--huber-delta", "0.25", "--steps", "256", "--threads", "1", "--tensorboard", "false",
                 "--eval-every", "0"]) == 0
    directory = Path("runs/CartPole-v1/HuberA2C-1")
    config = json.loads((directory / "config.json").read_text())
    assert config["algorithm"]["huber_delta"] == 0.25 and "vtrace" not in config["algorithm"]
    assert main(["resume", str(directory), "--steps", "512"]) == 0
    assert main([*train, "--vtrace"]) == 2
    assert "vtrace has no effect with huber_a2c:HuberA2C" in capsys.readouterr().err


def test_a_huber_critic_with_a_large_delta_is_a2c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    coefficients = {"gae_lambda": "0.9", "entropy_coef": "0.01"}
    own = Config.of("huber_a2c:HuberA2C").change(huber_delta=1e6, **coefficients)
    a2c = Config.of("a2c").change(**coefficients)
    spec = EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,)))
    model = make_model(a2c.policy, spec, critic="state")
    rollout = random_rollout(model, 5, 3)
    losses = [config.algorithm.loss(model, rollout, Update(0, 100))[0] for config in (own, a2c)]
    torch.testing.assert_close(*losses)


@dataclass(frozen=True)
class Clashing(A2C):
    """A field with the name of the optimiser's learning rate."""

    lr: str = "1"


@dataclass(frozen=True)
class Unfinished(A2C):
    """A field without a default."""

    extra: float = field(kw_only=True)


@dataclass(frozen=True)
class Forgetful(A2C):
    """An algorithm of minibatches without estimates."""

    @property
    def needs(self) -> Needs:
        return Needs(reuse=Reuse(1, 64))


@pytest.mark.parametrize(("path", "message"), [
    ("collections:OrderedDict", "collections:OrderedDict is not an algorithm: it lacks loss, needs, gamma"),
    ("test_own_algorithm:Clashing", "has a field lr, which is the name of another key; rename it"),
    ("test_own_algorithm:Unfinished", "has a field extra without a default; give it one"),
    ("test_own_algorithm:Forgetful", "lacks estimate")])
def test_what_is_no_whole_algorithm_is_refused_with_what_it_lacks(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        list(vantage.train(vantage.configure(path, env="CartPole-v1"), run=tmp_path / "run"))


@dataclass(frozen=True)
class Broken(A2C):
    """A2C whose loss returns `result` of its own."""

    result: str = "loss"

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        loss, metrics = super().loss(model, rollout, update)
        return {"loss": loss, "float": (loss, {"train/x": 1.0}), "vector": (loss.expand(2), metrics)}[self.result]


@pytest.mark.parametrize("result", ["loss", "float", "vector"])
def test_a_loss_that_returns_anything_else_is_named(result: str, tmp_path: Path) -> None:
    config = vantage.configure("test_own_algorithm:Broken", env="CartPole-v1", result=result, threads=1)
    with pytest.raises(ConfigError, match="must return a scalar tensor and a mapping"):
        list(vantage.train(config, run=tmp_path / "run"))


@dataclass(frozen=True)
class Declared(A2C):
    """A2C whose default discount is a number instead of a text."""

    entropy_coef: str = "0.05"
    gamma: float = 0.5  # type: ignore[assignment]


def test_the_defaults_of_ones_own_algorithm_are_those_that_it_declares() -> None:
    config = vantage.configure("test_own_algorithm:Declared", env="LunarLander-v3")
    assert config.at("entropy_coef", 0) == 0.05
    assert config.at("gamma", 0) == Update(0, 1).at(0.5) == 0.5  # type: ignore[arg-type]
    of_a2c = vantage.configure("a2c", env="LunarLander-v3")
    assert config.algorithm.gae_lambda == of_a2c.algorithm.gae_lambda, "the rest is that of its base"
    assert config.optimizer == of_a2c.optimizer
