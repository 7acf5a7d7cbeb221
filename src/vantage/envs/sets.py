"""Sets of entities: which Boxes are sets, the masks of their rows, and their conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import Array
from vantage.envs.leaves import Part, Shape, read_leaf
from vantage.envs.parts import Path
from vantage.errors import ConfigError
from vantage.specs import ArraySpec


def masks_of_sets(leaves: Mapping[Path, Any], names: Mapping[Path, str],
                  kinds: Mapping[str, str]) -> dict[Path, Path | None]:
    """The path of the mask of each set, by the path of the set; None: all rows exist.

    A Box [N, F] is a set if `kinds` reads it as set or set:MASK, or as auto beside a part
    NAME_mask that can be its mask. ConfigError for a mask that cannot.
    """
    paths = {name: path for path, name in names.items()}
    masks: dict[Path, Path | None] = {}
    for path, leaf in leaves.items():
        if not isinstance(leaf, spaces.Box):
            continue
        name = names[path]
        kind, _, mask = kinds.get(name, kinds.get("", "auto")).partition(":")
        beside = paths.get(mask or f"{name}_mask")
        fits = beside is not None and _is_mask(leaves[beside], leaf)
        if mask and not fits:
            what = "which does not exist" if beside is None else f"which is {leaves[beside]!s:.80}"
            raise ConfigError(f"obs_as reads the part {name!r:.80} with the mask {mask!r:.80}, "
                              f"{what}; the mask of N entities is a MultiBinary(N) or a Box of "
                              "shape (N,) from 0 to 1")
        if kind == "set":
            masks[path] = beside if fits else None
        elif kind == "auto" and fits and f"{name}_mask" not in kinds:
            masks[path] = beside
    # A kind for all Boxes does not apply to those that are masks.
    return {path: mask for path, mask in masks.items() if path not in masks.values()}


def _is_mask(space: gym.Space[Any], box: spaces.Box) -> bool:
    """Whether `space` holds a number from 0 to 1 for each row of `box`."""
    if isinstance(space, spaces.Box):
        is_binary = bool(space.low.min() >= 0 and space.high.max() <= 1)
    else:
        is_binary = isinstance(space, spaces.MultiBinary)
    return is_binary and len(box.shape) == 2 and space.shape == box.shape[:1]


def read_set(space: spaces.Box, name: str, batch: Shape, mask: Path | None,
             leaves: Mapping[Path, Any], names: Mapping[Path, str]) -> Part:
    """A Box [N, F] as a set, with its `mask` among the `leaves`.

    Rows that do not exist become zeros, whatever they hold.
    """
    if len(space.shape) != 2:
        raise ConfigError("obs_as=set needs a Box of shape (N, F), a row of F numbers for each of "
                          f"N entities, and this one has the shape {space.shape}; give vector")
    num_entities, width = space.shape
    rows_of = read_leaf(space, name, batch, "vector").convert
    spec = ArraySpec("set", (num_entities, width + 1))

    def joined(rows: Array, exists: Array) -> Array:
        array = np.zeros((*batch, *spec.shape), np.float32)
        rows = rows.reshape(*batch, num_entities, width)
        np.copyto(array[..., :-1], rows, where=exists[..., None] == 1)
        array[..., -1] = exists
        return array

    if mask is None:
        everyone = np.ones((*batch, num_entities), np.float32)
        return Part(name, spec, lambda rows: joined(rows_of(rows), everyone), "all rows exist")
    kind = "vector" if isinstance(leaves[mask], spaces.Box) else "auto"
    mask_name = names[mask]
    mask_of = read_leaf(leaves[mask], mask_name, batch, kind).convert

    def masked(pair: tuple[Any, Any]) -> Array:
        exists = mask_of(pair[1])
        if not ((exists == 0) | (exists == 1)).all():
            raise ValueError(f"its mask {mask_name!r} has numbers other than 0 and 1")
        return joined(rows_of(pair[0]), exists)

    return Part(name, spec, masked, f"rows that {mask_name} marks", mask)
