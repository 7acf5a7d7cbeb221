"""B single environments in a Gymnasium vector, built by name, stepped in this process or each in its own. Atari is in
`atari`."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from vantage.config_groups import EnvConfig
from vantage.envs.ids import EnvId
from vantage.envs.interface import IDLE, LONGEST_GAME, MASK, Array, Info, Obs, Seeds, Simulators
from vantage.envs.options import apply_options, changed, check_options, frames_of, mean_of, subset_of
from vantage.envs.spaces import Bounds, bounds_of, describe, make_actor, make_masker, make_observer, policy_spaces
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.importing import add_current_folder, load_class
from vantage.specs import ActionSpec, EnvSpec
from vantage.system import deaf_to_signals, die_with

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed from those on a new
# instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

RGB_ARRAY = "rgb_array"
"""Gymnasium's render mode that returns arrays."""
ERROR, EPISODES = "error", "episodes"
"""Keys: of `info`, for a failure in a worker process; of a reset's options, for the episode numbers."""


class Episodes(gym.Env[Any, Any]):
    """One environment, episode after episode: seeded, converted to the shapes that a policy sees, checked.

    The first reset builds the environment, so that errors of building are reported like those of stepping. A worker
    process, started by `parent`, returns errors as `info["error"]`: Gymnasium's own transport loses the cause and
    formats the traceback as a %-template.
    """

    def __init__(self, build: Callable[[], gym.Env[Any, Any]], spec: EnvSpec, seeds: Seeds, index: int,
                 parent: int) -> None:
        if parent not in (0, os.getpid()):  # Gymnasium makes one in the parent too, for its spaces
            die_with(parent)
        self.observation_space, self.action_space = policy_spaces(spec)
        self.env: gym.Env[Any, Any] | None = None
        self._build, self._seeds, self._index, self._parent = build, seeds, index, parent
        self._blank = spaces.unflatten(self.observation_space, np.zeros(spaces.flatdim(self.observation_space)))
        self._masked, self._mask = spec.masked, make_masker(spec.action)
        self._all_allowed = np.ones(sum(spec.action.sizes), bool)
        self._episode, self._steps, self._idle = IDLE, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin the next episode, or the one that `options` names. Its number decides its seed."""
        episode = self._episode + 1 if options is None else int(options[EPISODES][self._index])
        self._idle = episode == IDLE
        if self._idle:
            return self._blank, {}
        self._episode, self._steps = episode, 0
        try:
            if self.env is None or any(name in self._seeds.name for name in REBUILT):
                self.close()
                self.env = self._build()
                _, self._observe = make_observer(self.env.observation_space)
                _, self._act = make_actor(self.env.action_space)
            obs, info = self.env.reset(seed=self._seeds.of(self._index, episode))
            return self._observe(obs), self._info(info, over=False)
        except (Exception, SystemExit) as error:
            return self._blank, self._failure(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self._idle:
            return self._blank, 0.0, False, False, {}
        self._steps += 1
        try:
            assert self.env is not None
            obs, reward, terminated, truncated, info = self.env.step(self._act(action))
            over = bool(terminated or truncated)
            return self._observe(obs), float(reward), bool(terminated), bool(truncated), self._info(info, over=over)
        except (Exception, SystemExit) as error:
            return self._blank, 0.0, False, False, self._failure(error)

    def close(self) -> None:
        if self.env is not None:
            with suppress(Exception):  # it would hide the error before it, or end a run that is complete
                self.env.close()
            self.env = None

    def _info(self, info: Info, *, over: bool) -> Info:
        """Only the mask: other entries would cost time in each step, most of all in worker processes."""
        if not self._masked and MASK not in info:
            return {}
        if over:  # the next step only resets, so the mask is not used
            return {MASK: self._all_allowed}
        if not self._masked or MASK not in info:
            raise ValueError(f"info {'lacks' if self._masked else 'has'} action_mask, unlike at the first reset")
        return {MASK: self._mask(info[MASK])}

    def _failure(self, error: Exception | SystemExit) -> Info:
        place = self._seeds.place(self._index, self._episode, self._steps)
        message = f"{place}: {type(error).__name__}: {error}"
        if not self._parent:
            raise EnvError(message) from error
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


class Workers:
    """An AsyncVectorEnv of `Episodes` whose errors name the environment, and which can be closed after them."""

    def __init__(self, factories: list[Callable[[], Episodes]], seeds: Seeds) -> None:
        self._seeds, self._interrupted = seeds, False
        with deaf_to_signals():
            self._vector = AsyncVectorEnv(factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, *, options: Info) -> tuple[Obs, Info]:
        return self._call(self._vector.reset, options=options)  # type: ignore[no-any-return]

    def send(self, actions: Array) -> None:
        self._call(self._vector.step_async, actions)
        self._interrupted = True  # a close before `receive` must not wait for the results

    def receive(self, actions: Array) -> Any:
        return self._call(self._vector.step_wait)

    def close(self) -> None:
        if self._interrupted:
            # Otherwise close() waits for the interrupted call, and raises EOFError if a process is dead.
            self._vector._state = AsyncState.DEFAULT
            for process in self._vector.processes:
                process.kill()
        self._vector.close(terminate=self._interrupted)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function`. EnvError if an environment failed or its process died."""
        self._interrupted = True
        try:
            result = function(*args, **kwargs)
        except (EOFError, ConnectionError) as error:
            wait([process.sentinel for process in self._vector.processes], timeout=10.0)
            dead = {self._seeds.first_env + i: process.exitcode for i, process in enumerate(self._vector.processes)
                    if process.exitcode is not None}
            raise EnvError(f"processes of {self._seeds.name} ended without an error (exit codes by environment: {dead})"
                           ": killed (out of memory?), or ended by os._exit; a script that trains with vector='async' "
                           "needs if __name__ == '__main__'") from error
        self._interrupted = False
        if result is not None and ERROR in result[-1]:
            raise EnvError(next(message for message in result[-1][ERROR] if message is not None))
        return result


