"""A3C and A3G: worker processes act and learn on shared weights without a lock; this process watches and writes.

Mnih et al. 2016, arXiv:1602.01783, algorithm S3. With workers' networks on GPUs the shared weights stay on the CPU.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from vantage.config import Config
from vantage.envs import make_environments
from vantage.learning.learner import Learner
from vantage.learning.optim import flat_size
from vantage.learning.shared import SharedWeights
from vantage.models.actor_critic import make_model
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.directory import RunDirectory
from vantage.runtimes.actor_learner import load_learner
from vantage.runtimes.progress import Progress
from vantage.runtimes.recorder import Recorder, Status, passed
from vantage.runtimes.workers import Failure, Process, judge, sendable, start, work
from vantage.seeding import derive_seed

STOP_SECONDS = 4.0
"""How long workers may take to end their update when the run stops; then they are killed."""


class HogwildRun:
    """The workers of a run: started, listened to, replaced, stopped."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 notify: Callable[[str], None]) -> None:
        self.config, self.notify = config, notify
        self._context = multiprocessing.get_context("spawn")
        self._should_stop: Callable[[], bool] = lambda: False
        self._workers: dict[int, Process] = {}
        self._judge: Process | None = None
        self._judged: dict[str, Tensor] | None = None
        """The policy that is being evaluated."""
        self._learned: set[int] = set()
        self._started = checkpoint.state.get("workers_started", 0) if checkpoint else 0
        self._restarts = 0
        self._probe()
        self._share(checkpoint)
        self.progress = Progress(self._frames_per_step, config.num_workers)
        self.recorder = Recorder(config, directory, checkpoint, self.progress, notify)
        self.shared.start_steps(self.progress.step)
        if checkpoint is None:
            self.save()
        else:
            notify("workers begin new episodes, and the order of their updates never repeats: an asynchronous run goes "
                   "on after a resume, but not to the same bits")
        try:
            for worker in range(config.num_workers):
                self._start(worker)
        except BaseException:
            self._kill()
            raise

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""
        return self.recorder.finished

    def advance(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Listen to the workers for a moment; evaluate and save where it is due. Raises what no restart can mend."""
        self._should_stop = should_stop
        before = self.progress.step
        self._listen(0.1)
        self._replace_hung()
        if passed(self.config.eval_every, before, self.progress.step):
            self.progress.evaluation_due = True
        if self.progress.evaluation_due and self._judged is None:
            self._evaluate()
        if passed(self.config.save_every, before, self.progress.step):
            self.save()

    def save(self, *, final: bool = False) -> None:
        """Write a checkpoint and the summary; `final` after the workers have stopped and the last evaluation is in."""
        if final:
            self._stop()
        self.recorder.save(self._contents, final=final)

    def close(self, status: Status) -> None:
        """End all processes; say how the run ended."""
        self._kill()
        self.recorder.close(status)

    def _probe(self) -> None:
        """Build and close environments as a worker will: what cannot be built fails here, at once."""
        envs = make_environments(self.config, num_envs=self.config.num_envs, stream=0, threads=1)
        self.spec, self._frames_per_step = envs.spec, envs.frames_per_step
        for note in envs.notes:
            self.notify(note)
        envs.close()
        self.notify(f"{self.config.num_workers} workers, each with as many")

    def _share(self, checkpoint: Checkpoint | None) -> None:
        """The shared memory, filled with fresh weights or the checkpoint's."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.config.seed, "model"))
            model = make_model(self.config, self.spec)
        self.shared = SharedWeights(model, self.config, flat_size(model), self._context)
        self._learner = Learner(model, self.config, self.shared)
        if checkpoint is None:
            self._learner.push()
        else:
            load_learner(self._learner, checkpoint)

    def _contents(self) -> tuple[Mapping[str, Mapping[str, Tensor]], dict[str, Any]]:
        self._learner.pull()
        return self._learner.tensors(), self._state()

    def _state(self) -> dict[str, Any]:
        return {"progress": self.progress.state(), "spec": self.spec.to_json(), "optimizer": self.config.optimizer,
                "workers_started": self._started}

    # Workers

    def _start(self, worker: int) -> None:
        self.shared.beat(worker, monotonic())
        self._learned.discard(worker)
        self._workers[worker] = start(self._context, f"vantage-worker-{worker}", work, self.config, worker,
                                      self._started, self.shared)
        self._started += 1

    def _listen(self, seconds: float) -> None:
        """Take in what processes have to say, and notice those that have ended."""
        whose: dict[Any, int] = {process.connection: worker for worker, process in self._workers.items()}
        whose |= {process.process.sentinel: worker for worker, process in self._workers.items()}
        judge = [] if self._judge is None else [self._judge.connection]
        ready = wait([*whose, *judge], seconds)
        for worker in sorted({whose[source] for source in ready if source in whose}):
            self._hear(worker)
        if self._judge is not None and self._judge.connection in ready:
            self._hear_judge()

    def _hear(self, worker: int) -> None:
        """All that a worker has said; its end, if it has ended."""
        process = self._workers[worker]
        try:
            while process.connection.poll():
                message = process.connection.recv()
                if isinstance(message, Failure):
                    self._lose(worker, message)
                    return
                if message.updates:
                    self._learned.add(worker)
                    self.progress.add(message)
        except (EOFError, ConnectionResetError):
            process.process.join(1.0)
        if process.process.is_alive():
            return
        code = process.process.exitcode
        if code == 0:
            self._workers.pop(worker).end()
        else:
            self._lose(worker, Failure("other", f"it ended without a word, {_how(code)}"))

    def _lose(self, worker: int, failure: Failure) -> None:
        """A worker has failed: replace it, or raise where that is of no use or too often."""
        self._workers.pop(worker).end()
        if self.shared.lock is not None and not self.shared.lock.acquire(timeout=1.0):
            self.notify(f"worker {worker} held the lock")
        if self.shared.lock is not None:
            self.shared.lock.release()
        if self.shared.stop:
            return
        error = failure.error()
        if failure.kind == "numbers" or worker not in self._learned:
            raise error
        if self._restarts >= self.config.max_restarts:
            raise type(error)(f"worker {worker} failed, and {self._restarts} were replaced already (max_restarts): "
                              f"{error}") from None
        self._restarts += 1
        self.notify(f"worker {worker} failed and is replaced ({self._restarts} of {self.config.max_restarts}): {error}")
        self._start(worker)

    def _replace_hung(self) -> None:
        limit = self.config.env_timeout
        for worker in list(self._workers):
            if 0 < limit < monotonic() - self.shared.last_beat(worker):
                self._learned.add(worker)  # a slow start is no reason to give up at once
                self._lose(worker, Failure("env", f"no update for {limit:g} s (env_timeout)"))

    def _stop(self) -> None:
        """Let the workers end their update; kill those that take too long. Then the last evaluation."""
        self.shared.stop = True
        deadline = monotonic() + STOP_SECONDS
        while self._workers and monotonic() < deadline:
            self._listen(0.1)
        for worker in list(self._workers):
            self._workers.pop(worker).end()
        while self.finished and self.progress.evaluation_due and not self._should_stop():
            if self._judged is None:
                self._evaluate()
            self._listen(0.1)

    def _kill(self) -> None:
        for process in [*self._workers.values(), *([self._judge] if self._judge else [])]:
            process.end()
        self._workers, self._judge = {}, None

    # Evaluation, in a process of its own

    def _evaluate(self) -> None:
        if self._judge is None:
            config = replace(self.config, device="cpu")
            self._judge = start(self._context, "vantage-evaluator", judge, config, self.spec)
        self._learner.pull()
        self._judged = {name: tensor.clone() for name, tensor in self._learner.model.state_dict().items()}
        self._judge.connection.send((self.progress.step, sendable(self._judged)))

    def _hear_judge(self) -> None:
        assert self._judge is not None and self._judged is not None
        try:
            message = self._judge.connection.recv()
        except (EOFError, ConnectionResetError):
            self._judge.process.join(1.0)
            message = Failure("other", f"it ended without a word, {_how(self._judge.process.exitcode)}")
        judged, self._judged = self._judged, None
        if isinstance(message, Failure):
            self._judge.end()
            self._judge = None
            if self._restarts >= self.config.max_restarts:
                raise message.error()
            self._restarts += 1
            self.notify(f"the evaluator failed and is replaced ({self._restarts} of {self.config.max_restarts}): "
                        f"{message.message}")
            return
        step, metrics, self.progress.solved = message
        self.progress.evaluation_due = False
        self.recorder.evaluated(metrics, lambda: ({"model": judged}, self._state()), step)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name} (out of memory?)"
    return f"with exit status {code}"
