"""ACER's losses of discrete actions against the paper, written slowly in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vantage.algorithms.acer_losses import discrete_acer_loss, project

T, B, A, GAMMA = 6, 4, 3, 0.9


class Case:
    """A random rollout of a categorical policy with a death, a time limit, a life loss and a forced action."""

    def __init__(self, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64)

        self.logits = normal(T + 1, B, A).mul_(1.5).requires_grad_()
        self.q_values = normal(T + 1, B, A).requires_grad_()
        self.average, self.behaviour = normal(T, B, A), normal(T, B, A).mul_(2)
        self.rewards = normal(T, B)
        self.actions = torch.randint(A, (T, B), generator=g)
        self.terminated, self.valid = torch.zeros(T, B, dtype=torch.bool), torch.ones(T, B, dtype=torch.bool)
        self.keep = torch.ones(T, B, dtype=torch.bool)
        self.terminated[2, 0] = True  # a death, then a reset
        self.keep[2, 0] = self.valid[3, 0] = False
        self.keep[1, 1] = self.valid[2, 1] = False  # a time limit, then a reset
        self.terminated[3, 2] = True  # a lost life, and the game goes on
        self.valid[2, 3] = False  # an action that the environment took itself
        self.terminated[T - 1, 1] = True  # a death in the last step

    def loss(self, **options: object) -> tuple[Tensor, dict[str, Tensor]]:
        keywords = {"gamma": GAMMA, "truncation": 1.5, "bias_correction": True, "trust_region": 0.3, "value_coef": 0.7,
                    "entropy_coef": 0.05} | options
        loss, terms = discrete_acer_loss(  # type: ignore[arg-type]
            self.behaviour, self.average, self.logits, self.q_values, self.actions, self.rewards, self.terminated,
            self.keep, self.valid, **keywords)
        return loss, dict(terms)

    def gradients(self, **options: object) -> tuple[Tensor, Tensor]:
        return torch.autograd.grad(self.loss(**options)[0], [self.logits, self.q_values])

    def targets(self) -> Tensor:
        """Q_ret by algorithm 2's loop, one environment at a time."""
        pi, mu = F.softmax(self.logits.detach(), -1), F.softmax(self.behaviour, -1)
        values, targets = (pi * self.q_values.detach()).sum(-1), torch.zeros(T, B, dtype=torch.float64)
        for b in range(B):
            following = values[T, b]
            for t in reversed(range(T)):
                if not self.keep[t, b]:
                    following = values[t + 1, b]
                targets[t, b] = self.rewards[t, b] + GAMMA * (not self.terminated[t, b]) * following
                a = self.actions[t, b]
                if self.valid[t, b]:
                    trace = min(1.0, float(pi[t, b, a] / mu[t, b, a]))
                    following = trace * (targets[t, b] - self.q_values.detach()[t, b, a]) + values[t, b]
                else:
                    following = targets[t, b]  # nobody chose: what followed is all there is
        return targets


def slow_gradients(c: Case, *, c_bar: float, delta: float, beta: float, value_coef: float) -> tuple[Tensor, Tensor]:
    """Algorithm 2 as the paper writes it: statistics are probabilities, each step by itself, ascent turned round."""
    targets, count = c.targets(), c.valid.sum()
    logits, q_values = c.logits.detach().clone().requires_grad_(), c.q_values.detach()
    objective = torch.zeros((), dtype=torch.float64)
    q_gradient = torch.zeros_like(q_values)
    for t in range(T):
        for b in range(B):
            if not c.valid[t, b]:
                continue
            f = F.softmax(logits[t, b], -1)
            pi, mu, q = f.detach(), F.softmax(c.behaviour[t, b], -1), q_values[t, b]
            value, a = (pi * q).sum(), int(c.actions[t, b])
            phi = pi.clone().requires_grad_()
            gain = min(c_bar, float(pi[a] / mu[a])) * phi[a].log() * (targets[t, b] - value)
            for other in range(A):
                weight = max(0.0, 1 - c_bar / float(pi[other] / mu[other]))
                gain = gain + weight * pi[other] * phi[other].log() * (q[other] - value)
            gain = gain - beta * (phi * phi.log()).sum()
            g, = torch.autograd.grad(gain, phi)
            average = F.softmax(c.average[t, b], -1)
            k, = torch.autograd.grad((average * (average.log() - phi.log())).sum(), phi)
            z = g - max(0.0, float((k @ g - delta) / (k @ k))) * k
            objective = objective + (f * z).sum() / count
            q_gradient[t, b, a] = -value_coef * (targets[t, b] - q[a]) / count
    return -torch.autograd.grad(objective, logits)[0], q_gradient


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("truncation", "trust_region"), [(1.5, 0.3), (None, None)])
def test_the_discrete_gradient_is_algorithm_2s(seed: int, truncation: float | None, trust_region: float | None) -> None:
    c = Case(seed)
    policy, critic = c.gradients(truncation=truncation, trust_region=trust_region)
    slow_policy, slow_critic = slow_gradients(c, c_bar=truncation or math.inf, delta=trust_region or math.inf,
                                              beta=0.05, value_coef=0.7)
    torch.testing.assert_close(policy, slow_policy, rtol=0, atol=1e-9)
    torch.testing.assert_close(critic, slow_critic, rtol=0, atol=1e-12)


