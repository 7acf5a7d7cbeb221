"""`vantage bench`: the speed of each part of training alone, and the speed of training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError
from vantage.learning.collect import EVERYWHERE, collect, columns_of, empty_rollout, join_rollouts, store
from vantage.learning.collect import act as act_once
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
    one = ActorLearner(config.change(num_workers=1, threads=config.all_threads))
    try:
        if one.spec.masked:
            raise ConfigError(f"bench repeats fixed actions, which the action masks of {config.env.id} may forbid")
        one.begin()
        env, act, learn, learn_again = _parts(one)
        with tempfile.TemporaryDirectory() as folder, \
                closing(train_updates(config, run=Path(folder) / "run", argv=())) as updates:
            for _ in range(4):  # the report of the start, and updates that warm up
                next(updates)
            speeds = []
            for _ in range(rounds):
                torch.set_num_threads(config.runtime.threads)
                rates = [rate(part, seconds / rounds / 4) for part in (env, act, learn)]
                if (replay := config.algorithm.needs.replay) is not None and replay.ratio > 0:
                    rates[2] = 1 / (1 / rates[2] + replay.ratio / rate(learn_again, seconds / rounds / 4))
                speeds.append([*rates, rate(lambda: next(updates), seconds / rounds / 4)])
    finally:
        one.close()
    rollout = config.env.num_envs * one.rollout_length
    update = rollout * config.runtime.rollouts_per_update
    env_speed, act_speed, learn_speed, whole = np.median(speeds, axis=0) * (rollout, rollout, update, update)
    ratio = whole * (1 / env_speed + 1 / act_speed + 1 / learn_speed)
    return Bench(float(env_speed), float(act_speed), float(learn_speed), float(whole), float(ratio), rounds)


def _parts(one: ActorLearner) -> tuple[Callable[[], object], ...]:
    """Functions that step the environments, act, learn, and learn from the replay: each for a rollout collected first.

    A rollout filled by `env` and `act` is not learned from.
    """
    collected = collect(one.model, one.groups, one.position, length=one.rollout_length, generator=one.generator)
    one.position, rollout = collected.position, collected.rollout
    scratch = empty_rollout(one.model, one.position, one.rollout_length)
    acted = replace(rollout, actions=scratch.actions, behaviour=scratch.behaviour,
                    activation_cache=scratch.activation_cache)
    actions, columns = rollout.actions.cpu().numpy(), columns_of(one.groups)
    batch = join_rollouts([rollout] * one.config.runtime.rollouts_per_update)
    replay = one.replay
    while replay is not None and len(replay) < replay.capacity:
        replay.add(rollout)

    def env() -> None:
        for t, row in enumerate(actions):
            for group, part in zip(one.groups, np.split(row, [column.start for column in columns[1:]]), strict=True):
                group.send(part)
            for group, column in zip(one.groups, columns, strict=True):
                store(scratch, t, column, group.receive())

    @torch.no_grad()
    def act() -> None:
        state = rollout.state
        with one.model.constant_weights():
            for t in range(len(actions)):
                _, state = act_once(one.model, acted, t, EVERYWHERE, state, one.generator)

    def learn(*, replayed: bool = False) -> None:
        cache = batch.activation_cache  # which the update empties
        one.learner.update(replace(batch, activation_cache=None if cache is None else dict(cache)), 0,
                           replayed=replayed)

    def learn_again() -> None:
        assert replay is not None
        join_rollouts([replay.sample(rollout, one.replay_generator)
                       for _ in range(one.config.runtime.rollouts_per_update)])
        learn(replayed=True)

    return env, act, learn, learn_again


def rate(function: Callable[[], object], seconds: float) -> float:
    """Calls per second of `function`, over about `seconds`."""
    started, calls = perf_counter(), 0
    while perf_counter() - started < seconds or calls == 0:
        function()
        calls += 1
    return calls / (perf_counter() - started)
