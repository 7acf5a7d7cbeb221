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
    """Random observations; episodes of 1 to 6 steps, alternately ended by the task and by time."""

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
        over = self.left == 0
        return self.observation_space.sample(), 0.0, over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}


def play(env: gym.Env[Any, int], num_steps: int) -> tuple[Tensor, Tensor]:
    """Observations of `num_steps` steps, a reset being one, and which of them open an episode."""
    observations, is_first, over = [], [], True
    for _ in range(num_steps):
        is_first.append(over)
        if over:
            obs, over = env.reset()[0], False
        else:
            obs, _, terminated, truncated, _ = env.step(0)
            over = terminated or truncated
        observations.append(torch.from_numpy(obs.copy()))
    return torch.stack(observations), torch.tensor(is_first)


@pytest.mark.parametrize(("pad", "padding_type", "shape", "dtype", "k"), [
    ("zeros", "zero", (2, 3, 3), np.uint8, 4), ("zeros", "zero", (5,), np.float32, 2),
    ("repeat", "reset", (2, 3, 3), np.uint8, 2), ("repeat", "reset", (5,), np.float32, 4)])
def test_stacks_are_those_of_gymnasium_over_resets_and_however_the_steps_are_cut(
        pad: str, padding_type: str, shape: tuple[int, ...], dtype: Any, k: int) -> None:
    wrapped = FrameStackObservation(Noise(shape, dtype), k, padding_type=padding_type)
    expected, _ = play(wrapped, 60)
    expected = expected.flatten(1, 2).unsqueeze(1)
    obs, is_first = play(Noise(shape, dtype), 60)
    obs, is_first = obs.unsqueeze(1), is_first.unsqueeze(1)
    assert is_first.sum() > 10
    start = torch.full((1, k - 1, *shape), 7, dtype=obs.dtype)

    whole, end = stack_frames(obs, is_first, start, pad=pad)
    assert torch.equal(whole, expected) and whole.dtype == obs.dtype
    frames, pieces = start, []
    for begin in range(0, 60, 7):
        stacked, frames = stack_frames(obs[begin:begin + 7], is_first[begin:begin + 7], frames, pad=pad)
        pieces.append(stacked)
    assert torch.equal(torch.cat(pieces), expected) and torch.equal(frames, end)
    frames = start
    for t in range(60):
        stacked, frames = push_frame(obs[t], is_first[t], frames, pad=pad)
        assert torch.equal(stacked, expected[t])
    assert torch.equal(frames, end)


def test_environments_beside_each_other_are_stacked_as_if_alone() -> None:
    source = torch.Generator().manual_seed(0)
    obs, is_first = torch.rand(12, 5, 2, generator=source), torch.rand(12, 5, generator=source) < 0.3
    frames = torch.rand(5, 3, 2, generator=source)
    together, _ = stack_frames(obs, is_first, frames, pad="zeros")
    for b in range(5):
        one = slice(b, b + 1)
        assert torch.equal(stack_frames(obs[:, one], is_first[:, one], frames[one], pad="zeros")[0], together[:, one])


def recurrent(kind: str, *, bptt: bool = True, init: str = "orthogonal") -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(kind, 4, 6, bptt=bptt, init=init)


def rollout(*, num_steps: int = 9, reset: float = 0.2) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(1)
    x, h, c = (torch.randn(*shape, generator=source) for shape in ((num_steps, 3, 4), (3, 6), (3, 6)))
    return x, torch.rand(num_steps, 3, generator=source) < reset, (h, c)


def loop(memory: Recurrent, x: Tensor, is_first: Tensor, state: tuple[Tensor, ...], *, detach: bool = False) -> Tensor:
    """One step after another, with torch's own cell."""
    cell = (nn.LSTMCell if memory.is_lstm else nn.GRUCell)(4, 6).to(x.dtype)
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    for name, parameter in memory.named_parameters():
        setattr(cell, name, parameter)
    outputs = []
    for t in range(len(x)):
        state = tuple(torch.where(is_first[t, :, None], 0.0, part.detach() if detach else part) for part in state)
        state = cell(x[t], state) if memory.is_lstm else (cell(x[t], state[0]),)
        outputs.append(state[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bptt", [True, False])
def test_unrolling_is_a_plain_loop_in_value_and_gradient(kind: str, reset: float, bptt: bool) -> None:
    memory = recurrent(kind, bptt=bptt).double()
    x, is_first, state = rollout(reset=reset)
    x, state = x.double().requires_grad_(), tuple(s.double() for s in state[:memory.num_states])
    outputs, expected = memory.unroll(x, is_first, state), loop(memory, x, is_first, state, detach=not bptt)
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn(outputs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients, references = (torch.autograd.grad((out * weights).sum(), [x, *memory.parameters()])
                             for out in (outputs, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_nothing_is_remembered_across_the_start_of_an_episode(kind: str) -> None:
    memory = recurrent(kind)
    x, is_first, state = rollout(reset=0.0)
    is_first[4, 1] = True
    before = memory.unroll(x, is_first, state[:memory.num_states])
    x[:4] += 1
    after = memory.unroll(x, is_first, state[:memory.num_states])
    assert torch.equal(before[4:, 1], after[4:, 1])
    assert not torch.isclose(before[4:, [0, 2]], after[4:, [0, 2]]).all(-1).any()


def test_the_forget_gate_is_open_at_the_start_and_each_gate_orthogonal() -> None:
    memory = recurrent("lstm")
    assert torch.equal(memory.bias_ih + memory.bias_hh, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(6))
    for gate in memory.weight_hh.chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6), rtol=0, atol=1e-5)
    assert (recurrent("gru").bias_ih == 0).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_torchs_own_initialisation_is_uniform_by_width(kind: str) -> None:
    values = torch.cat([p.detach().flatten() for p in recurrent(kind, init="torch").parameters()])
    assert values.abs().max() <= 6 ** -0.5 and values.std().item() == pytest.approx(6 ** -0.5 / 3 ** 0.5, rel=0.1)
