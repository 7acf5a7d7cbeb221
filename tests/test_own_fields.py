"""Hyperparameters of users' algorithms: the training, config.json and a resumed run have the same values and types."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import random
from typing import Any, Final, Literal, NewType

import numpy as np
import pytest

import vantage
from vantage.config.algorithms import check_kept
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.fields import key

Count = NewType("Count", int)


class Colour(enum.Enum):
    """A choice that is no text."""

    RED = "red"
    BLUE = 2


@dataclass(frozen=True)
class Own(vantage.PPO):
    """Has a field of each kind."""

    target: float | str = "auto"
    bins: int | str = 7
    pair: tuple[str, float] = ("b", 0.25)
    sizes: tuple[float, int] = (1.0, 3)
    anything: object = "1"
    name: str | None = None
    mode: Literal["a", "b", 3] = "a"
    colour: Colour = Colour.RED
    count: Count = Count(4)
    final: Final[int] = 3  # type: ignore[misc]
    by_number: dict[int, float] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=lambda: [(1, 2)])
    row: Sequence[int] = (1, 2)
    numbers: list[float] = field(default_factory=lambda: [np.float32(2)])  # type: ignore[list-item]
    twice: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "twice", 2 * self.gamma)


GIVEN: dict[str, Any] = {"target": 0.5, "bins": "x", "pair": ("c", 1.0), "sizes": (2.0, 4), "anything": [1],
                         "name": "n", "mode": 3, "colour": Colour.BLUE, "count": 5, "final": 6, "by_number": {1: 2.0},
                         "pairs": [[3, 4]], "row": [5], "numbers": [1.5]}


def test_values_keep_their_types_through_a_config_and_its_file() -> None:
    config = vantage.configure(Own(**GIVEN), env="CartPole-v1")
    for name, value in GIVEN.items():
        taken = getattr(config.algorithm, name)
        assert taken == value and type(taken) is type(value), name
    again = Config.from_json(config.to_json(), source="here", objects={"algo": config.algo})
    assert again == config


def test_the_first_training_and_a_resumed_one_have_the_same_default() -> None:
    config = vantage.configure(Own, env="CartPole-v1")
    algorithm: Any = config.algorithm
    assert (algorithm.pairs, algorithm.row, algorithm.numbers) == ([[1, 2]], [1, 2], [2.0])
    assert type(algorithm.numbers[0]) is float
    assert Config.from_json(config.to_json(), source="here", objects={"algo": config.algo}) == config


@pytest.mark.parametrize(("name", "text", "value"), [
    ("target", "0.5", 0.5), ("target", "auto", "auto"), ("bins", "3", 3), ("mode", "b", "b"), ("mode", "3", 3),
    ("colour", "red", Colour.RED), ("colour", "2", Colour.BLUE), ("pair", "c,1", ("c", 1.0)),
    ("by_number", '{"1": 2.0}', {1: 2.0}),
    ("bins", "007", "007"), ("target", "1e3", "1e3"), ("colour", "BLUE", Colour.BLUE)])
def test_text_of_a_flag_becomes_the_first_type_that_takes_it(name: str, text: str, value: Any) -> None:
    taken = getattr(vantage.configure(Own, env="CartPole-v1", **{name: text}).algorithm, name)
    assert taken == value and type(taken) is type(value)


@pytest.mark.parametrize(("name", "value", "says"), [
    ("mode", "c", "mode='c' is not one of a, b, 3"), ("colour", "green", "colour='green' is not one of red, 2"),
    ("sizes", (1.0,), r"sizes=\(1.0,\) is not a list"), ("by_number", {"a": 1.0}, "by_number=.* is not a JSON object")])
def test_a_value_that_no_type_takes_is_refused(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        vantage.configure(Own, env="CartPole-v1", **{name: value})


def test_what_a_field_follows_changes_it() -> None:
    config = vantage.configure(Own, env="CartPole-v1")
    changed: Any = config.change(gamma=0.5).algorithm
    assert changed.twice == 1.0 and "twice" not in config.flat() and "twice" not in config.to_json()


@pytest.mark.parametrize(("hint", "make"), [
    (Path, lambda: Path("a")), (set, lambda: {1}), (bytes, lambda: b"a"), (complex, lambda: 1j),
    (Callable, lambda: len), (Any, lambda: len), (dict, lambda: {1: 2.0}),
    (np.ndarray, lambda: np.ones(3)), (object, lambda: {"a": {1}})])
def test_a_value_that_a_file_cannot_hold_is_refused_before_the_training(hint: Any, make: Any) -> None:
    body = {"__annotations__": {"extra": hint}, "extra": field(default_factory=make)}
    kind = dataclass(frozen=True)(type("Bad", (vantage.PPO,), body))
    with pytest.raises(ConfigError, match=r"has the field extra=.*, which config\.json cannot give back as "):
        vantage.configure(kind, env="CartPole-v1")


@dataclass(frozen=True)
class Open(vantage.PPO):
    """Takes code in a field, has a default that is another each time, and a list for a missing one."""

    net: str = key("cnn", "a network", choices=("cnn",), open=True)
    number: float = field(default_factory=random)
    weights: list[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is None:
            object.__setattr__(self, "weights", [1.0])


def test_code_and_defaults_of_ones_own_making_are_kept() -> None:
    def build(shape: Any) -> Any:
        return shape

    algorithm: Any = vantage.configure(Open, env="CartPole-v1", net=build).algorithm
    assert algorithm.net.target is build and algorithm.weights == [1.0] and 0 <= algorithm.number < 1


def test_a_worker_that_lacks_the_types_of_a_notebook_takes_its_config_as_it_is() -> None:
    program = ("from __future__ import annotations\nimport enum, sys, pickle\nfrom dataclasses import dataclass\n"
               "import vantage\nfrom vantage import Coefficient\nPair = tuple[int, int]\n"
               "class Colour(enum.Enum):\n    RED = 'red'\n"
               "@dataclass(frozen=True)\nclass Own(vantage.PPO):\n    pen: Coefficient = 'linear:1:0'\n"
               "    pair: Pair = (1, 2)\n    colour: Colour = Colour.RED\n"
               "sys.stdout.buffer.write(pickle.dumps(vantage.configure(Own, env='CartPole-v1')))")
    packed = subprocess.run([sys.executable, "-"], input=program.encode(), stdout=subprocess.PIPE, check=True).stdout
    reader = ("import pickle, sys; config = pickle.load(sys.stdin.buffer).change(num_envs=2)\n"
              "own = config.algorithm; print(own.pair, own.colour.value, config.at('pen', 0))")
    said = subprocess.run([sys.executable, "-c", reader], input=packed, stdout=subprocess.PIPE, check=True).stdout
    assert said.decode().strip() == "(1, 2) red 1.0"


@dataclass(frozen=True)
class Doubling(vantage.PPO):
    """Sets a field that is an argument."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", 2 * self.scale)


