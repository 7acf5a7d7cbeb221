"""Inputs of the torsos from the raw parts of an observation: grouping and scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from vantage.models.config import PolicyConfig
from vantage.models.images import to_floats, to_pixels
from vantage.models.normalization import (
    ImageNormalizer,
    ObsNormalizer,
    PixelNormalizer,
    ScaleNormalizer,
)
from vantage.models.torsos import torso_name
from vantage.specs import is_part
from vantage.types import ArraySpec, EnvSpec

MOST_KEYS = 4
"""Parts of an input that the description names."""


@dataclass(frozen=True, slots=True)
class Group:
    """The parts that form the input of one torso.

    One image, one set, or vectors followed by one-hots.
    """

    kind: Literal["image", "vector", "set"]
    vectors: tuple[int, ...]
    """Indices of the parts that `obs_norm` normalises, or of the image or set."""
    one_hots: tuple[int, ...]
    """Indices of the parts that `OneHotScale` scales."""
    spec: ArraySpec
    """The parts side by side, as the torso receives them."""

    @property
    def places(self) -> tuple[int, ...]:
        """Indices of all parts, in the order of the torso's columns."""
        return self.vectors + self.one_hots


def group_parts(policy: PolicyConfig, spec: EnvSpec) -> tuple[Group, ...]:
    """The inputs of the torsos, in the order of their first part; those of the critic alone last.

    With torsos=joint, all vectors and one-hots for an mlp form one input: a single mlp costs as
    little as one for each of them.
    """
    of_critic = critic_places(policy, spec)
    shared = [place for place in range(len(spec.parts)) if place not in of_critic]
    return (*_groups(policy, spec, shared, critic=False),
            *_groups(policy, spec, of_critic, critic=True))


def critic_places(policy: PolicyConfig, spec: EnvSpec) -> list[int]:
    """The indices of the parts that only the critic sees."""
    return [place for place, key in enumerate(spec.keys) if is_part(key, policy.critic_parts)]


def _beside_image(policy: PolicyConfig, spec: EnvSpec, *, critic: bool) -> bool:
    """An image is among the parts that the actor, or the critic, sees."""
    unseen = () if critic else critic_places(policy, spec)
    return any(part.kind == "image" for place, part in enumerate(spec.parts) if place not in unseen)


def _groups(policy: PolicyConfig, spec: EnvSpec, chosen: Sequence[int], *,
            critic: bool) -> Iterator[Group]:
    """The inputs that the `chosen` parts form; with `critic` these are for the critic alone."""
    parts = spec.parts
    beside_image = _beside_image(policy, spec, critic=critic)
    joint: list[int] = []
    members: list[list[int]] = []
    for place in chosen:
        part = parts[place]
        name = torso_name(policy.network, part, beside_image=beside_image)
        if part.kind in ("image", "set") or name != "mlp" or policy.torsos != "joint":
            members.append([place])
            continue
        if not joint:
            members.append(joint)
        joint.append(place)
    for places in members:
        yield _group(policy, parts, places)


def _group(policy: PolicyConfig, parts: Sequence[ArraySpec], places: Sequence[int]) -> Group:
    first = parts[places[0]]
    if first.kind == "image" or first.kind == "set":
        return Group(first.kind, (places[0],), (), first)
    scaled = []
    if policy.one_hot == "scaled":
        scaled = [place for place in places if parts[place].kind == "one_hot"]
    vectors = tuple(place for place in places if place not in scaled)
    width = sum(parts[place].shape[0] for place in places)
    return Group("vector", vectors, tuple(scaled), ArraySpec("vector", (width,)))


