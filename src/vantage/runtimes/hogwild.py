"""A3C and A3G: worker processes act and learn on shared weights without a lock; this process watches and writes.

Mnih et al. 2016, arXiv:1602.01783, algorithm S3. With workers' networks on GPUs the shared weights stay on the CPU.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Generator, Mapping
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from vantage.config import Config
from vantage.envs import First, make_environments
from vantage.learning.collect import Position, empty_rollout
from vantage.learning.learner import Learner
from vantage.models.actor_critic import make_model
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.actor_learner import load_learner, make_replay, replay_share
from vantage.runtimes.evaluator import Evaluator
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.recorder import Recorder, Status, passed
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.runtimes.worker import Failure, Process, start, work
from vantage.seeding import derive_seed
from vantage.system import deaf_to_signals

log = logging.getLogger(__name__)

STOP_SECONDS = 3.5
"""Seconds that workers may take to complete their update when the run stops; then they are killed."""


class HogwildRun:
    """A run whose workers share weights: starts, watches, replaces and stops them."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        self.config = config
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, Process] = {}
        self._learned = False
        """A worker of this run has made an update, so a failing worker is worth replacing."""
        self._counted: Counter[int] = Counter()
        """Steps that each worker has reported, by its index, as `SharedWeights.steps_of` counts them."""
        self._received_at = self._receiving_since = monotonic()
        self._started = checkpoint.state.get("workers_started", 0) if checkpoint else 0
        self._restarts = 0
        first = self._probe()
        self._share(checkpoint, initial, first)
        self._evaluator = Evaluator(config, self.spec, self.shared, self._context)
        self.progress = Progress(self._frames_per_step, config.runtime.num_workers)
        self.recorder = Recorder(config, directory, checkpoint, self.progress)
        self.shared.start_steps(self.progress.step)
        self._counted[0] = self.progress.step
        self.recorder.show_weights(self._learner.model)
        if checkpoint is None:
            self.save()
        else:
            log.info("workers begin new episodes, and the order of their updates never repeats: this resume is not "
                     "exact" + self._about_replays())
        try:
            for worker in range(config.runtime.num_workers):
                self._start(worker)
            if config.run.evaluates:
                self._evaluator.start()
        except BaseException:
            self._kill()
            raise

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""
        return self.recorder.finished

    def advance(self) -> Generator[None]:
        """Receive the workers' reports for a moment; evaluate and save where due. Raises what no restart can repair."""
        before = self.progress.step
        self._receive(0.1)
        self._replace_hung()
        if self.progress.evaluation_due and not self.finished:
            self._evaluate()
        if passed(self.config.run.save_every, before, self.progress.step):
            self.save()
        yield

    def finish(self, *, evaluate: bool) -> Generator[None]:
        """Stop the workers, make the last evaluation if it is due and asked for, write the last checkpoint."""
        self._stop()
        evaluates = evaluate and self.recorder.last_evaluation_due
        if evaluates:
            self.recorder.save(self._contents)  # before games that may take minutes
        while evaluate and self.recorder.last_evaluation_due:
            self._evaluate()
            self._receive(0.1)
            self._replace_hung()
            yield
        self.recorder.save(self._contents, final=True, again=evaluates)

    def save(self, *, failed: bool = False) -> None:
        """Write a checkpoint and the summary."""
        self.recorder.save(self._contents, retried=not failed)

    def close(self, status: Status) -> None:
        """End all processes; say how the run ended."""
        self._kill()
        self.recorder.close(status)

    def _probe(self) -> First | None:
        """Build and close environments as a worker will: what cannot be built fails here, at once.

        What they show first, for `_check_replay`.
        """
        envs = make_environments(self.config.env, seed=self.config.run.seed,
                                 num_envs=self.config.env.num_envs, stream=0, threads=1)
        self.spec, self._frames_per_step = envs.spec, envs.frames_per_step
        for note in envs.notes[:-1]:  # the last says where they are
            log.info(note)
        first = envs.reset() if self.config.algorithm.needs.replay else None
        envs.close()
        workers, lengths = self.config.runtime.num_workers, self.config.runtime.rollout_lengths
        log.info(f"{workers} workers, {self.config.env.num_envs} environments in each")
        if len(lengths) > workers:
            log.info(f"{len(lengths)} rollout lengths are more than there are workers: the last are not used")
        return first

    def _share(self, checkpoint: Checkpoint | None, initial: SavedPolicy | None, first: First | None) -> None:
        """Create the shared memory with new weights, those of `initial`, or those of the checkpoint."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.config.run.seed, "model"))
            model = make_model(self.config.policy, self.spec, critic=self.config.algorithm.needs.critic)
        self.shared = SharedWeights(model, self.config, self._context)
        self._learner = Learner(model, self.config)
        self._weights = HogwildWeights(self.shared, self._learner, 0)
        if initial is not None:
            self._learner.initialize_from(initial.tensors, initial.rewards)
        elif checkpoint is not None:
            load_learner(self._learner, checkpoint)
        self._weights.push()
        self._replay_bytes = replay_share(self.config.runtime.num_workers)
        if first is not None:
            state = model.initial_state(self.config.env.num_envs)
            self._check_replay(Position.after(first, state, torch.device("cpu")))

    def _check_replay(self, position: Position) -> None:
        """ConfigError for replays that need more memory than the machine has."""
        length = max(self.config.runtime.rollout_lengths)
        make_replay(self.config, empty_rollout(self._learner.model, position, length), self._replay_bytes)

    def _about_replays(self) -> str:
        return "; their replays begin empty" if self.config.algorithm.needs.replay else ""

    def _contents(self) -> tuple[Mapping[str, Mapping[str, Tensor]], dict[str, Any]]:
        self._weights.pull()
        if self.shared.gradient is not None:
            self._learner.flat.gradient.copy_(self.shared.gradient)
        return self._learner.tensors(), self._state()

    def _state(self) -> dict[str, Any]:
        return {"progress": self.progress.state(), "spec": self.spec.to_json(),
                "optimizer": self.config.optimizer.optimizer, "workers_started": self._started}

    # Workers

    def _start(self, worker: int) -> None:
        self.shared.beat(worker, monotonic())
        self.shared.mark(worker, begun=False)
        with deaf_to_signals():
            self._workers[worker] = start(self._context, f"vantage-worker-{worker}", work, self.config, worker,
                                          self._started, self.shared, self._replay_bytes)
        self._started += 1

    def _receive(self, seconds: float) -> None:
        """Receive messages of all processes for at most `seconds`, and handle those that have ended."""
        whose: dict[Any, int] = {process.connection: worker for worker, process in self._workers.items()}
        whose |= {process.process.sentinel: worker for worker, process in self._workers.items()}
        ready = wait([*whose, *self._evaluator.connections], seconds)
        if monotonic() - self._received_at > seconds + 1.0:
            # Nobody asked for reports meanwhile, or this process was stopped: workers may have waited to be heard.
            self._receiving_since = monotonic()
        # What a worker's environment has forked holds the worker's ends of both open: a dead one may look silent.
        ended = {worker for worker, process in self._workers.items() if not process.process.is_alive()}
        for worker in sorted({whose[source] for source in ready if source in whose} | ended):
            self._receive_from(worker)
        if self._evaluator.ended or any(connection in ready for connection in self._evaluator.connections):
            self._receive_evaluation()
        self._received_at = monotonic()

    def _receive_from(self, worker: int) -> None:
        """Handle the pending messages of one worker, and its end if it has ended."""
        process = self._workers[worker]
        ended = not process.process.is_alive()  # asked before its last words are read
        try:
            while process.connection.poll():
                message = process.connection.recv()
                if isinstance(message, Failure):
                    self._lose(worker, message)
                    return
                if message.updates:
                    self._learned = True
                    self._counted[worker] += message.steps
                    self._count(message)
        except (EOFError, OSError):
            process.process.join(1.0)
            ended = not process.process.is_alive()
        if not ended:
            return
        if process.process.exitcode == 0 and (self.shared.stop or self.shared.steps >= self.config.run.steps):
            self._end(worker)
        else:
            self._lose(worker, Failure.of_end(process.process))

    def _count(self, advance: Advance) -> None:
        before = self.progress.step
        self.progress.add(advance)
        self.recorder.note_due_evaluation(before)

    def _end(self, worker: int) -> None:
        """End a worker and count the steps that it took but did not report."""
        self._workers.pop(worker).end()
        untold = self.shared.steps_of(worker) - self._counted[worker]
        self._counted[worker] += untold
        self._count(Advance(steps=untold))

    def _lose(self, worker: int, failure: Failure) -> None:
        """Replace a failed worker; raise if that would not help or the budget is spent."""
        self._end(worker)
        if self.shared.end_turn_of(worker):
            log.warning(f"worker {worker} held the lock, which is free again")
        if self.shared.stop:
            return
        error = failure.error()
        if failure.kind == "numbers" or not (self._learned or failure.kind == "hang"):
            raise error
        if self._restarts >= self.config.hogwild.max_restarts:
            raise type(error)(f"worker {worker} failed, and {self._restarts} were replaced already (max_restarts): "
                              f"{error}") from None
        self._restarts += 1
        log.warning(f"worker {worker} failed and is replaced ({self._restarts} of "
                    f"{self.config.hogwild.max_restarts}): {error}")
        self._start(worker)

    def _replace_hung(self) -> None:
        """Replace workers and the evaluator if they sent no heartbeat for `env_timeout` seconds."""
        limit = self.config.hogwild.env_timeout
        if limit == 0:
            return
        if monotonic() - self._received_at > 1.0:  # stopped since it listened
            self._receiving_since = monotonic()
        failure = Failure("hang", f"no update for {limit:g} s; if its environment is that slow, raise --env-timeout")
        for worker in list(self._workers):
            if self._silence(self.shared.last_beat(worker)) > limit:
                self._lose(worker, failure)
        if self._evaluator.busy and self._silence(self._evaluator.last_beat) > limit:
            self._lose_evaluator(Failure("hang", f"no step for {limit:g} s (--env-timeout)"))

    def _silence(self, last_beat: float) -> float:
        return monotonic() - max(last_beat, self._receiving_since)

    def _stop(self) -> None:
        """Ask the workers to stop after their update; kill those that take too long or are still starting."""
        self.shared.stop = True
        deadline = monotonic() + STOP_SECONDS
        for worker in [worker for worker in self._workers if not self.shared.begun(worker)]:
            self._end(worker)
        while self._workers and monotonic() < deadline:
            self._receive(0.1)
        for worker in list(self._workers):
            self._end(worker)

    def _kill(self) -> None:
        for process in self._workers.values():
            process.end()
        self._workers = {}
        self._evaluator.end()

    # Evaluation, in a process of its own

    def _evaluate(self) -> None:
        """Send the policy to the evaluator, unless it is busy or still starting."""
        if not self._evaluator.idle():
            return
        self._weights.pull()
        policy = {"model": self._learner.model.state_dict()}
        if self._learner.reward_normalizer is not None:
            policy["rewards"] = self._learner.reward_normalizer.tensors()
        failure = self._evaluator.send(self.progress.step, policy)
        if failure is None:
            self.progress.evaluated()
        else:
            self._lose_evaluator(failure)

    def _receive_evaluation(self) -> None:
        said = self._evaluator.receive()
        if isinstance(said, Failure):
            self._lose_evaluator(said)
        elif said is not None:
            self.progress.solved |= said.solved
            self.progress.evaluation_due = passed(self.config.run.eval_every, said.step, self.progress.step)
            self.recorder.evaluated(said.metrics, lambda: (said.policy, self._state()), said.step)

    def _lose_evaluator(self, failure: Failure) -> None:
        """Drop a failed evaluator, which the next evaluation replaces; raise if the budget is spent."""
        self._evaluator.end()
        if self._restarts >= self.config.hogwild.max_restarts:
            raise failure.error()
        self._restarts += 1
        log.warning(f"the evaluator failed and is replaced ({self._restarts} of {self.config.hogwild.max_restarts}): "
                    f"{failure.message}")
