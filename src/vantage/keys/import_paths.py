"""Loading a class by its import path `module:Class`. The caller checks what kind of class it is."""

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
    """Put the current folder on sys.path, as `python -m` does.

    Not for a `module` of the libraries that need no trust: a run of someone else may name them, and
    a file in its folder could replace a module that they import.
    """
    if module.partition(".")[0] in ("vantage", "gymnasium", "ale_py"):
        return
    folder = os.getcwd()
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)


def load_class(path: str, *, what: str) -> Any:
    """The object that `path` carries or, as module:Class, names.

    Modules of the current folder can be imported. `what` is the config key, for messages.
    ConfigError if the module cannot be imported or has no such attribute.
    """
    if isinstance(path, ObjectName):
        return path.target
    if is_object(path):
        raise ConfigError(f"{what}={path} is an object that only Python can hand over: give it as "
                          f"{what}=...")
    name, _, attribute = path.partition(":")
    if not name or not attribute:
        raise ConfigError(f"{what}={path!r} is not an import path; write module:Class"
                          f"{colon_form(path)}")
    if "/" in name or name[1:].endswith(".py"):
        raise ConfigError(f"{what}={path!r} names a file instead of a module; "
                          f"{_module_of_file(name)}:{attribute}")
    add_current_folder(name)
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        remedy = "correct the module"
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            remedy = "install it, or start in the folder that contains it"
            if near := _nearest_module(name):
                remedy = f"did you mean {near}:{attribute}? Otherwise {remedy}"
        if (isinstance(error, ModuleNotFoundError) and name.startswith("pettingzoo.")
                and not str(error.name).startswith("pettingzoo.")):
            remedy = f"pip install 'pettingzoo[{name.split('.')[1]}]'"
        raise ConfigError(f"{what}={path!r}: module {name!r} cannot be imported: "
                          f"{type(error).__name__}: {error}; {remedy}") from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        names = [name for name, value in vars(module).items() if isinstance(value, type)]
        builders = [each for each in ("env", "parallel_env") if callable(vars(module).get(each))]
        if attribute == "parallel_env" and builders == ["env"]:
            raise ConfigError(f"{what}={path!r}: module {name!r} has no parallel_env; it has env, "
                              f"a game in turns: give {name}:env with --self-play 20") from None
        names = [*builders, *names]
        raise ConfigError(f"{what}={path!r}: module {name!r} has no class {attribute!r}; it has "
                          f"{', '.join(names) or 'none'}") from None


def _module_of_file(name: str) -> str:
    """A remedy: the module to give instead of the path of a Python file."""
    file = Path(name.removesuffix(".py"))
    if file.is_absolute() or ".." in file.parts:
        return f"start in {file.parent} and give {file.name}"
    return f"give {'.'.join(file.parts)}"


def _nearest_module(name: str) -> str:
    """The module that differs from `name` by a typing error in its last part, or ''."""
    parent, dot, last = name.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", ()) if parent else None
    names = [module.name for module in pkgutil.iter_modules(folders)
             if module.name not in sys.stdlib_module_names
             and module.name[:1] == last[:1].lower()]
    close = difflib.get_close_matches(last.lower(), names, n=1, cutoff=0.8)
    return f"{parent}{dot}{close[0]}" if close else ""


def colon_form(path: str) -> str:
    """'; did you mean module:Class?' for module.Class, or ''."""
    module, _, name = path.rpartition(".")
    is_class = name[:1].isupper() and path.replace(".", "").isidentifier()
    if name == "py":
        return f"; name the class too, for example {module.replace('/', '.')}:MyClass"
    return f"; did you mean {module}:{name}?" if module and is_class else ""
