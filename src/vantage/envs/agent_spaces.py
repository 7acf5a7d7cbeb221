"""The agents of a PettingZoo environment: their names, their spaces and their action masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from vantage.envs.build import check_space
from vantage.envs.descriptions import cut
from vantage.envs.ids import EnvId
from vantage.envs.masks import flat, is_masked
from vantage.envs.outcomes import MASK, OutcomeError
from vantage.errors import ConfigError

OBSERVATION = "observation"
"""The other key of observations that contain a mask, by PettingZoo's convention."""


@dataclass(frozen=True, slots=True)
class AgentSpaces:
    """The names of the agents, and the spaces that all of them have."""

    names: tuple[str, ...]
    observation: gym.Space[Any]
    """Without the action mask."""
    action: gym.Space[Any]
    mask_in_obs: bool
    """Observations are dicts that contain the action mask."""

    def split(self, obs: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
        """An agent's observation and its flat action mask, or None if there is none."""
        mask = info.get(MASK)
        if self.mask_in_obs:
            if not isinstance(obs, Mapping) or MASK not in obs:
                raise OutcomeError("an observation lacks action_mask, which its observation_space "
                                   "has")
            mask = obs[MASK]
            obs = _without_mask(obs)
        return obs, None if mask is None else flat(mask, self.action)


def agent_spaces(env: Any, env_id: EnvId) -> AgentSpaces:
    """The agents of `env`. ConfigError if their spaces differ, or are no Gymnasium spaces."""
    start = f"env={env_id.name!r}"
    if not hasattr(env, "possible_agents"):
        raise ConfigError(f"{start} has no possible_agents; set possible_agents, the list of all "
                          "ids, in its __init__")
    for method in ("observation_space", "action_space"):
        if not callable(getattr(env, method, None)):
            raise ConfigError(f"{start} has no method {method}; define {method}(self, agent), "
                              "which returns the agent's space")
    names = tuple(env.possible_agents)
    if not names:
        raise ConfigError(f"env={env_id.name!r} has no agents: its possible_agents is empty")
    pairs = [(env.observation_space(name), env.action_space(name)) for name in names]
    for name, (observation, action) in zip(names, pairs, strict=True):
        check_space(env_id, f"observation_space({name!r})", observation)
        check_space(env_id, f"action_space({name!r})", action)
        if (observation, action) != pairs[0]:
            raise ConfigError(
                f"env={env_id.name!r}: its agents share one policy, and their spaces differ: "
                f"{names[0]} has {_in_words(pairs[0])}, {name} has "
                f"{_in_words((observation, action))}; pad them, for example as "
                "supersuit.pad_action_space_v0(supersuit.pad_observations_v0(env))")
    observation, action = pairs[0]
    has_mask = isinstance(observation, spaces.Dict) and MASK in observation.spaces
    if not (has_mask and is_masked(action)):
        return AgentSpaces(names, observation, action, mask_in_obs=False)
    rest = _without_mask(observation.spaces)
    if isinstance(rest, Mapping):
        rest = spaces.Dict(dict(rest))
    return AgentSpaces(names, rest, action, mask_in_obs=True)


def _without_mask(parts: Mapping[str, Any]) -> Any:
    """The parts besides the mask; a part called "observation" that is the only one by itself."""
    rest = {name: part for name, part in parts.items() if name != MASK}
    return rest[OBSERVATION] if rest.keys() == {OBSERVATION} else rest


def _in_words(pair: tuple[gym.Space[Any], gym.Space[Any]]) -> str:
    return f"{cut(str(pair[0]), 100)} and {cut(str(pair[1]), 60)}"
