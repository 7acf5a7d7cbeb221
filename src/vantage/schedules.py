"""One notation for every coefficient that may change during a run: a number, or `kind:values`.

    7e-4                          constant
    linear:7e-4:0                 from the first value to the second over the run
    cosine:7e-4:1e-5              half a cosine from the first value to the second
    piecewise:0=7e-4,1M=1e-4      the value of the last point passed; points in agent steps, or in percent of the run

A schedule is a function of the step and of the `steps` the run was first given: a resumed run follows the same curve.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from vantage.errors import ConfigError

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([kKmMbB]?)", re.ASCII)


def parse_number(text: str) -> float:
    """The number that a person wrote: 1e6, 10M and 500k are numbers. Raises ValueError for anything else."""
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError(f"{text!r} is not a number; write for example 5e-4, 1e6, 10M or 500k")
    return float(match[1]) * _FACTORS[match[2].lower()]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A coefficient as a function of the share of the run that is done."""

    kind: str
    values: tuple[float, ...]
    points: tuple[tuple[float, bool], ...] = ()
    """For piecewise: where each value begins, and whether that is a share of the run rather than a step."""

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Schedule:
        """The schedule that `text` denotes; ConfigError names the notation otherwise."""
        kind, _, rest = text.strip().partition(":")
        try:
            if not rest:
                return cls("constant", (parse_number(kind),))
            if kind == "piecewise":
                points = [(at.strip(), parse_number(value)) for at, value in (p.split("=") for p in rest.split(","))]
                places = [(parse_number(at.rstrip("%")) / (100 if at[-1] == "%" else 1), at[-1] == "%")
                          for at, _ in points]
                if places[0][0] == min(places)[0] == 0 and all(same == sorted(set(same)) for same in (
                        [at for at, is_share in places if is_share is share] for share in (True, False))):
                    return cls(kind, tuple(value for _, value in points), tuple(places))
            if kind in ("linear", "cosine"):
                first, last = map(parse_number, rest.split(":"))
                return cls(kind, (first, last))
        except (ValueError, IndexError):
            pass
        raise ConfigError(f"{text!r} is not a schedule: write a number such as 5e-4 or 10M, linear:A:B, cosine:A:B or "
                          "piecewise:0=A,1M=B,50%=C with points that rise from 0")

    def __call__(self, step: int, steps: int) -> float:
        """The value at `step` of a run of `steps`; past the end it stays at the last value."""
        done = min(1.0, step / max(1, steps))
        if self.kind == "linear":
            return self.values[0] + (self.values[1] - self.values[0]) * done
        if self.kind == "cosine":
            return self.values[1] + (self.values[0] - self.values[1]) * 0.5 * (1 + math.cos(math.pi * done))
        passed = [(at * steps if is_share else at, i) for i, (at, is_share) in enumerate(self.points or [(0.0, True)])
                  if (done if is_share else step) >= at]
        return self.values[max(passed)[1]]  # the last passed; of two at one step, the later in the text
