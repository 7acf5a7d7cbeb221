"""The gradient sink of ranks on one CPU, in shared memory.

Each rank sums, clips and moves its slice of the flat vector between barriers. gloo sends the
gradient through sockets, which takes 13% more CPU time for a step of default A2C on Pong in two
processes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from threading import Lock
from time import perf_counter, sleep

import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.learning.config import OptimizerConfig
from vantage.learning.gradients import clip_with_norm
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS, FlatOptimizer, within
from vantage.learning.step_metrics import Number
from vantage.learning.weights import GradientSink
from vantage.runtimes.shared_memory import SharedMemory
from vantage.runtimes.shared_metrics import SharedMetrics, weighted_mean

SPIN_SECONDS = 0.02
"""Seconds to spin before sleeping.

A busy host is slow to give a sleeping core back: A2C on Pong in two processes is up to 1.5 times as
fast as in one with spinning, 1.2 times without.
"""

NAP_SECONDS = 0.002
"""Polling interval in seconds after that."""

_fence = Lock()
_yield = getattr(os, "sched_yield", lambda: sleep(0))


def order_memory() -> None:
    """A full memory fence, for processors such as ARM's.

    Accesses from both sides can move between one acquire and its release; no access can cross two
    of these pairs.
    """
    with _fence:
        pass
    with _fence:
        pass


class RankMemory:
    """Memory that ranks on one CPU share: weights [P], a gradient [P] and numbers for each rank.

    The numbers, at most `columns`, are the metrics of an update or values for `all_gather`.
    """

    def __init__(self, size: int, num_ranks: int, columns: int, config: OptimizerConfig,
                 context: SpawnContext) -> None:
        self.config = config
        tensors = {"vector": torch.zeros(size), "gradients": torch.zeros(num_ranks, size),
                   "command": torch.zeros(2, dtype=torch.int64),
                   "numbers": torch.zeros(num_ranks, columns, dtype=torch.float64),
                   "squares": torch.zeros(num_ranks, 8, dtype=torch.float64),
                   "arrivals": torch.zeros(num_ranks, 8, dtype=torch.int64)}
        for name, value in STATISTICS[config.optimizer].items():
            tensors[name] = torch.full((num_ranks if name == "step" else size,), value)
        self.memory = SharedMemory(tensors, context)


class SharedRankWeights(GradientSink):
    """The sink of one rank. All ranks start from the weights of rank 0.

    The gradient row of rank 0 receives the mean over all ranks. While this rank waits, it calls
    `check` from time to time, with True if others may still be collecting; `check` raises if a rank
    has ended.
    """

    def __init__(self, shared: RankMemory, learner: Learner, rank: int,
                 check: Callable[[bool], None] = lambda collecting: None) -> None:
        memory = shared.memory
        config = shared.config
        self.rank = rank
        self._check = check
        self._collecting = False
        self._metrics = SharedMetrics()
        self._command = memory["command"]
        self._numbers = memory["numbers"]
        self._gradients = memory["gradients"]
        self._squares = memory["squares"]
        self._arrivals = memory["arrivals"].numpy()[:, 0]
        self._vector = memory["vector"]
        self._average = learner.average
        self.num_ranks, size = self._gradients.shape
        self._part = slice(size * rank // self.num_ranks, size * (rank + 1) // self.num_ranks)
        self._statistics = {name: memory[name] for name in STATISTICS[config.optimizer]}
        saved = learner.sink.optimizer_tensors()
        if rank == 0 and saved:
            self.load_optimizer(saved)
        learner.flat.move(self._vector, self._gradients[rank], keep=rank == 0)
        part = {name: each[rank] if name == "step" else each[self._part]
                for name, each in self._statistics.items()}
        self._optimizer = FlatOptimizer(config, self._vector[self._part], part,
                                        critic=within(learner.flat.critic, self._part))
        learner.sink = self

    def change(self, config: OptimizerConfig) -> None:
        self._optimizer.change(config)

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """Average gradients and metrics over all ranks, clip, and move this rank's slice."""
        rows = self._share(self._metrics.row(num_valid, loss, metrics))
        if self._metrics.learn_names(rows, metrics, self._gather_after_barrier):
            rows = self._share(self._metrics.row(num_valid, loss, metrics))
        counts, loss, means = self._metrics.means(rows)
        metrics |= means
        mean = weighted_mean([*self._gradients[:, self._part]], counts)
        self._squares[self.rank, 0] = torch.linalg.vector_norm(mean).double().square()
        self.barrier()
        norm = math.sqrt(self._squares[:, 0].sum().item())
        clip_with_norm(mean, norm, max_grad_norm)
        is_finite = math.isfinite(norm) and math.isfinite(loss)
        if is_finite:
            self._optimizer.step(mean, lr)
        self.barrier()
        # Each rank has an average of its own, equal to the others.
        if is_finite and self._average is not None:
            self._average.follow(self._vector)
        return norm, loss

    def all_gather(self, values: Tensor) -> Tensor:
        rows = self._share(values).clone()
        self.barrier()
        return rows

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        self.barrier()
        yield self.rank == 0
        self.barrier()

    def _gather_after_barrier(self, values: Tensor) -> Tensor:
        """`all_gather` while other ranks may still read what the last `_share` has returned."""
        self.barrier()
        return self.all_gather(values)

    def _share(self, values: Tensor) -> Tensor:
        """The `values` [N] of all ranks, [num_ranks, N]: a view, valid until the next barrier."""
        most = self._numbers.shape[1]
        if len(values) > most:
            raise ConfigError(f"the algorithm exchanges {len(values)} numbers in an update, and "
                              f"ranks on one CPU have room for {most}; log fewer metrics, or give "
                              "--num-workers 1")
        self._numbers[self.rank, :len(values)] = values
        self.barrier()
        return self._numbers[:, :len(values)]

    def share_command(self, command: int = 0, step: int = 0) -> tuple[int, int]:
        """The command and the step of rank 0."""
        if self.rank == 0:
            self._command[:] = torch.tensor([command, step])
        self.barrier()
        self._collecting = True  # until the next barrier
        command, step = self._command.tolist()
        return command, step

    def barrier(self) -> None:
        """Wait for all ranks; what each wrote before is visible to all after."""
        arrival = self._arrivals[self.rank] + 1
        order_memory()
        self._arrivals[self.rank] = arrival
        started = perf_counter()
        while self._arrivals.min() < arrival:
            if perf_counter() - started < SPIN_SECONDS:
                _yield()
            else:
                sleep(NAP_SECONDS)
                self._check(self._collecting)
        self._collecting = False
        order_memory()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The statistics of the whole vector, as one process has them."""
        return {name: tensor[0] if name == "step" else tensor
                for name, tensor in self._statistics.items()}

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._statistics.items():
            tensor.copy_(tensors[name])
