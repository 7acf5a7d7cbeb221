"""B single environments in a Gymnasium vector, in this process or in one process each."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vantage._host.processes import die_with_parent
from vantage._host.time_limit import TimeLimit
from vantage.envs.actions import make_actor, make_masker
from vantage.envs.build import build, is_built
from vantage.envs.config import EnvConfig
from vantage.envs.evaluation_limit import CutGames, LongestGame, build_cut
from vantage.envs.ids import EnvId, check_processes, needs_main
from vantage.envs.in_use import check_unused, note_player
from vantage.envs.interface import (
    IDLE,
    Array,
    Info,
    Seeds,
    Simulators,
    cause,
    failure,
    is_interrupt,
    named_errors,
)
from vantage.envs.masks import masks_of
from vantage.envs.options import Play, check_options, non_defaults
from vantage.envs.outcomes import (
    LAST_INFO,
    check_reset,
    check_same_spaces,
    check_step,
    observed,
    small_parts,
)
from vantage.envs.probe import close_quietly, probe
from vantage.envs.randomness import seed_spaces
from vantage.envs.spaces import make_observer, policy_spaces
from vantage.envs.workers import CLOSE_SECONDS, ERROR, Workers
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.specs import EnvSpec

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed
# from those on a new instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less
# than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

GIVEN = ("the environment that was given is played as it is and stays open; evaluations play "
         "copies of it")

EPISODES, SEED = "episodes", "seed"
"""Keys of a reset's options, for the episode numbers and their seed."""


