"""One update by several processes, each from environments of its own: what they share, and how they wait.

Synchronous data parallelism: the update is that of one process with all the environments. Each backpropagates through
its own rollout, then sums, clips and moves its share of the vector.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from time import perf_counter, sleep

import torch
from torch import Tensor

from vantage.config import Config
from vantage.learning.flat import flat_size
from vantage.learning.optim import STATISTICS, FlatOptimizer
from vantage.learning.shared import SharedMemory
from vantage.models.actor_critic import ActorCritic

SPIN_SECONDS = 0.02
"""For how long who waits for the others stays awake. A core that sleeps may take long to be given back by a host that
has others to serve: A2C on Pong in two processes then gains up to half on one process, against a fifth."""

_METRICS = 16
_yield = getattr(os, "sched_yield", lambda: sleep(0))


class JointWeights:
    """Weights, gradients and optimiser statistics of processes that learn together. Inherited by those spawned.

    All lie as `FlatParameters` lays them out: `vector` [P], and a gradient [P] for each process.
    """

    def __init__(self, model: ActorCritic, config: Config, context: SpawnContext) -> None:
        self.size, self.members, self._optimizer = flat_size(model), config.num_workers, config.optimizer
        statistics = STATISTICS[config.optimizer]
        layout = {"vector": ((self.size,), torch.float32), "gradients": ((self.members, self.size), torch.float32),
                  "parts": ((self.members, _METRICS), torch.float64), "squares": ((self.members, 8), torch.float64)}
        layout |= {name: ((self.members if name == "step" else self.size,), torch.float32) for name in statistics}
        self._memory = SharedMemory(layout, context)
        self._arrivals = [context.Semaphore(0) for _ in range(self.members)]
        for name, value in statistics.items():
            self._memory[name].fill_(value)

    def member(self, place: int) -> Member:
        """What the process at `place`, counted from 0, sees of them."""
        cuts = [self.size * i // self.members for i in (place, place + 1)]
        statistics = {name: self._memory[name][place] if name == "step" else self._memory[name][slice(*cuts)]
                      for name in STATISTICS[self._optimizer]}
        return Member(self, place, slice(*cuts), self._memory["vector"], self._memory["gradients"],
                      self._memory["parts"], self._memory["squares"], statistics)

    def statistics(self) -> dict[str, Tensor]:
        """The optimiser's statistics of the whole vector, as one process has them."""
        return {name: self._memory[name][0] if name == "step" else self._memory[name]
                for name in STATISTICS[self._optimizer]}

    def load_statistics(self, saved: Mapping[str, Tensor]) -> None:
        """Take up what `statistics`, or the optimiser of one process, gave; nothing of a run that has not begun."""
        for name in STATISTICS[self._optimizer] if saved else ():
            self._memory[name].copy_(saved[name])

    def meet(self, place: int, check: Callable[[], None]) -> None:
        """Wait until all are here; `check` is asked now and then, and may raise. What all wrote before, all see after.

        Semaphores, not flags in memory: only they order memory on every processor.
        """
        for other, arrivals in enumerate(self._arrivals):
            if other != place:
                arrivals.release()
        arrivals = self._arrivals[place]
        for _ in range(self.members - 1):
            until = perf_counter() + SPIN_SECONDS
            while not arrivals.acquire(False):
                if perf_counter() < until:
                    _yield()
                elif arrivals.acquire(True, 0.1):
                    break
                else:
                    check()


@dataclass(slots=True)
class Member:
    """One of the processes that learn together: its place, its gradient, its share of the vector."""

    weights: JointWeights
    place: int
    share: slice
    vector: Tensor
    gradients: Tensor
    parts: Tensor
    squares: Tensor
    statistics: dict[str, Tensor]
    check: Callable[[], None] = lambda: None
    """Raises where another member has ended."""

    @property
    def gradient(self) -> Tensor:
        """[P]: where this process backpropagates to. The first one's holds the sum of its share after `merge`."""
        return self.gradients[self.place]

    @property
    def merged(self) -> Tensor:
        """This member's share of the mean gradient, once `merge` has made it."""
        return self.gradients[0, self.share]

    def meet(self) -> None:
        """Wait until all members are here."""
        self.weights.meet(self.place, self.check)

    def optimizer(self, config: Config) -> FlatOptimizer:
        """The optimiser of this member's share."""
        return FlatOptimizer(config.optimizer, self.vector[self.share], eps=config.optimizer_eps,
                             decay=config.optimizer_decay, shared=self.statistics)

    def merge(self, count: float, values: Sequence[float]) -> list[float]:
        """Make the mean gradient over all `count` of every member; returns the mean of its `values`.

        g = Σ nᵢ gᵢ / Σ nᵢ, for the means of the loss run over the valid steps of each member's rollout.
        """
        row = self.parts[self.place]
        row[0] = count
        row[1:1 + len(values)] = torch.tensor(values, dtype=torch.float64)
        self.meet()
        counts = self.parts[:, 0]
        portions = counts / counts.sum() if counts.sum() > 0 else torch.full_like(counts, 1 / len(counts))
        total = self.merged.mul_(portions[0].item())
        for gradient, portion in zip(self.gradients[1:], portions[1:].tolist(), strict=True):
            total.add_(gradient[self.share], alpha=portion)
        return [float(value) for value in portions @ self.parts[:, 1:1 + len(values)]]

    def clip_gradient(self, max_norm: float) -> float:
        """`FlatParameters.clip_gradient` of the merged gradient."""
        total = self.merged
        self.squares[self.place, 0] = torch.linalg.vector_norm(total).double().square()
        self.meet()
        norm = math.sqrt(self.squares[:, 0].sum().item())
        if max_norm > 0 and norm > max_norm:
            total.mul_(max_norm / (norm + 1e-6))
        return norm
