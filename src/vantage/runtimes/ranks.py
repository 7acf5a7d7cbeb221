"""Processes that collect and learn together with the main one: each has some of the environments, all one update.

The main process leads: it says what all do next, partners wait for that. How their gradients become one update is in
`learning.joint`.
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
from vantage.runtimes.barrier import JointWeights, Member
from vantage.runtimes.parts import Parts
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedMemory
from vantage.runtimes.worker import Failure, Process, start
from vantage.system import compute_for_long, deaf_to_signals, keep_freed_memory
from vantage.types import Episode

log = logging.getLogger(__name__)

STOP_SECONDS = 3.5
"""How long partners may take to close their environments when the run stops; then they are killed."""

_main_hidden = Lock()

Acting = Mapping[str, Mapping[str, np.ndarray]]
"""Where a partner's acting stands, as `ActorLearner.acting_tensors` has it."""


class Order(IntEnum):
    """What all do next."""

    ADVANCE = 0
    SAVE = 1
    STOP = 2
    ENV, ACT, LEARN = 3, 4, 5
    """A part of an update alone, to be timed."""


class Told:
    """What partners tell of an update and are told to do: in memory, for a pipe would wake nobody in time."""

    def __init__(self, config: Config, context: multiprocessing.context.SpawnContext) -> None:
        members = config.runtime.num_workers
        most = config.env.num_envs // members * config.runtime.rollouts_per_update * config.runtime.rollout_lengths[0]
        self._memory = SharedMemory({"order": ((2,), torch.int64), "seconds": ((members, 3), torch.float64),
                                     "counts": ((members, 2), torch.int64),
                                     "episodes": ((members, most, 3), torch.float64)}, context)

    @property
    def order(self) -> tuple[Order, int]:
        """What to do, at which step of the run."""
        what, step = self._memory["order"].tolist()
        return Order(what), step

    @order.setter
    def order(self, given: tuple[Order, int]) -> None:
        self._memory["order"][:] = torch.tensor(given)

    def tell(self, place: int, advance: Advance) -> None:
        """The partner at `place` has made this of its update."""
        self._memory["seconds"][place] = torch.tensor([advance.env_seconds, advance.act_seconds, advance.learn_seconds],
                                                      dtype=torch.float64)
        self._memory["counts"][place] = torch.tensor([advance.steps, len(advance.episodes)])
        rows = self._memory["episodes"][place, :len(advance.episodes)]
        for row, game in zip(rows, advance.episodes, strict=True):
            row[:] = torch.tensor([game.env, game.score, game.length], dtype=torch.float64)

    def hear(self, place: int) -> Advance:
        """What that partner told; the update and its metrics are the main process's."""
        steps, games = self._memory["counts"][place].tolist()
        episodes = tuple(Episode(int(env), score, int(length))
                         for env, score, length in self._memory["episodes"][place, :games].tolist())
        return Advance(steps, 0, episodes, {}, *self._memory["seconds"][place].tolist())


