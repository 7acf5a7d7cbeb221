"""JSON from files, which may come from someone else: bounded, so that no later step overflows or shows too much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LARGEST_NUMBER = 10**100
"""Bound of whole numbers. States of random generators have up to 128 bits; floats overflow at 1e308."""
LONGEST_TEXT = 1_000_000
"""Bound of one text in characters."""
DEEPEST = 100
"""Bound of lists and objects within each other."""


def parse(text: str | bytes) -> Any:
    """The value in `text`; ValueError in one short line for what is no JSON or exceeds the bounds above."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    _check(value)
    return value


def shown(value: object) -> str:
    """`value` for a message, where it may be a number of thousands of digits, which Python does not print."""
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


def _check(value: Any) -> None:
    """ValueError for values beyond the bounds, with the key around them."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        place = f" in {name!r:.80}" if name else ""
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise ValueError(f"a text of {len(value):,} characters{place}")
        if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:
            raise ValueError(f"{shown(value)}{place}")
        if isinstance(value, list | Mapping):
            if depth >= DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels")
            if isinstance(value, Mapping):
                waiting += [("", key, depth + 1) for key in value]
                waiting += [(key, part, depth + 1) for key, part in value.items()]
            else:
                waiting += [(name, part, depth + 1) for part in value]
