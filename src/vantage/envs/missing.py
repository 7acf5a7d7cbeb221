"""What to install where an environment's library is missing, in the words of Vantage's own extras."""

from __future__ import annotations

import re

from gymnasium.error import DependencyNotInstalled

_OWN = {"mujoco": "vantage-rl[mujoco]"}
"""Extras of Gymnasium that are extras of Vantage too; the others that it needs come with it."""


def missing_library(error: DependencyNotInstalled) -> str:
    """What is missing and the one command that installs it."""
    text = str(error)
    extra = re.search(r"gymnasium\[([\w-]+)\]", text)
    if extra is None:
        return text
    what = re.split(r", |; |\. ", text, maxsplit=1)[0]
    return f"{what}; pip install '{_OWN.get(extra[1], f'gymnasium[{extra[1]}]')}'"
