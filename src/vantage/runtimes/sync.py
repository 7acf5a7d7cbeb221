"""A2C: the environments take their steps and the learner learns from them in turn.

In one process; with `num_workers` in several, which share the environments and each update.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import Any

from torch import Tensor

from vantage.config import Config
from vantage.runs.checkpoint import Checkpoint, load_replay
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.evaluator import evaluate_policy
from vantage.runtimes.image_statistics import measure_images
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.ranks import Ranks, merge_ranks, rank_config
from vantage.runtimes.recorder import Recorder, Status, passed

log = logging.getLogger(__name__)


class SyncRun:
    """One actor-learner in this process, its ranks in others, its evaluations and its checkpoints."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        self.config = config
        replay = config.algorithm.needs.replay
        self._replay_save_every = 0 if replay is None else replay.save_every
        self.actor_learner = ActorLearner(rank_config(config))
        self.ranks: Ranks | None = None
        try:
            if config.runtime.num_workers > 1:
                self.ranks = Ranks(config, self.actor_learner)
            elif checkpoint is not None:
                checkpoint = merge_ranks(checkpoint)
            if initial is not None:
                self.actor_learner.learner.initialize_from(initial.tensors, initial.rewards)
            elif checkpoint is None:
                measure_images(self.actor_learner.model, config)
            notes = self.actor_learner.groups[0].notes
            for note in notes if self.ranks is None else notes[:-1]:  # the last says where they are
                log.info(note)
            self.progress = Progress(self.actor_learner.groups[0].frames_per_step, max(1, config.runtime.num_workers))
            self.recorder = Recorder(config, directory, checkpoint, self.progress)
            self.recorder.show_weights(self.actor_learner.model)
            if self.ranks is not None:
                log.info(f"{config.runtime.num_workers} processes, "
                         f"{self.actor_learner.config.env.num_envs} environments in each; "
                       "one update by all")
                self.ranks.start(checkpoint.tensors if checkpoint else None)
            if checkpoint is None:
                self.actor_learner.begin()
            else:
                self.actor_learner.restore(checkpoint)
                self.actor_learner.restore_replay(lambda: load_replay(directory.path), checkpoint.step)
            if self.ranks is not None:
                self.ranks.ready()
            if checkpoint is None:
                self.save()  # so that even a run that is killed in its first minute can be resumed
        except BaseException:
            self._let_go()
            raise

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""
        return self.recorder.finished

    def advance(self) -> Generator[None]:
        """One rollout, one update, and the evaluation and checkpoint that fall due at its step.

        An evaluation that is cut short stays due; a resume makes it before its first update.
        """
        if self.progress.evaluation_due:
            yield from self.evaluate()
        before = self.progress.step
        self.progress.add(self._learn(before))
        self.recorder.note_due_evaluation(before)
        if self.progress.evaluation_due:
            yield from self.evaluate()
        with_replay = passed(self._replay_save_every, before, self.progress.step)
        if with_replay or passed(self.config.run.save_every, before, self.progress.step):
            self.save()
        if with_replay:
            self._save_replay()

    def _learn(self, step: int) -> Advance:
        """One rollout and one update, by all processes."""
        def learn() -> Advance:
            return self.actor_learner.advance(lambda: step)

        return learn() if self.ranks is None else self.ranks.advance(learn, step)

    def evaluate(self) -> Generator[None]:
        """Play whole games with the current policy in separate environments and save it if it is the best so far."""
        metrics, solved = yield from evaluate_policy(self.actor_learner.model, self.config, self.progress.step)
        self.progress.evaluation_due, self.progress.solved = False, solved
        self.progress.evaluated()
        self.recorder.evaluated(metrics, self._contents, self.progress.step)

    def finish(self, *, evaluate: bool) -> Generator[None]:
        """Make the last evaluation if it is due and asked for; write the last checkpoint and the summary."""
        evaluates = evaluate and self.recorder.last_evaluation_due
        if evaluates:
            yield from self.evaluate()
        self.recorder.save(self._contents, final=True, again=evaluates)

    def save(self, *, failed: bool = False) -> None:
        """Write a checkpoint and the summary."""
        self.recorder.save(self._contents, retried=not failed)

    def _save_replay(self) -> None:
        replay = self.actor_learner.replay
        if replay is not None and len(replay):
            self.recorder.save_replay(replay.tensors())

    def close(self, status: Status) -> None:
        """Write the replay, release the environments and record how the run ended."""
        self._save_replay()
        try:
            self._let_go()
        except Exception as error:  # everything is saved already
            log.warning(f"closing the environments: {type(error).__name__}: {error}")
        self.recorder.close(status)

    def _let_go(self) -> None:
        try:
            self.actor_learner.close()
        finally:
            if self.ranks is not None:
                self.ranks.close()

    def _contents(self) -> tuple[Mapping[str, Mapping[str, Tensor]], dict[str, Any]]:
        tensors = self.actor_learner.tensors()
        if self.ranks is not None:
            tensors |= self.ranks.tensors()
        return tensors, {"progress": self.progress.state(), "optimizer": self.config.optimizer.optimizer,
                         "spec": self.actor_learner.spec.to_json()}
