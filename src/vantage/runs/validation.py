"""What state.json and the tensors of a policy must hold. They may come from someone else, with right hashes.

Each check raises ValueError in one line; the caller adds the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from torch import Tensor

from vantage.envs.space_json import space_from_json
from vantage.specs import is_bounded
from vantage.types import ActionSpec, ArraySpec, EnvSpec

_LARGEST_SIDE = 10**7
"""Of an observation or an action."""
_LEARNED = ("model", "average", "optimizer", "rewards")
"""Groups of tensors that are finite as long as training goes well; environments may hold
anything."""
COUNTERS = ("step", "episodes", "seconds", "evaluated_step", "evaluated_at", "eval_steps",
            "last_eval_steps")
NEWER = ("eval_steps", "last_eval_steps")
"""Counters that runs of earlier versions lack."""
FLAGS = ("evaluation_due", "solved", "deterministic")
"""What the progress of a run holds: numbers, at least 0, and values that are true, false or
null."""


def check_state(state: Mapping[str, Any]) -> None:
    """Check what every runtime saves beside the tensors: the counters of the run and its environment's spec."""
    progress = state.get("progress")
    if not isinstance(progress, Mapping):
        raise ValueError(f"progress is {progress!r:.80}")
    step, best, games = progress.get("step"), progress.get("best_return", ""), progress.get("recent")
    valid = {name: _is_number(progress.get(name)) and progress[name] >= 0 for name in COUNTERS
             if name in progress or name not in NEWER}
    valid |= {name: isinstance(progress.get(name, 0), bool | None) for name in FLAGS}
    valid["step"] &= type(step) is int and step < 10**18  # as in manifest.json
    valid["best_return"] = best is None or _is_number(best)
    valid["recent"] = isinstance(games, list) and all(
        isinstance(game, list) and len(game) == 2 and all(map(_is_number, game)) for game in games)
    if wrong := [name for name, is_valid in valid.items() if not is_valid]:
        raise ValueError(f"progress.{wrong[0]} is {progress.get(wrong[0])!r:.80}")
    if not _is_number(state.get("workers_started", 0)):
        raise ValueError(f"workers_started is {state['workers_started']!r:.80}")
    read_spec(state.get("spec"))


def read_spec(values: Any) -> EnvSpec:
    """The spec that `EnvSpec.to_json` wrote."""
    try:
        spec = EnvSpec.from_json(values)
        shapes, action = [part.shape for part in spec.parts], spec.action
        bounds = action.sizes[0] if action.kind == "box" else 0
        valid = (bool(shapes) and isinstance(spec.masked, bool)
                 and all(map(_is_shape, (*shapes, action.sizes))) and all(map(_is_part, spec.parts))
                 and action.kind in ("discrete", "multi_discrete", "box")
                 and len(action.low) == len(action.high) == bounds
                 and all(isinstance(bound, float | int) and not isnan(bound)
                         for bound in (*action.low, *action.high)) and _is_scaling(action))
        if spec.space is not None:
            space_from_json(spec.space)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(f"spec is {values!r:.200}")
    return spec


def _is_scaling(action: ActionSpec) -> bool:
    """The scaled dimensions of an action have two bounds to scale to."""
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


def _is_part(part: ArraySpec) -> bool:
    """Whether a part of an observation, whose shape is valid, is consistent."""
    axes = {"image": 3, "vector": 1, "one_hot": 1}[part.kind]
    columns = part.shape[0] if part.kind == "one_hot" else 0
    return (len(part.shape) == axes and _is_number(part.unit) and part.unit > 0
            and isinstance(part.floats, bool) and isinstance(part.adapts, bool)
            and len(part.shift) in (0, part.shape[0]) and all(map(_is_number, part.shift))
            and sum(part.sizes) == columns
            and all(type(size) is int and size > 0 for size in part.sizes))


def _is_shape(shape: tuple[object, ...]) -> bool:
    return bool(shape) and all(type(side) is int and 0 < side <= _LARGEST_SIDE for side in shape)
