"""Environments for training: seeds, episodes, scores, lives, FIRE, rewards, snapshots.

The simulators behind them are built in `atari`, `single` and `batched`; replays are in `replay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array

from vantage.envs.checks import Checks
from vantage.envs.config import EnvConfig
from vantage.envs.failures import named_errors
from vantage.envs.history import MAX_REPLAY_STEPS, MIN_REPLAY_STEPS, History
from vantage.envs.interface import (
    MASK,
    Array,
    First,
    Info,
    Obs,
    Seeds,
    Simulators,
    Snapshot,
    Step,
)
from vantage.envs.masks import of_subset
from vantage.envs.options import choose_actions
from vantage.envs.outcomes import LAST_INFO
from vantage.envs.parallel_agents import any_of_agents, waiting_rows
from vantage.envs.rendering import as_picture, frames_per_second
from vantage.envs.replay import check_snapshot, merge, obs_arrays, replay
from vantage.envs.rewards import keeps_rewards, learnt_rewards
from vantage.envs.spaces import describe, policy_spaces
from vantage.errors import EnvError
from vantage.specs import Episode

FIRE = 1
SAVED = ("episode", "seeded_episode", "length", "score", "lives", "over", "press")
"""Private arrays that a snapshot holds, one number for each environment."""


class Environments:
    """B environments, stepped together. The step after an episode's end only resets (NEXT_STEP).

    A snapshot holds the actions since the last seeded reset and is restored by replaying them. To
    bound their number, the first reset at least `reseed_steps` after an environment's last seeded
    reset is seeded again, by the episode's number.
    """

    takes_tensors = False
    same_step = False

    def __init__(self, simulators: Simulators, config: EnvConfig, seeds: Seeds, *, num_envs: int,
                 short: Array, evaluation: bool, draws: bool = False) -> None:
        self.spec, self.action_names, self._subset = choose_actions(
            config, simulators.spec, simulators.action_names)
        notes = [*describe(self.spec, self.action_names, simulators.why)]
        if short.any():
            notes.append(f"every {config.short_episode_every}th training environment cuts its "
                         f"episodes after {config.short_episode_steps} steps")
        self.notes = (*notes, *simulators.notes)
        self.num_envs = num_envs
        self.draws = draws
        self.opponent = simulators.opponent
        self.close = simulators.close
        self.info = simulators.info
        self.frames_per_step = simulators.frames_per_step
        self.longest_game = simulators.longest_game
        self.is_endless = simulators.is_endless
        self._simulators = simulators
        self._config = config
        self._seeds = seeds
        self._short = short
        self._evaluation = evaluation
        self._raw = evaluation or keeps_rewards(config)
        # Where resets are seeded every `reseed_steps`, allow that many steps and a long game.
        self._history = History(num_envs, simulators.spec.action,
                                limit=MAX_REPLAY_STEPS if simulators.exact else 1,
                                least=max(MIN_REPLAY_STEPS, 3 * simulators.reseed_steps))
        passed = (lambda: self._history.passed) if simulators.exact else str
        self._check = Checks(simulators.bounds, self._place, passed, warn=not evaluation)
        self._episode = np.full(num_envs, -1, np.int64)
        self._seeded_episode = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self._score = np.zeros(num_envs, np.float64)
        self._lives = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self._press = np.zeros(num_envs, bool)
        self._obs: Any = create_empty_array(policy_spaces(self.spec)[0], num_envs)
        self._no_actions: Array = np.zeros((num_envs, *self.spec.action.shape), np.int64)

    @property
    def episode(self) -> Array:
        """The number of each environment's episode [B]."""
        return self._episode

    def restart(self, seed: int, episodes: Array | int = 0) -> First:
        """Begin the episodes of `seed` with these numbers [B], like new environments at 0."""
        self._seeds.seed = seed
        self._episode[:] = np.subtract(episodes, 1)
        return self.reset()

    def cut_games_after(self, steps: int) -> None:
        """Cut later games without a time limit after `steps`."""
        if self._simulators.cut_after is not None:
            self.longest_game = self._simulators.cut_after(steps)

    def reset(self, snapshot: Snapshot | None = None) -> First:
        """Begin the next episode of every environment, or continue from `snapshot`."""
        if snapshot is not None:
            return self._restore(snapshot)
        all_envs = np.ones(self.num_envs, bool)
        self._begin(all_envs)
        self._obs, info = self._seeded_reset(all_envs)
        self._check(self._obs, self._score, self._no_actions, self._length)
        return First(self._obs, all_envs, self._mask(info))

    def step(self, actions: Array) -> Step:
        """Take one action [B, *action] in every environment.

        With `over` = terminated | truncated as the simulators report them:

        is_first[t+1] = over[t-1], and while other agents of the environment go on
        life_lost = lives fell & lives > 0 & not a reset step
        terminated = game over | life_lost, the latter only when training with Atari's life signal
        """
        if actions.shape != self._no_actions.shape:
            raise ValueError(f"actions have shape {actions.shape}, {self.num_envs} environments "
                             f"take {self._no_actions.shape}")
        if self._subset is not None:
            actions = self._subset[actions]
        if self._simulators.fires:
            actions = np.where(self._press, FIRE, actions)
        waiting, resetting = waiting_rows(self._over, self._length, self.spec.agents)
        pressed = self._press
        started = perf_counter()
        obs, raw, terminated, truncated, info = self._simulators.step(actions)
        self._history.append(actions, perf_counter() - started)
        last_info = info.get(LAST_INFO)
        self._length += 1
        if True in resetting:
            self._begin(resetting)
            obs, info = self._reseed(resetting, obs, info)
            self._check.reset_steps(resetting, raw, terminated | truncated)
            raw = np.where(resetting, 0.0, raw)
            terminated = terminated & ~resetting
            truncated = truncated & ~resetting
        self._length[waiting] = 0
        self._score += raw
        self._check(obs, raw, actions, self._length)
        self._obs = obs
        self._over = terminated | truncated
        episodes = self._finished_episodes(last_info)
        valid = ~waiting
        if "lives" in info:
            terminated = self._follow_lives(info["lives"], resetting, terminated)
            valid &= ~pressed
        rewards = raw.astype(np.float64) if self._raw else learnt_rewards(raw, self._config)
        if self._config.reward_terminates and not self._evaluation:
            terminated = terminated | (rewards != 0)
        return Step(obs, rewards, terminated, waiting, valid, self._mask(info), episodes)

    def _finished_episodes(self, last_info: Any) -> tuple[Episode, ...]:
        """Episodes that ended at this step, except short ones; `last_info` is that of LAST_INFO."""
        finished = (self._over & ~self._short).nonzero()[0].tolist()
        episodes = []
        for env in finished:
            info = {} if last_info is None else dict(last_info[env] or ())
            score = float(self._score[env])
            length = int(self._length[env])
            episodes.append(Episode(self._seeds.first_env + env, score, length, info))
        return tuple(episodes)

    def snapshot(self) -> dict[str, Array]:
        """Everything that `reset` needs to continue from here, as arrays."""
        arrays = {name: getattr(self, f"_{name}") for name in SAVED} | obs_arrays(self._obs)
        copies = {name: array.copy() for name, array in arrays.items()}
        return copies | self._history.snapshot()

    @property
    def fps(self) -> float:
        """Agent steps per second of real time."""
        return self._simulators.fps or frames_per_second(self._single()) / self.frames_per_step

    def render(self) -> Array:
        """A picture of the first environment, uint8 RGB [H, W, 3]. EnvError if it returns none."""
        with named_errors(lambda: f"{self._place(0)}: render()"):
            rendered = self._single().render()
        with named_errors(lambda: self._place(0)):
            return as_picture(rendered)

    def keys_to_action(self) -> Mapping[Any, Any] | None:
        """Actions by key, if the environment defines them; None for Atari (see `action_names`)."""
        keys = getattr(self._single().unwrapped, "get_keys_to_action", None)
        return None if keys is None or self.action_names else keys()

    def _single(self) -> Any:
        assert self._simulators.single is not None
        return self._simulators.single()

    def _place(self, env: int) -> str:
        return self._seeds.place(env, int(self._episode[env]), int(self._length[env]))

    def _begin(self, which: Array) -> None:
        """Start counting a new episode of these environments."""
        self._episode += which
        self._length[which] = 0
        self._score[which] = 0.0
        self._over = self._over & ~which
        if self._simulators.fires:
            self._press = self._press | which

    def _seeded_reset(self, which: Array) -> tuple[Obs, Info]:
        """Reset these environments with their episodes' seeds; returns observations of all."""
        self._seeded_episode[which] = self._episode[which]
        self._history.restart(which)
        obs, info = self._simulators.reset(self._seeded_episode, which)
        if "lives" in info:
            self._lives = np.where(which, info["lives"], self._lives)
        return obs, info

    def _reseed(self, resetting: Array, obs: Obs, info: Info) -> tuple[Obs, Info]:
        """Reset with seeds where an automatic reset began an episode and a seeded one is due."""
        reseed_steps = self._simulators.reseed_steps
        if reseed_steps == 0:
            self._seeded_episode[resetting] = self._episode[resetting]
            self._history.restart(resetting)
            return obs, info
        due = resetting & self._simulators.exact & (self._history.lengths >= reseed_steps)
        if not due.any():
            return obs, info
        obs, reset_info = self._seeded_reset(due)
        return obs, merge(info, reset_info, due)

    def _follow_lives(self, lives: Array, resetting: Array, terminated: Array) -> Array:
        """Update lives and FIRE; returns `terminated` with lost lives, if these end the
        bootstrap."""
        lives = lives.astype(np.int64)
        life_lost = (lives < self._lives) & (lives > 0) & ~resetting
        self._lives = lives
        self._press = (resetting | life_lost) & ~self._over & self._simulators.fires
        if self._simulators.life_signal and not self._evaluation:
            return terminated | life_lost
        return terminated

    def _mask(self, info: Info) -> Array | None:
        """[B, A] bool mask of the policy's actions."""
        mask: Array | None = info.get(MASK)
        if mask is None or self._subset is None:
            return mask
        return of_subset(mask, self._subset, self._over, self._seeds.name)

    def _restore(self, snapshot: Snapshot) -> First:
        """Continue from `snapshot`; a new episode begins where the replay ends elsewhere."""
        check_snapshot(snapshot, self.snapshot(), self._simulators.spec.action)
        self._history.restore(snapshot)
        for name in SAVED:
            setattr(self, f"_{name}", snapshot[name].copy())
        lost, info = self._replay(snapshot)
        if lost.any():
            self._begin(lost)
            self._obs, reset_info = self._seeded_reset(lost)
            info = merge(info, reset_info, lost)
        places = np.unique((self._seeds.first_env + lost.nonzero()[0]) // self.spec.agents)
        return First(self._obs, self._length == 0, self._mask(info), tuple(places.tolist()))

    def _replay(self, snapshot: Snapshot) -> tuple[Array, Info]:
        """Replay the restored history; returns where the state was lost [B], and the last info."""
        dropped = self._history.starts < 0
        lost = np.ones(self.num_envs, bool)
        info = Info()
        if not self._simulators.exact or dropped.all():
            return lost, info
        for only_last in (True, False):
            if only_last and not self._can_skip_games():
                continue
            lost[:] = True
            with suppress(EnvError):  # an environment whose replay differs may reject an action
                self._obs, over, info = replay(
                    self._simulators, self._history, only_last=only_last, episode=self._episode,
                    seeded_episode=self._seeded_episode, length=self._length)
                lost = dropped | (over != self._over)
                for name, part in obs_arrays(self._obs).items():
                    lost |= (part != snapshot[name]).reshape(self.num_envs, -1).any(axis=1)
                lost = any_of_agents(lost, self.spec.agents)
            if not lost[~dropped].any():
                break
        return lost, info

    def _can_skip_games(self) -> bool:
        """Whether a replay may step only the current games and reset over those before."""
        games = self._episode - self._seeded_episode
        fits = np.maximum(games, self._length) <= self._history.lengths
        return bool((fits & (games >= 0)).all()) and self._simulators.forgets_games()

