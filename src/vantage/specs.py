"""Specs of observations and actions, and the result of a game. No torch, so that workers start quickly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


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


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """The actions an environment takes.

    discrete: `sizes` is (n,), an action is an integer in [0, n); multi_discrete: `sizes` is nvec, or n times 2 for
    MultiBinary spaces, an action [len(sizes)] integers; box: `sizes` is (d,), an action [d] floats, `low` and `high`
    its bounds (infinite where the space has none).
    """

    kind: Literal["discrete", "multi_discrete", "box"]
    sizes: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: () for discrete, (n,) for the rest."""
        return {"discrete": (), "box": self.sizes, "multi_discrete": (len(self.sizes),)}[self.kind]


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """All that a model needs to be built without the environment; saved in the run's checkpoints."""

    obs: ArraySpec | Mapping[str, ArraySpec]
    action: ActionSpec
    masked: bool = False
    """The environment reports `info["action_mask"]`."""

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
        return cls(parts, ActionSpec(**{**action, "sizes": tuple(action["sizes"])}), spec["masked"])


def _array_spec(spec: Mapping[str, Any]) -> ArraySpec:
    return ArraySpec(spec["kind"], tuple(spec["shape"]), float(spec.get("unit", 255)), spec.get("floats", False),
                     spec.get("adapts", False), tuple(spec.get("shift", ())), tuple(spec.get("sizes", ())))


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished game: raw, unclipped score and length in agent steps (the reset step not counted)."""

    env: int
    score: float
    length: int
