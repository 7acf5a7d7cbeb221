"""A wrapper that repeats actions for several frames and begins episodes with random actions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from vantage.envs.interface import MASK
from vantage.envs.masks import allows, masks_of
from vantage.errors import ConfigError

if TYPE_CHECKING:
    from vantage.envs.options import PlayOptions


class Frames(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats an action for several frames and adds up their rewards.

    The number of frames is drawn from `play.skip`, both ends included. The observation is the
    maximum over the last `play.pooled` frames. A step is shorter if the episode ends or a mask
    forbids the action in the next frame.

    An episode begins with 0 to noop_max - 1 times action 0, as in ALE, then with 0 to random_start
    random actions. If it ends during these, the next one begins without any. The random numbers
    depend on the last seeded reset.
    """

    def __init__(self, env: gym.Env[Any, Any], play: PlayOptions) -> None:
        super().__init__(env)
        self._play = play
        self._start_rng = np.random.default_rng()
        self._skip_rng = self._start_rng
        self._with_mask = masks_of(env)

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._start_rng = np.random.default_rng((seed, 0))
            self._skip_rng = np.random.default_rng((seed, 1))
            self.env.action_space.seed(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        if self._play.random_start and MASK in self._with_mask(info):
            raise ConfigError("random_start ignores action masks, which this environment has; "
                              "leave it out")
        noops = int(self._start_rng.integers(self._play.noop_max)) if self._play.noop_max else 0
        random_actions = int(self._start_rng.integers(self._play.random_start + 1))
        for t in range(noops + random_actions):
            action = 0 if t < noops else self.env.action_space.sample()
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                return self.env.reset(options=options)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        low, high = self._play.skip
        frames: deque[Any] = deque(maxlen=self._play.pooled)
        total: Any = 0.0
        for _ in range(low if low == high else int(self._skip_rng.integers(low, high + 1))):
            obs, reward, terminated, truncated, info = self.env.step(action)
            # A copy: the environment may show its next frame in the same memory.
            frames.append(obs if self._play.pooled == 1 else np.array(obs))
            total += reward
            if terminated or truncated:
                break
            mask = self._with_mask(info).get(MASK)
            if mask is not None and not allows(mask, action, self.env.action_space):
                break
        obs = frames[0] if len(frames) == 1 else np.maximum.reduce(frames)
        return obs, total, terminated, truncated, info
