"""What a shell completes after `vantage`: commands, flags and their choices."""

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
    """Print or write the script that `words` ask for, which are a flag of tyro and its values."""
    if words[1:2] not in (["bash"], ["zsh"], ["fish"]):
        raise ConfigError(f"{' '.join(words)} names no shell that can complete; give {words[0]} bash, zsh or fish")
    keys = []
    for name, key in Config.every_key().items():
        if name not in ("env", "runtime"):  # which the commands have as options
            closed = key.rules["choices"] and not key.rules["open"]
            keys.append((name, Literal[key.rules["choices"]] if closed else key.hint, field(metadata=key.rules)))
    every_key = make_dataclass("Keys", keys)
    parsers = {name: arguments_of(command) if (kind := chooser(command)) is None else make_dataclass(
        "Arguments", [*options(kind, arguments_of(partial(command, None))), ("keys", every_key)])
        for name, command in commands.items()}
    with errors_in_one_line():
        tyro.extras.subcommand_cli_from_dict(parsers, prog="vantage", args=words, config=CONFIG, registry=REGISTRY)
