"""B single environments in a Gymnasium vector, in this process or in one process each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from vantage._host.time_limit import TimeLimit
from vantage.envs.build import build
from vantage.envs.built import is_built
from vantage.envs.config import EnvConfig
from vantage.envs.episodes import Episodes, reset_options
from vantage.envs.failures import CLOSE_SECONDS, close_quietly, named_errors
from vantage.envs.ids import EnvId, check_processes, needs_main
from vantage.envs.in_use import check_distinct, check_unused, note_player
from vantage.envs.interface import Array, Info, Obs, Outcome, Seeds, Simulators
from vantage.envs.options import PlayOptions, check_without_wrappers, non_defaults
from vantage.envs.probe import probe_single
from vantage.envs.short_episodes import keep_if_shorter
from vantage.envs.two_players import Opponent, two_players
from vantage.envs.workers import Workers


class SingleEnvironments:
    """Single environments, stepped one after another in this process."""

    def __init__(self, factories: list[Callable[[], Episodes]], env: EnvId, seeds: Seeds,
                 limit: TimeLimit) -> None:
        self._envs: list[Any] = [factory() for factory in factories]
        # Gymnasium's form of the infos of several environments; its own SyncVectorEnv takes twice
        # as long for a step.
        self._infos: Any = VectorEnv()
        self._infos.num_envs = len(self._envs)
        self._rows: list[Any] = [None] * len(self._envs)
        """The newest observation of each environment."""
        self._over = [False] * len(self._envs)
        self._env = env
        self._seeds = seeds
        self._limit = limit

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        """Begin `episodes` [B] where `which` [B] is True."""
        options = reset_options(episodes, which, self._seeds)
        info: Info = {}
        with named_errors(self._name), self._limit:
            for i in which.nonzero()[0].tolist():
                self._rows[i], own = self._envs[i].reset(options=options)
                info = self._infos._add_info(info, own, i)
                self._over[i] = False
            if which.all():
                self._check_objects()
        return _stacked(self._rows), info

    def step(self, actions: Array) -> Outcome:
        """Take one action in each environment; where an episode was over, begin the next one."""
        rows = self._rows
        rewards = np.zeros(len(self._envs))
        terminated = np.zeros(len(self._envs), bool)
        truncated = np.zeros(len(self._envs), bool)
        info: Info = {}
        with named_errors(self._name), self._limit:
            for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
                if self._over[i]:
                    rows[i], own = env.reset()
                else:
                    rows[i], rewards[i], terminated[i], truncated[i], own = env.step(action)
                if own:
                    info = self._infos._add_info(info, own, i)
        self._over = (terminated | truncated).tolist()
        return _stacked(rows), rewards, terminated, truncated, info

    def cut_after(self, steps: int) -> float:
        """Truncate episodes after `steps`; returns `steps`."""
        for env in self._envs:
            env.max_steps = steps
        return steps

    def first(self) -> Any:
        """The first environment."""
        return self._envs[0].env

    def info(self) -> Info:
        """What the first environment reported at its last reset or step."""
        info: Info = self._envs[0].info
        return info

    def close(self) -> None:
        seconds = CLOSE_SECONDS
        for env in self._envs:
            started = monotonic()
            with suppress(TimeoutError), TimeLimit(seconds):
                env.close()
            if monotonic() > started + seconds:
                seconds = CLOSE_SECONDS / 10  # the others probably hang too

    def _name(self) -> str:
        return self._seeds.name

    def _check_objects(self) -> None:
        """ConfigError if two environments are one object, or something else plays one of them."""
        check_distinct([env.played() for env in self._envs if env.env is not None], self._env.name)
        for env in self._envs:
            check_unused(env.played(), self._env.name, own=(env,))
            note_player(env)


def _stacked(rows: list[Any]) -> Obs:
    """The observations of all environments as one; a concatenation takes a fifth of np.stack."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {key: _stacked([row[key] for row in rows]) for key in first}  # type: ignore[misc]
    return np.concatenate(rows).reshape(len(rows), *first.shape)


