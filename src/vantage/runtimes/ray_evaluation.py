"""Evaluations in an actor of Ray, beside the training in this process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import ray

from vantage.errors import VantageError
from vantage.learning.learner import Learner
from vantage.learning.learner_state import policy_tensors
from vantage.runs.checkpoint_files import Groups
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ray_worker import RayWorker
from vantage.runtimes.recorder import Recorder

CLOSE_SECONDS = 1.0
"""Seconds that the actor may take to close its environments."""


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
            with suppress(ray.exceptions.GetTimeoutError):
                ray.get(self._actor.close_evaluator.remote(), timeout=CLOSE_SECONDS)
        ray.kill(self._actor)
