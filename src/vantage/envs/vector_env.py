"""Environments as training uses them: seeds, episodes, scores, lives, FIRE, rewards, snapshots. The simulators behind
them are built in `atari`, `single` and `batched`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array

from vantage.envs.checks import Checks
from vantage.envs.config import EnvConfig
from vantage.envs.history import MAX_REPLAY_STEPS, MIN_REPLAY_STEPS, History
from vantage.envs.interface import IDLE, MASK, Array, First, Info, Obs, Seeds, Simulators, Snapshot, Step, named_errors
from vantage.envs.options import choose_actions
from vantage.envs.outcomes import LAST_INFO
from vantage.envs.rendering import as_picture, frames_per_second
from vantage.envs.spaces import describe, policy_spaces
from vantage.errors import ConfigError, EnvError
from vantage.specs import ActionSpec, Episode

FIRE = 1
SAVED = ("episode", "seeded_episode", "length", "score", "lives", "over", "press")
"""Private arrays that a snapshot holds, one number for each environment."""


class Environments:
    """B environments, stepped together; an episode's end is followed by a step that only resets (NEXT_STEP).

    The first reset at least `reseed_steps` after an environment's last seeded one is seeded by the episode's number, so
    that a snapshot holds a bounded number of actions: it is restored by the seed and these actions.
    """

    takes_tensors = False

    def __init__(self, simulators: Simulators, config: EnvConfig, seeds: Seeds, *, num_envs: int,
                 short: Array, evaluation: bool = False, draws: bool = False) -> None:
        self.spec, self.action_names, self._subset = choose_actions(config, simulators.spec, simulators.action_names)
        cuts = (f"every {config.short_episode_every}th training environment cuts its episodes after "
                f"{config.short_episode_steps} steps",) if short.any() else ()
        self.notes = (*describe(self.spec, self.action_names, simulators.why), *cuts, *simulators.notes)
        self.frames_per_step, self.longest_game = simulators.frames_per_step, simulators.longest_game
        self.num_envs, self.draws, self.close, self._short = num_envs, draws, simulators.close, short
        self._simulators, self._config, self._seeds, self._evaluation = simulators, config, seeds, evaluation
        self._raw = evaluation or (config.reward, config.reward_scale, config.reward_floor) == ("raw", 1.0, None)
        # Where resets are seeded every `reseed_steps`, that many and a long game are replayed in any case.
        self._history = History(num_envs, simulators.spec.action, limit=MAX_REPLAY_STEPS if simulators.exact else 1,
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

    def restart(self, seed: int) -> First:
        """Begin the first episodes of `seed`, as new environments with this seed would."""
        self._seeds.seed = seed
        self._episode[:] = -1
        return self.reset()

    def cut_games_after(self, steps: int) -> None:
        """From the next game on, cut games without a time limit after `steps`."""
        if self._simulators.cut_after is not None:
            self.longest_game = self._simulators.cut_after(steps)

    def reset(self, snapshot: Snapshot | None = None) -> First:
        """Begin the next episode of every environment, or continue from `snapshot`."""
        if snapshot is not None:
            return self._restore(snapshot)
        everyone = np.ones(self.num_envs, bool)
        self._begin(everyone)
        self._obs, info = self._seeded_reset(everyone)
        self._check(self._obs, self._score, self._no_actions, self._length)
        return First(self._obs, everyone, self._mask(info))

    def step(self, actions: Array) -> Step:
        """Take one action [B, *action] in every environment. With `over` = terminated | truncated as reported:

        is_first[t+1] = over[t-1];  life_lost = lives fell & lives > 0 & not a reset step;
        terminated = game over | life_lost, the latter in classic Atari training only.
        """
        if actions.shape != self._no_actions.shape:
            raise ValueError(f"actions have shape {actions.shape}, {self.num_envs} environments take "
                             f"{self._no_actions.shape}")
        if self._subset is not None:
            actions = self._subset[actions]
        if self._simulators.fires:
            actions = np.where(self._press, FIRE, actions)
        resetting, pressed = self._over, self._press
        started = perf_counter()
        obs, raw, terminated, truncated, info = self._simulators.step(actions)
        self._history.append(actions, perf_counter() - started)
        last_info = info.get(LAST_INFO)
        self._length += 1
        if True in resetting:
            self._begin(resetting)
            obs, info = self._reseed(resetting, obs, info)
        self._score += raw
        self._check(obs, raw, actions, self._length)
        self._obs, self._over = obs, terminated | truncated
        episodes = tuple(Episode(self._seeds.first_env + i, float(self._score[i]), int(self._length[i]),
                                 {} if last_info is None else dict(last_info[i] or ()))
                         for i in (self._over & ~self._short).nonzero()[0].tolist())
        valid = ~resetting
        if "lives" in info:
            terminated = self._follow_lives(info["lives"], resetting, terminated)
            valid &= ~pressed
        rewards = raw.astype(np.float32) if self._raw else self._learnt_rewards(raw)
        if self._config.reward_terminates and not self._evaluation:
            terminated = terminated | (rewards != 0)
        return Step(obs, rewards, terminated, resetting, valid, self._mask(info), episodes)

    def snapshot(self) -> dict[str, Array]:
        """Everything that `reset` needs to continue from here, as arrays."""
        arrays = {name: getattr(self, f"_{name}") for name in SAVED} | _obs_arrays(self._obs)
        return {name: array.copy() for name, array in arrays.items()} | self._history.snapshot()

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
        """Actions by keys, if the environment defines them; None for Atari, which has `action_names`."""
        keys = getattr(self._single().unwrapped, "get_keys_to_action", None)
        return None if keys is None or self.action_names else keys()

    def _single(self) -> Any:
        assert self._simulators.single is not None
        return self._simulators.single()

    def _place(self, env: int) -> str:
        return self._seeds.place(env, int(self._episode[env]), int(self._length[env]))

    def _begin(self, which: Array) -> None:
        """Count a new episode of these environments."""
        self._episode += which
        self._length[which] = 0
        self._score[which] = 0.0
        self._over = self._over & ~which
        if self._simulators.fires:
            self._press = self._press | which

    def _seeded_reset(self, which: Array) -> tuple[Obs, Info]:
        """Reset these environments with their episodes' seeds; observations of all."""
        self._seeded_episode[which] = self._episode[which]
        self._history.restart(which)
        obs, info = self._simulators.reset(self._seeded_episode, which)
        if "lives" in info:
            self._lives = np.where(which, info["lives"], self._lives)
        return obs, info

    def _reseed(self, resetting: Array, obs: Obs, info: Info) -> tuple[Obs, Info]:
        """Seed the episodes that an automatic reset has just begun, if they are due."""
        if self._simulators.reseed_steps == 0:
            self._seeded_episode[resetting] = self._episode[resetting]
            self._history.restart(resetting)
            return obs, info
        due = resetting & self._simulators.exact & (self._history.lengths >= self._simulators.reseed_steps)
        if not due.any():
            return obs, info
        obs, again = self._seeded_reset(due)
        return obs, _merge(info, again, due)

    def _follow_lives(self, lives: Array, resetting: Array, terminated: Array) -> Array:
        """Update lives and FIRE; return `terminated`, with lost lives if they end the bootstrap."""
        lives = lives.astype(np.int64)
        life_lost = (lives < self._lives) & (lives > 0) & ~resetting
        self._lives = lives
        self._press = (resetting | life_lost) & ~self._over & self._simulators.fires
        return terminated | life_lost if self._simulators.life_signal and not self._evaluation else terminated

    def _learnt_rewards(self, rewards: Array) -> Array:
        """float32 rewards, clipped, then scaled, then floored."""
        config = self._config
        if config.reward != "raw":
            rewards = np.sign(rewards) if config.reward == "sign" else np.clip(rewards, -1.0, 1.0)
        floor = -np.inf if config.reward_floor is None else config.reward_floor
        return np.maximum(rewards * config.reward_scale, floor).astype(np.float32)

    def _mask(self, info: Info) -> Array | None:
        """[B, A] bool, of the policy's actions."""
        mask: Array | None = info.get(MASK)
        if mask is None or self._subset is None:
            return mask
        mask = mask[:, self._subset]
        mask = mask | (self._over & ~mask.any(axis=1))[:, None]  # no action follows there
        if not mask.any(axis=1).all():
            raise EnvError(f"{self._seeds.name}: action_mask allows none of action_subset={self._config.action_subset}")
        return mask

    def _restore(self, snapshot: Snapshot) -> First:
        own = self.snapshot()
        shapes, expected = ({key: array.shape for key, array in arrays.items() if key != "actions"}
                            for arrays in (snapshot, own))
        if shapes != expected:
            raise ConfigError(f"the snapshot holds {shapes}, these environments {expected}; resume with the env and "
                              "the num_envs that the run began with")
        _check_snapshot(snapshot, own, self._simulators.spec.action)
        self._history.restore(snapshot)
        for name in SAVED:
            setattr(self, f"_{name}", snapshot[name].copy())
        dropped = self._history.starts < 0
        lost, info = np.ones(self.num_envs, bool), Info()
        for only_last in (True, False):
            if not self._simulators.exact or dropped.all() or (only_last and not self._can_skip_games()):
                continue
            lost[:] = True
            with suppress(EnvError):  # an environment whose replay differs may reject an action
                self._obs, over, info = self._replay(only_last=only_last)
                lost = dropped | (over != self._over)
                for name, part in _obs_arrays(self._obs).items():
                    lost |= (part != snapshot[name]).reshape(self.num_envs, -1).any(axis=1)
            if not lost[~dropped].any():
                break
        if lost.any():
            self._begin(lost)
            self._obs, again = self._seeded_reset(lost)
            info = _merge(info, again, lost)
        return First(self._obs, self._length == 0, self._mask(info),
                     tuple((self._seeds.first_env + lost.nonzero()[0]).tolist()))

    def _can_skip_games(self) -> bool:
        """A replay may reset over the games before the current ones, and the snapshot's counts allow it."""
        games, steps = self._episode - self._seeded_episode, self._history.lengths
        return bool(((games >= 0) & (games <= steps) & (self._length <= steps)).all()) and \
            self._simulators.forgets_games()

    def _replay(self, *, only_last: bool) -> tuple[Obs, Array, Info]:
        """Step all simulators through their histories, which end together; shorter ones start later.

        With `only_last`, the games since the seeded reset are reset over, and only the current ones are stepped.
        """
        actions, starts, games = self._history.actions, self._history.starts, np.zeros(self.num_envs, np.int64)
        if only_last:
            starts = np.where(starts < 0, -1, len(actions) - self._length)
            games = self._episode - self._seeded_episode
        begin = int(starts[starts >= 0].min())
        over, info = np.zeros(self.num_envs, bool), Info()
        for t in range(begin, len(actions) + 1):
            starting = starts == t
            if t == begin or starting.any():
                which = starting if t > begin else np.ones(self.num_envs, bool)
                obs, again = self._simulators.reset(np.where(starting, self._seeded_episode, IDLE), which)
                over, info = over & ~which, _merge(info, again, which)
                for game in range(int(games[starting].max(initial=0))):
                    obs, again = self._simulators.reset(None, following := starting & (games > game))
                    info = _merge(info, again, following)
            if t < len(actions):
                obs, _, terminated, truncated, info = self._simulators.step(actions[t])
                over = terminated | truncated
        return obs, over, info


