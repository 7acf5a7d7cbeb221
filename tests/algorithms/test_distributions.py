"""Laws of the action distributions, against torch.distributions in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributions as reference

from vantage.algorithms.bounded_distributions import Beta, SquashedGaussian
from vantage.algorithms.distributions import (
    MASKED,
    Categorical,
    Gaussian,
    MultiDiscrete,
    mask_logits,
)
from vantage.algorithms.joint_distribution import Distribution, Joint, make_distribution
from vantage.types import ActionSpec

SIZES = (3, 2, 4)
LOW, HIGH = (-1.0, 2.0), (1.0, 5.0)
BETA, SQUASHED = Beta(LOW, HIGH), SquashedGaussian(LOW, HIGH)
KINDS: dict[str, Distribution] = {
    "categorical": Categorical(5), "multi_discrete": MultiDiscrete((3, 2, 4)), "gaussian": Gaussian(3),
    "squashed": SQUASHED, "beta": BETA,
    "joint": Joint((MultiDiscrete((5,)), Gaussian(3), MultiDiscrete(SIZES), BETA, SQUASHED))}
PARTS = {"joint": ["categorical", "gaussian", "multi_discrete", "beta", "squashed"]}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_params(kind: str, *, seed: int = 0, batch: tuple[int, ...] = (6, 7), scale: float = 2.0) -> Tensor:
    if kind == "joint":
        return torch.cat([random_params(part, seed=seed, batch=batch, scale=scale) for part in PARTS[kind]], -1)
    size = KINDS[kind].num_params
    params = scale * torch.randn(*batch, size, dtype=torch.float64, generator=generator(seed))
    if kind == "beta":
        return 1.0 + params.abs()
    return params / 6 if kind == "squashed" else params  # not rounded to a bound


def references(kind: str, params: Tensor) -> list[reference.Distribution]:
    """Independent distributions whose log-probabilities, entropies and divergences add up."""
    match kind:
        case "joint":
            sizes = [KINDS[part].num_params for part in PARTS[kind]]
            return [each for part, own in zip(PARTS[kind], params.split(sizes, -1), strict=True)
                    for each in references(part, own)]
        case "beta" | "squashed":
            pairs = zip(*(half.unbind(-1) for half in params.chunk(2, -1)), LOW, HIGH, strict=True)
            return [bounded(kind, first, second, low, high) for first, second, low, high in pairs]
        case "categorical":
            return [reference.Categorical(logits=params)]
        case "multi_discrete":
            return [reference.Categorical(logits=part) for part in params.split(SIZES, -1)]
        case _:
            mean, log_std = params.chunk(2, -1)
            return [reference.Normal(m, s.exp()) for m, s in zip(mean.unbind(-1), log_std.unbind(-1), strict=True)]


def bounded(kind: str, first: Tensor, second: Tensor, low: float, high: float) -> reference.Distribution:
    """torch's Beta between the bounds, or its normal through tanh, with clipped logarithms as ours."""
    if kind == "beta":
        scale = reference.AffineTransform(low, high - low)
        return reference.TransformedDistribution(reference.Beta(first, second), [scale], validate_args=False)
    tanh, scale = reference.TanhTransform(cache_size=1), reference.AffineTransform((low + high) / 2, (high - low) / 2)
    return reference.TransformedDistribution(reference.Normal(first, second.exp()), [tanh, scale], validate_args=False)


def entropy(part: reference.Distribution) -> Tensor:
    """The entropy of `part`; of a transformed one, H of its base and E log |slope| by a fine sum."""
    if not isinstance(part, reference.TransformedDistribution):
        return part.entropy()
    base, scale = part.base_dist, part.transforms[-1].scale
    if isinstance(base, reference.Beta):
        return base.entropy() + math.log(scale)
    z = torch.linspace(-9, 9, 2001, dtype=torch.float64)
    weights = torch.softmax(-z.square() / 2, 0)
    slopes = -2 * (base.mean.unsqueeze(-1) + base.stddev.unsqueeze(-1) * z).cosh().log()
    return base.entropy() + math.log(scale) + (slopes * weights).sum(-1)


