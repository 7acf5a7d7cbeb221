"""Paths and names of the parts of nested Dict and Tuple spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Path = tuple[Any, ...]
"""Keys and indices that lead to a part; () for a space without parts."""


def leaves_of(space: gym.Space[Any]) -> dict[Path, Any]:
    """The spaces within nested Dict and Tuple spaces by path, without texts.

    {(): space} for any other space.
    """
    return {path: leaf for path, leaf in _leaves(space) if path == () or not is_text(leaf)}


def texts_of(space: gym.Space[Any]) -> list[Path]:
    """Paths of the texts in nested Dict and Tuple spaces, which no policy reads."""
    return [path for path, leaf in _leaves(space) if is_text(leaf)]


def _leaves(space: gym.Space[Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All spaces that are no Dict or Tuple, with their paths."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
    for name, child in children_of(space):
        yield from _leaves(child, (*path, name))


def is_text(space: gym.Space[Any]) -> bool:
    """Whether its values are texts: Text, or a package's own space, such as MiniGrid's missions."""
    # Not `dtype.kind`: the spaces of TextWorld replace the dtype by a type such as np.int64.
    return isinstance(space, spaces.Text) or np.issubdtype(space.dtype, np.str_)


def children_of(space: gym.Space[Any]) -> list[tuple[Any, gym.Space[Any]]]:
    """The spaces directly within a Dict or Tuple space, by key or index; [] for others."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else []


def value_at(value: Any, path: Path) -> Any:
    """The part of a nested `value` at `path`; LookupError or TypeError if there is none."""
    return reduce(getitem, path, value)


def assembled(space: gym.Space[Any], values: Mapping[Path, Any], path: Path = ()) -> Any:
    """`values` by path, nested as `space` is."""
    if path in values:
        return values[path]
    parts = {name: assembled(child, values, (*path, name)) for name, child in children_of(space)}
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """A name for each path: its keys joined by "/".

    Keys are quoted as in Python if two paths would have the same name.
    """
    plain = {path: "/".join(map(str, path)) for path in paths}
    uses = Counter(plain.values())
    names: dict[Path, str] = {}
    for path, name in plain.items():
        if uses[name] > 1:
            name = "/".join(map(repr, path))
        while name in names.values():
            name += "'"
        names[path] = name
    return names