class Episodes(gym.Env[Any, Any]):
    """One environment, episode after episode: seeded, checked, in the shapes that a policy uses.

    Unless the environment is `built` already, the first reset builds it, so that errors of building
    are reported like those of stepping. In a worker process, `parent` is the process that started
    it (else 0), and errors are returned as `info["error"]`: Gymnasium's own transport loses the
    cause and formats the traceback as a %-template.
    """

    def __init__(self, build: Callable[[], gym.Env[Any, Any]], spec: EnvSpec,
                 kinds: Mapping[str, str], seeds: Seeds,
                 index: int, parent: int, built: gym.Env[Any, Any] | None = None) -> None:
        # Gymnasium builds one in the parent too, to read its spaces.
        if parent not in (0, os.getpid()):
            die_with_parent(parent)
        self.observation_space, self.action_space = policy_spaces(spec)
        self.env: gym.Env[Any, Any] | None = None
        self._build = build
        self._spec = spec
        self._kinds = kinds
        self._seeds = seeds
        self._index = index
        self._parent = parent
        zeros = np.zeros(spaces.flatdim(self.observation_space))
        self._blank = spaces.unflatten(self.observation_space, zeros)
        self._mask = make_masker(spec)
        self._episode = IDLE
        self._steps = 0
        self._idle = False
        if built is not None:
            with named_errors(lambda: seeds.place(index, 0, 0)):
                self._use(built)

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin the next episode, or the one in `options`. Its number determines its seed."""
        episode = self._episode + 1
        if options is not None:
            episode = int(options[EPISODES][self._index])
            self._seeds.seed = options[SEED]
        self._idle = episode == IDLE
        if self._idle:
            return self._blank, {}
        self._episode = episode
        self._steps = 0
        try:
            if self.env is None or any(name in self._seeds.name for name in REBUILT):
                self.close()
                self._use(self._build())
            assert self.env is not None
            seed = self._seeds.of(self._index, episode)
            seed_spaces(self.env, seed)
            obs, info = check_reset(self.env.reset(seed=seed))
            return observed(self._observe, obs), self._mask(self._with_mask(info), False)
        except BaseException as error:
            if not self._parent and is_interrupt(error):  # worker processes block signals
                raise
            return self._blank, self._failure(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self._idle:
            return self._blank, 0.0, False, False, {}
        self._steps += 1
        try:
            assert self.env is not None
            obs, reward, terminated, truncated, info = check_step(self.env.step(self._act(action)))
            over = terminated or truncated
            # A time limit bootstraps from the allowed actions; the end of a task needs no mask.
            reported = self._mask(info if terminated else self._with_mask(info), over)
            parts = small_parts(info) if over else {}
            if parts:
                # As a tuple: a vector environment would split a dict into its keys.
                reported = {**reported, LAST_INFO: tuple(parts.items())}
            return observed(self._observe, obs), reward, terminated, truncated, reported
        except BaseException as error:
            if not self._parent and is_interrupt(error):  # worker processes block signals
                raise
            return self._blank, 0.0, False, False, self._failure(error)

    def played(self) -> object:
        """The innermost environment; None before it is built and once it is closed."""
        return None if self.env is None else self.env.unwrapped

    def close(self) -> None:
        if self.env is not None:
            # An error here would hide an earlier one, or fail a run that is complete.
            with suppress(Exception, SystemExit):
                self.env.close()
            self.env = None

    def _use(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        obs, self._observe = make_observer(env.observation_space, kinds=self._kinds,
                                           shifts=self._spec.shifts)
        action, self._act = make_actor(env.action_space, scale=bool(self._spec.action.scaled))
        check_same_spaces(self._spec, obs, action)
        self._with_mask = masks_of(env)

    def _failure(self, error: BaseException) -> Info:
        message = failure(self._seeds.place(self._index, self._episode, self._steps), error)
        if not self._parent:
            raise EnvError(message) from cause(error)
        # These messages explain the error; a traceback would add nothing.
        if isinstance(error, VantageError) or cause(error) is None:
            return {ERROR: message}
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


def make_single(config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, short: Array,
                rendered: bool = False, longest_game: int = 0) -> Simulators:
    """B environments that seed each episode by its number.

    A snapshot therefore only needs the actions of the current episodes.
    `longest_game` cuts episodes of environments without a time limit after so many steps; 0 cuts
    none. `short` [B] bool marks environments with short episodes.
    """
    check_options(config, env)
    build_one = partial(build, env, rendered=rendered)
    limit = TimeLimit(config.env_timeout, env.name)
    first = build_one(config)
    check_unused(first.unwrapped, env.name)
    probed = probe(first, config, seeds, limit)
    build_long: Callable[[], gym.Env[Any, Any]] = partial(build_one, config)
    longest: LongestGame | None = None
    if longest_game and not config.max_episode_steps and probed.own_limit is None:
        longest = LongestGame(longest_game)
        first = CutGames(first, longest)
        build_long = partial(build_cut, build_long, longest)
    in_processes = config.vector == "async"
    if in_processes:
        close_quietly(first)
        check_processes(env)
    frames = Play.of(config, None).frames_per_step
    time_limit = config.max_episode_steps or math.ceil((probed.own_limit or 0) / frames)
    short_steps = min(config.short_episode_steps, time_limit or config.short_episode_steps)
    build_short = partial(build_one, replace(config, max_episode_steps=short_steps))
    parent = os.getpid() if in_processes else 0
    factories: list[Callable[[], Episodes]] = [
        partial(Episodes, build_short if short[i] else build_long, probed.spec,
                config.kinds_of_parts, seeds, i, parent)
        for i in range(num_envs)]
    common: dict[str, Any] = {
        "spec": probed.spec, "bounds": probed.bounds, "why": probed.why, "frames_per_step": frames,
        "longest_game": config.max_episode_steps or (longest.steps if longest else math.inf),
        "notes": (*probed.notes, *_notes(config, time_limit, num_envs))}
    if in_processes:
        workers = Workers(factories, seeds, limit, imports_main=needs_main(config))
        return Simulators(reset=_resetter(workers, seeds), step=workers.step, close=workers.close,
                          **common)
    use_first(first, factories, short)
    vector: Any = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP)
    reset = _distinct(_resetter(vector, seeds), vector, env)
    return Simulators(
        reset=with_limit(reset, limit, seeds), step=with_limit(vector.step, limit, seeds),
        close=partial(_close_all, vector), single=lambda: vector.envs[0].env,
        cut_after=longest.change if longest else None, **common)


def _notes(config: EnvConfig, time_limit: int, num_envs: int) -> list[str]:
    """How the environments are played, in words."""
    notes = [GIVEN] if is_built(config) else []
    if time_limit:
        notes.append(f"time limit {time_limit} steps")
    else:
        notes.append("no time limit but that of --max-episode-steps")
    notes += [f"{name}={getattr(config, name)}" for name in non_defaults(config)]
    where = "each in a process of its own" if config.vector == "async" else "in this process"
    return [*notes, f"{num_envs} environments, {where}"]


def _resetter(vector: Any, seeds: Seeds) -> Callable[[Array, Array], Any]:
    """`Simulators.reset` of a vector of `Episodes`."""
    def reset(episodes: Array, which: Array) -> Any:
        options = {"reset_mask": which.copy(), EPISODES: episodes, SEED: seeds.seed}
        return vector.reset(options=options)

    return reset


def _distinct(reset: Callable[[Array, Array], Any], vector: SyncVectorEnv,
              env: EnvId) -> Callable[[Array, Array], Any]:
    """`reset`, with ConfigError if environments of `vector` are one object, or played elsewhere too."""
    def checked(episodes: Array, which: Array) -> Any:
        result = reset(episodes, which)
        if which.all():
            envs: Any = vector.envs
            built = [each.env.unwrapped for each in envs if each.env is not None]
            if len({id(each) for each in built}) < len(built):
                raise ConfigError(f"env={env.name} returns the same object every time; let it "
                                  "build a new one")
            for each in envs:
                check_unused(each.played(), env.name, own=(each,))
                note_player(each)
        return result

    return checked


def _close_all(vector: SyncVectorEnv) -> None:
    for env in vector.envs:
        with suppress(TimeoutError), TimeLimit(CLOSE_SECONDS):
            env.close()


def with_limit(call: Callable[..., Any], limit: TimeLimit, seeds: Seeds) -> Callable[..., Any]:
    """`call`, with EnvError if it takes too long."""
    def limited(*args: Any) -> Any:
        with named_errors(lambda: seeds.name), limit:
            return call(*args)

    return limited


def use_first(first: gym.Env[Any, Any], factories: list[Callable[[], Episodes]],
              short: Array) -> None:
    """Let the first factory without short episodes use `first`, which is built already."""
    if short.all():
        close_quietly(first)
    else:
        index = int(short.argmin())
        factory: Callable[..., Episodes] = factories[index]
        factories[index] = partial(factory, built=first)
