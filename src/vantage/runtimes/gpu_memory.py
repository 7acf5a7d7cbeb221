"""What workers need of the memory of GPUs: an estimate before they start, so that too many are refused with words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from vantage.errors import ConfigError
from vantage.learning.collect import Position, empty_rollout
from vantage.learning.learner import Learner
from vantage.system import free_gpu_memory
from vantage.types import Obs, Rollout, map_obs

CONTEXT_BYTES = 600 * 2**20
"""CUDA's context, kernels and workspaces of one process: 300 to 600 MiB as a rule, and here the most."""


def worker_bytes(*, weights: int, rollout: int, activations: int) -> int:
    """Bytes of a GPU's memory that one worker needs at most, about.

    `weights` are those of all vectors of parameters, and of the gradient, once as found and once as a vector. There are
    two rollouts, since one begins with the observation that the one before ends with, and activations once more, for
    their gradients.
    """
    return CONTEXT_BYTES + weights + 2 * rollout + 2 * activations


def fit(each: int, num_workers: int, devices: Sequence[str], free: Mapping[str, int]) -> str:
    """What `num_workers` workers of `each` bytes, dealt out to `devices`, take up; says so for a person.

    ConfigError where more is needed than is `free`; a device that is not in there is not judged.
    """
    def wanted(workers: int) -> Counter[str]:
        dealt = Counter(devices[worker % len(devices)] for worker in range(workers))
        return Counter({device: count for device, count in dealt.items() if device != "cpu"})

    def fits(workers: int) -> bool:
        return all(count * each <= free.get(device, count * each) for device, count in wanted(workers).items())

    parts = []
    for device, count in wanted(num_workers).items():
        room = f" of {_gib(free[device])} free" if device in free else ""
        parts.append(f"{device}: {count} {'worker' if count == 1 else 'workers'}, {_gib(count * each)}{room}")
    text = f"GPU memory, as estimated, {_gib(each)} a worker; {'; '.join(parts)}"
    if fits(num_workers):
        return text
    most = next((workers for workers in range(num_workers - 1, 0, -1) if fits(workers)), 0)
    remedy = f"give --num-workers {most}, or fewer --num-envs" if most else \
        "give fewer --num-envs or a smaller --rollout-length or --network, or use a3c, which is the same on CPUs"
    raise ConfigError(f"num_workers={num_workers} do not fit ({text}); {remedy}, or end what else uses the GPU")


def estimate(learner: Learner, position: Position, *, length: int, num_envs: int) -> int:
    """`worker_bytes` of a worker like `learner`, which is on the CPU, with rollouts of `length` from `position` on.

    The activations are those of a single environment's rollout, counted in a forward pass, times `num_envs`.
    """
    single = Position(map_obs(lambda part: part[:1], position.obs), position.is_first[:1],
                      None if position.action_mask is None else position.action_mask[:1],
                      learner.model.initial_state(1))
    rollout = _blank(empty_rollout(learner.model, single, length))
    weights = 3 * learner.flat.vector.nbytes + (learner.average.vector.nbytes if learner.average else 0)
    parts = [*_tensors(rollout.obs), rollout.actions, rollout.rewards, rollout.behaviour, *rollout.state]
    return worker_bytes(weights=weights, rollout=2 * num_envs * sum(part.nbytes for part in parts),
                        activations=num_envs * activation_bytes(learner, rollout))


def activation_bytes(learner: Learner, rollout: Rollout) -> int:
    """What the graph of the learner's loss on `rollout` holds until it is gone through, the weights apart."""
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = learner.loss(rollout, 0)  # kept, so that no two tensors have the same place one after the other
    held.pop(learner.flat.vector.untyped_storage().data_ptr(), None)
    del loss
    return sum(held.values())


def free_on(devices: Sequence[str]) -> dict[str, int]:
    """Free bytes of those devices of which NVIDIA's tool tells. Takes none of them, as a question to CUDA would."""
    free = free_gpu_memory()
    if not free:
        return {}
    uuids = {name: f"GPU-{torch.cuda.get_device_properties(name).uuid}" for name in devices if name != "cpu"}
    return {name: free[uuid] for name, uuid in uuids.items() if uuid in free}


def _blank(rollout: Rollout) -> Rollout:
    """`rollout` with contents that a loss can be taken of."""
    mask = None if rollout.action_mask is None else torch.ones_like(rollout.action_mask)
    return replace(rollout, actions=torch.zeros_like(rollout.actions), rewards=torch.zeros_like(rollout.rewards),
                   terminated=torch.zeros_like(rollout.terminated), valid=torch.ones_like(rollout.valid),
                   is_first=torch.zeros_like(rollout.is_first), behaviour=torch.zeros_like(rollout.behaviour),
                   action_mask=mask)


def _tensors(obs: Obs) -> list[Tensor]:
    return list(obs.values()) if isinstance(obs, Mapping) else [obs]


def _gib(number: int) -> str:
    return f"{number / 2**30:.1f} GiB"
