"""Conversion of whole observations, and the policy's own spaces. Single parts are in `leaves`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.actions import scale_in_words
from vantage.envs.leaves import Convert, Part, Shape, read_leaf
from vantage.envs.offsets import Shifts, shifted
from vantage.envs.parts import Path, leaves_of, names_of, texts_of
from vantage.envs.sets import masks_of_sets, read_set
from vantage.errors import ConfigError
from vantage.keys.suggestions import nearest
from vantage.specs import ArraySpec, EnvSpec

Observer = tuple[ArraySpec | Mapping[str, ArraySpec], Convert]
"""The spec of observations and their conversion."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
MOST_NAMED = 3
"""Parts with the same description that the start of a run lists by name."""
MOST_NUMBERS = 10**7
"""Largest size of an observation: 128 steps of 8 environments then take 41 GB."""


def make_observer(space: gym.Space[Any], batch: Shape = (), kinds: Mapping[str, str] = NOTHING,
                  shifts: Shifts = NOTHING, only: Collection[str] | None = None) -> Observer:
    """The spec of `space`, and the conversion of its observations.

    Parts of nested Dict and Tuple spaces are named by their path; texts are left out. `batch` is
    the shape of the leading axes, () or (B,). `kinds` and `shifts` come from the config's obs_as
    and obs_shift. With `only`, parts of other names are left out. Raises ConfigError for a space
    that no policy can read.
    """
    parts = read_parts(space, batch, kinds)
    names = {part.name for part in parts.values()}
    for name in shifts:
        if name not in names:
            raise ConfigError(f"obs_shift names the part {name!r}, which these observations do not "
                              "have; give --obs-shift auto")
    chosen = {}
    for path, part in parts.items():
        if only is None or part.name in only:
            shift = shifts.get(part.name, ())
            spec, convert = shifted(part.spec, part.convert, shift)
            chosen[path] = replace(part, spec=spec, convert=convert)
    return observer_of(chosen)


def observer_of(parts: Mapping[Path, Part]) -> Observer:
    """The spec of observations with these parts by path, and their conversion.

    The conversion raises ValueError for observations that lack a part.
    """
    if () in parts:
        return parts[()].spec, parts[()].convert

    def convert(value: Any) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        for path, part in parts.items():
            try:
                converted[part.name] = part.convert(part.value(value, path))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                paths = (path, part.mask or ())
                if isinstance(error, LookupError) and (lack := _lack(value, paths)):
                    raise ValueError(lack) from None
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                raise ValueError(f"in {part.name!r}: {kind}{error}") from None
        return converted

    return {part.name: part.spec for part in parts.values()}, convert


def _lack(obs: Any, paths: Iterable[Path]) -> str:
    """The first key or index of `paths` that `obs` lacks, with a similar key that it has; or ''."""
    for path in paths:
        holder = obs
        for i, key in enumerate(path):
            missing = "/".join(map(str, path[:i + 1]))
            if isinstance(holder, Mapping) and key not in holder:
                near = nearest(str(key), map(str, holder), repr)
                return f"the observation lacks {missing!r}{near}"
            if isinstance(holder, list | tuple) and key >= len(holder):
                return f"the observation lacks {missing!r}"
            holder = holder[key]
    return ""


def reasons(space: gym.Space[Any], kinds: Mapping[str, str]) -> dict[str, str]:
    """Why each part of `space` is read as it is, by its name ("" for the whole observation)."""
    why = {part.name: part.why for part in read_parts(space, (), kinds).values()}
    for name in names_of(texts_of(space)).values():
        why[name] = "left out, since it is text"
    return why


def check_obs_size(obs: ArraySpec | Mapping[str, ArraySpec]) -> None:
    """ConfigError for observations too large for rollouts, before memory is allocated."""
    named = {"": obs} if isinstance(obs, ArraySpec) else obs
    sizes = {name: math.prod(part.shape) for name, part in named.items()}
    total = sum(sizes.values())
    if total <= MOST_NUMBERS:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    where = f", {sizes[largest]:,} of them in {largest!r}" if largest else ""
    if named[largest].kind == "image":
        remedy = "shrink the images, as --screen-size 84 does for a single one"
    else:
        remedy = "show a Box of a few features instead, in a wrapper"
    raise ConfigError(f"one observation has {total:,} numbers{where}, more than {MOST_NUMBERS:,}; "
                      f"{remedy}")


