"""The synchronous runtime: the environments take their steps, then the learner learns from them.

In one process, or with `num_workers` in data-parallel ranks, which `ranks` starts and commands.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from vantage.config.config import Config
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.checkpoint_files import Groups
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.actor_learner import ActorLearner, replay_share
from vantage.runtimes.evaluator import Evaluator
from vantage.runtimes.image_statistics import measure_images
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ranks import Ranks, rank_config
from vantage.runtimes.recorder import Recorder, Status, passed
from vantage.runtimes.startup import load_learner, log_setting

log = logging.getLogger(__name__)


class SyncRun:
    """One actor-learner in this process, further ranks in others, and their evaluations and checkpoints."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        replay, workers = config.algorithm.needs.replay, config.num_processes
        self._replay_save_every = 0 if replay is None else replay.save_every
        self.actor_learner = one = ActorLearner(rank_config(config), replay_bytes=replay_share(workers))
        self.config = config = config.with_shifts(one.spec.shifts)
        self.ranks: Ranks | None = None
        self.evaluator: Evaluator | None = None
        with ExitStack() as stack:  # undone where the run cannot start
            stack.callback(self._release)
            if initial is None and checkpoint is None:
                measure_images(one.model, config, one.envs)
            load_learner(one.learner, config, checkpoint, initial)
            notes = one.envs.notes
            log_setting(notes if workers == 1 else notes[:-1], one.model)  # the last says where they are
            self.progress = Progress(one.envs.frames_per_step, workers, config.run.return_window)
            self.recorder = Recorder(config, directory, checkpoint, self.progress, one.model, self._tensors,
                                     one.learner.policy_tensors)
            stack.callback(self.recorder.abandon)
            if config.run.evaluates:
                self.evaluator = Evaluator(config)
            if workers > 1:
                log.info(f"{workers} processes, {one.config.env.num_envs} environments in each; one update by all")
                self.ranks = Ranks(config, one, checkpoint)
            if checkpoint is None:
                one.begin()
            else:
                for note in one.restore_acting(checkpoint.tensors):
                    log.warning(note)
                one.restore_replay(self.recorder.directory.path, checkpoint.step)
            if self.ranks is not None:
                self.ranks.ready()
            if checkpoint is None:
                self.recorder.save()  # so that even a run that is killed in its first minute can be resumed
            stack.pop_all()

    def advance(self) -> Generator[None]:
        """One rollout, one update, and the evaluation and checkpoint that fall due at its step.

        An evaluation that is cut short stays due; a resume makes it before its first update.
        """
        if self.recorder.evaluation_begins:
            yield from self.evaluate()
        before = self.progress.step
        self.progress.add(self.actor_learner.advance(lambda: before) if self.ranks is None
                          else self.ranks.advance(before))
        self.recorder.note_due_evaluation(before)
        if self.recorder.evaluation_begins:
            yield from self.evaluate()
        with_replay = passed(self._replay_save_every, before, self.progress.step)
        if with_replay or passed(self.config.run.save_every, before, self.progress.step):
            self.recorder.save()
        if with_replay:
            self._save_replay()

    def evaluate(self) -> Generator[None]:
        """Play whole games with the current policy in separate environments and save it if it is the best so far."""
        assert self.evaluator is not None
        started, progress = perf_counter(), self.progress
        evaluated = yield from self.evaluator.evaluate(
            self.actor_learner.model, progress.step, longest_game=progress.longest_game(), best=progress.best_return)
        progress.add(Advance(eval_seconds=perf_counter() - started))
        progress.evaluated()
        self.recorder.evaluated(evaluated, progress.step)

    def policy(self) -> ActorCritic:
        """The current policy, which further updates change."""
        return self.actor_learner.model

    def save(self) -> None:
        """Write a checkpoint now, and the replay if there is one."""
        self.recorder.save(final=True)
        self._save_replay()

    def change(self, values: Mapping[str, Any]) -> None:
        """Go on with other coefficients, in all ranks."""
        self.config = self.config.change(**values)
        self.recorder.change(values)
        self.actor_learner.change(values)
        if self.ranks is not None:
            self.ranks.change(values)

    def stop(self) -> None:
        """Nothing runs between two calls of `advance`."""

    def close(self, status: Status) -> None:
        """Write the replay, release the environments and record how the run ended."""
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
        return {**self.actor_learner.tensors(), **({} if self.ranks is None else self.ranks.tensors())}
