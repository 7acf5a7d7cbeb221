"""The numbers in `info` of the environments as metrics."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from vantage.envs.descriptions import shown

SUCCESS = "is_success"
"""Key of `info` whose mean is a success rate, as elsewhere."""
LOG = "log"
"""Key of `info` for a dict of further numbers, as Isaac Lab's environments have."""
_NO_METRICS = ("time_outs",)
_MOST_NUMBERS = 32
_LONGEST_NAME = 64
_LARGEST_NUMBER = 1e100  # metrics.jsonl is read up to it


def numbers_of(info: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers and bools of `info` as metrics hold them: `is_success`, then by name.

    Those of a dict `log` in it count too, and arrays of one number. At most 32, with names of up to
    64 characters.
    """
    log = info.get(LOG)
    more = log if isinstance(log, Mapping) else {}
    numbers = {}
    for name, value in {**more, **info}.items():
        single = value.item() if getattr(value, "size", 0) == 1 else value
        if (isinstance(name, str) and name not in _NO_METRICS
                and isinstance(single, bool | int | float) and abs(single) <= _LARGEST_NUMBER
                and name.isprintable() and 0 < len(name) <= _LONGEST_NAME):
            numbers[name] = float(single)
    return {name: numbers[name] for name in _first_names(numbers)}


class SuccessNote:
    """Finds an `is_success` that counts for no success rate: misspelt, or no number."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, info: Mapping[str, Any]) -> str:
        """What is wrong in the `info` of an episode's last step, once; '' otherwise."""
        new = {name for name in info if isinstance(name, str)} - self._seen
        if not new or len(self._seen) > _MOST_NUMBERS:
            return ""
        self._seen |= new
        if SUCCESS in info:
            if SUCCESS not in new or SUCCESS in numbers_of(info):
                return ""
            return (f"info[{SUCCESS!r}] is {shown(info[SUCCESS])}, which counts for no success "
                    "rate; give True or False")
        plain = SUCCESS.replace("_", "")
        folded = {name.replace("_", "").lower(): name for name in new}
        close = difflib.get_close_matches(plain, folded, n=1, cutoff=0.85)
        if not close:
            return ""
        return (f"info has {folded[close[0]]!r}, and the success rate is the mean of "
                f"{SUCCESS!r}; rename it")


def _first_names(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != SUCCESS, name))[:_MOST_NUMBERS]


def info_means(numbers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the episodes that have it, `is_success` first, then by name."""
    values: dict[str, list[float]] = {}
    for each in numbers:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(values[name]) for name in _first_names(values)}


def info_metrics(group: str, numbers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """`info_means` as metrics of `group`: GROUP/success_rate of `is_success`, GROUP/info/NAME."""
    means = info_means(numbers)
    return {f"{group}/success_rate" if name == SUCCESS else f"{group}/info/{name}": value
            for name, value in means.items()}
