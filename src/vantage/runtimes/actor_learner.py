"""`ActorLearner`: environments, policy and learner of one process, as every runtime uses them.

Its tensors for checkpoints are in `acting_state`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch

from vantage._host.seeding import derive_seed
from vantage._host.system import FreedMemory, free_memory
from vantage.config.config import Config
from vantage.envs.make import make_environments
from vantage.errors import ConfigError
from vantage.learning.collect import Position, check_rollouts, collect, empty_rollout, join_rollouts
from vantage.learning.learner import Learner
from vantage.learning.own_state import own_state
from vantage.learning.replay import Replay
from vantage.learning.running_statistics import observe
from vantage.learning.self_play import SelfPlay
from vantage.runtimes.machine import resolve_device
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.runtimes.startup import new_model
from vantage.types import Rollout


def replay_share(workers: int) -> int:
    """Largest replay of one worker in bytes; all `workers` may take half of the free memory."""
    return free_memory() // (2 * workers)


class ActorLearner:
    """Collects rollouts and learns from them, then from the replay if there is one.

    `worker` numbers the workers that run at the same time. `index` numbers all workers that the run
    has ever started, including replacements: each has independent environments and random streams.
    """

    def __init__(self, config: Config, *, worker: int = 0, index: int = 0,
                 shared: SharedWeights | None = None, replay_bytes: int | None = None) -> None:
        self.config = config
        if replay_bytes is None:
            replay_bytes = replay_share(config.num_processes)
        self._replay_bytes = replay_bytes
        device = config.runtime.device
        devices = (resolve_device(config) if device == "auto" else device).split(",")
        self.device = torch.device(devices[worker % len(devices)])
        lengths = config.runtime.rollout_lengths
        self.rollout_length = lengths[worker % len(lengths)]
        num_envs = config.envs_per_process
        self.envs = make_environments(config.env, seed=config.run.seed, num_envs=num_envs, stream=0,
                                      threads=torch.get_num_threads(), first_env=index * num_envs,
                                      place=worker * num_envs)
        try:
            self.spec = self.envs.spec
            if self.envs.same_step and config.algorithm.needs.next_inputs:
                raise ConfigError(f"algorithm={config.algo} needs next_inputs, and {config.env.id} "
                                  "resets in the same step; let it reset in the step after an end")
            check_rollouts(self.spec, self.envs.num_envs,
                           self.rollout_length * config.runtime.rollouts_per_update,
                           frame_stack=config.policy.frame_stack if config.algorithm.needs.reuse
                           else 1)
            self.model = new_model(config, self.spec).to(self.device)
            self.learner = Learner(self.model, config, stream=index)
            self.hogwild = None if shared is None else HogwildWeights(shared, self.learner, worker)
            seed = derive_seed(config.run.seed, "actions", index)
            self.generator = torch.Generator(self.device).manual_seed(seed)
            replay_seed = derive_seed(config.run.seed, "replay", index)
            self.replay_generator = torch.Generator().manual_seed(replay_seed)
            self.self_play: SelfPlay | None = None
            if config.env.self_play:
                self.self_play = SelfPlay(self.learner, config.env, num_envs, config.run.seed)
                self.envs.opponent.player = self.self_play
            self._freed = FreedMemory()
            self.exact = True
            """Weights and position are of the same update, so that checkpoints may hold both."""
            self.position: Position
            self.replay: Replay | None = None
            self.past: Replay | None = None
            """The newest rollouts, if the algorithm also learns from past ones."""
        except BaseException:
            self.close()
            raise

    def change(self, values: Mapping[str, Any]) -> None:
        """Learn with other coefficients from the next update on."""
        self.config = self.config.change(**values)
        self.learner.change(self.config)

    def begin(self, episodes: np.ndarray | int = 0) -> None:
        """Begin the environments' episodes with these numbers [B], and the policy's state."""
        state = self.model.initial_state(self.envs.num_envs)
        if self.self_play is not None and not self.self_play.past:
            self.self_play.join()
        first = self.envs.restart(self.config.run.seed, episodes)
        self.act_from(Position.after(first, state, self.device))

    def act_from(self, position: Position) -> None:
        """Continue acting from `position`, with empty replays."""
        self.position = position
        self._after = position
        needs = self.learner.needs.replay
        reuse = self.learner.needs.reuse
        if needs is not None and needs.ratio > 0:
            # `size` is the total of all workers.
            like = empty_rollout(self.model, position, self.rollout_length,
                                 same_step=self.envs.same_step)
            rows = math.ceil(needs.size / (self.config.num_processes * self.rollout_length))
            self.replay = Replay(max(rows, like.rewards.shape[1]), like, self._replay_bytes)
        if reuse is not None and reuse.past_rollouts > 0:
            like = empty_rollout(self.model, position, self.rollout_length, values=True,
                                 same_step=self.envs.same_step)
            rows = like.rewards.shape[1] * self.config.runtime.rollouts_per_update
            self.past = Replay((1 + reuse.past_rollouts) * rows, like, self._replay_bytes,
                               key="past_rollouts")

    def advance(self, step: Callable[[], int]) -> Advance:
        """Collect, update once, then as often from the replay as is due.

        `step()` is called after collecting and returns the step of the coefficients.
        """
        rollouts, total = self.collect()
        started = perf_counter()
        for metrics in self.updates(rollouts, step()):
            total += Advance(updates=1, metrics=metrics, unsaved=own_state(self.config.algorithm))
        total.learn_seconds = perf_counter() - started
        return total

    def collect(self, *, learns: bool = True) -> tuple[list[Rollout], Advance]:
        """The rollouts of one update, and their steps, games and seconds.

        `position` stays where it is until `updates` or `move_on`. Without `learns`, another process
        will learn from the rollouts: they have no values and no activation cache.
        """
        self._freed.return_if_due()
        self.exact = False
        rollouts: list[Rollout] = []
        total = Advance()
        needs = self.learner.needs
        num_rollouts = self.config.runtime.rollouts_per_update
        activation_cache = learns and needs.activation_cache and num_rollouts == 1
        values = learns and needs.reuse is not None
        self._after = self.position
        for _ in range(num_rollouts):
            part = collect(self.model, self.envs, self._after, length=self.rollout_length,
                           generator=self.generator, activation_cache=activation_cache,
                           values=values, arrays=self.learner.arrays.mlp)
            self._after = part.position
            rollouts.append(part.rollout)
            total += Advance(part.rollout.rewards.numel(), episodes=part.episodes,
                             env_seconds=part.env_seconds, act_seconds=part.act_seconds)
        return rollouts, total

    def updates(self, rollouts: Sequence[Rollout], step: int) -> Iterator[dict[str, float]]:
        """Learn from the rollouts of `collect`, then from the replay; yields metrics of updates."""
        joined = join_rollouts(rollouts)
        if self.past is not None:
            self.past.add(joined)
            joined = self.past.all(joined)
        metrics = self.learner.update(joined, step)
        for rollout in rollouts:
            observe(self.learner, rollout, step)
        if self.self_play is not None:
            metrics |= self.self_play.follow()
        yield metrics
        if self.replay is not None:
            yield from self._replay(self.replay, rollouts, step)
        self.move_on()
        self.exact = True

    @property
    def num_past(self) -> int:
        """Number of stored past rollouts, each of one environment."""
        return 0 if self.past is None else len(self.past)

    def forget_past(self) -> None:
        """Discard the stored past rollouts."""
        if self.past is not None:
            self.past.rollouts = 0

    def move_on(self) -> None:
        """Continue acting after the last rollout."""
        self.position = self._after

    def _replay(self, replay: Replay, rollouts: Sequence[Rollout],
                step: int) -> Iterator[dict[str, float]]:
        """Store the rollouts, then make Poisson(replay_ratio) updates from as many sampled ones.

        Wang et al. 2017, arXiv:1611.01224, algorithm 1.
        """
        for rollout in rollouts:
            replay.add(rollout)
        needs = self.learner.needs.replay
        assert needs is not None
        if replay.steps < needs.start / self.config.num_processes:
            return
        generator = self.replay_generator
        for _ in range(int(torch.poisson(torch.tensor(needs.ratio), generator))):
            if self.hogwild is not None:
                self.hogwild.pull()
            sample = join_rollouts([replay.sample(rollout, generator) for rollout in rollouts])
            yield self.learner.update(sample, step, replayed=True)

    def close(self) -> None:
        self.envs.close()
