"""Whether the user's modules that this process has imported are still what their files hold. Nothing is reloaded.

A notebook keeps a module as it was when it was first imported; worker processes would import the edited file.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import psutil

_FOLDERS = (Path(__file__).parents[1], *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")))
_LIBRARIES = tuple(f"{folder.resolve()}{os.sep}" for folder in _FOLDERS)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A module as it was when it was first checked."""

    spec: object
    """Another one after importlib.reload."""
    written: tuple[int, int]
    """Time of the last change in nanoseconds, and size of its file."""
    digest: bytes
    """Of its file; empty if that had changed already."""


_SEEN: dict[str, _Seen] = {}


def changed_modules(names: Iterable[str]) -> list[str]:
    """The files of `names`, and of what they import, that have changed since this process imported them.

    Only modules outside the standard library and the installed packages count.
    """
    return [str(path) for module, path in _own_modules(names).items() if _has_changed(module, path)]


def _own_modules(names: Iterable[str]) -> dict[str, Path]:
    """The imported modules of the user among `names`, and those that they import, with their files."""
    own: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if name in own or module is None or not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if not str(path).startswith(_LIBRARIES) and not {"site-packages", "dist-packages"} & {*path.parts}:
            own[name] = path
            waiting += _imported_by(module, path)
    return own


def _imported_by(module: ModuleType, path: Path) -> Iterator[str]:
    """All modules that the source of `module` may import, and the packages around them."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # removed, or in the middle of an edit
        return
    package = getattr(module, "__package__", None) or ""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _has_changed(name: str, path: Path) -> bool:
    module = sys.modules[name]
    try:
        stat = path.stat()
        written = stat.st_mtime_ns, stat.st_size
        seen = _SEEN.get(name)
        if seen is not None and seen.spec is module.__spec__ and seen.written == written and seen.digest:
            return False
        source = path.read_bytes()
    except OSError:  # new processes cannot import it
        return True
    digest = hashlib.sha256(source).digest()
    if seen is None or seen.spec is not module.__spec__:
        # pytest and others compile modules in their own way.
        is_plain = type(module.__spec__.loader) is SourceFileLoader if module.__spec__ else False
        edited = is_plain and stat.st_mtime > _started() and _differs(module, path, source, written)
        _SEEN[name] = seen = _Seen(module.__spec__, written, b"" if edited else digest)
    return seen.digest != digest


def _started() -> float:
    """When this process has started, in seconds of the clock of files."""
    return float(psutil.Process().create_time())


def _differs(module: ModuleType, path: Path, source: bytes, written: tuple[int, int]) -> bool:
    """Whether `module` was imported from another text than `source`, as far as its cache and its functions show."""
    cached = getattr(module.__spec__, "cached", None)
    if cached and not sys.dont_write_bytecode and os.access(os.path.dirname(cached), os.W_OK):
        try:
            header = Path(cached).read_bytes()[:16]  # PEP 552: magic number, flags, time in seconds, size
        except OSError:
            header = b""
        now = (written[0] // 10**9 & 0xFFFFFFFF, written[1] & 0xFFFFFFFF)
        if len(header) == 16 and not any(header[4:8]) and now != tuple(
                int.from_bytes(header[start:start + 4], "little") for start in (8, 12)):
            return True
    try:
        codes = dict(_codes(compile(source, str(path), "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return True
    return any(codes.get(code.co_qualname) != code for code in _loaded(vars(module))
               if Path(code.co_filename).resolve() == path)


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The code of all functions and classes within `code`, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _loaded(values: Any) -> Iterator[CodeType]:
    """The code of the functions and methods among the attributes of a module or class."""
    for value in values.values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and "<" not in function.__code__.co_qualname:
            yield function.__code__
        elif isinstance(value, type) and value.__module__ == values.get("__name__", values.get("__module__")):
            yield from _loaded(vars(value))
