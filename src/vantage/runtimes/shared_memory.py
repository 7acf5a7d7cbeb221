"""Shared memory of Hogwild workers: weights, optimiser statistics, normalisers, counters, and the sink that uses them.

No process waits for another: each counter and each normaliser's statistics has one writer, and weights and optimiser
statistics are written without a lock, so that a write is lost now and then (Niu et al. 2011, arXiv:1106.5730).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Mapping
from multiprocessing.context import SpawnContext

import torch
from torch import Tensor

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.learning.flat_parameters import clip_gradient, flat_size
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS, make_optimizer
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.sinks import LOSS, follow
from vantage.models.actor_critic import ActorCritic
from vantage.models.normalization import INITIAL_STATS, Stats

_NOBODY = -1
_ALIGNMENT = 64  # bytes: a cache line, so that the counters of two workers are not on the same one


def statistics_of(optimizer: str) -> Mapping[str, float]:
    """The statistics of an optimiser in `STATISTICS`; ConfigError for one that workers cannot share."""
    if optimizer not in STATISTICS:
        raise ConfigError(f"optimizer={optimizer!r} cannot be shared among workers; use one of {', '.join(STATISTICS)}")
    return STATISTICS[optimizer]


class SharedMemory:
    """Named tensors in one block that spawned processes inherit; the system frees it with the last of them."""

    def __init__(self, layout: Mapping[str, tuple[tuple[int, ...], torch.dtype]], context: SpawnContext) -> None:
        self._layout: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
        size = 0
        for name, (shape, dtype) in layout.items():
            self._layout[name] = (size, shape, dtype)
            size += -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        self._block = context.RawArray(ctypes.c_byte, size + _ALIGNMENT)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor, a view of the block."""
        start, shape, dtype = self._layout[name]
        start += -ctypes.addressof(self._block) % _ALIGNMENT
        flat = torch.frombuffer(self._block, dtype=dtype, count=math.prod(shape), offset=start)
        return flat.view(shape)


