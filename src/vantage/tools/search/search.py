"""`vantage search`: trials dealt out to processes, seed by seed and comparison by comparison, until all have ended."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING

from vantage.errors import ConfigError, VantageError
from vantage.runs.lock import HeldError, locked
from vantage.tools.search.measure import last_value, steps_of
from vantage.tools.search.plan import Plan
from vantage.tools.search.show import SearchDisplay, View
from vantage.tools.search.study import BEAT_EVERY_SECONDS, Trial, Trials
from vantage.tools.search.work import Note, Outcome, Reached, Segment, Worker

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

TRIES = 3
"""A trial whose process is killed so often, for want of memory say, has failed."""
_LOOK_EVERY_SECONDS, _READ_EVERY_SECONDS = 0.5, 2.0


@dataclass(slots=True)
class Active:
    """A trial under way: what is left to do for its next comparison."""

    trial: Trial
    rung: int
    pending: list[int]
    """Seeds whose runs are not at the rung yet, and that no process has."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """Of the seeds that are at the rung."""
    steps: dict[int, int] = field(default_factory=dict)
    """Where each seed's run is."""
    training: set[int] = field(default_factory=set)
    interrupted: bool = False
    error: str = ""
    killed: int = 0


@dataclass(slots=True)
class Job:
    """What a process has been given."""

    active: Active
    seed: int


