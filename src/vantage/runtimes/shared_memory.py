"""Memory that processes share, and in it the weights of Hogwild workers and their gradient sink.

Hogwild workers wait for each other only with `lock`. Each counter and each normaliser's row has one
writer; weights and optimiser statistics have many, so that an update is lost now and then (Niu et
al. 2011, arXiv:1106.5730).
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

import numpy as np
import torch
from torch import Tensor

from vantage.config.config import Config
from vantage.learning.config import OptimizerConfig
from vantage.learning.gradients import clip_gradient
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS, FlatOptimizer
from vantage.learning.running_statistics import running_stats
from vantage.learning.step_metrics import Number
from vantage.learning.weights import GradientSink
from vantage.models.normalization import Stats, merge_rows
from vantage.models.value_norm import ValueNormalizer

_ALIGNMENT = 64
"""Bytes of a cache line: two workers do not write to the same one."""

WORKER = np.dtype({"names": ["steps", "updates", "heartbeat"],
                   "formats": [np.int64, np.int64, np.float64], "itemsize": _ALIGNMENT})
"""Counters of a worker, and the time of its last heartbeat."""


class SharedMemory:
    """Copies of named tensors in memory that spawned processes inherit.

    The system frees it with the last of the processes.
    """

    def __init__(self, tensors: Mapping[str, Tensor], context: SpawnContext) -> None:
        self._blocks = {name: (context.RawArray(ctypes.c_byte, tensor.nbytes + _ALIGNMENT),
                               tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self[name].copy_(tensor)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor, a view of the memory."""
        block, shape, dtype = self._blocks[name]
        offset = -ctypes.addressof(block) % _ALIGNMENT
        return torch.frombuffer(block, dtype=dtype, count=math.prod(shape),
                                offset=offset).view(shape)

    def tensors(self) -> dict[str, Tensor]:
        return {name: self[name] for name in self._blocks}


