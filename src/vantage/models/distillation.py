"""Random network distillation: networks that tell how unfamiliar an observation is.

Burda, Edwards, Storkey and Klimov 2018, arXiv:1810.12894. How they learn, and what their errors are
used for, is in `vantage.learning.curiosity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from vantage.models.actor_critic import ActorCritic
from vantage.models.config import PolicyConfig
from vantage.models.heads import linear_head
from vantage.models.images import channels_first
from vantage.models.trunk import Trunk
from vantage.types import ArraySpec, EnvSpec, Obs

OUTPUTS = 64
"""Numbers that the predictor learns for each observation."""
_WIDTH = 128
_CLIP = 5.0  # section 2.4
_NETWORK = PolicyConfig(hidden=(_WIDTH, _WIDTH), activation="relu", obs_norm=True,
                        image_norm="pixel")


class _Network(nn.Module):
    """The torsos of a policy, and linear layers of these `widths` after them."""

    def __init__(self, parts: tuple[ArraySpec, ...], *widths: int) -> None:
        super().__init__()
        self.trunk = Trunk(_NETWORK, parts)
        layers: list[nn.Module] = []
        for inside, outside in pairwise((self.trunk.out_features, *widths)):
            layers += [linear_head(inside, outside, init=_NETWORK.init), nn.ReLU()]
        self.head = nn.Sequential(*layers[:-1])

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        rows = [channels_first(x.flatten(0, 1)) for x in inputs]
        return cast(Tensor, self.head(self.trunk.encode(rows)))


class Distillation(nn.Module):
    """A fixed random network, its predictor, which is deeper, and a critic of intrinsic returns.

    All see the newest observation alone, normalised by statistics of their own.
    """

    centre: Tensor
    """Subtracted from the outputs of the fixed network."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.critic = ActorCritic(_NETWORK, spec, critic="state")
        for normalizer in self.critic.normalizers.values():
            cast(Any, normalizer).instead = "--curiosity none"
        parts = tuple(group.spec for group in self.critic.groups)
        self.target = _Network(parts, OUTPUTS).requires_grad_(False)
        # Without biases, a network of ReLUs is proportional to the length of its input, so that the
        # predictor learns from one state what the network computes on all in that direction.
        for name, parameter in self.target.named_parameters():
            if name.endswith("bias"):
                nn.init.uniform_(parameter, -1.0, 1.0)
        self.predictor = _Network(parts, _WIDTH, OUTPUTS)
        nn.init.zeros_(cast(nn.Linear, self.predictor.head[-1]).weight)
        self.register_buffer("centre", torch.zeros(OUTPUTS))

    def inputs(self, obs: Obs, is_first: Tensor) -> tuple[Tensor, ...]:
        """The networks' inputs [1, M, ...] of raw observations [1, M, ...]."""
        inputs = self.critic.inputs(self.critic.stacks(obs, is_first, ()))
        return tuple(x if group.kind == "image" else x.clamp(-_CLIP, _CLIP)  # images are clipped
                     for group, x in zip(self.critic.groups, inputs, strict=True))

    def errors(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The predictor's mean squared error [M]."""
        with torch.no_grad():
            target = self.target(inputs) - self.centre
        predicted: Tensor = self.predictor(inputs)
        errors: Tensor = (predicted - target).square().mean(-1)
        return errors

    def values(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The critic's estimates [M] of intrinsic returns."""
        never = inputs[0].new_zeros(inputs[0].shape[:2], dtype=torch.bool)
        return self.critic.unroll_inputs(inputs, never, ())[1][0]