class Search:
    """Runs trials of `trials` in `jobs` processes."""

    def __init__(self, plan: Plan, trials: Trials, *, jobs: int, display: SearchDisplay, argv: Sequence[str]) -> None:
        self.plan, self.trials, self.jobs, self.display, self.argv = plan, trials, jobs, display, argv
        self.active: list[Active] = []
        self.working: dict[Worker, Job | None] = {}
        self._told: set[str] = set()
        self._stuck = ""
        """Why no run can go on, whatever its values."""
        self._shown = self._empty = -float("inf")
        self._beaten = monotonic()

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Until all trials have ended, True, or `should_stop`, False; then each has saved and is left to the next.

        VantageError, with trials left in the same way, where the disk lets no run go on.
        """
        try:
            while not should_stop() and not self._stuck:
                if not self._deal() and not self.active and self.trials.over:
                    return True
                self._listen()
                self._keep()
            for worker, job in self.working.items():
                if job is not None:
                    worker.send(None)
            while any(self.working.values()):
                self._listen()
                self._keep()
            for active in list(self.active):
                self.trials.leave(active.trial)
                self.active.remove(active)
            if self._stuck:
                raise VantageError(f"the search cannot go on: {self._stuck}; once that is mended the same command goes "
                                   "on")
            return False
        finally:
            for worker in self.working:
                worker.end()

    def _deal(self) -> bool:
        """Give the processes without work some; whether there was any."""
        idle = [worker for worker, job in self.working.items() if job is None]
        free = self.jobs - len(self.working) + len(idle)
        dealt = False
        while free > 0 and (job := self._next_job()) is not None:
            active, seed = job.active, job.seed
            try:
                config = self.plan.config(active.trial.values, seed)
            except ConfigError as error:  # each value does for itself, which was checked, and these not together
                self._fail(active, str(error))
                self._advance(active)
                continue
            worker = idle.pop() if idle else Worker(self.jobs, self.argv)
            self.working[worker] = job
            active.pending.remove(seed)
            active.training.add(seed)
            worker.send(Segment(active.trial.run(seed), config, self.plan.rungs[active.rung], self.plan.metric))
            free, dealt = free - 1, True
        return dealt

    def _next_job(self) -> Job | None:
        """The next seed of a trial under way, or of another trial."""
        for active in self.active:
            if active.pending and not active.error:
                return Job(active, active.pending[0])
        if monotonic() - self._empty < _READ_EVERY_SECONDS:  # looking reads the whole study
            return None
        while (trial := self.trials.take()) is not None:
            active = self._take_up(trial)
            if active.pending:
                return Job(active, active.pending[0])
        self._empty = monotonic()
        return None

    def _take_up(self, trial: Trial) -> Active:
        """`trial` on its way to the comparison after its last. It has nothing pending if that is its end."""
        seeds, metric = self.plan.trial_seeds(), self.plan.metric
        active = Active(trial, bisect_right(self.plan.rungs, trial.reached), [],
                        steps={seed: steps_of(trial.run(seed)) for seed in seeds})
        self.active.append(active)
        if trial.reached and not self.trials.goes_on(trial):  # a kill came between the verdict and the deed
            values = {seed: last_value(trial.run(seed), metric) for seed in seeds}
            self._prune(active, {seed: value for seed, value in values.items() if value is not None})
            return active
        active.pending = [seed for seed in seeds if seed not in trial.stopped]
        active.outcomes = {seed: Outcome(step, last_value(trial.run(seed), metric))
                           for seed, step in trial.stopped.items()}
        if not active.pending:
            self._advance(active)
        return active

    def _listen(self) -> None:
        """Take in what the processes say, for a moment at most."""
        by_connection = {worker.connection: worker for worker in self.working}
        if not by_connection:
            wait([], _LOOK_EVERY_SECONDS)
            return
        for connection in wait(list(by_connection), _LOOK_EVERY_SECONDS):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._died(worker)
                continue
            job = self.working[worker]
            if isinstance(message, Note):
                self._pass_on(message.text)
            elif job is not None and isinstance(message, Reached):
                job.active.steps[job.seed] = message.step
            elif job is not None and isinstance(message, Outcome):
                self.working[worker] = None
                self._take_in(job, message)

    def _died(self, worker: Worker) -> None:
        """A process is gone: its run goes on from its checkpoint in another."""
        job = self.working.pop(worker)
        worker.end()
        if job is None:
            return
        active = job.active
        active.training.discard(job.seed)
        active.pending.insert(0, job.seed)
        active.killed += 1
        if active.killed >= TRIES:
            self._fail(active, f"its process was killed {TRIES} times (exit status {worker.process.exitcode}); where "
                               "memory was short give fewer --jobs")
            self._advance(active)
        else:
            self._note(f"trial {active.trial.number}: a process ended by itself (exit status "
                       f"{worker.process.exitcode}); its run goes on from its checkpoint")

    def _take_in(self, job: Job, outcome: Outcome) -> None:
        active, seed = job.active, job.seed
        active.training.discard(seed)
        if active not in self.active:  # another machine's by now
            return
        if outcome.stuck:
            self._stuck = self._stuck or outcome.error
            active.interrupted = True
        elif outcome.error:
            self._fail(active, f"seed {seed}: {outcome.error}")
        elif outcome.interrupted:
            active.interrupted = True
            active.steps[seed] = outcome.step
        else:
            active.outcomes[seed] = outcome
            active.steps[seed] = outcome.step
            if outcome.step < self.plan.rungs[active.rung] and seed not in active.trial.stopped:
                self.trials.stopped(active.trial, seed, outcome.step)
        self._advance(active)

    def _advance(self, active: Active) -> None:
        """Once all its seeds are at the rung: compare it, and go on with it, end it or let it be."""
        if active.training:
            return
        trial, steps = active.trial, sum(active.steps.values())
        if active.error:
            self._ended(active)
            self.trials.fail(trial, active.error, steps)
            self._note(f"trial {trial.number} failed: {active.error}")
            return
        if active.interrupted or active.pending:
            return
        at = self.plan.rungs[active.rung]
        last = at == self.plan.rungs[-1]
        scores = {seed: outcome.value for seed, outcome in active.outcomes.items() if outcome.value is not None}
        value = fmean(scores.values()) if len(scores) == self.plan.seeds else None
        if last and value is None:
            self._ended(active)
            self.trials.fail(trial, f"no {self.plan.metric} in {at:,} steps: no game has ended; give more --steps",
                             steps)
        elif last and value is not None:
            self._ended(active)
            self.trials.complete(trial, value, scores, steps)
            self.display.event(f"trial {trial.number} complete: {value:.6g}")
        elif value is not None and not self.trials.compare(trial, at, value):
            self._prune(active, scores)
        else:
            active.rung += 1
            active.pending = [seed for seed in self.plan.trial_seeds() if seed not in trial.stopped]
            active.outcomes = {seed: active.outcomes[seed] for seed in trial.stopped}
            if not active.pending:
                self._advance(active)

    def _prune(self, active: Active, scores: dict[int, float]) -> None:
        trial = active.trial
        self._ended(active)
        value = self.trials.prune(trial, scores, sum(active.steps.values()))
        self.display.event(f"trial {trial.number} pruned at {trial.reached:,} steps: {value:.6g}")

    def _fail(self, active: Active, error: str) -> None:
        """The trial is to have no value; it ends once its other seeds have stopped."""
        active.error = active.error or error
        self._stop(active)

    def _stop(self, active: Active) -> None:
        """Have the processes that train for it save and stop."""
        for worker, job in self.working.items():
            if job is not None and job.active is active:
                worker.send(None)

    def _ended(self, active: Active) -> None:
        self.active.remove(active)
        self._shown = -float("inf")

    def _keep(self) -> None:
        """Renew leases and what is shown, where it is time."""
        now = monotonic()
        if now - self._beaten > BEAT_EVERY_SECONDS:
            self._beaten = now
            for lost in self.trials.beat([active.trial for active in self.active]):
                self._let_go(lost)
        if now - self._shown > _READ_EVERY_SECONDS:
            self._shown = now
            self.display.show(self.view())

    def _let_go(self, trial: Trial) -> None:
        """Another machine took this one for dead and has its trial."""
        self._note(f"trial {trial.number} is another machine's now: this one had been silent")
        active = next(active for active in self.active if active.trial is trial)
        self.active.remove(active)
        self._stop(active)

    def view(self) -> View:
        """What is to be shown."""
        own = {active.trial.number: sum(active.steps.values()) / self.plan.seeds for active in self.active}
        return View(self.plan, self.trials.total, tuple(self.trials.rows()), own)

    def _pass_on(self, text: str) -> None:
        """What a run has to say; one that begins with how many there are of something is told of for all of them."""
        self._note(text, of=re.sub(r"\d+", "N", text) if re.match(r"\d+ ", text) else text)

    def _note(self, text: str, *, of: str = "") -> None:
        """Say `text` unless it, or another `of` the same, was said before."""
        if (of or text) not in self._told:
            self._told.add(of or text)
            self.display.note(text)


@contextmanager
def opened(plan: Plan, directory: Path, storage: BaseStorage | None, total: int) -> Iterator[Trials]:
    """The search's trials, with its directory locked."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(directory))
        except HeldError:
            raise ConfigError(f"{directory}: this search is running already; stop that one first, or choose another "
                              "--run to search beside it with a --storage that both have") from None
        yield Trials(plan, directory, storage, total)
