"""Running normalisation of rewards by the deviation of the discounted return. That of observations is in the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_CLIP = 10.0  # as in OpenAI Baselines' VecNormalize


class RewardNormalizer:
    """Divides rewards by the running standard deviation of each environment's discounted return.

    R_t = γ R_{t-1} + r_t, cleared where an episode starts; rewards become clip(r / √(Var R + 1e-8), ±10). The
    statistics move once a rollout, after it was learnt from. They are part of a checkpoint.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.moments = torch.tensor([1e-4, 0.0, 1.0], dtype=torch.float64, device=device)
        """Count, mean and variance of the discounted return."""

    def scale(self, rewards: Tensor) -> Tensor:
        """[T, B] rewards in units of the return's deviation."""
        deviation = (self.moments[2] + 1e-8).sqrt().to(rewards.dtype)
        return (rewards / deviation).clamp(-_CLIP, _CLIP)

    def update(self, rewards: Tensor, is_first: Tensor, gamma: float) -> None:
        """Take in the raw rewards [T, B] of a rollout; `is_first` [T+1, B]."""
        seen = torch.empty(rewards.shape, dtype=torch.float64, device=rewards.device)
        for t in range(rewards.shape[0]):
            self.returns = torch.where(is_first[t], 0.0, self.returns) * gamma + rewards[t]
            seen[t] = self.returns
        count, mean, variance = self.moments
        new_count, new_mean, new_variance = seen.numel(), seen.mean(), seen.var(correction=0)
        total, delta = count + new_count, new_mean - mean
        squares = variance * count + new_variance * new_count + delta.square() * count * new_count / total
        self.moments = torch.stack([total, mean + delta * new_count / total, squares / total])

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {"returns": self.returns, "moments": self.moments}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        self.returns, self.moments = tensors["returns"].to(self.returns), tensors["moments"].to(self.moments)
