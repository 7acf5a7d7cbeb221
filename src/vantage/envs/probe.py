"""Facts about a run that its first environment shows: spaces, time limit, unsaved wrappers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from vantage._host.time_limit import TimeLimit
from vantage.envs.actions import make_actor
from vantage.envs.checks import Bounds, bounds_of
from vantage.envs.config import EnvConfig
from vantage.envs.interface import MASK, Seeds, named_errors
from vantage.envs.masks import masks_of
from vantage.envs.offsets import Shifts, first_offsets
from vantage.envs.other_interfaces import own_time_limit
from vantage.envs.outcomes import check_reset
from vantage.envs.randomness import layers
from vantage.envs.space_json import space_to_json
from vantage.envs.spaces import check_obs_size, observer_of, read_parts, reasons_of
from vantage.envs.workers import CLOSE_SECONDS
from vantage.specs import EnvSpec

NOT_SAVED = {
    gym.wrappers.NormalizeObservation:
        "the environment is wrapped in NormalizeObservation: each instance has statistics of its "
        "own, which are not saved, so evaluations show the policy other numbers than training; use "
        "obs_norm=true instead",
    gym.wrappers.NormalizeReward:
        "the environment is wrapped in NormalizeReward: scores are sums of normalised rewards, by "
        "statistics of each instance that are not saved; use reward_norm=true instead",
}
"""Notes on wrappers whose state outlives an episode."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Facts about a run that its first environment shows."""

    spec: EnvSpec
    bounds: Bounds
    why: Mapping[str, str]
    """Why each part of the observation is read as it is."""
    own_limit: int | None
    """The time limit of its registration, in steps."""
    notes: tuple[str, ...]
    """Warnings about its wrappers."""


def probe(env: gym.Env[Any, Any], config: EnvConfig, seeds: Seeds, limit: TimeLimit) -> Probed:
    """Read the spaces of `env` and reset it. It is closed after an error."""
    try:
        with named_errors(lambda: seeds.place(0, 0, 0)), limit:
            space = env.observation_space
            parts = read_parts(space, kinds=config.kinds_of_parts)
            obs, _ = observer_of(parts)
            action, _ = make_actor(env.action_space, scale=config.scale_actions)
            check_obs_size(obs)
            _, info = check_reset(env.reset(seed=seeds.of(0, 0)))
            info = masks_of(env)(info)
            shifts: Shifts | None = config.shifts
            if shifts is None:
                shifts = first_offsets(lambda seed: check_reset(env.reset(seed=seed))[0], space,
                                       obs)
            obs, _ = observer_of(parts, shifts)
    except BaseException:
        close_quietly(env)
        raise
    notes = tuple(NOT_SAVED[type(layer)] for layer in layers(env) if type(layer) in NOT_SAVED)
    spec = EnvSpec(obs, action, MASK in info, space_to_json(space))
    return Probed(spec, bounds_of(space, obs), reasons_of(space, parts), own_time_limit(env), notes)


def close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment, or leave it behind if it fails or takes too long."""
    with suppress(Exception, SystemExit), TimeLimit(CLOSE_SECONDS):
        env.close()
