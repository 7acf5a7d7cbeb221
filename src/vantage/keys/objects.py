"""Objects in a config: their names, how they reach worker processes, and their source text.

A class or function that can be imported is named by its import path, module:Class. The name of any
other object, such as a lambda or a class of a notebook, is in angle brackets, and `ObjectName`
carries the object along with it. Objects are pickled for processes only, never to or from a file.
"""

from __future__ import annotations

import dis
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

from vantage.errors import ConfigError

MOST_SOURCE = 20_000
"""Bound of an object's source text in meta.json, in characters."""
MOST_SHOWN = 40
"""Characters of a name in the short texts of objects."""
_MOST_FOLLOWED = 10_000
"""Objects of a config's code that are searched for the modules of that code."""
_AUTOMATIC = ("__dict__", "__weakref__", "__doc__", "__module__")
"""Attributes that Python itself adds to a class."""


class ObjectName(str):
    """The name of an object in a config, such as <Maze>, together with the object.

    It is text for JSON and messages. Copies and pickles keep the object.
    """

    __slots__ = ("target",)
    target: Any

    def __new__(cls, name: str, target: Any) -> ObjectName:
        self = super().__new__(cls, name)
        self.target = target
        return self

    def __str__(self) -> str:
        return self  # converting a value to the type of its key keeps the object

    def __deepcopy__(self, memo: Any) -> ObjectName:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpack_name, (str.__str__(self), pack(self.target, self))


def _unpack_name(name: str, packed: bytes) -> ObjectName:
    return ObjectName(name, unpack(packed))


def named(target: Any) -> str:
    """The import path of `target`, or else an `ObjectName`."""
    return import_path(target) or ObjectName(f"<{_title(target)}>", target)


def is_code(name: str) -> bool:
    """Whether `name` is an import path or the name of an object."""
    return ":" in name or is_object(name)


def is_object(name: str) -> bool:
    """Whether `name` is that of an object without an import path."""
    return name.startswith("<")


def target_of(name: str) -> Any:
    """The object that `name` carries; None if it is plain text."""
    return name.target if isinstance(name, ObjectName) else None


def import_path(target: Any) -> str:
    """module:Class of a class or function that another process can import; '' for other objects."""
    module = str(getattr(target, "__module__", ""))
    name = getattr(target, "__qualname__", None)
    if module == "__main__" or not isinstance(name, str):
        return ""
    try:
        is_importable = attrgetter(name)(sys.modules.get(module)) is target
    except AttributeError:
        return ""
    return f"{module}:{name}" if is_importable else ""


def importable(target: Any) -> str:
    """The import path of `target`; ConfigError if it has none."""
    if path := import_path(target):
        return path
    raise ConfigError(f"<{_title(target)}> has no import path, by which the processes of a search "
                      "load it; move it to the top level of a module, or search in this "
                      "process with Optuna, as docs/optuna.md shows")


def _without_partial(target: Any) -> Any:
    """The function or class whose arguments `functools.partial` has fixed."""
    while isinstance(target, partial):
        target = target.func
    return target


def _title(target: Any) -> str:
    target = _without_partial(target)
    if not hasattr(target, "__name__"):
        target = type(getattr(target, "unwrapped", target))
    title = str(target.__name__).strip("<>")
    if title == "lambda" and (built := _class_in(target)):
        return f"lambda of {built}"
    return title


def shown_name(name: object) -> str:
    """A name or path as one short line, for the `repr` of objects.

    The middle of a long one is left out.
    """
    text = "".join(each if each.isprintable() else "?" for each in str(name))
    if len(text) <= MOST_SHOWN:
        return text
    start = MOST_SHOWN // 3
    return f"{text[:start]}...{text[start + 3 - MOST_SHOWN:]}"


def folder_name(name: str) -> str:
    """The name of run directories for `name`: of a lambda, the only class that it mentions."""
    if not name.startswith("<lambda"):
        return name
    return _class_in(target_of(name)) or name


