"""Reward scaling by the running deviation of the discounted return. Observations are normalised by the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vantage.models.normalization import INITIAL_STATS, Stats, count_of, merge_stats

_CLIP = 10.0  # as in OpenAI Baselines' VecNormalize


class RewardNormalizer:
    """Divides rewards by the running standard deviation of each environment's discounted return.

    R_t = γ R_{t-1} + r_t, cleared where an episode starts; scaled rewards are clip(r / √(Var R + 1e-8), ±10). The
    learner updates the statistics after it has used a rollout. They are part of a checkpoint.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.stats = torch.tensor(INITIAL_STATS, dtype=torch.float64, device=device)
        """Count, mean and variance of the discounted return, which scale the rewards."""
        self.local_stats = self.stats
        """The statistics that `merge` changes: of this actor-learner only, if several share `stats`."""

    def scale(self, rewards: Tensor) -> Tensor:
        """[T, B] rewards in units of the return's deviation."""
        deviation = (self.stats[2] + 1e-8).sqrt().to(rewards.dtype)
        return (rewards / deviation).clamp(-_CLIP, _CLIP)

    def batch(self, rewards: Tensor, is_first: Tensor, gamma: float) -> Stats:
        """Stats of the discounted returns of the next rollout: raw rewards [T, B], `is_first` [T+1, B]."""
        returns, decays = rewards.to(torch.float64, copy=True), gamma * (~is_first[:-1]).double()
        for decay, after in zip(decays.unbind(), returns.unbind(), strict=True):
            self.returns = after.addcmul_(decay, self.returns)
        self.returns = self.returns.clone()
        return count_of(returns.numel(), returns), returns.mean().view(1), returns.var(correction=0).view(1)

    def merge(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Merge the Stats of a batch of returns into the statistics, in place."""
        batch = [part.to(self.local_stats.device).squeeze() for part in (count, mean, variance)]
        self.local_stats.copy_(torch.stack(merge_stats(*self.local_stats, *batch)))

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint, beside `returns`, which belong to the environments."""
        return {"moments": self.stats}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors` in place."""
        self.stats.copy_(tensors["moments"])
