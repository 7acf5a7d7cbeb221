"""Facts about a run that its first environment shows: spaces, masks, offsets, unsaved wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium as gym

from vantage._host.time_limit import TimeLimit
from vantage.envs.actions import make_actor
from vantage.envs.checks import Bounds, bounds_of
from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly, named_errors
from vantage.envs.interface import MASK, Info, Seeds
from vantage.envs.masks import masks_of
from vantage.envs.offsets import Shifts, first_offsets
from vantage.envs.other_interfaces import own_time_limit
from vantage.envs.outcomes import check_reset
from vantage.envs.randomness import layers
from vantage.envs.space_json import space_to_json
from vantage.envs.spaces import check_obs_size, make_observer, reasons
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
    notes: tuple[str, ...] = ()
    """Warnings about its wrappers."""


def probe(env: Any, space: gym.Space[Any], action_space: gym.Space[Any], config: EnvConfig,
          seed: int, with_mask: Callable[[Info], Info]) -> Probed:
    """Read the spaces of a single or of a vector environment and reset it.

    The spaces are those of one environment. `with_mask` adds the mask of `env` to an `info`.
    """
    kinds = config.kinds_of_parts
    obs, _ = make_observer(space, kinds=kinds)
    action, _ = make_actor(action_space, scale=config.scale_actions)
    check_obs_size(obs)
    options = config.reset_stages.at(0)
    reset = env.reset if options is None else partial(env.reset, options=options)
    _, info = check_reset(reset(seed=seed))
    is_masked = MASK in with_mask(info)
    shifts: Shifts | None = config.shifts
    if shifts is None:
        shifts = first_offsets(lambda seed: check_reset(reset(seed=seed))[0], space, obs)
    obs, _ = make_observer(space, kinds=kinds, shifts=shifts)
    spec = EnvSpec(obs, action, is_masked, space_to_json(space))
    return Probed(spec, bounds_of(space, obs), reasons(space, kinds), own_time_limit(env))


def probe_single(env: gym.Env[Any, Any], config: EnvConfig, seeds: Seeds,
                 limit: TimeLimit) -> Probed:
    """`probe` of a single environment, with notes on its wrappers. It is closed after an error."""
    try:
        with named_errors(lambda: seeds.place(0, 0, 0)), limit:
            probed = probe(env, env.observation_space, env.action_space, config, seeds.of(0, 0),
                           masks_of(env))
    except BaseException:
        close_quietly(env)
        raise
    notes = tuple(NOT_SAVED[type(layer)] for layer in layers(env) if type(layer) in NOT_SAVED)
    return replace(probed, notes=notes)