def columns(kind: str, actions: Tensor) -> list[Tensor]:
    return [actions] if kind == "categorical" else list(actions.unbind(-1))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_entropies_and_their_gradients_are_those_of_torch(kind: str) -> None:
    params = random_params(kind).requires_grad_()
    actions, parts = KINDS[kind].sample(params, generator(1)), references(kind, params)
    pairs = zip(parts, columns(kind, actions), strict=True)
    expected = sum(part.log_prob(action.double()) for part, action in pairs), sum(map(entropy, parts))
    actual = KINDS[kind].log_prob(params, actions), KINDS[kind].entropy(params)
    quadrature = {"rtol": 0, "atol": 2e-4} if kind in ("squashed", "joint") else {"rtol": 1e-12, "atol": 1e-12}
    for ours, theirs, exact in zip(actual, expected, ({"rtol": 1e-9, "atol": 1e-9}, quadrature), strict=True):
        torch.testing.assert_close(ours, theirs, **exact)
        gradients = [torch.autograd.grad(x.sum(), params, retain_graph=True, allow_unused=True)[0]
                     for x in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=exact["rtol"], atol=10 * exact["atol"])


@pytest.mark.parametrize("kind", ["categorical", "multi_discrete", "gaussian"])
def test_divergences_are_those_of_torch_and_zero_from_itself(kind: str) -> None:
    p, q = random_params(kind), random_params(kind, seed=9, scale=1.0)
    expected = sum(reference.kl_divergence(a, b) for a, b in zip(references(kind, p), references(kind, q), strict=True))
    distribution: Any = KINDS[kind]
    torch.testing.assert_close(distribution.kl(p, q), expected, rtol=1e-10, atol=1e-12)
    close(distribution.kl(p, p), torch.zeros(6, 7, dtype=torch.float64))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "joint"])
def test_samples_have_the_frequencies_of_their_probabilities(kind: str) -> None:
    params = random_params(kind, batch=(1,), scale=0.7).float()
    draws = KINDS[kind].sample(params.expand(200_000, -1), generator(2)).double()
    for column, expected in zip(columns(kind, draws), references(kind, params), strict=True):
        if isinstance(expected, reference.Categorical):
            frequencies = torch.bincount(column.long(), minlength=expected.probs.shape[-1]) / len(column)
            torch.testing.assert_close(frequencies, expected.probs[0], rtol=0, atol=5e-3)
        else:
            torch.manual_seed(0)
            theirs = expected.sample((200_000,))
            assert column.mean().item() == pytest.approx(theirs.mean().item(), abs=0.02)
            assert column.std().item() == pytest.approx(theirs.std().item(), abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_a_function_of_the_generators_state_and_carries_no_gradient(kind: str) -> None:
    params, source = random_params(kind).float().requires_grad_(), generator(3)
    state = source.get_state()
    first, second = KINDS[kind].sample(params, source), KINDS[kind].sample(params, source)
    source.set_state(state)
    torch.manual_seed(123)
    assert torch.equal(KINDS[kind].sample(params, source), first)
    assert not torch.equal(first, second)
    assert not first.requires_grad
    assert first.dtype == (torch.int64 if kind in ("categorical", "multi_discrete") else torch.float32)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("squashed", "beta", "joint")])
