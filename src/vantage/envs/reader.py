"""Reads observations for `Agent.act`: in the policy's or the environment's form, one or many.

Nothing is normalised or moved to a device here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from vantage.envs.descriptions import cut, shown
from vantage.envs.interface import Array
from vantage.envs.parts import Path, leaves_of, names_of, value_at
from vantage.envs.space_json import space_from_json
from vantage.envs.spaces import make_observer
from vantage.specs import ArraySpec, EnvSpec

WHOLE = "obs"
"""The name of an observation that is not a mapping."""
_FEW = 6
"""Parts that a message names."""


class Reader:
    """Reads observations for policies of one spec."""

    def __init__(self, spec: EnvSpec, kinds: Mapping[str, str]) -> None:
        """`kinds` is the run's `EnvConfig.kinds_of_parts`; `spec.space` may have more parts."""
        self._kinds = kinds
        self._shifts = spec.shifts
        self._mapping = isinstance(spec.obs, Mapping)
        self._parts: Mapping[str, ArraySpec] = self._named(spec.obs)
        self._names = self._parts.keys() if self._mapping else None
        self._space: Any = None
        self._paths: dict[str, Path] = {}
        self._leaves: dict[Path, Any] = {}
        if spec.space is not None:
            space = space_from_json(spec.space)
            obs, self._observe = make_observer(space, kinds=kinds, shifts=spec.shifts,
                                               only=self._names)
            if obs == spec.obs:  # else options of the run convert it otherwise
                self._space = space
                self._leaves = leaves_of(space)
                named = {name: path for path, name in names_of(self._leaves).items()}
                self._paths = named if self._mapping else {WHOLE: ()}

    def __call__(self, obs: Any) -> tuple[dict[str, Array], bool]:
        """The parts of `obs` by name, [B, ...], and whether `obs` was a single observation.

        Raises ValueError if `obs` fits neither the policy nor its environment.
        """
        read = self._in_own_form(obs)
        if read is not None:
            return read
        why = ""
        if self._space is not None:
            try:
                parts = self._named(self._observe(obs))
                return {name: part[None] for name, part in parts.items()}, True
            except (KeyError, IndexError, TypeError, ValueError) as error:
                why = str(error)
            many = self._batch_of_environment(obs)
            if many is not None:
                return many, False
        raise ValueError(self._refusal(obs, why))

    def _in_own_form(self, obs: Any) -> tuple[dict[str, Array], bool] | None:
        if isinstance(obs, Mapping) != self._mapping:
            return None
        if self._mapping and obs.keys() != self._parts.keys():
            return None
        named = self._named(obs)
        try:
            arrays = {name: np.asarray(named[name]) for name in self._parts}
        except (TypeError, ValueError):
            return None
        if not all(self._is_own_type(name, array) for name, array in arrays.items()):
            return None
        if all(array.shape == self._parts[name].shape for name, array in arrays.items()):
            return {name: array[None] for name, array in arrays.items()}, True
        if all(array.shape[1:] == self._parts[name].shape and len(array)
               for name, array in arrays.items()):
            _check_one_batch(arrays)
            return arrays, False
        return None

    def _is_own_type(self, name: str, array: Array) -> bool:
        """Whether the type of `array` is the policy's, not the environment's.

        One-hots are floats in the policy's form; images have the type of their part.
        """
        if array.dtype.kind not in "fiub":
            return False
        if self._space is None:
            return True
        space = self._leaves[self._paths[name]]
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            return array.dtype.kind == "f"
        part = self._parts[name]
        if part.shift:
            return array.dtype == np.float32  # the environment's own numbers are too large for it
        return part.kind != "image" or part.dtype == array.dtype.name or space.dtype == np.uint8

    def _batch_of_environment(self, obs: Any) -> dict[str, Array] | None:
        """A batch from a vector of such environments: one more axis in front of each part."""
        try:
            first = self._paths[next(iter(self._parts))]
            size = np.shape(value_at(obs, first))[0]
            if not size:
                return None
            _, observe = make_observer(self._space, (size,), self._kinds, self._shifts,
                                       self._names)
            named: dict[str, Array] = self._named(observe(obs))
            return named
        except (KeyError, IndexError, TypeError, ValueError):
            return None

    def _named(self, obs: Any) -> Any:
        """Parts by name, also of an observation without parts."""
        return obs if self._mapping else {WHOLE: obs}

    def _refusal(self, obs: Any, why: str) -> str:
        own = [f"{name if self._mapping else ''} {_form(part)}".strip()
               for name, part in self._parts.items()]
        kind = "a dict with " if self._mapping else ""
        text = (f"the observation is {_given(obs)}; the policy takes {kind}{_list(own)}, or a "
                "batch of these with one more axis")
        if self._space is not None:
            lacks_parts = self._mapping and not isinstance(obs, Mapping | tuple | list)
            says_more = why and " of shape " not in why and not lacks_parts
            wrong = f" ({cut(why, 160)})" if says_more else ""
            text += f", or what its environment returns, in {cut(str(self._space), 160)}{wrong}"
        return f"{text}; env = agent.make_env() gives them so"


def _check_one_batch(arrays: Mapping[str, Array]) -> None:
    """ValueError unless all parts have the same batch size."""
    sizes = {name: len(array) for name, array in arrays.items()}
    first, *others = sizes
    for name in others:
        if sizes[name] != sizes[first]:
            raise ValueError(f"{name} has {sizes[name]} observations, {first} has {sizes[first]}; "
                             "give all parts of the same batch")


def _form(part: ArraySpec) -> str:
    axes = {"image": " [C, H, W]", "set": " [N, F + 1]"}.get(part.kind, "")
    return f"{part.dtype}{axes} of shape {part.shape}"


def _given(obs: Any) -> str:
    if not isinstance(obs, Mapping):
        return shown(obs)
    parts = [f"{name!s:.40} {_brief(part)}" for name, part in list(obs.items())[:_FEW + 1]]
    kind = type(obs).__name__
    return f"a {kind} of {_list(parts)}" if parts else f"an empty {kind}"


def _brief(part: Any) -> str:
    shape = getattr(part, "shape", None)
    return shown(part) if shape is None else f"{part.dtype} of shape {tuple(shape)}"


def _list(parts: list[str]) -> str:
    return ", ".join(parts[:_FEW]) + (", ..." if len(parts) > _FEW else "")
