"""Stacks of the newest observations of an episode. Learned memories are in `models.memory`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor


def push_frame(obs: Shaped[Tensor, "B ..."], is_first: Bool[Tensor, " B"],
               frames: Shaped[Tensor, "B K ..."],
               *, pad: str) -> tuple[Shaped[Tensor, "B ..."], Shaped[Tensor, "B K ..."]]:
    """One step of `stack_frames`, faster: the stack [B, k*C, ...] and the next `frames`."""
    newest = obs.unsqueeze(1)
    first = is_first.view(-1, *(1,) * obs.dim())
    if pad == "repeat":
        frames = torch.where(first, newest, frames)
    elif obs.dtype == torch.uint8:
        frames = frames * ~first  # ten times faster than masked_fill, which took a tenth of acting
    else:
        frames = frames.masked_fill(first, 0)
    stack = torch.cat([frames, newest], 1)
    return stack.flatten(1, 2), stack[:, 1:]


def stack_frames(obs: Shaped[Tensor, "T B ..."], is_first: Bool[Tensor, "T B"],
                 frames: Shaped[Tensor, "B K ..."],
                 *, pad: str) -> Shaped[Tensor, "T B ..."]:
    """Each observation stacked with the k-1 before it, oldest first: [T, B, k*C, ...].

    `frames` [B, k-1, ...] are the observations before obs[0]. Observations of the previous episode
    are replaced by zeros (`pad="zeros"`) or by the episode's first observation ("repeat"), like
    Gymnasium's FrameStackObservation with padding_type "zero" and "reset".
    """
    num_steps, batch = is_first.shape
    shape = obs.shape[2:]
    k = frames.shape[1] + 1
    t = torch.arange(num_steps, device=obs.device).view(-1, 1, 1)
    source = t + torch.arange(1 - k, 1, device=obs.device)  # [T, 1, k]
    # [T, B, 1]: the episode's first step
    opened = torch.where(is_first.unsqueeze(-1), t, -k).cummax(0).values
    # One gather of whole frames from a table: the k-1 before, the rollout, a row of zeros.
    table = torch.cat([frames.transpose(0, 1).flatten(0, 1), obs.flatten(0, 1),
                       obs.new_zeros(1, *shape)])
    env = torch.arange(batch, device=obs.device).view(1, -1, 1)
    row = (torch.maximum(source, opened) + (k - 1)) * batch + env
    if pad == "zeros":
        row = torch.where(source < opened, table.shape[0] - 1, row)
    stacks = table.flatten(1).index_select(0, row.flatten())
    return stacks.view(num_steps, batch, k * shape[0], *shape[1:])
