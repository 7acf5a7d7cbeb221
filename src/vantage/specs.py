"""Specs of observations and actions, and the result of a game. No torch, so that workers start
quickly."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

WIDEST = 1e9
"""Largest range of a bounded action. Wider bounds, such as the limits of float32 or int32, count as
unbounded."""
_COARSE = 1_000.0


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One part of an observation: an image [C, H, W] in uint8 or float32, or a float32 vector [N].

    A set [N, F + 1] has a row for each of up to N entities: F numbers, then 1 for one that exists.
    All other rows are zeros.

    A one_hot is the vector of a Discrete, MultiDiscrete or MultiBinary space: one-hots of `sizes`
    side by side, where a size of 1 is a bit.
    """

    kind: Literal["image", "vector", "one_hot", "set"]
    shape: tuple[int, ...]
    unit: float = 255.0
    """The image value that the network sees as 1: 255 for pixels, less for codes."""
    floats: bool = False
    """The image holds float32 numbers, not bytes."""
    # Not compared: it changes the network's scaling, not the arrays.
    adapts: bool = field(default=False, compare=False)
    """The network scales the image by the largest values seen so far, and by `unit` before any."""
    shift: tuple[float, ...] = ()
    """Offsets too large for float32, subtracted from a vector in the environment's own precision.
    () subtracts nothing."""
    sizes: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        """Name of the arrays' dtype in NumPy and torch."""
        return "uint8" if self.kind == "image" and not self.floats else "float32"

    def agrees(self, other: ArraySpec) -> bool:
        """Whether both have the same form. Older runs saved one-hots as vectors."""
        if {self.kind, other.kind} == {"one_hot", "vector"}:
            return self.shape == other.shape
        return self == other

    def __str__(self) -> str:
        words = [f"{self.kind} {list(self.shape)}"]
        if self.kind == "image":
            words.append(f"{self.dtype} up to {self.unit:g}")
        if self.sizes:
            words.append(f"of {self.sizes!s:.60}")
        if self.shift:
            words.append(f"shifted by {self.shift!s:.60}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """The actions of an environment.

    - discrete: `sizes` is (n,); an action is an integer in [0, n).
    - multi_discrete: `sizes` is nvec, or n times 2 for MultiBinary spaces; an action is
      [len(sizes)] integers.
    - box: `sizes` is (d,); an action is [d] floats between `low` and `high`, which are infinite
      where the space has no bounds. Where `scaled` is True, the policy acts from -1 (`low`) to 1
      (`high`). `scaled` = () scales no dimension.
    - joint: the `parts` of a Dict or Tuple space, by name. An action is one row of floats, those of
      all parts side by side, as are `low`, `high` (0 and n-1 for choices) and `scaled`. `sizes` is
      that of all discrete parts together.
    """

    kind: Literal["discrete", "multi_discrete", "box", "joint"]
    sizes: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    scaled: tuple[bool, ...] = ()
    parts: Mapping[str, ActionSpec] = field(default_factory=dict)
    space: Mapping[str, Any] | None = None
    """The Dict or Tuple space of a joint action, as `envs.space_json` writes it; else None."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: () for discrete, (n,) for the rest."""
        if self.kind == "discrete":
            return ()
        return (len(self.sizes if self.kind == "multi_discrete" else self.low),)

    @property
    def dtype(self) -> str:
        """Name of the actions' dtype in NumPy and torch."""
        return "float32" if self.kind in ("box", "joint") else "int64"

    @property
    def boxes(self) -> tuple[ActionSpec, ...]:
        """The continuous actions in it: itself, or parts of it."""
        if self.kind == "box":
            return (self,)
        return tuple(part for part in self.parts.values() if part.kind == "box")

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lowest and the highest value of each number of an action; choices count from 0."""
        if self.low:
            return np.array(self.low), np.array(self.high)
        sizes = np.array(self.sizes, np.float64)
        return np.zeros(len(sizes)), sizes - 1

    @property
    def is_choice(self) -> NDArray[np.bool_]:
        """Which numbers of an action are choices."""
        if self.parts:
            return np.concatenate([part.is_choice for part in self.parts.values()])
        return np.full(math.prod(self.shape), self.kind != "box")

    @property
    def form(self) -> tuple[Any, ...]:
        """Kinds and sizes, of all parts; equal for actions that one policy can choose."""
        return (self.kind, self.sizes, *((name, *part.form) for name, part in self.parts.items()))

    @property
    def scaled_bounds(self) -> dict[int, tuple[float, float]]:
        """The bounds of the scaled dimensions, by dimension."""
        return {i: (self.low[i], self.high[i])
                for i, is_scaled in enumerate(self.scaled) if is_scaled}

    def __str__(self) -> str:
        if self.parts:
            return ", ".join(f"{name}: {part}" for name, part in self.parts.items())
        text = f"{self.kind} {list(self.sizes)}"
        if any(self.scaled):
            text += f" scaled to {[*self.scaled_bounds.values()]!s:.200}"
        return text

    @property
    def policy_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Low and high bounds of a box in the policy's units: -1 and 1 in scaled dimensions."""
        low = list(self.low)
        high = list(self.high)
        for i in self.scaled_bounds:
            low[i] = -1.0
            high[i] = 1.0
        return tuple(low), tuple(high)

    @property
    def scale(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centres c and half widths h of a box: c + h a is action a in the environment's units.

        c = 0 and h = 1 in dimensions that are not scaled.
        """
        low = np.array(self.low)
        high = np.array(self.high)
        scaled = np.array(self.scaled or (False,) * len(low), bool)
        # bounds that are not scaled may be infinite
        with np.errstate(invalid="ignore", over="ignore"):
            centre = np.where(scaled, (low + high) / 2, 0.0)
            half_width = np.where(scaled, (high - low) / 2, 1.0)
        return centre, half_width

    @property
    def env_dtype(self) -> type[np.float32] | type[np.float64]:
        """Type of a box's actions in the environment's units: float64 if float32 is too coarse."""
        is_any_coarse = any(is_coarse(*bounds) for bounds in self.scaled_bounds.values())
        return np.float64 if is_any_coarse else np.float32

    def make_to_env(self) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """`to_env` as a function that computes the scale once, for use at every step."""
        if not any(self.scaled):
            return lambda actions: actions
        centre, half_width = self.scale
        dtype = self.env_dtype

        def to_env(actions: NDArray[Any]) -> NDArray[Any]:
            in_env_units: NDArray[Any] = (centre + half_width * actions).astype(dtype)
            return in_env_units

        return to_env

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A policy's actions [..., *shape] in the environment's units, not clipped."""
        return self.make_to_env()(actions)


def is_coarse(low: float, high: float) -> bool:
    """Whether float32 has fewer than about ten thousand values between the bounds."""
    return max(abs(low), abs(high)) > _COARSE * (high - low)


def is_bounded(low: float, high: float) -> bool:
    """Whether both bounds of an action are finite and at most `WIDEST` apart."""
    return math.isfinite(low) and math.isfinite(high) and high - low <= WIDEST


def is_part(key: str, names: Collection[str]) -> bool:
    """Whether the part `key` is one of `names`, or within one: "a" has the part "a/b"."""
    return any(key == name or key.startswith(f"{name}/") for name in names)


def scaled_dimensions(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[bool, ...]:
    """Which dimensions of a box can be scaled to [-1, 1]; () if none.

    Those with bounds, unless these are -1 and 1 already.
    """
    scaled = tuple(is_bounded(lower, upper) and lower < upper and (lower, upper) != (-1, 1)
                   for lower, upper in zip(low, high, strict=True))
    return scaled if any(scaled) else ()


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What a model needs to know about an environment; saved in the run's checkpoints."""

    obs: ArraySpec | Mapping[str, ArraySpec]
    action: ActionSpec
    masked: bool = False
    """The environment reports `info["action_mask"]`."""
    space: Mapping[str, Any] | None = None
    """The environment's observation space, as `envs.space_json` writes it; None if unknown."""
    agents: int = 1
    """Rows of a batch for each environment, whose episodes begin together."""

    @property
    def parts(self) -> tuple[ArraySpec, ...]:
        """The parts of an observation, sorted by key."""
        if isinstance(self.obs, ArraySpec):
            return (self.obs,)
        return tuple(self.obs[key] for key in sorted(self.obs))

    @property
    def shifts(self) -> dict[str, tuple[float, ...]]:
        """The shift of each shifted part by its name, "" for the whole observation."""
        parts = self.obs if isinstance(self.obs, Mapping) else {"": self.obs}
        return {name: part.shift for name, part in parts.items() if part.shift}

    @property
    def unshifted(self) -> EnvSpec:
        """The spec without the shifts."""
        if isinstance(self.obs, ArraySpec):
            return replace(self, obs=replace(self.obs, shift=()))
        obs = {name: replace(part, shift=()) for name, part in self.obs.items()}
        return replace(self, obs=obs)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the parts, sorted; () if the observation is a single array."""
        return tuple(sorted(self.obs)) if isinstance(self.obs, Mapping) else ()

    def without(self, names: Collection[str]) -> EnvSpec:
        """The spec without the parts that are in `names`; its `space` is still the whole one."""
        if not names or isinstance(self.obs, ArraySpec):
            return self
        obs = {key: self.obs[key] for key in self.keys if not is_part(key, names)}
        return replace(self, obs=obs)

    def observes_as(self, other: EnvSpec) -> bool:
        """Whether a policy for one spec can read the observations of the other."""
        return self.keys == other.keys and all(map(ArraySpec.agrees, self.parts, other.parts))

    def differences(self, other: EnvSpec) -> list[tuple[str, str, str]]:
        """Why a policy for one spec does not fit the other: (subject, here, there), in words."""
        different = []
        if not self.observes_as(other):
            different.append(("observations", self._obs_in_words, other._obs_in_words))
        mine = self.action
        theirs = other.action
        # In other units, a policy's actions would be others too.
        if mine.form != theirs.form or mine.scaled_bounds != theirs.scaled_bounds:
            different.append(("actions", str(mine), str(theirs)))
        return different

    @property
    def _obs_in_words(self) -> str:
        if isinstance(self.obs, ArraySpec):
            return str(self.obs)
        return ", ".join(f"{key}: {self.obs[key]}" for key in self.keys)


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished game, with its raw score and its length in agent steps without the reset."""

    env: int
    score: float
    length: int
    cut: bool = field(default=False, compare=False, kw_only=True)
    """A step limit ended this game of an evaluation."""
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Small values in the `info` of the last step: numbers, short texts and arrays. Empty on Atari.
    From data-parallel ranks above 0, only finite numbers."""
