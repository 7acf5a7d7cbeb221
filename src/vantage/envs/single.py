"""B single environments in a Gymnasium vector, by name, in this process or each in its own. Atari is in `atari`."""

from __future__ import annotations

import math
import os
import select
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from vantage.config_groups import EnvConfig
from vantage.envs.build import build
from vantage.envs.cut import CutGames, LongestGame, build_cut
from vantage.envs.ids import EnvId, check_processes
from vantage.envs.interface import IDLE, MASK, Array, Info, Obs, Seeds, Simulators, failure, named_errors
from vantage.envs.options import Play, check_options, non_defaults
from vantage.envs.spaces import Bounds, bounds_of, make_actor, make_masker, make_observer, policy_spaces
from vantage.errors import EnvError
from vantage.processes import deaf_to_signals, die_with, ended_by
from vantage.specs import EnvSpec
from vantage.time_limit import SLOW, TimeLimit

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed from those on a new
# instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

CLOSE_SECONDS = 1.0  # that environments may take to close; then they are left behind
_GUARD = "a script that trains with vector='async' needs if __name__ == '__main__'"
ERROR, EPISODES, SEED = "error", "episodes", "seed"
"""Keys: of `info`, for a failure in a worker process; of a reset's options, for the episode numbers and their seed."""


