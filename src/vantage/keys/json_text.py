"""JSON from files, which may come from someone else.

Numbers, texts and levels are bounded, so that nothing overflows and messages stay short.
"""

from __future__ import annotations

import json
from typing import Any

LARGEST_NUMBER = 10**100
"""Bound of whole numbers: states of random generators have 128 bits, floats overflow at 1e308."""
LONGEST_TEXT = 1_000_000
"""Bound of one text in characters."""
DEEPEST = 100
"""Bound of the levels of nested lists and objects."""


def parse(text: str | bytes) -> Any:
    """The value in `text`; ValueError, in one short line, unless it is JSON within the bounds."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    _check(value)
    return value


def short_repr(value: object) -> str:
    """`value` for a message. Python does not print a number of thousands of digits."""
    if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:
        return f"a number of about {round(value.bit_length() * 0.30103):,} digits"
    return repr(value)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated!r:.80} is given twice; leave one out")
    return values


def _check(value: Any, name: str = "", depth: int = 0) -> None:
    """ValueError for a value beyond the bounds; `name` is the key that holds it."""
    place = f" in {name!r:.80}" if name else ""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"a text of {len(value):,} characters{place}")
    if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:
        raise ValueError(f"{short_repr(value)}{place}")
    if isinstance(value, list | dict) and depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels")
    if isinstance(value, list):
        for part in value:
            _check(part, name, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            _check(key, depth=depth + 1)
            _check(part, key, depth + 1)