class SharedWeights:
    """Everything that the workers of one run share; created in the main process and inherited by the workers.

    `vector` has the layout of `FlatParameters`. Optimiser statistics have one slot for all workers, or one for each if
    they are private. Normalisers have one slot for each worker, and all workers use the merged statistics.
    """

    def __init__(self, model: ActorCritic, config: Config, context: SpawnContext) -> None:
        size = flat_size(model)
        statistics = statistics_of(config.optimizer.optimizer)
        workers = config.runtime.num_workers
        self._slots = 1 if config.hogwild.shared_statistics else workers
        self._optimizer = config.optimizer.optimizer
        layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"vector": ((size,), torch.float32)}
        if config.algorithm.needs.average_decay is not None:
            layout["average"] = ((size,), torch.float32)
        self._shows_gradient = config.run.log_weights
        if config.run.log_weights:
            layout["gradient"] = ((size,), torch.float32)
        for name in statistics:
            layout[name] = ((self._slots,) if name == "step" else (self._slots, size), torch.float32)
        for name, normalizer in model.running():
            width = normalizer.mean.shape[0]
            layout |= {f"{name}.mean": ((workers, width), torch.float32),
                       f"{name}.var": ((workers, width), torch.float32), f"{name}.count": ((workers,), torch.float64)}
        layout["rewards"] = ((workers, 3), torch.float64)
        # Eight numbers a worker, of which one is used: a cache line each.
        layout |= {name: ((workers, 8), torch.int64) for name in ("steps", "updates", "begun")}
        layout["heartbeat"] = ((workers + 1, 8), torch.float64)  # the last is the evaluator's
        layout |= {"stop": ((1,), torch.int64), "turn": ((1,), torch.int64)}
        policy = model.state_dict() if config.run.evaluates else {}
        self._frozen = tuple(policy)
        layout |= {f"frozen.{name}": (tuple(tensor.shape), tensor.dtype) for name, tensor in policy.items()}
        self._memory = SharedMemory(layout, context)
        self.lock = context.Lock() if config.hogwild.lock else None
        for name, value in statistics.items():
            self._memory[name].fill_(value)
        self._memory["turn"].fill_(_NOBODY)

    @property
    def vector(self) -> Tensor:
        """[P] float32: the weights."""
        return self._memory["vector"]

    @property
    def average(self) -> Tensor:
        """[P] float32: the weights of ACER's average policy."""
        return self._memory["average"]

    @property
    def gradient(self) -> Tensor | None:
        """[P] float32: the gradient of the first worker's last update, if the config logs it."""
        return self._memory["gradient"] if self._shows_gradient else None

    def statistics(self, worker: int) -> dict[str, Tensor]:
        """The optimiser statistics that `worker` updates, by the names of torch's optimisers."""
        slot = worker % self._slots
        return {name: self._memory[name][slot] for name in STATISTICS[self._optimizer]}

    def all_statistics(self) -> dict[str, Tensor]:
        """The statistics of all workers, a row for each or one for all."""
        return {name: self._memory[name] for name in STATISTICS[self._optimizer]}

    def load_statistics(self, saved: Mapping[str, Tensor]) -> None:
        """Restore `all_statistics`, whatever the number of workers was."""
        for name, tensor in self.all_statistics().items():
            rows = saved[name]
            for slot in range(self._slots):
                tensor[slot] = rows[slot % len(rows)]

    @contextlib.contextmanager
    def turn(self, worker: int) -> Iterator[None]:
        """With the lock of the config, only `worker` may move the weights within this context."""
        if self.lock is None:
            yield
            return
        with self.lock:
            self._memory["turn"][0] = worker
            try:
                yield
            finally:
                self._memory["turn"][0] = _NOBODY

    def end_turn_of(self, worker: int) -> bool:
        """Release the lock if `worker`, which has ended, held it."""
        if self.lock is None:
            return False
        # It may have been killed just before or after its turn while it held the lock, which then stays taken.
        if self._memory["turn"][0] != worker and self.lock.acquire(timeout=1.0):
            self.lock.release()
            return False
        if self._memory["turn"][0] not in (worker, _NOBODY):
            return False
        self._memory["turn"][0] = _NOBODY
        self.lock.release()
        return True

    def freeze(self, policy: Mapping[str, Tensor]) -> None:
        """Copy the model's tensors in `policy` to `frozen`, if the config evaluates."""
        for name, tensor in self.frozen().items():
            tensor.copy_(policy[name])

    def frozen(self) -> dict[str, Tensor]:
        """The copy of the policy that the evaluator plays."""
        return {name: self._memory[f"frozen.{name}"] for name in self._frozen}

    def attach(self, model: ActorCritic, rewards: RewardNormalizer | None, worker: int) -> None:
        """Make the normalisers of this process write the statistics of `worker`."""
        for name, normalizer in model.running():
            slots = self._stats(name)
            normalizer.local_stats = (slots[0][worker], slots[1][worker], slots[2][worker])
        if rewards is not None:
            rewards.local_stats = self._memory["rewards"][worker]

    def pull_normalizers(self, model: ActorCritic, rewards: RewardNormalizer | None) -> None:
        """Copy the merged statistics of all workers into the normalisers of this process."""
        for name, normalizer in model.running():
            for own, merged in zip(normalizer.stats, _merge(*self._stats(name)), strict=True):
                own.copy_(merged)
        if rewards is not None:
            rewards.stats.copy_(torch.stack(_merge(*self._memory["rewards"].unbind(1))))

    def push_normalizers(self, model: ActorCritic, rewards: RewardNormalizer | None) -> None:
        """Initialise the shared statistics from the normalisers of this process, as the first worker's."""
        for name, normalizer in model.running():
            for slots, fresh, value in zip(self._stats(name), INITIAL_STATS, normalizer.stats, strict=True):
                slots.fill_(fresh)
                slots[0] = value
        self._memory["rewards"][:] = torch.tensor(INITIAL_STATS, dtype=torch.float64)
        if rewards is not None:
            self._memory["rewards"][0] = rewards.stats

    def _stats(self, name: str) -> Stats:
        return self._memory[f"{name}.count"], self._memory[f"{name}.mean"], self._memory[f"{name}.var"]

    # Counters: each worker writes its own, anybody sums them.

    def count(self, worker: int, steps: int, updates: int) -> None:
        """Add to the steps and updates of `worker`."""
        self._memory["steps"][worker, 0] += steps
        self._memory["updates"][worker, 0] += updates

    @property
    def steps(self) -> int:
        """Agent steps of all workers."""
        return int(self._memory["steps"][:, 0].sum())

    def steps_of(self, worker: int) -> int:
        """Agent steps of one worker; those of the first include the steps before a resume."""
        return int(self._memory["steps"][worker, 0])

    def start_steps(self, steps: int) -> None:
        """Start the count at the step of a resumed run."""
        self._memory["steps"][0, 0] = steps

    @property
    def updates(self) -> int:
        """Updates of all workers since the run or its resume began."""
        return int(self._memory["updates"][:, 0].sum())

    def mark(self, worker: int, *, begun: bool) -> None:
        """Record that `worker` acts, or that it is starting."""
        self._memory["begun"][worker, 0] = begun

    def begun(self, worker: int) -> bool:
        """Whether `worker` acts and learns; otherwise it is still starting."""
        return bool(self._memory["begun"][worker, 0])

    def beat(self, worker: int, now: float) -> None:
        """Record a heartbeat of `worker`."""
        self._memory["heartbeat"][worker, 0] = now

    def last_beat(self, worker: int) -> float:
        """Time of the last heartbeat of `worker`."""
        return float(self._memory["heartbeat"][worker, 0])

    @property
    def stop(self) -> bool:
        """Workers stop after their update."""
        return bool(self._memory["stop"][0])

    @stop.setter
    def stop(self, value: bool) -> None:
        self._memory["stop"][0] = value


