"""Torsos: one observation part to features, without memory. Frame stacks and heads are in other modules.

Images are [N, C, H, W], uint8 or floats from 0 to 255; each torso scales them by 1/255. Layer normalisation (Ba et al.
2016, arXiv:1607.06450) or batch normalisation comes between each layer and its activation. Batch normalisation
subtracts the mean, so layers before it have no bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.importing import load_class
from vantage.models.activation_cache import ActivationCache, conv2d, linear
from vantage.models.initialization import initialise
from vantage.models.normalization import BatchNorm
from vantage.types import ArraySpec

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": F.elu, "silu": F.silu,
    "leaky_relu": partial(F.leaky_relu, negative_slope=0.25)}


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """Convolutions as (channels, kernel, stride, padding), and the width of the layer after them (0: none).

    With `pool`, each is followed by the maximum over 2 x 2 pixels.
    """

    layers: tuple[tuple[int, int, int, int], ...]
    width: int
    elu: bool = False
    pool: bool = False

    def min_size(self) -> int:
        """Height and width of the smallest image that leaves at least one pixel."""
        size = 1
        for _, kernel, stride, padding in reversed(self.layers):
            size = ((2 if self.pool else 1) * size - 1) * stride + kernel - 2 * padding
        return max(1, size)

    def out_size(self, size: int) -> int:
        """Side of the last layer's output, in pixels, for an input side of `size`."""
        for _, kernel, stride, padding in self.layers:
            size = ((size + 2 * padding - kernel) // stride + 1) // (2 if self.pool else 1)
        return size


_CONVOLUTIONS = {
    # Mnih et al. 2016, arXiv:1602.01783, section 8
    "a3c": ConvSpec(((16, 8, 4, 0), (32, 4, 2, 0)), 256),
    # Mnih et al. 2015, doi:10.1038/nature14236, Methods
    "nature": ConvSpec(((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), 512),
    # openai/universe-starter-agent, model.py
    "universe": ConvSpec(((32, 3, 2, 1),) * 4, 0, elu=True),
    # dgriff777/rl_a3c_pytorch, model.py
    "maxpool": ConvSpec(((32, 5, 1, 2), (32, 5, 1, 1), (64, 4, 1, 1), (64, 3, 1, 1)), 0, pool=True),
    # grantsrb/PyTorch-A2C, models.py: ConvModel and GRUModel
    "conv4": ConvSpec(((16, 3, 1, 1), (24, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), 2000),
    "conv5": ConvSpec(((16, 3, 1, 1), (24, 3, 2, 1), (32, 3, 2, 1), (48, 3, 2, 1), (64, 3, 2, 1)), 288),
}


def _initialise_hidden(module: nn.Module, init: str, activation: str = "relu") -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            initialise(layer, init=init, activation=activation)


def _normalizers(widths: Sequence[int], norm: str) -> nn.ModuleList:
    """For each [N, width, ...], with a gain and a bias per channel: "layer", over all but N, "batch" or "none"."""
    return nn.ModuleList(BatchNorm(width) if norm == "batch" else
                         nn.GroupNorm(1, width) if norm == "layer" else nn.Identity() for width in widths)


def channels_last(images: Tensor) -> Tensor:
    """Bytes [N, C, H, W] in channels_last memory, without a copy if they already are; floats unchanged.

    Convolutions learn 1.4 times faster from channels_last (2 cores, AVX-512, batch 336), whatever the weights' layout.
    Reordering the bytes first is faster than `.to(dtype, memory_format=channels_last)`: 0.10 against 0.19 ms at batch
    16, 10.8 against 13.4 at 336. Without reordering, acting takes 0.9 of the time with a3c, the same with nature and
    twice with impala.
    """
    if images.dtype != torch.uint8 or images.is_contiguous(memory_format=torch.channels_last):
        return images
    return torch.stack(images.unbind(1), -1).permute(0, 3, 1, 2)


def to_floats(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes [N, C, H, W] as `dtype` in channels_last memory; floats unchanged."""
    return channels_last(images).to(dtype) if images.dtype == torch.uint8 else images


class Mlp(nn.Module):
    """Fully connected layers, each with the activation; images are flattened. Without layers, the identity."""

    scale: Tensor

    def __init__(self, shape: tuple[int, ...], policy: PolicyConfig) -> None:
        super().__init__()
        widths = (math.prod(shape), *policy.hidden_sizes)
        self.is_image = len(shape) > 1
        self.out_features = widths[-1]
        self.activation = _ACTIVATIONS[policy.activation]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=policy.norm != "batch") for a, b in pairwise(widths))
        self.norms = _normalizers(widths[1:], policy.norm)
        self.register_buffer("scale", torch.tensor(1 / 255), persistent=False)
        _initialise_hidden(self, policy.init, policy.activation)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_image:
            x = x.flatten(1) * self.scale
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self.activation(norm(layer(x)))
        return x


class ConvTorso(nn.Module):
    """Convolutions, flattened, and usually one fully connected layer; an activation after each."""

    def __init__(self, name: str, shape: tuple[int, ...], *, init: str, norm: str) -> None:
        super().__init__()
        spec = _CONVOLUTIONS[name]
        if min(shape[1:]) < spec.min_size():
            raise ConfigError(
                f"network={name} needs images of at least {spec.min_size()}x{spec.min_size()} pixels, but these are "
                f"{shape[1]}x{shape[2]}; use network=impala or network=mlp")
        self.activation: Callable[..., Tensor] = F.elu if spec.elu else F.relu
        self.pool = spec.pool
        channels = (shape[0], *(layer[0] for layer in spec.layers))
        self.first, *others = [nn.Conv2d(a, *layer, bias=norm != "batch")
                               for a, layer in zip(channels, spec.layers, strict=False)]
        self.others = nn.ModuleList(others)
        flat = channels[-1] * spec.out_size(shape[1]) * spec.out_size(shape[2])
        self.fc = nn.Linear(flat, spec.width, bias=norm != "batch") if spec.width else None
        self.norms = _normalizers(channels[1:], norm)
        self.fc_norm: nn.Module = nn.Identity()
        if spec.width and norm != "none":
            self.fc_norm = nn.LayerNorm(spec.width) if norm == "layer" else BatchNorm(spec.width)
        self.out_features = spec.width or flat
        _initialise_hidden(self, init)
        self.can_cache = norm != "batch" and self.activation is F.relu
        """`forward` accepts a cache: the ReLU changes cached outputs in place, and is idempotent."""

    def forward(self, x: Tensor, cache: ActivationCache | None = None) -> Tensor:
        # 1/255 on the few weights instead of on the many pixels: a tenth of a Nature CNN's learning time.
        weight = self.first.weight * (1 / 255)
        x = to_floats(x, weight.dtype)
        for i, (conv, norm) in enumerate(zip((self.first, *self.others), self.norms, strict=True)):
            if i and cache is None:
                x = conv(x)  # as a module, for graphs and hooks
            else:
                x = conv2d(x, conv.weight if i else weight, conv.bias, conv.stride, conv.padding, cache, f"conv_{i}")
            x = norm(x)
            x = self.activation(F.max_pool2d(x, 2) if self.pool else x, inplace=True)
        x = x.flatten(1)
        if self.fc is None:
            return x
        x = self.fc(x) if cache is None else linear(x, self.fc.weight, self.fc.bias, cache, "fc")
        return self.activation(self.fc_norm(x), inplace=True)


class Conv1dTorso(nn.Module):
    """Convolutions along a vector; the stacked observations are the channels: dgriff777/a3c_continuous, A3C_CONV."""

    def __init__(self, channels: int, length: int, *, init: str, norm: str) -> None:
        super().__init__()
        layers = ((32, 3, 1), (32, 3, 1), (64, 2, 1), (64, 1, 0))  # channels, kernel, padding
        widths = (channels, *(layer[0] for layer in layers))
        self.channels = channels
        self.layers = nn.ModuleList(nn.Conv1d(a, b, kernel, padding=padding, bias=norm != "batch")
                                    for a, (b, kernel, padding) in zip(widths, layers, strict=False))
        self.norms = _normalizers(widths[1:], norm)
        self.out_features = widths[-1] * (length + 1)
        _initialise_hidden(self, init)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.unflatten(x, 1, (self.channels, -1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)), inplace=True)
        return x.flatten(1)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.conv2(F.relu(self.conv1(F.relu(x)), inplace=True))
        return x + residual


class ImpalaTorso(nn.Module):
    """IMPALA's residual network with 16, 32 and 32 channels: Espeholt et al. 2018, arXiv:1802.01561, figure 3, right.

    Images can have any size.
    """

    def __init__(self, shape: tuple[int, ...], *, init: str) -> None:
        super().__init__()
        channels, height, width = shape
        self.convs, self.blocks = nn.ModuleList(), nn.ModuleList()
        for out_channels in (16, 32, 32):
            self.convs.append(nn.Conv2d(channels, out_channels, 3, padding=1))
            self.blocks.append(nn.Sequential(ResidualBlock(out_channels), ResidualBlock(out_channels)))
            channels, height, width = out_channels, (height + 1) // 2, (width + 1) // 2
        self.fc = nn.Linear(channels * height * width, 256)
        self.out_features = 256
        _initialise_hidden(self, init)

    def forward(self, x: Tensor) -> Tensor:
        x = to_floats(x, self.fc.weight.dtype) * (1 / 255)
        for conv, blocks in zip(self.convs, self.blocks, strict=True):
            x = blocks(F.max_pool2d(conv(x), 3, stride=2, padding=1))
        return F.relu(self.fc(F.relu(x).flatten(1)), inplace=True)


class OpenTorso(nn.Module):
    """A network named by its import path: an nn.Module class built as Class(shape), [N, *shape] to features [N, F].

    Pixels are floats from 0 to 1. `out_features` is the class's attribute, or that of a pass on zeros.
    """

    def __init__(self, path: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.is_image = len(shape) > 1
        factory = load_class(path, what="network")
        try:
            self.network = factory(shape)
            if not isinstance(self.network, nn.Module):
                raise TypeError("it is no torch.nn.Module")
            with torch.no_grad():
                features = self.network(torch.zeros(2, *shape))
            self.out_features = int(getattr(self.network, "out_features", features.shape[-1]))
            if features.shape != (2, self.out_features):
                raise ValueError(f"its output is {list(features.shape)}")
        except Exception as error:
            raise ConfigError(f"network={path!r} cannot be used for observations {list(shape)}: {type(error).__name__}:"
                              f" {error}; it must be an nn.Module class built as Class(shape) that maps [N, *shape] to "
                              "[N, out_features]") from error

    def forward(self, x: Tensor) -> Tensor:
        if self.is_image:
            x = to_floats(x, torch.get_default_dtype()) * (1 / 255)
        features: Tensor = self.network(x)
        return features


Torso = Mlp | ConvTorso | Conv1dTorso | ImpalaTorso | OpenTorso


def torso_name(network: str, kind: Literal["image", "vector"]) -> str:
    """The torso for one part of an observation under the config's `network`.

    An import path is its own name. Vectors use conv1d if `network` names it, otherwise an mlp. For images, "auto" and
    "conv1d" mean a3c.
    """
    if ":" in network:
        return network
    if kind == "vector":
        return "conv1d" if network == "conv1d" else "mlp"
    return "a3c" if network in ("auto", "conv1d") else network


def make_torso(network: str, part: ArraySpec, policy: PolicyConfig) -> Torso:
    """The torso for stacks of `part` under `network`; everything else comes from `policy`.

    ConfigError if the images are too small for the network, or if it does not support `policy.norm`.
    """
    stack, norm, init = policy.frame_stack, policy.norm, policy.init
    shape = (part.shape[0] * stack, *part.shape[1:])
    name = torso_name(network, part.kind)
    if norm != "none" and (name == "impala" or ":" in name):
        why = "whose residual sums need none" if name == "impala" else "which has layers of its own"
        raise ConfigError(f"norm={norm} is not for network={name}, {why}; leave it out")
    factories: dict[str, Callable[[], Torso]] = {
        "mlp": lambda: Mlp(shape, policy),
        "conv1d": lambda: Conv1dTorso(stack, part.shape[0], init=init, norm=norm),
        "impala": lambda: ImpalaTorso(shape, init=init),
        **{key: partial(ConvTorso, key, shape, init=init, norm=norm) for key in _CONVOLUTIONS}}
    return factories[name]() if name in factories else OpenTorso(name, shape)