def _class_in(function: Any) -> str:
    """The name of the only class that `function` mentions; '' if there are others, or none."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    variables = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    classes = [each for each in (*code.co_names, *code.co_freevars)
               if inspect.isclass(variables.get(each))]
    return classes[0] if len(classes) == 1 else ""


def source_text(target: Any) -> str | None:
    """The source text of an object or of its class; None if it is not available."""
    target = _without_partial(target)
    if not hasattr(target, "__name__"):
        target = type(target)
    try:
        return inspect.getsource(target)[:MOST_SOURCE]
    except (OSError, TypeError):
        return None


def line_of(error: Exception, name: str) -> str:
    """' (line N of FILE)' for the last line of the code of `name` that led to `error`, or ''."""
    target = target_of(name)
    module = name.partition(":")[0] if target is None else getattr(target, "__module__", "")
    file = getattr(sys.modules.get(module), "__file__", None)  # none in a notebook
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == file]
    return f" (line {lines[-1]} of {file})" if lines else ""


def modules_of(name: str) -> tuple[set[str], list[type]]:
    """The names of the modules whose code `name` runs, and the classes among that code.

    For an object without an import path, this includes its base classes and everything its code
    refers to.
    """
    target = target_of(name)
    if target is None:
        return ({name.partition(":")[0]} if ":" in name else set()), []
    modules: set[str] = set()
    kinds: list[type] = []
    seen: dict[int, Any] = {}
    waiting = [target]
    while waiting and len(seen) < _MOST_FOLLOWED:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, ModuleType):
            modules.add(value.__name__)
            continue
        if isinstance(value, type):
            kinds += value.__mro__
            modules |= {str(base.__module__) for base in value.__mro__}
        elif isinstance(value, FunctionType):
            modules.add(str(value.__module__))
        else:
            waiting.append(type(value))
        if not (isinstance(value, type | FunctionType) and import_path(value)):
            waiting += [part for _, part in parts(value)]
    return modules, kinds


def pack(value: Any, name: str) -> bytes:
    """`value` as bytes for another process, including code that it could not import.

    ConfigError, which calls the value `name`, if it cannot be sent.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except ConfigError:  # of an object within it
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if unsendable := _unsendable(value, {id(value)}):
            path, kind = unsendable
            reason = f"its variable {path} is of type {kind}"
        raise ConfigError(
            f"{name} cannot be sent to worker processes: {reason}; create that within the function "
            "or class, or train in one process") from error


def unpack(packed: bytes) -> Any:
    """The value that `pack` wrote in another process; ConfigError if it needs a missing module."""
    import cloudpickle

    try:
        return cloudpickle.loads(packed)
    except ModuleNotFoundError as error:
        raise ConfigError(f"a worker process has no module {error.name}; install it on its "
                          "machine, or start in the folder that contains it") from error


def _unsendable(value: Any, seen: set[int]) -> tuple[str, str] | None:
    """The path and type of the variable within `value` that cannot be pickled, or None.

    `seen` has the ids of the values around `value`.
    """
    import cloudpickle

    for name, part in parts(value):
        if id(part) in seen:
            continue
        try:
            cloudpickle.dumps(part)
        except Exception:
            inner = _unsendable(part, {*seen, id(part)})
            if inner is None:
                return name, type(part).__qualname__
            if isinstance(part, FunctionType):
                return inner
            path, kind = inner
            return f"{name}.{path}", kind
    return None


def names_in(code: CodeType) -> dict[str, None]:
    """The names of global variables in `code` and in the functions within it."""
    names = {str(each.argval): None for each in dis.get_instructions(code)
             if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return names


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function, a class or another object refers to, by their variables."""
    if isinstance(value, partial):
        yield "func", value.func
        yield from ((f"args[{i}]", each) for i, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        names = [name for name in names_in(value.__code__) if name in value.__globals__]
        yield from ((name, value.__globals__[name]) for name in names)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is not assigned yet
                yield name, cell.cell_contents
        yield from ((f"args[{i}]", each) for i, each in enumerate(value.__defaults__ or ()))
        yield from (value.__kwdefaults__ or {}).items()
    elif isinstance(value, type):
        for base in value.__mro__:
            if import_path(base):
                continue
            for name, part in vars(base).items():
                if name not in _AUTOMATIC:
                    yield name, getattr(part, "fget", None) or getattr(part, "__func__", part)
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif not isinstance(value, ModuleType):
        yield from getattr(value, "__dict__", {}).items()
