"""Minibatches of a rollout: shuffled steps, or whole environments with recurrent memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from vantage.algorithms.losses import bounded_ratios
from vantage.models.actor_critic import ActorCritic
from vantage.types import Minibatch, Rollout, State, map_parts

_UNROLLED = 512
"""Steps that a CPU evaluates at once.

With more, the features of images no longer fit its caches.
"""


@torch.no_grad()
def by_current_policy(rollout: Rollout, model: ActorCritic) -> Rollout:
    """`rollout` with the values and distributions of `model`, and importance weights for V-trace.

    Environments that acted by the current weights have theirs.

    PPO's clip then bounds the distance from the current policy, and V-trace corrects for the older
    policy that acted: Hilton, Cobbe and Schulman 2022, arXiv:2110.00641, section 3.
    """
    length, num_envs = rollout.rewards.shape
    at_once = max(1, _UNROLLED // length)
    if model.recurrent or rollout.rewards.is_cuda:
        at_once = num_envs
    current = slice(0, 0)
    if rollout.current is not None and rollout.values is not None:
        current = rollout.current
    params = rollout.behaviour.clone()
    values = params.new_empty(rollout.is_first.shape)
    if rollout.values is not None:
        values.copy_(rollout.values)
    for start, stop in ((0, current.start), (current.stop, num_envs)):
        for first in range(start, stop, at_once):
            envs = slice(first, min(first + at_once, stop))
            evaluated, values[:, envs] = _unroll(rollout, envs, model)
            params[:, envs] = evaluated[:-1]
    log_probs = model.distribution.log_prob(params, rollout.actions)
    behaviour_log_probs = model.distribution.log_prob(rollout.behaviour, rollout.actions)
    rhos = bounded_ratios(log_probs - behaviour_log_probs)
    rhos = torch.where(rollout.valid, rhos, 1.0)  # 1 where the environment replaced the action
    return replace(rollout, behaviour=params, values=values, rhos=rhos)


def _unroll(rollout: Rollout, envs: slice, model: ActorCritic) -> tuple[Tensor, Tensor]:
    """The policy's parameters and the values of some environments of `rollout`."""
    mask = None if rollout.action_mask is None else rollout.action_mask[:, envs]
    if rollout.stacks is not None and not model.recurrent:
        # In the order of memory, in which past rollouts have their environments first.
        inputs = model.inputs([part[:, envs].transpose(0, 1) for part in rollout.stacks])
        params, values = model.unroll_inputs(inputs, rollout.is_first[:, envs].t(), (),
                                             None if mask is None else mask.transpose(0, 1))
        return params.transpose(0, 1), values.t()
    obs = map_parts(lambda part: part[:, envs], rollout.obs)
    state = tuple(part[envs] for part in rollout.state)
    return model.unroll(obs, rollout.is_first[:, envs], state, mask)


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a rollout is cut into minibatches of about `size` steps in random order.

    Each step is in one minibatch of an epoch. Data-parallel ranks have equal generators and draw
    the same minibatches of all environments; each takes the part of its own environments, which may
    be empty.
    """

    size: int
    epochs: int
    generator: torch.Generator
    rank: int = 0
    num_ranks: int = 1

    def draw(self, rollout: Rollout, *, recurrent: bool) -> Iterator[tuple[Tensor, ...]]:
        """For each epoch, the indices of the minibatches' columns in `whole_batch`."""
        length, num_envs = rollout.rewards.shape
        all_envs = num_envs * self.num_ranks
        items = all_envs if recurrent else all_envs * length
        parts = min(items, max(1, round(all_envs * length / self.size)))
        # Every minibatch lasts as long as the largest share of a rank. Taking one environment of
        # each block of consecutive ones makes the shares equal; in any order, the largest share of
        # two ranks would be a third above the mean, with PPO's defaults on Atari.
        blocks = items // parts if recurrent and items % parts == 0 else 1
        played = num_envs
        if rollout.current is not None:
            played = rollout.current.stop - rollout.current.start
        for _ in range(self.epochs):
            drawn = _order(items, blocks, self.generator).tensor_split(parts)
            if self.num_ranks > 1:
                drawn = tuple(own_items(part, num_envs, played, self.rank, self.num_ranks)
                              for part in drawn)
            yield drawn


