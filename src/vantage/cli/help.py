"""Help of the commands that take config keys: short, or with every key explained."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import field, fields, make_dataclass
from textwrap import fill
from typing import Annotated, Any, NoReturn

from tyro.conf import FlagConversionOff, arg

from vantage.cli.parsing import first_line, parse
from vantage.config.config import Config
from vantage.config.flat import GROUPS
from vantage.keys.fields import in_text, type_hints

_EXPLAINED = frozenset({
    "num_envs", "env_kwargs", "network", "memory", "frame_stack", "init_from", "optimizer", "lr", "rollout_length",
    "num_workers", "device", "steps", "seed", "eval_every", "max_minutes"})
"""Keys that --help explains beside the algorithm's own; of the others it shows the defaults."""


def print_help(shown: Config, kind: Any, own: Any, prog: str, word: str, text: str, *,
               everything: bool) -> NoReturn:
    """Print the options of a command, which are fields of `kind` and parameters of `own`, and the keys of `shown`.

    Each key is explained with `everything`, else only the common ones. `word` is the command's first argument.
    """
    text = f"{text} Defaults are those of {shown.algo} on {shown.env.id}."
    if everything:
        groups = [(name, Annotated[_group(getattr(shown, name)), FlagConversionOff]) for name in GROUPS]
        parse(make_dataclass("Arguments", [*options(kind, own), *groups]), ["--help"], prog, text)
    with suppress(SystemExit):
        parse(make_dataclass("Arguments", options(kind, own)), ["--help"], prog, text)
    width = shutil.get_terminal_size().columns
    for group in GROUPS:
        print(_group_help(shown, group, width))
    print(f"{prog} {word} --help-all explains every key.")
    raise SystemExit(0)


def options(kind: Any, own: Any) -> list[tuple[str, Any]]:
    """The fields of tyro's class for what a command takes beside config keys."""
    return [("choice", Annotated[object, arg(constructor=kind, name="")]),
            ("own", Annotated[object, arg(constructor=own, name="")])]


def _group(part: Any) -> type:
    """The keys of one group of a config as a class without checks, whose defaults are their values in `part`."""
    hints = type_hints(part.__class__)
    kind = make_dataclass(type(part).__name__, [
        (f.name, Annotated[hints[f.name], arg(metavar="|".join(f.metadata.get("choices", ())) or None)],
         field(default=getattr(part, f.name), metadata=f.metadata)) for f in fields(part) if f.name != "id"])
    kind.__doc__ = first_line(type(part))
    return kind


def _group_help(shown: Config, group: str, width: int) -> str:
    """A line for each key of the algorithm and each common key; the others with their defaults alone."""
    lines, others = [fill(f"{group}: {first_line(getattr(shown, group))}", width, subsequent_indent="  ",
                          break_on_hyphens=False)], []
    values = shown.flat()
    for name, key in shown.flat_keys().items():
        if key.group != group or name == "env":
            continue
        flag = f"--{name.replace('_', '-')} {in_text(values[name])}"
        if group == "algorithm" or name in _EXPLAINED:
            text = fill(key.rules.get("help", "").partition(";")[0], max(48, width), initial_indent=" " * 28,
                        subsequent_indent=" " * 28)
            lines.append(f"  {flag:<25} {text[28:]}" if len(flag) <= 25 else f"  {flag}\n{text}")
        else:
            others.append(flag.replace(" ", "\0").replace("-", "\1"))  # neither is a place to break a line
    if others:
        lines.append(fill("  ".join(others), width, initial_indent="  ", subsequent_indent="  "))
    return "\n".join(lines).replace("\0", " ").replace("\1", "-")
