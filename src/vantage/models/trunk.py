"""The network between inputs and heads: a torso for each input, then the memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from vantage.models.activation_cache import ActivationCache
from vantage.models.config import PolicyConfig
from vantage.models.memory import Memory, make_memory, unroll
from vantage.models.torsos import make_torso
from vantage.types import ArraySpec, State


class Trunk(nn.Module):
    """One torso per input, their features side by side, then the memory if there is one."""

    def __init__(self, policy: PolicyConfig, parts: tuple[ArraySpec, ...],
                 titles: tuple[str, ...] = ()) -> None:
        """`titles` are the names of the `parts` of a Dict, for messages."""
        super().__init__()
        beside_image = any(part.kind == "image" for part in parts)
        self.torsos = nn.ModuleList(
            make_torso(part, policy, beside_image=beside_image, title=title)
            for part, title in zip(parts, titles or [""] * len(parts), strict=True))
        self.out_features = sum(cast(int, torso.out_features) for torso in self.torsos)
        self.bptt = policy.bptt
        self.memory: Memory | None = None
        if policy.memory != "none":
            self.memory = make_memory(policy, self.out_features)
            self.out_features = self.memory.out_features
        self.num_states = len(self.initial_state(1))

    def initial_state(self, batch: int) -> State:
        """The memory's state before an episode; () without a memory."""
        return () if self.memory is None else self.memory.initial_state(batch)

    def encode(self, inputs: list[Tensor], cache: ActivationCache | None = None) -> Tensor:
        """Features [N, F] of one tensor [N, ...] per part."""
        if cache is not None:
            return cast(Tensor, self.torsos[0](inputs[0], cache))
        features = []
        # Those that only the critic sees come last.
        for torso, part in zip(self.torsos, inputs[:len(self.torsos)], strict=True):
            half = part.dtype == torch.bfloat16
            with torch.autocast(part.device.type, torch.bfloat16) if half else nullcontext():
                out = torso(part)
            features.append(out.float() if half else out)
        return features[0] if len(features) == 1 else torch.cat(features, -1)

    def step(self, inputs: list[Tensor], is_first: Tensor, state: State,
             cache: ActivationCache | None = None) -> tuple[Tensor, State]:
        features = self.encode(inputs, cache)
        if self.memory is None:
            return features, ()
        return self.memory.step(features, is_first, state)

    def unroll(self, inputs: list[Tensor] | None, last: list[Tensor] | None, is_first: Tensor,
               state: State,
               cache: ActivationCache | None = None) -> Tensor:
        rows = [] if inputs is None else [self.encode(inputs, cache)]
        if last is not None:
            # backpropagating the zeros of the last row would cost 1/(T+1) of the learning time
            with torch.no_grad():
                rows.append(self.encode(last))
        features = rows[0] if len(rows) == 1 else torch.cat(rows)
        features = torch.unflatten(features, 0, is_first.shape)
        if self.memory is None:
            return features
        return unroll(self.memory, features, is_first, state, bptt=self.bptt)
