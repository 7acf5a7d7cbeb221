"""Laws of the policy and value heads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.learning.config import OptimizerConfig
from vantage.learning.optimizers import make_optimizer
from vantage.learning.weights import FlatParameters
from vantage.models.config import PolicyConfig
from vantage.models.heads import GaussianHead
from vantage.types import ActionSpec

BOX = ActionSpec("box", (3,), (-2.0, 0.0, -1.0), (2.0, 10.0, 1.0))
FEATURES = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))


def gaussian(*, action: ActionSpec = BOX, **options: Any) -> GaussianHead:
    torch.manual_seed(0)
    return GaussianHead(8, action, PolicyConfig(**options))


def log_std(*, scale: float = 1.0, **options: Any) -> Tensor:
    return gaussian(**options)(FEATURES * scale, None)[:, 3:]


@pytest.mark.parametrize("std", ["free", "state", "fixed"])
@pytest.mark.parametrize("init", ["orthogonal", "torch"])
def test_the_deviation_starts_near_what_the_config_says(std: str, init: str) -> None:
    head = gaussian(std=std, log_std_init=-1.0, init=init)
    mean, deviation = head(FEATURES, None).chunk(2, -1)
    tolerance = 0.1 if init == "orthogonal" else 2.0
    assert (mean.abs() < tolerance).all() and ((deviation + 1).abs() < tolerance).all()
    assert (deviation.std(0) > 0).all() == (std == "state")
    assert ("log_std" in dict(head.named_parameters())) == (std == "free")


@pytest.mark.parametrize("std", ["free", "state"])
def test_the_deviation_is_floored_and_below_the_floor_has_no_gradient(std: str) -> None:
    for start, is_below in ((-3.0, True), (-1.0, False)):
        head = gaussian(std=std, log_std_init=start, min_std=0.242)
        deviation = head(FEATURES, None)[:, 3:].exp()
        assert torch.allclose(deviation, torch.tensor(0.242)) == is_below
        deviation.sum().backward()
        assert all(p.grad is None or (p.grad == 0).all() for p in head.parameters()) == is_below
    torch.testing.assert_close(log_std(std=std, log_std_init=-30.0, min_std=0.0), torch.full((50, 3), -30.0),
                               rtol=0, atol=0.1)


@pytest.mark.parametrize("optimizer", ["rmsprop_tf", "rmsprop", "adam", "SGD"])
@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_std_lr_scale_scales_the_steps_of_the_deviation_and_nothing_else(optimizer: str, scale: float) -> None:
    moved = []
    for std_lr_scale in (1.0, scale):
        head = gaussian(std_lr_scale=std_lr_scale)
        flat = FlatParameters([*head.parameters()])
        before = head(FEATURES, None).detach()
        (head(FEATURES, None) + 1).square().mean().backward()
        gradient = flat.gradient.clone()
        make_optimizer(OptimizerConfig(optimizer=optimizer), flat.vector).step(gradient, 1e-4)
        moved.append((head(FEATURES, None).detach() - before, gradient))
    (one, gradient), (other, same_gradient) = moved
    torch.testing.assert_close(same_gradient, gradient)
    torch.testing.assert_close(other[:, :3], one[:, :3])
    torch.testing.assert_close(other[:, 3:], scale * one[:, 3:], rtol=1e-3, atol=1e-6)


def test_a_squashed_variance_has_entropy_above_zero_and_a_gradient_everywhere() -> None:
    torch.testing.assert_close(log_std(std="squashed", scale=0).exp().square(), torch.full((50, 3), 0.5 + 0.058550))
    head = gaussian(std="squashed")
    extreme = head(FEATURES * 1e5, None)[:, 3:]
    assert (extreme + 0.5 * math.log(2 * math.pi * math.e)).min() > 0
    assert extreme.exp().square().max() < 1.0586 and extreme.exp().square().min() < 0.06
    extreme.sum().backward()
    assert head.linear.weight.grad is not None and (head.linear.weight.grad[3:] != 0).all()


def test_a_squashed_mean_stays_within_the_bounds_and_starts_in_their_middle() -> None:
    head, low, high = gaussian(squash_mean=True), torch.tensor(BOX.low), torch.tensor(BOX.high)
    torch.testing.assert_close(head(FEATURES, None)[:, :3], ((low + high) / 2).expand(50, 3), rtol=0, atol=0.5)
    mean = head(FEATURES * 1e4, None)[:, :3]
    torch.testing.assert_close(mean.amin(0), low)
    torch.testing.assert_close(mean.amax(0), high)
    unbounded = ActionSpec("box", (1,), (-math.inf,), (1.0,))
    with pytest.raises(ConfigError, match=r"squash_mean=true needs finite action bounds.*inf.*use squash_mean=false"):
        gaussian(action=unbounded, squash_mean=True)
    gaussian(action=unbounded)
