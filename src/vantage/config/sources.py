"""Whether the files of imported user modules have changed since the import. Nothing is reloaded.

A notebook keeps a module as it was when it was first imported; its worker processes would import
the edited file. What importlib.reload or IPython's autoreload has loaded again counts as imported.
"""

from __future__ import annotations

import ast
import hashlib
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import resolve_name
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import psutil

from vantage.keys.object_digest import code_pieces

_LIBRARY_PATHS = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_LIBRARIES = tuple(f"{folder.resolve()}{os.sep}"
                   for folder in (Path(__file__).parents[1], *_LIBRARY_PATHS))


@dataclass(frozen=True, slots=True)
class _Baseline:
    """A module and its file when they were first checked."""

    spec: object
    """Another object after importlib.reload."""
    stamp: tuple[int, int]
    """The file's modification time in nanoseconds, and its size."""
    digest: bytes
    """Of the file; empty if that had changed already."""


_BASELINES: dict[str, _Baseline] = {}
"""By module name."""


def changed_modules(names: Iterable[str]) -> list[str]:
    """The changed files of the modules `names` and of the modules that they import.

    Modules of the standard library and of installed packages are left out.
    """
    modules = _user_modules(names)
    return [str(path) for name, path in modules.items() if _has_changed(sys.modules[name], path)]


def _user_modules(names: Iterable[str]) -> dict[str, Path]:
    """The user's imported modules among `names` and among their imports, with their files."""
    paths: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if name in paths or module is None or not isinstance(file, str):
            continue
        path = Path(file).resolve()
        if path.suffix == ".py" and not is_installed(path):
            paths[name] = path
            waiting += _imports_of(module, path)
    return paths


def is_installed(path: Path) -> bool:
    """Whether the resolved `path` of a module is of Vantage, Python or an installed package."""
    return (str(path).startswith(_LIBRARIES)
            or not {"site-packages", "dist-packages"}.isdisjoint(path.parts))


def _imports_of(module: ModuleType, path: Path) -> Iterator[str]:
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
            base = node.module or ""
            if node.level:
                base = resolve_name("." * node.level + base, package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _has_changed(module: ModuleType, path: Path) -> bool:
    spec = module.__spec__
    baseline = _BASELINES.get(module.__name__)
    if baseline is not None and baseline.spec is not spec:
        baseline = None
    try:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        if baseline is not None and baseline.stamp == stamp and baseline.digest:
            return False
        source = path.read_bytes()
    except OSError:  # new processes cannot import it
        return True
    digest = hashlib.sha256(source).digest()
    if _was_patched(module, path, source, stat.st_mtime):
        baseline = _BASELINES[module.__name__] = _Baseline(spec, stamp, digest)
    elif baseline is None:
        # pytest and others compile modules in their own way.
        is_plain = spec is not None and type(spec.loader) is SourceFileLoader
        is_newer = stat.st_mtime > psutil.Process().create_time()
        is_edited = is_plain and is_newer and (
            _is_compiled_from_other(module, stamp) or _has_other_functions(module, path, source))
        baseline = _Baseline(spec, stamp, b"" if is_edited else digest)
        _BASELINES[module.__name__] = baseline
    return baseline.digest != digest


def _is_compiled_from_other(module: ModuleType, stamp: tuple[int, int]) -> bool:
    """Whether the bytecode file of `module` was compiled from a source with another stamp."""
    cached = getattr(module.__spec__, "cached", None)
    if not cached or sys.dont_write_bytecode or not os.access(os.path.dirname(cached), os.W_OK):
        return False
    try:
        # PEP 552: magic number, flags, modification time in seconds, size.
        _, flags, seconds, size = struct.unpack("<4I", Path(cached).read_bytes()[:16])
    except (OSError, struct.error):
        return False
    expected = (stamp[0] // 10**9 & 0xFFFFFFFF, stamp[1] & 0xFFFFFFFF)
    return not flags and (seconds, size) != expected


def _was_patched(module: ModuleType, path: Path, source: bytes, modified: float) -> bool:
    """Whether IPython's autoreload has loaded the file as it is now, without importlib.reload.

    It notes the modification time of each file that it has loaded. It notes those of its own start
    too, hence the look at the functions.
    """
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    registry = getattr(getattr(get_shell(), "magics_manager", None), "registry", {})
    reloader = getattr(registry.get("AutoreloadMagics"), "_reloader", None)
    times = getattr(reloader, "modules_mtimes", {})
    failed = getattr(reloader, "failed", {})
    return (times.get(module.__name__) == modified and module.__file__ not in failed
            and not _has_other_functions(module, path, source,
                                         lambda code: [*code_pieces(code)]))


def outdated_class(kinds: Iterable[type]) -> type | None:
    """The first of `kinds` that differs from the class of that name in its module, or None.

    A notebook class keeps its old base class when that class's module is reloaded.
    """
    for kind in kinds:
        module = sys.modules.get(kind.__module__)
        try:
            current = attrgetter(kind.__qualname__)(module)
        except AttributeError:
            continue
        if any(each is kind for each in vars(module).values()):  # under another name
            continue
        # A decorator may derive a class of the same name.
        is_replaced = (isinstance(current, type) and not issubclass(current, kind)
                       and not issubclass(kind, current))
        if is_replaced and _contents(kind) != _contents(current):
            return kind
    return None


def _contents(kind: type) -> dict[str, object]:
    """The methods of a class, as instructions, and its numbers and texts."""
    contents: dict[str, object] = {
        name: [*code_pieces(code)]
        for name, code in _loaded_functions(vars(kind), kind.__qualname__)}
    return contents | {name: value for name, value in vars(kind).items()
                       if isinstance(value, int | float | str) and name != "__doc__"}


def _has_other_functions(module: ModuleType, path: Path, source: bytes,
                         form: Callable[[CodeType], object] = lambda code: code) -> bool:
    """Whether functions of `module` have other code than `source`, compared in the `form`."""
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return True
    forms: dict[str, list[object]] = {}  # several of one name, such as a property and its setter
    for name, each in _compiled_functions(code):
        forms.setdefault(name, []).append(form(each))
    return any(form(each) not in forms.get(name, [])
               for name, each in _loaded_functions(vars(module))
               if Path(each.co_filename).resolve() == path)


def _compiled_functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The code of all functions and classes within `code`, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _compiled_functions(constant)


def _loaded_functions(attributes: Any, kind: str = "") -> Iterator[tuple[str, CodeType]]:
    """The code of the functions and methods among the attributes of a module or of class `kind`."""
    name = attributes.get("__name__", attributes.get("__module__"))
    for value in attributes.values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and "<" not in function.__code__.co_qualname:
            # autoreload compiles a method in a class with a name of its own
            qualified = function.__code__.co_qualname.replace("__autoreload_class__", kind)
            yield qualified, function.__code__
        elif isinstance(value, type) and value.__module__ == name:
            yield from _loaded_functions(vars(value), value.__qualname__)
