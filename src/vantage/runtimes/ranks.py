"""Data-parallel ranks under `sync`: processes that split the environments and share every update.

The main process is rank 0 and sends each command; the other ranks wait for it. How gradients are combined is in
`barrier`.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import IntEnum
from multiprocessing.connection import Connection
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage.config import Config
from vantage.envs.ids import resolve_env
from vantage.errors import VantageError
from vantage.runs.checkpoint import Checkpoint
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.barrier import RankMemory, RankWeights
from vantage.runtimes.parts import Parts
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedMemory
from vantage.runtimes.worker import Failure, Process, start
from vantage.system import compute_for_long, deaf_to_signals, keep_freed_memory
from vantage.types import Episode

log = logging.getLogger(__name__)

STOP_SECONDS = 3.5
"""Seconds that ranks have to close their environments when the run stops; then they are killed."""

_main_hidden = Lock()

ActingSnapshot = Mapping[str, Mapping[str, np.ndarray]]
"""`ActorLearner.acting_tensors` of a rank, as NumPy arrays."""


class Command(IntEnum):
    """What every rank does next."""

    ADVANCE = 0
    SAVE = 1
    STOP = 2
    ENV, ACT, LEARN = 3, 4, 5
    """One part of an update alone, for timings."""


class Mailbox:
    """Shared-memory mailbox: commands to ranks, results back. A pipe would wake a waiting process too late."""

    def __init__(self, config: Config, context: multiprocessing.context.SpawnContext) -> None:
        num_ranks = config.runtime.num_workers
        most = config.env.num_envs // num_ranks * config.runtime.rollouts_per_update * config.runtime.rollout_lengths[0]
        self._memory = SharedMemory({"command": torch.zeros(2, dtype=torch.int64),
                                     "seconds": torch.zeros(num_ranks, 3, dtype=torch.float64),
                                     "counts": torch.zeros(num_ranks, 2, dtype=torch.int64),
                                     "episodes": torch.zeros(num_ranks, most, 3, dtype=torch.float64)}, context)

    @property
    def command(self) -> tuple[Command, int]:
        """The next command, and the step of the run at which it was sent."""
        what, step = self._memory["command"].tolist()
        return Command(what), step

    @command.setter
    def command(self, command: tuple[Command, int]) -> None:
        self._memory["command"][:] = torch.tensor(command)

    def post(self, rank: int, advance: Advance) -> None:
        """Store the result of the update of one rank."""
        self._memory["seconds"][rank] = torch.tensor([advance.env_seconds, advance.act_seconds, advance.learn_seconds],
                                                      dtype=torch.float64)
        self._memory["counts"][rank] = torch.tensor([advance.steps, len(advance.episodes)])
        rows = self._memory["episodes"][rank, :len(advance.episodes)]
        for row, game in zip(rows, advance.episodes, strict=True):
            row[:] = torch.tensor([game.env, game.score, game.length], dtype=torch.float64)

    def read(self, rank: int) -> Advance:
        """The result that one rank posted, without metrics, which rank 0 has."""
        steps, games = self._memory["counts"][rank].tolist()
        episodes = tuple(Episode(int(env), score, int(length))
                         for env, score, length in self._memory["episodes"][rank, :games].tolist())
        return Advance(steps, 0, episodes, {}, *self._memory["seconds"][rank].tolist())


class Ranks:
    """The ranks above 0 of a run; the main process is rank 0 with `actor_learner` and the first environments."""

    def __init__(self, config: Config, actor_learner: ActorLearner) -> None:
        context = multiprocessing.get_context("spawn")
        self._config, self._actor_learner = config, actor_learner
        self._memory = RankMemory(actor_learner.model, config, context)
        self._mailbox = Mailbox(config, context)
        self._weights = self._memory.join(actor_learner.learner, 0)
        self._weights.check = self._check
        self._processes: dict[int, Process] = {}
        self._messages: dict[int, Any] = {}
        self._context = context
        self._lost: list[int] = []
        self._failure: VantageError | None = None
        self._waiting = False
        """All ranks wait for the next command."""

    def start(self, saved: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        """Start the processes, from a checkpoint that holds `tensors` or with new episodes; `ready` waits for them."""
        acting = {rank: _acting_of(rank, saved or {}) for rank in range(1, self._config.runtime.num_workers)}
        self._lost = [] if saved is None else [rank for rank, snapshot in acting.items() if snapshot is None]
        with deaf_to_signals(), _without_main(self._config):
            for rank, snapshot in acting.items():
                self._processes[rank] = start(self._context, f"vantage-rank-{rank}", work, self._config, rank,
                                               self._memory, self._mailbox, snapshot)

    def ready(self) -> None:
        """Wait until all ranks act; logs what a rank could not restore."""
        for rank in self._processes:
            notes = self._receive(rank)
            if rank in self._lost:
                notes.append("the checkpoint follows an error, so its environments begin new episodes")
            for note in notes:
                log.warning(f"process {rank + 1}: {note}")
        self._waiting = True

    def advance(self, advance: Callable[[], Advance], step: int) -> Advance:
        """One update of all ranks at `step`, of rank 0 by `advance`; returns the sum of their results."""
        self._send(Command.ADVANCE, step)
        total = advance()
        try:
            self._weights.barrier()
        except BaseException:
            self._actor_learner.exact = False  # one update ahead of the counters
            raise
        self._waiting = True
        for rank in self._processes:
            total += self._mailbox.read(rank)
        return total

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The acting snapshots of the ranks; empty where one has failed, which the next `advance` raises."""
        if not self._waiting:
            return {}
        try:
            self._send(Command.SAVE)
            snapshot = {f"partner_{rank}_{name}": {key: torch.from_numpy(array) for key, array in arrays.items()}
                     for rank in self._processes for name, arrays in self._receive(rank).items()}
        except VantageError as error:
            self._failure = error
            log.warning(f"{error}; the checkpoint lacks the state of the environments of that process")
            return {}
        self._waiting = True
        return snapshot

    def time_part(self, command: Command, part: Callable[[], None]) -> None:
        """One part of an update on all ranks, on rank 0 by `part`; returns when all are done."""
        self._send(command)
        part()
        self._weights.barrier()
        self._waiting = True

    def close(self) -> None:
        """End the processes: by a command where they wait for one, else by a signal."""
        if self._waiting:
            with suppress(VantageError):  # a rank has already ended
                self._send(Command.STOP)
                deadline = monotonic() + STOP_SECONDS
                for process in self._processes.values():
                    process.process.join(max(0.0, deadline - monotonic()))
        for process in self._processes.values():
            process.end()
        self._processes = {}

    def _send(self, command: Command, step: int = 0) -> None:
        self._waiting = False
        if self._failure is not None:
            raise self._failure
        self._mailbox.command = command, step
        self._weights.barrier()

    def _check(self) -> None:
        """Raise the failure of a rank that has ended; other messages wait for `_receive`."""
        for rank, process in self._processes.items():
            alive = process.process.is_alive()  # before its last messages are read
            if process.connection.poll():
                self._messages[rank] = _receive_from(process)
            elif not alive:
                self._messages[rank] = Failure.of_end(process.process)
            if isinstance(message := self._messages.get(rank), Failure):
                raise message.error() if message.kind in ("env", "numbers") else VantageError(
                    f"process {rank + 1} of {self._config.runtime.num_workers} failed: {message.message}")

    def _receive(self, rank: int) -> Any:
        while rank not in self._messages:
            self._processes[rank].connection.poll(0.1)
            self._check()
        return self._messages.pop(rank)