def _check_snapshot(saved: Snapshot, own: Snapshot, spec: ActionSpec) -> None:
    """ValueError for a snapshot that no environments with this action space make."""
    wrong = [name for name, array in own.items() if saved[name].dtype.kind != array.dtype.kind]
    wrong += [name for name in ("episode", "seeded_episode", "length")
              if not ((saved[name] >= 0) & (saved[name] < 2**53)).all()]
    if not np.isfinite(saved["score"]).all():
        wrong.append("score")
    if spec.kind != "box" and not ((saved["actions"] >= 0) & (saved["actions"] < spec.sizes)).all():
        wrong.append("actions")
    if wrong:
        raise ValueError(f"the snapshot's {wrong[0]} is {saved[wrong[0]]!s:.80}")


def _obs_arrays(obs: Obs) -> dict[str, Array]:
    """The parts of an observation by their names in a snapshot."""
    return {f"obs.{key}": part for key, part in obs.items()} if isinstance(obs, Mapping) else {"obs": obs}


def _merge(info: Info, other: Info, which: Array) -> Info:
    """The lives and masks of `other` where `which` is True, of `info` elsewhere."""
    return {key: np.where(which if other[key].ndim == 1 else which[:, None], other[key], info.get(key, other[key]))
            for key in ("lives", MASK) if key in other}
