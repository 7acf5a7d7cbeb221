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
"""For how long who waits for the others stays awake. A core that sleeps may take long to be given back by a host that
has others to serve: A2C on Pong in two processes then gains up to half on one process, against a fifth."""

NAP_SECONDS = 0.002
"""Between two looks of who has waited for longer, as through an evaluation."""

_METRICS = 16
_fence = Lock()
_yield = getattr(os, "sched_yield", lambda: sleep(0))


def order_memory() -> None:
    """What this process wrote before is seen before what it writes after, and so for what it reads.

    Processors such as ARM's reorder what nothing orders; a lock's operations, here of one that nobody else wants, do.
    """
    for _ in range(2):
        with _fence:
            pass


class JointWeights:
    """Weights, gradients and optimiser statistics of processes that learn together. Inherited by those spawned.

    All lie as `FlatParameters` lays them out: `vector` [P], and a gradient [P] for each process.
    """

    def __init__(self, model: ActorCritic, config: Config, context: SpawnContext) -> None:
        self.size, self.members = flat_size(model), config.runtime.num_workers
        self._config, self._optimizer = config.optimizer, config.optimizer.optimizer
        statistics = STATISTICS[config.optimizer.optimizer]
        layout = {"vector": ((self.size,), torch.float32), "gradients": ((self.members, self.size), torch.float32),
                  "parts": ((self.members, _METRICS), torch.float64), "squares": ((self.members, 8), torch.float64),
                  "arrivals": ((self.members, 8), torch.int64)}
        layout |= {name: ((self.members if name == "step" else self.size,), torch.float32) for name in statistics}
        self._memory = SharedMemory(layout, context)
        for name, value in statistics.items():
            self._memory[name].fill_(value)

    def member(self, place: int) -> Member:
        """What the process at `place`, counted from 0, sees of them."""
        cuts = [self.size * i // self.members for i in (place, place + 1)]
        statistics = {name: self._memory[name][place] if name == "step" else self._memory[name][slice(*cuts)]
                      for name in STATISTICS[self._optimizer]}
        memory = self._memory
        optimizer = FlatOptimizer(self._config.optimizer, memory["vector"][slice(*cuts)],
                                  eps=self._config.optimizer_eps, decay=self._config.optimizer_decay,
                                  shared=statistics)
        return Member(place, slice(*cuts), memory["vector"], memory["gradients"], memory["parts"], memory["squares"],
                      memory["arrivals"].numpy()[:, 0], self, optimizer)

    def join(self, learner: Learner, place: int) -> Member:
        """From now on `learner` makes each update together with those at the other places, from the first's weights.

        An update's effect is visible to all once they have met after it.
        """
        member = self.member(place)
        learner.flat.move(member.vector, member.gradient, keep=place == 0)
        learner.sink = member
        return member

    def statistics(self) -> dict[str, Tensor]:
        """The optimiser's statistics of the whole vector, as one process has them."""
        return {name: self._memory[name][0] if name == "step" else self._memory[name]
                for name in STATISTICS[self._optimizer]}

    def load_statistics(self, saved: Mapping[str, Tensor]) -> None:
        """Take up what `statistics` gave."""
        for name in STATISTICS[self._optimizer]:
            self._memory[name].copy_(saved[name])


@dataclass(slots=True)
class Member:
    """One of the processes that learn together: its place, its gradient, its share of the vector."""

    place: int
    share: slice
    vector: Tensor
    gradients: Tensor
    parts: Tensor
    squares: Tensor
    arrivals: np.ndarray
    """[N] int64: how often each member has come to a meeting."""
    joint: JointWeights
    optimizer: FlatOptimizer
    check: Callable[[], None] = lambda: None
    """Asked now and then by who waits; raises where another member has ended."""

    @property
    def gradient(self) -> Tensor:
        """[P]: where this process backpropagates to. The first one's holds the sum of its share after `merge`."""
        return self.gradients[self.place]

    @property
    def merged(self) -> Tensor:
        """This member's share of the mean gradient, once `merge` has made it."""
        return self.gradients[0, self.share]

    def meet(self) -> None:
        """Wait until all members are here; what all wrote before, all see after."""
        meeting = self.arrivals[self.place] + 1
        order_memory()
        self.arrivals[self.place] = meeting
        started = checked = perf_counter()
        while self.arrivals.min() < meeting:
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
        """Merge the gradients and metrics of all members, clip, and move this member's share of the weights."""
        names = list(metrics)
        metrics |= zip(names, self.merge(num_valid, [metrics[name] for name in names]), strict=True)
        norm = self.clip_gradient(max_grad_norm)
        if math.isfinite(norm) and math.isfinite(metrics[LOSS]):
            self.optimizer.step(self.merged, lr)
        return norm

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics of the whole vector, as one process has them."""
        return self.joint.statistics()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`."""
        self.joint.load_statistics(tensors)

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
        shorten(total, norm, max_norm)
        return norm
