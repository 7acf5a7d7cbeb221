"""Values of keys from Python: those of numpy and torch, and flags where a name belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vantage.algorithms.ppo import PPO
from vantage.config.configure import configure
from vantage.errors import ConfigError
from vantage.keys.typed_values import typed
from vantage.models.config import PolicyConfig


@pytest.mark.parametrize(("key", "given", "taken"), [
    ("separate", np.bool_(True), True),
    ("tensorboard", torch.tensor(False), False),
    ("steps", np.int64(64), 64),
    ("steps", torch.tensor([64]), 64),
    ("lr", torch.tensor(0.5), 0.5),
    ("gamma", np.array([0.5]), 0.5),
    ("hidden", np.array([8, 16]), (8, 16)),
    ("hidden", torch.tensor([8]), (8,)),
    ("max_kl", np.float64(0.5), 0.5),
    ("action_subset", np.array([0, 1]), "0,1"),
    ("distribution", np.str_("beta"), "beta"),
    ("device", torch.device("cpu"), "cpu"),
    ("precision", torch.bfloat16, "bfloat16"),
    ("env_kwargs", None, "{}")])
def test_numbers_flags_and_lists_may_be_those_of_numpy_and_torch(key: str, given: Any, taken: Any) -> None:
    value = configure("ppo", env="CartPole-v1", **{key: given}).flat()[key]
    assert value == taken and type(value) is type(taken)


def test_fields_of_groups_and_algorithms_take_numpys_numbers_too() -> None:
    network: dict[str, Any] = {"separate": np.bool_(True), "hidden": np.array([8])}
    assert PolicyConfig(**network) == PolicyConfig(separate=True, hidden=(8,))
    passes: dict[str, Any] = {"epochs": np.int64(2), "advantage_norm": np.bool_(False)}
    assert PPO(**passes) == PPO(epochs=2, advantage_norm=False)


def test_a_whole_number_in_text_keeps_all_its_digits() -> None:
    for number in (2**53 + 1, -(2**53) - 1):
        assert typed(str(number), int) == number


@pytest.mark.parametrize("flag", [np.bool_(True), torch.tensor(True)])
@pytest.mark.parametrize("key", ["lr", "steps", "reward_scale"])
def test_a_flag_is_no_number(key: str, flag: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=True is not a"):
        configure("ppo", env="CartPole-v1", **{key: flag})


@pytest.mark.parametrize(("key", "choices"), [
    ("value_norm", "none, popart"), ("curiosity", "none, rnd"), ("memory", "none, lstm, gru, gtrxl, module:Class")])
def test_a_flag_for_a_name_is_answered_with_the_names(key: str, choices: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}='True' is not one of {choices}$"):
        configure("ppo", env="CartPole-v1", **{key: True})
