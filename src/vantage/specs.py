"""Specs of observations and actions, and the result of a game. No torch, so that workers start quickly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

WIDEST = 1e9
"""Largest distance of two bounds of an action. Bounds further apart, such as float32's or int32's, count as none."""
_COARSE = 1_000.0
"""Size of a bound, in widths of its range, from which float32 has fewer than some ten thousand numbers between both."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One part of an observation. Images are [C, H, W], uint8 or float32; all else is a float32 vector [N].

    one_hot: a Discrete, MultiDiscrete or MultiBinary space, as one-hots of `sizes` side by side; a size of 1 is a bit.
    """

    kind: Literal["image", "vector", "one_hot"]
    shape: tuple[int, ...]
    unit: float = 255.0
    """The value of an image that the network sees as 1: 255 of pixels, less where the numbers are codes."""
    floats: bool = False
    """The image holds float32 numbers, not bytes."""
    adapts: bool = field(default=False, compare=False)  # of the network: the arrays are the same
    """The network scales the image by the largest values that occur; until some have, by `unit`."""
    shift: tuple[float, ...] = ()
    """Numbers subtracted from a vector where it is read, in the environment's precision: offsets too large for float32.
    () subtracts nothing."""
    sizes: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        """The name of the type of its arrays, NumPy's and torch's."""
        return "uint8" if self.kind == "image" and not self.floats else "float32"

    def agrees(self, other: ArraySpec) -> bool:
        """Whether both have the same form. Earlier runs call one-hots vectors."""
        if {self.kind, other.kind} == {"one_hot", "vector"}:
            return self.shape == other.shape
        return self == other

    def __str__(self) -> str:
        words = [f"{self.kind} {list(self.shape)}"]
        if self.kind == "image":
            words.append(f"{self.dtype} up to {self.unit:g}")
        words += [f"{name} {numbers!s:.60}" for name, numbers in (("of", self.sizes), ("shifted by", self.shift))
                  if numbers]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """The actions an environment takes.

    discrete: `sizes` is (n,), an action is an integer in [0, n); multi_discrete: `sizes` is nvec, or n times 2 for
    MultiBinary spaces, an action [len(sizes)] integers; box: `sizes` is (d,), an action [d] floats, `low` and `high`
    its bounds (infinite where the space has none). Where `scaled` is True a policy acts in units of its own: -1 is
    `low` and 1 is `high`. () is all False.
    """

    kind: Literal["discrete", "multi_discrete", "box"]
    sizes: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    scaled: tuple[bool, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: () for discrete, (n,) for the rest."""
        return {"discrete": (), "box": self.sizes, "multi_discrete": (len(self.sizes),)}[self.kind]

    @property
    def scaled_bounds(self) -> dict[int, tuple[float, float]]:
        """The bounds that actions are scaled to, by dimension."""
        return {i: (self.low[i], self.high[i]) for i, on in enumerate(self.scaled) if on}

    def __str__(self) -> str:
        scaled = f" scaled to {[*self.scaled_bounds.values()]!s:.200}" if any(self.scaled) else ""
        return f"{self.kind} {list(self.sizes)}{scaled}"

    @property
    def policy_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The bounds of a box in the policy's units: -1 and 1 where it is scaled."""
        scaled = self.scaled or (False,) * len(self.low)
        return (tuple(-1.0 if on else bound for bound, on in zip(self.low, scaled, strict=True)),
                tuple(1.0 if on else bound for bound, on in zip(self.high, scaled, strict=True)))

    @property
    def scale(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centres c and half widths h of a box: c + h a is the policy's action a in the environment's units."""
        low, high = np.array(self.low), np.array(self.high)
        scaled = np.array(self.scaled or (False,) * len(low), bool)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds, which are not scaled
            return np.where(scaled, (low + high) / 2, 0.0), np.where(scaled, (high - low) / 2, 1.0)

    @property
    def env_dtype(self) -> type[np.float32] | type[np.float64]:
        """The type of a box's actions in the environment's units: float64 if float32 is too coarse between bounds."""
        coarse = any(on and max(abs(low), abs(high)) > _COARSE * (high - low)
                     for low, high, on in zip(self.low, self.high, self.scaled, strict=bool(self.scaled)))
        return np.float64 if coarse else np.float32

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A policy's actions [..., *shape] in the environment's units, not clipped."""
        if not any(self.scaled):
            return actions
        centre, half = self.scale
        scaled: NDArray[Any] = (centre + half * actions).astype(self.env_dtype)
        return scaled


def is_bounded(low: float, high: float) -> bool:
    """Both bounds of an action are finite, and not so far apart that they stand for none."""
    return math.isfinite(low) and math.isfinite(high) and high - low <= WIDEST


def scaled_dimensions(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[bool, ...]:
    """The dimensions of a box that a policy sees as [-1, 1]: bounded ones of another range; () if there are none."""
    scaled = tuple(is_bounded(least, most) and least < most and (least, most) != (-1, 1)
                   for least, most in zip(low, high, strict=True))
    return scaled if any(scaled) else ()


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """All that a model needs to be built without the environment; saved in the run's checkpoints."""

    obs: ArraySpec | Mapping[str, ArraySpec]
    action: ActionSpec
    masked: bool = False
    """The environment reports `info["action_mask"]`."""
    space: Mapping[str, Any] | None = None
    """The environment's own space of observations, as `envs.space_json` writes it; None where it is not known."""

    @property
    def parts(self) -> tuple[ArraySpec, ...]:
        """The parts of an observation, sorted by key."""
        return tuple(self.obs[key] for key in sorted(self.obs)) if isinstance(self.obs, Mapping) else (self.obs,)

    @property
    def shifts(self) -> dict[str, tuple[float, ...]]:
        """What is subtracted from each part that is shifted, by its name, "" for the whole observation."""
        parts = self.obs if isinstance(self.obs, Mapping) else {"": self.obs}
        return {name: part.shift for name, part in parts.items() if part.shift}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the parts, sorted; () where the observation is one array."""
        return tuple(sorted(self.obs)) if isinstance(self.obs, Mapping) else ()

    def observes_as(self, other: EnvSpec) -> bool:
        """Whether a policy made for one of both can read the observations of the other."""
        return self.keys == other.keys and all(map(ArraySpec.agrees, self.parts, other.parts))

    def acts_as(self, other: EnvSpec) -> bool:
        """Whether a policy made for one of both acts in the other in the same units."""
        one, two = self.action, other.action
        return (one.kind, one.sizes, one.scaled_bounds) == (two.kind, two.sizes, two.scaled_bounds)

    def differences(self, other: EnvSpec) -> list[tuple[str, str, str]]:
        """What keeps a policy made for one of both from the other: its name, and what it is for each, in words."""
        different = [] if self.observes_as(other) else [("observations", self._obs_in_words, other._obs_in_words)]
        if not self.acts_as(other):
            different.append(("actions", str(self.action), str(other.action)))
        return different

    @property
    def _obs_in_words(self) -> str:
        if isinstance(self.obs, ArraySpec):
            return str(self.obs)
        return ", ".join(f"{key}: {self.obs[key]}" for key in self.keys)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; infinite bounds become null."""
        spec = asdict(self)
        for side in ("low", "high"):
            spec["action"][side] = [bound if math.isfinite(bound) else None for bound in spec["action"][side]]
        return spec

    @classmethod
    def from_json(cls, spec: Mapping[str, Any]) -> EnvSpec:
        """The spec that `to_json` returned."""
        obs, action = spec["obs"], dict(spec["action"])
        for side, infinite in (("low", -math.inf), ("high", math.inf)):
            action[side] = tuple(infinite if bound is None else bound for bound in action[side])
        one = "shape" in obs and isinstance(obs.get("kind"), str)
        parts = _array_spec(obs) if one else {key: _array_spec(part) for key, part in obs.items()}
        action |= {"sizes": tuple(action["sizes"]), "scaled": tuple(action.get("scaled", ()))}
        return cls(parts, ActionSpec(**action), spec["masked"], spec.get("space"))


def _array_spec(spec: Mapping[str, Any]) -> ArraySpec:
    return ArraySpec(spec["kind"], tuple(spec["shape"]), float(spec.get("unit", 255)), spec.get("floats", False),
                     spec.get("adapts", False), tuple(spec.get("shift", ())), tuple(spec.get("sizes", ())))


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished game: raw, unclipped score and length in agent steps (the reset step not counted)."""

    env: int
    score: float
    length: int
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What is small in the `info` of its last step: numbers, texts, short arrays. Empty on Atari, and
    for the environments of data-parallel ranks above 0."""
