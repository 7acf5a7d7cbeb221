"""`Session`: the generator of a training, begun and closed. What users call is in `trainer`."""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator
from inspect import GEN_CLOSED, getgeneratorstate
from types import FrameType
from typing import Any, Self
from weakref import WeakSet

from vantage.agents.agent import Agent
from vantage.agents.evaluation_settings import acts_most_probably
from vantage.config.config import Config
from vantage.config.runtimes import Sync
from vantage.errors import VantageError
from vantage.runs.handed_over import continuation
from vantage.runtimes.progress import Advance
from vantage.runtimes.rank_worker import FollowedTraining, follow_torchrun
from vantage.runtimes.recorder import Status
from vantage.runtimes.train_loop import Run
from vantage.types import Report

log = logging.getLogger(__name__)

Updates = Generator[Report | None]

_UNFINISHED: WeakSet[Updates] = WeakSet()


@atexit.register
def _close_unfinished() -> None:
    """At interpreter exit, close unfinished generators so that their runs are saved."""
    for updates in list(_UNFINISHED):
        try:
            updates.close()
        except ValueError:  # another thread is executing it
            pass
        except Exception as error:  # the others are closed too
            log.error("a run could not be saved at the end of the program: %s", error)


os.register_at_fork(after_in_child=_UNFINISHED.clear)


class DeferredInterrupt:
    """Defers the first SIGINT to the end of the context, where it raises KeyboardInterrupt.

    A second SIGINT raises it at once. Without effect outside the main thread, and where the program
    handles SIGINT itself.
    """

    def __init__(self) -> None:
        self._arrived = False
        self._process = os.getpid()

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # An error may come from the same Ctrl-C, as that of a simulator in another process.
        if self._arrived and (kind is None or issubclass(kind, Exception)):
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_fork = os.getpid() != self._process
        if self._arrived or is_fork:
            raise KeyboardInterrupt
        self._arrived = True


class Session:
    """One training of this process, from the report before its first update to its end.

    In a rank above 0 of torchrun the constructor shares the updates of rank 0 until the training
    ends. Such a session has no run, only the result in `followed`.
    """

    def __init__(self, begin: Callable[..., Updates]) -> None:
        """`begin(on_start=...)` returns the generator, which calls `on_start` with the run."""
        self.followed: FollowedTraining | None = follow_torchrun()
        self._run: Run | None = None
        # `on_start` is no method of this object: a reference cycle would delay the collection of
        # the generator, and with it the save of an abandoned run.
        started: list[Run] = []
        self._updates = begin(on_start=started.append)
        if self.followed is not None:
            self._updates.close()
            return
        _UNFINISHED.add(self._updates)
        next(self._updates)  # the report before the first update
        self._run = started[0]

    @property
    def has_run(self) -> bool:
        """False in a rank above 0 of torchrun."""
        return self._run is not None

    @property
    def is_running(self) -> bool:
        """The training can make another update."""
        return getgeneratorstate(self._updates) != GEN_CLOSED

    @property
    def run(self) -> Run:
        """The run. VantageError in a rank above 0, which has none."""
        if self._run is None:
            raise VantageError("this process is a rank above 0 of torchrun, which has shared the "
                               "training of rank 0; leave this to rank 0")
        return self._run

    @property
    def running(self) -> Run:
        """The run. VantageError if it has ended."""
        run = self.run
        if not self.is_running:
            status = self.status
            step = self.step
            ending = {"done": "is done", "interrupted": "was closed",
                      "failed": "has failed"}[status]
            more: dict[str, object] = {"steps": 2 * step} if status == "done" else {}
            if more and self.config.at("lr", step) == 0:
                more["extend_schedule"] = True
            path = run.recorder.directory.path
            raise VantageError(f"this training {ending}, at step {step:,}; go on with "
                               f"{continuation('Trainer.resume', path, run.config, **more)}")
        return run

    @property
    def step(self) -> int:
        if self.followed is not None:
            return self.followed.step
        return self.run.recorder.progress.step

    @property
    def status(self) -> Status:
        """`running` until the training has ended; then `done`, `interrupted` or `failed`."""
        if self.followed is not None:
            return "failed" if self.followed.actor_learner is None else "done"
        if self.is_running:
            return "running"
        last = self.run.recorder.last_report
        return "failed" if last is None or last.status == "running" else last.status

    @property
    def config(self) -> Config:
        if self.followed is not None and self.followed.actor_learner is not None:
            return self.followed.actor_learner.config
        return self.run.config

    @property
    def model(self) -> Any:
        if self.followed is not None and self.followed.actor_learner is not None:
            return self.followed.actor_learner.model
        return self.run.policy()

    @property
    def return_mean(self) -> float | None:
        """The mean return of recent games; None before the first, and in ranks above 0."""
        return self.run.recorder.progress.return_mean if self.has_run else None

    def agent(self) -> Agent:
        model = copy.deepcopy(self.model).cpu().eval()
        config = self.config.with_shifts(model.spec.shifts)
        deterministic = acts_most_probably(config, model.spec)
        scores = {"eval/deterministic": float(deterministic)}
        if self.return_mean is not None:
            scores["rollout/ep_rew_mean"] = self.return_mean
        run = self.run.recorder.directory.path if self.has_run else None
        return Agent(model, config, self.step, "the current policy", scores, deterministic, run)

    def advance(self) -> Report | None:
        """Train until the next yield of `train_loop.updates`.

        In the synchronous runtime a KeyboardInterrupt comes after that, and the training can go on.
        """
        is_sync = isinstance(self.config.runtime, Sync)
        with DeferredInterrupt() if is_sync else contextlib.nullcontext():
            report = next(self._updates)
            if report is not None and report.status != "running":
                self._updates.close()  # that was the last report; closing unlocks the directory
            return report

    def advance_one_update(self) -> Advance:
        """Train until an update and all that is due after it are complete, or the training ends."""
        recorder = self.run.recorder
        total = recorder.progress.total = Advance()
        try:
            self.advance()
            while self.is_running:
                if recorder.between_updates and total.updates:
                    break
                self.advance()
        except KeyboardInterrupt:
            if self.status == "interrupted":
                call = continuation("Trainer.resume", recorder.directory.path, self.config)
                log.warning(f"stopped within an update; the last one is saved, go on with {call}")
            raise
        finally:
            recorder.progress.total = None
        return total

    def close(self) -> None:
        self._updates.close()
