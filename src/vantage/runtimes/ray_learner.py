"""The learner of the runtime `ray`: updates the weights by what the workers send."""

from __future__ import annotations

from time import monotonic

from vantage.config.config import Config
from vantage.learning.collect import join_rollouts
from vantage.learning.learner import Learner
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ray_worker import (
    Reply,
    merge_statistics,
    rollout_of,
    tensor,
    weights_argument,
)
from vantage.types import Rollout


class ReplyLearner:
    """Learns from the replies of workers, unless their weights were too old."""

    def __init__(self, learner: Learner, config: Config, progress: Progress) -> None:
        self._learner = learner
        self._progress = progress
        self.sends_gradients = config.ray.send == "gradients"
        self._in_update = 1 if self.sends_gradients else config.runtime.rollouts_per_update
        num_workers = config.runtime.num_workers
        self._most_lag = config.ray.max_policy_lag or 8 * -(-num_workers // self._in_update)
        self._pending: list[tuple[Rollout, Advance, int]] = []
        self.updates = 0
        """Updates made in this session."""
        self.dropped_steps = 0
        """Agent steps that were not learned from."""
        self.weights = weights_argument(learner)
        """The newest weights, as an argument of requests."""

    def accepts(self, reply: Reply, updates: int) -> bool:
        """Whether weights after so many `updates` are new enough; merges statistics if they are."""
        if self.updates - updates > self._most_lag:
            self.dropped_steps += reply.advance.steps
            return False
        merge_statistics(self._learner, reply.statistics)
        return True

    def apply(self, reply: Reply, updates: int) -> None:
        """Move the weights by a gradient that was computed on the weights after `updates`."""
        learner = self._learner
        payload = reply.payload
        learner.flat.gradient.copy_(tensor(payload["gradient"]))
        reply.advance.metrics["train/policy_lag"] = float(self.updates - updates)
        # The worker has clipped the gradient.
        learner.sink.apply(learner.flat.gradient, payload["num_valid"], payload["loss"], {},
                           lr=learner.config.at("lr", self._progress.step), max_grad_norm=0.0)
        self._updated(reply.advance)

    def add(self, reply: Reply, updates: int) -> None:
        """Store a rollout by the weights after `updates`; learn when there are enough of them."""
        rollout = rollout_of(reply.payload, self._learner.flat.vector.device)
        self._pending.append((rollout, reply.advance, updates))
        if len(self._pending) < self._in_update:
            return
        started = monotonic()
        pending = self._pending
        self._pending = []
        joined = join_rollouts([rollout for rollout, _, _ in pending])
        metrics = self._learner.update(joined, self._progress.step)
        lags = [self.updates - updates for _, _, updates in pending]
        metrics["train/policy_lag"] = sum(lags) / len(lags)
        total = Advance()
        for _, advance, _ in pending:
            total += advance
        total += Advance(updates=1, metrics=metrics, learn_seconds=monotonic() - started)
        self._updated(total)

    def _updated(self, advance: Advance) -> None:
        self.updates += 1
        self.weights = weights_argument(self._learner)
        self._progress.add(advance)
