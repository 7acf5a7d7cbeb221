"""Flat parameters, the average policy, and the interface of gradient sinks.

The sink of one process is in `gradients`, those of processes that share weights are in the
runtimes. No optimiser here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from vantage.errors import ConfigError
from vantage.learning.config import OptimizerConfig
from vantage.learning.step_metrics import Number
from vantage.models.actor_critic import ActorCritic

EMA = "ema"
"""Group of a checkpoint with the policy of averaged weights, beside "model"."""
_ALIGNMENT = 16  # floats: a cache line, so that each parameter's kernel starts aligned


class FlatParameters:
    """Parameters of models as views of one contiguous vector, all gradients as views of another.

    Gradient clipping and the optimiser are then a few operations on one vector, and copying a
    policy is one copy. Convolution weights stay channels_last. Gaps between parameters stay zero.
    """

    def __init__(self, parameters: Iterable[nn.Parameter],
                 critic: Iterable[nn.Parameter] = ()) -> None:
        self.parameters = list(parameters)
        self.critic = _places(self.parameters, critic)
        """Where the vector holds the parameters of `critic`."""
        first = self.parameters[0]
        vector = torch.zeros(sum(_sizes(self.parameters)), dtype=first.dtype, device=first.device)
        self.move(vector, torch.zeros_like(vector))

    def move(self, vector: Tensor, gradient: Tensor, *, keep: bool = True) -> None:
        """Make the model's parameters and gradients views of these [P], such as shared memory.

        `keep` copies the model's weights into `vector`; otherwise the model takes its weights.
        """
        self.vector = vector
        self.gradient = gradient
        offset = 0
        for parameter, size in zip(self.parameters, _sizes(self.parameters), strict=True):
            view = _view_like(vector[offset:offset + parameter.numel()], parameter)
            if keep:
                view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = _view_like(gradient[offset:offset + parameter.numel()], parameter)
            offset += size

    @contextmanager
    def frozen_unmoved(self) -> Iterator[None]:
        """On exit, restore parameters without `requires_grad`.

        Weight decay moves them although their gradient is 0.
        """
        frozen = [(each, each.detach().clone()) for each in self.parameters
                  if not each.requires_grad]
        yield
        for each, before in frozen:
            each.detach().copy_(before)


def _sizes(parameters: Iterable[Tensor]) -> list[int]:
    return [-(-p.numel() // _ALIGNMENT) * _ALIGNMENT for p in parameters]


def _places(parameters: Sequence[Tensor], chosen: Iterable[Tensor]) -> list[slice]:
    """The places of the `chosen` among flat `parameters`; neighbours are one place."""
    names = {id(parameter) for parameter in chosen}
    places: list[slice] = []
    end = 0
    for parameter, size in zip(parameters, _sizes(parameters), strict=True):
        start = end
        end += size
        if id(parameter) not in names:
            continue
        if places and places[-1].stop == start:
            start = places.pop().start
        places.append(slice(start, end))
    return places


def _view_like(flat: Tensor, parameter: Tensor) -> Tensor:
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        out, inside, height, width = parameter.shape
        return flat.view(out, height, width, inside).permute(0, 3, 1, 2)
    return flat.view(parameter.shape)


class AveragePolicy:
    """A copy of a model that averages its weights over time and shares its running statistics.

    θ_a ← α θ_a + (1 - α) θ                       Wang et al. 2017, arXiv:1611.01224, section 3.3
    """

    def __init__(self, model: ActorCritic, decay: float) -> None:
        self.decay = decay
        try:
            self.model = copy.deepcopy(model)
        except Exception as error:  # of a network of the user's own
            raise ConfigError("the average policy is a copy of the network, which cannot be "
                              f"copied: {error}; keep what has no copy out of the attributes of "
                              "its modules, or give it __deepcopy__") from None
        pairs = zip(self.model.running_stats(), model.running_stats(), strict=True)
        for (_, own), (_, other) in pairs:
            own.share(other)
        self.vector = FlatParameters(self.model.parameters()).vector
        self.model.requires_grad_(False)

    def follow(self, weights: Tensor, average: Tensor | None = None) -> None:
        """Move `average`, by default this policy's vector, towards `weights`.

        `weights` may be longer: it begins with the policy's parameters.
        """
        average = self.vector if average is None else average
        average.lerp_(weights[:len(average)], 1 - self.decay)


class GradientSink(Protocol):
    """Applies gradients to the weights. The defaults are for a single process."""

    rank: int = 0
    """The place of this process, and its environments, among `num_ranks` that share updates."""
    num_ranks: int = 1

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """Clip `gradient` [P] by global norm and move the weights; returns norm before and loss.

        Gradient, loss and metrics are means over the `num_valid` valid steps of this process. A
        sink of several processes moves the weights by the mean gradient over all, replaces
        `metrics` by their means, and returns the mean loss. Nothing moves if the norm or the loss
        is not finite, except within `tentative`, which undoes it.
        """

    def change(self, config: OptimizerConfig) -> None:
        """Move the weights with the epsilon and the decay of `config` from now on."""
        return None

    def tentative(self) -> AbstractContextManager[None]:
        """Context of several steps that are undone together by an exception.

        The host need not read the norm of each step.
        """
        return nullcontext()

    def exclusive(self) -> AbstractContextManager[bool]:
        """Context in which no other process moves the weights; False if another has to move them.

        All processes that share an update enter it.
        """
        return nullcontext(True)

    def all_gather(self, values: Tensor) -> Tensor:
        """The `values` [N] of all ranks, [num_ranks, N]."""
        return values.unsqueeze(0)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics, for a checkpoint."""

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`. KeyError, RuntimeError or ValueError if they do not fit."""
