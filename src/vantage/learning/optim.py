"""Optimisers by name, RMSProp in TensorFlow's form, and one flat vector for all parameters of a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn

from vantage.config import nearest
from vantage.errors import ConfigError

_ALIGNMENT = 16  # floats: a cache line, so that each parameter's kernel starts aligned


class FlatParameters:
    """All parameters of a model as views of one contiguous vector, all gradients as views of another.

    Clipping and the optimiser are then a few operations on one vector, and copying a policy is one copy. Convolution
    weights stay channels_last within it. Gaps between parameters hold zeros and stay zero.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters, sizes = list(model.parameters()), _sizes(model)
        first = parameters[0]
        self.vector = nn.Parameter(torch.zeros(sum(sizes), dtype=first.dtype, device=first.device))
        self.gradient = torch.zeros_like(self.vector.data)
        self.vector.grad = self.gradient
        offset = 0
        for parameter, size in zip(parameters, sizes, strict=True):
            view = _view_like(self.vector.data[offset:offset + parameter.numel()], parameter)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = _view_like(self.gradient[offset:offset + parameter.numel()], parameter)
            offset += size

    def clip_gradient(self, max_norm: float) -> Tensor:
        """Scale the gradient to at most `max_norm` (0: leave it); returns the global norm before."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        if max_norm > 0:
            self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm


def flat_size(model: nn.Module) -> int:
    """Length of the vector that `FlatParameters` makes of the model."""
    return sum(_sizes(model))


def _sizes(model: nn.Module) -> list[int]:
    return [-(-p.numel() // _ALIGNMENT) * _ALIGNMENT for p in model.parameters()]


def _view_like(flat: Tensor, parameter: Tensor) -> Tensor:
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        out, inside, height, width = parameter.shape
        return flat.view(out, height, width, inside).permute(0, 3, 1, 2)
    return flat.view(parameter.shape)


class RMSpropTF(torch.optim.Optimizer):
    """RMSProp as TensorFlow has it, with which the published A2C and A3C scores were made.

    s ← α s + (1-α) g²,  θ ← θ - lr g / √(s + ε)            Mnih et al. 2016, arXiv:1602.01783, section 4, eq. 8 and 9

    ε is inside the root, and s starts at 1, which warms the step size up; torch's own has ε outside and s at 0.
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 7e-4, alpha: float = 0.99, eps: float = 1e-5) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move each parameter that has a gradient once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["square_avg"] = torch.ones_like(parameter)
                square_avg = state["square_avg"].mul_(group["alpha"])
                square_avg.addcmul_(parameter.grad, parameter.grad, value=1 - group["alpha"])
                parameter.addcdiv_(parameter.grad, (square_avg + group["eps"]).sqrt_(), value=-group["lr"])
        return loss


def make_optimizer(name: str, params: Iterable[Tensor], *, lr: float, eps: float,
                   decay: float) -> torch.optim.Optimizer:
    """The optimiser `name`: rmsprop_tf, rmsprop, adam, amsgrad, or a class of torch.optim."""
    params = list(params)
    match name:
        case "rmsprop_tf":
            return RMSpropTF(params, lr=lr, alpha=decay, eps=eps)
        case "rmsprop":
            return torch.optim.RMSprop(params, lr=lr, alpha=decay, eps=eps)
        case "adam" | "amsgrad":
            return torch.optim.Adam(params, lr=lr, eps=eps, amsgrad=name == "amsgrad")
    kind = getattr(torch.optim, name, None)
    if not (inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)) or kind is torch.optim.Optimizer:
        classes = [n for n in dir(torch.optim) if n[0].isupper() and n != "Optimizer"]
        own = ["rmsprop_tf", "rmsprop", "adam", "amsgrad"]
        raise ConfigError(f"optimizer={name!r} is not known{nearest(name, [*own, *classes])}; known: {', '.join(own)}, "
                          "and classes of torch.optim such as AdamW, NAdam and RAdam")
    accepted = inspect.signature(kind).parameters
    options: dict[str, Any] = {"lr": lr} if "lr" in accepted else {}
    if "eps" in accepted and isinstance(accepted["eps"].default, float):
        options["eps"] = eps
    trial = torch.nn.Parameter(torch.zeros(2))
    trial.grad = torch.ones(2)
    try:
        kind([trial], **options).step()
        return kind(params, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"optimizer={name!r} cannot train one flat vector of parameters from its gradient: "
                          f"{error}") from None
