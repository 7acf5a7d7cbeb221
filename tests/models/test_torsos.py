"""Laws of the torsos, and networks named by an import path."""

from __future__ import annotations

import math
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vantage
from vantage.errors import ConfigError
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.models.inputs import networks_in_words
from vantage.models.torsos import make_torso, to_floats, torso_name
from vantage.types import ActionSpec, ArraySpec, EnvSpec

IMAGE = ArraySpec("image", (1, 84, 84))
EXAMPLE = Path(__file__).parents[2] / "examples" / "residual_attention_torso.py"


def torso(network: str, spec: ArraySpec = IMAGE, **options: Any) -> Any:
    torch.manual_seed(0)
    return make_torso(spec, PolicyConfig(**{"network": network, "frame_stack": 4, "hidden": "32,16", **options}))


def images(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def layers(network: nn.Module) -> list[Any]:
    return [m for m in network.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d)]


@pytest.mark.parametrize(("name", "features", "norm"), [
    ("auto", 256, "none"), ("a3c", 256, "layer"), ("nature", 512, "batch"), ("universe", 32 * 6 * 6, "layer"),
    ("impala", 256, "none"), ("mlp", 16, "layer"), ("maxpool", 64 * 4 * 4, "batch"), ("conv4", 2000, "layer"),
    ("conv5", 288, "none"), ("mlp", 16, "batch")])
def test_every_network_has_its_features_and_a_gradient_for_every_weight(name: str, features: int, norm: str) -> None:
    network = torso(name, norm=norm, init="torch")
    assert norm != "batch" or all(layer.bias is None for layer in layers(network))
    out = network(images(3, 4, 84, 84))
    assert out.shape == (3, features) == (3, network.out_features) and out.dtype == torch.float32
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize(("name", "strides", "paddings", "shapes"), [
    ("nature", (4, 2, 1), (0, 0, 0), [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]),
    ("a3c", (4, 2), (0, 0), [(16, 4, 8, 8), (32, 16, 4, 4), (256, 2592)]),
    ("universe", (2,) * 4, (1,) * 4, [(32, 4, 3, 3), *[(32, 32, 3, 3)] * 3]),
    ("maxpool", (1,) * 4, (2, 1, 1, 1), [(32, 4, 5, 5), (32, 32, 5, 5), (64, 32, 4, 4), (64, 64, 3, 3)])])
def test_networks_are_those_of_their_sources(name: str, strides: Any, paddings: Any, shapes: Any) -> None:
    network, x = torso(name, init="torch"), images(2, 4, 84, 84)
    activation, y = F.elu if name == "universe" else F.relu, x / 255
    *convs, last = layers(network)
    if last.weight.dim() == 4:
        convs.append(last)
    for conv, stride, padding in zip(convs, strides, paddings, strict=True):
        y = F.conv2d(y, conv.weight, conv.bias, stride, padding)
        y = activation(F.max_pool2d(y, 2) if name == "maxpool" else y)
    y = y.flatten(1)
    y = F.relu(F.linear(y, last.weight, last.bias)) if last.weight.dim() == 2 else y
    assert [tuple(layer.weight.shape) for layer in layers(network)] == shapes
    torch.testing.assert_close(network(x), y, rtol=1e-4, atol=1e-5)


def test_impala_is_the_residual_network_of_the_paper() -> None:
    network, x = torso("impala"), images(2, 4, 84, 84)
    *convs, fc = layers(network)
    first, inner, y = convs[:3], iter(convs[3:]), x / 255
    for conv in first:
        y = F.max_pool2d(F.conv2d(y, conv.weight, conv.bias, padding=1), 3, 2, 1)
        for _ in range(2):
            one, two = next(inner), next(inner)
            z = F.relu(F.conv2d(F.relu(y), one.weight, one.bias, padding=1))
            y = y + F.conv2d(z, two.weight, two.bias, padding=1)
    torch.testing.assert_close(network(x), F.relu(fc(F.relu(y).flatten(1))), rtol=1e-4, atol=1e-5)
    assert [conv.out_channels for conv in first] == [16, 32, 32] and fc.out_features == 256


def test_the_convolutions_along_a_vector_are_those_of_a3c_continuous() -> None:
    network = torso("conv1d", ArraySpec("vector", (24,)), frame_stack=2)
    x = torch.randn(3, 48)
    y = x.view(3, 2, 24)
    for conv, padding in zip(layers(network), (1, 1, 1, 0), strict=True):
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
        for layer in layers(network):
            layer.weight *= 7
    torch.testing.assert_close(network(x), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["nature", "impala", "mlp"])
