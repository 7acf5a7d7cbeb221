"""A3C and A3G: workers act and learn on shared weights without a lock; this process watches them.

Mnih et al. 2016, arXiv:1602.01783, algorithm S3. With the workers' networks on GPUs, the shared
weights stay on the CPU.
"""

from __future__ import annotations

import copy
import logging
import multiprocessing
from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from vantage._host.processes import importing_main, stop_signals_blocked
from vantage.config.config import Config
from vantage.envs.ids import needs_main
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError
from vantage.learning.learner import Learner
from vantage.learning.learner_state import policy_tensors, tensors_of
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.checkpoint_files import Groups
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.actor_learner import ActorLearner, replay_share
from vantage.runtimes.child_processes import (
    Process,
    ReceiveClock,
    Restarts,
    prepare_process,
    start,
    wait_for,
)
from vantage.runtimes.evaluator import Evaluator
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.recorder import Recorder, Status
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.runtimes.startup import (
    begin_workers,
    first_episode,
    load_learner,
    model_of_workers,
)
from vantage.runtimes.steps import is_due

log = logging.getLogger(__name__)

STOP_SECONDS = 3.0
"""Seconds that workers have to complete their update when the run stops; then they are killed."""

START_SECONDS = 60.0
"""Seconds that a worker may take to start and import, which a busy machine makes long, before
env_timeout begins."""

MOMENT = 0.1
"""Seconds to wait for messages, or to evaluate, before looking after the workers again."""
REPORT_EVERY_SECONDS = 0.1
"""Seconds between two messages of a worker, short enough for the display."""


