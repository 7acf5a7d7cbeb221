"""Checks of state.json and of the tensors of a policy, which someone else may have written.

Each check raises ValueError in one line, to which the caller adds the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import Any

from torch import Tensor

from vantage.envs.actions import make_actor
from vantage.envs.space_json import space_from_json
from vantage.errors import ConfigError
from vantage.runs.spec_json import spec_from_json
from vantage.specs import is_bounded
from vantage.types import ActionSpec, ArraySpec, EnvSpec

_LARGEST_SIDE = 10**7
"""Bound of a side of an observation or an action."""
_LEARNED = ("model", "average", "ema", "optimizer", "rewards", "learning_rate")
"""Groups whose tensors must be finite. Those of environments may hold any values."""
COUNTERS = ("step", "episodes", "seconds", "evaluated_step", "evaluated_at", "eval_steps",
            "last_eval_steps")
"""Numbers in the progress of a run, at least 0."""
FLAGS = ("evaluation_due", "solved", "deterministic")
"""Values in the progress of a run that are true, false or null."""
_REQUIRED = ("step", "episodes", "seconds", "evaluated_step", "evaluated_at", "best_return",
             "recent")
"""Entries that runs of all versions have."""


def check_state(state: Mapping[str, Any]) -> None:
    """Check the state that every runtime saves: progress, and the environment's spec."""
    progress = state.get("progress")
    if not isinstance(progress, Mapping):
        raise ValueError(f"progress is {progress!r:.80}")
    for name, is_valid in _PROGRESS.items():
        if name in _REQUIRED or name in progress:
            value = progress.get(name, "missing")
            if not is_valid(value):
                raise ValueError(f"progress.{name} is {value!r:.80}")
    if not _is_number(state.get("workers_started", 0)):
        raise ValueError(f"workers_started is {state['workers_started']!r:.80}")
    read_spec(state.get("spec"))


def read_spec(values: Any) -> EnvSpec:
    """The spec in the JSON that `spec_to_json` wrote; ValueError if it is not valid."""
    try:
        spec = spec_from_json(values)
        shapes = [part.shape for part in spec.parts]
        valid = (bool(shapes) and isinstance(spec.masked, bool)
                 and all(map(_is_shape, shapes))
                 and all(map(_is_part, spec.parts))
                 and _is_action(spec.action))
        if spec.space is not None:
            space_from_json(spec.space)
    except (AttributeError, ConfigError, IndexError, KeyError, TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(f"spec is {values!r:.200}")
    return spec


def _is_action(action: ActionSpec) -> bool:
    """Whether an action is consistent."""
    if action.kind == "joint":
        space = space_from_json(action.space)
        return make_actor(space, scale=any(action.scaled))[0] == action
    bounds = (*action.low, *action.high)
    num_bounds = action.sizes[0] if action.kind == "box" else 0
    return (action.kind in ("discrete", "multi_discrete", "box") and _is_shape(action.sizes)
            and len(action.low) == len(action.high) == num_bounds
            and all(isinstance(bound, float | int) and not isnan(bound) for bound in bounds)
            and _is_scaling(action))


def _is_scaling(action: ActionSpec) -> bool:
    """Whether the scaled dimensions of an action have two bounds each."""
    return len(action.scaled) in (0, len(action.low)) and all(
        on is False or (on is True and low < high and is_bounded(low, high))
        for on, low, high in zip(action.scaled, action.low, action.high, strict=False))


def check_finite(groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Refuse learned tensors with NaN or infinity."""
    for group in _LEARNED:
        for name, tensor in groups.get(group, {}).items():
            if not tensor.isfinite().all():
                raise ValueError(f"{group}.safetensors: {name} has values that are not finite")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and -1e300 < value < 1e300


def _is_counter(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1e300


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**18  # as in manifest.json


def _is_optional_number(value: object) -> bool:
    return value is None or _is_number(value)


def _are_games(games: object) -> bool:
    """Whether progress.recent is a list of pairs of numbers."""
    return isinstance(games, list) and all(
        isinstance(game, list) and len(game) == 2 and all(map(_is_number, game)) for game in games)


def _are_infos(infos: object) -> bool:
    """Whether progress.recent_numbers is a list of mappings of numbers by printable names."""
    return isinstance(infos, list) and all(
        isinstance(info, dict) and all(map(str.isprintable, info))
        and all(map(_is_number, info.values())) for info in infos)


_PROGRESS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(COUNTERS, _is_counter),
    **dict.fromkeys(FLAGS, lambda value: isinstance(value, bool | None)),
    **dict.fromkeys(("best_return", "learning_rate", "divergence"), _is_optional_number),
    "step": _is_step,
    "recent": _are_games,
    "recent_numbers": _are_infos,
}
"""The check of each entry of the progress."""


def _is_part(part: ArraySpec) -> bool:
    """Whether a part of an observation, whose shape is valid, is consistent."""
    axes = {"image": 3, "vector": 1, "one_hot": 1, "set": 2}[part.kind]
    columns = part.shape[0] if part.kind == "one_hot" else 0
    return (len(part.shape) == axes and (part.kind != "set" or part.shape[1] > 1)
            and _is_number(part.unit) and part.unit > 0
            and isinstance(part.floats, bool) and isinstance(part.adapts, bool)
            and len(part.shift) in (0, part.shape[0]) and all(map(_is_number, part.shift))
            and sum(part.sizes) == columns
            and all(type(size) is int and size > 0 for size in part.sizes))


def _is_shape(shape: tuple[object, ...]) -> bool:
    return bool(shape) and all(type(side) is int and 0 < side <= _LARGEST_SIDE for side in shape)
