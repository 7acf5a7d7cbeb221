"""Loading a class by its import path `module:Class`. What the class must be is for the caller to check."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from vantage.errors import ConfigError


def add_current_folder() -> None:
    """Put the current folder on sys.path, as `python -m` does."""
    folder = os.getcwd()
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)


def load_class(path: str, *, what: str) -> Any:
    """The attribute that `path`, module:Class, names; modules of the current folder can be imported.

    `what` is the config key, for messages. ConfigError if the module cannot be imported or has no such attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{what}={path!r} is not an import path; write module:Class")
    if module_name.partition(".")[0] != "vantage":
        add_current_folder()
    try:
        target: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        remedy = "install it, or start in the folder that contains it" if missing else "correct the module"
        raise ConfigError(f"{what}={path!r}: module {module_name!r} cannot be imported: {type(error).__name__}: "
                          f"{error}; {remedy}") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            names = [name for name, value in vars(target).items() if isinstance(value, type)]
            raise ConfigError(f"{what}={path!r}: module {module_name!r} has no class {attribute!r}"
                              f"; it has {', '.join(names) or 'none'}")
        target = getattr(target, part)
    return target
