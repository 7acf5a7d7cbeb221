"""Reward scaling by the running deviation of the discounted return.

Observations are normalised by the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vantage.models.normalization import CLIP, RunningStats, Stats, stats_of

_LARGEST_MEAN = CLIP / 2


class RewardNormalizer(RunningStats):
    """Divides rewards by the running standard deviation of each environment's discounted return.

    R_t = γ R_{t-1} + r_t, cleared where an episode starts

    Scaled rewards are clip(r / σ, ±10), where σ is √(Var R + 1e-8), and at least |mean R| / 5.
    Without that bound the clip would make rewards such as 100 and 101 of one-step episodes equal.
    Steps that only reset have no reward and are not counted. The learner updates the statistics
    after it has used a rollout. They are part of a checkpoint.
    """

    of = "discounted returns"
    instead = "--no-reward-norm"

    def __init__(self, num_envs: int, device: torch.device) -> None:
        super().__init__()
        self.to(device, torch.float64)
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        """R of each environment.

        They belong to the environments, and so to the acting part of a checkpoint.
        """

    def scale(self, rewards: Tensor) -> Tensor:
        """[T, B] rewards divided by the return's deviation, or by a fifth of its mean if larger."""
        unit = torch.maximum((self.var + 1e-8).sqrt(),
                             self.mean.abs() / _LARGEST_MEAN).to(rewards.dtype)
        return (rewards / unit).clamp(-CLIP, CLIP)

    def batch(self, rewards: Tensor, is_first: Tensor, resets: Tensor, gamma: float) -> Stats:
        """Stats of the discounted returns of the next rollout.

        From its raw rewards [T, B], `is_first` [T+1, B] and `resets` [T, B].
        """
        returns = rewards.to(torch.float64, copy=True)
        decays = gamma * (~is_first[:-1]).double()
        for decay, after in zip(decays.unbind(), returns.unbind(), strict=True):
            self.returns = after.addcmul_(decay, self.returns)
        self.returns = self.returns.clone()
        return stats_of(returns[~resets].unsqueeze(-1))