class Episodes(gym.Env[Any, Any]):
    """One environment, episode after episode: seeded, converted to the shapes that a policy sees, checked.

    The first reset builds the environment, so that errors of building are reported like those of stepping, unless it is
    `built` already. A worker
    process, started by `parent`, returns errors as `info["error"]`: Gymnasium's own transport loses the cause and
    formats the traceback as a %-template.
    """

    def __init__(self, build: Callable[[], gym.Env[Any, Any]], spec: EnvSpec, seeds: Seeds, index: int,
                 parent: int, built: gym.Env[Any, Any] | None = None) -> None:
        if parent not in (0, os.getpid()):  # Gymnasium makes one in the parent too, for its spaces
            die_with(parent)
        self.observation_space, self.action_space = policy_spaces(spec)
        self.env: gym.Env[Any, Any] | None = None
        self._build, self._seeds, self._index, self._parent = build, seeds, index, parent
        self._blank = spaces.unflatten(self.observation_space, np.zeros(spaces.flatdim(self.observation_space)))
        self._mask = make_masker(spec)
        self._episode, self._steps, self._idle = IDLE, 0, False
        if built is not None:
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
            obs, info = self.env.reset(seed=self._seeds.of(self._index, episode))
            return self._observe(obs), self._mask(info, False)
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
            return self._observe(obs), float(reward), bool(terminated), bool(truncated), self._mask(info, over)
        except (Exception, SystemExit) as error:
            return self._blank, 0.0, False, False, self._failure(error)

    def close(self) -> None:
        if self.env is not None:
            with suppress(Exception):  # it would hide the error before it, or end a run that is complete
                self.env.close()
            self.env = None

    def _use(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        _, self._observe = make_observer(env.observation_space)
        _, self._act = make_actor(env.action_space)

    def _failure(self, error: Exception | SystemExit) -> Info:
        message = failure(self._seeds.place(self._index, self._episode, self._steps), error)
        if not self._parent:
            raise EnvError(message) from error
        return {ERROR: f"{message}\n{traceback.format_exc()}"}


def serve(*arguments: Any) -> None:
    """Gymnasium's worker; ends without a traceback where the main process has died before `die_with` ends this one."""
    try:
        _async_worker(*arguments)
    except (EOFError, ConnectionError):
        os._exit(1)


class Workers:
    """An AsyncVectorEnv of `Episodes` whose errors name the environment, and which can be closed after them."""

    def __init__(self, factories: list[Callable[[], Episodes]], seeds: Seeds, limit: TimeLimit) -> None:
        self._seeds, self._limit, self._interrupted = seeds, limit, True
        try:
            with deaf_to_signals():  # raises at its end what a signal's handler raises
                self._vector = AsyncVectorEnv(factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP,
                                              worker=serve)
        except (EOFError, ConnectionError):
            raise EnvError(f"a process of {seeds.name} ended while it started, without an error (out of memory?); "
                           f"{_GUARD}") from None
        except BaseException:
            if hasattr(self, "_vector"):
                self.close()
            raise
        self._interrupted = False

    def reset(self, *, options: Info) -> tuple[Obs, Info]:
        self._call(self._vector.reset_async, options=options)
        return self._call(self._answers, self._vector.reset_wait)  # type: ignore[no-any-return]

    def step(self, actions: Array) -> Any:
        def step() -> Any:
            self._vector.step_async(actions)
            return self._answers(self._vector.step_wait)

        return self._call(step)

    def close(self) -> None:
        if self._vector.closed:
            return
        if not self._interrupted:
            with suppress(OSError, EOFError):  # a process is dead
                for pipe in self._vector.parent_pipes:
                    pipe.send(("close", None))
                for pipe in self._vector.parent_pipes:
                    pipe.recv()  # the process closes its environment next
            deadline = monotonic() + CLOSE_SECONDS
            for process in self._vector.processes:
                process.join(max(0.0, deadline - monotonic()))
        # Otherwise close() waits for the interrupted call, and for a process that hangs.
        self._vector._state = AsyncState.DEFAULT
        for process in self._vector.processes:
            process.kill()
        self._vector.close(terminate=True)

    def _answers(self, receive: Callable[[], Any]) -> Any:
        """The result of `receive`, when every process has answered; EnvError for those that take too long."""
        self._limit.check("between two steps")
        waiting, poll, ticks = {}, select.poll(), 0
        for i, pipe in enumerate(self._vector.parent_pipes, self._seeds.first_env):
            waiting[pipe.fileno()] = i
            poll.register(pipe, select.POLLIN)
        while waiting:
            ready = poll.poll(1_000 * self._limit.tick)
            for number, _ in ready:
                poll.unregister(number)
                del waiting[number]
            if not ready:
                ticks += 1
                names = f"{', '.join(map(str, waiting.values()))} of {self._seeds.name}"
                self._limit.check(names)
                if ticks >= self._limit.ticks:
                    raise EnvError(f"environments {names}: no answer for {self._limit.seconds:g} s; {SLOW}")
        return receive()

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function`. EnvError if an environment failed or its process died."""
        self._interrupted = True
        try:
            result = function(*args, **kwargs)
        except (EOFError, ConnectionError):
            ended = wait([process.sentinel for process in self._vector.processes], timeout=10.0)
            dead = {}
            for i, process in enumerate(self._vector.processes, self._seeds.first_env):
                if process.sentinel in ended:
                    process.join()  # a sentinel is ready before the exit code is
                    dead[i] = ended_by(process.exitcode or 0)
            memory = " (out of memory?)" * ("killed by SIGKILL" in dead.values())
            ends = ", ".join(f"environment {i} {how}" for i, how in dead.items())
            raise EnvError(f"processes of {self._seeds.name} ended without an error: {ends}{memory}; {_GUARD}"
                           ) from None
        self._interrupted = False
        if result is not None and ERROR in result[-1]:
            raise EnvError(next(message for message in result[-1][ERROR] if message is not None))
        return result


def make_single(config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, short: Array,
                rendered: bool = False, longest_game: int = 0) -> Simulators:
    """Environments that seed each episode by its number, so that a snapshot holds the current episodes' actions.

    Without a time limit, an episode is cut after `longest_game` steps; 0: it is not. `short` [B] bool has short ones.
    """
    check_options(config, env)
    one = partial(build, env, rendered=rendered)
    limit = TimeLimit(config.env_timeout, env.name)
    first = one(config)
    spec, bounds, own_limit = probe(first, seeds, limit)
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
        partial(Episodes, partial(one, cut) if short[i] else whole, spec, seeds, i, parent) for i in range(num_envs)]
    if not parent:
        factories = give(first, factories, short)
    vector: Any = (Workers(factories, seeds, limit) if parent
                   else SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP))

    def reset(episodes: Array, which: Array) -> Any:
        return vector.reset(options={"reset_mask": which.copy(), EPISODES: episodes, SEED: seeds.seed})

    def close() -> None:
        for one in vector.envs:
            with suppress(TimeoutError), TimeLimit(CLOSE_SECONDS):
                one.close()

    return Simulators(
        spec=spec, bounds=bounds,
        longest_game=config.max_episode_steps or (longest.steps if longest else math.inf),
        cut_after=longest.change if longest and not parent else None,
        notes=(f"time limit {most} steps" if most else "no time limit but that of --max-episode-steps",
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


def close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment, or leave it behind if it fails or takes too long."""
    with suppress(Exception), TimeLimit(CLOSE_SECONDS):
        env.close()


def give(first: gym.Env[Any, Any], factories: list[Callable[[], Episodes]],
         short: Array) -> list[Callable[[], Episodes]]:
    """`factories`, of which the first one without short episodes uses the environment that is built already."""
    if short.all():
        close_quietly(first)
        return factories
    index = int(short.argmin())
    taking: Callable[..., Episodes] = factories[index]
    return [*factories[:index], partial(taking, built=first), *factories[index + 1:]]


def probe(env: gym.Env[Any, Any], seeds: Seeds, limit: TimeLimit) -> tuple[EnvSpec, Bounds, int | None]:
    """The spec of an environment, its bounds and the time limit of its registration. It is closed after an error."""
    try:
        with named_errors(lambda: seeds.place(0, 0, 0)), limit:
            (obs, _), (action, _) = make_observer(env.observation_space), make_actor(env.action_space)
            _, info = env.reset(seed=seeds.of(0, 0))
    except BaseException:
        close_quietly(env)
        raise
    own_limit = env.spec.max_episode_steps if env.spec else None
    return EnvSpec(obs, action, MASK in info), bounds_of(env.observation_space), own_limit