class OneHotScale(nn.Module):
    """Multiplies a one-hot of n values by √n; a bit has two values.

    If all values are equally frequent, each column then has a mean square of 1, like a normalised
    vector, and the first layer separates 500 states as well as 5. Running statistics would turn
    rarely visited states into large inputs that change with the statistics.
    """

    factors: Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        factors = [max(size, 2) ** 0.5 for size in sizes for _ in range(size)]
        self.register_buffer("factors", torch.tensor(factors), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factors


class Preprocessor:
    """Turns stacked raw observations [N, ...] into the torsos' inputs, for policy and critic.

    It is no module: the model registers `normalizers` and `scales` under their names in
    checkpoints.
    """

    def __init__(self, policy: PolicyConfig, spec: EnvSpec) -> None:
        parts = spec.parts
        self.parts = parts
        self.groups = group_parts(policy, spec)
        of_critic = critic_places(policy, spec)
        self.shared = tuple(group for group in self.groups if group.places[0] not in of_critic)
        """The groups that the actor sees, which come first."""
        self.frame_stack = policy.frame_stack
        self.pixel_range = policy.pixel_range
        self.image_dtype = torch.bfloat16 if policy.precision == "bfloat16" else None
        """Type of images; None: that of the weights."""
        self.normalizers = nn.ModuleDict()
        """By the index of the group."""
        self.scales = nn.ModuleDict()
        """By the index of the part."""
        for i, group in enumerate(self.groups):
            if group.kind == "image" and policy.image_norm == "pixel":
                self.normalizers[str(i)] = PixelNormalizer(group.spec.shape)
            elif group.kind == "image" and policy.image_norm == "global":
                self.normalizers[str(i)] = ImageNormalizer()
            elif group.spec.adapts and policy.pixel_range == (0, 1):
                scale = ScaleNormalizer(group.spec.unit, floats=group.spec.floats)
                self.normalizers[str(i)] = scale
            elif group.kind != "image" and policy.obs_norm and group.vectors:
                self.normalizers[str(i)] = ObsNormalizer(sum(self.widths(group)))
            for place in group.one_hots:
                self.scales[str(place)] = OneHotScale(parts[place].sizes)

    def widths(self, group: Group) -> list[int]:
        """Number of columns of each vector in `group`, or of the numbers of an entity."""
        if group.kind == "set":
            return [group.spec.shape[1] - 1]
        return [self.parts[place].shape[0] for place in group.vectors]

    def __call__(self, raw: Sequence[Tensor | None], dtype: torch.dtype) -> list[Tensor]:
        """The inputs; without those of the critic alone where `raw` has None for its parts."""
        present = [part for part in raw if part is not None]
        groups = self.groups if len(present) == len(raw) else self.shared
        return self._inputs(groups, cast(Sequence[Tensor], raw), dtype)

    def _inputs(self, groups: Sequence[Group], raw: Sequence[Tensor],
                dtype: torch.dtype) -> list[Tensor]:
        inputs = []
        for i, group in enumerate(groups):
            if group.kind == "image":
                inputs.append(self._image(str(i), group.spec, raw[group.vectors[0]], dtype))
            elif group.kind == "set":
                inputs.append(self._set(str(i), raw[group.vectors[0]], dtype))
            else:
                inputs.append(self._vectors(str(i), group, raw, dtype))
        return inputs

    def _image(self, name: str, part: ArraySpec, x: Tensor, dtype: torch.dtype) -> Tensor:
        image_dtype = self.image_dtype or dtype
        x = to_pixels(part, x)
        if name in self.normalizers:
            # Normalise in full precision. The unit is 255, because torsos divide by it.
            normalised = cast(Tensor, self.normalizers[name](to_floats(x, dtype), 255.0))
            return normalised.to(image_dtype)
        x = to_floats(x, image_dtype)
        if part.unit != 255 and not part.floats:
            x = x * (255 / part.unit)
        low, high = self.pixel_range
        return x if (low, high) == (0, 1) else x * (high - low) + 255 * low

    def _set(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The entities, normalised, and zeros in all other rows, whatever `x` has there."""
        rows = x[..., :-1]
        exists = x[..., -1:] > 0.5
        if name in self.normalizers:
            rows = self.normalizers[name](rows)
        return torch.cat([torch.where(exists, rows, 0.0), exists.to(rows.dtype)], -1).to(dtype)

    def _vectors(self, name: str, group: Group, raw: Sequence[Tensor],
                 dtype: torch.dtype) -> Tensor:
        """The frames in a row, each with normalised vectors and scaled one-hots."""
        if len(group.vectors) == 1 and not group.one_hots and name not in self.normalizers:
            return raw[group.vectors[0]].to(dtype)
        frames = [torch.unflatten(raw[place], -1, (self.frame_stack, -1)) for place in group.places]
        vectors = frames[:len(group.vectors)]
        one_hots = frames[len(group.vectors):]
        inputs = []
        if vectors:
            x = side_by_side(vectors)
            inputs.append(self.normalizers[name](x) if name in self.normalizers else x)
        for place, x in zip(group.one_hots, one_hots, strict=True):
            inputs.append(self.scales[str(place)](x))
        return side_by_side(inputs).flatten(-2).to(dtype)

    def statistics(self, place: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of the vector or set with index `place`; 0 and 1 if not normalised."""
        i, group = next((i, group) for i, group in enumerate(self.groups) if place in group.vectors)
        widths = self.widths(group)
        position = group.vectors.index(place)
        if str(i) not in self.normalizers:
            return torch.zeros(widths[position]), torch.ones(widths[position])
        normalizer = cast(ObsNormalizer, self.normalizers[str(i)])
        mean = torch.split(normalizer.mean, widths)[position]
        variance = torch.split(normalizer.var, widths)[position]
        return mean, variance


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates [..., N_i] along the last axis; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)


def networks_in_words(policy: PolicyConfig, spec: EnvSpec) -> str:
    """The torso of each input, and the memory behind them."""
    torsos = []
    of_critic = critic_places(policy, spec)
    for group in group_parts(policy, spec):
        beside_image = _beside_image(policy, spec, critic=group.places[0] in of_critic)
        name = torso_name(policy.network, group.spec, beside_image=beside_image)
        if spec.keys:
            keys = [spec.keys[place] for place in sorted(group.places)]
            named = keys[:MOST_KEYS]
            if len(keys) > MOST_KEYS:
                named.append(f"{len(keys) - MOST_KEYS} more")
            name += f" for {' and '.join(named)}"
        if group.places[0] in of_critic:
            name += " of the critic alone"
        torsos.append(name)
    words = ", ".join(torsos)
    if policy.memory != "none":
        words += f", then {policy.memory} of {policy.memory_size}"
    return words
