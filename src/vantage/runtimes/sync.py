"""A2C: one process holds the environments and the learner, and collects and learns in turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from statistics import fmean
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vantage.config import Config
from vantage.envs import Environments, First, make_environments, resolve_env
from vantage.errors import CheckpointError, ConfigError, VantageError
from vantage.learning.collect import Position, collect, join_firsts
from vantage.learning.learner import Learner
from vantage.learning.play import play
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.runs.checkpoint import Checkpoint, save, save_best
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter
from vantage.runtimes.progress import WINDOW, Progress
from vantage.seeding import derive_seed
from vantage.types import Report

Status = Literal["running", "done", "interrupted", "failed"]

EVALUATION_STREAM = 1
"""Evaluations beside training draw their environments' seeds from this stream; training has 0."""


LONG_REPLAY = 20_000
"""Actions of all environments together whose replay takes seconds, so that a person is told."""


def follow(run: SyncRun, should_stop: Callable[[], bool]) -> Generator[Report]:
    """Train until a stop condition; yields a report from time to time, and one at the end.

    Closing the generator, and `should_stop` turning true, end the run after the current update with a checkpoint. An
    error, or a KeyboardInterrupt, ends it with a checkpoint of the last update, whose environments begin new episodes.
    """
    status: Status = "failed"
    try:
        while not run.finished and not should_stop():
            run.advance(should_stop)
            if run.progress.due(run.config.log_every_seconds):
                yield run.report()
        run.save(final=True)
        status = "done" if run.finished else "interrupted"
    except GeneratorExit:
        run.save(final=True)
        status = "interrupted"
        raise
    except CheckpointError:
        raise
    except KeyboardInterrupt:
        run.save()
        status = "interrupted"
        raise
    except Exception:
        run.save()
        raise
    finally:
        run.close(status)
    if run.last_report is not None:
        yield run.last_report