def test_no_action_is_more_probable_than_the_mode(kind: str) -> None:
    params = random_params(kind)
    mode = KINDS[kind].mode(params)
    for seed in range(20):
        actions = KINDS[kind].sample(params, generator(seed))
        assert (KINDS[kind].log_prob(params, actions) <= KINDS[kind].log_prob(params, mode)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("allowed_actions", [[0, 2, 3], [2]])
def test_a_masked_categorical_is_the_categorical_of_the_allowed_actions_to_the_last_bit(
        allowed_actions: list[int], dtype: torch.dtype) -> None:
    """With one allowed action, that action is certain."""
    logits = 50 * torch.randn(100, 5, dtype=dtype, generator=generator(4))
    mask = torch.isin(torch.arange(5), torch.tensor(allowed_actions))
    masked, allowed = mask_logits(logits, mask.expand(100, -1)), logits[:, mask]
    assert torch.equal(torch.log_softmax(masked, -1)[:, mask], torch.log_softmax(allowed, -1))
    of_masked, of_allowed = (Categorical(each.shape[-1]).entropy(each) for each in (masked, allowed))
    torch.testing.assert_close(of_masked, of_allowed, rtol=1e-6, atol=0)
    assert (masked[:, ~mask] == MASKED).all() and masked.isfinite().all()


@pytest.mark.parametrize("kind", ["categorical", "multi_discrete"])
def test_masked_actions_are_never_taken_and_get_no_gradient(kind: str) -> None:
    params = random_params(kind, batch=(500,)).float().requires_grad_()
    width = KINDS[kind].num_params
    mask = torch.rand(500, width, generator=generator(5)) < 0.5
    mask[:, [0, 3, width - 1]] = True
    logits = mask_logits(params, mask)
    actions = KINDS[kind].sample(logits, generator(6))
    offsets = torch.tensor([0]) if kind == "categorical" else torch.tensor([0, 3, 5])
    for choice in (actions, KINDS[kind].mode(logits)):
        assert mask.gather(-1, choice.view(500, -1) + offsets).all()
    other = mask_logits(torch.zeros_like(params), mask)
    distribution: Any = KINDS[kind]
    densities = distribution.log_prob(logits, actions) + distribution.entropy(logits)
    loss = (densities + distribution.kl(logits, other)).sum()
    gradient, = torch.autograd.grad(loss, params)
    assert gradient.isfinite().all() and loss.isfinite()
    assert (gradient[~mask] == 0).all() and (gradient[mask] != 0).float().mean() > 0.5


@pytest.mark.parametrize(("action", "expected", "num_params"), [
    (ActionSpec("discrete", (4,)), Categorical(4), 4),
    (ActionSpec("multi_discrete", SIZES), MultiDiscrete(SIZES), 9),
    (ActionSpec("multi_discrete", (2, 2, 2)), MultiDiscrete((2, 2, 2)), 6),
    (ActionSpec("box", (2,), (-1.0, -1.0), (1.0, 1.0)), Gaussian(2, (-1.0, -1.0), (1.0, 1.0)), 4),
    (ActionSpec("joint", (4,), (0.0, -1.0, -1.0), (3.0, 1.0, 1.0), (), {
        "a": ActionSpec("discrete", (4,)), "b": ActionSpec("box", (2,), (-1.0, -1.0), (1.0, 1.0))}),
     Joint((MultiDiscrete((4,)), Gaussian(2, (-1.0, -1.0), (1.0, 1.0)))), 8),
])
def test_every_kind_of_action_has_its_distribution(action: ActionSpec, expected: Distribution, num_params: int) -> None:
    distribution = make_distribution(action)
    assert distribution == expected and distribution.num_params == num_params
    params = torch.zeros(3, num_params)
    assert distribution.sample(params, generator()).shape == (3, *action.shape)
    assert distribution.mode(params).shape == (3, *action.shape)


@pytest.mark.parametrize("distribution", [BETA, SQUASHED])
def test_bounded_distributions_are_densities_between_their_bounds(distribution: Distribution) -> None:
    """A sum over a fine grid is 1; samples stay inside; at a bound, where float32 rounds, all is finite."""
    params = torch.tensor([[1.5, 4.0]] if distribution is BETA else [[0.4, -0.3]], dtype=torch.float64)
    one = type(distribution)((2.0,), (5.0,))
    grid = torch.linspace(2, 5, 200_001, dtype=torch.float64).unsqueeze(-1)
    assert one.log_prob(params.expand(len(grid), -1), grid).exp().mean().item() * 3 == pytest.approx(1, abs=1e-3)
    sharp = torch.tensor([[400.0, 1.0]] if distribution is BETA else [[30.0, 2.0]]).expand(1000, -1).requires_grad_()
    actions = one.sample(sharp, generator())
    assert ((actions >= 2) & (actions <= 5)).all() and (actions > 4.9).any()
    for edge in (actions, torch.full((1000, 1), 2.0), torch.full((1000, 1), 5.0)):
        loss = (one.log_prob(sharp, edge) + one.entropy(sharp)).sum()
        gradient, = torch.autograd.grad(loss, sharp)
        assert loss.isfinite() and gradient.isfinite().all()


def test_the_action_of_a_beta_without_noise_is_its_mean() -> None:
    """Where its density is nearly flat, its mode, the first action here, would be the upper bound."""
    params = torch.tensor([[1.5, 3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    middle, expected = torch.tensor([0.0, 3.5]), torch.tensor([[0.6, 0.75], [0.5, 0.5]])
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    assert torch.allclose(BETA.mode(params), low + (high - low) * expected)
    assert torch.equal(BETA.mode(params)[1], middle)
