"""Laws of the policy's memory: frame stacks equal Gymnasium's, recurrence equals a plain loop."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation
from torch import Tensor, nn

from vantage.models.recurrent import Recurrent, push_frame, stack_frames


class Noise(gym.Env[np.ndarray, int]):
    """Random observations; episodes of 1 to 6 steps."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.observation_space = gym.spaces.Box(0, 255, shape, dtype)
        self.observation_space.seed(0)
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.episode, self.left = self.episode + 1, 1 + self.episode * 5 % 6
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.observation_space.sample(), 0.0, self.left == 0, False, {}


def play(env: gym.Env[Any, int], num_steps: int) -> tuple[Tensor, Tensor]:
    """Observations of `num_steps` steps, a reset being one, and which of them open an episode."""
    observations, is_first, over = [], [], True
    for _ in range(num_steps):
        is_first.append(over)
        if over:
            obs, over = env.reset()[0], False
        else:
            obs, _, over, _, _ = env.step(0)
        observations.append(torch.from_numpy(obs.copy()))
    return torch.stack(observations), torch.tensor(is_first)


@pytest.mark.parametrize(("pad", "padding_type", "shape", "dtype", "k"), [
    ("zeros", "zero", (2, 3, 3), np.uint8, 4), ("zeros", "zero", (5,), np.float32, 2),
    ("repeat", "reset", (2, 3, 3), np.uint8, 2), ("repeat", "reset", (5,), np.float32, 4)])
def test_stacks_are_those_of_gymnasium_over_resets_and_however_the_steps_are_cut(
        pad: str, padding_type: str, shape: tuple[int, ...], dtype: Any, k: int) -> None:
    expected, _ = play(FrameStackObservation(Noise(shape, dtype), k, padding_type=padding_type), 60)
    expected = expected.flatten(1, 2).unsqueeze(1)
    obs, is_first = (part.unsqueeze(1) for part in play(Noise(shape, dtype), 60))
    assert is_first.sum() > 10
    frames = torch.full((1, k - 1, *shape), 7, dtype=obs.dtype)
    whole = stack_frames(obs, is_first, frames, pad=pad)
    assert torch.equal(whole, expected) and whole.dtype == obs.dtype
    for t in range(60):
        if t % 7 == 0:
            pieces = stack_frames(obs[t:t + 7], is_first[t:t + 7], frames, pad=pad)
            assert torch.equal(pieces, expected[t:t + 7])
        stacked, frames = push_frame(obs[t], is_first[t], frames, pad=pad)
        assert torch.equal(stacked, expected[t])


def test_environments_beside_each_other_are_stacked_as_if_alone() -> None:
    source = torch.Generator().manual_seed(0)
    obs, is_first = torch.rand(12, 5, 2, generator=source), torch.rand(12, 5, generator=source) < 0.3
    frames = torch.rand(5, 3, 2, generator=source)
    together = stack_frames(obs, is_first, frames, pad="zeros")
    for b in range(5):
        one = slice(b, b + 1)
        assert torch.equal(stack_frames(obs[:, one], is_first[:, one], frames[one], pad="zeros"), together[:, one])


def loop(memory: Recurrent, x: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
    """One step after another, with torch's own cell."""
    cell = (nn.LSTMCell if memory.is_lstm else nn.GRUCell)(4, 6).to(x.dtype)
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    for name, parameter in memory.named_parameters():
        setattr(cell, name, parameter)
    outputs = []
    for t in range(len(x)):
        state = tuple(torch.where(is_first[t, :, None], 0.0, part if memory.bptt else part.detach()) for part in state)
        state = cell(x[t], state) if memory.is_lstm else (cell(x[t], state[0]),)
        outputs.append(state[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bptt", [True, False])
def test_unrolling_is_a_plain_loop_in_value_and_gradient(kind: str, reset: float, bptt: bool) -> None:
    torch.manual_seed(0)
    memory = Recurrent(kind, 4, 6, bptt=bptt, init="orthogonal").double()
    x = torch.randn(9, 3, 4, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(3, 6, dtype=torch.float64) for _ in range(memory.num_states))
    is_first = torch.rand(9, 3) < reset
    outputs, expected = memory.unroll(x, is_first, state), loop(memory, x, is_first, state)
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn(outputs.shape, dtype=torch.float64)
    gradients, references = (torch.autograd.grad((out * weights).sum(), [x, *memory.parameters()])
                             for out in (outputs, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-10)
