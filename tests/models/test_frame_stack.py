"""Frame stacks equal a plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vantage.models.frame_stack import push_frame, stack_frames


def stack_slowly(obs: Tensor, is_first: Tensor, frames: Tensor, pad: str) -> Tensor:
    """Gymnasium's FrameStackObservation with padding_type "zero" or "reset", one environment after another."""
    columns = []
    for b in range(obs.shape[1]):
        past, column = list(frames[b]), []
        for t in range(len(obs)):
            if is_first[t, b]:
                past = [obs[t, b] if pad == "repeat" else torch.zeros_like(obs[t, b])] * len(past)
            past.append(obs[t, b])
            column.append(torch.cat(past))
            past.pop(0)
        columns.append(torch.stack(column))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("pad", ["zeros", "repeat"])
@pytest.mark.parametrize(("shape", "dtype", "k"), [((2, 3, 3), torch.uint8, 4), ((5,), torch.float32, 2)])
def test_stacks_hold_one_episode_however_the_steps_are_cut(
        pad: str, shape: tuple[int, ...], dtype: torch.dtype, k: int) -> None:
    obs, frames = (torch.randint(1, 256, (*size, *shape)).to(dtype) for size in ((30, 3), (3, k - 1)))
    is_first = torch.rand(30, 3) < 0.3
    expected = stack_slowly(obs, is_first, frames, pad)
    whole = stack_frames(obs, is_first, frames, pad=pad)
    assert torch.equal(whole, expected) and whole.dtype == dtype
    for t in range(30):
        if t % 7 == 0:
            piece = stack_frames(obs[t:t + 7], is_first[t:t + 7], frames, pad=pad)
            assert torch.equal(piece, expected[t:t + 7])
        stacked, frames = push_frame(obs[t], is_first[t], frames, pad=pad)
        assert torch.equal(stacked, expected[t])