def policy_spaces(spec: EnvSpec) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of observations and actions after conversion."""
    obs: gym.Space[Any]
    if isinstance(spec.obs, ArraySpec):
        obs = _policy_box(spec.obs)
    else:
        obs = spaces.Dict({key: _policy_box(part) for key, part in spec.obs.items()})
    match spec.action.kind:
        case "discrete":
            return obs, spaces.Discrete(spec.action.sizes[0])
        case "box" | "joint":
            return obs, spaces.Box(-np.inf, np.inf, spec.action.shape, np.float32)
    return obs, spaces.MultiDiscrete(list(spec.action.sizes))


def _policy_box(part: ArraySpec) -> spaces.Box:
    if part.kind == "image" and not part.floats:
        return spaces.Box(0, 255, part.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, part.shape, np.float32)


def describe(spec: EnvSpec, action_names: tuple[str, ...] = (), why: Mapping[str, str] = NOTHING
             ) -> tuple[str, str]:
    """The observations and actions of a policy, in words; `why` has the reasons by part."""
    named = {"": spec.obs} if isinstance(spec.obs, ArraySpec) else spec.obs
    names_by_phrase: dict[str, list[str]] = {}
    for name, part in named.items():
        shape = part.shape
        if part.kind == "set":
            shape = (shape[0], shape[1] - 1)
        phrase = f"{part.kind.replace('_', '-')} {by_x(shape)}"
        notes = [why[name]] if why.get(name) else []
        if part.shift:
            notes.append("shifted by its first values, which are large for float32")
        if notes:
            phrase += f" ({'; '.join(notes)})"
        names_by_phrase.setdefault(phrase, []).append(name)
    for name in sorted(why.keys() - named.keys()):
        names_by_phrase.setdefault(why[name], []).append(name)
    observations = []
    for phrase, names in names_by_phrase.items():
        more = len(names) - MOST_NAMED
        shown = names if more <= 1 else [*names[:MOST_NAMED], f"{more} more"]
        title = f"observations/{', '.join(shown)}" if names[0] else "observations"
        observations.append(f"{title}: {phrase}")
    action = spec.action
    actions = ", ".join(action_names)
    if not actions:
        described = {name: f"{part.kind} {by_x(part.sizes)}{scale_in_words(part)}"
                     for name, part in (action.parts or {"": action}).items()}
        actions = "; ".join(f"{name}: {words}" if name else words
                            for name, words in described.items())
    if spec.masked:
        actions += ", masked"
    return "; ".join(observations), f"actions: {actions}"


def by_x(sizes: Shape) -> str:
    return "x".join(map(str, sizes))


def read_parts(space: gym.Space[Any], batch: Shape,
               kinds: Mapping[str, str]) -> dict[Path, Part]:
    """The parts of `space` by their paths. Arguments and errors are those of `make_observer`."""
    leaves = leaves_of(space)
    if not leaves:
        raise ConfigError(f"observations in {space} are not supported: they hold no array or "
                          "number; convert them in a wrapper")
    names = names_of(leaves)
    _check_kinds(kinds, names)
    has_boxes = any(isinstance(leaf, spaces.Box) for leaf in leaves.values())
    masks = masks_of_sets(leaves, names, kinds)
    parts = {}
    for path, leaf in leaves.items():
        if path in masks.values():
            continue
        name = names[path]
        # A kind for all parts applies to the Boxes among them; other spaces have only one reading.
        kind = "auto"
        if isinstance(leaf, spaces.Box) or not has_boxes:
            kind = kinds.get("", "auto")
        try:
            if path in masks:
                parts[path] = read_set(leaf, name, batch, masks[path], leaves, names)
            else:
                parts[path] = read_leaf(leaf, name, batch, kinds.get(name, kind))
        except ConfigError as error:
            if path == ():
                raise
            raise ConfigError(f"part {name!r} of the observation: {error}") from None
    return parts


def _check_kinds(kinds: Mapping[str, str], names: Mapping[Path, str]) -> None:
    """ConfigError if obs_as names a part that does not exist."""
    for name in kinds:
        if name and name not in names.values():
            has = "one part without a name"
            if () not in names:
                has = ", ".join(map(repr, names.values()))
            remedy = nearest(name, names.values()) or "; give one of these, or a kind alone"
            raise ConfigError(f"obs_as names the part {name!r:.80}, and these observations have "
                              f"{has:.400}{remedy}")