def test_a_class_that_sets_its_own_argument_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"makes scale=6.0 12.0 when it is copied; make what"):
        check_kept("mine:Doubling", Doubling(scale=3.0))
    with pytest.raises(ConfigError, match=r"makes scale=2.0 4.0 when it is copied"):
        vantage.configure(Doubling(scale=3.0), env="CartPole-v1")


def test_a_run_whose_class_has_lost_a_field_still_acts_but_does_not_train_on(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = ("import vantage\nfrom dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Own(vantage.PPO):\n"
            "    {}: int = 2\n")
    (tmp_path / "losing.py").write_text(text.format("old"))
    vantage.train("losing:Own", env="tiny:Bandit", run=tmp_path / "run", steps=32, num_envs=1, rollout_length=8,
                  threads=1, tensorboard=False, progress=False)
    run = tmp_path / "run"
    (tmp_path / "losing.py").write_text(text.format("renamed"))
    monkeypatch.delitem(sys.modules, "losing")
    assert vantage.load(run).act(np.zeros(1))[0].shape == ()
    assert "losing:Own has changed since the run: it no longer takes old=2" in caplog.text
    with pytest.raises(ConfigError, match=r"unknown key 'old'.*; restore what the class .*init_from='"):
        vantage.resume(run, steps=64, extend_schedule=True)
