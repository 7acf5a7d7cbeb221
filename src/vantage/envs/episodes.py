"""One environment, played episode after episode. `single` and `workers` step several together."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage._host.processes import die_with_parent
from vantage.envs.actions import make_actor, make_masker
from vantage.envs.failures import cause, failure, is_interrupt, named_errors
from vantage.envs.interface import IDLE, Array, Info, Seeds
from vantage.envs.masks import masks_of
from vantage.envs.outcomes import (
    LAST_INFO,
    Result,
    check_reset,
    check_same_spaces,
    check_step,
    observed,
    small_parts,
)
from vantage.envs.randomness import seed_spaces
from vantage.envs.spaces import make_observer, policy_spaces
from vantage.errors import EnvError, VantageError
from vantage.keys.stages import Stages
from vantage.specs import EnvSpec

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed
# from those on a new instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less
# than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

NO_STAGES = Stages()
EPISODES = "episodes"
"""Key of a reset's options: the number of the episode that each environment begins."""
SEED = "seed"
"""Key of a reset's options: the seed that the episodes' seeds derive from."""
ERROR = "error"
"""Key of `info`: the message of a failure in a worker process."""


def reset_options(episodes: Array, which: Array, seeds: Seeds) -> dict[str, Any]:
    """Options of a vector's reset that begins `episodes` [B] where `which` [B] is True."""
    return {"reset_mask": which.copy(), EPISODES: episodes, SEED: seeds.seed}


class Episodes(gym.Env[Any, Any]):
    """One environment, episode after episode: seeded, checked, in the shapes that a policy uses.

    Episodes are truncated after `max_steps`. Unless the environment is `built` already, the first
    reset builds it, so that errors of building are reported like those of stepping.

    In a worker process, `parent` is the process that started it (else 0), and errors are returned
    as `info["error"]`: Gymnasium's own transport loses the cause and formats the traceback as a
    %-template.
    """

    def __init__(self, build: Callable[[], gym.Env[Any, Any]], spec: EnvSpec,
                 kinds: Mapping[str, str], seeds: Seeds, index: int, parent: int, *,
                 max_steps: float = math.inf, built: gym.Env[Any, Any] | None = None,
                 stages: Stages = NO_STAGES) -> None:
        # Gymnasium builds one in the parent too, to read its spaces.
        if parent not in (0, os.getpid()):
            die_with_parent(parent)
        self.observation_space, self.action_space = policy_spaces(spec)
        self.env: gym.Env[Any, Any] | None = None
        self.max_steps = max_steps
        self.info: Info = {}
        """What the environment reported at the last reset or step."""
        self._stages = stages
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
            chosen = self._stages.at(episode)
            begin = self.env.reset if chosen is None else partial(self.env.reset, options=chosen)
            obs, info = check_reset(begin(seed=seed))
            self.info = info
            return observed(self._observe, obs), self._mask(self._with_mask(info), False)
        except BaseException as error:
            return self._blank, self._failure(error)

    def step(self, action: Any) -> Result:
        if self._idle:
            return self._blank, 0.0, False, False, {}
        self._steps += 1
        try:
            assert self.env is not None
            obs, reward, terminated, truncated, info = check_step(self.env.step(self._act(action)))
            self.info = info
            if self._steps >= self.max_steps:
                truncated = True
            over = terminated or truncated
            # A time limit bootstraps from the allowed actions; the end of a task needs no mask.
            reported = self._mask(info if terminated else self._with_mask(info), over)
            parts = small_parts(info) if over else {}
            if parts:
                # As a tuple: a vector environment would split a dict into its keys.
                reported = {**reported, LAST_INFO: tuple(parts.items())}
            return observed(self._observe, obs), reward, terminated, truncated, reported
        except BaseException as error:
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
        """`error` as the `info` of a worker process; raised in any other process."""
        if not self._parent and is_interrupt(error):  # worker processes block signals
            raise error
        message = failure(self._seeds.place(self._index, self._episode, self._steps), error)
        if not self._parent:
            raise EnvError(message) from cause(error)
        # These messages explain the error; a traceback would add nothing.
        if isinstance(error, VantageError) or cause(error) is None:
            return {ERROR: message}
        return {ERROR: f"{message}\n{traceback.format_exc()}"}