def make_single(config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, rendered: bool = False) -> Simulators:
    """Environments that seed each episode by its number, so that a snapshot holds the current episodes' actions."""
    check_options(config, env)
    one = partial(build, env, config, rendered=rendered)
    spec, bounds, own_limit = probe(one, seeds)
    parent = os.getpid() if config.vector == "async" else 0
    factories: list[Callable[[], Episodes]] = [partial(Episodes, one, spec, seeds, i, parent) for i in range(num_envs)]
    vector: Any = (Workers(factories, seeds) if parent
                   else SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP))
    actions = None
    if config.action_subset != "all":
        actions = np.array(subset_of(config, tuple(map(str, range(spec.action.sizes[0])))))
        spec = EnvSpec(spec.obs, ActionSpec("discrete", (len(actions),)), spec.masked)
    limit = config.max_episode_steps or own_limit
    return Simulators(
        spec=spec, bounds=bounds, actions=actions, longest_game=LONGEST_GAME,
        notes=(*describe(spec), f"time limit {limit} steps" if limit else "no time limit of Gymnasium's",
               *(f"{name}={getattr(config, name)}" for name in changed(config)),
               f"{num_envs} environments, " + ("each in a process of its own" if parent else "in this process")),
        reset=lambda episodes, which: vector.reset(options={"reset_mask": which.copy(), EPISODES: episodes}),
        send=vector.send if parent else None, receive=vector.receive if parent else vector.step, close=vector.close,
        single=None if parent else lambda: vector.envs[0].env,
        frames_per_step=mean_of(frames_of(config, skip=1, pooled=1)[0]))


def probe(one: Callable[[], gym.Env[Any, Any]], seeds: Seeds) -> tuple[EnvSpec, Bounds, int | None]:
    """The spec of an environment, its bounds and the time limit of its registration, from a temporary instance."""
    env = one()
    try:
        (obs, _), (action, _) = make_observer(env.observation_space), make_actor(env.action_space)
        _, info = env.reset(seed=seeds.of(0, 0))
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{seeds.place(0, 0, 0)}: {type(error).__name__}: {error}") from error
    finally:
        with suppress(Exception):
            env.close()
    limit = env.spec.max_episode_steps if env.spec else None
    return EnvSpec(obs, action, MASK in info), bounds_of(env.observation_space), limit


def build(env: EnvId, config: EnvConfig, *, rendered: bool) -> gym.Env[Any, Any]:
    """One instance of `env` with the options of `config`.

    ConfigError if Vantage cannot run it, or if it is to be `rendered` and draws no pictures.
    """
    built = create(env, config, {"render_mode": RGB_ARRAY} if rendered else {})
    if not isinstance(built, gym.Env) or built.metadata.get("autoreset_mode") not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env that its caller resets; "
                          "port it from the old gym library, or give a gymnasium.vector.VectorEnv with NEXT_STEP")
    if rendered and (built.render_mode != RGB_ARRAY or RGB_ARRAY not in built.metadata.get("render_modes", ())):
        built.close()
        raise ConfigError(f"{env.name} draws no pictures: it has to take render_mode={RGB_ARRAY!r} and to list it in "
                          "its metadata's render_modes")
    return apply_options(built, config)


def create(env: EnvId, config: EnvConfig, more: dict[str, Any]) -> Any:
    """The result of calling the class or function behind `env` with env_kwargs and `more`, of any type."""
    options = {**config.env_options, **more}
    try:
        if env.is_path:
            return load_class(env.name, what="env")(**options)
        add_current_folder()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a render mode that is unknown, which `build` checks
            return gym.make(env.name, max_episode_steps=-1 if config.max_episode_steps else None,
                            disable_env_checker=True, **options)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error
