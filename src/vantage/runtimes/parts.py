"""The parts of an update, one at a time, so that `bench` can time each alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch

from vantage.learning.collect import EVERYWHERE, act, collect, columns_of, empty_rollout, join_rollouts, store
from vantage.runtimes.actor_learner import ActorLearner


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
