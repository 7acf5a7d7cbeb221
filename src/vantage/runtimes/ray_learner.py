"""The learner of the runtime `ray`, in the main process, and its evaluations, in an actor."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

import ray

from vantage.config.config import Config
from vantage.errors import VantageError
from vantage.learning.collect import join_rollouts
from vantage.learning.learner import Learner
from vantage.learning.learner_state import policy_tensors
from vantage.runs.checkpoint_files import Groups
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ray_worker import (
    RayWorker,
    Reply,
    merge_statistics,
    rollout_of,
    tensor,
    weights_argument,
)
from vantage.runtimes.recorder import Recorder
from vantage.types import Rollout

CLOSE_SECONDS = 1.0
"""Seconds that the actor of evaluations may take to close its environments."""


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


class RemoteEvaluator:
    """Evaluates copies of the policy in an actor, which is started for the first evaluation."""

    def __init__(self, config: bytes) -> None:
        self._config = config
        self._actor: Any = None
        self._under_way: tuple[Any, int, Groups] | None = None

    @property
    def is_busy(self) -> bool:
        """An evaluation is under way."""
        return self._under_way is not None

    def begin(self, learner: Learner, weights: Any, progress: Progress) -> None:
        """Begin an evaluation of the current policy."""
        if self._actor is None:
            self._actor = ray.remote(RayWorker).options(num_cpus=0).remote(self._config, 0, 0)
        step = progress.step
        answer = self._actor.evaluate.remote(learner.model.spec, weights, step,
                                             progress.longest_game(), progress.best_return)
        self._under_way = answer, step, policy_tensors(learner)

    def record(self, recorder: Recorder, seconds: float) -> None:
        """Record the evaluation under way if it ends within `seconds`.

        Raises RayError if the actor has ended; the next evaluation then starts another. Raises the
        VantageError of an evaluation that has failed.
        """
        assert self._under_way is not None
        answer, step, policy = self._under_way
        if not ray.wait([answer], timeout=seconds)[0]:
            return
        self._under_way = None
        try:
            reply = ray.get(answer)
        except ray.exceptions.RayError:
            self._actor = None
            raise
        if isinstance(reply, VantageError):
            raise reply
        result, eval_seconds = reply
        recorder.progress.add(Advance(eval_seconds=eval_seconds))
        recorder.record_evaluation(result, step, policy)

    def close(self) -> None:
        """Close the environments, unless a game is under way, and end the actor."""
        if self._actor is None:
            return
        if not self.is_busy:
            with suppress(ray.exceptions.RayError):  # also of an environment whose close() raises
                ray.get(self._actor.close_evaluator.remote(), timeout=CLOSE_SECONDS)
        ray.kill(self._actor)
