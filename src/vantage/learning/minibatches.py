"""Minibatches of a rollout: shuffled steps, or whole environments where the policy has recurrent memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace

import torch
from torch import Tensor

from vantage.models.actor_critic import ActorCritic
from vantage.types import Minibatch, Rollout, State, map_parts

_UNROLLED = 512
"""Steps that a CPU evaluates at once: more take longer, as the features of their images leave its caches."""


@torch.no_grad()
def by_current_policy(rollout: Rollout, model: ActorCritic) -> Rollout:
    """`rollout` with the values and the policy of `model`, and the importance weights that correct for the difference.

    The ratio's clip then bounds the distance from the current policy, and V-trace's weights correct for the older one:
    Hilton, Cobbe and Schulman 2022, arXiv:2110.00641, section 3.
    """
    length, num_envs = rollout.rewards.shape
    at_once = num_envs if model.recurrent or rollout.rewards.is_cuda else max(1, _UNROLLED // length)
    outputs = [_unroll(rollout, slice(first, first + at_once), model) for first in range(0, num_envs, at_once)]
    params, values = (torch.cat(columns, 1) for columns in zip(*outputs, strict=True))
    current, log_prob = params[:-1], model.distribution.log_prob
    rhos = (log_prob(current, rollout.actions) - log_prob(rollout.behaviour, rollout.actions)).exp()
    rhos = torch.where(rollout.valid, rhos, 1.0)  # an action that the environment replaced has no weight of its own
    return replace(rollout, behaviour=current, values=values, rhos=rhos)


def _unroll(rollout: Rollout, envs: slice, model: ActorCritic) -> tuple[Tensor, Tensor]:
    """The policy's parameters and the values of some environments of `rollout`."""
    mask = None if rollout.action_mask is None else rollout.action_mask[:, envs]
    return model.unroll(map_parts(lambda part: part[:, envs], rollout.obs), rollout.is_first[:, envs],
                        tuple(part[envs] for part in rollout.state), mask)


def minibatches(rollout: Rollout, advantages: Tensor, targets: Tensor, model: ActorCritic, *, size: int, epochs: int,
                generator: torch.Generator, rank: int = 0, num_ranks: int = 1,
                extra: Mapping[str, Tensor] | None = None) -> Iterator[Minibatch]:
    """Every step of `rollout` once an epoch, in minibatches of about `size` steps in random order.

    `advantages`, `targets` and `extra` [T, B, ...] are of the whole rollout. A memory needs the steps before, so its
    minibatches are whole environments in order of time; otherwise they are single steps, [1, N].

    Data-parallel ranks draw the minibatches of one process with all environments from equal generators; each yields the
    share of its own environments, which may be empty. All wait for the rank with the largest share, so of whole
    environments, where the number of minibatches divides theirs, each minibatch takes one of every block of consecutive
    ones. In any order, with PPO's defaults on Atari and two ranks, the largest share would be a third above the mean.
    """
    length, num_envs = rollout.rewards.shape
    all_envs = num_envs * num_ranks
    assert rollout.values is not None
    mask = None if rollout.action_mask is None else rollout.action_mask[:-1]
    is_first = rollout.is_first[:-1]
    next_inputs: tuple[Tensor, ...] | None = None
    late = epochs == 1 and rollout.inputs is None  # raw, a quarter of the memory: needed only once
    if rollout.inputs is not None:
        inputs = tuple(part[:-1] for part in rollout.inputs)
        next_inputs = tuple(part[1:] for part in rollout.inputs)
    else:
        inputs = tuple(model.stacks(map_parts(lambda part: part[:-1], rollout.obs), is_first, rollout.state))
        inputs = inputs if late else model.inputs(inputs)
    whole = Minibatch(
        inputs=inputs, is_first=is_first, state=rollout.state if model.recurrent else (),
        actions=rollout.actions, valid=rollout.valid, action_mask=mask, behaviour=rollout.behaviour,
        values=rollout.values[:-1], advantages=advantages, targets=targets, next_inputs=next_inputs, extra=extra or {})
    items = all_envs
    if not model.recurrent:
        whole = _map(whole, lambda x: x.flatten(0, 1).unsqueeze(0))
        items *= length
    parts = min(items, max(1, round(all_envs * length / size)))
    blocks = items // parts if model.recurrent and items % parts == 0 else 1
    for _ in range(epochs):
        own = _order(items, blocks, generator).tensor_split(parts)
        if num_ranks > 1:
            own = tuple(_own(drawn, num_envs, rank, num_ranks) for drawn in own)
        moved = torch.cat(own).to(rollout.rewards.device)  # once an epoch: the host waits for a copy to a GPU
        for chosen in torch.split(moved, [len(each) for each in own]):
            batch = _take(whole, chosen)
            yield replace(batch, inputs=model.inputs(batch.inputs)) if late else batch


def _order(items: int, blocks: int, generator: torch.Generator) -> Tensor:
    """All `items` [N], in turn one of each of the `blocks` of consecutive items, in random order within a block."""
    size = items // blocks
    return torch.stack([torch.randperm(size, generator=generator) + i * size for i in range(blocks)], 1).flatten()


def _own(items: Tensor, num_envs: int, rank: int, num_ranks: int) -> Tensor:
    """The `items` of this rank in its own numbering; they are numbered by time, then by environment of all ranks."""
    times, envs = items // (num_envs * num_ranks), items % (num_envs * num_ranks)
    return (times * num_envs + envs % num_envs)[envs // num_envs == rank]


def _take(batch: Minibatch, items: Tensor) -> Minibatch:
    """The `items` [N] of `batch`."""
    return _map(batch, lambda x: x.index_select(1, items), tuple(part.index_select(0, items) for part in batch.state))


def _map(batch: Minibatch, timed: Callable[[Tensor], Tensor], state: State = ()) -> Minibatch:
    """`batch` with `timed` of all that is [T, B, ...], and `state`."""
    parts = {f.name: map_parts(timed, getattr(batch, f.name)) for f in fields(batch) if f.name != "state"}
    return Minibatch(**parts, state=state)
