"""Laws of the torsos."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.models.torsos import Torso, make_torso, to_floats
from vantage.types import ArraySpec

IMAGE = ArraySpec("image", (1, 84, 84))


def torso(name: str, spec: ArraySpec = IMAGE, **options: Any) -> Torso:
    torch.manual_seed(0)
    return make_torso(name, spec, PolicyConfig(**{"frame_stack": 4, "hidden": "32,16", **options}))


def images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "features", "norm"), [
    ("auto", 256, "none"), ("a3c", 256, "layer"), ("nature", 512, "batch"), ("universe", 32 * 6 * 6, "layer"),
    ("impala", 256, "none"), ("mlp", 16, "layer"), ("maxpool", 64 * 4 * 4, "batch"), ("maxpool", 64 * 4 * 4, "layer"),
    ("conv4", 2000, "layer"), ("conv5", 288, "none"), ("mlp", 16, "batch")])
def test_every_network_has_its_number_of_features_and_a_gradient_for_every_weight(
        name: str, features: int, norm: str) -> None:
    network = torso(name, norm=norm)
    assert network.out_features == features
    out = network(images(3, 4, 84, 84))
    assert out.shape == (3, features) and out.dtype == torch.float32
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_the_nature_and_a3c_networks_are_those_of_the_papers() -> None:
    network = torso("nature")
    first, second, third, fc = (m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear))
    x = images(2, 4, 84, 84)
    y = F.relu(F.conv2d(x / 255, first.weight, first.bias, stride=4))
    y = F.relu(F.conv2d(y, second.weight, second.bias, stride=2))
    y = F.relu(F.conv2d(y, third.weight, third.bias))
    y = F.relu(F.linear(y.flatten(1), fc.weight, fc.bias))
    assert [tuple(m.weight.shape) for m in (first, second, third, fc)] == [
        (32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    torch.testing.assert_close(network(x), y, rtol=1e-4, atol=1e-5)
    a3c = [tuple(p.shape) for p in torso("a3c").parameters() if p.dim() > 1]
    assert a3c == [(16, 4, 8, 8), (32, 16, 4, 4), (256, 32 * 9 * 9)]


def test_the_pooled_network_is_the_one_of_rl_a3c_pytorch() -> None:
    network = torso("maxpool", ArraySpec("image", (1, 80, 80)), frame_stack=1)
    x = images(2, 1, 80, 80)
    y = x / 255
    for conv, padding in zip((m for m in network.modules() if isinstance(m, nn.Conv2d)), (2, 1, 1, 1), strict=True):
        y = F.relu(F.max_pool2d(F.conv2d(y, conv.weight, conv.bias, padding=padding), 2))
    assert y.flatten(1).shape == (2, 1024) == (2, network.out_features)
    torch.testing.assert_close(network(x), y.flatten(1), rtol=1e-4, atol=1e-5)


def test_the_convolutions_along_a_vector_are_those_of_a3c_continuous() -> None:
    network = torso("conv1d", ArraySpec("vector", (24,)), frame_stack=2)
    x = torch.randn(3, 48)
    y = x.view(3, 2, 24)
    for conv, padding in zip((m for m in network.modules() if isinstance(m, nn.Conv1d)), (1, 1, 1, 0), strict=True):
        y = F.relu(F.conv1d(y, conv.weight, conv.bias, padding=padding))
    assert network.out_features == 1600
    torch.testing.assert_close(network(x), y.flatten(1))


@pytest.mark.parametrize(("name", "spec"), [
    ("a3c", IMAGE), ("mlp", ArraySpec("vector", (5,))), ("conv1d", ArraySpec("vector", (5,)))])
def test_layer_normalisation_ignores_the_scale_of_a_layers_weights(name: str, spec: ArraySpec) -> None:
    network = torso(name, spec, norm="layer")
    x = images(2, 4, 84, 84) if spec is IMAGE else torch.randn(2, 20)
    before = network(x)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
                layer.weight *= 7
    torch.testing.assert_close(network(x), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["nature", "universe", "impala", "mlp"])
def test_bytes_and_floats_of_the_same_image_give_the_same_features(name: str) -> None:
    network, x = torso(name), images(2, 4, 84, 84)
    torch.testing.assert_close(network(x), network(x.float()), rtol=1e-4, atol=1e-5)
    network.double()
    assert network(x).dtype == torch.float64


def test_images_become_floats_in_channels_last_memory() -> None:
    x = images(2, 3, 5, 7)
    assert torch.equal(to_floats(x, torch.float32), x.float())
    assert to_floats(x, torch.float32).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("name", "smallest"), [("nature", 36), ("a3c", 20), ("maxpool", 24)])
def test_images_too_small_and_norms_without_effect_are_refused(name: str, smallest: int) -> None:
    x = images(1, 4, smallest, smallest + 3)
    assert torso(name, ArraySpec("image", (1, *x.shape[2:])))(x).shape[0] == 1
    with pytest.raises(ConfigError, match=f"{name} needs images of at least {smallest}x{smallest} .* "
                                          f"{smallest + 5}x{smallest - 1}; use network=impala"):
        torso(name, ArraySpec("image", (1, smallest + 5, smallest - 1)))
    with pytest.raises(ConfigError, match="norm=batch is not for network=impala"):
        torso("impala", norm="batch")


@pytest.mark.parametrize("name", ["impala", "universe", "mlp"])
def test_small_images_fit_the_networks_that_are_named_as_the_remedy(name: str) -> None:
    network = torso(name, ArraySpec("image", (3, 5, 1)), frame_stack=1)
    assert network(images(2, 3, 5, 1)).shape == (2, network.out_features)


def test_a_vector_goes_through_an_mlp_whatever_the_network() -> None:
    network = torso("nature", ArraySpec("vector", (3,)), frame_stack=2)
    first, second = (m for m in network.modules() if isinstance(m, nn.Linear))
    x = torch.randn(5, 6)
    torch.testing.assert_close(network(x), second(first(x).tanh()).tanh())


def test_no_hidden_layers_give_the_vector_itself() -> None:
    network, x = torso("mlp", ArraySpec("vector", (3,)), frame_stack=1, hidden=""), torch.randn(2, 3)
    assert network.out_features == 3 and network(x) is x


@pytest.mark.parametrize("name", ["mlp", "nature", "impala"])
def test_orthogonal_layers_have_gain_root_two_and_no_bias(name: str) -> None:
    for layer in torso(name).modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            singular = torch.linalg.svdvals(layer.weight.flatten(1))
            torch.testing.assert_close(singular, torch.full_like(singular, math.sqrt(2)), rtol=1e-4, atol=1e-4)
            assert (layer.bias == 0).all()


def test_torchs_own_initialisation_is_left_alone() -> None:
    network = torso("mlp", ArraySpec("vector", (3,)), frame_stack=1, init="torch")
    torch.manual_seed(0)
    expected = nn.Linear(3, 32)
    first = next(m for m in network.modules() if isinstance(m, nn.Linear))
    assert torch.equal(first.weight, expected.weight) and torch.equal(first.bias, expected.bias)
