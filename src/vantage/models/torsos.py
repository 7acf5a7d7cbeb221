"""Torsos: one observation part to features, without memory.

Images are [N, C, H, W], uint8 or floats from 0 to 255; each torso scales them by 1/255.
Normalisation comes between each layer and its activation. Batch normalisation subtracts the mean,
so layers before it have no bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.errors import ConfigError
from vantage.keys.objects import is_code
from vantage.models.activation_cache import ActivationCache, run_layer
from vantage.models.config import PolicyConfig
from vantage.models.images import to_floats
from vantage.models.initialization import initialise
from vantage.models.linear import Linear
from vantage.models.normalization import BatchNorm
from vantage.models.open_torso import OpenTorso
from vantage.models.sets import SetTorso
from vantage.types import ArraySpec

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": F.elu, "silu": F.silu,
    "leaky_relu": partial(F.leaky_relu, negative_slope=0.25)}


# Channels, kernel, stride and padding of each convolution, and the width of the layer after them
# (0: none).
_CONVOLUTIONS: dict[str, tuple[tuple[tuple[int, int, int, int], ...], int]] = {
    # Mnih et al. 2016, arXiv:1602.01783, section 8
    "a3c": (((16, 8, 4, 0), (32, 4, 2, 0)), 256),
    # Mnih et al. 2015, doi:10.1038/nature14236, Methods
    "nature": (((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), 512),
    # Young and Tian 2019, arXiv:1903.03176, section 3.2
    "minatar": (((16, 3, 1, 0),), 128),
    # openai/universe-starter-agent, model.py, with the activation elu
    "universe": (((32, 3, 2, 1),) * 4, 0),
    # dgriff777/rl_a3c_pytorch, model.py, with the maximum over 2 x 2 pixels after each
    "maxpool": (((32, 5, 1, 2), (32, 5, 1, 1), (64, 4, 1, 1), (64, 3, 1, 1)), 0),
    # grantsrb/PyTorch-A2C, models.py: ConvModel and GRUModel
    "conv4": (((16, 3, 1, 1), (24, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), 2000),
    "conv5": (((16, 3, 1, 1), (24, 3, 2, 1), (32, 3, 2, 1), (48, 3, 2, 1), (64, 3, 2, 1)), 288),
}


A3C_LEAST = 20
MINATAR_LEAST = 3
"""Fewest pixels of a side that leave one after the convolutions."""


def _norm(norm: str, width: int) -> nn.Module:
    """Normalisation of [N, width, ...] with a gain and a bias per channel.

    "layer" normalises over all axes but N; "none" is the identity.
    """
    if norm == "batch":
        return BatchNorm(width)
    return nn.GroupNorm(1, width) if norm == "layer" else nn.Identity()


class Mlp(nn.Module):
    """Fully connected layers with activations; flattens images. Without layers, the identity."""

    def __init__(self, shape: tuple[int, ...], policy: PolicyConfig) -> None:
        super().__init__()
        widths = (math.prod(shape), *policy.hidden)
        self.is_image = len(shape) > 1
        self.out_features = widths[-1]
        self.activation = _ACTIVATIONS[policy.activation]
        bias = policy.norm != "batch"
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(_norm(policy.norm, width) for width in widths[1:])
        initialise(self, init=policy.init, activation=policy.activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1) * (1 / 255) if self.is_image else x
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self.activation(norm(layer(x)))
        return x


class ConvTorso(nn.Module):
    """Convolutions, flattened, and usually one fully connected layer; an activation after each."""

    def __init__(self, name: str, shape: tuple[int, ...], *, init: str, norm: str) -> None:
        super().__init__()
        layers, width = _CONVOLUTIONS[name]
        self.pool = name == "maxpool"
        self.activation: Callable[..., Tensor] = F.elu if name == "universe" else F.relu
        channels, *sides = shape
        bias = norm != "batch"
        convs = []
        for out, kernel, stride, padding in layers:
            convs.append(nn.Conv2d(channels, out, kernel, stride, padding, bias=bias))
            channels = out
            sides = [((side + 2 * padding - kernel) // stride + 1) // (1 + self.pool)
                     for side in sides]
        if min(sides) < 1:
            raise ConfigError(f"network={name} leaves no pixel of images of {shape[1]}x{shape[2]}; "
                              "use network=auto, impala or mlp")
        self.first = convs[0]
        self.others = nn.ModuleList(convs[1:])
        flat = channels * math.prod(sides)
        self.fc = Linear(flat, width, bias=bias) if width else None
        self.norms = nn.ModuleList(_norm(norm, conv.out_channels) for conv in convs)
        self.fc_norm: nn.Module = nn.Identity()
        if width and norm == "layer":
            self.fc_norm = nn.LayerNorm(width)
        elif width:
            self.fc_norm = _norm(norm, width)
        self.out_features = width or flat
        initialise(self, init=init, activation="relu")
        # The ReLU changes cached outputs in place, and is idempotent.
        self.can_cache = norm != "batch" and self.activation is F.relu

    def forward(self, x: Tensor, cache: ActivationCache | None = None) -> Tensor:
        # 1/255 on the few weights, not the many pixels: a tenth of a Nature CNN's learning time.
        weight = self.first.weight * (1 / 255)
        x = to_floats(x, weight.dtype)
        for i, (conv, norm) in enumerate(zip((self.first, *self.others), self.norms, strict=True)):
            if i == 0:
                x = run_layer(conv, x, weight, cache, "conv_0")
            elif cache is None:  # called as a module, for graphs and hooks
                x = conv(x)
            else:
                x = run_layer(conv, x, conv.weight, cache, f"conv_{i}")
            x = norm(x)
            if self.pool:
                x = F.max_pool2d(x, 2)
            x = self.activation(x, inplace=True)
        x = x.flatten(1)
        if self.fc is None:
            return x
        x = self.fc(x) if cache is None else run_layer(self.fc, x, self.fc.weight, cache, "fc")
        return self.activation(self.fc_norm(x), inplace=True)


class Conv1dTorso(nn.Module):
    """Convolutions along a vector, with the stacked observations as channels.

    The network A3C_CONV of dgriff777/a3c_continuous.
    """

    def __init__(self, channels: int, length: int, *, init: str, norm: str) -> None:
        super().__init__()
        self.channels = channels
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for out, kernel, padding in ((32, 3, 1), (32, 3, 1), (64, 2, 1), (64, 1, 0)):
            self.layers.append(nn.Conv1d(channels, out, kernel, padding=padding,
                                         bias=norm != "batch"))
            self.norms.append(_norm(norm, out))
            channels = out
            length += 2 * padding - kernel + 1
        self.out_features = channels * length
        initialise(self, init=init, activation="relu")

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
        return x + cast(Tensor, self.conv2(F.relu(self.conv1(F.relu(x)), inplace=True)))


class ImpalaTorso(nn.Module):
    """IMPALA's residual network, for images of any size.

    Espeholt et al. 2018, arXiv:1802.01561, figure 3, right.
    """

    out_features = 256

    def __init__(self, shape: tuple[int, ...], *, init: str) -> None:
        super().__init__()
        channels, height, width = shape
        self.convs = nn.ModuleList()
        self.blocks = nn.ModuleList()
        for out in (16, 32, 32):
            self.convs.append(nn.Conv2d(channels, out, 3, padding=1))
            self.blocks.append(nn.Sequential(ResidualBlock(out), ResidualBlock(out)))
            channels = out
            height = (height + 1) // 2
            width = (width + 1) // 2
        self.fc = Linear(channels * height * width, self.out_features)
        initialise(self, init=init, activation="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = to_floats(x, self.fc.weight.dtype) * (1 / 255)
        for conv, blocks in zip(self.convs, self.blocks, strict=True):
            x = blocks(F.max_pool2d(conv(x), 3, stride=2, padding=1))
        return F.relu(self.fc(F.relu(x).flatten(1)), inplace=True)


def torso_name(network: str, part: ArraySpec, *, beside_image: bool = False) -> str:
    """Name of the torso for one part of an observation, given the config's `network`.

    Beside an image, vectors get an mlp even if `network` is user-defined.
    """
    if part.kind != "image" and (not is_code(network) or beside_image):
        if part.kind == "set":
            return "attention"
        return "conv1d" if network == "conv1d" else "mlp"
    if network not in ("auto", "conv1d"):
        return network
    side = min(part.shape[1:])
    if side >= A3C_LEAST:
        return "a3c"
    return "minatar" if side >= MINATAR_LEAST else "mlp"


def make_torso(part: ArraySpec, policy: PolicyConfig, *, beside_image: bool = False,
               title: str = "") -> nn.Module:
    """The torso for stacks of `part`, which messages call `title`; '' is a whole observation."""
    shape = (part.shape[0] * policy.frame_stack, *part.shape[1:])
    name = torso_name(policy.network, part, beside_image=beside_image)
    if name == "mlp":
        return Mlp(shape, policy)
    if name == "attention":
        if policy.norm == "batch":
            raise ConfigError("norm=batch is not for sets of entities; give norm=layer or none")
        embedding = Mlp((part.shape[1] - 1,), policy)
        return SetTorso(embedding, embedding.activation, init=policy.init)
    if name == "conv1d":
        return Conv1dTorso(policy.frame_stack, part.shape[0], init=policy.init, norm=policy.norm)
    if name in _CONVOLUTIONS:
        return ConvTorso(name, shape, init=policy.init, norm=policy.norm)
    if policy.norm != "none":
        raise ConfigError(f"norm={policy.norm} is not for network={name}; leave it out")
    if name == "impala":
        return ImpalaTorso(shape, init=policy.init)
    return OpenTorso(name, shape, is_image=part.kind == "image", part=title)
