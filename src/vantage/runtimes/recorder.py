"""Records a run in progress: reports, metrics, checkpoints, the best policy, the summary."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from time import perf_counter
from typing import Any, Literal

from vantage._host.system import used_memory
from vantage.agents.evaluation_settings import plays_both_ways
from vantage.config.config import Config
from vantage.config.runtimes import Sync
from vantage.errors import CheckpointError, ConfigError, VantageError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint, load_named, save, save_as
from vantage.runs.checkpoint_files import Groups
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter
from vantage.runs.mirror import mirror_of
from vantage.runs.tracking import Tracker
from vantage.runs.weight_log import WeightLog
from vantage.runtimes.evaluator import Evaluated
from vantage.runtimes.own_algorithm import OwnAlgorithm
from vantage.runtimes.progress import Progress
from vantage.types import Report

log = logging.getLogger(__name__)

Status = Literal["running", "done", "interrupted", "failed"]


class Recorder:
    """Writes `tensors` and `progress` into the run directory for a runtime. Only a failure of the last save ends a run.

    `policy` returns the tensors of best/: those that a policy needs.
    Shows the weights of `model` in TensorBoard if the config has `log_weights`.
    """

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None, progress: Progress,
                 model: ActorCritic, tensors: Callable[[], Groups], policy: Callable[[], Groups]) -> None:
        self.directory = directory = directory.from_start()
        self.config, self.progress = config, progress
        self._tensors, self._policy = tensors, policy
        self.workers_started = checkpoint.state.get("workers_started", 0) if checkpoint else 0
        """Workers that the run ever had: each has streams of random numbers of its own."""
        self._spec = model.spec.to_json()
        self.started = perf_counter()
        self.last_report: Report | None = None
        self._tracker = None if config.run.track == "none" else Tracker(directory.path, config)
        self._writer = MetricWriter(directory.path, resume_step=checkpoint.step if checkpoint else None,
                                    tensorboard=config.run.tensorboard, tracker=self._tracker)
        self._mirror = mirror_of(directory)
        self._weights = WeightLog(config, model, self._writer) if config.run.log_weights else None
        self._saved_at: float | None = None
        self._failures: dict[str, int | str] = {}
        """Why checkpoints, best or replay could not be saved the last time."""
        self._unreported: dict[str, float] = {}
        """Metrics of an evaluation, and those that `log` was given, that no report has yet."""
        self.between_updates = False
        """The last update is complete, with the evaluation and the checkpoint that were due."""
        self.evaluation: dict[str, float] = {}
        """Metrics of the newest evaluation."""
        self.logged: dict[str, list[float]] = {}
        """The values that `log` was given since the last line of metrics."""
        self._changes: dict[str, Any] = {}
        """Config keys that have changed since config.json was written."""
        self._written_step = checkpoint.step if checkpoint else 0
        self._replay_step = -1
        if checkpoint is not None:
            progress.load(checkpoint.state["progress"])
            self._load_score_of_best()
        self._algorithm = OwnAlgorithm(config, progress)
        self._algorithm.note_unsaved()
        if not config.run.evaluates:
            log.info("no evaluations beside training: best/ goes by the mean of "
                     f"{config.run.return_window} training games")
        if (end := end_in_words(config, progress.step)) is not None:
            log.info(end)

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
        """An evaluation is due, and within its share of the steps; otherwise it waits."""
        run = self.config.run
        games = run.eval_episodes * (2 if plays_both_ways(self.config) else 1)
        return self.progress.evaluation_due and self.progress.may_evaluate(games, run.max_eval_share)

    @property
    def last_evaluation_due(self) -> bool:
        """The final policy of a run that has ended is to be evaluated; if an evaluation ended the run, it has been."""
        return self.progress.evaluation_due and not self.progress.solved

    def note_due_evaluation(self, before: int) -> None:
        """Mark an evaluation as due if one falls between the step `before` and now, or by the clock."""
        run, progress = self.config.run, self.progress
        if passed(run.eval_every, before, progress.step) or progress.unevaluated_for(run.eval_every_seconds):
            progress.evaluation_due = True

    def log(self, name: str, value: float) -> None:
        """Add a value of the caller's own metric `name` to the next report; of several, their mean."""
        self.logged.setdefault(name, []).append(value)

    def change(self, values: Mapping[str, Any]) -> None:
        """Go on with other `values` of the config, which the next checkpoint writes into config.json too."""
        self.config = self.config.change(**values)
        self._changes.update(values)

    def note_update(self) -> None:
        """Log what the first update shows about the algorithm."""
        self._algorithm.note_update()

    def begin_workers(self, checkpoint: Checkpoint | None) -> None:
        """Save a new run; log that workers do not go on exactly from a checkpoint."""
        if checkpoint is None:
            self.save()
        else:
            empty = "; their replays begin empty" if self.config.algorithm.needs.replay else ""
            log.info("workers begin new episodes, and the order of their updates never repeats: this resume is not "
                     f"exact{empty}")

    def first_report(self) -> Report:
        """The report before the first update. It has no metrics and is not written."""
        return Report(self.progress.step, self.progress.seconds, {}, "running", str(self.directory.path))

    def report(self, status: Status = "running") -> Report:
        """Metrics since the last report, also written to the run directory."""
        former = self.last_report if self.last_report and self.last_report.step == self.progress.step else None
        if former and not self._unreported and not self.logged:
            return replace(former, status=status)
        metrics = {**(former.metrics if former else {}), **self._unreported, **self._write_metrics({})}
        self._unreported, now = {}, perf_counter()
        if self._saved_at is not None:
            metrics["time/save_age"] = now - self._saved_at
        if self.config.run.max_minutes:
            metrics["time/minutes_share"] = (now - self.started) / 60 / self.config.run.max_minutes
        self.last_report = replace(self.first_report(), metrics=metrics, status=status)
        return self.last_report

    def _write_metrics(self, evaluation: Mapping[str, float]) -> dict[str, float]:
        """The metrics of this step with those of an `evaluation`; writes what is new of them."""
        own, self.logged = means(self.logged), {}
        self._unreported.update(own)
        step, metrics = self.progress.step, {**self.progress.metrics(), **own, **evaluation}
        if (memory := used_memory()) is not None:
            metrics["time/memory_mib"] = memory / 2**20
        if step > self._written_step or evaluation or own:
            self._writer.write(step, self.progress.seconds, metrics)
            self._written_step = step
        return metrics

    def evaluated(self, evaluated: Evaluated, step: int, policy: Groups | None = None) -> None:
        """Record an evaluation of the policy of `step`; saves it, or `policy`, if it is the best.

        Another one is due if the training that went on beside it has passed its step.
        """
        progress = self.progress
        progress.eval_steps += evaluated.steps
        progress.last_eval_steps = evaluated.steps
        progress.solved = evaluated.solved
        progress.evaluation_due = passed(self.config.run.eval_every, step, progress.step) or (
            progress.step > step and progress.unevaluated_for(self.config.run.eval_every_seconds))
        self._check_directory()
        self.evaluation = {**evaluated.metrics, "eval/step": step}
        self._unreported.update(self.evaluation)
        self._write_metrics(self.evaluation)
        progress.deterministic = bool(evaluated.metrics["eval/deterministic"])
        self._save_if_best(evaluated.score, step, policy, solved=evaluated.solved)

    def save(self, *, final: bool = False, again: bool = False) -> None:
        """Write a checkpoint and the summary; CheckpointError only if `final`, otherwise the next save tries again.

        `again`: this step has been saved, and evaluated since.
        """
        self._check_directory()
        self._algorithm.note_unsaved()
        self._write_metrics({})  # first: after the last checkpoint nothing is trained again
        if not self.config.run.evaluates and self.progress.window_is_full:
            self._save_if_best(float(self.progress.return_mean or 0.0), self.progress.step)
        try:
            save(self.directory.path, self.progress.step, tensors=self._tensors(), state=self._state(),
                 keep=self.config.run.keep_checkpoints, again=again)
            self._saved_at = perf_counter()
            self._note_saving("checkpoints")
            self._save_config()
            self._write_summary("running")
            if self._weights is not None:
                self._weights.write(self.progress.step)
            if self._mirror is not None:
                self._mirror.push(self.directory.path)
        except CheckpointError as error:
            if final:
                raise
            self._note_saving("checkpoints", error, "; every later save tries again")

    def _save_config(self) -> None:
        """Write the values that have changed into config.json, which a resume goes on with."""
        if not self._changes:
            return
        try:
            self.directory = self.directory.change_config(self.directory.config.change(**self._changes))
        except VantageError as error:
            self._note_saving("config.json", error, "; every later save tries again")
        else:
            self._changes.clear()
            self._note_saving("config.json")

    def _state(self) -> dict[str, Any]:
        return {"progress": self.progress.state(), "spec": self._spec, "workers_started": self.workers_started,
                "optimizer": self.config.optimizer.optimizer}

    def _note_saving(self, place: str, error: VantageError | None = None, effect: str = "") -> None:
        """Log why `place` cannot be saved, once until the reason changes, and when it is saved again."""
        former = self._failures.pop(place, None)
        if error is not None:
            cause = error.__cause__
            self._failures[place] = getattr(cause, "errno", None) or (type(cause).__name__ if cause else str(error))
            if self._failures[place] != former:
                log.warning(f"{error}{effect}")
        elif former is not None:
            log.warning(f"{self.directory.path / place} is saved again")

    def _check_directory(self) -> None:
        """CheckpointError where the run directory was deleted or renamed."""
        self.directory = self.directory.from_start()
        if self.directory.is_gone:
            place = self._mirror.url if self._mirror is not None else "NEW_NAME"
            raise CheckpointError(
                f"{self.directory.path} was deleted or renamed while it trains, so that the run ends at step "
                f"{self.progress.step:,}; continue it from its last checkpoint by `vantage resume {place}`")

    def save_replay(self, tensors: Callable[[], Groups]) -> None:
        """Write the replay of this step, unless it has been written. A run can continue without it."""
        if self._replay_step == self.progress.step:
            return
        try:
            save_as(self.directory.path, "replay", self.progress.step, tensors=tensors(), state={}, may_remove=False)
        except CheckpointError as error:
            self._note_saving("replay", error, ". A resume from here uses the replay saved before, or fills a new one.")
        else:
            self._replay_step = self.progress.step
            self._note_saving("replay")

    def abandon(self) -> None:
        """Close the files of a run that could not start."""
        self._writer.close()

    def close(self, status: Status) -> None:
        """Record how the run ended in summary.json and in the last report."""
        self.last_report = self.report(status)
        if self._weights is not None:
            scores = {"final/return_mean": self.progress.return_mean, "final/best_return": self.progress.best_return}
            self._weights.close({name: score for name, score in scores.items() if score is not None})
        self._writer.close()
        summary = self._write_summary(status)
        if self._tracker is not None:
            self._tracker.close(summary)
        if self._mirror is not None:
            self._mirror.push(self.directory.path)

    def _write_summary(self, status: Status) -> dict[str, Any]:
        progress = self.progress
        summary = {"status": status, "steps": progress.step, "frames": round(progress.step * progress.frames_per_step),
                   "seconds": progress.seconds, "fps": progress.step / max(1e-9, progress.seconds),
                   "episodes": progress.episodes, "return_mean": progress.return_mean,
                   "best_return": progress.best_return, "env": self.config.env.id, "algo": self.config.algo,
                   "seed": self.config.run.seed}
        if self.directory.is_gone:  # the error of the last save says so
            return summary
        try:
            self.directory.write_summary(summary)
        except VantageError as error:
            self._note_saving("summary.json", error)
        else:
            self._note_saving("summary.json")
        return summary

    def _load_score_of_best(self) -> None:
        """Take the score of best/, which may be newer than the checkpoint: after a kill, or where that was damaged."""
        with contextlib.suppress(CheckpointError, ConfigError):  # there is none, or it is damaged
            best = load_named(self.directory.path, "best").state["progress"]
            if best.get("best_return") is not None:
                self.progress.best_return = best["best_return"]

    def _save_if_best(self, mean: float, step: int, policy: Groups | None = None, *, solved: bool = False) -> None:
        # Of equals the newer: where a task has a highest score, the first policy to reach it is rarely the most robust.
        former = self.progress.best_return
        if former is not None and mean < former and not solved:
            return
        self.progress.best_return = mean
        try:
            save_as(self.directory.path, "best", step, tensors=policy or self._policy(), state=self._state())
        except CheckpointError as error:
            self.progress.best_return = former
            self._note_saving("best", error, f". The policy of step {step:,}, the best so far, was not saved to best/.")
        else:
            self._note_saving("best")


def means(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean of the values under each name."""
    return {name: fmean(each) for name, each in values.items()}


def end_in_words(config: Config, step: int) -> str | None:
    """Where a run at `step` ends, unless that is exactly at its `steps`: updates are not cut short."""
    runtime, steps = config.runtime, config.run.steps
    if step >= steps:
        return None
    sizes = [config.env.num_envs * runtime.rollouts_per_update * length for length in runtime.rollout_lengths]
    if not isinstance(runtime, Sync):  # the others complete theirs too
        workers = range(runtime.num_workers)
        most = sum(sizes[worker % len(sizes)] for worker in workers)
        return f"steps={steps:,}: workers complete their updates, up to {most:,} steps more"
    end = step + -(-(steps - step) // sizes[0]) * sizes[0]
    return None if end == steps else f"steps={steps:,}: an update takes {sizes[0]:,}, so the run ends at {end:,}"


def passed(every: int, before: int, step: int) -> bool:
    """A multiple of `every` lies in (before, step]: a function of the steps alone, so a resumed run decides alike."""
    return every > 0 and step // every > before // every
