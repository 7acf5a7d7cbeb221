"""What environments look like to training: a reset, steps, a record to resume from. None is built here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, EnvSpec, Episode

Array = NDArray[Any]
Obs = Array | Mapping[str, Array]
Record = Mapping[str, Array]

# An episode that never ends would otherwise fill the memory, and its replay would take as long as the training did.
MAX_REPLAY_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class First:
    """What the environments show before the first step."""

    obs: Obs
    is_first: Array
    """[B] bool; False where a record was restored in the middle of an episode."""
    action_mask: Array | None
    lost: tuple[int, ...] = ()
    """Environments whose replay did not reproduce the recorded observation; they began a new episode."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one action of each environment led to."""

    obs: Obs
    """[B, ...] after the step: images uint8 [B, C, H, W], vectors float32 [B, N], or one of these a key."""
    rewards: Array
    """[B] float32 as learnt from."""
    terminated: Array
    """[B] bool: the task (in classic Atari training: the life) ended; a time limit is not an end."""
    is_first: Array
    """[B] bool: `obs` opens an episode, so this step only reset."""
    valid: Array
    """[B] bool: False where the action was ignored (reset) or replaced (forced FIRE)."""
    action_mask: Array | None
    """[B, A] bool, of `obs`."""
    episodes: tuple[Episode, ...]
    """Games that finished at this step; raw score."""


class Environments(Protocol):
    """B environments, stepped together; an episode's end is followed by a step that only resets (NEXT_STEP)."""

    spec: EnvSpec
    num_envs: int
    notes: tuple[str, ...]
    frames_per_step: float
    """A whole number, or a mean where frame_skip is a range."""
    longest_game: int
    """Steps after which a game that is played for its score counts with what it has."""

    def reset(self, record: Record | None = None) -> First:
        """Begin the next episode of every environment, or go on from `record`."""

    def step(self, actions: Array) -> Step:
        """Take one action [B, *action] in every environment: `send`, then `receive`."""

    def send(self, actions: Array) -> None:
        """Begin a step; emulators and worker processes take it while the caller does other things."""

    def receive(self) -> Step:
        """What the step led to that `send` began. EnvError where an environment raises or leaves its spaces."""

    def record(self) -> dict[str, Array]:
        """All that `reset` needs to go on from here, in arrays alone."""

    def close(self) -> None:
        """Let go of processes and emulators; a second call does nothing."""


class Rendered(Environments, Protocol):
    """A single environment, played where somebody sees it."""

    @property
    def fps(self) -> float:
        """Agent steps a second, in real time."""

    action_names: tuple[str, ...]
    """Of Atari games, such as UPFIRE; () elsewhere."""

    drawn: bool
    """`render` is for it."""

    def render(self) -> Array:
        """A picture of the environment as it is now, uint8 RGB [H, W, 3]. EnvError where it gives none."""

    def stages(self) -> list[tuple[str, Array]]:
        """Pictures on the way from the screen to the observation, RGB or gray, each with its name."""

    def keys_to_action(self) -> Mapping[Any, Any] | None:
        """Actions by the keys pressed, where the environment names them."""


class History:
    """The actions of each environment since its last seeded reset: with the seed, all that its state depends on."""

    def __init__(self, num_envs: int, spec: ActionSpec, *, limit: int = MAX_REPLAY_STEPS) -> None:
        dtype = np.float32 if spec.kind == "box" else np.int8 if max(spec.sizes) <= 128 else np.int32
        self.lengths = np.zeros(num_envs, np.int64)
        self._limit = limit
        self._dropped = np.zeros(num_envs, bool)
        self._actions = np.zeros((num_envs, min(1024, limit), *spec.shape), dtype)
        self._rows = np.arange(num_envs)

    def append(self, actions: Array) -> None:
        if self.lengths.max() == self._actions.shape[1]:
            self._make_room()
        self._actions[self._rows, self.lengths] = actions
        self.lengths += 1

    def restart(self, which: Array) -> None:
        """Forget the actions of the environments that had a seeded reset."""
        self.lengths[which] = 0
        self._dropped[which] = False

    def of(self, env: int) -> Array | None:
        """The actions of one environment; None where they grew past the limit."""
        return None if self._dropped[env] else self._actions[env, :self.lengths[env]]

    def aligned(self, before_end: int) -> Array:
        """The action of each environment `before_end` steps before its last; 0 where it has none so early."""
        index = self.lengths - before_end
        return np.where(index >= 0, self._actions[self._rows, np.maximum(index, 0)], 0).astype(np.int64)

    def record(self) -> dict[str, Array]:
        """The actions one environment after the other, and how many each has (-1 where they were dropped)."""
        parts = [self._actions[env, :length] for env, length in enumerate(self.lengths) if not self._dropped[env]]
        actions = np.concatenate(parts) if parts else self._actions[0, :0]
        return {"actions": actions, "action_counts": np.where(self._dropped, -1, self.lengths)}

    def restore(self, record: Record) -> None:
        counts = record["action_counts"]
        self._dropped = counts < 0
        self.lengths = np.maximum(counts, 0).astype(np.int64)
        capacity = max(int(self.lengths.max()), self._actions.shape[1])
        self._actions = np.zeros((len(counts), capacity, *self._actions.shape[2:]), self._actions.dtype)
        for env, part in enumerate(np.split(record["actions"], np.cumsum(self.lengths)[:-1])):
            self._actions[env, :len(part)] = part

    def _make_room(self) -> None:
        capacity = self._actions.shape[1]
        if capacity < self._limit:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions[:, :self._limit - capacity])], 1)
        else:
            full = self.lengths == capacity
            self.lengths[full] = 0
            self._dropped |= full


def learnt_rewards(rewards: Array, config: Config, *, evaluation: bool) -> Array:
    """float32 rewards as learnt from; raw in evaluation."""
    if evaluation:
        return rewards.astype(np.float32)
    if config.env.reward == "sign":
        rewards = np.sign(rewards)
    elif config.env.reward == "clip":
        rewards = np.clip(rewards, -1.0, 1.0)
    rewards = rewards * config.env.reward_scale
    floor = config.env.reward_floor
    return (rewards if floor is None else np.maximum(rewards, floor)).astype(np.float32)


def check_actions(actions: Array, num_envs: int, spec: ActionSpec) -> None:
    """ValueError where `actions` are not [B, *action]."""
    if actions.shape != (num_envs, *spec.shape):
        raise ValueError(f"actions have shape {actions.shape}, {num_envs} environments take {(num_envs, *spec.shape)}")


def check_record(record: Record, own: Record) -> None:
    """ConfigError where `record` is of another number or kind of environments than a record of one's `own`."""
    saved, num_envs = len(record.get("episode", ())), len(own["episode"])
    if saved not in (0, num_envs):
        raise ConfigError(f"the record is of {saved} environments, num_envs={num_envs}; "
                          "resume with the number that the run began with")
    shapes, expected = ({key: array.shape[1:] for key, array in arrays.items()} for arrays in (record, own))
    if shapes != expected:
        raise ConfigError(f"the record is of another kind of environment: it holds {shapes}, not {expected}")


def same_obs(obs: Obs, saved: Obs) -> Array:
    """[B] bool: the observation of the environment is the saved one, bit for bit."""
    if isinstance(obs, Mapping):
        assert isinstance(saved, Mapping)
        return np.asarray(np.logical_and.reduce([same_obs(obs[key], saved[key]) for key in obs]))
    assert isinstance(saved, np.ndarray)
    return np.asarray((obs == saved).reshape(len(obs), -1).all(axis=1))
