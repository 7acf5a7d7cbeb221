"""The synchronous runtime: collect rollouts, learn from them, repeat.

It runs in one process, or with `num_workers` in data-parallel ranks, which `ranks` starts and
commands.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from vantage.config.config import Config
from vantage.errors import CheckpointError
from vantage.learning.learner_state import policy_tensors
from vantage.learning.replay import Replay
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.checkpoint_files import Groups, locate, read
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.acting_state import all_tensors, restore_acting
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.evaluator import Evaluator
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ranks import Ranks
from vantage.runtimes.recorder import Recorder, Status
from vantage.runtimes.startup import (
    add_demonstrations,
    load_learner,
    log_setting,
    measure_images,
)
from vantage.runtimes.steps import is_due

log = logging.getLogger(__name__)


class SyncRun:
    """One actor-learner in this process, further ranks in others; evaluations and checkpoints."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        replay = config.algorithm.needs.replay
        workers = config.num_processes
        self._replay_save_every = 0 if replay is None else replay.save_every
        self.actor_learner = ActorLearner(config)
        self.config = config.with_shifts(self.actor_learner.spec.shifts)
        self.ranks: Ranks | None = None
        self.evaluator: Evaluator | None = None
        with ExitStack() as on_error:
            on_error.callback(self._release)
            cloned = self._load_weights(checkpoint, initial, directory)
            self.progress = Progress(self.actor_learner.envs.frames_per_step, workers,
                                     self.config.run.return_window)
            self.recorder = Recorder(self.config, directory, checkpoint, self.progress,
                                     self.actor_learner.model, self._tensors,
                                     partial(policy_tensors, self.actor_learner.learner))
            on_error.callback(self.recorder.abandon)
            if self.config.run.evaluates:
                self.evaluator = Evaluator(self.config)
            if workers > 1:
                log.info(f"{workers} processes, {config.envs_per_process} environments in each; "
                         "one update by all")
                self.ranks = Ranks(self.config, self.actor_learner, checkpoint)
            self._begin_acting(checkpoint)
            for name, value in cloned.items():
                self.recorder.log(name, value)
            if checkpoint is None:
                self.recorder.save()  # a run that is killed in its first minute can then be resumed
            on_error.pop_all()

    def _load_weights(self, checkpoint: Checkpoint | None, initial: SavedPolicy | None,
                      directory: RunDirectory) -> dict[str, float]:
        """Initialise the model, or load it from `checkpoint` or `initial`; logs what it is.

        A new run then clones its demonstrations; returns the metrics of that.
        """
        actor_learner = self.actor_learner
        if initial is None and checkpoint is None:
            measure_images(actor_learner.model, self.config, actor_learner.envs)
        load_learner(actor_learner.learner, self.config, checkpoint, initial)
        notes = actor_learner.envs.notes
        if self.config.num_processes > 1:
            notes = notes[:-1]  # the last names the process of the environments
        log_setting(notes, actor_learner.model)
        return add_demonstrations(actor_learner.learner, self.config, directory.path,
                                  checkpoint)

    def _begin_acting(self, checkpoint: Checkpoint | None) -> None:
        """Reset the environments, or restore them from `checkpoint`; in ranks, wait for all."""
        actor_learner = self.actor_learner
        if checkpoint is None:
            actor_learner.begin()
        else:
            for note in restore_acting(actor_learner, checkpoint.tensors):
                log.warning(note)
            if actor_learner.replay is not None:
                restore_replay(actor_learner.replay, self.recorder.directory.path, checkpoint.step)
        if self.ranks is not None:
            self.ranks.ready()

    def advance(self) -> Generator[None]:
        """One rollout, one update, and the evaluation and checkpoint due at its step.

        An interrupted evaluation stays due; a resumed run makes it before its first update.
        """
        if self.recorder.evaluation_begins:
            yield from self.evaluate()
        before = self.progress.step
        if self.ranks is None:
            advance = self.actor_learner.advance(lambda: before)
        else:
            advance = self.ranks.advance(before)
        self.progress.add(advance)
        self.recorder.note_due_evaluation(before)
        if self.recorder.evaluation_begins:
            yield from self.evaluate()
        with_replay = is_due(self._replay_save_every, before, self.progress.step)
        if with_replay or is_due(self.config.run.save_every, before, self.progress.step):
            self.recorder.save()
        if with_replay:
            self._save_replay()

    def evaluate(self) -> Generator[None]:
        """Play whole games with the current policy; save it if it is the best so far."""
        assert self.evaluator is not None
        started = perf_counter()
        progress = self.progress
        result = yield from self.evaluator.evaluate(
            self.policy(), progress.step, longest_game=progress.longest_game(),
            best=progress.best_return)
        progress.add(Advance(eval_seconds=perf_counter() - started))
        progress.restart_evaluation_clock()
        self.recorder.record_evaluation(result, progress.step)

    def policy(self) -> ActorCritic:
        """The current policy, averaged with eval_ema; further updates change its weights."""
        return self.actor_learner.learner.policy

    def save(self) -> None:
        """Write a checkpoint now, and the replay if there is one."""
        self.recorder.save(final=True)
        self._save_replay()

    def change(self, values: Mapping[str, Any]) -> None:
        self.config = self.config.change(**values)
        self.recorder.change(values)
        self.actor_learner.change(values)
        if self.ranks is not None:
            self.ranks.change(values)

    def stop(self) -> None:
        """Does nothing: no update is under way between two calls of `advance`."""

    def close(self, status: Status) -> None:
        try:
            self._save_replay()
        finally:
            try:
                self._release()
            except Exception as error:  # everything is saved already
                log.warning(f"closing the environments: {type(error).__name__}: {error}")
            self.recorder.close(status)

    def _save_replay(self) -> None:
        replay = self.actor_learner.replay
        if replay is not None and len(replay):
            self.recorder.save_replay(replay.tensors)

    def _release(self) -> None:
        try:
            self.actor_learner.close()
        finally:
            if self.ranks is not None:
                self.ranks.close()
            if self.evaluator is not None:
                self.evaluator.close()

    def _tensors(self) -> Groups:
        tensors: dict[str, Mapping[str, Tensor]] = dict(all_tensors(self.actor_learner))
        if self.ranks is not None:
            tensors |= self.ranks.tensors()
        return tensors


def restore_replay(replay: Replay, run: Path, step: int) -> None:
    """Load the replay of the run, saved with the checkpoint of `step`.

    Logs a warning where there is none or it is of another step.
    """
    try:
        path = locate(run / "replay")
        if path is None:
            raise CheckpointError("none was saved")
        saved_step, _, groups = read(path)
        replay.load(groups)
    except (CheckpointError, KeyError, RuntimeError, ValueError) as error:
        log.warning(f"the replay is filled again before updates use it: {error}; "
                    "this resume is not exact")
    else:
        if saved_step != step:
            log.warning(f"the replay was saved at step {saved_step:,}, the checkpoint at "
                        f"{step:,}: it is good to learn from, but this resume is not exact")