class HogwildRun:
    """A run whose workers share weights: starts, watches, replaces and stops them."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        self.config = config
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, Process] = {}
        self._clock = ReceiveClock(monotonic())
        self._restarts = Restarts(config.hogwild.max_restarts)
        self._evaluation: Generator[None] | None = None
        self._evaluator: Evaluator | None = None
        self._replay_bytes = replay_share(config.runtime.num_workers)
        self.progress = Progress(self._prepare(checkpoint, initial), config.runtime.num_workers,
                                 config.run.return_window)
        self.recorder = Recorder(config, directory, checkpoint, self.progress, self._learner.model,
                                 self._tensors, self._policy_tensors)
        self._counters["steps"][0] = self.progress.step
        with ExitStack() as stack:  # undone where the run cannot start
            stack.callback(self.recorder.abandon)
            stack.callback(self._release)
            if config.run.evaluates:
                self._evaluator = Evaluator(self.config)
            begin_workers(self.recorder, checkpoint)
            for worker in range(config.runtime.num_workers):
                self._start(worker)
            stack.pop_all()

    def advance(self) -> Generator[None]:
        """Receive the workers' reports for a moment; evaluate and save where due.

        Raises errors that a restart cannot fix.
        """
        before = self.progress.step
        self._receive(0.0 if self._evaluation else MOMENT)
        if self._evaluation or (self.recorder.evaluation_begins and not self.recorder.finished):
            self._evaluate()
        if is_due(self.config.run.save_every, before, self.progress.step):
            self.recorder.save()
        yield

    def policy(self) -> ActorCritic:
        """A copy of the current weights in the model of this process."""
        self._weights.pull()
        return self._learner.model

    def save(self) -> None:
        self.recorder.save(final=True)

    def change(self, values: Mapping[str, Any]) -> None:
        """Go on with other coefficients; each worker takes them within a moment."""
        self.config = self.config.change(**values)
        self.recorder.change(values)
        for process in self._workers.values():
            with suppress(OSError):  # it has ended, and its replacement has the new config
                process.connection.send(dict(values))

    def stop(self) -> None:
        """Stop the workers after their update.

        Kills those that take too long, and those that have not made their first update.
        """
        self._shared.limit[0] = 0
        deadline = monotonic() + STOP_SECONDS
        for worker in [worker for worker in self._workers if not self._counters["updates"][worker]]:
            self._workers.pop(worker).end()
        while self._workers and monotonic() < deadline:
            self._receive(MOMENT)
        self._end_workers()
        self._receive(0.0)  # counts the last steps

    def evaluate(self) -> Generator[None]:
        """Complete the evaluation that is under way, and make the one that is due after it."""
        while self.recorder.last_evaluation_due:
            self._evaluate()
            yield

    def close(self, status: Status) -> None:
        try:
            self._release()
        finally:
            self.recorder.close(status)

    def _release(self) -> None:
        self._end_workers()
        if self._evaluation is not None:
            self._evaluation.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def _prepare(self, checkpoint: Checkpoint | None, initial: SavedPolicy | None) -> float:
        """Fill the shared memory with the first weights; returns frames per step.

        They are new, those of `initial`, or those of the checkpoint.
        """
        config = self.config
        num_workers = config.runtime.num_workers
        # The statistics of images are measured before workers share them.
        model, frames_per_step = model_of_workers(config,
                                                  is_new=initial is None and checkpoint is None)
        lengths = ", ".join(str(length) for length in config.runtime.rollout_lengths[:num_workers])
        log.info(f"{num_workers} workers, {config.envs_per_process} environments in each, "
                 f"rollouts of {lengths}")
        self.config = config = config.with_shifts(model.spec.shifts)
        self._evaluated_model = copy.deepcopy(model)
        self._learner = Learner(model, config)
        self._shared = SharedWeights(self._learner, config, self._context)
        self._counters = self._shared.workers
        self._weights = HogwildWeights(self._shared, self._learner, 0)
        load_learner(self._learner, config, checkpoint, initial)
        self._weights.push()
        return frames_per_step

    def _tensors(self) -> Groups:
        self._weights.pull()
        if self._shared.log_weights:
            self._learner.flat.gradient.copy_(self._shared.memory["gradient"])
        return tensors_of(self._learner)

    def _policy_tensors(self) -> Groups:
        self._weights.pull()
        return policy_tensors(self._learner)

    def _evaluate(self) -> None:
        """Continue the evaluation under way for a moment, or begin one."""
        self._evaluation = self._evaluation or self._play()
        started = monotonic()
        for _ in self._evaluation:
            if monotonic() >= started + MOMENT:
                break
        else:
            self._evaluation = None
        self.progress.add(Advance(eval_seconds=monotonic() - started))

    def _play(self) -> Generator[None]:
        """Evaluate a copy of the current policy, while the workers continue."""
        assert self._evaluator is not None
        progress = self.progress
        step = progress.step
        progress.restart_evaluation_clock()
        policy = self._policy_tensors()
        self._evaluated_model.load_state_dict(policy["model"])
        result = yield from self._evaluator.evaluate(
            self._evaluated_model, step, longest_game=progress.longest_game(),
            best=progress.best_return)
        self.recorder.record_evaluation(result, step, policy)

    # Workers

    def _start(self, worker: int) -> None:
        # Its first own one comes sooner.
        self._counters["heartbeat"][worker] = monotonic() + START_SECONDS
        with stop_signals_blocked(), importing_main(needs_main(self.config.env)):
            self._workers[worker] = start(self._context, f"vantage-worker-{worker}", worker_main,
                                          self.config, worker, self.recorder.workers_started,
                                          first_episode(self.progress, self.config), self._shared,
                                          self._replay_bytes)
        self.recorder.workers_started += 1

    def _receive(self, seconds: float) -> None:
        """Handle messages for at most `seconds`, and workers that have ended or hang."""
        wait_for(self._workers.values(), seconds)
        self._clock.received(monotonic(), seconds)
        # Steps are counted in shared memory, so that those of a killed worker are not lost.
        before = self.progress.step
        self.progress.add(Advance(steps=int(self._counters["steps"].sum()) - before))
        self.recorder.note_due_evaluation(before)
        for worker, process in list(self._workers.items()):
            for message in process.messages():
                if isinstance(message, VantageError):
                    self._lose(worker, message)
                else:
                    self.progress.add(replace(message, steps=0))
        limit = self.config.env.env_timeout
        if limit <= 0:
            return
        for worker in list(self._workers):
            if self._clock.silence(self._counters["heartbeat"][worker]) > limit:
                self._lose(worker, EnvError(f"no update for {limit:g} s; if its environment is "
                                            "that slow, raise --env-timeout"), hangs=True)

    def _lose(self, worker: int, error: VantageError, *, hangs: bool = False) -> None:
        """Replace a worker that has ended or `hangs`, unless the run is over.

        Raises `error` if that cannot help or `max_restarts` were replaced already.
        """
        self._workers.pop(worker).end()
        if self._counters["steps"].sum() >= self._shared.limit[0]:
            return
        may_recover = hangs or self._counters["updates"].any()
        if isinstance(error, NonFiniteError | ConfigError) or not may_recover:
            raise error
        self._restarts.add(f"worker {worker}", error)
        self._start(worker)

    def _end_workers(self) -> None:
        while self._workers:
            self._workers.popitem()[1].end()


def worker_main(connection: Connection, config: Config, worker: int, index: int, episode: int,
                shared: SharedWeights, replay_bytes: int) -> None:
    """Pull, collect and learn until all workers together reach `shared.limit`.

    Counts its steps in shared memory, and sends an `Advance` from time to time.
    """
    prepare_process(config)
    own = shared.workers[worker]
    own["heartbeat"] = monotonic()
    # The main process watches the heartbeat instead of env_timeout.
    actor_learner = ActorLearner(config.change(env_timeout=0), worker=worker, index=index,
                                 shared=shared, replay_bytes=replay_bytes)
    weights = actor_learner.hogwild
    assert weights is not None
    weights.pull()
    actor_learner.begin(episode)
    unreported = Advance()
    reported_at = 0.0
    steps = shared.workers["steps"]
    while steps.sum() < shared.limit[0]:
        weights.pull()
        advance = actor_learner.advance(lambda: int(steps.sum()))
        own["steps"] += advance.steps
        own["updates"] += advance.updates
        unreported += advance
        now = monotonic()
        own["heartbeat"] = now
        if now - reported_at >= REPORT_EVERY_SECONDS:
            connection.send(unreported)
            unreported = Advance()
            reported_at = now
            while connection.poll():
                actor_learner.change(connection.recv())
    connection.send(unreported)
    actor_learner.close()
