"""Any Gymnasium VectorEnv with NEXT_STEP autoreset, such as a simulator in NumPy or on a GPU.

It is used without wrappers. Vectors of single environments are in `single`.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from vantage._host.time_limit import TimeLimit
from vantage.envs.actions import make_actor, make_masker
from vantage.envs.autoreset import check_info_of_ends, mode_of
from vantage.envs.build import check_space, create
from vantage.envs.built import stays_open
from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly, named_errors
from vantage.envs.ids import EnvId
from vantage.envs.in_use import check_unused, note_player
from vantage.envs.interface import (
    RESEED_STEPS,
    Array,
    Info,
    Obs,
    Outcome,
    Seeds,
    Simulators,
)
from vantage.envs.masks import masks_of_vector
from vantage.envs.options import check_without_wrappers
from vantage.envs.other_interfaces import is_parallel, metadata_of, refusal
from vantage.envs.outcomes import (
    LAST_INFO,
    check_reset,
    check_vector_step,
    info_of,
    observed,
    small_parts,
)
from vantage.envs.probe import probe
from vantage.envs.spaces import make_observer
from vantage.envs.two_players import check_no_self_play
from vantage.errors import ConfigError
from vantage.keys.import_paths import load_class


def is_vector(env: EnvId) -> bool:
    """Whether `env` names a class of vector environments or a function of `num_envs`."""
    if not env.is_path:
        return False
    target = load_class(env.name, what="env")
    if isinstance(target, type) and issubclass(target, VectorEnv | gym.Env):
        return issubclass(target, VectorEnv)
    if isinstance(target, gym.Env | VectorEnv):
        return isinstance(target, VectorEnv)
    if is_parallel(target):
        return False
    if not callable(target):
        if not hasattr(target, "step"):
            raise ConfigError(f"env={env.name!r} is a {type(target).__name__}; give a class of "
                              "environments, or a function that builds one")
        built = (f"a {type(target).__name__} that is built already; give its class, or a function "
                 "with the parameter num_envs that returns it")
        raise ConfigError(f"env={env.name!r} is {refusal(target) or built}")
    try:
        return "num_envs" in inspect.signature(target).parameters
    except ValueError:  # of a function written in C
        return False


def create_vector(config: EnvConfig, env: EnvId, *, num_envs: int, rendered: bool) -> Any:
    """The vector environment of `env`, in NumPy or in tensors.

    Raises ConfigError if it lacks what Vantage needs, and for options that have no effect on it.
    """
    if rendered:
        raise ConfigError(f"env={env.name!r} is a vector environment, which shows no single game; "
                          "use one of its environments as a gymnasium.Env to render it")
    check_no_self_play(config, env)
    check_without_wrappers(config, f"{env.name} is a vector environment", "max_episode_steps",
                           "short_episode_steps", "vector", "reset_options")
    vector = create(env, config, {"num_envs": num_envs})
    words = refusal(vector)
    if words:
        raise ConfigError(f"env={env.name!r} is {words}")
    check_unused(vector, env.name)
    _check_attributes(vector, env, num_envs)
    return vector


def _check_attributes(vector: Any, env: EnvId, num_envs: int) -> None:
    """ConfigError unless `vector` has the attributes of `num_envs` environments with NEXT_STEP."""
    words = f"env={env.name!r} is a {type(vector).__name__}"
    needed = ("num_envs", "single_observation_space", "single_action_space", "reset", "step",
              "close")
    absent = [name for name in needed if not hasattr(vector, name)]
    if absent:
        raise ConfigError(f"{words}, not a gymnasium.vector.VectorEnv, and not an environment in "
                          f"tensors, which has {', '.join(absent)} too; "
                          "docs/vector-environments.md shows both")
    if vector.num_envs != num_envs:
        raise ConfigError(f"{words} of num_envs={vector.num_envs}, asked for {num_envs}; build as "
                          "many as its argument says")
    mode = mode_of(vector)
    is_in_numpy = isinstance(vector, VectorEnv)  # or wraps tensors, and declares the mode too
    modes = ("NEXT_STEP", "SAME_STEP") if is_in_numpy else ("NEXT_STEP", "SAME_STEP", None)
    if mode not in modes:
        raise ConfigError(f"{words} with autoreset_mode {mode} in its metadata; declare "
                          "AutoresetMode.NEXT_STEP, and let the step after an episode's end only "
                          "reset")
    for name in ("single_observation_space", "single_action_space"):
        check_space(env, name, getattr(vector, name))


def is_in_tensors(vector: Any, config: EnvConfig, seeds: Seeds) -> bool:
    """Whether `vector` returns torch tensors instead of NumPy arrays."""
    if not isinstance(vector, VectorEnv):
        return True
    if isinstance(vector, SyncVectorEnv | AsyncVectorEnv | VectorWrapper):
        return False
    from vantage.envs.tensors import is_tensors

    limit = TimeLimit(config.env_timeout, seeds.name)
    with named_errors(lambda: f"{seeds.name} (seed {seeds.seed}, step 0)"), limit:
        obs, _ = check_reset(vector.reset(seed=seeds.of(0, 0)))
    return is_tensors(obs)


def batched_environments(config: EnvConfig, env: EnvId, seeds: Seeds, vector: Any, *,
                         evaluation: bool, longest_game: int) -> Simulators:
    """Simulators of a vector environment.

    Each environment has its own seed if metadata["reset_mask"] is True or the vector is one of
    Gymnasium's; otherwise all are reset together. Evaluations cut games after `longest_game` steps,
    unless the vector's `spec` has a time limit.
    """
    mode = mode_of(vector)
    if mode != "NEXT_STEP":
        raise ConfigError(f"env={env.name!r} is a {type(vector).__name__} with autoreset_mode "
                          f"{mode} in its metadata, which only environments in tensors may have; "
                          "let the step after an episode's end only reset (NEXT_STEP)")
    exact = (isinstance(vector, SyncVectorEnv | AsyncVectorEnv)
             or metadata_of(vector).get("reset_mask") is True)
    limit = TimeLimit(config.env_timeout, env.name)
    batch = BatchedEnvironments(vector, config, seeds, limit, exact=exact)
    probed = batch.probed
    notes = [f"{vector.num_envs} environments, in a vector of their own"]
    if not exact:
        notes.insert(0, "resumes are not exact, they begin new episodes: the vector environment "
                     "does not declare reset_mask=True in its metadata, which says that reset "
                     "takes a list of seeds and a reset_mask")
    has_limit = probed.own_limit is not None
    return Simulators(
        spec=probed.spec,
        bounds=probed.bounds,
        why=probed.why,
        notes=tuple(notes),
        reset=batch.reset,
        step=batch.step,
        info=batch.info,
        close=batch.forget if stays_open(config, evaluation=evaluation) else batch.close,
        exact=exact,
        reseed_steps=RESEED_STEPS,
        longest_game=math.inf if has_limit else longest_game,
        is_endless=not has_limit,
        cut_after=None if has_limit else float)


class BatchedEnvironments:
    """A vector environment, checked, with the policy's observations and actions."""

    def __init__(self, vector: Any, config: EnvConfig, seeds: Seeds, limit: TimeLimit, *,
                 exact: bool) -> None:
        self._vector = vector
        self._seeds = seeds
        self._limit = limit
        self._exact = exact
        self._steps = 0
        self._info: Info = {}
        self._shape = (vector.num_envs,)
        self._closed = False
        space: gym.Space[Any] = vector.single_observation_space
        with named_errors(self._place), limit:
            self._with_mask = masks_of_vector(vector)
            self.probed = probe(vector, space, vector.single_action_space, config, seeds.of(0, 0),
                                self._with_mask)
        spec = self.probed.spec
        _, self._observe = make_observer(space, self._shape, config.kinds_of_parts, spec.shifts)
        _, self._act = make_actor(vector.single_action_space, self._shape,
                                  scale=config.scale_actions)
        self._mask = make_masker(spec, self._shape)
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
            self._info = info
            return observed(self._observe, obs), self._mask(self._with_mask(info), ~which)

    def step(self, actions: Array) -> Outcome:
        self._steps += 1
        with named_errors(self._place), self._limit:
            obs, rewards, terminated, truncated, info = check_vector_step(
                self._vector.step(self._act(actions)), self._shape)
            self._info = info
            over = terminated | truncated
            mask = self._mask(self._with_mask(info), over)
            if info and True in over:
                check_info_of_ends(info)
                last_info = {env: small_parts(info_of(info, env, len(over)))
                             for env in over.nonzero()[0].tolist()}
                mask = {**mask, LAST_INFO: last_info}
            return observed(self._observe, obs), rewards, terminated, truncated, mask

    def info(self) -> Info:
        """What the first environment reported at its last reset or step."""
        return info_of(self._info, 0, self._shape[0])

    def close(self) -> None:
        self._closed = True
        close_quietly(self._vector)

    def forget(self) -> None:
        """End with the vector environment, but leave it open: the user built it."""
        self._closed = True

    def _place(self) -> str:
        return f"{self._seeds.name} (seed {self._seeds.seed}, step {self._steps})"
