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
from typing import Literal

from vantage.errors import ConfigError

_SUFFIX = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "b": 1e9, "B": 1e9}
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([kKmMbB]?)")


def parse_number(text: str) -> float:
    """The number that a person wrote: 1e6, 10M and 500k are numbers. Raises ValueError for anything else."""
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError(f"{text!r} is not a number; write for example 5e-4, 1e6, 10M or 500k")
    return float(match[1]) * _SUFFIX[match[2]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A coefficient as a function of the share of the run that is done."""

    kind: Literal["constant", "linear", "cosine", "piecewise"]
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
            if kind in ("linear", "cosine"):
                parts = rest.split(":")
                if len(parts) != 2:
                    raise ValueError(f"{kind} goes from one value to another; write {kind}:7e-4:0")
                first, last = (parse_number(part) for part in parts)
                return cls("linear" if kind == "linear" else "cosine", (first, last))
            if kind == "piecewise":
                return cls._parse_piecewise(rest)
        except ValueError as error:
            raise ConfigError(f"{text!r} is not a schedule: {error}") from None
        raise ConfigError(
            f"{text!r} is not a schedule: write a number, linear:A:B, cosine:A:B or piecewise:0=A,1M=B,50%=C"
        )

    @classmethod
    def _parse_piecewise(cls, rest: str) -> Schedule:
        values, points = [], []
        for part in rest.split(","):
            where, separator, value = part.partition("=")
            if not separator:
                raise ValueError(f"{part!r} has no '='; write piecewise:0=7e-4,1M=1e-4")
            share = where.strip().endswith("%")
            at = parse_number(where.strip().removesuffix("%"))
            points.append((at / 100 if share else at, share))
            values.append(parse_number(value))
        if points[0][0] != 0:
            raise ValueError("the first point must be 0")
        for shares in (True, False):
            same = [at for at, share in points if share is shares]
            if same != sorted(same):
                raise ValueError("the points must rise")
        return cls("piecewise", tuple(values), tuple(points))

    def __call__(self, step: int, steps: int) -> float:
        """The value at `step` of a run of `steps`; past the end it stays at the last value."""
        done = min(1.0, step / max(1, steps))
        match self.kind:
            case "constant":
                return self.values[0]
            case "linear":
                return self.values[0] + (self.values[1] - self.values[0]) * done
            case "cosine":
                return self.values[1] + (self.values[0] - self.values[1]) * 0.5 * (1 + math.cos(math.pi * done))
            case "piecewise":
                passed = [v for v, (at, share) in zip(self.values, self.points, strict=True)
                          if (done if share else step) >= at]
                return passed[-1]
