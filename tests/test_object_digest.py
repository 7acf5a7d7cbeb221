"""Digests of code without an import path tell values apart, or there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vantage
from vantage.keys.object_digest import digest
from vantage.runs.handed_over import digests


class Factory:
    def __init__(self, size: int) -> None:
        self.size = size

    def make(self) -> int:
        return self.size


class Slotted:
    __slots__ = ("size",)


class Attributes(dict[str, int]):
    """A dict whose items are attributes, as many programs have."""

    __getattr__ = dict.__getitem__


def using(value: Any) -> Any:
    return lambda: value


@pytest.mark.parametrize(("one", "other"), [
    (Factory(1).make, Factory(2).make), (using(np.zeros(4)), using(np.zeros((2, 2)))),
    (using(np.zeros(4)), using(np.zeros(4, np.float32))), (using({"a": 1}), using({"a": 2}))])
def test_other_values_have_another_digest(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


@pytest.mark.parametrize("value", [Slotted(), Path("a"), range(3), torch.zeros(2), np.array([Factory(1)])])
def test_a_value_that_cannot_be_known_has_none(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be known"):
        digest(using(value))


def test_odd_objects_of_a_users_program_do_not_stop_a_run() -> None:
    settings = Attributes(size=3)
    config = vantage.configure("ppo", env=lambda: settings.size)
    assert digests(config) == {}