def _merge(counts: Tensor, means: Tensor, variances: Tensor) -> Stats:
    """Merge rows of counts, means and variances; a single row is returned unchanged, bit for bit.

    n = Σ nᵢ,  m = Σ nᵢ mᵢ / n,  s² = Σ nᵢ (sᵢ² + (mᵢ - m)²) / n
    """
    if len(counts) == 1:
        return counts[0], means[0], variances[0]
    total = counts.sum()
    shares = (counts / total).view(-1, *(1,) * (means.dim() - 1))
    mean = (shares * means).sum(0)
    return total, mean, (shares * (variances + (means - mean).square())).sum(0)


class HogwildWeights:
    """The gradient sink of one worker: its gradient, found on a copy of the weights, moves the shared ones.

    Mnih et al. 2016, arXiv:1602.01783, algorithm S3. The gradient is copied at every update and never aliased.
    """

    def __init__(self, shared: SharedWeights, learner: Learner, worker: int) -> None:
        self._shared, self._learner, self._worker = shared, learner, worker
        config = learner.config.optimizer
        self._optimizer = make_optimizer(config.optimizer, shared.vector, eps=config.optimizer_eps,
                                         decay=config.optimizer_decay, shared=shared.statistics(worker))
        self._pulled_updates = 0
        shared.attach(learner.model, learner.reward_normalizer, worker)
        learner.sink = self

    def pull(self) -> None:
        """Copy the shared weights and the merged statistics of all normalisers into the worker's model."""
        self._pulled_updates = self._shared.updates
        self._learner.flat.vector.copy_(self._shared.vector)
        if self._learner.average is not None:
            self._learner.average.vector.copy_(self._shared.average)
        self._shared.pull_normalizers(self._learner.model, self._learner.reward_normalizer)

    def push(self) -> None:
        """Copy the model's weights and statistics into the shared ones, as at the start of a run."""
        self._shared.vector.copy_(self._learner.flat.vector)
        if self._learner.average is not None:
            self._shared.average.copy_(self._learner.average.vector)
        self._shared.push_normalizers(self._learner.model, self._learner.reward_normalizer)

    def apply(self, gradient: Tensor, num_valid: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> float:
        """Clip this worker's gradient and move the shared weights with it; logs how many updates came between."""
        norm = clip_gradient(gradient, max_grad_norm)
        if not (math.isfinite(norm) and math.isfinite(metrics[LOSS])):
            return norm
        gradient = gradient.to(self._shared.vector.device)
        if self._worker == 0 and self._shared.gradient is not None:
            self._shared.gradient.copy_(gradient)
        with self._shared.turn(self._worker):
            metrics["train/policy_lag"] = self._shared.updates - self._pulled_updates
            self._optimizer.step(gradient, lr)
            if self._learner.average is not None:
                follow(self._shared.average, self._shared.vector, self._learner.average.decay)
        return norm

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The statistics of all workers, a row for each or one for all."""
        return self._shared.all_statistics()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`, whatever the number of workers was."""
        self._shared.load_statistics(tensors)
