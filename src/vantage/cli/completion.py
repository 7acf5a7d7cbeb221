"""Shell completion of commands, flags and their choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, make_dataclass
from functools import partial
from typing import Any, Literal

import tyro

from vantage.cli.arguments import chooser
from vantage.cli.help import options
from vantage.cli.parsing import CONFIG, REGISTRY, arguments_of, errors_in_one_line
from vantage.config.config import Config
from vantage.errors import ConfigError


def print_completion(commands: Mapping[str, Callable[..., Any]], words: Sequence[str]) -> None:
    """Print or write the completion script that `words`, a flag of tyro and its values, ask for."""
    if words[1:2] not in (["bash"], ["zsh"], ["fish"]):
        raise ConfigError(f"{' '.join(words)} names no shell that can complete; give {words[0]} "
                          "bash, zsh or fish")
    keys = _every_key()
    parsers = {name: _arguments(command, keys) for name, command in commands.items()}
    with errors_in_one_line():
        tyro.extras.subcommand_cli_from_dict(parsers, prog="vantage", args=words, config=CONFIG,
                                             registry=REGISTRY)


def _every_key() -> type:
    """A class of all config keys, except those that the commands have as options."""
    keys = []
    for name, key in Config.every_key().items():
        if name in ("env", "runtime"):
            continue
        is_closed = key.rules["choices"] and not key.rules["open"]
        hint = Literal[key.rules["choices"]] if is_closed else key.hint
        keys.append((name, hint, field(metadata=key.rules)))
    return make_dataclass("Keys", keys)


def _arguments(command: Callable[..., Any], keys: type) -> Callable[..., Any]:
    """All that a command takes, as tyro reads it."""
    kind = chooser(command)
    if kind is None:
        return arguments_of(command)
    own = arguments_of(partial(command, None))
    return make_dataclass("Arguments", [*options(kind, own), ("keys", keys)])
