"""One environment, run episode after episode: built, seeded, converted, checked, replayed. Knows of no other one.

Worker processes import this, so neither this nor what it imports may import torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from vantage.envs.ids import EnvId, import_path_here, is_old_gym, load_entry
from vantage.envs.interface import Array
from vantage.envs.missing import missing_library
from vantage.envs.options import EnvOptions
from vantage.envs.spaces import blank_obs, make_actor, make_masker, make_observer, policy_spaces
from vantage.envs.stages import Stage, stages_of
from vantage.envs.wrappers import apply_options
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.seeding import episode_seed
from vantage.specs import EnvSpec
from vantage.system import die_with

ERROR, REPLAYED, MASK = "error", "replayed", "action_mask"
"""The only keys of `info` that leave an `Episodes`."""

PICTURES = "rgb_array"
"""Gymnasium's render mode that gives arrays."""


@dataclass(frozen=True, slots=True)
class EnvPlan:
    """All that building and seeding the environments of one vector takes; goes to worker processes."""

    env: EnvId
    options: str
    """Keyword arguments of the environment, as JSON."""
    max_episode_steps: int
    """0 keeps the environment's own limit."""
    seed: int
    stream: int
    rebuild: bool
    """A new instance for each episode, because a reset leaves traces of the one before."""
    shown: EnvOptions
    """How the environment is played and shown."""
    rendered: bool = False
    """Built to draw pictures."""

    def build(self) -> gym.Env[Any, Any]:
        make = build_rendered if self.rendered else build
        built = make(self.env, json.loads(self.options), limited=not self.max_episode_steps)
        return apply_options(built, self.shown, self.max_episode_steps)

    def seed_of(self, index: int, episode: int) -> int:
        return episode_seed(self.seed, self.stream, index, episode)

    def place(self, index: int, episode: int, step: int) -> str:
        """Where something went wrong, in words; step 0 is the reset."""
        return (f"environment {index} of {self.env.name} (seed {self.seed_of(index, episode)}, episode {episode}, "
                f"step {step})")


@dataclass(frozen=True, slots=True)
class Replay:
    """The way back into an episode: the actions since its seeded reset; None where they were dropped."""

    episode: int
    actions: Array | None
    over: bool
    """The episode ended with the last action."""


@dataclass(frozen=True, slots=True)
class EpisodesFactory:
    """Makes the `Episodes` of one environment, here or in a worker process."""

    plan: EnvPlan
    spec: EnvSpec
    index: int
    parent: int = 0
    """Process that starts a worker for the environment; 0 where it is stepped in the process that makes it."""

    def __call__(self) -> Episodes:
        if self.parent not in (0, os.getpid()):  # Gymnasium makes one in the parent too, for its spaces
            die_with(self.parent)
        return Episodes(self)