class SyncRun:
    """The parts of a synchronous run and what happens between two reports."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 notify: Callable[[str], None]) -> None:
        self.config, self.directory, self.notify = config, directory, notify
        self.family = resolve_env(config.env, config.atari_protocol).family
        self.device = torch.device(config.device)
        self.threads = torch.get_num_threads()
        self.groups = make_groups(config, self.family)
        try:
            self._set_up(checkpoint)
        except BaseException:
            for group in self.groups:
                group.close()
            raise

    def _set_up(self, checkpoint: Checkpoint | None) -> None:
        config, directory, notify = self.config, self.directory, self.notify
        self.spec = self.groups[0].spec
        self.act_threads = self.threads if len(self.groups) == 1 else max(1, self.threads // 2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(config.seed, "model"))
            self.model: ActorCritic = make_model(config, self.spec).to(self.device)
        self.learner = Learner(self.model, config)
        self.generator = torch.Generator(self.device).manual_seed(derive_seed(config.seed, "actions"))
        self.progress = Progress(self.groups[0].frames_per_step)
        self.writer = MetricWriter(directory.path, resume_step=checkpoint.step if checkpoint else None,
                                   tensorboard=config.tensorboard)
        self.started = perf_counter()
        self.exact = True
        for note in self.groups[0].notes:
            notify(note)
        if self.config.eval_every == 0:
            notify(f"no evaluations beside training: best/ goes by the mean of {WINDOW} training games")
        self.saved_at: float | None = None
        self._pending: dict[str, float] = {}
        self._told_problem = False
        self._written_step = checkpoint.step if checkpoint else -1
        self.last_report: Report | None = None
        self.position = self._restore(checkpoint) if checkpoint else self._begin()
        if checkpoint is None:
            self.save()  # so that even a run that is killed in its first minute can be resumed

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""
        config, mean = self.config, self.progress.return_mean
        if config.stop_at_return is not None and mean is not None and len(self.progress.recent) == WINDOW \
                and mean >= config.stop_at_return:
            return True
        minutes = (perf_counter() - self.started) / 60
        return self.progress.step >= config.steps or 0 < config.max_minutes <= minutes

    def advance(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """One rollout, one update, and the evaluation and checkpoint that fall due at its step.

        `should_stop` is asked during an evaluation; one that it cuts short is made again by the first `advance` of a
        resume.
        """
        if self.progress.evaluation_due:
            self.evaluate(should_stop)
            if self.progress.evaluation_due:
                return
        self.exact = False
        torch.set_num_threads(self.act_threads)
        collected = collect(self.model, self.groups, self.position, length=self.config.rollout_length,
                            generator=self.generator)
        torch.set_num_threads(self.threads)
        before, started = self.progress.step, perf_counter()
        metrics = self.learner.update(collected.rollout, before)
        self.position, self.exact = collected.position, True
        self.progress.add(collected.rollout.rewards.numel(), collected.episodes, metrics,
                          env=collected.env_seconds, act=collected.act_seconds, learn=perf_counter() - started)
        step = self.progress.step
        if passed(self.config.eval_every, before, step):
            self.progress.evaluation_due = True
            self.evaluate(should_stop)
        if passed(self.config.save_every, before, step):
            self.save()

    def evaluate(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Play whole games with the current policy in environments of their own; keeps the best."""
        config = self.config
        envs = make_environments(config, num_envs=min(config.eval_episodes, 16), stream=EVALUATION_STREAM,
                                 evaluation=True, threads=config.threads)
        try:
            generator = torch.Generator(self.device).manual_seed(derive_seed(config.seed, "eval", self.progress.step))
            games = play(self.model, envs, episodes=config.eval_episodes, deterministic=self.family != "atari",
                         generator=generator, should_stop=should_stop)
        finally:
            envs.close()
        if should_stop():
            return
        self.progress.evaluation_due = False
        mean = fmean(game.score for game in games)
        self._pending = {"eval/mean_reward": mean, "eval/mean_ep_length": fmean(game.length for game in games)}
        self._keep_if_best(mean)

    def report(self, status: Status = "running") -> Report:
        """Metrics since the last report, also written to the run directory."""
        if self.last_report is not None and self.last_report.step == self.progress.step:
            return replace(self.last_report, status=status)
        metrics = self.progress.metrics() | self._pending
        self._pending = {}
        if self.progress.step > self._written_step:
            self.writer.write(self.progress.step, self.progress.seconds, metrics)
            self._written_step = self.progress.step
        if self.writer.problem and not self._told_problem:
            self.notify(self.writer.problem)
            self._told_problem = True
        now = perf_counter()
        if self.saved_at is not None:
            metrics["time/save_age"] = now - self.saved_at
        if self.config.max_minutes:
            metrics["time/minutes_share"] = (now - self.started) / 60 / self.config.max_minutes
        self.last_report = Report(self.progress.step, self.progress.seconds, metrics, status, str(self.directory.path))
        return self.last_report

    def save(self, *, final: bool = False) -> None:
        """Write a checkpoint and the summary. A failure is fatal only at the end: until then the next save retries."""
        if self.config.eval_every == 0 and len(self.progress.recent) == WINDOW:
            self._keep_if_best(float(self.progress.return_mean or 0.0))
        try:
            tensors, state = self._contents()
            save(self.directory.path, self.progress.step, tensors=tensors, state=state,
                 keep=self.config.keep_checkpoints)
            self.saved_at = perf_counter()
            self._write_summary("running")
        except CheckpointError as error:
            if final:
                raise
            later = f" Training goes on; the next attempt is {self.config.save_every:,} steps away."
            self.notify(f"{error}.{later if self.exact else ''}")

    def _write_summary(self, status: Status) -> None:
        try:
            self.directory.write_summary(self.summary(status))
        except VantageError as error:
            self.notify(str(error))

    def summary(self, status: Status) -> dict[str, Any]:
        """The contents of summary.json."""
        progress = self.progress
        return {"status": status, "steps": progress.step, "frames": progress.step * progress.frames_per_step,
                "seconds": progress.seconds, "fps": progress.step / max(1e-9, progress.seconds),
                "episodes": progress.episodes, "return_mean": progress.return_mean,
                "best_return": progress.best_return, "env": self.config.env, "algo": self.config.algo,
                "seed": self.config.seed}

    def close(self, status: Status) -> None:
        """Release the environments; say how it ended in summary.json and in the last report."""
        self.last_report = self.report(status)
        for group in self.groups:
            try:
                group.close()
            except Exception as error:  # all is saved: nothing is lost by what cannot be closed
                self.notify(f"closing the environments: {type(error).__name__}: {error}")
        self.writer.close()
        self._write_summary(status)

    def _begin(self) -> Position:
        first = join_firsts([group.reset() for group in self.groups])
        return Position.start(first, self.model.initial_state(self.config.num_envs), self.device)

    def _restore(self, checkpoint: Checkpoint) -> Position:
        tensors, state = checkpoint.tensors, checkpoint.state
        optimizer = state.get("optimizer", self.config.optimizer)
        try:
            if optimizer != self.config.optimizer:
                raise ValueError(f"it is of the optimizer {optimizer}")
            self.learner.load(tensors)
        except (KeyError, RuntimeError, ValueError) as error:
            raise ConfigError(f"{checkpoint.path} does not fit {self.directory.path / 'config.json'}, as if that had "
                              f"been edited since: {error}; restore it") from None
        self.generator.set_state(tensors["acting"]["generator"])
        self.progress.load(state["progress"])
        carried = tuple(tensors["acting"][f"state_{i}"].to(self.device) for i in range(state["state_tensors"]))
        records = [tensors.get(f"envs_{g}") for g in range(len(self.groups))]
        longest = max((int(record["action_counts"].max()) for record in records if record is not None), default=0)
        if longest * self.config.num_envs > LONG_REPLAY:
            self.notify(f"bringing the environments back to where they stood: replaying up to {longest:,} actions each")
        arrays = [None if record is None else {key: x.numpy() for key, x in record.items()} for record in records]
        first = join_firsts([group.reset(part) for group, part in zip(self.groups, arrays, strict=True)])
        if records[0] is None:
            self.notify("the checkpoint follows an error, so every environment begins a new episode")
        elif first.lost:
            self.notify(_lost_note(first))
        return Position.start(first, carried, self.device)

    def _contents(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        tensors = self.learner.tensors()
        state = self.position.state
        tensors["acting"] = {f"state_{i}": tensor for i, tensor in enumerate(state)}
        tensors["acting"]["generator"] = self.generator.get_state()
        if self.exact:
            for g, group in enumerate(self.groups):
                tensors[f"envs_{g}"] = {name: torch.from_numpy(np.ascontiguousarray(array))
                                        for name, array in group.record().items()}
        return tensors, {"progress": self.progress.state(), "spec": self.spec.to_json(),
                         "state_tensors": len(state), "optimizer": self.config.optimizer}

    def _keep_if_best(self, mean: float) -> None:
        # Of equals the newer: where a task has a highest score, the first to reach it is seldom the surest.
        if self.progress.best_return is not None and mean < self.progress.best_return:
            return
        former, self.progress.best_return = self.progress.best_return, mean
        tensors, state = self._contents()
        try:
            save_best(self.directory.path, self.progress.step, tensors=tensors, state=state)
        except CheckpointError as error:
            self.progress.best_return = former
            self.notify(f"{error}. The policy of step {self.progress.step:,}, the best so far, was not kept as best.")


def make_groups(config: Config, family: str) -> list[Environments]:
    """Training's environments: two groups where they step beside this process, so that it acts for one meanwhile.

    Emulators then have half the threads and acting the other half. Sharing all of them costs more than it gives:
    torch's threads go on spinning after an operation, on the cores that the emulators need (Nature CNN at 16 x 5 on
    2 cores: 1,060 steps/s in one group, 1,270 in two).
    """
    beside = (family == "atari" or config.vector == "async") and config.num_envs >= 4
    if not beside:
        return [make_environments(config, num_envs=config.num_envs, stream=0, threads=torch.get_num_threads())]
    sizes = [config.num_envs - config.num_envs // 2, config.num_envs // 2]
    groups: list[Environments] = []
    try:
        for g, size in enumerate(sizes):
            groups.append(make_environments(config, num_envs=size, first_env=sum(sizes[:g]), stream=0,
                                            threads=max(1, torch.get_num_threads() // 2)))
    except BaseException:
        for group in groups:
            group.close()
        raise
    return groups


def passed(every: int, before: int, step: int) -> bool:
    """A multiple of `every` lies in (before, step]; it depends on the steps alone, so a resumed run decides alike."""
    return every > 0 and step // every > before // every


def _lost_note(first: First) -> str:
    return (f"environments {', '.join(map(str, first.lost))} did not replay to the saved observation and begin a new "
            "episode: this resume is not exact")
