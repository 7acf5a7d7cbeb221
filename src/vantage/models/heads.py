"""Heads: from features to distribution parameters and values.

The distributions are in `algorithms.distributions` and its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.algorithms.distributions import mask_logits
from vantage.errors import ConfigError
from vantage.models.config import PolicyConfig
from vantage.models.initialization import initialise
from vantage.specs import WIDEST, is_bounded, is_coarse
from vantage.types import ActionSpec

POLICY_SCALE = 0.01  # the first policy is nearly uniform
ADVANTAGE_WIDTH = 64
# variance of a Gaussian with entropy 0 (dgriff777/a3c_continuous)
SQUASHED_FLOOR = 1 / (2 * math.pi * math.e)
LARGEST_MEAN = 5.0
"""Bound on the mean of a squashed Gaussian before its tanh. tanh 5 is 0.9999. From tanh 7.2 on,
float32 rounds actions to the bound, where their density is unknown."""


def linear_head(in_features: int, outputs: int, *, init: str, scale: float = 1.0) -> nn.Linear:
    """A linear layer whose outputs have no activation."""
    head = nn.Linear(in_features, outputs)
    initialise(head, init=init, scale=scale)
    return head


class LogitsHead(nn.Module):
    """Logits of discrete actions, MASKED where an action is not allowed."""

    def __init__(self, in_features: int, num_params: int, *, init: str) -> None:
        super().__init__()
        self.linear = linear_head(in_features, num_params, init=init, scale=POLICY_SCALE)

    def forward(self, features: Tensor, action_mask: Tensor | None) -> Tensor:
        return mask_logits(self.linear(features), action_mask)


class GaussianHead(nn.Module):
    """Means and logs of standard deviations, side by side.

    With s a linear function of the features, the deviation is a parameter (`std` = "free"), exp s
    ("state"), √(½ + s/(2 + 2|s|) + SQUASHED_FLOOR) ("squashed") or constant ("fixed"), and at least
    `min_std`. Below that floor its gradient is zero, so a free deviation stays there. `squash_mean`
    applies tanh to the mean and scales it to the action bounds. The mean of a squashed Gaussian,
    before its tanh, stays within `LARGEST_MEAN`. `low` and `high` are these bounds in the policy's
    units.
    """

    low: Tensor
    high: Tensor

    def __init__(self, in_features: int, action: ActionSpec, policy: PolicyConfig) -> None:
        super().__init__()
        size = action.sizes[0]
        std = policy.std
        if policy.squash_mean:
            check_bounds(action, "squash_mean=true", "squash_mean=false")
        low, high = action.policy_bounds
        self.squash_mean = policy.squash_mean
        self.largest_mean = LARGEST_MEAN if policy.distribution == "squashed" else math.inf
        self.squash_variance = std == "squashed"
        self.min_log_std = math.log(policy.min_std) if policy.min_std > 0 else -math.inf
        log_std = torch.full((size,), float(policy.log_std_init))
        constant = std in ("free", "fixed")
        self.std_lr_scale = policy.std_lr_scale if std == "free" else 1.0
        self.linear = linear_head(in_features, size if constant else 2 * size, init=policy.init,
                                  scale=POLICY_SCALE)
        if std == "free":
            self.log_std: Tensor | None = nn.Parameter(log_std / self.std_lr_scale)
        else:
            self.register_buffer("log_std", log_std if constant else None, persistent=False)
        if std == "state":
            self.linear.bias.data[size:] += log_std
        self.register_buffer("low", torch.tensor(low), persistent=False)
        self.register_buffer("high", torch.tensor(high), persistent=False)

    def forward(self, features: Tensor, action_mask: None) -> Tensor:
        mean = self.linear(features)
        if self.log_std is None:
            mean, log_std = mean.chunk(2, -1)
            if self.squash_variance:
                log_std = 0.5 * (F.softsign(log_std) / 2 + 0.5 + SQUASHED_FLOOR).log()
        else:
            # The gradient is that of the deviation itself: only its steps are scaled.
            scaled = (self.log_std * self.std_lr_scale).detach()
            log_std = (scaled + (self.log_std - self.log_std.detach())).expand_as(mean)
        if self.squash_mean:
            mean = torch.lerp(self.low, self.high, (mean.tanh() + 1) / 2)
        if self.largest_mean < math.inf:
            mean = self.largest_mean * (mean / self.largest_mean).tanh()
        return torch.cat([mean, log_std.clamp(min=self.min_log_std)], -1)


class BetaHead(nn.Module):
    """α and β of Beta actions, side by side: 1 + softplus of a linear function of the features.

    Above 1 the density has a single peak and is 0 at the bounds.
    """

    def __init__(self, in_features: int, action: ActionSpec, *, init: str) -> None:
        super().__init__()
        self.linear = linear_head(in_features, 2 * action.sizes[0], init=init, scale=POLICY_SCALE)

    def forward(self, features: Tensor, action_mask: None) -> Tensor:
        return 1 + F.softplus(self.linear(features))


class JointHead(nn.Module):
    """The parameters of all parts of Dict and Tuple actions, side by side, a head for each part."""

    def __init__(self, in_features: int, action: ActionSpec, policy: PolicyConfig) -> None:
        super().__init__()
        parts = action.parts.values()
        self.heads = nn.ModuleList(make_head(in_features, part, policy) for part in parts)
        self.num_choices = [0 if part.kind == "box" else sum(part.sizes) for part in parts]

    def forward(self, features: Tensor, action_mask: Tensor | None) -> Tensor:
        masks: Sequence[Tensor | None] = [None] * len(self.heads)
        if action_mask is not None:
            masks = torch.split(action_mask, self.num_choices, -1)
        return torch.cat([head(features, mask)
                          for head, mask in zip(self.heads, masks, strict=True)], -1)


PolicyHead = LogitsHead | GaussianHead | BetaHead | JointHead


def make_head(in_features: int, action: ActionSpec, policy: PolicyConfig) -> PolicyHead:
    """The head of a policy for `action`.

    Raises ConfigError if the policy needs bounds that the actions lack.
    """
    if action.kind == "joint":
        return JointHead(in_features, action, policy)
    if action.kind != "box":
        return LogitsHead(in_features, sum(action.sizes), init=policy.init)
    if policy.distribution != "gaussian":
        option = f"distribution={policy.distribution}"
        check_bounds(action, option, "distribution=gaussian", differ=True)
        if any(is_coarse(*bounds) for bounds in zip(*action.policy_bounds, strict=True)):
            raise ConfigError(f"{option} acts between low={action.low} and high={action.high}, "
                              "where float32 is too coarse for it; use scale_actions=true or "
                              "distribution=gaussian")
    if policy.distribution == "beta":
        return BetaHead(in_features, action, init=policy.init)
    return GaussianHead(in_features, action, policy)


def check_bounds(action: ActionSpec, option: str, remedy: str, *, differ: bool = False) -> None:
    """ConfigError for `option` unless a Box has all bounds, which may have to differ."""
    if not all(is_bounded(low, high) and (low < high or not differ)
               for low, high in zip(action.low, action.high, strict=True)):
        different = "different, " if differ else ""
        raise ConfigError(f"{option} needs {different}finite action bounds, at most {WIDEST:g} "
                          f"apart, but these are low={action.low}, high={action.high}; use "
                          f"{remedy}")


class AdvantageHead(nn.Module):
    """A(x, a) for continuous actions: the advantage net of ACER's stochastic dueling network."""

    def __init__(self, in_features: int, action_size: int, *, init: str) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_features + action_size, ADVANTAGE_WIDTH)
        self.out = nn.Linear(ADVANTAGE_WIDTH, 1)
        initialise(self.hidden, init=init, activation="tanh")
        initialise(self.out, init=init)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.hidden(torch.cat([features, actions], -1))))
        return out.squeeze(-1)
