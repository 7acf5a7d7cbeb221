"""Writes src/vantage/config/keywords.py, the types of configure's keywords, from the config dataclasses.

Run it after a config key has changed: python tests/config_keys.py
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from types import NoneType
from typing import get_origin

from vantage.config.config import ALGORITHMS, Config, Key, runtimes_of
from vantage.keys.fields import kinds_of
from vantage.keys.schedules import Schedule

PATH = Path(__file__).parents[1] / "src/vantage/config/keywords.py"

RUNTIMES = {algo: runtimes_of(algo if algo != "a3g" else "a3c") for algo in ALGORITHMS}
"""The keys of a3g are typed as those of a3c, though it does not run under ray."""

NAMES = {"a2c": "A2CKeys", "ppo": "PPOKeys", "a3c": "A3CKeys", "a3g": "A3CKeys", "acer": "ACERKeys"}

HEAD = '''"""The types of the keywords of `vantage.configure`, so that editors complete and explain them.

Written by tests/config_keys.py from the config dataclasses, which have the defaults and the bounds. Do not edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from vantage.keys.schedules import Schedule

Number = float | str
"""A number, also as people write it: 1e6, "10M"."""

CoefficientLike = float | str | Schedule | Callable[[float], float]
"""A number, a schedule such as "linear:1e-3:0", or a function of the progress from 0 to 1."""

Numbers = int | str | Sequence[int]
"""Whole numbers, such as [64, 64] or "64,64"; one may stand alone."""

Text = str | float | PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""Text; a sequence stands for its elements with commas between them, a mapping for its JSON."""
'''


def keys_by_users() -> dict[tuple[str, ...], dict[str, str]]:
    """The lines of each key by its name, in groups of keys that the same algorithms have."""
    owners: dict[str, dict[str, dict[str, Key]]] = {}
    for algo in ALGORITHMS:
        for runtime in RUNTIMES[algo]:
            for name, key in Config.of(algo).change(runtime=runtime).flat_keys().items():
                if name != "env":
                    owners.setdefault(name, {}).setdefault(algo, {})[runtime] = key
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for name, users in owners.items():
        helps: dict[str, dict[str, None]] = {}
        for algo, keys in users.items():
            for runtime, key in keys.items():
                helps.setdefault(key.rules["help"], {})[runtime if key.group == "runtime" else algo] = None
        first, *others = helps
        key = next(key for keys in users.values() for key in keys.values())
        text = "; ".join([first, *(f"{', '.join(helps[other])}: {other}" for other in others)])
        groups.setdefault(tuple(users), {})[name] = f"    {name}: {annotation(key)}\n{docstring(text)}\n"
    text = docstring("sync: collects and learns in turn; hogwild: workers on shared weights; ray: workers on a cluster")
    groups[max(groups, key=len)]["runtime"] = f'    runtime: Literal["sync", "hogwild", "ray"]\n{text}\n'
    return groups


def annotation(key: Key) -> str:
    """What `configure` accepts for a key."""
    kinds = kinds_of(key.hint)
    choices = key.rules["choices"]
    if key.rules["open"]:
        kind = "str | Callable[..., Any]"
    elif choices:
        words = ", ".join(f'"{choice}"' for choice in choices)
        kind = f"Literal[{words}]"
    elif bool in kinds:
        kind = "bool"
    elif Schedule in kinds:
        kind = "CoefficientLike"
    elif tuple in map(get_origin, kinds):
        kind = "Numbers"
    elif str not in kinds:
        kind = "Number"
    else:
        kind = "Text"
    return f"{kind} | None" if NoneType in kinds else kind


def docstring(text: str) -> str:
    """The lines that explain a key."""
    return fill(f'"""{text}"""', 120, initial_indent=" " * 4, subsequent_indent=" " * 4)


def source() -> str:
    """The text of the module."""
    groups, algorithms = keys_by_users(), list(dict.fromkeys(NAMES.values()))
    everyone = max(groups, key=len)
    titles = {users: "CommonKeys" if users == everyone else
              "_" + "".join(dict.fromkeys(NAMES[user].removesuffix("Keys") for user in users)) for users in groups}
    parts = [HEAD]
    for users, keys in groups.items():
        words = "every algorithm" if users == everyone else ", ".join(users)
        head = f'class {titles[users]}(TypedDict, total=False):\n    """Keys of {words}."""\n\n'
        parts.append(head + "".join(keys.values()))
    for title in algorithms:
        own = [name for name, public in NAMES.items() if public == title]
        bases = ", ".join(titles[users] for users in groups if set(own) <= set(users))
        parts.append(f'class {title}({bases}, total=False):\n    """Keys of {" and ".join(own)}."""\n')
    parts.append(f'class EveryKey({", ".join(titles.values())}, total=False):\n    """Keys of all algorithms."""\n')
    return "\n\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(source(), encoding="utf-8")
