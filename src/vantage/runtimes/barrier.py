"""Data-parallel updates over shared memory: the gradient sink of a rank, and the barrier that ranks wait at.

The update is that of one process with all the environments. Each rank backpropagates through its own rollout, then
sums, clips and moves its slice of the flat vector.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from threading import Lock
from time import perf_counter, sleep

import numpy as np
import torch
from torch import Tensor

from vantage.config import Config
from vantage.learning.flat_parameters import flat_size, shorten
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS, FlatOptimizer
from vantage.learning.sinks import LOSS
from vantage.models.actor_critic import ActorCritic
from vantage.runtimes.shared_memory import SharedMemory

SPIN_SECONDS = 0.02
"""Seconds to spin before sleeping. A busy host is slow to give a sleeping core back: A2C on Pong in two processes is up
to 1.5 times as fast as in one with spinning, 1.2 times without."""

NAP_SECONDS = 0.002
"""Seconds between two checks after that, as during an evaluation."""

_METRICS = 16
_fence = Lock()
_yield = getattr(os, "sched_yield", lambda: sleep(0))


def order_memory() -> None:
    """A memory fence: reads and writes before it are visible before those after it.

    Processors such as ARM's reorder memory accesses; acquiring and releasing an uncontended lock prevents that.
    """
    for _ in range(2):
        with _fence:
            pass


class RankMemory:
    """Weights, gradients and optimiser statistics in memory that all ranks share; spawned processes inherit it.

    The layout is that of `FlatParameters`: one vector [P], and a gradient [P] for each rank.
    """

    def __init__(self, model: ActorCritic, config: Config, context: SpawnContext) -> None:
        self._size, num_ranks = flat_size(model), config.runtime.num_workers
        self._num_ranks, self._config = num_ranks, config.optimizer
        statistics = STATISTICS[config.optimizer.optimizer]
        tensors = {"vector": torch.zeros(self._size), "gradients": torch.zeros(num_ranks, self._size),
                   "means": torch.zeros(num_ranks, _METRICS, dtype=torch.float64),
                   "squares": torch.zeros(num_ranks, 8, dtype=torch.float64),
                   "arrivals": torch.zeros(num_ranks, 8, dtype=torch.int64)}
        tensors |= {name: torch.full((num_ranks if name == "step" else self._size,), value)
                    for name, value in statistics.items()}
        self._memory = SharedMemory(tensors, context)

    def sink(self, rank: int) -> RankWeights:
        """The sink of one rank."""
        part = slice(*(self._size * i // self._num_ranks for i in (rank, rank + 1)))
        memory, config = self._memory, self._config
        statistics = {name: memory[name][rank] if name == "step" else memory[name][part]
                      for name in STATISTICS[config.optimizer]}
        optimizer = FlatOptimizer(config.optimizer, memory["vector"][part], eps=config.optimizer_eps,
                                  decay=config.optimizer_decay, shared=statistics)
        return RankWeights(rank, part, memory["vector"], memory["gradients"], memory["means"], memory["squares"],
                           memory["arrivals"].numpy()[:, 0], self, optimizer)

    def join(self, learner: Learner, rank: int) -> RankWeights:
        """Make the learner of one rank take part in every update, starting from the weights of rank 0.

        An update is visible to all ranks after their next barrier.
        """
        weights = self.sink(rank)
        learner.flat.move(weights.vector, weights.gradient, keep=rank == 0)
        learner.sink = weights
        return weights

    def statistics(self) -> dict[str, Tensor]:
        """The optimiser's statistics of the whole vector, as one process has them."""
        return {name: self._memory[name][0] if name == "step" else self._memory[name]
                for name in STATISTICS[self._config.optimizer]}

    def load_statistics(self, saved: Mapping[str, Tensor]) -> None:
        """Restore `statistics`."""
        for name in STATISTICS[self._config.optimizer]:
            self._memory[name].copy_(saved[name])


@dataclass(slots=True)
class RankWeights:
    """The gradient sink of one rank: it sums all gradients over its slice of the vector and moves that slice."""

    rank: int
    part: slice
    vector: Tensor
    gradients: Tensor
    means: Tensor
    squares: Tensor
    arrivals: np.ndarray
    """[N] int64: how often each rank has arrived at a barrier."""
    memory: RankMemory
    optimizer: FlatOptimizer
    check: Callable[[], None] = lambda: None
    """Called while waiting; raises if another rank has ended."""

    @property
    def gradient(self) -> Tensor:
        """[P]: the gradient of this rank. That of rank 0 holds the mean over all ranks after `all_reduce`."""
        return self.gradients[self.rank]

    @property
    def merged(self) -> Tensor:
        """This rank's slice of the mean gradient, after `all_reduce`."""
        return self.gradients[0, self.part]

    def barrier(self) -> None:
        """Wait for all ranks; what any of them wrote before is visible to all after."""
        arrival = self.arrivals[self.rank] + 1
        order_memory()
        self.arrivals[self.rank] = arrival
        started = checked = perf_counter()
        while self.arrivals.min() < arrival:
            now = perf_counter()
            if now - started < SPIN_SECONDS:
                _yield()
                continue
            sleep(NAP_SECONDS)
            if now - checked > 0.1:
                self.check()
                checked = now
        order_memory()

    def apply(self, gradient: Tensor, num_valid: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> float:
        """Average gradients and metrics over all ranks, clip, and move this rank's slice of the weights."""
        names = list(metrics)
        metrics |= zip(names, self.all_reduce(num_valid, [metrics[name] for name in names]), strict=True)
        norm = self.clip_gradient(max_grad_norm)
        if math.isfinite(norm) and math.isfinite(metrics[LOSS]):
            self.optimizer.step(self.merged, lr)
        return norm

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics of the whole vector, as one process has them."""
        return self.memory.statistics()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`."""
        self.memory.load_statistics(tensors)

    def all_reduce(self, count: float, values: Sequence[float]) -> list[float]:
        """Average the gradient over the `count` valid steps of every rank; returns the averages of `values`.

        g = Σ nᵢ gᵢ / Σ nᵢ, since the loss of each rank is a mean over its valid steps
        """
        row = self.means[self.rank]
        row[0] = count
        row[1:1 + len(values)] = torch.tensor(values, dtype=torch.float64)
        self.barrier()
        counts = self.means[:, 0]
        portions = counts / counts.sum() if counts.sum() > 0 else torch.full_like(counts, 1 / len(counts))
        total = self.merged.mul_(portions[0].item())
        for gradient, portion in zip(self.gradients[1:], portions[1:].tolist(), strict=True):
            total.add_(gradient[self.part], alpha=portion)
        return [float(value) for value in portions @ self.means[:, 1:1 + len(values)]]

    def clip_gradient(self, max_norm: float) -> float:
        """Clip the mean gradient by its global norm; returns the norm before clipping."""
        total = self.merged
        self.squares[self.rank, 0] = torch.linalg.vector_norm(total).double().square()
        self.barrier()
        norm = math.sqrt(self.squares[:, 0].sum().item())
        shorten(total, norm, max_norm)
        return norm
