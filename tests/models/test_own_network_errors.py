"""What a network of one's own is refused for: the observation's part, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import vantage
from vantage.errors import ConfigError
from vantage.keys.objects import ObjectName
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.types import ActionSpec, ArraySpec, EnvSpec

SHOP = EnvSpec({"stock": ArraySpec("vector", (3,)), "weekday": ArraySpec("one_hot", (7,))},
               ActionSpec("discrete", (2,)))


class Extractor(nn.Module):
    def __init__(self, observation_space: Any, features_dim: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(observation_space.shape[0], features_dim)


def returning(function: Callable[[Any], Any]) -> Any:
    class Net(nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.layer = nn.Linear(shape[0], 4)

        def forward(self, x: Any) -> Any:
            return function(self.layer(x))

    return Net


def refused(network: Any, spec: EnvSpec = SHOP) -> str:
    with pytest.raises(ConfigError) as error:
        make_model(PolicyConfig(network=ObjectName("<Net>", network)), spec, critic="state")
    assert "\n" not in str(error.value)
    return str(error.value)


def only_three(shape: tuple[int, ...]) -> nn.Module:
    if shape != (3,):
        raise ValueError("no weekday")
    return nn.Linear(3, 4)


def test_the_part_of_a_dict_is_named_and_each_has_a_network() -> None:
    text = refused(only_three)
    assert "cannot be used for the observation part 'weekday' of shape [7]: ValueError('no weekday')" in text
    assert "each part gets a network of its own" in text
    text = refused(lambda shape: nn.Linear(4, 4), EnvSpec(ArraySpec("vector", (3,)), ActionSpec("discrete", (2,))))
    assert "cannot be used for observations [3]" in text and "each part" not in text


def test_a_network_that_takes_a_space_is_told_that_it_receives_the_shape() -> None:
    assert "its parameter observation_space receives the shape of the observation, a tuple, and no space" in refused(
        Extractor)


def test_a_function_whose_parameter_is_named_after_a_space_is_taken() -> None:
    def linear(obs_space_shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(obs_space_shape[0], 4)

    policy = PolicyConfig(network=ObjectName("<Net>", linear))
    assert make_model(policy, SHOP, critic="state").actor.out_features == 8


@pytest.mark.parametrize(("function", "words"), [
    (lambda x: (x, None), "forward returned a tuple; return one tensor"),
    (lambda x: None, "forward returned None; return one tensor"),
    (lambda x: x.detach().numpy(), "forward returned a ndarray; return one tensor")])
def test_a_forward_that_returns_no_tensor_is_named(function: Callable[[Any], Any], words: str) -> None:
    assert words in refused(returning(function))


def test_a_shape_given_as_a_number_is_answered_by_its_element() -> None:
    assert "write shape[0]" in refused(lambda shape: nn.Linear(shape, 8))
    policy = PolicyConfig(network=ObjectName("<Net>", lambda shape: nn.Linear(shape[0], 8)))
    assert make_model(policy, SHOP, critic="state").actor.out_features == 16
    assert torch.is_tensor(returning(torch.relu)((3,))(torch.zeros(2, 3)))


def test_a_mapping_of_networks_is_answered_with_one_for_every_part() -> None:
    with pytest.raises(ConfigError, match=r"^network is a mapping of field, tank; one network serves every image of a"):
        vantage.configure("ppo", env="CartPole-v1", network={"field": Extractor, "tank": Extractor})
