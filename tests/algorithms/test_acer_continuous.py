"""ACER's loss for continuous actions against algorithm 3 of the paper, written slowly in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vantage.algorithms.acer_losses import continuous_acer_loss
from vantage.algorithms.distributions import Gaussian

T, B, GAMMA = 6, 4, 0.9
D = 2


class ContinuousCase:
    """A random rollout of a Gaussian policy; one death and one time limit. Deviations all 0.3, or all different."""

    def __init__(self, seed: int = 0, *, fixed_deviation: bool = True) -> None:
        g = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64)

        def params() -> Tensor:
            means = normal(T, B, D) * 0.3
            spread = torch.zeros(T, B, D) if fixed_deviation else 0.4 * normal(T, B, D)
            return torch.cat([means, math.log(0.3) + spread.double()], -1)

        self.fixed_deviation = fixed_deviation
        self.params, self.average, self.behaviour = params().requires_grad_(), params(), params()
        self.values = normal(T + 1, B).requires_grad_()
        self.q_taken, self.q_drawn = normal(T, B).requires_grad_(), normal(T, B)
        self.actions = self.behaviour[..., :D] + self.behaviour[..., D:].exp() * normal(T, B, D)
        self.drawn = self.params.detach()[..., :D] + self.params.detach()[..., D:].exp() * normal(T, B, D)
        self.rewards = normal(T, B)
        self.terminated, self.valid = torch.zeros(T, B, dtype=torch.bool), torch.ones(T, B, dtype=torch.bool)
        self.keep = torch.ones(T, B, dtype=torch.bool)
        self.terminated[2, 0] = True
        self.keep[2, 0] = self.valid[3, 0] = self.keep[1, 1] = self.valid[2, 1] = False

    def gradients(self, **options: object) -> tuple[Tensor, ...]:
        keywords = {"gamma": GAMMA, "truncation": 1.2, "bias_correction": True, "trust_region": 0.4, "value_coef": 0.7,
                    "entropy_coef": 0.05, "bounds_coef": 0.0,
                    "fixed_deviation": self.fixed_deviation} | options
        loss, _ = continuous_acer_loss(  # type: ignore[arg-type]
            Gaussian(D, (-1.0, -4.0), (1.0, math.inf)), self.params, self.average, self.behaviour, self.values,
            self.q_taken, self.q_drawn, self.actions, self.drawn, self.rewards, self.terminated, self.keep,
            self.valid, **keywords)
        return torch.autograd.grad(loss, [self.params, self.values, self.q_taken])


def density(params: Tensor, action: Tensor) -> float:
    mean, std = params[:D], params[D:].exp()
    return float((-0.5 * ((action - mean) / std) ** 2).exp().div(std * math.sqrt(2 * math.pi)).prod())


def score(params: Tensor, action: Tensor) -> Tensor:
    """∇ log f(action) over means and log deviations."""
    z = (action - params[:D]) / params[D:].exp()
    return torch.cat([z / params[D:].exp(), z**2 - 1])


@pytest.mark.parametrize("fixed_deviation", [True, False], ids=["fixed", "learnt"])
@pytest.mark.parametrize("seed", range(5))
def test_the_continuous_gradient_is_algorithm_3s(seed: int, fixed_deviation: bool) -> None:
    c, c_bar, delta, beta, value_coef = ContinuousCase(seed, fixed_deviation=fixed_deviation), 1.2, 0.4, 0.05, 0.7
    statistics = D if fixed_deviation else 2 * D
    policy, of_values, of_q = c.gradients()
    params, values, q = c.params.detach(), c.values.detach(), c.q_taken.detach()
    count = c.valid.sum()
    for b in range(B):
        q_ret = q_opc = values[T, b]
        for t in reversed(range(T)):
            if not c.keep[t, b]:
                q_ret = q_opc = values[t + 1, b]
            goes_on = GAMMA * (not c.terminated[t, b])
            q_ret, q_opc = c.rewards[t, b] + goes_on * q_ret, c.rewards[t, b] + goes_on * q_opc
            if not c.valid[t, b]:
                assert policy[t, b].abs().max() == of_q[t, b] == of_values[t, b] == 0
                continue
            f, a, a2 = params[t, b], c.actions[t, b], c.drawn[t, b]
            rho = density(f, a) / density(c.behaviour[t, b], a)
            rho2 = density(f, a2) / density(c.behaviour[t, b], a2)
            variance, value, average = f[D:].exp() ** 2, values[t, b], c.average[t, b]
            g = (min(c_bar, rho) * (q_opc - value) * score(f, a)
                 + max(0.0, 1 - c_bar / rho2) * (c.q_drawn[t, b] - value) * score(f, a2))
            g[D:] += beta  # the entropy is the sum of the log deviations, and a constant
            distance = f[:D] - average[:D]
            k = torch.cat([distance / variance, 1 - (average[D:].exp() ** 2 + distance**2) / variance])
            g, k = g[:statistics], k[:statistics]
            z = g - max(0.0, float((k @ g - delta) / (k @ k))) * k
            # A weight is e^20 at most, so that 1 - c/ρ is 1 only to 2e-9.
            torch.testing.assert_close(policy[t, b, :statistics], -z / count, rtol=1e-8, atol=1e-10)
            assert (policy[t, b, statistics:] == 0).all()
            torch.testing.assert_close(of_q[t, b], -value_coef * (q_ret - q[t, b]) / count, rtol=0, atol=1e-10)
            torch.testing.assert_close(of_values[t, b], -value_coef * min(1.0, rho) * (q_ret - q[t, b]) / count,
                                       rtol=0, atol=1e-10)
            trace = min(1.0, rho ** (1 / D))
            q_ret, q_opc = trace * (q_ret - q[t, b]) + value, (q_opc - q[t, b]) + value


def test_traces_of_many_dimensions_are_the_roots_of_their_weights() -> None:
    """log ρ far below zero, in many dimensions, is still a trace of ρ^(1/D): nothing is clamped before the root."""
    size = 17
    gaussian, log_std = Gaussian(size), torch.zeros(2, 1, size, dtype=torch.float64)
    params, behaviour = (torch.cat([torch.full_like(log_std, mean), log_std], -1) for mean in (2.5, 0.0))
    zero, yes = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.bool)
    q = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    loss, _ = continuous_acer_loss(
        gaussian, params, params, behaviour, torch.zeros(3, 1, dtype=torch.float64), q, zero, log_std, log_std, rewards,
        ~yes, yes, yes, gamma=1.0, truncation=1.0, bias_correction=False, trust_region=None, value_coef=1.0,
        entropy_coef=0.0, bounds_coef=0.0, fixed_deviation=True)
    trace = math.exp(-0.5 * 2.5**2)  # ρ^(1/D) of the action 0: each dimension has the same density ratio
    torch.testing.assert_close(torch.autograd.grad(loss, q)[0][0, 0], torch.tensor(-trace / 2, dtype=torch.float64))


def test_means_beyond_their_bounds_are_drawn_back() -> None:
    """The gradient of c (|μ| - 1.1)² at valid steps, for the action between -1 and 1; the other has one bound."""
    c, coef = ContinuousCase(3), 0.3
    with torch.no_grad():
        c.params[0, 0, 0], c.params[1, 2, 0], c.params[2, 0, 1], c.params[2, 1, 0] = 1.5, -3.0, 50.0, 9.0
    with_bounds, without = c.gradients(bounds_coef=coef), c.gradients()
    expected = torch.zeros_like(c.params)
    expected[0, 0, 0] = coef * 2 * (1.5 - 1.1) / c.valid.sum()
    expected[1, 2, 0] = -coef * 2 * (3.0 - 1.1) / c.valid.sum()
    assert not c.valid[2, 1]
    torch.testing.assert_close(with_bounds[0] - without[0], expected)
    assert all(torch.equal(x, y) for x, y in zip(with_bounds[1:], without[1:], strict=True))


@pytest.mark.parametrize(("low", "high"), [
    (-math.inf, math.inf), (0.0, math.inf), (0.0, 1e300), (-1e30, 1e30), (0.0, 1e-50), (2.0, 2.0)])
def test_means_without_two_bounds_that_differ_have_no_excess(low: float, high: float) -> None:
    params = torch.tensor([[1e6, 0.0]], requires_grad=True)
    excess = Gaussian(1, (low,), (high,)).excess(params)
    gradient, = torch.autograd.grad(excess.sum(), params)
    assert excess.tolist() == [0] and gradient.abs().max() == 0


def test_weights_of_actions_that_were_all_but_impossible_stay_finite() -> None:
    c = ContinuousCase(2)
    c.behaviour[..., :D] += 100.0
    assert all(x.isfinite().all() for x in (*c.gradients(), *c.gradients(truncation=None)))
