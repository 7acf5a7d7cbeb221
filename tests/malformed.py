"""Environments that return one thing outside Gymnasium's interface each, importable by worker processes."""

from __future__ import annotations

from collections import UserDict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

OBS = np.zeros(2, np.float32)


def _generator() -> Any:
    yield OBS


def _raises(error: BaseException) -> Any:
    raise error


class Stop(BaseException):
    """An error that `except Exception` does not catch."""


class Untold(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


RESETS: dict[str, Any] = {
    "array": lambda: OBS, "dict": lambda: {"x": OBS, "y": OBS},
    "None": lambda: None, "generator": _generator, "three": lambda: (OBS, {}, {}), "info None": lambda: (OBS, None),
    "list": lambda: [OBS, {}], "parts": lambda: (OBS, OBS), "three parts": lambda: (OBS, OBS, OBS),
    "stop": lambda: _raises(StopIteration("empty"))}

STEPS: dict[str, Any] = {
    "no info": lambda: (OBS, 1.0, False, False), "numpy flags": lambda: (OBS, 1.0, np.False_, np.True_),
    "three": lambda: (OBS, 1.0, False), "info first": lambda: (OBS, 1.0, False, {}, False),
    "four": lambda: (OBS, 1.0, False, {}), "None": lambda: None, "six": lambda: (OBS, 1.0, False, False, {}, 0),
    "array": lambda: np.zeros(5), "dict": lambda: dict.fromkeys("abcde"), "generator": _generator,
    "StopIteration": lambda: _raises(StopIteration(3)), "GeneratorExit": lambda: _raises(GeneratorExit()),
    "SystemExit": lambda: _raises(SystemExit(0)), "Stop": lambda: _raises(Stop("enough")),
    "untold": lambda: _raises(Untold()), "KeyboardInterrupt": lambda: _raises(KeyboardInterrupt())}

REWARDS: dict[str, Any] = {
    "one": np.array([0.5], np.float32), "zero axes": np.array(0.5), "float32": np.float32(0.5), "int": 1,
    "bool": np.bool_(True), "tensor": torch.tensor([0.5]), "Decimal": Decimal("0.5"), "Fraction": Fraction(1, 2),
    "object": np.array([0.5], object), "three": np.zeros(3), "None": None, "text": "1.0", "dict": {"a": 1.0},
    "complex": 1 + 2j, "numpy complex": np.complex64(1), "object None": np.array(None), "tensors": torch.zeros(3),
    "huge": 10**400, "date": np.datetime64("2026-01-01"), "list": [1.0]}

FLAGS: dict[str, Any] = {
    "numpy": np.bool_(True), "array": np.array([True]), "one": 1, "None": None, "two": 2, "text": "False",
    "flags": np.array([True, False]), "nan": float("nan")}

INFOS: dict[str, Any] = {"None": None, "list": [1], "text": "info", "mapping": UserDict(a=1),
                         "huge": {"x": "y" * 10**6}}

OBSERVATIONS: dict[str, Any] = {
    "None": None, "text": "obs", "generator": (i for i in ()), "dates": np.array(["2026", "2027"], "datetime64[Y]"),
    "objects": np.array([None, 1], object), "ragged": [[1.0], [1.0, 2.0]], "shape": np.zeros(3), "set": {1.0, 2.0}}


class Malformed(gym.Env[Any, Any]):
    """Well-behaved for two steps; from the third on returns what the keywords name."""

    def __init__(self, reset: str = "", step: str = "", reward: str = "", terminated: str = "", truncated: str = "",
                 info: str = "", obs: str = "") -> None:
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
        self.names = {"reward": reward, "terminated": terminated, "truncated": truncated, "info": info, "obs": obs}
        self.at_reset, self.at_step, self.t = reset, step, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.t = 0
        return RESETS[self.at_reset]() if self.at_reset else (OBS, {})

    def step(self, action: Any) -> Any:
        self.t += 1
        if self.t < 3:
            return OBS, 0.0, False, False, {}
        if self.at_step:
            return STEPS[self.at_step]()
        values = {"reward": REWARDS, "terminated": FLAGS, "truncated": FLAGS, "info": INFOS, "obs": OBSERVATIONS}
        usual = {"reward": 0.0, "terminated": False, "truncated": False, "info": {}, "obs": OBS}
        given = {name: values[name][chosen] if (chosen := self.names[name]) else usual[name] for name in usual}
        return given["obs"], given["reward"], given["terminated"], given["truncated"], given["info"]


VECTORS: dict[str, Any] = {
    "old reset": lambda n: np.zeros((n, 2)), "four": lambda n: (np.zeros((n, 2)), np.zeros(n), np.zeros(n, bool), {}),
    "list": {"rewards": [0.5, 1]}, "column": {"rewards": np.array([[0.5], [1.0]])}, "None": {"rewards": None},
    "with None": {"rewards": [0.5, None]}, "short": {"rewards": np.zeros(1)},
    "flags": {"terminated": [0, 2]}, "ints": {"terminated": [0, 0]},
    "info": {"info": [{}, {}]}, "obs": {"obs": np.zeros((2, 3))},
    "complex": {"rewards": np.zeros(2, complex)}, "huge": {"rewards": [10**400, 1]},
    "fractions": {"rewards": [Fraction(1, 2), Decimal(1)]}}


class MalformedVector(VectorEnv):
    """Two environments; returns what `fault` names from the second step on."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, fault: str) -> None:
        self.num_envs, self.fault, self.t = num_envs, fault, 0
        self.single_observation_space, self.single_action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs = np.zeros((self.num_envs, 2), np.float32)
        return VECTORS[self.fault](self.num_envs) if self.fault == "old reset" else (obs, {})

    def step(self, actions: Any) -> Any:
        self.t += 1
        n, fault = self.num_envs, VECTORS[self.fault] if self.t > 1 else {}
        if callable(fault):
            return fault(n)
        values = {"obs": np.zeros((n, 2), np.float32), "rewards": np.zeros(n), "terminated": np.zeros(n, bool),
                  "truncated": np.zeros(n, bool), "info": {}}
        return tuple({**values, **fault}.values())


def limited(step: str) -> Any:
    """`Malformed` below a wrapper of Gymnasium that unpacks what step returns."""
    return gym.wrappers.TimeLimit(Malformed(step=step), 9)


class WithoutSeed(Malformed):
    """Cannot be reset with a seed."""

    def reset(self) -> Any:  # type: ignore[override]
        return OBS, {}


MASK = np.zeros(2)
"""What `BadMask` reports."""


class BadMask(Malformed):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return OBS, {"action_mask": MASK.copy()}