def _receive_from(process: Process) -> Any:
    try:
        return process.connection.recv()
    except (EOFError, OSError):
        return Failure.of_end(process.process)


def rank_config(config: Config) -> Config:
    """The config of one rank: its share of the environments."""
    return config.change(num_envs=config.env.num_envs // max(1, config.runtime.num_workers))


def work(connection: Connection, config: Config, rank: int, memory: RankMemory, mailbox: Mailbox,
         saved: ActingSnapshot | None) -> None:
    """Main function of a rank: execute the commands of rank 0 until STOP."""
    torch.set_num_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()
    actor_learner = ActorLearner(rank_config(config), worker=rank, index=rank)
    notes: list[str] = []
    handler = _Collector(notes)
    logging.getLogger("vantage").addHandler(handler)
    if saved is None:
        actor_learner.begin()
    else:
        actor_learner.restore_acting({name: {key: torch.from_numpy(array) for key, array in arrays.items()}
                                      for name, arrays in saved.items()})
    weights = memory.join(actor_learner.learner, rank)
    logging.getLogger("vantage").removeHandler(handler)
    connection.send(notes)
    _serve(connection, actor_learner, weights, mailbox)
    actor_learner.close()


class _Collector(logging.Handler):
    """Collects the text of warnings for the main process."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


def _serve(connection: Connection, actor_learner: ActorLearner, weights: RankWeights, mailbox: Mailbox) -> None:
    parts: Parts | None = None
    while True:
        weights.barrier()
        command, step = mailbox.command
        match command:
            case Command.ADVANCE:
                mailbox.post(weights.rank, actor_learner.advance(lambda: step))  # noqa: B023  called at once
            case Command.SAVE:
                connection.send({name: {key: tensor.numpy() for key, tensor in tensors.items()}
                                 for name, tensors in actor_learner.acting_tensors().items()})
                continue
            case Command.STOP:
                return
            case _:
                parts = parts or Parts(actor_learner)
                {Command.ENV: parts.env, Command.ACT: parts.act, Command.LEARN: parts.learn}[command]()
        weights.barrier()


def _acting_of(rank: int, saved: Mapping[str, Mapping[str, Tensor]]) -> ActingSnapshot | None:
    """The acting snapshot of one rank in a checkpoint; None if there is none."""
    prefix = f"partner_{rank}_"
    return {name.removeprefix(prefix): {key: tensor.numpy() for key, tensor in tensors.items()}
            for name, tensors in saved.items() if name.startswith(prefix)} or None


def merge_ranks(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint of several ranks as one of a single process; unchanged if it has one rank."""
    tensors = dict(checkpoint.tensors)
    ranks = sorted({int(name.split("_")[1]) for name in tensors if name.startswith("partner_")})
    if not ranks:
        return checkpoint
    actings = [dict(tensors["acting"]), *(dict(tensors.pop(f"partner_{rank}_acting")) for rank in ranks)]
    tensors["acting"] = actings[0] | {name: torch.cat([acting[name] for acting in actings])
                                      for name in actings[0] if name.startswith("state_")}
    for rank in ranks:
        tensors[f"envs_{rank}"] = tensors.pop(f"partner_{rank}_envs_0")
    return replace(checkpoint, tensors=tensors)


@contextmanager
def _without_main(config: Config) -> Iterator[None]:
    """Start processes that do not import the program's main module, on Atari, where they need nothing from it.

    With multiprocessing's default a script that trains A2C on Atari would need `if __name__ == "__main__"`.
    """
    if resolve_env(config.env.id, config.env.atari_protocol).atari is None:
        yield
        return
    with _main_hidden:
        main: dict[str, Any] = sys.modules["__main__"].__dict__
        hidden: dict[str, Any] = {name: main.pop(name) for name in ("__spec__", "__file__") if name in main}
        main["__spec__"] = None
        try:
            yield
        finally:
            del main["__spec__"]
            main.update(hidden)
