"""Any Gymnasium VectorEnv with NEXT_STEP autoreset, such as a simulator in NumPy or on a GPU.

It is used without wrappers. Vectors of single environments are in `single`.
"""

from __future__ import annotations

import inspect
import math
from contextlib import suppress
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from vantage._host.time_limit import TimeLimit
from vantage.envs.actions import make_actor, make_masker
from vantage.envs.build import check_space, create, is_built
from vantage.envs.checks import bounds_of
from vantage.envs.config import EnvConfig
from vantage.envs.ids import EnvId
from vantage.envs.in_use import check_unused, note_player
from vantage.envs.interface import MASK, Array, Info, Obs, Outcome, Seeds, Simulators, named_errors
from vantage.envs.masks import masks_of_vector
from vantage.envs.offsets import Shifts, first_offsets
from vantage.envs.options import NEEDS
from vantage.envs.other_interfaces import metadata_of, own_time_limit, refusal
from vantage.envs.outcomes import (
    LAST_INFO,
    check_reset,
    check_vector_step,
    info_of,
    observed,
    small_parts,
)
from vantage.envs.space_json import space_to_json
from vantage.envs.spaces import check_obs_size, make_observer, reasons
from vantage.envs.workers import CLOSE_SECONDS
from vantage.errors import ConfigError
from vantage.keys.import_paths import load_class
from vantage.specs import EnvSpec

# As for Atari: seeded resets are too rare to cost time, and replays stay short.
RESEED_STEPS = 20_000


def is_vector(env: EnvId) -> bool:
    """Whether `env` names a class of vector environments or a function of `num_envs`."""
    if not env.is_path:
        return False
    target = load_class(env.name, what="env")
    if isinstance(target, type) and issubclass(target, VectorEnv | gym.Env):
        return issubclass(target, VectorEnv)
    if isinstance(target, gym.Env | VectorEnv):
        return isinstance(target, VectorEnv)
    if not callable(target):
        if not hasattr(target, "step"):
            raise ConfigError(f"env={env.name!r} is a {type(target).__name__}; give a class of "
                              "environments, or a function that builds one")
        built = (f"a {type(target).__name__} that is built already; give its class, or a function with the "
                 "parameter num_envs that returns it")
        raise ConfigError(f"env={env.name!r} is {refusal(target) or built}")
    try:
        return "num_envs" in inspect.signature(target).parameters
    except ValueError:  # of a function written in C
        return False


def create_vector(config: EnvConfig, env: EnvId, *, num_envs: int, rendered: bool) -> Any:
    """The vector environment of `env`, of any type; ConfigError for options without effect on
    it."""
    if rendered:
        raise ConfigError(f"env={env.name!r} is a vector environment, which shows no single game; "
                          "use one of its environments as a gymnasium.Env to render it")
    for name in (*NEEDS, "max_episode_steps", "short_episode_steps", "vector"):
        if getattr(config, name) != getattr(EnvConfig, name):
            raise ConfigError(f"{name} has no effect here: {env.name} is a vector environment, to "
                              "which Vantage adds no wrappers; leave it out, or pass the same to "
                              "the environment in env_kwargs")
    vector = create(env, config, {"num_envs": num_envs})
    if words := refusal(vector):
        raise ConfigError(f"env={env.name!r} is {words}")
    check_unused(vector, env.name)
    return vector


def is_in_tensors(vector: Any, seeds: Seeds) -> bool:
    """Whether `vector` returns torch tensors instead of NumPy arrays."""
    if not isinstance(vector, VectorEnv):
        return True
    if isinstance(vector, SyncVectorEnv | AsyncVectorEnv | VectorWrapper):
        return False
    from vantage.envs.tensors import is_tensors

    with named_errors(lambda: f"{seeds.name} (seed {seeds.seed}, step 0)"):
        obs, _ = check_reset(vector.reset(seed=seeds.of(0, 0)))
    return is_tensors(obs)


