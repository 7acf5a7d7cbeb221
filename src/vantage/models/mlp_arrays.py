"""Policy and critic of small MLPs in NumPy: forward, and backward written out.

Autograd takes 0.6 ms for a minibatch of 64 steps through two networks of 64 and 64 units; the
arithmetic alone takes 0.05 ms, and NumPy's calls cost a fifth of torch's. torch computes larger
networks, other torsos, memories, and everything on GPUs. The arrays are views of the model's
weights and gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from vantage.algorithms.distributions import MASKED, Categorical, Gaussian
from vantage.models.actor_critic import ActorCritic
from vantage.models.heads import GaussianHead, LogitsHead
from vantage.models.normalization import CLIP, ObsNormalizer
from vantage.models.torsos import Mlp
from vantage.types import map_parts

MOST_WEIGHTS = 100_000
"""Weights of a network up to which NumPy is faster than torch, with minibatches of 64 to 256."""


@dataclass(frozen=True, slots=True)
class _Dense:
    """A linear layer: views of its parameters and of their gradients."""

    weight: ndarray
    bias: ndarray
    weight_gradient: ndarray | None
    bias_gradient: ndarray | None

    def forward(self, x: ndarray) -> ndarray:
        y: ndarray = x @ self.weight.T
        y += self.bias
        return y

    def backward(self, gradient: ndarray, x: ndarray) -> None:
        """Write the gradients of weight and bias, given that of the output and the input `x`."""
        assert self.weight_gradient is not None
        assert self.bias_gradient is not None
        np.matmul(gradient.T, x, out=self.weight_gradient)
        gradient.sum(0, out=self.bias_gradient)


def fits(model: ActorCritic) -> bool:
    """Whether `MlpArrays` computes the same as `model`."""
    trunks = [model.actor] if model.critic is None else [model.actor, model.critic]
    head = model.policy_head
    is_gaussian = (isinstance(head, GaussianHead) and isinstance(head.log_std, nn.Parameter)
                   and not head.squash_mean and math.isinf(head.largest_mean))
    parameters = list(model.parameters())
    return (all(trunk.memory is None and len(trunk.torsos) == 1
                and isinstance(trunk.torsos[0], Mlp) for trunk in trunks)
            and not cast(Mlp, model.actor.torsos[0]).is_image
            and model.policy.activation in ("tanh", "relu") and model.policy.norm == "none"
            and not model.has_q and model.advantage_head is None
            and not model.policy.critic_parts
            and (isinstance(head, LogitsHead) or is_gaussian)
            and sum(each.numel() for each in parameters) <= MOST_WEIGHTS
            and all(each.requires_grad and each.dtype == torch.float32
                    and each.device.type == "cpu" and each.is_contiguous() for each in parameters))


class MlpArrays:
    """The computations of a model that `fits`.

    `forward` keeps the activations for `backward`.
    """

    def __init__(self, model: ActorCritic) -> None:
        self._relu = model.policy.activation == "relu"
        self._detached = model.policy.detach_critic
        self._actor = _layers(model.actor.torsos[0])
        self._critic = None if model.critic is None else _layers(model.critic.torsos[0])
        self._policy_head = _dense(cast(Any, model.policy_head).linear)
        self._value_head = _dense(model.value_head)
        self._activations: tuple[list[ndarray], list[ndarray]] = ([], [])
        self._gaussian: GaussianHead | None = None
        if isinstance(model.policy_head, GaussianHead):
            self._gaussian = model.policy_head
            log_std = cast(Tensor, model.policy_head.log_std)
            self._log_std = log_std.detach().numpy()
            self._log_std_gradient = _gradient(log_std)
        self._mask: ndarray | None = None
        self._model = model
        group = model.groups[0]
        self._is_raw = (not model.keys and group.kind == "vector" and not group.one_hots
                        and model.policy.frame_stack == 1)
        """The input is one vector, no Dict of it, at most normalised."""
        self._normalizer = cast(ObsNormalizer | None, dict(model.normalizers).get("0"))

    @np.errstate(all="ignore")
    def inputs(self, obs: Any) -> Float[ndarray, "B F"]:
        """The input for raw observations [B, ...] without a frame stack."""
        if not self._is_raw:
            parts = map_parts(torch.from_numpy, obs)
            (x,) = self._model.inputs(self._model.stacks(parts, torch.empty(0), ()))
            return x.numpy()
        normalised: ndarray = obs
        if self._normalizer is not None:
            scale = 1 / np.sqrt(self._normalizer.var.numpy() + np.float32(1e-8))
            normalised = ((obs - self._normalizer.mean.numpy()) * scale).clip(-CLIP, CLIP)
        return normalised

    def sample(self, params: Float[ndarray, "B P"], generator: torch.Generator) -> ndarray:
        """`sample` of the model's distribution, with the same draws."""
        distribution = self._model.distribution
        if isinstance(distribution, Categorical):
            noise = torch.empty(params.shape).exponential_(generator=generator).numpy()
            actions: ndarray = (params - np.log(noise)).argmax(-1)
            return actions
        if isinstance(distribution, Gaussian):
            size = distribution.size
            noise = torch.empty(len(params), size).normal_(generator=generator).numpy()
            actions = params[:, :size] + np.exp(params[:, size:]) * noise
            return actions
        return distribution.sample(torch.from_numpy(params), generator).numpy()

    @np.errstate(all="ignore")
    def forward(self, x: Float[ndarray, "N F"], mask: ndarray | None = None, *, critic: bool = True,
                ) -> tuple[Float[ndarray, "N P"], Float[ndarray, " N"]]:
        """Distribution parameters and values of inputs; `mask` [N, A] is True for allowed actions.

        Without `critic` the values are undefined.
        """
        actor = self._hidden(self._actor, x)
        of_critic = actor
        if self._critic is not None and critic:
            of_critic = self._hidden(self._critic, x)
        self._activations = (actor, of_critic)
        self._mask = mask
        params = self._policy_head.forward(actor[-1])
        if self._gaussian is not None:
            mean = params
            size = len(self._log_std)
            params = np.empty((len(mean), 2 * size), np.float32)
            params[:, :size] = mean
            params[:, size:] = np.maximum(self._scaled_log_std(), self._gaussian.min_log_std)
        elif mask is not None:
            params = np.where(mask, params, np.float32(MASKED))
        values = self._value_head.forward(of_critic[-1])[:, 0]
        norm = self._model.value_norm
        if norm is not None:
            values += (norm.mean / norm.deviation).numpy()
        return params, values

    def raw(self, values: Float[ndarray, " N"]) -> Float[ndarray, " N"]:
        """Values of `forward` in units of rewards; the others are divided by the deviation."""
        norm = self._model.value_norm
        return values if norm is None else values * norm.deviation.numpy()

    @np.errstate(all="ignore")
    def backward(self, params: Float[ndarray, "N P"], values: Float[ndarray, " N"]) -> None:
        """Write the gradients of all weights, given those of what `forward` returned.

        N may be smaller than it was there: no gradient flows from the rows after the first N.
        """
        actor, critic = ([y[:len(values)] for y in outputs] for outputs in self._activations)
        if self._gaussian is not None:
            size = len(self._log_std)
            above = self._scaled_log_std() >= self._gaussian.min_log_std
            np.multiply(params[:, size:].sum(0), above, out=self._log_std_gradient)
            params = np.ascontiguousarray(params[:, :size])
        elif self._mask is not None:
            params = np.where(self._mask[:len(params)], params, np.float32(0))
        values = values[:, None]
        self._policy_head.backward(params, actor[-1])
        self._value_head.backward(values, critic[-1])
        features = params @ self._policy_head.weight
        of_critic = values @ self._value_head.weight
        if self._critic is not None:
            self._descend(self._critic, critic, of_critic)
        elif not self._detached:
            features += of_critic
        self._descend(self._actor, actor, features)

    def _scaled_log_std(self) -> ndarray:
        assert self._gaussian is not None
        scaled: ndarray = self._log_std * np.float32(self._gaussian.std_lr_scale)
        return scaled

    def _hidden(self, layers: Sequence[_Dense], x: ndarray) -> list[ndarray]:
        """The input, and the output of each layer."""
        outputs = [x]
        for layer in layers:
            y = layer.forward(outputs[-1])
            outputs.append(np.maximum(y, 0, out=y) if self._relu else np.tanh(y, out=y))
        return outputs

    def _descend(self, layers: Sequence[_Dense], outputs: list[ndarray], gradient: ndarray) -> None:
        """Write the gradients of `layers`, given that of the last output."""
        for place in reversed(range(len(layers))):
            y = outputs[place + 1]
            if self._relu:
                gradient *= y > 0
            else:
                gradient *= 1 - y * y
            layers[place].backward(gradient, outputs[place])
            if place:
                gradient = gradient @ layers[place].weight


def _layers(torso: nn.Module) -> list[_Dense]:
    return [_dense(layer) for layer in cast(Any, torso).layers]


def _dense(layer: nn.Linear) -> _Dense:
    return _Dense(layer.weight.detach().numpy(), layer.bias.detach().numpy(),
                  _gradient(layer.weight), _gradient(layer.bias))


def _gradient(parameter: Tensor) -> ndarray | None:
    """None in a model that does not learn."""
    return None if parameter.grad is None else parameter.grad.numpy()