def test_bytes_and_floats_of_the_same_image_have_the_same_features(name: str) -> None:
    network, x = torso(name), images(2, 4, 84, 84)
    torch.testing.assert_close(network(x), network(x.float()), rtol=1e-4, atol=1e-5)
    assert to_floats(x, torch.float32).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("name", "smallest"), [("nature", 36), ("a3c", 20), ("maxpool", 24)])
def test_images_too_small_and_norms_without_effect_are_refused(name: str, smallest: int) -> None:
    x = images(1, 4, smallest, smallest + 3)
    assert torso(name, ArraySpec("image", (1, *x.shape[2:])))(x).shape[0] == 1
    with pytest.raises(ConfigError, match=f"{name} leaves no pixel .* {smallest + 5}x{smallest - 1}; use .*impala"):
        torso(name, ArraySpec("image", (1, smallest + 5, smallest - 1)))
    with pytest.raises(ConfigError, match="norm=batch is not for network=impala"):
        torso("impala", norm="batch")
    for remedy in ("impala", "mlp"):
        assert torso(remedy, ArraySpec("image", (3, 5, 1)), frame_stack=1)(images(2, 3, 5, 1)).shape[0] == 2


@pytest.mark.parametrize(("side", "name"), [(20, "a3c"), (19, "minatar"), (3, "minatar"), (2, "mlp")])
def test_small_images_get_a_network_that_fits_by_default(side: int, name: str) -> None:
    part = ArraySpec("image", (6, side, side + 1))
    assert torso_name("auto", part) == name
    assert torso("auto", part, frame_stack=1)(images(2, *part.shape)).shape[0] == 2


def test_codes_are_divided_by_their_unit_and_pixels_by_255() -> None:
    def model(unit: float) -> Any:
        spec = EnvSpec(ArraySpec("image", (1, 3, 3), unit), ActionSpec("discrete", (2,)))
        return make_model(PolicyConfig(network="mlp", hidden=""), spec, critic="state")

    codes = torch.full((2, 1, 3, 3), 10, dtype=torch.uint8)
    for unit, seen in ((255.0, 10 / 255), (1.0, 10.0), (10.0, 1.0)):
        one = model(unit)
        torch.testing.assert_close(one.actor.encode(one._prepare([codes])), torch.full((2, 9), seen))


@pytest.mark.parametrize(("activation", "function"), [
    ("tanh", torch.tanh), ("leaky_relu", lambda x: torch.where(x > 0, x, x / 4)), ("silu", lambda x: x * x.sigmoid())])
def test_a_vector_goes_through_an_mlp_whatever_the_network(activation: str, function: Any) -> None:
    network = torso("nature", ArraySpec("vector", (3,)), frame_stack=2, activation=activation)
    (first, second), x = layers(network), torch.randn(5, 6)
    torch.testing.assert_close(network(x), function(second(function(first(x)))))
    assert torso("mlp", ArraySpec("vector", (3,)), frame_stack=1, hidden="")(x) is x


# Networks named by an import path


class Plain(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


class Wrong(Plain):
    out_features = 3


class Broken(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :2])


def test_an_imported_network_has_its_features_and_images_scaled_to_one() -> None:
    assert torso(f"{__name__}:Plain", ArraySpec("vector", (3,))).out_features == 7
    network, x = torso(f"{__name__}:Plain", ArraySpec("image", (1, 5, 5))), images(2, 4, 5, 5)
    for pixels in (x, x.float()):
        torch.testing.assert_close(network(pixels), layers(network)[0](x.flatten(1) / 255))
    beside = make_torso(ArraySpec("vector", (3,)), PolicyConfig(network=f"{__name__}:Plain"), beside_image=True)
    assert beside.out_features == 64


def test_the_networks_of_all_parts_are_named() -> None:
    spec = EnvSpec({"sign": ArraySpec("vector", (3,)), "eye": ArraySpec("image", (1, 12, 12))},
                   ActionSpec("discrete", (2,)))
    assert networks_in_words(PolicyConfig(), spec) == "minatar for eye, mlp for sign"
    policy = PolicyConfig(network="my:Net", memory="gru", memory_size=8)
    assert networks_in_words(policy, spec) == "my:Net for eye, mlp for sign, then gru of 8"
    assert networks_in_words(policy, replace(spec, obs=spec.obs["sign"])) == "my:Net, then gru of 8"
    policy = PolicyConfig(network="my:Net", separate=True, critic_obs="eye")  # the actor has no image
    assert networks_in_words(policy, spec) == "my:Net for sign, my:Net for eye of the critic alone"
    both = EnvSpec({**spec.obs, "left": ArraySpec("vector", (2,)), "right": ArraySpec("vector", (2,))}, spec.action)
    policy = PolicyConfig(network="my:Net", separate=True, critic_obs="left,right", torsos="joint")
    joined = "my:Net for eye, mlp for sign, mlp for left and right of the critic alone"
    assert networks_in_words(policy, both) == joined, "the critic sees the image too"