class Episodes(gym.Env[Any, Any]):
    """The episodes of one environment, in the shapes that a policy sees.

    Built at the first reset, in the process that steps it, so that what fails there is reported like any failure.
    From a worker process failures travel as `info["error"]`: Gymnasium's own transport loses the cause and takes the
    traceback for a %-template.
    """

    def __init__(self, factory: EpisodesFactory) -> None:
        self.observation_space, self.action_space = policy_spaces(factory.spec)
        self.replay: Replay | None = None
        """Set before a reset that shall go on in the middle of an episode."""
        self._factory = factory
        self._plan, self._spec = factory.plan, factory.spec
        self._env: gym.Env[Any, Any] | None = None
        self._mask = make_masker(factory.spec.action)
        self._episode = -1
        self._steps = 0
        self._over = False
        self._restored_at_end = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode, or go on in the one that `replay` leads to. Seeds come from the plan alone."""
        replay, self.replay = self.replay, None
        self._restored_at_end = False
        try:
            return self._begin(self._episode + 1) if replay is None else self._go_back(replay)
        except (Exception, SystemExit) as error:
            return blank_obs(self._spec), self._failure(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._restored_at_end:  # the vector environment does not know that this episode is over
            obs, info = self.reset()
            return obs, 0.0, False, False, info
        try:
            return self._step(action)
        except (Exception, SystemExit) as error:
            return blank_obs(self._spec), 0.0, False, False, self._failure(error)

    def render(self) -> Array:
        """uint8 RGB [H, W, 3], of an environment that was built with `rendered`."""
        assert self._env is not None
        place = self._plan.place(self._factory.index, self._episode, self._steps)
        try:
            picture = np.asarray(self._env.render())
        except gym.error.DependencyNotInstalled as error:
            raise ConfigError(f"env={self._plan.env.name!r}: {missing_library(error)}") from None
        except (Exception, SystemExit) as error:
            raise EnvError(f"{place}: render() raised {type(error).__name__}: {error}") from error
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise EnvError(f"{place}: render() returned {picture.dtype} of shape {picture.shape}, not a picture of "
                           "uint8 [height, width, 3]")
        return picture

    def stages(self) -> list[Stage]:
        """What becomes of an image that the environment shows; none where the options leave it as it is."""
        assert self._env is not None
        return stages_of(self._env)

    def metadata_and_keys(self) -> tuple[Mapping[str, Any], Mapping[Any, Any] | None]:
        """What the environment says of itself, and its own keys for people who play it."""
        assert self._env is not None
        keys = getattr(self._env.unwrapped, "get_keys_to_action", None)
        return self._env.metadata, None if keys is None else keys()

    def close(self) -> None:
        if self._env is not None:
            env, self._env = self._env, None
            close(env, self._plan.env.name)

    def _begin(self, episode: int) -> tuple[Any, dict[str, Any]]:
        self._episode, self._steps, self._over = episode, 0, False
        if self._env is None or self._plan.rebuild:
            self.close()
            self._env = self._plan.build()
            observer, actor = make_observer(self._env.observation_space), make_actor(self._env.action_space)
            if (observer.spec, actor.spec) != (self._spec.obs, self._spec.action):
                raise ValueError(f"instances have different spaces: {observer.spec}, {actor.spec} here, {self._spec}")
            self._observe, self._act = observer.convert, actor.convert
        result = self._env.reset(seed=self._plan.seed_of(self._factory.index, episode))
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise TypeError(f"reset() returned a {type(result).__name__}, not (observation, info): old gym interface?")
        return self._observe(result[0]), self._info(result[1])

    def _step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._env is not None
        self._steps += 1
        result = self._env.step(self._act(action))
        if len(result) != 5:
            raise TypeError(f"step() returned {len(result)} values, not (observation, reward, terminated, truncated, "
                            "info): old gym interface?")
        obs, reward, terminated, truncated, info = result
        if type(reward) is not float:
            reward = _number(reward)
        if terminated.__class__ is not bool:
            terminated = _flag(terminated, "terminated")
        if truncated.__class__ is not bool:
            truncated = _flag(truncated, "truncated")
        self._over = terminated or truncated
        return self._observe(obs), reward, terminated, truncated, self._info(info)

    def _go_back(self, replay: Replay) -> tuple[Any, dict[str, Any]]:
        obs, info = self._begin(replay.episode)
        reproduced = replay.actions is not None
        try:
            for action in () if replay.actions is None else replay.actions:
                if self._over:
                    raise RuntimeError("the episode ended early")
                obs, _, _, _, info = self._step(action)
        except Exception:  # a game that took another course may refuse an action
            reproduced = False
        self._restored_at_end = self._over
        return obs, {**info, REPLAYED: reproduced and self._over == replay.over}

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """The mask alone: other infos would cost each step, in worker processes most."""
        if not self._spec.masked:
            if MASK in info:
                raise ValueError("info has an action_mask, which the first reset lacked: give one from reset on")
            return {}
        if self._over:  # nothing is chosen after an end, so a mask is kept only where it is good
            try:
                return {MASK: self._mask(info[MASK])}
            except (KeyError, TypeError, ValueError):
                return {MASK: np.ones(sum(self._spec.action.sizes), bool)}
        if MASK not in info:
            raise ValueError("info lacks action_mask, which the first reset had")
        return {MASK: self._mask(info[MASK])}

    def _failure(self, error: Exception | SystemExit) -> dict[str, Any]:
        place = self._plan.place(self._factory.index, self._episode, self._steps)
        message = f"{place}: {type(error).__name__}: {error}"
        if not self._factory.parent:
            raise EnvError(message) from error
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


def build(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """One instance of `env`, unwrapped by Vantage; ConfigError in words where it is none that Vantage can run.

    A Gymnasium id comes with the time limit of its registration, unless not `limited`.
    """
    import_path_here()
    built: Any
    try:
        if env.entry:
            built = load_entry(env.entry)(**options)
        else:
            limit = None if limited else -1
            built = gym.make(env.name, max_episode_steps=limit, disable_env_checker=True, **options)
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env={env.name!r}: {missing_library(error)}") from None
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, VantageError):
            raise
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error
    if isinstance(built, VectorEnv) or _autoreset(built) not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} is a vector environment or resets itself ({_autoreset(built)}); Vantage "
                          "builds its own vector of single environments that do not: give one of them")
    if not isinstance(built, gym.Env):
        old = " but of the old gym library: port it to gymnasium" if is_old_gym(type(built)) else ""
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env{old}")
    return built


def build_rendered(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """As `build`, with pictures; ConfigError where the environment draws none."""
    refusal = ConfigError(f"{env.name} draws no pictures, so there is nothing to see: an environment that does takes "
                          f"render_mode={PICTURES!r} and has it in its metadata's render_modes")
    maker = load_entry(env.entry) if env.entry else gym.spec(env.name).entry_point
    if isinstance(maker, str):
        with contextlib.suppress(ConfigError):  # which `build` raises under the name of the environment
            maker = load_entry(maker)
    # Checked first: what Gymnasium makes of a mode that is not there is a warning.
    metadata = getattr(maker, "metadata", None)
    if metadata is not None and PICTURES not in metadata.get("render_modes", ()):
        raise refusal
    try:
        built = build(env, {**options, "render_mode": PICTURES}, limited=limited)
    except ConfigError:
        build(env, options, limited=limited).close()  # raises what else is wrong with it
        raise refusal from None
    if built.render_mode != PICTURES:
        built.close()
        raise refusal
    return built


def close(env: gym.Env[Any, Any], name: str) -> None:
    """Close `env`; what goes wrong then costs nothing that was learnt, so it is a warning."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{name}: close() raised {type(error).__name__}: {error}; ignored", RuntimeWarning, stacklevel=2)


def _autoreset(env: Any) -> Any:
    metadata = getattr(env, "metadata", None)
    return metadata.get("autoreset_mode") if isinstance(metadata, Mapping) else None


def _number(reward: Any) -> float:
    if isinstance(reward, int | np.number | np.bool_) or (isinstance(reward, np.ndarray) and reward.ndim == 0):
        return float(reward)
    raise TypeError(f"the reward is {reward!r}, a {type(reward).__name__}, not a number")


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name} is {value!r}, a {type(value).__name__}, not a bool")
