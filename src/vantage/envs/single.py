"""B single environments in a Gymnasium vector, by name, in this process or each in its own. Atari is in `atari`."""

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

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed from those on a new
# instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

GIVEN = "the environment that was given is played as it is and stays open; evaluations play copies of it"

EPISODES, SEED = "episodes", "seed"
"""Keys of a reset's options, for the episode numbers and their seed."""


class Episodes(gym.Env[Any, Any]):
    """One environment, episode after episode: seeded, converted to the shapes that a policy sees, checked.

    The first reset builds the environment, so that errors of building are reported like those of stepping, unless it is
    `built` already. A worker process, started by `parent`, returns errors as `info["error"]`: Gymnasium's own transport
    loses the cause and formats the traceback as a %-template.
    """

    def __init__(self, build: Callable[[], gym.Env[Any, Any]], spec: EnvSpec, kinds: Mapping[str, str], seeds: Seeds,
                 index: int, parent: int, built: gym.Env[Any, Any] | None = None) -> None:
        if parent not in (0, os.getpid()):  # Gymnasium makes one in the parent too, for its spaces
            die_with_parent(parent)
        self.observation_space, self.action_space = policy_spaces(spec)
        self.env: gym.Env[Any, Any] | None = None
        self._build, self._seeds, self._index, self._parent = build, seeds, index, parent
        self._blank = spaces.unflatten(self.observation_space, np.zeros(spaces.flatdim(self.observation_space)))
        self._spec, self._kinds = spec, kinds
        self._mask = make_masker(spec)
        self._episode, self._steps, self._idle = IDLE, 0, False
        if built is not None:
            with named_errors(lambda: seeds.place(index, 0, 0)):
                self._use(built)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin the next episode, or the one that `options` names. Its number decides its seed."""
        episode = self._episode + 1
        if options is not None:
            episode = int(options[EPISODES][self._index])
            self._seeds.seed = options[SEED]
        self._idle = episode == IDLE
        if self._idle:
            return self._blank, {}
        self._episode, self._steps = episode, 0
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
            # A policy takes the value of a time limit's observation over the allowed actions; a task's end has none.
            mask = self._mask(info if terminated else self._with_mask(info), terminated or truncated)
            if info and (terminated or truncated) and (parts := small_parts(info)):
                mask = {**mask, LAST_INFO: tuple(parts.items())}  # a vector would take a dict apart
            return observed(self._observe, obs), reward, terminated, truncated, mask
        except BaseException as error:
            if not self._parent and is_interrupt(error):  # worker processes block signals
                raise
            return self._blank, 0.0, False, False, self._failure(error)

    def played(self) -> object:
        """The innermost environment; None before it is built and once it is closed."""
        return None if self.env is None else self.env.unwrapped

    def close(self) -> None:
        if self.env is not None:
            with suppress(Exception, SystemExit):  # would hide the error before it, or end a run that is complete
                self.env.close()
            self.env = None

    def _use(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        obs, self._observe = make_observer(env.observation_space, kinds=self._kinds, shifts=self._spec.shifts)
        action, self._act = make_actor(env.action_space, scale=bool(self._spec.action.scaled))
        check_same_spaces(self._spec, obs, action)
        self._with_mask = masks_of(env)

    def _failure(self, error: BaseException) -> Info:
        message = failure(self._seeds.place(self._index, self._episode, self._steps), error)
        if not self._parent:
            raise EnvError(message) from cause(error)
        if isinstance(error, VantageError) or cause(error) is None:  # it says what to do; where it arose helps nobody
            return {ERROR: message}
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


def make_single(config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, short: Array,
                rendered: bool = False, longest_game: int = 0) -> Simulators:
    """Environments that seed each episode by its number, so that a snapshot holds the current episodes' actions.

    Without a time limit, an episode is cut after `longest_game` steps; 0: it is not. `short` [B] bool has short ones.
    """
    check_options(config, env)
    one = partial(build, env, rendered=rendered)
    limit = TimeLimit(config.env_timeout, env.name)
    first = one(config)
    check_unused(first.unwrapped, env.name)
    probed = probe(first, config, seeds, limit)
    spec, own_limit = probed.spec, probed.own_limit
    longest: LongestGame | None = None
    if longest_game and not config.max_episode_steps and own_limit is None:
        longest = LongestGame(longest_game)
        first = CutGames(first, longest)
    whole = partial(one, config) if longest is None else partial(build_cut, partial(one, config), longest)
    parent = os.getpid() if config.vector == "async" else 0
    if parent:
        close_quietly(first)
        check_processes(env)
    frames = Play.of(config, None).frames_per_step
    most = config.max_episode_steps or math.ceil((own_limit or 0) / frames)
    cut = replace(config, max_episode_steps=min(config.short_episode_steps, most or config.short_episode_steps))
    factories: list[Callable[[], Episodes]] = [
        partial(Episodes, partial(one, cut) if short[i] else whole, spec, config.kinds_of_parts, seeds, i, parent)
        for i in range(num_envs)]
    if not parent:
        give(first, factories, short)
    vector: Any = (Workers(factories, seeds, limit, imports_main=needs_main(config)) if parent
                   else SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP))

    def reset(episodes: Array, which: Array) -> Any:
        answer = vector.reset(options={"reset_mask": which.copy(), EPISODES: episodes, SEED: seeds.seed})
        if which.all() and not parent:
            built = [one.env.unwrapped for one in vector.envs if one.env is not None]
            if len({id(each) for each in built}) < len(built):
                raise ConfigError(f"env={env.name} returns the same object every time; let it build a new one")
            for one in vector.envs:
                check_unused(one.played(), env.name, own=(one,))
                note_player(one)
        return answer

    def close() -> None:
        for one in vector.envs:
            with suppress(TimeoutError), TimeLimit(CLOSE_SECONDS):
                one.close()

    return Simulators(
        spec=spec, bounds=probed.bounds, why=probed.why,
        longest_game=config.max_episode_steps or (longest.steps if longest else math.inf),
        cut_after=longest.change if longest and not parent else None,
        notes=(*probed.notes, *([GIVEN] if is_built(config) else []),
               f"time limit {most} steps" if most else "no time limit but that of --max-episode-steps",
               *(f"{name}={getattr(config, name)}" for name in non_defaults(config)),
               f"{num_envs} environments, " + ("each in a process of its own" if parent else "in this process")),
        reset=reset if parent else with_limit(reset, limit, seeds),
        step=vector.step if parent else with_limit(vector.step, limit, seeds),
        close=vector.close if parent else close,
        single=None if parent else lambda: vector.envs[0].env,
        frames_per_step=frames)


def with_limit(call: Callable[..., Any], limit: TimeLimit, seeds: Seeds) -> Callable[..., Any]:
    """`call`, with EnvError for what takes too long."""
    def within(*args: Any) -> Any:
        with named_errors(lambda: seeds.name), limit:
            return call(*args)

    return within


def give(first: gym.Env[Any, Any], factories: list[Callable[[], Episodes]], short: Array) -> None:
    """Let the first factory without short episodes use the environment that is built already."""
    if short.all():
        close_quietly(first)
    else:
        index = int(short.argmin())
        taking: Callable[..., Episodes] = factories[index]
        factories[index] = partial(taking, built=first)