def test_truncation_with_bias_correction_is_unbiased() -> None:
    """E_{a~μ}[min(c, ρ) ∇log π(a) X(a)] + Σ_a π(a) [1 - c/ρ(a)]₊ ∇log π(a) X(a) = E_{a~π}[∇log π(a) X(a)]: eq. 8."""
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(A, generator=g, dtype=torch.float64)
    behaviour, q = torch.tensor([2.0, 0.0, -2.0], dtype=torch.float64), torch.randn(A, generator=g, dtype=torch.float64)
    mu, pi = F.softmax(behaviour, -1), F.softmax(logits, -1)
    assert (pi / mu).max() > 2  # truncated

    def expected(bias_correction: bool, truncation: float | None) -> Tensor:
        """Expectation over a ~ μ of the gradient of a one-step rollout whose reward is Q(a) itself."""
        total = torch.zeros(A, dtype=torch.float64)
        for action in range(A):
            x = logits.expand(2, 1, A).clone().requires_grad_()
            loss, _ = discrete_acer_loss(
                behaviour.view(1, 1, A), behaviour.view(1, 1, A), x, q.expand(2, 1, A),
                torch.tensor([[action]]), q[action].view(1, 1), torch.ones(1, 1, dtype=torch.bool),
                torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool), gamma=GAMMA,
                truncation=truncation, bias_correction=bias_correction, trust_region=None, value_coef=0.0,
                entropy_coef=0.0)
            total += mu[action] * torch.autograd.grad(loss, x)[0][0, 0]
        return total

    true = -(pi * (q - (pi * q).sum()))  # -∇ E_π[Q] over logits
    torch.testing.assert_close(expected(True, 1.2), true, rtol=0, atol=1e-12)
    torch.testing.assert_close(expected(False, None), true, rtol=0, atol=1e-12)
    assert (expected(False, 1.2) - true).abs().max() > 0.01


def numerical_projection(g: np.ndarray, k: np.ndarray, delta: float) -> np.ndarray:
    """min ½‖g - z‖² with kᵀz ≤ δ by projected gradient steps of a dual variable."""
    multiplier = 0.0
    for _ in range(1_000):
        z = g - multiplier * k
        multiplier = max(0.0, multiplier + 0.05 / (k @ k) * (k @ z - delta))
    return np.asarray(g - multiplier * k)


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_solves_the_constrained_problem(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, k, delta = rng.normal(size=4) * 3, rng.normal(size=4), 0.5
    z, bounded = project(torch.tensor(g), torch.tensor(k), delta)
    np.testing.assert_allclose(z.numpy(), numerical_projection(g, k, delta), atol=1e-6)
    assert bounded.item() == (k @ g > delta)
    assert float(torch.tensor(k) @ z) <= delta + 1e-12


def test_the_projection_leaves_alone_what_is_within_the_bound_and_works_on_each_row_by_itself() -> None:
    g = torch.tensor([[1.0, 0.0], [9.0, 0.0]], dtype=torch.float64)
    k = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    z, bounded = project(g, k, 1.0)
    assert torch.equal(z[0], g[0]) and bounded.tolist() == [False, True]
    torch.testing.assert_close((k[1] * z[1]).sum(), torch.tensor(1.0, dtype=torch.float64))
    assert torch.equal(project(g, k, None)[0], g)


def test_masked_actions_do_no_harm() -> None:
    c = Case(8)
    masked = torch.zeros(A, dtype=torch.bool)
    masked[2] = True
    c.actions.clamp_(max=1)
    c.logits = c.logits.detach().masked_fill(masked, -1e9).requires_grad_()
    c.average, c.behaviour = c.average.masked_fill(masked, -1e9), c.behaviour.masked_fill(masked, -1e9)
    policy, critic = c.gradients()
    assert policy.isfinite().all() and critic.isfinite().all()
    assert policy[..., 2].abs().max() == 0
