"""What made a policy's numbers infinite or NaN: its parameters, its observations or its layers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vantage.errors import NonFiniteError
from vantage.models.actor_critic import ActorCritic
from vantage.types import Obs, map_parts

_MOST_NAMED = 3
_LAYERS = ("its parameters and the observations are finite, so look for a division by 0, a logarithm "
           "or a square root in the network, or for sums that overflow")


def check_actions(actions: np.ndarray, model: ActorCritic, obs: Obs, row: int | None = None) -> None:
    """NonFiniteError if `actions` for `obs`, or for the `row` of a rollout's, are not finite.

    An environment would fail on them, and seem to be at fault.
    """
    # One product costs a third of np.isfinite; an overflow only leads to the closer look.
    if actions.dtype.kind != "f" or math.isfinite(np.vdot(actions, actions)):
        return
    if np.isfinite(actions).all():
        return
    if row is not None:
        obs = map_parts(lambda part: part[row], obs)
    raise NonFiniteError(f"the policy gave the action {actions[~np.isfinite(actions)][0]:g}: "
                         f"{cause(model, obs) or _LAYERS}")


def cause(model: ActorCritic, obs: Obs, outputs: Tensor | None = None) -> str:
    """Which parameters, observations or, last, `outputs` are not finite; '' if all are."""
    names = [name for name, part in model.named_parameters() if not torch.isfinite(part).all()]
    # A buffer may be infinite: bounds of actions, masks of attention.
    names += [name for name, part in model.named_buffers() if torch.isnan(part).any()]
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return (f"not finite in the network: {', '.join(names[:_MOST_NAMED])}{more}; initialise "
                "what is named, or resume from an earlier checkpoint")
    parts = obs if isinstance(obs, Mapping) else {"the observation": obs}
    for name, part in parts.items():
        if part.is_floating_point() and not torch.isfinite(part).all():
            what = f"observation part {name!r}" if isinstance(obs, Mapping) else name
            return f"{what} is not finite; correct it in the environment"
    if outputs is not None and not torch.isfinite(outputs).all():
        return f"the network's outputs are not finite: {_LAYERS}"
    return ""


def with_cause(error: NonFiniteError, model: ActorCritic, obs: Obs,
               behaviour: Tensor) -> NonFiniteError:
    """`error`, with the parameter or the observation that is not finite if there is one."""
    reason = cause(model, obs, behaviour)
    return NonFiniteError(f"{reason}: {error.message}") if reason else error
