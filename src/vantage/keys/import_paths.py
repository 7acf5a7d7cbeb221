"""Loading a class by its import path `module:Class`. What the class must be is for the caller to check."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.objects import ObjectName, is_object


def add_current_folder(module: str) -> None:
    """Put the current folder on sys.path, as `python -m` does, unless `module` is of a library that needs no trust.

    A run of someone else may name those, and a file beside it could take the place of what they import.
    """
    folder = os.getcwd()
    if module.partition(".")[0] not in ("vantage", "gymnasium", "ale_py") and not {"", folder} & set(sys.path):
        sys.path.insert(0, folder)


def load_class(path: str, *, what: str) -> Any:
    """The attribute that `path`, module:Class, names; modules of the current folder can be imported.

    The object itself where `path` carries one. `what` is the config key, for messages. ConfigError if the module cannot
    be imported or has no such attribute.
    """
    if isinstance(path, ObjectName):
        return path.target
    if is_object(path):
        raise ConfigError(f"{what}={path} is an object that only Python can hand over: give it as {what}=...")
    name, _, attribute = path.partition(":")
    if not name or not attribute:
        raise ConfigError(f"{what}={path!r} is not an import path; write module:Class{colon_form(path)}")
    if "/" in name or name[1:].endswith(".py"):
        file = Path(name.removesuffix(".py"))
        inside = not file.is_absolute() and ".." not in file.parts
        place, stem = ("", ".".join(file.parts)) if inside else (f"start in {file.parent} and ", file.name)
        raise ConfigError(f"{what}={path!r} names a file instead of a module; {place}give {stem}:{attribute}")
    add_current_folder(name)
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        near = _nearest_module(name) if missing else ""
        remedy = "install it, or start in the folder that contains it" if missing else "correct the module"
        if near:
            remedy = f"did you mean {near}:{attribute}? Otherwise {remedy}"
        raise ConfigError(f"{what}={path!r}: module {name!r} cannot be imported: {type(error).__name__}: {error}; "
                          f"{remedy}") from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        names = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(f"{what}={path!r}: module {name!r} has no class {attribute!r}; it has "
                          f"{', '.join(names) or 'none'}") from None


def _nearest_module(name: str) -> str:
    """The module that differs from `name` by a typing error in its last part, or an empty string."""
    parent, dot, last = name.rpartition(".")
    modules = pkgutil.iter_modules(getattr(sys.modules.get(parent), "__path__", ()) if parent else None)
    names = [module.name for module in modules if module.name not in sys.stdlib_module_names
             and module.name[:1] == last[:1].lower()]
    close = difflib.get_close_matches(last.lower(), names, n=1, cutoff=0.8)
    return f"{parent}{dot}{close[0]}" if close else ""


def colon_form(path: str) -> str:
    """'; did you mean module:Class?' for module.Class, or an empty string."""
    module, _, name = path.rpartition(".")
    is_class = name[:1].isupper() and path.replace(".", "").isidentifier()
    if name == "py":
        return f"; name the class too, for example {module.replace('/', '.')}:MyClass"
    return f"; did you mean {module}:{name}?" if module and is_class else ""
