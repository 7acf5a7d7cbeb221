"""Data-parallel ranks under `sync`, as rank 0 sees them: how they are started, commanded and ended.

Ranks are processes that split the environments and share every update; `rank_worker` is what ranks
above 0 do. Rank 0 evaluates, logs and writes; the others execute its commands. Either rank 0 starts
them (`num_workers`), or torchrun starts all. Gradients are combined in `shared_gradients` for ranks
on one CPU, otherwise in `collectives`.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np
from torch import Tensor

from vantage._host.processes import importing_main, stop_signals_blocked
from vantage._host.time_limit import TimeLimit
from vantage.config.config import Config
from vantage.envs.ids import needs_main
from vantage.errors import EnvError, NonFiniteError, VantageError
from vantage.learning.learner_state import tensors_of
from vantage.learning.running_statistics import running_stats
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.compatibility import restoring
from vantage.runtimes import collectives
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.child_processes import Process, start
from vantage.runtimes.collectives import RankLostError, gather, torchrun_rank_and_size
from vantage.runtimes.progress import Advance
from vantage.runtimes.rank_worker import Command, rank_main, share_weights
from vantage.runtimes.shared_gradients import RankMemory
from vantage.runtimes.startup import next_episodes

log = logging.getLogger(__name__)

STOP_SECONDS = 3.5
"""Seconds that ranks have to close their environments when the run stops; then they are killed."""


class Ranks:
    """The ranks above 0 of a run, which rank 0 starts and commands.

    `actor_learner` is that of rank 0.
    """

    def __init__(self, config: Config, actor_learner: ActorLearner,
                 checkpoint: Checkpoint | None) -> None:
        self._config = config
        self._actor_learner = actor_learner
        self._processes: dict[int, Process] = {}
        self._failure: VantageError | None = None
        self._waiting = False
        """All ranks wait for the next command."""
        self._folder = TemporaryDirectory(prefix="vantage-ranks-")
        learner = actor_learner.learner
        tensors = {} if checkpoint is None else checkpoint.tensors
        acting = {name: group for name, group in tensors.items() if name.startswith("partner_")}
        episode = None
        if checkpoint is not None:
            with restoring((RuntimeError, TypeError, ValueError)):
                episode = int(np.max(next_episodes(tensors, num_envs=0)))
        try:
            shared = None
            if torchrun_rank_and_size() is None:
                shared = self._start(Path(self._folder.name) / "store")
            else:
                collectives.join()
            with self._raising_lost_ranks():
                weights: dict[str, dict[str, Tensor]] = {}
                for name, group in tensors_of(learner).items():
                    weights[name] = {key: tensor.cpu() for key, tensor in group.items()}
                cloning = learner.cloning
                demonstrations = None if cloning is None else cloning.demonstrations
                collectives.broadcast((config, weights, acting, episode, demonstrations))
                self._weights = share_weights(learner, 0, shared, self._check)
        except BaseException:
            self.close()
            raise

    def _start(self, store: Path) -> RankMemory | None:
        """Start the ranks and connect them; returns their shared memory, None on GPUs."""
        context = multiprocessing.get_context("spawn")
        size = self._config.runtime.num_workers
        shared = self._rank_memory(context) if self._actor_learner.device.type == "cpu" else None
        with stop_signals_blocked(), importing_main(needs_main(self._config.env)):
            for rank in range(1, size):
                self._processes[rank] = start(context, f"vantage-rank-{rank}", rank_main, store,
                                              rank, size, shared)
        with self._raising_lost_ranks():
            for rank in self._processes:
                self._message_of(rank)  # its imports are done
            self._check(collecting=False)
        collectives.join(store, 0, size)
        return shared

    @property
    def _sentinels(self) -> list[int]:
        """Each becomes ready when the process of its rank ends."""
        return [process.process.sentinel for process in self._processes.values()]

    def _rank_memory(self, context: SpawnContext) -> RankMemory:
        learner = self._actor_learner.learner
        statistics = sum(part.numel() for _, normalizer in running_stats(learner)
                         for part in normalizer.stats)
        buffers = 0 if learner.buffers is None else len(learner.buffers.read())
        curiosity = 0 if learner.curiosity is None else len(learner.curiosity.flat.vector) + 8
        # 512 numbers have room for 254 metrics and the numbers that `SharedMetrics` adds.
        columns = max(512, statistics, buffers, curiosity)
        return RankMemory(len(learner.flat.vector), self._config.runtime.num_workers, columns,
                          self._config.optimizer, context)

    def _check(self, collecting: bool) -> None:
        """Raise if a rank has ended, or if this process shall stop while ranks still collect."""
        if wait(self._sentinels, 0):
            raise RankLostError
        if collecting:  # no rank has changed the weights yet
            TimeLimit.check("of another process")

    def ready(self) -> None:
        """Wait until all ranks can act; logs what they could not restore."""
        with self._raising_lost_ranks():
            restored = gather(([], self._actor_learner.num_past))
            for rank, (notes, _) in enumerate(restored):
                for note in notes:
                    log.warning(f"process {rank + 1}: {note}")
            same = len({count for _, count in restored}) == 1
            collectives.broadcast(same)
            if not same:
                self._actor_learner.forget_past()
                log.warning("the past rollouts of some processes are lost, so all collect theirs "
                            "again")
        self._waiting = True

    def advance(self, step: int) -> Advance:
        """One update of all ranks at `step`; returns the sum of their results."""
        try:
            with self._commanding(Command.ADVANCE, step):
                total = self._actor_learner.advance(lambda: step)
                # Under torchrun there are no pipes.
                others = [self._message_of(rank) for rank in self._processes] or gather(None)[1:]
                for other in others:
                    total += other
        except BaseException:
            self._actor_learner.exact = False  # one update ahead of the counters
            raise
        return total

    def _message_of(self, rank: int) -> Any:
        """The next message of a rank above 0; raises its failure if it has ended.

        RankLostError if another has ended meanwhile, for which this one may wait in vain.
        """
        process = self._processes[rank]
        wait([process.connection, *self._sentinels])
        try:
            message = next(process.messages())
        except StopIteration:
            raise RankLostError from None
        if isinstance(message, VantageError):
            self._failure = self._failure_of(rank, message)
            raise self._failure
        return message

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """The acting tensors of the ranks; empty if one has failed: the next `advance` raises."""
        if not self._waiting:
            return {}
        try:
            with self._commanding(Command.SAVE):
                snapshots: dict[str, Mapping[str, Tensor]] = {}
                for rank, groups in enumerate(gather({})):
                    for name, tensors in groups.items():
                        snapshots[f"partner_{rank}_{name}"] = tensors
                return snapshots
        except VantageError as error:
            log.warning(f"{error}; the checkpoint lacks the state of the environments of that "
                        "process")
            return {}

    def change(self, values: Mapping[str, Any]) -> None:
        """Let the ranks continue with other coefficients."""
        with self._commanding(Command.CHANGE):
            collectives.broadcast(dict(values))

    def close(self) -> None:
        """End the processes: by a command if they wait for one, otherwise by a signal."""
        try:
            if self._waiting:
                with suppress(VantageError), self._commanding(Command.STOP):
                    deadline = monotonic() + STOP_SECONDS
                    for process in self._processes.values():
                        process.process.join(max(0.0, deadline - monotonic()))
        finally:
            self._waiting = False
            while self._processes:
                self._processes.popitem()[1].end()
            collectives.leave()
            self._folder.cleanup()

    @contextmanager
    def _commanding(self, command: Command, step: int = 0) -> Iterator[None]:
        self._waiting = False
        with self._raising_lost_ranks():
            self._weights.share_command(command, step)
            yield
        self._waiting = True

    @contextmanager
    def _raising_lost_ranks(self) -> Iterator[None]:
        """Raise the failure of a rank that has ended."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except RankLostError:
            self._failure = self._lost()
            raise self._failure from None

    def _lost(self) -> VantageError:
        ended = wait(self._sentinels, STOP_SECONDS)
        for rank, process in self._processes.items():
            if process.process.sentinel in ended:
                # The exit code follows the sentinel after a moment.
                process.process.join(STOP_SECONDS)
                messages = process.messages()
                error = next(message for message in messages if isinstance(message, VantageError))
                return self._failure_of(rank, error)
        return VantageError("another rank has ended; its own output says why")

    def _failure_of(self, rank: int, error: VantageError) -> VantageError:
        if isinstance(error, EnvError | NonFiniteError):
            return error
        return VantageError(
            f"process {rank + 1} of {self._config.runtime.num_workers} failed: {error}")
