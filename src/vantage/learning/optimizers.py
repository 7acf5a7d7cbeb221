"""Optimisers of one flat vector, by name. `weights` makes the vector of a model.

Optimisers that workers can share are functions of the vector, the gradient and the statistics.
Constructing or stepping a torch.optim class imports torch's compiler: a second and 75 megabytes in
each process (torch 2.13).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop

from vantage.errors import ConfigError
from vantage.keys.suggestions import nearest
from vantage.learning.config import OptimizerConfig

STATISTICS: Mapping[str, Mapping[str, float]] = {
    "rmsprop_tf": {"square_avg": 1.0},
    "rmsprop": {"square_avg": 0.0, "step": 0.0},
    "adam": {"exp_avg": 0.0, "exp_avg_sq": 0.0, "step": 0.0},
    "amsgrad": {"exp_avg": 0.0, "exp_avg_sq": 0.0, "max_exp_avg_sq": 0.0, "step": 0.0},
}
"""Statistics of each optimiser by torch's names, with their initial values; `step` is a scalar."""


class FlatOptimizer:
    """An optimiser of `STATISTICS`, which the owner of `shared` statistics saves and loads."""

    def __init__(self, config: OptimizerConfig, vector: Tensor,
                 shared: Mapping[str, Tensor] | None = None, *,
                 critic: Sequence[slice] = ()) -> None:
        """`critic`: the places of the vector whose learning rate `critic_lr_scale` multiplies."""
        self._config = config
        self._vector = vector
        self._statistics = dict(shared or {})
        self._critic = critic

    @torch.no_grad()
    def step(self, gradient: Tensor, lr: float) -> None:
        """Move the vector once, in place; `gradient` [P] is on its device."""
        if not self._statistics:
            self._statistics = self._fresh()
        config = self._config
        move = _MOVES[config.optimizer]
        if config.critic_lr_scale == 1 or not self._critic:
            move(self._vector, gradient, self._statistics, config, lr)
            return
        for place, is_critic in _pieces(self._critic, len(self._vector)):
            # Each piece counts this step on a copy.
            parts = {name: each.clone() if name == "step" else each[place]
                     for name, each in self._statistics.items()}
            scale = config.critic_lr_scale if is_critic else 1.0
            move(self._vector[place], gradient[place], parts, config, lr * scale)
        if "step" in self._statistics:
            self._statistics["step"].add_(1)

    def change(self, config: OptimizerConfig) -> None:
        """Use the epsilon and the decay of `config` from the next step on."""
        self._config = config

    def tensors(self) -> dict[str, Tensor]:
        """The statistics, for a checkpoint; empty before the first step."""
        return dict(self._statistics)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors`. KeyError or RuntimeError if their optimiser or length is another."""
        self._statistics = self._fresh() if tensors else {}
        for name, statistic in self._statistics.items():
            statistic.copy_(tensors[name])

    def _fresh(self) -> dict[str, Tensor]:
        return {name: torch.tensor(value) if name == "step"
                else torch.full_like(self._vector, value)
                for name, value in STATISTICS[self._config.optimizer].items()}


def within(places: Sequence[slice], part: slice) -> list[slice]:
    """The `places` of a vector that are in a `part` of it, counted from its beginning."""
    cut = [(max(place.start, part.start), min(place.stop, part.stop)) for place in places]
    return [slice(start - part.start, stop - part.start) for start, stop in cut if start < stop]


def _pieces(places: Sequence[slice], size: int) -> Iterator[tuple[slice, bool]]:
    """A vector of `size` in pieces, and whether each is one of the `places`."""
    end = 0
    for place in places:
        if place.start > end:
            yield slice(end, place.start), False
        yield place, True
        end = place.stop
    if end < size:
        yield slice(end, size), False


def _rmsprop_tf(vector: Tensor, gradient: Tensor, statistics: Mapping[str, Tensor],
                config: OptimizerConfig, lr: float) -> None:
    """TensorFlow's RMSProp, which produced the published A2C and A3C scores.

    s ← α s + (1-α) g²,  θ ← θ - lr g / √(s + ε)       Mnih et al. 2016, arXiv:1602.01783, eq. 8, 9

    ε is inside the root, and s starts at 1, which warms the step size up. In torch ε is outside and
    s starts at 0.
    """
    square_avg = statistics["square_avg"].mul_(config.optimizer_decay)
    square_avg.addcmul_(gradient, gradient, value=1 - config.optimizer_decay)
    vector.addcdiv_(gradient, (square_avg + config.optimizer_eps).sqrt_(), value=-lr)


def _rmsprop(vector: Tensor, gradient: Tensor, statistics: Mapping[str, Tensor],
             config: OptimizerConfig, lr: float) -> None:
    """torch.optim.RMSprop:  s ← α s + (1-α) g²,  θ ← θ - lr g / (√s + ε)."""
    rmsprop([vector], [gradient], [statistics["square_avg"]], [], [], [statistics["step"]], lr=lr,
            alpha=config.optimizer_decay, eps=config.optimizer_eps, weight_decay=0.0, momentum=0.0,
            centered=False)


def _adam(vector: Tensor, gradient: Tensor, statistics: Mapping[str, Tensor],
          config: OptimizerConfig, lr: float) -> None:
    """torch.optim.Adam, Kingma and Ba 2015, arXiv:1412.6980.

    AMSGrad if the statistics include the largest second moment. On a CPU the fused kernel makes one
    pass over the memory: 0.9 ms for the 1.2 million weights of Pong instead of 3.7. It is called
    directly, because torch.optim's checks take as long as the kernel itself for a small network:
    18 µs a step instead of 9 for 9,000 weights.
    """
    largest = [statistics[name] for name in ("max_exp_avg_sq",) if name in statistics]
    step = statistics["step"]
    state = ([vector], [gradient], [statistics["exp_avg"]], [statistics["exp_avg_sq"]], largest,
             [step])
    options: dict[str, Any] = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0,
                               "eps": config.optimizer_eps, "amsgrad": bool(largest),
                               "maximize": False}
    if vector.device.type == "cpu":
        step.add_(1)
        torch._fused_adam_(*state, **options)
    else:
        adam(*state, **options)


_MOVES = {"rmsprop_tf": _rmsprop_tf, "rmsprop": _rmsprop, "adam": _adam, "amsgrad": _adam}


class TorchOptimizer:
    """Any other class of torch.optim; only the learning rate and `options` are not its defaults."""

    def __init__(self, kind: type[torch.optim.Optimizer], vector: Tensor,
                 options: dict[str, Any]) -> None:
        self._parameter = nn.Parameter(vector)
        self._optimizer = kind([self._parameter], **options)

    def step(self, gradient: Tensor, lr: float) -> None:
        self._parameter.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    def change(self, config: OptimizerConfig) -> None:
        for group in self._optimizer.param_groups:
            if "eps" in group:
                group["eps"] = config.optimizer_eps

    def tensors(self) -> dict[str, Tensor]:
        state = self._optimizer.state_dict()["state"].get(0, {})
        return {name: torch.as_tensor(value) for name, value in state.items() if value is not None}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        state = {0: dict(tensors)} if tensors else {}
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})


Optimizer = FlatOptimizer | TorchOptimizer


def make_optimizer(config: OptimizerConfig, vector: Tensor,
                   critic: Sequence[slice] = ()) -> Optimizer:
    """The optimiser that the config names: one of `STATISTICS`, or a class of torch.optim.

    `optimizer_eps` applies to every optimiser that has one. ConfigError for an unknown name, and
    for optimisers that need more than one vector and its gradient.
    """
    name = config.optimizer
    if name in STATISTICS:
        return FlatOptimizer(config, vector, critic=critic)
    kind = getattr(torch.optim, name, None)
    if not (inspect.isclass(kind)
            and issubclass(kind, torch.optim.Optimizer)) or kind is torch.optim.Optimizer:
        classes = [n for n in dir(torch.optim) if n[0].isupper() and n != "Optimizer"]
        raise ConfigError(f"optimizer={name!r} is not "
                          f"known{nearest(name, [*STATISTICS, *classes])}; known: "
                          f"{', '.join(STATISTICS)}, and classes of torch.optim such as AdamW, "
                          "NAdam and RAdam")
    default = inspect.signature(kind).parameters.get("eps")
    has_eps = default is not None and isinstance(default.default, float)
    options = {"eps": config.optimizer_eps} if has_eps else {}
    try:
        TorchOptimizer(kind, torch.zeros(2), options).step(torch.ones(2), lr=1e-3)
        return TorchOptimizer(kind, vector, options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"optimizer={name!r} cannot train one flat vector of parameters from its "
                          f"gradient: {error}") from None