def make_batched(config: EnvConfig, env: EnvId, seeds: Seeds, vector: Any, *, num_envs: int,
                 longest_game: int) -> Simulators:
    """Simulators of a vector environment.

    Each environment has its own seed if metadata["reset_mask"] is True or the vector is one of
    Gymnasium's; otherwise all are reset together. Evaluations cut games after `longest_game` steps,
    unless the vector's `spec` has a time limit.
    """
    metadata = metadata_of(vector)
    if not (isinstance(vector, VectorEnv)
            and metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
            and vector.num_envs == num_envs):
        raise ConfigError(f"env={env.name!r} is a {type(vector).__name__}, not a "
                          f"gymnasium.vector.VectorEnv of num_envs={num_envs} environments with "
                          "autoreset_mode NEXT_STEP in its metadata (an episode's end is followed "
                          "by a step that only resets)")
    space = vector.single_observation_space
    check_space(env, "single_observation_space", space)
    check_space(env, "single_action_space", vector.single_action_space)
    exact = isinstance(vector, SyncVectorEnv | AsyncVectorEnv) or metadata.get("reset_mask") is True
    batch = Batch(vector, config, seeds, TimeLimit(config.env_timeout, env.name), exact=exact)
    warning = () if exact else (
        "resumes are not exact, they begin new episodes: the vector environment does not declare "
        "reset_mask=True in its metadata, which says that reset takes a list of seeds and a "
        "reset_mask",)
    own_limit = own_time_limit(vector)
    return Simulators(
        spec=batch.spec, bounds=bounds_of(space, batch.spec.obs),
        why=reasons(space, config.kinds_of_parts), reset=batch.reset, step=batch.step,
        notes=(*warning, f"{num_envs} environments, in a vector of their own"),
        close=batch.forget if is_built(config) else batch.close, exact=exact,
        reseed_steps=RESEED_STEPS, longest_game=longest_game if own_limit is None else math.inf,
        cut_after=float if own_limit is None else None)


class Batch:
    """A vector environment, checked, with the policy's observations and actions."""

    def __init__(self, vector: Any, config: EnvConfig, seeds: Seeds, limit: TimeLimit, *,
                 exact: bool) -> None:
        self._vector = vector
        self._seeds = seeds
        self._limit = limit
        self._exact = exact
        self._steps = 0
        self._shape = (vector.num_envs,)
        self._closed = False
        space = vector.single_observation_space
        kinds = config.kinds_of_parts
        one, _ = make_observer(space, kinds=kinds)
        check_obs_size(one)
        action, self._act = make_actor(vector.single_action_space, self._shape,
                                       scale=config.scale_actions)
        with named_errors(self._place), limit:
            shifts: Shifts | None = config.shifts
            if shifts is None:
                shifts = first_offsets(lambda seed: check_reset(vector.reset(seed=seed))[0], space,
                                       one)
            obs, self._observe = make_observer(space, self._shape, kinds, shifts)
            _, info = check_reset(vector.reset(seed=seeds.of(0, 0)))
            self._with_mask = masks_of_vector(vector)
            info = self._with_mask(info)
        self.spec = EnvSpec(obs, action, MASK in info, space_to_json(space))
        self._mask = make_masker(self.spec, self._shape)
        note_player(self)

    def played(self) -> object:
        """The vector environment; None once this is closed."""
        return None if self._closed else self._vector

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        """Reset where `which` is True, or everywhere if single environments cannot be reset."""
        each = self._seeds.of_all(episodes)
        arguments: dict[str, Any] = {"seed": each[0]}  # its reset may take no options
        if self._exact:
            arguments = {"seed": each, "options": {"reset_mask": which.copy()}}
        with named_errors(self._place), self._limit:
            obs, info = check_reset(self._vector.reset(**arguments))
            return observed(self._observe, obs), self._mask(self._with_mask(info), ~which)

    def step(self, actions: Array) -> Outcome:
        self._steps += 1
        with named_errors(self._place), self._limit:
            obs, rewards, terminated, truncated, info = check_vector_step(
                self._vector.step(self._act(actions)), self._shape)
            over = terminated | truncated
            mask = self._mask(self._with_mask(info), over)
            if info and True in over:
                last_info = {}
                for env in over.nonzero()[0].tolist():
                    parts = small_parts(info_of(info, env, len(over)))
                    last_info[env] = tuple(parts.items())
                mask = {**mask, LAST_INFO: last_info}
            return observed(self._observe, obs), rewards, terminated, truncated, mask

    def close(self) -> None:
        """Close the vector environment; abandon it if that fails or takes too long."""
        self._closed = True
        with suppress(Exception, SystemExit), TimeLimit(CLOSE_SECONDS):
            self._vector.close()

    def forget(self) -> None:
        """Keep a vector environment open that the user built."""
        self._closed = True

    def _place(self) -> str:
        return f"{self._seeds.name} (seed {self._seeds.seed}, step {self._steps})"
