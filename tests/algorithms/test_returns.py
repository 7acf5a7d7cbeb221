"""The estimators equal their definitions, written as the papers write them, and hold the laws between them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vantage.algorithms.returns import gae, retrace, vtrace

T, B, GAMMA = 9, 6, 0.9


class Case:
    """A random rollout with deaths, time limits, life losses and the reset steps that follow the first two."""

    def __init__(self, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64)

        self.rewards, self.values, self.q_values = normal(T, B), normal(T + 1, B), normal(T, B)
        self.rhos = normal(T, B).exp()
        self.is_first = torch.zeros(T + 2, B, dtype=torch.bool)
        self.terminated = torch.zeros(T, B, dtype=torch.bool)
        for b in range(B):
            t = 0
            while t < T:
                event = torch.rand((), generator=g)
                if event < 0.15:
                    self.terminated[t, b] = True  # death: the next step resets
                    self.is_first[t + 2, b] = True
                    t += 1
                elif event < 0.3:
                    self.is_first[t + 2, b] = True  # time limit
                    t += 1
                elif event < 0.45:
                    self.terminated[t, b] = True  # life loss: the same game goes on
                t += 1
        self.is_first = self.is_first[: T + 1]
        self.reset = self.is_first[1:]
        self.discounts = GAMMA * (~self.terminated).double()
        self.keep = torch.ones(T, B, dtype=torch.bool)
        self.keep[:-1] = ~self.is_first[2:]


def slow_gae(c: Case, t: int, b: int, lam: float) -> float:
    """Σ_l (Π γλ) δ_{t+l}, up to the end of the episode or of the rollout."""
    total, weight = 0.0, 1.0
    for s in range(t, T):
        delta = c.rewards[s, b] + c.discounts[s, b] * c.values[s + 1, b] - c.values[s, b]
        total += weight * delta
        if s + 1 < T and c.reset[s + 1, b]:
            break
        weight *= lam * c.discounts[s, b]
    return float(total)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_gae_equals_its_definition(seed: int, lam: float) -> None:
    c = Case(seed)
    advantages, targets = gae(c.rewards, c.values, c.discounts, c.keep, gae_lambda=lam)
    expected = torch.tensor([[slow_gae(c, t, b, lam) for b in range(B)] for t in range(T)], dtype=torch.float64)
    valid = ~c.reset
    torch.testing.assert_close(advantages[valid], expected[valid], atol=1e-12, rtol=0)
    torch.testing.assert_close(targets, advantages + c.values[:-1], atol=1e-12, rtol=0)


def slow_vtrace_target(c: Case, s: int, b: int, lam: float) -> float:
    """V_s + Σ_t γ^{t-s} (Π c_i) ρ_t δ_t."""
    total, weight = float(c.values[s, b]), 1.0
    for t in range(s, T):
        delta = c.rewards[t, b] + c.discounts[t, b] * c.values[t + 1, b] - c.values[t, b]
        total += float(weight * min(1.0, float(c.rhos[t, b])) * delta)
        if t + 1 < T and c.reset[t + 1, b]:
            break
        weight *= float(c.discounts[t, b]) * lam * min(1.0, float(c.rhos[t, b]))
    return total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lam", [0.8, 1.0])
def test_vtrace_equals_its_definition(seed: int, lam: float) -> None:
    c = Case(seed)
    advantages, targets = vtrace(c.rewards, c.values, c.discounts, c.keep, c.rhos, gae_lambda=lam)
    expected = torch.tensor([[slow_vtrace_target(c, t, b, lam) for b in range(B)] for t in range(T)],
                            dtype=torch.float64)
    valid = ~c.reset
    torch.testing.assert_close(targets[valid], expected[valid], atol=1e-12, rtol=0)
    following = torch.where(c.keep, torch.cat([targets[1:], c.values[-1:]]), c.values[1:])
    following[-1] = c.values[-1]
    bootstrap = lam * following + (1 - lam) * c.values[1:]
    by_paper = c.rhos.clamp(max=1) * (c.rewards + c.discounts * bootstrap - c.values[:-1])
    torch.testing.assert_close(advantages[valid], by_paper[valid], atol=1e-12, rtol=0)


def slow_retrace(c: Case, t: int, b: int) -> float:
    """Q_t + Σ_{s≥t} γ^{s-t} (Π_{t<i≤s} min(1, ρ_i)) (r_s + γ V_{s+1} - Q_s)."""
    total, weight = float(c.q_values[t, b]), 1.0
    for s in range(t, T):
        total += float(weight * (c.rewards[s, b] + c.discounts[s, b] * c.values[s + 1, b] - c.q_values[s, b]))
        if s + 1 == T or c.reset[s + 1, b]:
            break
        weight *= float(c.discounts[s, b]) * min(1.0, float(c.rhos[s + 1, b]))
    return total


@pytest.mark.parametrize("seed", range(5))
def test_retrace_equals_its_definition(seed: int) -> None:
    c = Case(seed)
    targets = retrace(c.rewards, c.q_values, c.values, c.discounts, c.keep, c.rhos)
    expected = torch.tensor([[slow_retrace(c, t, b) for b in range(B)] for t in range(T)], dtype=torch.float64)
    valid = ~c.reset
    torch.testing.assert_close(targets[valid], expected[valid], atol=1e-12, rtol=0)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_vtrace_of_on_policy_data_is_gae(lam: float) -> None:
    c = Case(3)
    ones = torch.ones_like(c.rhos)
    for ours, theirs in zip(vtrace(c.rewards, c.values, c.discounts, c.keep, ones, gae_lambda=lam),
                            gae(c.rewards, c.values, c.discounts, c.keep, gae_lambda=lam), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=0)


def test_a_time_limit_bootstraps_from_the_last_observation() -> None:
    rewards = torch.tensor([[1.0], [0.0]])
    values = torch.tensor([[0.0], [5.0], [7.0]])  # step 0 hits the limit, step 1 is the reset
    discounts, keep = torch.full((2, 1), 0.5), torch.tensor([[False], [True]])
    advantages, _ = gae(rewards, values, discounts, keep, gae_lambda=1.0)
    assert advantages[0, 0] == 1.0 + 0.5 * 5.0
