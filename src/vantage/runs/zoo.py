"""The zoo: policies that come with Vantage. zoo:NAME is a policy file beside its score card.

`benchmarks/zoo.py` adds policies; nothing is trained, evaluated or downloaded here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.suggestions import nearest
from vantage.runs.meta import read_object

PREFIX = "zoo:"
FOLDER = Path(__file__).parents[1] / "zoo"
_REMEDY = "install Vantage again"


@dataclass(frozen=True, slots=True)
class ScoreCard:
    """How a policy was trained and how it plays: NAME.json beside NAME.safetensors."""

    environment: str
    algorithm: str
    steps: int
    """Agent steps that the policy was trained for."""
    seed: int
    command: str
    commit: str
    """Of the code that trained it."""
    episodes: int
    return_mean: float
    """Mean raw score of the first `episodes` games of `vantage evaluate`."""
    return_low: float
    return_high: float
    """95% bootstrap interval of the mean, over games."""
    deterministic: bool
    """The games were played by the most probable actions; False: by sampled ones."""
    sha256: str
    """Of the policy file."""

    def score(self) -> str:
        """'-79.9 (-82.4 to -77.6)': the mean with its interval."""
        digits = 2 if abs(self.return_mean) < 10 else 1
        mean, low, high = (f"{value:,.{digits}f}"
                           for value in (self.return_mean, self.return_low, self.return_high))
        return f"{mean} ({low} to {high})"

    @property
    def actions(self) -> str:
        """How the policy acts, in words."""
        return "most probable" if self.deterministic else "sampled"


def names(folder: Path = FOLDER) -> list[str]:
    """The names of all policies."""
    return sorted(path.stem for path in folder.glob("*.json"))


def score_card(name: str, folder: Path = FOLDER) -> ScoreCard:
    """The card of a policy; ConfigError for an unknown name and a damaged card."""
    known = names(folder)
    if name not in known:
        raise ConfigError(f"the zoo has no {name!r}{nearest(name, known)}; it has "
                          f"{', '.join(known)}")
    path = folder / f"{name}.json"
    values = read_object(path)
    wrong = _wrong_fields(values)
    if wrong:
        raise ConfigError(f"{path} is damaged: {wrong}; {_REMEDY}")
    return ScoreCard(**values)


def _wrong_fields(values: Mapping[str, Any]) -> str:
    """The fields that a card lacks, has too many or has with another type, or ''."""
    kinds = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
    expected = {field.name: kinds[str(field.type)] for field in fields(ScoreCard)}
    wrong = expected.keys() ^ values.keys()
    wrong |= {name for name in expected.keys() & values.keys()
              if type(values[name]) not in expected[name]}
    return ", ".join(sorted(wrong))


def policy_path(address: str, folder: Path = FOLDER) -> Path:
    """The file of zoo:NAME; ConfigError if it is not the one that its card describes."""
    name = address.removeprefix(PREFIX)
    card = score_card(name, folder)
    path = folder / f"{name}.safetensors"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}; {_REMEDY}") from None
    if digest != card.sha256:
        raise ConfigError(f"{path} is damaged: its sha256 is {digest:.12}..., its card has "
                          f"{card.sha256:.12}...; {_REMEDY}")
    return path


def listing() -> str:
    """The policies for `vantage list`."""
    lines = ["zoo: trained policies, for every command that takes a policy file"]
    for name in names():
        card = score_card(name)
        lines.append(f"  {PREFIX + name:<20} {card.algorithm} on {card.environment}, "
                     f"{card.steps:,} steps: {card.score()}, {card.actions} actions")
    return "\n".join(lines)
