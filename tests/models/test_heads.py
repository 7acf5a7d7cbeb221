"""Laws of the policy and value heads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.models.heads import GaussianHead, LogitsHead, make_policy_head, make_value_head
from vantage.types import ActionSpec

BOX = ActionSpec("box", (3,), (-2.0, 0.0, -1.0), (2.0, 10.0, 1.0))
FEATURES = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))


def gaussian(*, action: ActionSpec = BOX, **options: Any) -> GaussianHead:
    torch.manual_seed(0)
    head = make_policy_head(8, action, PolicyConfig(**options))
    assert isinstance(head, GaussianHead)
    return head


@pytest.mark.parametrize(("kind", "sizes", "num_params"), [
    ("discrete", (5,), 5), ("multi_discrete", (3, 2), 5), ("multi_binary", (2, 2, 2), 3)])
def test_logits_come_one_for_each_parameter_and_the_first_policy_is_nearly_uniform(
        kind: str, sizes: tuple[int, ...], num_params: int) -> None:
    head = make_policy_head(8, ActionSpec(kind, sizes), PolicyConfig())
    assert isinstance(head, LogitsHead)
    logits = head(FEATURES, None)
    assert logits.shape == (50, num_params) and logits.abs().max() < 0.1
    singular = torch.linalg.svdvals(head.linear.weight)
    torch.testing.assert_close(singular, torch.full_like(singular, 0.01))


@pytest.mark.parametrize("std", ["free", "state"])
@pytest.mark.parametrize("init", ["orthogonal", "torch"])
def test_the_deviation_starts_near_what_the_config_says(std: str, init: str) -> None:
    mean, log_std = gaussian(std=std, log_std_init=-1.0, init=init)(FEATURES, None).chunk(2, -1)
    tolerance = 0.1 if init == "orthogonal" else 2.0
    assert (mean.abs() < tolerance).all() and ((log_std + 1).abs() < tolerance).all()
    assert (log_std.std(0) > 0).all() == (std == "state")


@pytest.mark.parametrize("std", ["free", "state"])
def test_the_deviation_is_floored_and_below_the_floor_has_no_gradient(std: str) -> None:
    head = gaussian(std=std, log_std_init=-3.0, min_std=0.242)
    log_std = head(FEATURES, None)[:, 3:]
    torch.testing.assert_close(log_std.exp(), torch.full((50, 3), 0.242))
    log_std.sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in head.parameters())
    above = gaussian(std=std, log_std_init=-1.0, min_std=0.242)
    above(FEATURES, None)[:, 3:].sum().backward()
    assert any(p.grad is not None and (p.grad != 0).any() for p in above.parameters())
    without_floor = gaussian(std=std, log_std_init=-30.0, min_std=0.0)(FEATURES, None)[:, 3:]
    torch.testing.assert_close(without_floor, torch.full((50, 3), -30.0), rtol=0, atol=0.1)


def test_a_squashed_variance_has_entropy_above_zero_and_a_gradient_everywhere() -> None:
    head = gaussian(std="squashed")
    torch.testing.assert_close(head(FEATURES * 0, None)[:, 3:].exp().square(), torch.full((50, 3), 0.5 + 0.058550))
    log_std = head(FEATURES * 1e5, None)[:, 3:]
    entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
    assert entropy.min() > 0 and log_std.exp().square().max() < 1.0586
    assert log_std.exp().square().min() < 0.06
    log_std.sum().backward()
    assert head.linear.weight.grad is not None and (head.linear.weight.grad[3:] != 0).all()


def test_a_squashed_mean_stays_within_the_bounds_and_starts_in_their_middle() -> None:
    head = gaussian(squash_mean=True)
    middle = torch.tensor([0.0, 5.0, 0.0]).expand(50, 3)
    torch.testing.assert_close(head(FEATURES, None)[:, :3], middle, rtol=0, atol=0.5)
    mean = head(FEATURES * 1e4, None)[:, :3]
    low, high = torch.tensor(BOX.low), torch.tensor(BOX.high)
    assert (mean >= low).all() and (mean <= high).all()
    torch.testing.assert_close(mean.amin(0), low)
    torch.testing.assert_close(mean.amax(0), high)


def test_a_squashed_mean_without_finite_bounds_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"squash_mean=true needs finite action bounds.*inf.*use squash_mean=false"):
        gaussian(action=ActionSpec("box", (1,), (-math.inf,), (1.0,)), squash_mean=True)
    gaussian(action=ActionSpec("box", (1,), (-math.inf,), (1.0,)))


def test_the_value_head_has_gain_one_and_no_bias() -> None:
    head = make_value_head(8, init="orthogonal")
    assert head(FEATURES).shape == (50, 1) and head.weight.norm().item() == pytest.approx(1) and head.bias.item() == 0
    assert make_value_head(8, init="torch").bias.item() != 0
