"""Objects in a config: their names, how they reach worker processes, and their source text. No file is unpickled.

A class or function that can be imported is named by its import path, module:Class. Any other object, such as a lambda
or a class of a notebook, is named in angle brackets, and `ObjectName` carries it along with the name.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

from vantage.errors import ConfigError

MOST_SOURCE = 20_000
"""Characters of an object's source text in meta.json."""
MOST_SHOWN = 40
"""Characters of a name in the short texts of objects."""
_OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "__module__")  # written by Python itself


class ObjectName(str):
    """The name of an object in a config, such as <Maze>, with the object itself.

    It is text wherever text is expected, as in config.json. Copies and pickles keep the object.
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
    """The import path of `target`, or where it has none, its name in angle brackets with the object."""
    return import_path(target) or ObjectName(f"<{_title(target)}>", target)


def is_code(name: str) -> bool:
    """`name` is an import path or the name of an object, and not one of Vantage's own names."""
    return ":" in name or is_object(name)


def is_object(name: str) -> bool:
    """`name` is that of an object without an import path."""
    return name.startswith("<")


def target_of(name: str) -> Any:
    """The object that `name` carries; None for plain text."""
    return name.target if isinstance(name, ObjectName) else None


def import_path(target: Any) -> str:
    """module:Class of a class or function that another process can import; "" for any other object."""
    module, name = str(getattr(target, "__module__", "")), getattr(target, "__qualname__", None)
    if module == "__main__" or not isinstance(name, str):
        return ""
    try:
        return f"{module}:{name}" if attrgetter(name)(sys.modules.get(module)) is target else ""
    except AttributeError:
        return ""


def importable(target: Any) -> str:
    """The import path of `target`; ConfigError where it has none."""
    if path := import_path(target):
        return path
    raise ConfigError(f"<{_title(target)}> has no import path, by which the processes of a search load it; move it to "
                      "the top level of a module")


def _title(target: Any) -> str:
    while isinstance(target, partial):
        target = target.func
    if not hasattr(target, "__name__"):
        target = type(getattr(target, "unwrapped", target))
    return str(target.__name__).strip("<>")


def shown_name(name: object) -> str:
    """A name or path as one short line, for the `repr` of objects: its middle is left out if it is long."""
    text = "".join(each if each.isprintable() else "?" for each in str(name))
    if len(text) <= MOST_SHOWN:
        return text
    start = MOST_SHOWN // 3
    return f"{text[:start]}...{text[start + 3 - MOST_SHOWN:]}"


def folder_name(name: str) -> str:
    """What run directories call `name`: a lambda by the class that it builds, if it names only one."""
    code = getattr(target_of(name), "__code__", None)
    if name != "<lambda>" or code is None:
        return name
    known = {**target_of(name).__globals__, **inspect.getclosurevars(target_of(name)).nonlocals}
    classes = [each for each in (*code.co_names, *code.co_freevars) if inspect.isclass(known.get(each))]
    return classes[0] if len(classes) == 1 else name


def source_text(target: Any) -> str | None:
    """The source text of an object or of its class; None where Python does not have it."""
    while isinstance(target, partial):
        target = target.func
    try:
        return inspect.getsource(target if hasattr(target, "__name__") else type(target))[:MOST_SOURCE]
    except (OSError, TypeError):
        return None


def source_file(name: str) -> str | None:
    """The file with the code behind `name`; None if there is none, as in a notebook."""
    target = target_of(name)
    module = name.partition(":")[0] if target is None else getattr(target, "__module__", "")
    return getattr(sys.modules.get(module), "__file__", None)


def line_of(error: Exception, name: str) -> str:
    """The last line of the code behind `name` that raised `error`, in brackets; an empty string if none did."""
    file = source_file(name)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" (line {lines[-1]} of {file})" if lines else ""


def modules_of(name: str) -> set[str]:
    """The names of the modules whose code `name` runs."""
    if (target := target_of(name)) is None:
        return {name.partition(":")[0]} if ":" in name else set()
    reachable = [target, *(value for _, value in _parts(target))]
    return {value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
            for value in reachable}


def pack(value: Any, name: str) -> bytes:
    """`value` for another process: code that cannot be imported there by value. ConfigError for what cannot be sent.

    `name` is what the message calls it.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except ConfigError:  # of an object within it
        raise
    except Exception as error:
        path, kind = _unsendable(value, {id(value)}) or ("", "")
        what = f"its variable {path} is of type {kind}" if path else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{name} cannot be sent to worker processes: {what}; create that within the function or "
                          "class, or train in one process") from error


def unpack(packed: bytes) -> Any:
    """The value that `pack` wrote in another process of the same run. ConfigError for a module that is missing here."""
    import cloudpickle

    try:
        return cloudpickle.loads(packed)
    except ModuleNotFoundError as error:
        raise ConfigError(f"a worker process has no module {error.name}; install it on its machine, or start in the "
                          "folder that contains it") from error


def _unsendable(value: Any, seen: set[int]) -> tuple[str, str] | None:
    """The path of the variable within `value` that cannot be pickled, and its type; None if there is none.

    `seen` has the ids of the values around it.
    """
    import cloudpickle

    for name, part in _parts(value):
        if id(part) in seen:
            continue
        try:
            cloudpickle.dumps(part)
        except Exception:
            inner = _unsendable(part, {*seen, id(part)})
            if inner is None:
                return name, type(part).__qualname__
            return inner if isinstance(part, FunctionType) else (f"{name}.{inner[0]}", inner[1])
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function, a class or another object refers to, by the names of the variables."""
    if isinstance(value, partial):
        yield "func", value.func
        yield from ((f"args[{i}]", each) for i, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        yield from ((name, value.__globals__[name]) for name in value.__code__.co_names if name in value.__globals__)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is not assigned yet
                yield name, cell.cell_contents
        yield from ((f"args[{i}]", each) for i, each in enumerate(value.__defaults__ or ()))
        yield from (value.__kwdefaults__ or {}).items()
    elif isinstance(value, type):
        for base in value.__mro__:
            if not import_path(base):
                yield from ((name, getattr(part, "fget", None) or getattr(part, "__func__", part))
                            for name, part in vars(base).items() if name not in _OF_CLASSES)
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif not isinstance(value, ModuleType):
        yield from getattr(value, "__dict__", {}).items()