def single_environments(config: EnvConfig, env: EnvId, seeds: Seeds, created: Any, *,
                        num_envs: int, short: Array, rendered: bool,
                        longest_game: int) -> Simulators:
    """B environments that seed each episode by its number.

    A snapshot therefore only needs the actions of the current episodes. `longest_game` cuts
    episodes of environments without a time limit after so many steps; 0 cuts none. `short` [B] bool
    marks environments with short episodes. `created` is the first of them.
    """
    limit = TimeLimit(config.env_timeout, env.name)
    opponent = None
    converts: list[Callable[[Any], Any] | None] = [None] * num_envs
    if config.self_play:
        check_without_wrappers(config, f"{env.name} is a game of two players", "vector",
                               "reset_options", "short_episode_steps")
        opponent = Opponent()
        converts = [partial(two_players, env, opponent, row, config) for row in range(num_envs)]
    first = build(env, config, rendered=rendered, created=created, convert=converts[0])
    check_unused(first.unwrapped, env.name)
    probed = probe_single(first, config, seeds, limit)
    in_processes = config.vector == "async"
    if in_processes:
        close_quietly(first)
        check_processes(env)
    frames = PlayOptions.of(config, None).frames_per_step
    time_limit = config.max_episode_steps or math.ceil((probed.own_limit or 0) / frames)
    keep_if_shorter(short, config, time_limit or math.inf)
    is_endless = time_limit == 0
    max_steps = config.max_episode_steps or math.inf
    if is_endless and longest_game:
        max_steps = longest_game
    factories: list[Callable[[], Episodes]] = [
        partial(Episodes, partial(build, env, config, rendered=rendered, convert=converts[i]),
                probed.spec, config.kinds_of_parts, seeds, i, os.getpid() if in_processes else 0,
                max_steps=min(config.short_episode_steps, max_steps) if short[i] else max_steps,
                stages=config.reset_stages)
        for i in range(num_envs)]
    common: dict[str, Any] = {
        "spec": probed.spec,
        "bounds": probed.bounds,
        "why": probed.why,
        "frames_per_step": frames,
        "longest_game": max_steps,
        "is_endless": is_endless and bool(longest_game),
        "notes": (*probed.notes, *_notes(config, time_limit, num_envs)),
    }
    if in_processes:
        workers = Workers(factories, seeds, limit, imports_main=needs_main(config))
        return Simulators(reset=workers.reset, step=workers.step, close=workers.close, **common)
    first_factory: Callable[..., Episodes] = factories[0]
    factories[0] = partial(first_factory, built=first)
    envs = SingleEnvironments(factories, env, seeds, limit)
    cut_after = envs.cut_after if is_endless and longest_game else None
    return Simulators(reset=envs.reset, step=envs.step, close=envs.close, single=envs.first,
                      opponent=opponent, info=envs.info, cut_after=cut_after, **common)


def _notes(config: EnvConfig, time_limit: int, num_envs: int) -> list[str]:
    """How the environments are played, in words."""
    notes = []
    if is_built(config):
        notes.append("the environment that was given is played as it is and stays open; "
                     "evaluations play copies of it")
    if time_limit:
        notes.append(f"time limit {time_limit} steps")
    else:
        notes.append("no time limit but that of --max-episode-steps")
    if 0 < time_limit <= config.short_episode_steps:
        notes.append(f"short_episode_steps={config.short_episode_steps} has no effect: no episode "
                     "is longer")
    if config.self_play:
        notes.append(f"self-play against {config.self_play} past policies; evaluations are against "
                     "a random player")
    notes += [f"{name}={getattr(config, name)}" for name in non_defaults(config)]
    where = "each in a process of its own" if config.vector == "async" else "in this process"
    return [*notes, f"{num_envs} environments, {where}"]
