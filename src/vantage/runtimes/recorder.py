"""Records a run in progress: reports, metrics, checkpoints, the best policy, the summary."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from time import perf_counter
from typing import Any, Literal

from vantage._host.system import used_memory
from vantage.agents.evaluation_settings import acts_most_probably, plays_both_ways
from vantage.config.config import Config
from vantage.errors import CheckpointError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint, save, save_as
from vantage.runs.checkpoint_files import Groups
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter
from vantage.runs.mirror import mirror_of
from vantage.runs.spec_json import spec_to_json
from vantage.runs.tracking import Tracker
from vantage.runs.weight_log import WeightLog
from vantage.runtimes.best_policy import BestPolicy
from vantage.runtimes.evaluator import EvaluationResult
from vantage.runtimes.own_algorithm import OwnAlgorithm
from vantage.runtimes.progress import Progress
from vantage.runtimes.save_failures import SaveFailures
from vantage.runtimes.steps import is_due, no_end_in_training, stop_in_words
from vantage.types import Report

log = logging.getLogger(__name__)

Status = Literal["running", "done", "interrupted", "failed"]


class Recorder:
    """Writes the files of a run: metrics, checkpoints, best/, summary.json.

    `tensors` returns the tensors of a checkpoint, `policy` those of best/. Failures to save are
    logged; only that of the last save ends the run.
    """

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 progress: Progress, model: ActorCritic, tensors: Callable[[], Groups],
                 policy: Callable[[], Groups]) -> None:
        self.directory = directory
        self.config = config
        self.progress = progress
        self._tensors = tensors
        # Workers that the run ever had: each has its own random streams.
        self.workers_started = checkpoint.state.get("workers_started", 0) if checkpoint else 0
        self._spec = spec_to_json(model.spec)
        self.started = perf_counter()
        self.last_report: Report | None = None
        self._tracker = None if config.run.track == "none" else Tracker(directory.path, config)
        self._writer = MetricWriter(
            directory.path, resume_step=checkpoint.step if checkpoint else None,
            tensorboard=config.run.tensorboard, tracker=self._tracker)
        self._mirror = mirror_of(directory)
        self._weights = WeightLog(config, model, self._writer) if config.run.log_weights else None
        self._saved_at: float | None = None
        self._failures = SaveFailures()
        self._best = BestPolicy(progress, self._failures, policy, self._state)
        self._unreported: dict[str, float] = {}  # of evaluations and `log` since the last report
        self.between_updates = False  # the last one is complete, with all that was due after it
        self.evaluation: dict[str, float] = {}  # metrics of the newest one
        self.logged: dict[str, list[float]] = {}  # passed to `log` since the last line of metrics
        self._changes: dict[str, Any] = {}  # keys that have changed since config.json was written
        self._written_step = checkpoint.step if checkpoint else 0
        self._replay_step = -1
        if checkpoint is not None:
            progress.load(checkpoint.state["progress"])
            self._best.load_score(directory.path)
        if progress.deterministic is None:  # the first checkpoint already holds how it is judged
            progress.deterministic = acts_most_probably(config, model.spec)
        self._algorithm = OwnAlgorithm(config, progress)
        self._algorithm.note_unsaved()
        if not config.run.evaluates:
            log.info("no evaluations beside training: best/ goes by the mean of the "
                     f"{config.run.return_window} training games after a checkpoint")
            if checkpoint is not None:
                self._best.wait_for_games()
        stop = stop_in_words(config, progress.step, model.spec.agents)
        if stop is not None:
            log.info(stop)

    @property
    def goal(self) -> str | None:
        """The goal of the config that has been reached, in words; None if there is none."""
        return self.progress.goal_reached(self.config)

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""
        minutes = (perf_counter() - self.started) / 60
        return (self.goal is not None or self.progress.step >= self.config.run.steps
                or 0 < self.config.run.max_minutes <= minutes)

    @property
    def evaluation_begins(self) -> bool:
        """An evaluation is due and its games keep to `max_eval_share` of all steps."""
        run = self.config.run
        progress = self.progress
        games = run.eval_episodes * (2 if plays_both_ways(self.config) else 1)
        return progress.evaluation_due and progress.may_evaluate(games, run.max_eval_share)

    @property
    def last_evaluation_due(self) -> bool:
        """The final policy must still be evaluated; False if an evaluation has ended the run."""
        return self.progress.evaluation_due and not self.progress.solved

    def note_due_evaluation(self, before: int) -> None:
        """Mark an evaluation as due by the steps since the step `before`, or by the clock."""
        run = self.config.run
        progress = self.progress
        by_steps = is_due(run.eval_every, before, progress.step)
        if by_steps or progress.unevaluated_for(run.eval_every_seconds):
            progress.evaluation_due = True

    def log(self, name: str, value: float) -> None:
        """Add a value of the user's metric `name`; the next report has the mean of all values."""
        self.logged.setdefault(name, []).append(value)

    def change(self, values: Mapping[str, Any]) -> None:
        """Continue with other `values` of the config.

        The next checkpoint also writes them to config.json.
        """
        self.config = self.config.change(**values)
        self._changes.update(values)
        if "lr" in values:  # the rate of the last update is no longer that of the next
            self.progress.learning_rate = None

    def note_update(self) -> None:
        """Log what the first update reveals of the user's algorithm; score a policy that waits."""
        self._algorithm.note_update()
        self._best.judge(self.directory.path)

    def first_report(self) -> Report:
        """The report before the first update. It has no metrics and is not written."""
        return Report(self.progress.step, self.progress.seconds, {}, "running",
                      str(self.directory.path))

    def report(self, status: Status = "running") -> Report:
        """Metrics since the last report, also written to the run directory."""
        former = self.last_report
        if former is not None and former.step != self.progress.step:
            former = None
        if former is not None and not self._unreported and not self.logged:
            return replace(former, status=status)
        metrics = {} if former is None else dict(former.metrics)
        metrics |= self._unreported
        metrics |= self._write_metrics({})
        self._unreported = {}
        now = perf_counter()
        if self._saved_at is not None:
            metrics["time/save_age"] = now - self._saved_at
        if self.config.run.max_minutes:
            metrics["time/minutes_share"] = (now - self.started) / 60 / self.config.run.max_minutes
        self.last_report = replace(self.first_report(), metrics=metrics, status=status)
        return self.last_report

    def _write_metrics(self, evaluation: Mapping[str, float]) -> dict[str, float]:
        """The metrics of this step and of `evaluation`, written if any of them is new."""
        own = {name: fmean(values) for name, values in self.logged.items()}
        self.logged = {}
        self._unreported.update(own)
        step = self.progress.step
        metrics = {**self.progress.metrics(), **own, **evaluation}
        memory = used_memory()
        if memory is not None:
            metrics["time/memory_mib"] = memory / 2**20
        if step > self._written_step or evaluation or own:
            self._writer.write(step, self.progress.seconds, metrics)
            self._written_step = step
        return metrics

    def record_evaluation(self, result: EvaluationResult | None, step: int,
                          policy: Groups | None = None) -> None:
        """Record an evaluation of the policy of `step`; saves the policy if it is the best so far.

        `policy` has its tensors; by default the current ones. Another evaluation becomes due at
        once if training has passed the next due step meanwhile. `result` None: it was left out.
        """
        progress = self.progress
        if result is None:
            progress.note_endless(step, is_last=self.finished)
            return
        progress.eval_steps += result.steps
        progress.last_eval_steps = result.steps
        progress.solved = result.solved
        progress.evaluation_due = False
        self.note_due_evaluation(step)
        self._check_directory()
        self.evaluation = {**result.metrics, "eval/step": step}
        self._unreported.update(self.evaluation)
        self._write_metrics(self.evaluation)
        progress.deterministic = bool(result.metrics["eval/deterministic"])
        self._best.save_if_best(self.directory.path, result.score, step, policy,
                                solved=result.solved)

    def save(self, *, final: bool = False, again: bool = False) -> None:
        """Write a checkpoint and the summary.

        A failure raises CheckpointError if `final`; otherwise it is logged and the next save tries
        again. `again` replaces a checkpoint of the same step.
        """
        self._check_directory()
        self._algorithm.note_unsaved()
        # Before the checkpoint: a resume drops metrics of later steps, but cannot restore missing
        # ones.
        self._write_metrics({})
        if not self.config.run.evaluates and self.progress.step > 0:
            self._best.judge(self.directory.path, games=1)
            self._best.wait_for_games()
            if self.finished or (final and self.progress.best_return is None):
                self._best.judge(self.directory.path, games=0)  # none come after the final policy
        try:
            save(self.directory.path, self.progress.step, tensors=self._tensors(),
                 state=self._state(), keep=self.config.run.keep_checkpoints, again=again)
            self._saved_at = perf_counter()
            self._failures.saved(self.directory.path / "checkpoints")
            self._save_config()
            self._write_summary("running")
            if self._weights is not None:
                self._weights.write(self.progress.step)
            if self._mirror is not None:
                self._mirror.push(self.directory.path)
        except CheckpointError as error:
            if final:
                raise
            self._failures.failed("checkpoints", error, "; every later save tries again")

    def _write_summary(self, status: Status) -> dict[str, Any]:
        summary = self.progress.summary(self.config, status)
        if not self.directory.is_gone:  # the last save has raised an error about it
            with self._failures.logged(self.directory.path / "summary.json"):
                self.directory.write_summary(summary)
        return summary

    def _save_config(self) -> None:
        """Write the changed values to config.json, so that a resume continues with them."""
        if not self._changes:
            return
        changed = self.directory.config.change(**self._changes)
        file = self.directory.path / "config.json"
        with self._failures.logged(file, "; every later save tries again"):
            self.directory = self.directory.change_config(changed)
            self._changes.clear()

    def _state(self) -> dict[str, Any]:
        return {"progress": self.progress.state(), "spec": self._spec,
                "workers_started": self.workers_started,
                "optimizer": self.config.optimizer.optimizer}

    def _check_directory(self) -> None:
        """Raises CheckpointError if the run directory was deleted or renamed."""
        if self.directory.is_gone:
            place = self._mirror.url if self._mirror is not None else "NEW_NAME"
            raise CheckpointError(
                f"{self.directory.path} was deleted or renamed while it trains, so that the run "
                f"ends at step {self.progress.step:,}; continue it from its last checkpoint by "
                f"`vantage resume {place}`")

    def save_replay(self, tensors: Callable[[], Groups]) -> None:
        """Write the replay of this step, once. A run can continue without it."""
        if self._replay_step == self.progress.step:
            return
        run = self.directory.path
        with self._failures.logged(run / "replay", ". A resume from here uses the replay saved "
                                   "before, or fills a new one."):
            save_as(run, "replay", self.progress.step, tensors=tensors(), state={},
                    may_remove=False)
            self._replay_step = self.progress.step

    def abandon(self) -> None:
        """Close the files of a run that could not start."""
        self._writer.close()

    def close(self, status: Status) -> None:
        """Record how the run ended in summary.json and in the last report."""
        if status == "done" and self.progress.episodes == 0:
            log.warning(no_end_in_training(self.progress.step))
        self.last_report = self.report(status)
        if self._weights is not None:
            scores = {"final/return_mean": self.progress.return_mean,
                      "final/best_return": self.progress.best_return}
            self._weights.close({name: score for name, score in scores.items()
                                 if score is not None})
        self._writer.close()
        summary = self._write_summary(status)
        if self._tracker is not None:
            self._tracker.close(summary)
        if self._mirror is not None:
            self._mirror.push(self.directory.path)
