"""From the raw parts of an observation to the inputs of the torsos: which parts share one, and how they are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from vantage.models.config import PolicyConfig
from vantage.models.normalization import ImageNormalizer, ObsNormalizer, PixelNormalizer, ScaleNormalizer
from vantage.models.torsos import to_floats, to_pixels, torso_name
from vantage.types import ArraySpec, EnvSpec

MOST_KEYS = 4
"""Keys that a line of text names of the parts of an input."""


@dataclass(frozen=True, slots=True)
class Group:
    """The parts of an observation that are the input of one torso: one image, or vectors and then one-hots."""

    kind: Literal["image", "vector"]
    vectors: tuple[int, ...]
    """Places of the parts that `obs_norm` normalises, or of the image."""
    one_hots: tuple[int, ...]
    spec: ArraySpec
    """All of them side by side, as the torso sees them."""

    @property
    def places(self) -> tuple[int, ...]:
        """The places of all its parts, in the order of the torso's columns."""
        return self.vectors + self.one_hots


def group_parts(policy: PolicyConfig, parts: Sequence[ArraySpec]) -> tuple[Group, ...]:
    """The inputs of the torsos, by the place of their first part.

    All vectors and one-hots that an mlp takes are one input: each mlp of its own would cost as much as one for all.
    """
    beside_image = any(part.kind == "image" for part in parts)
    joint = [place for place, part in enumerate(parts) if part.kind != "image" and policy.torsos == "joint"
             and torso_name(policy.network, part, beside_image=beside_image) == "mlp"]
    sets = [joint if place in joint else [place] for place in range(len(parts)) if place not in joint[1:]]
    return tuple(_group(policy, parts, places) for places in sets)


def _group(policy: PolicyConfig, parts: Sequence[ArraySpec], places: Sequence[int]) -> Group:
    if parts[places[0]].kind == "image":
        return Group("image", (places[0],), (), parts[places[0]])
    scaled = [place for place in places if parts[place].kind == "one_hot" and policy.one_hot == "scaled"]
    vectors = tuple(place for place in places if place not in scaled)
    width = sum(parts[place].shape[0] for place in places)
    return Group("vector", vectors, tuple(scaled), ArraySpec("vector", (width,)))


class OneHotScale(nn.Module):
    """√n times each of the columns of a one-hot of n values; a bit has two values.

    The columns then have a mean square of 1 where all values are equally frequent, as normalised vectors have, and
    the first layer tells states apart as well among 500 as among 5. Running statistics would make any state that is
    rarely visited a large input, which changes whenever they do.
    """

    factors: Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        factors = [max(size, 2) ** 0.5 for size in sizes for _ in range(size)]
        self.register_buffer("factors", torch.tensor(factors), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factors


class Preprocessor:
    """Stacked raw observations [N, ...] as the torsos' inputs, once for the policy and the critic.

    It is no module: the model registers its `normalizers` and `scales`, under the names that checkpoints have.
    """

    def __init__(self, policy: PolicyConfig, parts: Sequence[ArraySpec]) -> None:
        self.parts, self.groups = parts, group_parts(policy, parts)
        self.frame_stack, self.pixel_range = policy.frame_stack, policy.pixel_range
        self.image_dtype = torch.bfloat16 if policy.precision == "bfloat16" else None  # None: the weights'
        self.normalizers = nn.ModuleDict()
        """By the place of the group."""
        self.scales = nn.ModuleDict()
        """By the place of the part."""
        for i, group in enumerate(self.groups):
            if group.kind == "image" and policy.image_norm != "none":
                per_pixel = policy.image_norm == "pixel"
                self.normalizers[str(i)] = PixelNormalizer(group.spec.shape) if per_pixel else ImageNormalizer()
            elif group.spec.adapts and policy.pixel_range == (0, 1):
                self.normalizers[str(i)] = ScaleNormalizer(group.spec.unit, floats=group.spec.floats)
            elif group.kind == "vector" and policy.obs_norm and group.vectors:
                self.normalizers[str(i)] = ObsNormalizer(sum(self.widths(group)))
            for place in group.one_hots:
                self.scales[str(place)] = OneHotScale(parts[place].sizes)

    def widths(self, group: Group) -> list[int]:
        """The columns of each of the vectors of `group`."""
        return [self.parts[place].shape[0] for place in group.vectors]

    def __call__(self, raw: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        return [self._image(str(i), group.spec, raw[group.vectors[0]], dtype) if group.kind == "image" else
                self._vectors(str(i), group, raw, dtype) for i, group in enumerate(self.groups)]

    def _image(self, name: str, part: ArraySpec, x: Tensor, dtype: torch.dtype) -> Tensor:
        low, high = self.pixel_range
        x = to_pixels(part, x)
        if name in self.normalizers:  # in full precision; torsos divide by 255
            return cast(Tensor, self.normalizers[name](to_floats(x, dtype), 255.0)).to(self.image_dtype or dtype)
        x = to_floats(x, self.image_dtype or dtype)
        if part.unit != 255 and not part.floats:
            x = x * (255 / part.unit)
        return x if (low, high) == (0, 1) else x * (high - low) + 255 * low

    def _vectors(self, name: str, group: Group, raw: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Of each frame the vectors side by side, normalised, then the one-hots, scaled; the frames in a row."""
        if len(group.vectors) == 1 and not group.one_hots and name not in self.normalizers:
            return raw[group.vectors[0]].to(dtype)
        frames = [torch.unflatten(raw[place], -1, (self.frame_stack, -1)) for place in group.places]
        vectors, one_hots = frames[:len(group.vectors)], frames[len(group.vectors):]
        inputs = [self.scales[str(place)](x) for place, x in zip(group.one_hots, one_hots, strict=True)]
        if vectors:
            x = side_by_side(vectors)
            inputs.insert(0, self.normalizers[name](x) if name in self.normalizers else x)
        return side_by_side(inputs).flatten(-2).to(dtype)

    def statistics(self, place: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of the vector at `place` among the parts; 0 and 1 where it is not normalised."""
        i, group = next((i, group) for i, group in enumerate(self.groups) if place in group.vectors)
        if str(i) not in self.normalizers:
            return torch.zeros(self.parts[place].shape), torch.ones(self.parts[place].shape)
        normalizer, column = cast(ObsNormalizer, self.normalizers[str(i)]), group.vectors.index(place)
        mean, variance = (torch.split(each, self.widths(group))[column] for each in (normalizer.mean, normalizer.var))
        return mean, variance


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """[..., N] of parts [..., N_i]; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)


def networks_in_words(policy: PolicyConfig, spec: EnvSpec) -> str:
    """The torso of each input, and the memory behind them."""
    beside_image = any(part.kind == "image" for part in spec.parts)
    torsos = []
    for group in group_parts(policy, spec.parts):
        name = torso_name(policy.network, group.spec, beside_image=beside_image)
        keys = [spec.keys[place] for place in sorted(group.places)] if spec.keys else []
        more = [f"{len(keys) - MOST_KEYS} more"] if len(keys) > MOST_KEYS else []
        torsos.append(f"{name} for {' and '.join(keys[:MOST_KEYS] + more)}" if keys else name)
    return ", ".join(torsos) + f", then {policy.memory} of {policy.memory_size}" * (policy.memory != "none")
