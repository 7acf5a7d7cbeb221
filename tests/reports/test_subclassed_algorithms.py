"""Subclasses of A2C, PPO and ACER have the defaults of their base, and train as it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.cli import main
from vantage.config.config import Config
from vantage.tools.search.command import Options
from vantage.tools.search.plan import make_plan


class PlainPPO(vantage.PPO):
    """PPO by another name."""


class PlainA2C(vantage.A2C):
    """A2C by another name."""


class PlainACER(vantage.ACER):
    """ACER by another name."""


class Grandchild(PlainPPO):
    """A subclass of a subclass."""


class FiveEpochs(vantage.PPO):
    """Sets one default without an annotation."""

    epochs = 5


@dataclass(frozen=True)
class WithField(vantage.PPO):
    """Sets one default, and has a key of its own."""

    clip: str = "0.3"
    bonus: float = 0.1


class Annotated(vantage.PPO):
    """Has an attribute that is no field."""

    bonus: float = 0.1


def values(config: Config, *without: str) -> dict[str, Any]:
    return {name: value for name, value in config.flat().items() if name not in ("algo", *without)}


BASES = {"ppo": PlainPPO, "a2c": PlainA2C, "acer": PlainACER}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pong", "Breakout", "Pendulum-v1", "LunarLander-v3", "Taxi-v4"])
@pytest.mark.parametrize("algo", BASES)
def test_a_subclass_has_every_default_of_its_base(algo: str, env: str) -> None:
    assert values(vantage.configure(BASES[algo], env=env)) == values(vantage.configure(algo, env=env))


def test_a_subclass_of_a_subclass_has_the_defaults_of_ppo() -> None:
    path = f"{Grandchild.__module__}:Grandchild"
    assert values(vantage.configure(path, env="CartPole-v1")) == values(vantage.configure("ppo", env="CartPole-v1"))


@pytest.mark.parametrize("runtime", ["hogwild", "ray"])
def test_a_subclass_has_the_defaults_of_its_base_under_each_runtime(runtime: str) -> None:
    base = "a3c" if runtime == "hogwild" else "a2c"
    config = vantage.configure(PlainA2C, env="Pong", runtime=runtime)
    assert values(config) == values(vantage.configure(base, env="Pong", runtime=runtime))


def test_the_body_of_a_subclass_overrides_a_default() -> None:
    ppo = values(vantage.configure("ppo", env="CartPole-v1"), "epochs")
    config = vantage.configure(FiveEpochs, env="CartPole-v1")
    assert values(config, "epochs") == ppo and str(ppo["lr"]) == "linear:1e-3:0"
    assert config.flat()["epochs"] == 5
    assert vantage.configure(FiveEpochs, env="CartPole-v1", epochs=7).flat()["epochs"] == 7


def test_a_subclass_may_have_new_keys() -> None:
    config = vantage.configure(WithField, env="CartPole-v1", bonus=0.2)
    ppo = values(vantage.configure("ppo", env="CartPole-v1"), "clip")
    assert values(config, "clip", "bonus") == ppo
    assert (config.flat()["clip"], config.flat()["bonus"]) == ("0.3", 0.2)


def test_an_annotation_without_the_decorator_is_named() -> None:
    with pytest.raises(vantage.ConfigError, match=r"bonus is an attribute of Annotated .* @dataclass\(frozen=True\)"):
        vantage.configure(Annotated, env="CartPole-v1", bonus=0.2)


def test_vantages_own_classes_have_the_defaults_of_their_names() -> None:
    for algo, kind in {"ppo": vantage.PPO, "a2c": vantage.A2C, "acer": vantage.ACER}.items():
        assert values(vantage.configure(kind, env="CartPole-v1")) == values(vantage.configure(algo, env="CartPole-v1"))


def test_the_command_gives_a_subclass_the_same_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for algo in ("ppo", f"{PlainPPO.__module__}:PlainPPO"):
        assert main(["train", algo, "--env", "CartPole-v1", "--dry-run"]) == 0
        shown.append(capsys.readouterr().out.replace(f'"{algo}"', '"ALGO"'))
    assert shown[0] == shown[1]


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("algo", BASES)
def test_a_subclass_trains_bit_for_bit_as_its_base(algo: str, tmp_path: Path) -> None:
    weights = []
    for number, kind in enumerate((algo, BASES[algo])):
        config = vantage.configure(kind, env="CartPole-v1", steps=400, num_envs=2, rollout_length=25, threads=1,
                                   eval_every=0, tensorboard=False, **({"replay_start": 100} if algo == "acer" else {}))
        for _ in vantage.Trainer(config, run=tmp_path / str(number)):
            pass
        weights.append(vantage.load(tmp_path / str(number)).model.state_dict())
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


def test_a_search_varies_the_keys_of_a_subclass() -> None:
    plan = make_plan(f"{WithField.__module__}:WithField", "CartPole-v1", {"threads": 1, "steps": 300},
                     Options(grid='{"bonus": [0.5], "epochs": [2, 4]}'))
    assert plan.points == [{"bonus": 0.5, "epochs": 2}, {"bonus": 0.5, "epochs": 4}]
    assert plan.config(plan.points[1], 3).algorithm == vantage.configure(
        WithField, env="CartPole-v1", bonus=0.5, epochs=4).algorithm
