"""What data-parallel ranks exchange by torch.distributed: gradients and objects.

Who commands is in `ranks`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from vantage.learning.config import OptimizerConfig
from vantage.learning.gradients import OwnWeights, clip_with_norm
from vantage.learning.learner import Learner
from vantage.learning.step_metrics import Number
from vantage.learning.weights import GradientSink
from vantage.runtimes.shared_metrics import SharedMetrics, weighted_mean

NAP_SECONDS = 0.0005
"""Seconds between two checks whether gloo is done."""

_NEVER = timedelta(days=365)  # ranks wait as long as rank 0 evaluates
_joined = Event()


class RankLostError(ConnectionResetError):
    """Another rank has ended."""


class RankWeights(GradientSink):
    """The gradient sink of a rank, by torch.distributed: moves its weights by the mean gradient.

    g = Σ nᵢ gᵢ / Σ nᵢ, since the loss of each rank is a mean over its nᵢ valid steps. Each rank
    averages a slice in the order of ranks. The result is bit for bit that of `shared_gradients`,
    and an all-reduce would send as much. nccl sends what is on GPUs, gloo everything else.
    """

    def __init__(self, learner: Learner) -> None:
        assert isinstance(learner.sink, OwnWeights)
        self._own = learner.sink
        self._group = None
        self.rank = dist.get_rank()
        self.num_ranks = dist.get_world_size()
        self._metrics = SharedMetrics()
        size = len(learner.flat.vector)
        self._sizes = [size * (i + 1) // self.num_ranks - size * i // self.num_ranks
                       for i in range(self.num_ranks)]
        if learner.flat.vector.device.type == "cuda":
            torch.cuda.set_device(learner.flat.vector.device)
            self._group = dist.new_group(backend="nccl", timeout=_NEVER)
        learner.sink = self

    def change(self, config: OptimizerConfig) -> None:
        self._own.change(config)

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """Average the gradient and the metrics over all ranks, clip, then step."""
        own = self._metrics.row(num_valid, loss, metrics)
        bits = own.view(gradient.dtype).to(gradient.device)
        size = self._sizes[self.rank]
        parts = [torch.cat([part, bits]) for part in torch.split(gradient, self._sizes)]
        rows = self._exchange(parts, [size + len(bits)] * self.num_ranks)
        # A copy, since float64 needs an even offset of float32, and the slices of three ranks have
        # odd ones.
        numbers = torch.stack([row[size:].cpu().clone().view(own.dtype) for row in rows])
        if self._metrics.learn_names(numbers, metrics, self.all_gather):
            numbers = self.all_gather(self._metrics.row(num_valid, loss, metrics))
        counts, loss, means = self._metrics.means(numbers)
        metrics |= means
        mean = weighted_mean([row[:size] for row in rows], counts)
        means_of_ranks = self._exchange([mean] * self.num_ranks, self._sizes)
        norm = math.sqrt(sum(torch.linalg.vector_norm(part).double().square().item()
                             for part in means_of_ranks))
        torch.cat(means_of_ranks, out=gradient)
        clip_with_norm(gradient, norm, max_grad_norm)
        if math.isfinite(norm) and math.isfinite(loss):
            self._own.move(gradient, lr)
        return norm, loss

    def _exchange(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Send one of the `parts` to each rank; returns the received ones, of these `sizes`."""
        received = parts[0].new_empty(sum(sizes))
        sent = torch.cat(list(parts))
        lengths = [len(part) for part in parts]
        group = self._group if parts[0].is_cuda else None
        _complete(lambda: dist.all_to_all_single(received, sent, list(sizes), lengths, group=group,
                                                 async_op=True))
        return list(torch.split(received, list(sizes)))

    def all_gather(self, values: Tensor) -> Tensor:
        return torch.stack(self._exchange([values] * self.num_ranks,
                                          [len(values)] * self.num_ranks))

    def share_command(self, command: int = 0, step: int = 0) -> tuple[int, int]:
        """The command and the step of rank 0, which does not wait for the others."""
        with _raising_lost_ranks():
            numbers = torch.tensor([command, step])
            work = dist.broadcast(numbers, 0, async_op=True)
            if self.rank > 0 and work is not None:
                work.wait()
            command, step = numbers.tolist()
            return command, step

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return self._own.optimizer_tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        self._own.load_optimizer(tensors)


def torchrun_rank_and_size() -> tuple[int, int] | None:
    """The rank of this process and the number of ranks under torchrun; None without it."""
    if not dist.is_torchelastic_launched():
        return None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def join(store: Path | None = None, rank: int = -1, size: int = -1) -> None:
    """Connect all ranks: those of this machine through the file `store`, or those of torchrun."""
    _joined.set()
    with ExitStack() as stack:
        if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_BATCH:
            # The threads of gloo work for microseconds and should not wait for those that compute.
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            stack.callback(os.sched_setscheduler, 0, os.SCHED_BATCH, os.sched_param(0))
        # torch's begins each line of a traceback with [rank0], also after training.
        stack.callback(setattr, sys, "excepthook", sys.excepthook)
        if store is None:
            dist.init_process_group("gloo", timeout=_NEVER)
            return
        stack.enter_context(_on_loopback())
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size,
                                timeout=_NEVER)


def leave() -> None:
    """Disconnect this process, if it has joined."""
    if dist.is_initialized():
        dist.destroy_process_group()


def dismiss() -> None:
    """End the ranks above 0, which wait for a run, if this process of torchrun never began one."""
    if not _joined.is_set():
        join()
        broadcast(None)
        leave()


def _complete(begin: Callable[[], Any]) -> None:
    """Wait for what `begin` starts; unlike a blocking call, this lets signals be handled."""
    with _raising_lost_ranks():
        work = begin()
        while not work.is_completed():
            sleep(NAP_SECONDS)
        work.wait()


def broadcast(value: Any = None) -> Any:
    """The object of rank 0.

    Objects take 1 ms more than numbers, of 140 ms for an update of Pong.
    """
    with _raising_lost_ranks():
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]


def gather(value: Any) -> list[Any]:
    """The objects of all ranks, on rank 0; empty on others."""
    _complete(lambda: dist.all_reduce(torch.zeros(1), async_op=True))  # waits for the slowest
    with _raising_lost_ranks():
        values = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(value, values, 0)
        return values or []


@contextmanager
def _raising_lost_ranks() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankLostError(str(error)) from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let gloo, which has no passwords, use the loopback interface.

    An interface that the user has chosen stays.
    """
    loopback = None
    for name, addresses in psutil.net_if_addrs().items():
        if loopback is None and any(each.address == "127.0.0.1" for each in addresses):
            loopback = name
    if "GLOO_SOCKET_IFNAME" in os.environ or loopback is None:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    try:
        yield
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]
