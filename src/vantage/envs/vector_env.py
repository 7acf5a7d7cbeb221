"""Environments as training uses them: seeds, episodes, scores, lives, FIRE, rewards, snapshots. The simulators behind
them are in `atari`, `single` and `batched`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vantage.config_groups import EnvConfig
from vantage.envs import pictures
from vantage.envs.history import MAX_REPLAY_STEPS, History
from vantage.envs.interface import IDLE, MASK, Array, First, Info, Obs, Seeds, Simulators, Snapshot, Step, same_obs
from vantage.envs.spaces import blank_obs
from vantage.errors import ConfigError, EnvError
from vantage.specs import Episode

FIRE = 1


class Environments:
    """B environments, stepped together; an episode's end is followed by a step that only resets (NEXT_STEP).

    The first reset at least `reseed_steps` after an environment's last seeded one is seeded by the episode's number, so
    that a snapshot holds a bounded number of actions: it is restored by the seed and these actions.
    """

    def __init__(self, simulators: Simulators, config: EnvConfig, seeds: Seeds, *, num_envs: int, first_env: int = 0,
                 evaluation: bool = False) -> None:
        traits = simulators.traits
        self.spec, self.notes, self.num_envs = traits.spec, traits.notes, num_envs
        self.frames_per_step, self.longest_game = traits.frames_per_step, traits.longest_game
        self.action_names, self.drawn = traits.action_names, traits.drawn
        self._simulators, self._traits, self._config, self._seeds = simulators, traits, config, seeds
        self._first_env, self._evaluation = first_env, evaluation
        self._history = History(num_envs, self.spec.action, limit=MAX_REPLAY_STEPS if simulators.exact else 1)
        self._episode = np.full(num_envs, -1, np.int64)
        self._seeded_episode = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self._score = np.zeros(num_envs, np.float64)
        self._lives = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self._press = np.zeros(num_envs, bool)
        self._obs = blank_obs(self.spec.obs, (num_envs,))
        self._sent: Array = np.zeros(num_envs, np.int64)

    def reset(self, snapshot: Snapshot | None = None) -> First:
        """Begin the next episode of every environment, or continue from `snapshot`."""
        if snapshot is not None:
            return self._restore(snapshot)
        everyone = np.ones(self.num_envs, bool)
        self._begin(everyone)
        self._obs, info = self._seeded_reset(everyone)
        self._check_finite(self._obs, np.zeros(self.num_envs))
        return First(self._obs, everyone, self._mask(info))

    def step(self, actions: Array) -> Step:
        """Take one action [B, *action] in every environment: `send`, then `receive`."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Begin a step; emulators and worker processes run while the caller does other work."""
        if actions.shape != (self.num_envs, *self.spec.action.shape):
            raise ValueError(f"actions have shape {actions.shape}, {self.num_envs} environments take "
                             f"{(self.num_envs, *self.spec.action.shape)}")
        if self._traits.actions is not None:
            actions = np.where(self._press, FIRE, self._traits.actions[actions])
        self._sent = actions
        self._simulators.send(actions)

    def receive(self) -> Step:
        """Finish the step. With `over` = terminated | truncated as the simulators report it:

        is_first[t+1] = over[t-1];  life_lost = lives fell & lives > 0 & not a reset step;
        terminated = game over | life_lost, the latter in classic Atari training only.
        """
        resetting, pressed = self._over, self._press
        obs, raw, terminated, truncated, info = self._simulators.receive()
        self._history.append(self._sent)
        self._length += 1
        if resetting.any():
            self._begin(resetting)
            due = resetting & (self._history.lengths >= self._traits.reseed_steps)
            if due.any():
                obs, info = self._reseed(due, obs, info)
        self._score += raw
        self._check_finite(obs, raw)
        self._obs, self._over = obs, terminated | truncated
        episodes = tuple(Episode(self._first_env + int(i), float(self._score[i]), int(self._length[i]))
                         for i in np.flatnonzero(self._over))
        valid = ~resetting
        if "lives" in info:
            terminated = self._follow_lives(info["lives"], resetting, terminated)
            valid = ~(resetting | pressed)
        rewards = self._learnt_rewards(raw)
        if self._config.reward_terminates and not self._evaluation:
            terminated = terminated | (rewards != 0)
        return Step(obs, rewards, terminated, resetting, valid, self._mask(info), episodes)

    def snapshot(self) -> dict[str, Array]:
        """Everything that `reset` needs to continue from here, as arrays."""
        obs = ({f"obs.{key}": part for key, part in self._obs.items()} if isinstance(self._obs, Mapping)
               else {"obs": self._obs})
        arrays = {"episode": self._episode, "seeded_episode": self._seeded_episode, "length": self._length,
                  "score": self._score, "lives": self._lives, "over": self._over, "press": self._press, **obs}
        return {key: array.copy() for key, array in arrays.items()} | self._history.snapshot()

    def close(self) -> None:
        """Release processes and simulators; a second call does nothing."""
        self._simulators.close()

    @property
    def fps(self) -> float:
        """Agent steps per second of real time."""
        return self._traits.fps or pictures.fps_of(self._simulators.single)

    def render(self) -> Array:
        """A picture of the first environment, uint8 RGB [H, W, 3]. EnvError if it returns none."""
        place = self._seeds.place(self._first_env, int(self._episode[0]), int(self._length[0]))
        return pictures.render(self._simulators.single, self._seeds.name, place)

    def stages(self) -> list[tuple[str, Array]]:
        """Pictures from the screen to the observation, each with its title."""
        rendered = [pictures.for_people(self.render())] if self.drawn else []
        return rendered + pictures.stages_of(self._simulators.single)

    def keys_to_action(self) -> Mapping[Any, Any] | None:
        """Actions by keys, if the environment defines them; None for Atari, which has `action_names`."""
        return None if self.action_names else pictures.keys_of(self._simulators.single)

    def _begin(self, which: Array) -> None:
        """Count a new episode of these environments."""
        self._episode[which] += 1
        self._length[which] = 0
        self._score[which] = 0.0
        self._over = self._over & ~which
        self._press = np.where(which, self._traits.fires, self._press)

    def _seeded_reset(self, which: Array) -> tuple[Obs, Info]:
        """Reset these environments with their episodes' seeds; observations of all."""
        self._seeded_episode[which] = self._episode[which]
        self._history.restart(which)
        obs, info = self._simulators.reset(self._seeded_episode, which)
        if "lives" in info:
            self._lives = np.where(which, info["lives"], self._lives)
        return obs, info

    def _reseed(self, due: Array, obs: Obs, info: Info) -> tuple[Obs, Info]:
        """Seed the episodes that an automatic reset has just begun."""
        if self._simulators.seeds_itself:
            self._seeded_episode[due] = self._episode[due]
            self._history.restart(due)
            return obs, info
        mask, (obs, again) = self._mask(info), self._seeded_reset(due)
        lives = {"lives": np.where(due, again["lives"], info["lives"])} if "lives" in info else {}
        return obs, info | lives | ({} if mask is None else {MASK: np.where(due[:, None], again[MASK], mask)})

    def _follow_lives(self, lives: Array, resetting: Array, terminated: Array) -> Array:
        """Update lives and FIRE; return `terminated`, with lost lives if they end the bootstrap."""
        lives = lives.astype(np.int64)
        life_lost = (lives < self._lives) & (lives > 0) & ~resetting
        self._lives = lives
        self._press = (resetting | life_lost) & ~self._over & self._traits.fires
        return terminated | life_lost if self._traits.life_signal and not self._evaluation else terminated

    def _learnt_rewards(self, rewards: Array) -> Array:
        """float32 rewards, clipped, scaled and floored in training."""
        config = self._config
        if self._evaluation:
            return rewards.astype(np.float32)
        if config.reward == "sign":
            rewards = np.sign(rewards)
        elif config.reward == "clip":
            rewards = np.clip(rewards, -1.0, 1.0)
        rewards = rewards * config.reward_scale
        floor = config.reward_floor
        return (rewards if floor is None else np.maximum(rewards, floor)).astype(np.float32)

    def _mask(self, info: Info) -> Array | None:
        return info[MASK] if self.spec.masked else None

    def _restore(self, snapshot: Snapshot) -> First:
        own = self.snapshot()
        old = {"seeded_episode": snapshot.get("episode"), "lives": own["lives"], "press": own["press"]}
        snapshot = {key: array for key, array in old.items() if array is not None} | dict(snapshot)
        _check_snapshot(snapshot, own)
        self._history.restore(snapshot)
        self._episode, self._seeded_episode, self._length, self._score, self._lives, self._over, self._press = (
            snapshot[key].copy() for key in ("episode", "seeded_episode", "length", "score", "lives", "over", "press"))
        saved: Obs = ({key: snapshot[f"obs.{key}"] for key in self._obs} if isinstance(self._obs, Mapping)
                      else snapshot["obs"])
        lost, mask = np.ones(self.num_envs, bool), None
        if self._simulators.exact and not self._history.dropped.all():
            try:
                self._obs, over, mask = self._replay()
                lost = ~same_obs(self._obs, saved) | (over != self._over) | self._history.dropped
            except EnvError:  # an environment whose replay differs may reject an action
                mask = None
        if lost.any():
            self._begin(lost)
            self._obs, info = self._seeded_reset(lost)
            mask = _merge(mask, self._mask(info), lost)
        return First(self._obs, self._length == 0, mask, tuple(self._first_env + int(i) for i in np.flatnonzero(lost)))

    def _replay(self) -> tuple[Obs, Array, Array | None]:
        """Step all simulators through their histories, which end together; shorter ones start later."""
        lengths = np.where(self._history.dropped, 0, self._history.lengths)
        longest = int(lengths.max())
        over = np.zeros(self.num_envs, bool)
        mask: Array | None = None
        for t in range(longest + 1):
            starting = lengths == longest - t
            if t == 0 or starting.any():
                which = starting if t else np.ones(self.num_envs, bool)
                obs, info = self._simulators.reset(np.where(starting, self._seeded_episode, IDLE), which)
                over = over & ~which
                mask = _merge(mask, info.get(MASK), which)
            if t < longest:
                self._simulators.send(self._history.before_end(longest - t))
                obs, _, terminated, truncated, info = self._simulators.receive()
                over, mask = terminated | truncated, info.get(MASK)
        return obs, over, mask

    def _check_finite(self, obs: Obs, rewards: Array) -> None:
        """EnvError for a number that is not finite. One test per batch is cheaper than one per environment."""
        parts = tuple(obs.values()) if isinstance(obs, Mapping) else (obs,)
        numbers = [part for part in (rewards, *parts) if part.dtype.kind == "f"]
        if all(np.isfinite(part).all() for part in numbers):
            return
        for i in range(self.num_envs):
            bad = [f"reward {rewards[i]}"] * (not np.isfinite(rewards[i]))
            bad += [f"observation {part[i]}" for part in parts if not np.isfinite(part[i]).all()]
            if bad:
                place = self._seeds.place(self._first_env + i, int(self._episode[i]), int(self._length[i]))
                after = f"action {self._sent[i]}" if self._length[i] else "reset"
                raise EnvError(f"{place}: {bad[0]} is not finite after {after}")


def _merge(mask: Array | None, other: Array | None, which: Array) -> Array | None:
    """`other` where `which` is True, `mask` elsewhere."""
    return other if mask is None or other is None else np.where(which[:, None], other, mask)


def _check_snapshot(snapshot: Snapshot, own: Snapshot) -> None:
    """ConfigError if `snapshot` is of another number or kind of environments than `own`."""
    saved, num_envs = len(snapshot.get("episode", ())), len(own["episode"])
    if saved not in (0, num_envs):
        raise ConfigError(f"the snapshot is of {saved} environments, num_envs={num_envs}; "
                          "resume with the number that the run began with")
    shapes, expected = ({key: array.shape[1:] for key, array in arrays.items()} for arrays in (snapshot, own))
    if shapes != expected:
        raise ConfigError(f"the snapshot is of another kind of environment: it holds {shapes}, not {expected}")
