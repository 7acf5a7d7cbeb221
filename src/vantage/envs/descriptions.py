"""Short descriptions of values for messages. Nothing here raises, whatever the value is."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sized
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import numpy as np

LONGEST = 60
"""Longest description of a value in characters."""
_FEW = 4
"""Largest number of elements or keys that are listed."""


def shown(value: object) -> str:
    """The type of `value` and its beginning."""
    try:
        return _shown(value)
    except Exception:  # its class may answer nothing, or with errors
        return a(type(value).__name__)


def a(noun: str) -> str:
    """`noun` with its indefinite article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def cut(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, with at most `longest` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[:longest - 3]}..."


def error_words(error: BaseException) -> str:
    """The class and the text of an error, whose own `__str__` may raise."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        return type(error).__name__


def _shown(value: Any) -> str:
    kind = type(value)
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        return "a generator (a function that contains `yield` returns one)"
    if isinstance(value, CoroutineType):
        return "a coroutine (a function declared `async def` returns one)"
    if isinstance(value, tuple | list):
        parts = [type(part).__name__ for part in value[:_FEW + 2]]
        more = ", ..." if len(value) > len(parts) else ""
        if not parts:
            return f"an empty {kind.__name__}"
        return f"{a(kind.__name__)} of {len(value)} ({', '.join(parts)}{more})"
    if isinstance(value, Mapping):
        keys = [cut(repr(key), 20) for key, _ in zip(value, range(_FEW), strict=False)]
        more = ", ..." if len(value) > len(keys) else ""
        if not keys:
            return f"an empty {kind.__name__}"
        return f"{a(kind.__name__)} with the keys {', '.join(keys)}{more}"
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic):
        few = 0 < math.prod(value.shape) <= _FEW
        numbers = f": {cut(str(value.tolist()))}" if few else ""
        name = "array" if kind.__name__ == "ndarray" else kind.__name__
        return f"{a(name)} of {value.dtype} of shape {tuple(value.shape)}{numbers}"
    if value is None or isinstance(value, str | bytes | bool | int | float | complex):
        return cut(_short(value))
    return f"{cut(_short(value))} ({kind.__name__})"


def _short(value: object) -> str:
    if isinstance(value, Sized) and not isinstance(value, str | bytes) and len(value) > _FEW:
        return reprlib.repr(value)
    return repr(value[:LONGEST]) if isinstance(value, str | bytes) else repr(value)
