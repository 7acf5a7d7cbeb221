"""Running normalisation of rewards by the deviation of the discounted return. That of observations is in the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vantage.models.running_stats import INITIAL_STATS, merge_stats

_CLIP = 10.0  # as in OpenAI Baselines' VecNormalize


class RewardNormalizer:
    """Divides rewards by the running standard deviation of each environment's discounted return.

    R_t = γ R_{t-1} + r_t, cleared where an episode starts; rewards become clip(r / √(Var R + 1e-8), ±10). The
    statistics move once a rollout, after it was learnt from. They are part of a checkpoint.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.moments = torch.tensor(INITIAL_STATS, dtype=torch.float64, device=device)
        """Count, mean and variance of the discounted return, as rewards are scaled by."""
        self.seen = self.moments
        """The same of what `update` took in: where actor-learners share, `moments` are those of all of them."""

    def scale(self, rewards: Tensor) -> Tensor:
        """[T, B] rewards in units of the return's deviation."""
        deviation = (self.moments[2] + 1e-8).sqrt().to(rewards.dtype)
        return (rewards / deviation).clamp(-_CLIP, _CLIP)

    def update(self, rewards: Tensor, is_first: Tensor, gamma: float) -> None:
        """Take in the raw rewards [T, B] of a rollout; `is_first` [T+1, B]."""
        returns = torch.empty(rewards.shape, dtype=torch.float64, device=rewards.device)
        for t in range(rewards.shape[0]):
            self.returns = torch.where(is_first[t], 0.0, self.returns) * gamma + rewards[t]
            returns[t] = self.returns
        batch = torch.stack([torch.tensor(returns.numel(), dtype=torch.float64, device=returns.device),
                             returns.mean(), returns.var(correction=0)])
        self.seen.copy_(torch.stack(merge_stats(*self.seen, *batch.to(self.seen.device))))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {"returns": self.returns, "moments": self.moments}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        if len(tensors["returns"]) == len(self.returns):  # else of another runtime, whose episodes are over
            self.returns.copy_(tensors["returns"])
        self.moments.copy_(tensors["moments"])
