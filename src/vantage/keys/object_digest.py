"""Digests of objects without an import path: equal where code and the values it uses are equal."""

from __future__ import annotations

import dis
import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from vantage.keys.objects import import_path, parts

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_LISTED = (list, tuple, set, frozenset, dict, partial, FunctionType, type)
_LEFT_OUT = ("CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL")
"""Instructions that only prepare others."""
_DEEPEST = 8
"""Levels of objects within objects; what lies deeper does not count."""


def digest(target: Any) -> str:
    """SHA-256 of the code of `target` and of the values that the code uses.

    Code counts by its instructions and constants, so that lines and comments do not matter. A
    global variable, a variable of a closure and an attribute count by their value: numbers, texts,
    lists, arrays and code without an import path. Raises TypeError for a value that cannot be
    known, such as a tensor or an object with slots.
    """
    return hashed(_pieces(target, 0, set()))


def hashed(pieces: Iterable[str]) -> str:
    """SHA-256 of texts."""
    sha256 = hashlib.sha256()
    for piece in pieces:
        sha256.update(piece.encode(errors="backslashreplace") + b"\0")
    return sha256.hexdigest()


def _pieces(value: Any, depth: int, seen: set[int]) -> Iterator[str]:
    """Texts that describe `value`; `seen` has the ids of the objects described already."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if isinstance(value, ModuleType):
        yield value.__name__
        return
    path = import_path(value)
    kind = import_path(type(value)) or type(value).__qualname__
    yield path or kind
    if path or id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    if kind.startswith("numpy") and hasattr(type(value), "tobytes") and not value.dtype.hasobject:
        yield f"{value.dtype} {value.shape}"
        yield hashlib.sha256(value.tobytes()).hexdigest()
    elif isinstance(value, MethodType):
        yield from _pieces(value.__func__, depth + 1, seen)
        yield from _pieces(value.__self__, depth + 1, seen)
    elif hasattr(type(value), "__array__") or not (isinstance(value, _LISTED)
                                                   or hasattr(value, "__dict__")):
        raise TypeError(f"the value of a {kind} cannot be known")
    elif isinstance(value, list | tuple | set | frozenset):
        members = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for member in members:
            yield from _pieces(member, depth + 1, seen)
    else:
        if isinstance(value, FunctionType):
            yield from code_pieces(value.__code__)
        elif not isinstance(value, type) and not import_path(type(value)):
            yield from _pieces(type(value), depth + 1, seen)
        for name, part in parts(value):
            yield name
            yield from _pieces(part, depth + 1, seen)


def code_pieces(code: CodeType, doc: str | None = None) -> Iterator[str]:
    """Instructions, names and constants of `code` and of the functions within it, without `doc`."""
    yield repr(_instructions(code))
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_pieces(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(constant, key=repr))
        else:  # without a docstring, None is in its place
            yield repr(None if constant == doc else constant)


def _instructions(code: CodeType) -> list[tuple[str, Any]]:
    """The instructions of `code`, the same wherever its text is compiled.

    Python compiles `torch.tanh(x)` to the call of a method or of an attribute, depending on whether
    the same unit imports torch. The cells of a notebook are units of their own.
    """
    listed = [each for each in dis.get_instructions(code) if each.opname not in _LEFT_OUT]
    places = [each.offset for each in listed]
    instructions: list[tuple[str, Any]] = []
    for each in listed:
        value: Any = each.arg
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            value = bisect_left(places, each.argval)
        elif each.opcode in dis.hasname:
            value = each.argval
        name = "LOAD_ATTR" if each.opname == "LOAD_METHOD" else each.opname
        instructions.append((name, value))
    return instructions
