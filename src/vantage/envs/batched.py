"""Any Gymnasium VectorEnv with NEXT_STEP autoreset, such as a NumPy or GPU simulator, used without wrappers. Vectors
of single environments are in `single`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from vantage.config_groups import EnvConfig
from vantage.envs.building import create
from vantage.envs.ids import EnvId
from vantage.envs.interface import MASK, Array, Info, Obs, Outcome, Seeds, Traits, same_obs
from vantage.envs.options import EnvOptions
from vantage.envs.spaces import make_actor, make_observer
from vantage.errors import ConfigError, EnvError
from vantage.importing import load_class
from vantage.specs import ActionSpec, EnvSpec

# As for Atari: seeded resets are too rare to cost time, and replays stay short.
RESEED_STEPS = 20_000
PROBE_STEPS = 10


def is_vector(env: EnvId) -> bool:
    """`env` names a class of vector environments, or a function that takes `num_envs`."""
    if not env.entry:
        return False
    target = load_class(env.entry, what="env")
    return issubclass(target, VectorEnv) if isinstance(target, type) else (
        "num_envs" in inspect.signature(target).parameters)


class BatchedSimulators:
    """Seeded per environment where `reset(seed=[...], options={"reset_mask": ...})` works as in SyncVectorEnv."""

    seeds_itself = False

    def __init__(self, config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, first_env: int) -> None:
        _check(config, env)
        self._vector = _create(config, env, num_envs)
        self._seeds, self._first_env, self._num_envs, self._steps = seeds, first_env, num_envs, 0
        try:
            observer = make_observer(self._vector.single_observation_space, (num_envs,))
            actor = make_actor(self._vector.single_action_space, (num_envs,))
            self._observe, self._act = observer.convert, actor.convert
            self._action, self._masked = actor.spec, False
            self.exact = self._takes_seeds()
            _, info = self.reset(np.zeros(num_envs, np.int64), np.ones(num_envs, bool))
        except BaseException:
            self._vector.close()
            raise
        self._masked, self._steps = MASK in info, 0
        notes = (observer.note, actor.note, *(("actions masked by info['action_mask']",) * self._masked),
                 *((f"{env.name} does not take a seed for each environment and a reset_mask, so resumes are not exact: "
                    "they begin new episodes",) * (not self.exact)),
                 f"{num_envs} environments, in a vector of their own")
        self.traits = Traits(EnvSpec(observer.spec, actor.spec, self._masked), notes,
                             reseed_steps=RESEED_STEPS if self.exact else int(np.iinfo(np.int64).max))

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        if self.exact:
            seeds = [self._seeds.of(self._first_env + i, max(0, episode))
                     for i, episode in enumerate(episodes.tolist())]
            options = None if which.all() else {"reset_mask": which.copy()}
            result = self._call(self._vector.reset, seed=seeds, options=options)
        else:  # no environment can be reset by itself
            which = np.ones(self._num_envs, bool)
            result = self._call(self._vector.reset, seed=self._seeds.of(self._first_env, int(episodes.max())))
        obs, info = self._unpacked(result, "observations, info")
        return self._converted(obs), self._info(info, ~which)

    def send(self, actions: Array) -> None:
        self._sent = self._act(actions)

    def receive(self) -> Outcome:
        self._steps += 1
        result = self._call(self._vector.step, self._sent)
        obs, rewards, terminated, truncated, info = self._unpacked(
            result, "observations, rewards, terminated, truncated, info")
        terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        rewards = np.asarray(rewards)
        if rewards.shape != (self._num_envs,) or rewards.dtype.kind not in "fiub":
            raise EnvError(f"{self._place()}: rewards are {rewards.dtype} {rewards.shape}, not {self._num_envs} "
                           "numbers")
        return (self._converted(obs), rewards.astype(np.float64), terminated, truncated,
                self._info(info, terminated | truncated))

    def close(self) -> None:
        self._vector.close()

    @property
    def single(self) -> gym.Env[Any, Any]:
        raise ConfigError(f"env={self._seeds.name!r} is a vector environment, which shows no single game")

    def _takes_seeds(self) -> bool:
        """Whether a reset of one environment by its seed repeats its first observation and leaves the others alone."""
        self.exact = True
        everyone, one = np.ones(self._num_envs, bool), np.arange(self._num_envs) == 0
        episodes = np.zeros(self._num_envs, np.int64)
        try:
            first, info = self.reset(episodes, everyone)
            obs = first
            for _ in range(PROBE_STEPS):
                self.send(_random_actions(self._num_envs, self._action, info.get(MASK)))
                obs, _, terminated, truncated, info = self.receive()
                if not same_obs(obs, first).any() or terminated.any() or truncated.any():
                    break
            again, _ = self.reset(episodes, one)
        except Exception:
            return False
        return bool((same_obs(again, first) | ~one).all() and (same_obs(again, obs) | one).all()
                    and not (same_obs(obs, first) & ~one).any())

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            raise EnvError(f"{self._place()}: {type(error).__name__}: {error}") from error

    def _place(self) -> str:
        return f"{self._seeds.name} (seed {self._seeds.seed}, step {self._steps})"

    def _unpacked(self, result: Any, names: str) -> tuple[Any, ...]:
        if isinstance(result, tuple) and len(result) == len(names.split(", ")):
            return result
        raise EnvError(f"{self._place()}: the result is a {type(result).__name__}, not ({names})")

    def _converted(self, obs: Any) -> Obs:
        return self._call(self._observe, obs)  # type: ignore[no-any-return]

    def _flags(self, value: Any, name: str) -> Array:
        flags = np.array(value)
        if flags.shape != (self._num_envs,) or flags.dtype != bool:
            raise EnvError(f"{self._place()}: {name} is {flags.dtype} {flags.shape}, not {self._num_envs} bools")
        return flags

    def _info(self, info: Info, unused: Array) -> Info:
        """Only the mask, [B, A] bool; not checked where it is `unused`."""
        if MASK not in info:
            if self._masked:
                raise EnvError(f"{self._place()}: info lacks action_mask, which the first reset had")
            return {}
        mask = np.array(info[MASK], bool)
        sizes = self._action.sizes
        if mask.shape != (self._num_envs, sum(sizes)):
            raise EnvError(f"{self._place()}: action_mask is {mask.shape}, not {(self._num_envs, sum(sizes))}")
        mask[unused] = True
        if not all(part.any(axis=1).all() for part in np.split(mask, np.cumsum(sizes)[:-1], axis=1)):
            raise EnvError(f"{self._place()}: action_mask allows no action")
        return {MASK: mask}


def _create(config: EnvConfig, env: EnvId, num_envs: int) -> VectorEnv[Any, Any, Any]:
    built = create(env, {"num_envs": num_envs, **config.env_options})
    if not isinstance(built, VectorEnv):
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.vector.VectorEnv; a function "
                          "that takes num_envs must return one")
    mode = built.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise ConfigError(f"env={env.name!r} has autoreset_mode {mode}; Vantage needs NEXT_STEP (an episode's end is "
                          "followed by a step that only resets): set it in metadata")
    if built.num_envs != num_envs:
        raise ConfigError(f"env={env.name!r} has {built.num_envs} environments instead of num_envs={num_envs}")
    return built


def _check(config: EnvConfig, env: EnvId) -> None:
    """ConfigError for options that act on single environments."""
    changed = [*EnvOptions.of(config).changed, *(("max_episode_steps",) * bool(config.max_episode_steps)),
             *(("vector",) * (config.vector != "sync"))]
    if changed:
        raise ConfigError(f"{changed[0]} has no effect here: {env.name} is a vector environment, to which Vantage adds "
                          "no wrappers; leave it out, or pass the same to the environment in env_kwargs")


def _random_actions(num_envs: int, spec: ActionSpec, mask: Array | None) -> Array:
    """Random actions [B, ...] of a policy, or the first that the mask allows."""
    rng, shape = np.random.default_rng(0), (num_envs, *spec.shape)
    if spec.kind == "box":
        return rng.normal(size=shape).astype(np.float32)
    if mask is None:
        return rng.integers(spec.sizes, size=(num_envs, len(spec.sizes))).reshape(shape)
    parts = np.split(mask, np.cumsum(spec.sizes)[:-1], axis=1)
    return np.stack([part.argmax(axis=1) for part in parts], axis=1).reshape(shape)
