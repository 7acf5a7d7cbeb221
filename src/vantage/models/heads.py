"""Heads: features to distribution parameters, and to values. What the parameters mean is in distributions.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.algorithms.distributions import make_distribution, mask_logits
from vantage.errors import ConfigError
from vantage.models.initialization import initialise
from vantage.types import ActionSpec

POLICY_SCALE = 0.01
"""So small that the first policy is nearly uniform."""

ADVANTAGE_WIDTH = 64

SQUASHED_FLOOR = math.exp(-(math.log(2 * math.pi) + 1))
"""Of a squashed variance: that of a Gaussian whose entropy is 0 (dgriff777/a3c_continuous)."""


class LogitsHead(nn.Module):
    """Logits of discrete actions; those of actions not allowed are MASKED."""

    def __init__(self, in_features: int, num_params: int, *, init: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, num_params)
        initialise(self.linear, init=init, scale=POLICY_SCALE)

    def forward(self, features: Tensor, action_mask: Tensor | None) -> Tensor:
        return mask_logits(self.linear(features), action_mask)


class GaussianHead(nn.Module):
    """Means and logs of standard deviations, side by side.

    The deviations are free parameters (`std="free"`), the exponential of a linear function s of the features ("state"),
    √(½ + s/(2 + 2|s|) + SQUASHED_FLOOR) of it ("squashed") or constant ("fixed"), floored at `min_std` (0: no floor).
    Below the floor their gradient is zero; a free one that falls there stays at the floor. `squash_mean` puts the mean
    through tanh and scales it to the bounds, which must then be finite.
    """

    low: Tensor
    high: Tensor

    def __init__(self, in_features: int, action: ActionSpec, *, std: str, log_std_init: float, min_std: float,
                 squash_mean: bool, init: str) -> None:
        super().__init__()
        size = action.sizes[0]
        if squash_mean and not all(map(math.isfinite, (*action.low, *action.high))):
            raise ConfigError(
                f"squash_mean=true needs finite action bounds, but these are low={action.low}, high={action.high}; "
                "use squash_mean=false")
        self.squash_mean, self.squash_variance = squash_mean, std == "squashed"
        self.min_log_std = math.log(min_std) if min_std > 0 else -math.inf
        self.linear = nn.Linear(in_features, 2 * size if std in ("state", "squashed") else size)
        initialise(self.linear, init=init, scale=POLICY_SCALE)
        log_std = torch.full((size,), float(log_std_init))
        if std == "free":
            self.log_std: Tensor | None = nn.Parameter(log_std)
        elif std == "fixed":
            self.register_buffer("log_std", log_std, persistent=False)
        else:
            self.register_parameter("log_std", None)
            if std == "state":
                with torch.no_grad():
                    self.linear.bias[size:] += log_std_init
        self.register_buffer("low", torch.tensor(action.low), persistent=False)
        self.register_buffer("high", torch.tensor(action.high), persistent=False)

    def forward(self, features: Tensor, action_mask: None) -> Tensor:
        mean = self.linear(features)
        if self.log_std is None:
            mean, log_std = mean.chunk(2, -1)
            if self.squash_variance:
                log_std = 0.5 * (F.softsign(log_std) / 2 + 0.5 + SQUASHED_FLOOR).log()
        else:
            log_std = self.log_std.expand_as(mean)
        if self.squash_mean:
            mean = torch.lerp(self.low, self.high, (mean.tanh() + 1) / 2)
        return torch.cat([mean, log_std.clamp(min=self.min_log_std)], -1)


PolicyHead = LogitsHead | GaussianHead


def make_policy_head(in_features: int, action: ActionSpec, *, std: str, log_std_init: float, min_std: float,
                     squash_mean: bool, init: str) -> PolicyHead:
    """The head for `action`; the options of a Gaussian do not matter to the others."""
    if action.kind == "box":
        return GaussianHead(in_features, action, std=std, log_std_init=log_std_init, min_std=min_std,
                            squash_mean=squash_mean, init=init)
    return LogitsHead(in_features, make_distribution(action).num_params, init=init)


class AdvantageHead(nn.Module):
    """A(x, a) of features and a continuous action: the advantage net of ACER's stochastic dueling network."""

    def __init__(self, in_features: int, action_size: int, *, init: str) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_features + action_size, ADVANTAGE_WIDTH)
        self.out = nn.Linear(ADVANTAGE_WIDTH, 1)
        initialise(self.hidden, init=init, activation="tanh")
        initialise(self.out, init=init)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.hidden(torch.cat([features, actions], -1))))
        return out.squeeze(-1)


def make_value_head(in_features: int, outputs: int = 1, *, init: str) -> nn.Linear:
    """The head whose output is the value, or with several `outputs` the value of each action."""
    head = nn.Linear(in_features, outputs)
    initialise(head, init=init)
    return head
