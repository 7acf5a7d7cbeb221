"""Laws of the action distributions, against torch.distributions in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch import distributions as reference

from vantage.algorithms.distributions import (
    MASKED,
    Categorical,
    Distribution,
    Gaussian,
    MultiDiscrete,
    make_distribution,
    mask_logits,
)
from vantage.types import ActionSpec

KINDS: dict[str, Distribution] = {
    "categorical": Categorical(5), "multi_discrete": MultiDiscrete((3, 2, 4)), "gaussian": Gaussian(3)}
SIZES = (3, 2, 4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_params(kind: str, *, seed: int = 0, batch: tuple[int, ...] = (6, 7), scale: float = 2.0) -> Tensor:
    size = KINDS[kind].num_params
    return scale * torch.randn(*batch, size, dtype=torch.float64, generator=generator(seed))


def references(kind: str, params: Tensor) -> list[reference.Distribution]:
    """Independent distributions whose log-probabilities, entropies and divergences add up."""
    match kind:
        case "categorical":
            return [reference.Categorical(logits=params)]
        case "multi_discrete":
            return [reference.Categorical(logits=part) for part in params.split(SIZES, -1)]
        case _:
            mean, log_std = params.chunk(2, -1)
            return [reference.Normal(m, s.exp()) for m, s in zip(mean.unbind(-1), log_std.unbind(-1), strict=True)]


def columns(kind: str, actions: Tensor) -> list[Tensor]:
    return [actions] if kind == "categorical" else list(actions.unbind(-1))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_entropies_and_their_gradients_are_those_of_torch(kind: str) -> None:
    params = random_params(kind).requires_grad_()
    actions, parts = KINDS[kind].sample(params, generator(1)), references(kind, params)
    pairs = zip(parts, columns(kind, actions), strict=True)
    expected = sum(part.log_prob(action.double()) for part, action in pairs), sum(part.entropy() for part in parts)
    actual = KINDS[kind].log_prob(params, actions), KINDS[kind].entropy(params)
    for ours, theirs in zip(actual, expected, strict=True):
        close(ours, theirs)
        close(*(torch.autograd.grad(x.sum(), params, retain_graph=True, allow_unused=True)[0] for x in (ours, theirs)))


@pytest.mark.parametrize("kind", KINDS)
def test_divergences_are_those_of_torch_and_zero_from_itself(kind: str) -> None:
    p, q = random_params(kind), random_params(kind, seed=9, scale=1.0)
    expected = sum(reference.kl_divergence(a, b) for a, b in zip(references(kind, p), references(kind, q), strict=True))
    torch.testing.assert_close(KINDS[kind].kl(p, q), expected, rtol=1e-10, atol=1e-12)
    close(KINDS[kind].kl(p, p), torch.zeros(6, 7, dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_frequencies_of_their_probabilities(kind: str) -> None:
    params = random_params(kind, batch=(1,), scale=0.7).float()
    draws = KINDS[kind].sample(params.expand(200_000, -1), generator(2)).double()
    for column, expected in zip(columns(kind, draws), references(kind, params), strict=True):
        if isinstance(expected, reference.Categorical):
            frequencies = torch.bincount(column.long(), minlength=expected.probs.shape[-1]) / len(column)
            torch.testing.assert_close(frequencies, expected.probs[0], rtol=0, atol=5e-3)
        else:
            assert column.mean().item() == pytest.approx(expected.mean.item(), abs=0.02)
            assert column.std().item() == pytest.approx(expected.stddev.item(), abs=0.02)


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
    assert first.dtype == (torch.float32 if kind == "gaussian" else torch.int64)


@pytest.mark.parametrize("kind", KINDS)
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
    loss = (KINDS[kind].log_prob(logits, actions) + KINDS[kind].entropy(logits) + KINDS[kind].kl(logits, other)).sum()
    gradient, = torch.autograd.grad(loss, params)
    assert gradient.isfinite().all() and loss.isfinite()
    assert (gradient[~mask] == 0).all() and (gradient[mask] != 0).float().mean() > 0.5


@pytest.mark.parametrize(("action", "expected", "num_params"), [
    (ActionSpec("discrete", (4,)), Categorical(4), 4),
    (ActionSpec("multi_discrete", SIZES), MultiDiscrete(SIZES), 9),
    (ActionSpec("multi_discrete", (2, 2, 2)), MultiDiscrete((2, 2, 2)), 6),
    (ActionSpec("box", (2,), (-1.0, -1.0), (1.0, 1.0)), Gaussian(2), 4),
])
def test_every_kind_of_action_has_its_distribution(action: ActionSpec, expected: Distribution, num_params: int) -> None:
    distribution = make_distribution(action)
    assert distribution == expected and distribution.num_params == num_params
    params = torch.zeros(3, num_params)
    assert distribution.sample(params, generator()).shape == (3, *action.shape)
    assert distribution.mode(params).shape == (3, *action.shape)
