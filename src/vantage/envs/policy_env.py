"""One environment in the policy's form with Gymnasium's interface, for custom loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from vantage.envs.actions import action_space, to_row
from vantage.envs.interface import MASK, Array, Obs
from vantage.envs.spaces import policy_spaces
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError


class PolicyEnv(gym.Env[Any, Any]):
    """An environment with the policy's observations, actions and masks, and raw rewards.

    A lost life ends no episode. Of a vector environment, it is the first; the others receive the
    same actions, or the first that their masks allow.
    """

    def __init__(self, envs: Environments, seed_of: Callable[[int], int], *,
                 render_mode: str | None) -> None:
        """`envs` is one evaluation environment, which renders unless `render_mode` is None.

        `seed_of` derives the environment's seed from the seed of a reset.
        """
        if envs.spec.agents > 1:
            raise ConfigError("an environment of several agents is no gymnasium.Env; build it "
                              "yourself, and call act with the observation of each agent")
        self._envs = envs
        self._seed_of = seed_of
        self._begun = False
        self._over = True
        self._masks: Array | None = None
        self.observation_space, self.action_space = policy_spaces(self._envs.spec)
        self._space = action_space(self._envs.spec.action)
        if self._space is not None:
            self.action_space = self._space
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"]}

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; with a `seed`, the first of that seed. `options` are ignored."""
        super().reset(seed=seed)
        first = self._envs.reset() if seed is None else self._envs.restart(self._seed_of(seed))
        self._begun = True
        self._over = False
        self._masks = _masks(first.action_mask)
        if self.render_mode is not None:
            self.metadata["render_fps"] = self._envs.fps
        return _only(first.obs), self._info(first.action_mask)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action without a batch axis. After an episode's end, call `reset` first."""
        if self._over:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        # `act` returns the state as a tuple; a tuple of numbers is an action.
        is_pair = isinstance(action, tuple) and len(action) == 2 and isinstance(action[1], tuple)
        if is_pair and not isinstance(self._space, gym.spaces.Tuple):
            raise ConfigError("the action is the pair that agent.act(obs) returns, with the "
                              "policy's state: write action, state = agent.act(obs, state), then "
                              "env.step(action)")
        row = np.asarray(action) if self._space is None else to_row(action, self._space)
        step = self._envs.step(self._for_all(row))
        self._over = any(episode.env == 0 for episode in step.episodes)
        self._masks = _masks(step.action_mask)
        terminated = bool(step.terminated[0])
        return (_only(step.obs), float(step.rewards[0]), terminated, self._over and not terminated,
                self._info(step.action_mask))

    def _info(self, mask: Array | None) -> dict[str, Any]:
        """The environment's own info, with the mask of the policy's actions."""
        info = dict(self._envs.info())
        return info if mask is None else {**info, MASK: _array(mask[0])}

    def _for_all(self, action: Array) -> Array:
        """`action` for all environments of a vector; the first allowed one where it is not."""
        actions = np.repeat(action[None], self._envs.num_envs, 0)
        is_discrete = self._envs.spec.action.kind == "discrete"
        if self._masks is not None and is_discrete and self._envs.num_envs > 1:
            forbidden = ~self._masks[np.arange(len(actions)), actions]
            forbidden[0] = False
            actions = np.where(forbidden, self._masks.argmax(1), actions)
        return actions

    def render(self) -> Any:
        """The current picture, uint8 RGB [H, W, 3]; None unless the render mode is rgb_array."""
        if self.render_mode is None:
            return None
        if not self._begun:
            raise gym.error.ResetNeeded("nothing to show: call reset() first")
        return self._envs.render()

    def close(self) -> None:
        self._envs.close()


def _only(obs: Obs) -> Any:
    """The first observation of a batch."""
    if isinstance(obs, Mapping):
        return {key: _array(part[0]) for key, part in obs.items()}
    return _array(obs[0])


def _array(value: Any) -> Array:
    """A copy of an array or of a tensor, which may be on another device."""
    return value.copy() if isinstance(value, np.ndarray) else np.array(value.cpu().numpy())


def _masks(mask: Array | None) -> Array | None:
    return None if mask is None else _array(mask)
