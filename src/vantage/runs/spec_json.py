"""Specs of environments as JSON, for policy files and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vantage.specs import ActionSpec, ArraySpec, EnvSpec


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """`spec` as a JSON object; infinite bounds become null."""
    values = {**asdict(spec), "action": _action_to_json(spec.action)}
    del values["agents"]  # of the environment at hand, not of a policy
    return values


def spec_from_json(spec: Mapping[str, Any]) -> EnvSpec:
    """The spec that `spec_to_json` returned."""
    obs = spec["obs"]
    parts: ArraySpec | dict[str, ArraySpec]
    # not a Dict with a part named "shape"
    if "shape" in obs and isinstance(obs.get("kind"), str):
        parts = _array_spec(obs)
    else:
        parts = {key: _array_spec(part) for key, part in obs.items()}
    return EnvSpec(parts, _action_spec(spec["action"]), spec["masked"], spec.get("space"))


def _action_to_json(action: ActionSpec) -> dict[str, Any]:
    values = asdict(action)
    for side in ("low", "high"):
        values[side] = [bound if math.isfinite(bound) else None for bound in values[side]]
    if action.kind == "joint":
        values["parts"] = {name: _action_to_json(part) for name, part in action.parts.items()}
    else:
        del values["parts"], values["space"]
    return values


def _action_spec(spec: Mapping[str, Any]) -> ActionSpec:
    values = dict(spec)
    for side, infinite in (("low", -math.inf), ("high", math.inf)):
        values[side] = tuple(infinite if bound is None else bound for bound in values[side])
    values["sizes"] = tuple(values["sizes"])
    values["scaled"] = tuple(values.get("scaled", ()))
    # Parts have none of their own, whatever a file says.
    values["parts"] = {name: _action_spec({**part, "parts": {}})
                       for name, part in values.get("parts", {}).items()}
    return ActionSpec(**values)


def _array_spec(spec: Mapping[str, Any]) -> ArraySpec:
    values = dict(spec)
    values |= {name: tuple(values[name]) for name in ("shape", "shift", "sizes") if name in values}
    return ArraySpec(**values)