def minibatches(rollout: Rollout, advantages: Tensor, targets: Tensor, model: ActorCritic,
                pieces: Pieces, extra: Mapping[str, Tensor] | None = None) -> Iterator[Minibatch]:
    """The minibatches of all epochs.

    `advantages`, `targets` and `extra` [T, B, ...] are of the whole rollout. With recurrent memory
    a minibatch is whole environments in order of time, otherwise single steps, [1, N].
    """
    # With one epoch each input is used once. Raw inputs take a quarter of the memory until then.
    stacks = None
    if pieces.epochs == 1 and rollout.inputs is None:
        stacks = _stacks(rollout, model)
    whole = whole_batch(rollout, advantages, targets, model, extra, raw_inputs=stacks is not None)
    for epoch in pieces.draw(rollout, recurrent=model.recurrent):
        # One copy to the device an epoch, since the host waits for each.
        on_device = torch.cat(epoch).to(rollout.rewards.device)
        for chosen in torch.split(on_device, [len(part) for part in epoch]):
            batch = _take(whole, chosen)
            if stacks is not None:
                gathered = tuple(_gather(x, chosen, len(rollout.rewards), model.recurrent)
                                 for x in stacks)
                batch = replace(batch, inputs=model.inputs(gathered))
            yield batch


def _stacks(rollout: Rollout, model: ActorCritic) -> tuple[Tensor, ...]:
    """The stacks [T or T+1, B, ...] of `rollout`: those kept from acting, if there are any."""
    if rollout.stacks is not None:
        return rollout.stacks
    return model.stacks(map_parts(lambda part: part[:-1], rollout.obs), rollout.is_first[:-1],
                        rollout.state)


def _gather(stacks: Tensor, chosen: Tensor, length: int, recurrent: bool) -> Tensor:
    """The environments `chosen` of `stacks` [T or T+1, B, ...], or those steps as [1, N, ...].

    Steps are numbered by time, then by environment. A whole environment is contiguous in past
    rollouts, a whole step in others; neither is copied as a whole.
    """
    rows, num_envs = stacks.shape[:2]
    if recurrent:
        return stacks[:length].index_select(1, chosen)
    if not stacks.is_contiguous() and stacks.transpose(0, 1).is_contiguous():
        stacks = stacks.transpose(0, 1)
        chosen = chosen % num_envs * rows + chosen // num_envs
    return stacks.flatten(0, 1).index_select(0, chosen).unsqueeze(0)


def whole_batch(rollout: Rollout, advantages: Tensor, targets: Tensor, model: ActorCritic,
                extra: Mapping[str, Tensor] | None = None, *,
                raw_inputs: bool = False) -> Minibatch:
    """All steps of `rollout` as one minibatch [T, B], without memory [1, T * B].

    With `raw_inputs` it has no inputs: the caller prepares those of each minibatch.
    """
    assert rollout.values is not None
    is_first = rollout.is_first[:-1]
    next_inputs: tuple[Tensor, ...] | None = None
    if rollout.inputs is not None:
        inputs = tuple(part[:-1] for part in rollout.inputs)
        next_inputs = tuple(part[1:] for part in rollout.inputs)
    else:
        inputs = ()
        if not raw_inputs:
            inputs = model.inputs([part[:len(is_first)] for part in _stacks(rollout, model)])
    whole = Minibatch(
        inputs=inputs, is_first=is_first, state=rollout.state if model.recurrent else (),
        actions=rollout.actions, valid=rollout.valid,
        action_mask=None if rollout.action_mask is None else rollout.action_mask[:-1],
        behaviour=rollout.behaviour, values=rollout.values[:-1], advantages=advantages,
        targets=targets, next_inputs=next_inputs, extra=extra or {})
    return whole if model.recurrent else _map(whole, lambda x: x.flatten(0, 1).unsqueeze(0))


def _order(items: int, blocks: int, generator: torch.Generator) -> Tensor:
    """A random order [N] of `items`, which takes an item of each of `blocks` blocks in turn."""
    size = items // blocks
    orders = [torch.randperm(size, generator=generator) + block * size for block in range(blocks)]
    return torch.stack(orders, 1).flatten()


def own_items(items: Tensor, num_envs: int, played: int, rank: int, num_ranks: int) -> Tensor:
    """The `items` of this rank's environments, renumbered for this rank.

    Items are numbered by time, then by column: of all ranks before, of this rank after. Each of the
    rollouts side by side has a column for each of the `played` environments of a rank, in one
    process as many for all ranks.
    """
    times = items // (num_envs * num_ranks)
    columns = items % (num_envs * num_ranks)
    rollouts = columns // (played * num_ranks)
    envs = columns % (played * num_ranks)
    own = envs // played == rank
    return (times * num_envs + rollouts * played + envs % played)[own]


def _take(batch: Minibatch, items: Tensor) -> Minibatch:
    """The `items` [N] of `batch`."""
    state = tuple(part.index_select(0, items) for part in batch.state)
    return _map(batch, lambda x: x.index_select(1, items), state)


def _map(batch: Minibatch, function: Callable[[Tensor], Tensor], state: State = ()) -> Minibatch:
    """`batch` with `function` applied to every tensor [T, B, ...], and with `state`."""
    names = [field.name for field in fields(batch) if field.name != "state"]
    return Minibatch(**{name: map_parts(function, getattr(batch, name)) for name in names},
                     state=state)
