"""Memories as users write them: an average over the episode, and some that break the interface in one way each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """An exponential moving average of layer outputs, without `unroll` and `out_features`."""

    def __init__(self, *, input_size: int, memory_size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, memory_size)
        self.decay = nn.Parameter(torch.full((memory_size,), 2.0))

    def initial_state(self, batch: int) -> tuple[Tensor, ...]:
        return (torch.zeros(batch, len(self.decay)),)

    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        past = torch.where(is_first.unsqueeze(-1), 0.0, state[0])
        keep = self.decay.sigmoid()
        average = keep * past + (1 - keep) * self.layer(features)
        return torch.cat([average, features], -1), (average,)


class Unrolled(Average):
    """Computes all steps in a method of its own; only for a rollout without a new episode."""

    def unroll(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        outputs = []
        for row, first in zip(self.layer(features), is_first, strict=True):
            keep = self.decay.sigmoid()
            state = (keep * torch.where(first.unsqueeze(-1), 0.0, state[0]) + (1 - keep) * row,)
            outputs.append(state[0])
        return torch.cat([torch.stack(outputs), features], -1)


class ByHand(Average):
    """Branches on a value, which no tracer follows."""

    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features, is_first, state if features.sum() > 0 else (state[0] * 1,))


class SwappedUnroll(Unrolled):
    def unroll(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        return super().unroll(features, is_first, state).transpose(0, 1)


class NeverForgetting(Unrolled):
    def unroll(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        return super().unroll(features, torch.zeros_like(is_first), state)


class Clinging(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features, torch.zeros_like(is_first), state)


class GrowingState(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        output, (average,) = super().step(features, is_first, state)
        return output, (torch.cat([average, average], -1),)


class OutputAlone(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features, is_first, state)[0]


class Narrow(Average):
    out_features = 7


class NoBatch(Average):
    def initial_state(self, batch: int) -> Any:
        return (torch.zeros(len(self.decay)),)


class ListState(Average):
    def initial_state(self, batch: int) -> Any:
        return [*super().initial_state(batch)]


class Failing(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return self.layer(features[:, :1]), state


class Dropping(Average):
    def __init__(self, *, input_size: int, memory_size: int) -> None:
        super().__init__(input_size=input_size, memory_size=memory_size)
        self.layer = nn.Sequential(self.layer, nn.Dropout(0.5))  # type: ignore[assignment]


class ForgettingAll(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features, is_first.any().expand_as(is_first), state)


class Mixing(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features - features.mean(0), is_first, state)


class Noisy(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        return super().step(features + torch.randn_like(features), is_first, state)


class OnSelf(Average):
    calls = 0

    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        self.calls += 1
        return super().step(features * self.calls, is_first, state)


class InPlace(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        state[0].add_(1.0)
        return super().step(features, is_first, state)


class Double(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        output, state = super().step(features, is_first, state)
        return output.double(), state


class NotANumber(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        output, state = super().step(features, is_first, state)
        return output * float("nan"), state


class Stateless(nn.Module):
    def __init__(self, *, input_size: int, memory_size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, memory_size)


class BareState(Average):
    def step(self, features: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Any:
        output, (average,) = super().step(features, is_first, state)
        return output, average


class Positional(Average):
    def __init__(self, features: int) -> None:
        super().__init__(input_size=features, memory_size=4)


def nothing(*, input_size: int, memory_size: int) -> None:
    """Builds no module."""
