"""Paths and names of the parts of nested Dict and Tuple spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import gymnasium as gym
from gymnasium import spaces

Path = tuple[Any, ...]
"""Keys and indices that lead to a part; () for a space without parts."""


def leaves_of(space: gym.Space[Any], path: Path = ()) -> dict[Path, Any]:
    """The spaces within nested Dict and Tuple spaces by path, without texts.

    {(): space} for any other space.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return {path: space}
    children: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    return {deeper: leaf for name, child in children if child.dtype is None or child.dtype.kind != "U"
            for deeper, leaf in leaves_of(child, (*path, name)).items()}


def texts_of(space: gym.Space[Any], path: Path = ()) -> list[Path]:
    """Paths of the texts in nested Dict and Tuple spaces, which no policy reads."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [path] if isinstance(space, spaces.Text) else []
    children: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    return [text for name, child in children for text in texts_of(child, (*path, name))]


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """A name for each path: its keys joined by "/".

    Keys are quoted as in Python if two paths would have the same name.
    """
    plain = {path: "/".join(map(str, path)) for path in paths}
    uses, names = Counter(plain.values()), dict[Path, str]()
    for path, name in plain.items():
        if uses[name] > 1:
            name = "/".join(map(repr, path))
        while name in names.values():
            name += "'"
        names[path] = name
    return names