@pytest.mark.parametrize(("name", "norm", "message"), [
    ("Wrong", "none", r"Wrong.*output for 2 observations is \[2, 7\], not \[2, 3\].*it must be an nn.Module"),
    ("Broken", "none", r"mat1 and mat2 .* \(line \d+ of .*test_torsos\.py\); it must be an nn.Module"),
    ("Absent", "none", "has no class 'Absent'"), ("Plain", "layer", "norm=layer is not for network"),
    ("images", "none", "images")])
def test_a_class_that_cannot_be_used_is_refused_with_the_reason(name: str, norm: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        torso(f"{__name__}:{name}", ArraySpec("image", (1, 5, 5)), norm=norm)


def test_the_example_trains_and_its_checkpoint_needs_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLE, ".")
    monkeypatch.syspath_prepend(".")
    config = vantage.configure("a2c", env="vantage/Snake-v0", network=f"{EXAMPLE.stem}:ResidualAttention", steps=40,
                               num_envs=2, num_workers=1, threads=1, tensorboard=False, eval_every=0)
    on_pong = vantage.configure("a2c", env="Pong", network=config.policy.network)
    assert on_pong.policy.norm == "none", "the default of Atari is for built-in networks"
    *_, last = vantage.Trainer(config, run="run")
    assert last.status == "done"
    assert "ResidualAttention" in str(vantage.load("run").model.actor.torsos[0])
    Path(EXAMPLE.name).unlink()
    monkeypatch.delitem(sys.modules, EXAMPLE.stem)
    with pytest.raises(ConfigError, match=r"module 'residual_attention_torso' cannot be imported.*start in the folder"):
        vantage.load("run")


class Noisy(nn.Module):
    """Draws noise in training and in play, as the layers of NoisyNet-A3C do."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Impure(nn.Linear):
    """Computes features by `way`."""

    way: Any

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape[0], 5)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.way(super().forward, x)
        return features


@pytest.mark.parametrize(("way", "says"), [
    (lambda f, x: f(x.mul_(2)), "modifies its input in place"),
    (lambda f, x: f(x).relu_(), None),
    (lambda f, x: f(x) - f(x).mean(0), "gives another output for a single observation than for the same in a batch"),
    (lambda f, x: f(x).cumsum(0), "gives another output for a single observation than for the same in a batch"),
    (lambda f, x: f(x).squeeze(), r"gives \[5\] for a single observation, not \[1, 5\]"),
    (lambda f, x: f(nn.functional.one_hot(x.long(), 1)[..., 0].float()), None),  # fails with negative numbers
    (lambda f, x: f(x).bfloat16(), None),
    (lambda f, x: nn.functional.batch_norm(f(x), None, None, training=True),
     "fails with a single observation: Expected more than 1 value"),
    (lambda f, x: f(x).mean(), "returned a single number for 2 observations; return a row for each")])
def test_features_depend_on_one_observation_and_change_nothing(
        way: Any, says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Impure, "way", staticmethod(way), raising=False)
    with nullcontext() if says is None else pytest.raises(ConfigError, match=says):
        torso(f"{__name__}:Impure", ArraySpec("vector", (3,)))


@pytest.mark.parametrize(("network", "noisy"), [
    (lambda shape: nn.Sequential(nn.Linear(shape[0], 8), Noisy()), True),
    (lambda shape: nn.Linear(shape[0], 8), False)])
def test_a_run_says_that_noise_of_its_network_makes_it_unrepeatable(
        network: Any, noisy: bool, caplog: pytest.LogCaptureFixture) -> None:
    vantage.Trainer("a2c", env="CartPole-v1", network=network, steps=16, num_envs=2, rollout_length=4, threads=1,
                    tensorboard=False, eval_every=0).update()
    assert ("draws random numbers, which the key seed does not control" in caplog.text) == noisy


@pytest.mark.parametrize(("layer", "fits"), [
    (nn.Dropout(0.5), False), (nn.BatchNorm1d(3), False), (nn.RReLU(), False), (nn.Dropout(0.0), True), (Noisy(), True),
    (nn.TransformerEncoderLayer(3, 1, 4, dropout=0.5), False)])
def test_a_network_that_computes_otherwise_in_training_than_in_play_is_refused(
        layer: nn.Module, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.models.open_torso.load_class",
                        lambda path, *, what: lambda shape: nn.Sequential(layer))
    generator = torch.random.get_rng_state()
    with nullcontext() if fits else pytest.raises(ConfigError, match="'my:Net' gives other outputs in training"):
        make_torso(ArraySpec("vector", (3,)), PolicyConfig(network="my:Net", norm="none"))
    assert layer.training
    assert type(layer) is Noisy or not fits or torch.equal(torch.random.get_rng_state(), generator)
