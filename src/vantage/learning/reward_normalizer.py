"""Reward scaling by the running deviation of the discounted return. Observations are normalised by the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vantage.models.normalization import INITIAL_STATS, merge_stats

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
        """The statistics that `update` changes: of this actor-learner only, if several share `stats`."""

    def scale(self, rewards: Tensor) -> Tensor:
        """[T, B] rewards in units of the return's deviation."""
        deviation = (self.stats[2] + 1e-8).sqrt().to(rewards.dtype)
        return (rewards / deviation).clamp(-_CLIP, _CLIP)

    def update(self, rewards: Tensor, is_first: Tensor, gamma: float) -> None:
        """Update the statistics from the raw rewards [T, B] of a rollout; `is_first` [T+1, B]."""
        returns, decays = rewards.to(torch.float64, copy=True), gamma * (~is_first[:-1]).double()
        for decay, after in zip(decays.unbind(), returns.unbind(), strict=True):
            self.returns = after.addcmul_(decay, self.returns)
        self.returns = self.returns.clone()
        batch = torch.stack([torch.tensor(returns.numel(), dtype=torch.float64, device=returns.device),
                             returns.mean(), returns.var(correction=0)])
        self.merge(batch)

    def merge(self, batch: Tensor) -> None:
        """Merge count, mean and variance of a batch of returns into the statistics."""
        self.local_stats.copy_(torch.stack(merge_stats(*self.local_stats, *batch.to(self.local_stats.device))))

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return {"returns": self.returns, "moments": self.stats}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors` in place."""
        if len(tensors["returns"]) == len(self.returns):  # otherwise from another runtime, whose episodes have ended
            self.returns.copy_(tensors["returns"])
        self.stats.copy_(tensors["moments"])