class Partners:
    """The other processes of a run whose main process has `actor_learner`, with the first of the environments."""

    def __init__(self, config: Config, actor_learner: ActorLearner) -> None:
        context = multiprocessing.get_context("spawn")
        self._config, self._actor_learner = config, actor_learner
        self._joint = JointWeights(actor_learner.model, config, context)
        self._told = Told(config, context)
        self._member = self._joint.join(actor_learner.learner, 0)
        self._member.check = self._check
        self._processes: dict[int, Process] = {}
        self._said: dict[int, Any] = {}
        self._context = context
        self._lost: list[int] = []
        self._failure: VantageError | None = None
        self._waiting = False
        """All partners wait for the next order."""

    def start(self, saved: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        """Let them begin, from a checkpoint with what `tensors` gave or from new episodes. `ready` waits for them."""
        acting = {place: _acting_of(place, saved or {}) for place in range(1, self._config.runtime.num_workers)}
        self._lost = [] if saved is None else [place for place, found in acting.items() if found is None]
        with deaf_to_signals(), _without_main(self._config):
            for place, found in acting.items():
                self._processes[place] = start(self._context, f"vantage-partner-{place}", work, self._config, place,
                                               self._joint, self._told, found)

    def ready(self) -> None:
        """Wait until all have begun; logs what could not be brought back."""
        for place in self._processes:
            notes = self._receive(place)
            if place in self._lost:
                notes.append("the checkpoint follows an error, so its environments begin new episodes")
            for note in notes:
                log.warning(f"process {place + 1}: {note}")
        self._waiting = True

    def lead(self, advance: Callable[[], Advance], step: int) -> Advance:
        """All make one update at `step`, this process by `advance`; returns what it came to, all together."""
        self._give(Order.ADVANCE, step)
        total = advance()
        try:
            self._member.meet()
        except BaseException:
            self._actor_learner.exact = False  # it is an update further than what is counted
            raise
        self._waiting = True
        for place in self._processes:
            total += self._told.hear(place)
        return total

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Where the partners' acting stands; nothing where one has failed, which the next `lead` raises."""
        if not self._waiting:
            return {}
        try:
            self._give(Order.SAVE)
            found = {f"partner_{place}_{name}": {key: torch.from_numpy(array) for key, array in arrays.items()}
                     for place in self._processes for name, arrays in self._receive(place).items()}
        except VantageError as error:
            self._failure = error
            log.warning(f"{error}; the checkpoint lacks where the environments of that process stood")
            return {}
        self._waiting = True
        return found

    def part(self, order: Order, part: Callable[[], None]) -> None:
        """All do a part of an update alone, this process by `part`; done when all have."""
        self._give(order)
        part()
        self._member.meet()
        self._waiting = True

    def close(self) -> None:
        """End them: in order where they wait, else at once."""
        if self._waiting:
            with suppress(VantageError):  # one has ended already
                self._give(Order.STOP)
                deadline = monotonic() + STOP_SECONDS
                for process in self._processes.values():
                    process.process.join(max(0.0, deadline - monotonic()))
        for process in self._processes.values():
            process.end()
        self._processes = {}

    def _give(self, order: Order, step: int = 0) -> None:
        self._waiting = False
        if self._failure is not None:
            raise self._failure
        self._told.order = order, step
        self._member.meet()

    def _check(self) -> None:
        """Raise what has ended a partner. What another has said meanwhile is kept for `_receive`."""
        for place, process in self._processes.items():
            alive = process.process.is_alive()  # asked before its last words are read
            if process.connection.poll():
                self._said[place] = _hear(process)
            elif not alive:
                self._said[place] = Failure.of_end(process.process)
            if isinstance(said := self._said.get(place), Failure):
                raise said.error() if said.kind in ("env", "numbers") else VantageError(
                    f"process {place + 1} of {self._config.runtime.num_workers} failed: {said.message}")

    def _receive(self, place: int) -> Any:
        while place not in self._said:
            self._processes[place].connection.poll(0.1)
            self._check()
        return self._said.pop(place)


def _hear(process: Process) -> Any:
    try:
        return process.connection.recv()
    except (EOFError, OSError):
        return Failure.of_end(process.process)


def part_of(config: Config) -> Config:
    """The config of each of its processes, which has its share of the environments."""
    return config.change(num_envs=config.env.num_envs // max(1, config.runtime.num_workers))


def work(connection: Connection, config: Config, place: int, joint: JointWeights, told: Told,
         saved: Acting | None) -> None:
    """Do as the main process orders, until it says stop."""
    torch.set_num_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()
    actor_learner = ActorLearner(part_of(config), worker=place, index=place)
    notes: list[str] = []
    handler = _Collector(notes)
    logging.getLogger("vantage").addHandler(handler)
    if saved is None:
        actor_learner.begin()
    else:
        actor_learner.restore_acting({name: {key: torch.from_numpy(array) for key, array in arrays.items()}
                                      for name, arrays in saved.items()})
    member = joint.join(actor_learner.learner, place)
    logging.getLogger("vantage").removeHandler(handler)
    connection.send(notes)
    _obey(connection, actor_learner, member, told)
    actor_learner.close()


class _Collector(logging.Handler):
    """Collects the text of warnings for the main process."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


def _obey(connection: Connection, actor_learner: ActorLearner, member: Member, told: Told) -> None:
    parts: Parts | None = None
    while True:
        member.meet()
        order, step = told.order
        match order:
            case Order.ADVANCE:
                told.tell(member.place, actor_learner.advance(lambda: step))  # noqa: B023  asked before the next order
            case Order.SAVE:
                connection.send({name: {key: tensor.numpy() for key, tensor in tensors.items()}
                                 for name, tensors in actor_learner.acting_tensors().items()})
                continue
            case Order.STOP:
                return
            case _:
                parts = parts or Parts(actor_learner)
                {Order.ENV: parts.env, Order.ACT: parts.act, Order.LEARN: parts.learn}[order]()
        member.meet()


def _acting_of(place: int, saved: Mapping[str, Mapping[str, Tensor]]) -> Acting | None:
    """What `Partners.tensors` gave of one place; None if there is none."""
    prefix = f"partner_{place}_"
    return {name.removeprefix(prefix): {key: tensor.numpy() for key, tensor in tensors.items()}
            for name, tensors in saved.items() if name.startswith(prefix)} or None


def in_one_process(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint for a run whose partners' environments are its own now; as it is where it had none."""
    tensors = dict(checkpoint.tensors)
    places = sorted({int(name.split("_")[1]) for name in tensors if name.startswith("partner_")})
    if not places:
        return checkpoint
    actings = [dict(tensors["acting"]), *(dict(tensors.pop(f"partner_{place}_acting")) for place in places)]
    tensors["acting"] = actings[0] | {name: torch.cat([acting[name] for acting in actings])
                                      for name in actings[0] if name.startswith("state_")}
    for place in places:
        tensors[f"envs_{place}"] = tensors.pop(f"partner_{place}_envs_0")
    return replace(checkpoint, tensors=tensors)


@contextmanager
def _without_main(config: Config) -> Iterator[None]:
    """Processes started within do not import the program's main module, unless that may know the environment.

    multiprocessing has them do so, which a script must expect that trains by worker processes (`if __name__ ==
    "__main__"`). One that trains A2C on Atari need not.
    """
    if resolve_env(config.env.id, config.env.atari_protocol).atari is None:
        yield
        return
    with _main_hidden:
        known: dict[str, Any] = sys.modules["__main__"].__dict__
        hidden: dict[str, Any] = {name: known.pop(name) for name in ("__spec__", "__file__") if name in known}
        known["__spec__"] = None
        try:
            yield
        finally:
            del known["__spec__"]
            known.update(hidden)
