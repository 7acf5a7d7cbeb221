"""Help of the commands that take config keys: short, or with every key explained."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import field, make_dataclass
from textwrap import fill
from typing import Annotated, Any, NoReturn, get_origin

from tyro.conf import FlagConversionOff, arg

from vantage.cli.parsing import first_line, parse
from vantage.config.config import Config
from vantage.config.flat import GROUPS
from vantage.keys.given_fields import arguments_of
from vantage.keys.type_hints import type_hints
from vantage.keys.typed_values import in_text, kinds_of

_EXPLAINED = frozenset({
    "num_envs", "env_kwargs", "network", "memory", "frame_stack", "init_from", "optimizer", "lr",
    "rollout_length", "num_workers", "envs_per_worker", "device", "steps", "seed", "eval_every",
    "max_minutes"})
"""Keys that --help explains besides the algorithm's own; of the others it shows the defaults."""
_FLAG_WIDTH = 25
_HELP_INDENT = " " * 28
_UNBREAKABLE = "\0"
"""Stands for a space at which no line may break."""


def print_help(config: Config, kind: Any, own: Any, prog: str, word: str, text: str, *,
               everything: bool) -> NoReturn:
    """Print what a command takes: fields of `kind`, parameters of `own`, and the keys of `config`.

    Each key is explained with `everything`, else only the common ones. `word` is the command's
    first argument.
    """
    text = f"{text} Defaults are those of {config.algo} on {config.env.id}."
    if everything:
        groups = [(name, Annotated[_group(getattr(config, name)), FlagConversionOff])
                  for name in GROUPS]
        arguments = make_dataclass("Arguments", [*options(kind, own), *groups])
        parse(arguments, ["--help"], prog, text)  # exits
    with suppress(SystemExit):
        parse(make_dataclass("Arguments", options(kind, own)), ["--help"], prog, text)
    width = shutil.get_terminal_size().columns
    for group in GROUPS:
        print(_group_help(config, group, width))
    print(f"{prog} {word} --help-all explains every key.")
    raise SystemExit(0)


def options(kind: Any, own: Any) -> list[tuple[str, Any]]:
    """The fields of tyro's class for what a command takes besides config keys."""
    return [("choice", Annotated[object, arg(constructor=kind, name="")]),
            ("own", Annotated[object, arg(constructor=own, name="")])]


def _group(part: Any) -> type:
    """A class of one group's keys without checks, whose defaults are the values in `part`."""
    hints = type_hints(part.__class__)
    keys = []
    for f in arguments_of(type(part)):
        if f.name == "id":
            continue
        hint = hints[f.name]
        default = getattr(part, f.name)
        metavar = "|".join(f.metadata.get("choices", ())) or None
        if not {list, dict, Any}.isdisjoint(get_origin(kind) or kind for kind in kinds_of(hint)):
            hint = str
            default = in_text(default)
            metavar = "JSON"
        keys.append((f.name, Annotated[hint, arg(metavar=metavar)],
                     field(default=default, metadata=f.metadata)))
    kind = make_dataclass(type(part).__name__, keys)
    kind.__doc__ = first_line(type(part))
    return kind


def _group_help(config: Config, group: str, width: int) -> str:
    """A line for each key of the algorithm and each common key; only the defaults of the others."""
    title = f"{group}: {first_line(getattr(config, group))}"
    lines = [fill(title, width, subsequent_indent="  ", break_on_hyphens=False)]
    others = []
    values = config.flat()
    for name, key in config.flat_keys().items():
        if key.group != group or name == "env":
            continue
        flag = f"--{name.replace('_', '-')} {in_text(values[name])}"
        if group == "algorithm" or name in _EXPLAINED:
            summary = key.rules.get("help", "").partition(";")[0]
            lines.append(_explained(flag, summary, width))
        else:
            others.append(flag.replace(" ", _UNBREAKABLE))
    if others:
        text = fill("  ".join(others), width, initial_indent="  ", subsequent_indent="  ",
                    break_on_hyphens=False)
        lines.append(text.replace(_UNBREAKABLE, " "))
    return "\n".join(lines)


def _explained(flag: str, summary: str, width: int) -> str:
    """A flag with its default, and the summary beside it, or below it if the flag is long."""
    text = fill(summary, max(48, width), initial_indent=_HELP_INDENT,
                subsequent_indent=_HELP_INDENT)
    if len(flag) > _FLAG_WIDTH:
        return f"  {flag}\n{text}"
    return f"  {flag:<{_FLAG_WIDTH}} {text[len(_HELP_INDENT):]}"
