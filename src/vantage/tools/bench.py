"""`vantage bench`: the speed of each part of training alone, and the speed of training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError
from vantage.learning.collect import EVERYWHERE, act, collect, columns_of, empty_rollout, join_rollouts, store
from vantage.runtimes.actor_learner import ActorLearner
from vantage.training import prepare, train_updates


@dataclass(frozen=True, slots=True)
class Bench:
    """Agent steps per second, medians over rounds that measure the parts and the whole in turn."""

    env: float
    act: float
    learn: float
    whole: float
    ratio: float
    """Of `whole` to the speed of the parts one after the other."""
    rounds: int

    def as_dict(self) -> dict[str, float]:
        """As a JSON object."""
        return asdict(self)

    def table(self) -> str:
        """As text."""
        return "\n".join([
            "agent steps per second",
            f"  environments alone   {self.env:>10,.0f}",
            f"  acting alone         {self.act:>10,.0f}",
            f"  learning alone       {self.learn:>10,.0f}",
            f"  training             {self.whole:>10,.0f}   {self.ratio:.3f} of the parts one after the other"])


def bench(config: Config, *, seconds: float = 30.0, rounds: int | None = None) -> Bench:
    """Measure `config` for about `seconds`, in `rounds` of env, act, learn and whole, by default of four seconds.

    Each part runs alone in this process with all threads, on a rollout: `env` steps the environments with its actions,
    `act` runs the policy on its observations and fills the activation cache, `learn` is one update from it, for ACER
    with those of the replay ratio. `whole` is training in the processes of the config.
    """
    if isinstance(config.runtime, Hogwild):
        raise ConfigError("bench measures parts that take turns, which those of workers do not; measure a2c, or acer "
                          "under --runtime sync, or run benchmarks/throughput.py for workers together")
    # lr=0: the weights stay those that acted, so the activation cache stays valid.
    config = prepare(config).change(lr="0", steps=10**12, max_minutes=0, stop_at_return=None, tensorboard=False,
                                    eval_every=0, eval_every_seconds=0, save_every=10**12, log_every_seconds=10**6,
                                    **({"replay_start": 0} if config.algorithm.needs.replay else {}))
    rounds = rounds or max(5, int(seconds / 4))
    actor_learner = ActorLearner(config.change(num_workers=1, threads=config.all_threads))
    try:
        if actor_learner.spec.masked:
            raise ConfigError(f"bench repeats fixed actions, which the action masks of {config.env.id} may forbid")
        actor_learner.begin()
        with tempfile.TemporaryDirectory() as folder, \
                closing(train_updates(config, run=Path(folder) / "run", argv=())) as updates:
            speeds = list(islice(_rounds(actor_learner, updates, seconds / rounds / 4), rounds))
    finally:
        actor_learner.close()
    env, act, learn, whole = (median(part) for part in zip(*speeds, strict=True))
    return Bench(env, act, learn, whole, whole * (1 / env + 1 / act + 1 / learn), rounds)


def _rounds(actor_learner: ActorLearner, updates: Iterator[object], seconds: float) -> Iterator[tuple[float, ...]]:
    config, parts = actor_learner.config, Parts(actor_learner)
    parts.fill_replay()
    steps = config.env.num_envs * actor_learner.rollout_length
    update = steps * config.runtime.rollouts_per_update
    replay = config.algorithm.needs.replay

    def learn_again() -> None:
        parts.sample()
        parts.learn(replayed=True)

    for _ in range(4):  # the report of the start, and updates that warm up
        next(updates)
    while True:
        torch.set_num_threads(config.runtime.threads)
        env, act, learn = rate(parts.env, seconds), rate(parts.act, seconds), rate(parts.learn, seconds)
        if replay is not None and replay.ratio > 0:
            learn = 1 / (1 / learn + replay.ratio / rate(learn_again, seconds))
        yield steps * env, steps * act, update * learn, update * rate(lambda: next(updates), seconds)


class Parts:
    """The parts of an update of `actor_learner`, each repeated on one rollout, which it collects first."""

    def __init__(self, actor_learner: ActorLearner) -> None:
        self._actor_learner = one = actor_learner
        collected = collect(one.model, one.groups, one.position, length=one.rollout_length, generator=one.generator)
        one.position, self._rollout = collected.position, collected.rollout
        self._actions = self._rollout.actions.cpu().numpy()
        self._scratch = scratch = empty_rollout(one.model, one.position, one.rollout_length)
        self._acted = replace(self._rollout, actions=scratch.actions, behaviour=scratch.behaviour,
                              activation_cache=scratch.activation_cache)
        self._columns = columns_of(one.groups)
        self._ends = [column.start for column in self._columns[1:]]
        self._batch = join_rollouts([self._rollout] * one.config.runtime.rollouts_per_update)

    def env(self) -> None:
        """Step the environments with the actions of the rollout; store the results in another."""
        for t, row in enumerate(self._actions):
            for group, part in zip(self._actor_learner.groups, np.split(row, self._ends), strict=True):
                group.send(part)
            for group, column in zip(self._actor_learner.groups, self._columns, strict=True):
                store(self._scratch, t, column, group.receive())

    @torch.no_grad()
    def act(self) -> None:
        """Run the policy on the observations of the rollout and sample actions into another."""
        one, state = self._actor_learner, self._rollout.state
        with one.model.constant_weights():
            for t in range(len(self._actions)):
                _, state = act(one.model, self._acted, t, EVERYWHERE, state, one.generator)

    def learn(self, *, replayed: bool = False) -> None:
        """One update, optimiser included."""
        cache = self._batch.activation_cache  # which the update empties
        batch = replace(self._batch, activation_cache=None if cache is None else dict(cache))
        self._actor_learner.learner.update(batch, 0, replayed=replayed)

    def fill_replay(self) -> None:
        """Fill the replay."""
        replay = self._actor_learner.replay
        while replay is not None and len(replay) < replay.capacity:
            replay.add(self._rollout)

    def sample(self) -> None:
        """Draw a batch from the replay."""
        one = self._actor_learner
        assert one.replay is not None
        join_rollouts([one.replay.sample(self._rollout, one.replay_generator)
                       for _ in range(one.config.runtime.rollouts_per_update)])


def rate(function: Callable[[], object], seconds: float) -> float:
    """Calls per second of `function`, over about `seconds`."""
    started, calls = perf_counter(), 0
    while perf_counter() - started < seconds or calls == 0:
        function()
        calls += 1
    return calls / (perf_counter() - started)