class SharedWeights:
    """What the workers of a run share: created in the main process, inherited by the workers."""

    def __init__(self, learner: Learner, config: Config, context: SpawnContext) -> None:
        size = len(learner.flat.vector)
        workers = config.runtime.num_workers
        self.log_weights = config.run.log_weights
        tensors = {"limit": torch.tensor([config.run.steps]),
                   "workers": torch.zeros(workers, WORKER.itemsize, dtype=torch.uint8),
                   "vector": torch.zeros(size)}
        if self.log_weights:
            tensors["gradient"] = torch.zeros(size)
        if learner.average is not None:
            tensors["average"] = torch.zeros_like(learner.average.vector, device="cpu")
        if learner.buffers is not None:
            tensors["buffers"] = learner.buffers.read().cpu().repeat(workers, 1)
        self.memory = SharedMemory(tensors, context)
        """Vectors have the layout of `FlatParameters`.

        The gradient is that of the first worker's last update.
        """
        rows = 1 if config.hogwild.shared_statistics else workers
        statistics: dict[str, Tensor] = {}
        for name, value in STATISTICS[config.optimizer.optimizer].items():
            statistics[name] = torch.full((rows,) if name == "step" else (rows, size), value)
        self.statistics = SharedMemory(statistics, context)
        """The optimiser's statistics by torch's names: one row for all workers or one for each."""
        self.normalizers: dict[str, SharedMemory] = {}
        """Count, mean and variance of each normaliser: a row for each worker.

        All use the merged rows. The value normaliser has one row, changed with the value head.
        """
        for name, normalizer in running_stats(learner):
            rows = 1 if isinstance(normalizer, ValueNormalizer) else workers
            parts = {str(i): part.expand(rows, *part.shape)
                     for i, part in enumerate(normalizer.stats)}
            self.normalizers[name] = SharedMemory(parts, context)
        # A lock of the file system ends with the process that holds it, killed or not, unlike one
        # of multiprocessing. As a Connection, its descriptor is inherited by spawned processes.
        self._lock = None
        if config.hogwild.lock or learner.model.value_norm is not None:
            with tempfile.TemporaryFile() as file:
                self._lock = Connection(os.dup(file.fileno()))

    @property
    def vector(self) -> Tensor:
        """[P] float32: the weights, in the layout of `FlatParameters`."""
        return self.memory["vector"]

    @property
    def average(self) -> Tensor:
        """[P] float32: the weights of ACER's average policy."""
        return self.memory["average"]

    @property
    def buffers(self) -> Tensor:
        """[workers, N] float64: the buffers of the algorithm's module.

        All workers use what `Buffers` merges.
        """
        return self.memory["buffers"]

    @property
    def limit(self) -> np.ndarray:
        """[1] int64: agent steps of all workers at which each stops; 0 stops them at once."""
        return self.memory["limit"].numpy()

    @property
    def workers(self) -> np.ndarray:
        """[workers] of WORKER."""
        return self.memory["workers"].numpy().view(WORKER)[:, 0]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """With hogwild.lock or value_norm, only one worker at a time is within this context."""
        if self._lock is None:
            yield
            return
        fcntl.lockf(self._lock.fileno(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock.fileno(), fcntl.LOCK_UN)


class HogwildWeights(GradientSink):
    """The gradient sink of one worker: moves the shared weights by its gradient.

    The gradient is computed on a copy of the weights and never aliased.

    Mnih et al. 2016, arXiv:1602.01783, algorithm S3.
    """

    def __init__(self, shared: SharedWeights, learner: Learner, worker: int) -> None:
        self._shared = shared
        self._learner = learner
        self._worker = worker
        config = learner.config.optimizer
        self._vector = shared.vector
        self._updates = shared.workers["updates"]
        own = {name: rows[worker % len(rows)] for name, rows in shared.statistics.tensors().items()}
        self._optimizer = FlatOptimizer(config, self._vector, own, critic=learner.flat.critic)
        self._pulled_updates = 0
        # Normalisers update the rows of this worker, and normalise with the merged rows of all.
        self._normalizers: list[tuple[Stats, Stats]] = []
        self._value_stats: list[tuple[Stats, Stats]] = []
        for name, normalizer in running_stats(learner):
            counts, means, variances = shared.normalizers[name].tensors().values()
            rows = counts, means, variances
            self._normalizers.append((normalizer.stats, rows))
            if isinstance(normalizer, ValueNormalizer):
                self._value_stats = [self._normalizers[-1]]
            else:
                normalizer.local_stats = counts[worker], means[worker], variances[worker]
        learner.sink = self

    def pull(self) -> None:
        """Copy the shared weights and the merged statistics of all normalisers into the model."""
        with self._shared.turn():
            self._pull()

    def _pull(self) -> None:
        self._pulled_updates = self._updates.sum()
        self._learner.flat.vector.copy_(self._vector)
        if self._learner.average is not None:
            self._learner.average.vector.copy_(self._shared.average)
        for stats, rows in self._normalizers:
            for own, merged in zip(stats, merge_rows(*rows), strict=True):
                own.copy_(merged)
        if self._learner.buffers is not None:
            self._learner.buffers.merge(self._shared.buffers)

    def push(self) -> None:
        """Copy the model's weights and statistics into the shared memory, to start a run.

        The buffers of a module go to every worker.
        """
        self._vector.copy_(self._learner.flat.vector)
        if self._learner.average is not None:
            self._shared.average.copy_(self._learner.average.vector)
        _write_first(self._normalizers)
        if self._learner.buffers is not None:
            self._shared.buffers.copy_(self._learner.buffers.read().expand_as(self._shared.buffers))

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Move the newest weights and value statistics while no other worker does."""
        with self._shared.turn():
            self._pull()
            yield True
            self._vector.copy_(self._learner.flat.vector)
            _write_first(self._value_stats)

    def change(self, config: OptimizerConfig) -> None:
        self._optimizer.change(config)

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """Clip this worker's gradient and move the shared weights; logs the policy lag."""
        norm = clip_gradient(gradient, max_grad_norm)
        loss = float(loss)
        if not (math.isfinite(norm) and math.isfinite(loss)):
            return norm, loss
        gradient = gradient.to(self._vector.device)
        if self._worker == 0 and self._shared.log_weights:
            self._shared.memory["gradient"].copy_(gradient)
        with self._shared.turn():
            metrics["train/policy_lag"] = float(self._updates.sum() - self._pulled_updates)
            self._optimizer.step(gradient, lr)
            # The next minibatch learns with the weights that this one moved.
            if self._learner.needs.reuse is not None:
                self._learner.flat.vector.copy_(self._vector)
            if self._learner.average is not None:
                self._learner.average.follow(self._vector, self._shared.average)
        if self._learner.buffers is not None:
            self._shared.buffers[self._worker] = self._learner.buffers.read()
        return norm, loss

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The statistics of all workers, a row for each or one for all."""
        return self._shared.statistics.tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`, whatever the number of workers was."""
        for name, rows in self._shared.statistics.tensors().items():
            for row, values in enumerate(rows):
                values.copy_(tensors[name][row % len(tensors[name])])


def _write_first(normalizers: Iterable[tuple[Stats, Stats]]) -> None:
    """Copy statistics into the first of their rows."""
    for stats, rows in normalizers:
        for own, part in zip(stats, rows, strict=True):
            part[0] = own
