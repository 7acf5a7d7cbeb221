"""One figure of the stages from the environment's screen to the network's input."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from vantage.config import Config
from vantage.envs import Environments, First, Step, make_rendered, resolve_env
from vantage.errors import ConfigError
from vantage.learning.collect import tensor_obs
from vantage.models.actor_critic import check_inputs
from vantage.models.normalization import ObsNormalizer, PixelNormalizer
from vantage.models.recurrent import push_frame
from vantage.specs import ActionSpec, ArraySpec
from vantage.tools.evaluate import one_thread
from vantage.tools.output import whole_file

STREAM = 4
"""Streams 0 to 3 belong to training, evaluations and `play`."""

_STEPS = 200
"""Random steps for the statistics of normalisers."""
_ATARI_FRAME, _STEP = 240, 10
"""When to draw the game, on Atari and elsewhere; earlier if the game ends before."""
_FORMATS = (".png", ".svg", ".pdf")

_MOST_COLUMNS = 5
_WIDTH, _TALLEST, _TITLE = 2.9, 3.8, 0.5
"""Inches: width and maximum height of a panel, height of its title."""
_MOST_BARS, _BAR = 40, 0.14
"""More values are a line instead of bars. Height of a bar in inches; its number needs 0.11."""
_CHARACTERS = 13
"""Characters of the caption per inch."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture or list of values under its title."""

    title: str
    picture: NDArray[Any]
    """uint8 [H, W] gray or [H, W, 3] colour, or [N] values."""


@dataclass(slots=True)
class _Shown:
    """The step that is drawn."""

    step: int
    pictures: list[tuple[str, NDArray[Any]]]
    obs: Mapping[str, Tensor]
    stacks: Mapping[str, Tensor]


def preview(config: Config, output: Path) -> Path:
    """Draw into `output` (png, svg or pdf) what a policy under `config` sees after some random actions.

    The observation and its stack equal the network's input in training; normalisers use the statistics of at least 200
    random steps. An environment without pictures for people shows its observation and the preprocessing of its images.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{output}: the name must end in {', '.join(_FORMATS)}")
    envs = make_rendered(config.env, seed=config.run.seed, stream=STREAM, required=False)
    try:
        check_inputs(config.policy, envs.spec)
        with one_thread():
            shown, normalizers = _look(config, envs)
        caption = _caption(config, envs, shown, normalizers)
        groups = [[Panel(title, picture) for title, picture in shown.pictures]]
        for name, spec in _parts(envs).items():
            first, *others = _panels(config, name, spec, shown, normalizers.get(name))
            if name:
                groups.append(first)
            else:
                groups[0] += first
            groups += others
    finally:
        envs.close()
    title = f"{config.env.id}: what the network sees at step {shown.step} of a game"
    with whole_file(output) as path:
        draw_panels(groups, title, caption).savefig(path, dpi=80)
    return output


def _caption(config: Config, envs: Environments, shown: _Shown, normalizers: Mapping[str, ObsNormalizer]) -> str:
    """Facts that the pictures do not show."""
    skip = f"{envs.frames_per_step:g}" if config.env.frame_skip == "auto" else config.env.frame_skip
    facts = [f"an action lasts {skip} frames"] if skip != "1" else []
    if envs.action_names:
        facts.append(f"actions {', '.join(envs.action_names)}")
    elif config.env.action_subset != "all":
        facts.append(f"actions {', '.join(config.env.action_subset.split(','))} of the environment's")
    facts.append(f"frame_stack {config.policy.frame_stack}")
    if config.policy.memory != "none":
        facts.append(f"{config.policy.memory} of {config.policy.memory_size}")
    if not config.policy.image_norm and any(spec.kind == "image" for spec in _parts(envs).values()):
        facts.append("pixels 0 to 255 become {:g} to {:g}".format(*config.policy.pixel_range))
    if normalizers:
        facts.append(f"normalised by the statistics of this preview's own {_steps(config, envs)[1]} random steps")
    if not envs.drawn:
        facts.append("this environment draws no pictures for people")
    return "; ".join(facts)


def _steps(config: Config, envs: Environments) -> tuple[int, int]:
    """The number of the step that is drawn, and how many random steps normalisers see."""
    is_atari = resolve_env(config.env.id, config.env.atari_protocol).atari is not None
    drawn = max(1, round(_ATARI_FRAME / envs.frames_per_step)) if is_atari else _STEP
    return drawn, max(_STEPS, drawn)


def _look(config: Config, envs: Environments) -> tuple[_Shown, Mapping[str, ObsNormalizer]]:
    """The step to draw, and the normalisers after random steps."""
    rng, policy = np.random.default_rng(config.run.seed), config.policy
    normalizers = {name: ObsNormalizer(spec.shape[0]) if spec.kind == "vector" else PixelNormalizer()
                   for name, spec in _parts(envs).items()
                   if (policy.obs_norm if spec.kind == "vector" else policy.image_norm)}
    step: First | Step = envs.reset()
    drawn, steps = _steps(config, envs)
    frames: dict[str, Tensor] = {}
    shown: _Shown | None = None
    over = False
    for t in range(steps + 1):
        whole = tensor_obs(step.obs, torch.device("cpu"))
        obs = {name: part.clone() for name, part in ({"": whole} if isinstance(whole, Tensor) else whole).items()}
        stacks = {}
        for name, part in obs.items():
            before = frames.get(name, part.new_zeros(1, policy.frame_stack - 1, *part.shape[1:]))
            stacks[name], frames[name] = push_frame(part, torch.from_numpy(step.is_first), before,
                                                    pad=policy.stack_pad)
            if name in normalizers:
                normalizers[name].update(part[None])
        over = over or (t > 0 and bool(step.is_first[0]))
        if t <= drawn and not over:
            shown = _Shown(t, [(title, picture.copy()) for title, picture in envs.stages()], obs, stacks)
        elif not normalizers:
            break
        step = envs.step(_random_actions(rng, envs.spec.action, step.action_mask))
    assert shown is not None
    return shown, normalizers


def _panels(config: Config, name: str, spec: ArraySpec, shown: _Shown,
            normalizer: ObsNormalizer | None) -> list[list[Panel]]:
    """The stages of one part of the observation; each stack of images is a group of its own."""
    prefix, k = f"{name}: " if name else "", config.policy.frame_stack
    obs, stack = shown.obs[name][0], torch.unflatten(shown.stacks[name][0], 0, (k, -1))
    if spec.kind == "image":
        groups = [[Panel(f"{prefix}observation\n{'x'.join(map(str, spec.shape))}", _picture(obs))]]
        if k > 1:
            groups.append([Panel(f"{prefix}stack, {_place(j, k)}", _picture(frame)) for j, frame in enumerate(stack)])
        if normalizer is not None:
            normalised = _normalised_images(prefix, stack, normalizer)
            groups = [*groups, normalised] if k > 1 else [groups[0] + normalised]
        return groups
    panels = [Panel(f"{prefix}observation, raw\n{spec.shape[0]} value{'s' * (spec.shape[0] > 1)}", obs.numpy())]
    if k > 1:
        panels.append(Panel(f"{prefix}stack of {k}, raw\noldest first", stack.flatten().numpy()))
    if normalizer is None:
        panels[-1] = replace(panels[-1], title=f"{panels[-1].title}; obs_norm is off")
    else:
        panels.append(Panel(f"{prefix}normalised{', stacked' * (k > 1)}\nwithin -10 and 10",
                            normalizer(stack).flatten().numpy()))
    return [panels]


def _normalised_images(prefix: str, stack: Tensor, normalizer: ObsNormalizer) -> list[Panel]:
    """The images of a stack [k, C, H, W], normalised: the stack's lowest value is black, its highest white."""
    values = normalizer(stack.float())
    low, high = float(values.min()), float(values.max())
    drawn = ((values - low) * (255 / max(high - low, 1e-6))).to(torch.uint8)
    return [Panel(f"{prefix}normalised{f', {j + 1} of {len(stack)}' * (len(stack) > 1)}\n"
                  f"black {low:.2f}, white {high:.2f}", _picture(frame)) for j, frame in enumerate(drawn)]


def _place(j: int, k: int) -> str:
    return f"{j + 1} of {k}\n{'newest' if j + 1 == k else 'older'}"


def _picture(frame: Tensor) -> NDArray[Any]:
    """[C, H, W] as matplotlib takes it: gray [H, W] or RGB [H, W, 3]."""
    image = frame.numpy()
    return image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)


def _parts(envs: Environments) -> Mapping[str, ArraySpec]:
    """The parts of an observation by name; '' is the name of a single part."""
    return {"": envs.spec.obs} if isinstance(envs.spec.obs, ArraySpec) else envs.spec.obs


def _random_actions(rng: np.random.Generator, spec: ActionSpec, mask: NDArray[Any] | None) -> NDArray[Any]:
    """One random action [1, ...] that the mask allows."""
    if spec.kind == "box":
        low, high = (np.nan_to_num(bound, posinf=1.0, neginf=-1.0) for bound in (spec.low, spec.high))
        return rng.uniform(low, high).astype(np.float32)[None]
    allowed = np.ones(sum(spec.sizes), bool) if mask is None else mask[0]
    chosen = [rng.choice(np.flatnonzero(part)) for part in np.split(allowed, np.cumsum(spec.sizes)[:-1])]
    return np.array(chosen, np.int64).reshape(1, *spec.shape)


def draw_panels(groups: Sequence[Sequence[Panel]], title: str, caption: str) -> Figure:
    """The figure, with each group in a row, or in several rows of equal length if it is long."""
    rows = [row for group in groups for row in _cut(group)]
    columns = max(map(len, rows))
    width = _WIDTH * max(columns, 2)
    lines = textwrap.wrap(caption, int(width * _CHARACTERS))
    heights = [max(map(_height, row)) + _TITLE for row in rows]
    figure = Figure(figsize=(width, sum(heights) + 0.3 + 0.17 * len(lines)), layout="constrained")
    figure.suptitle("\n".join([title, *lines]), fontsize=10)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            axes = figure.add_subplot(grid[i, j])
            axes.set_title(panel.title, fontsize=9)
            if panel.picture.ndim == 1:
                _draw_values(axes, panel.picture)
            else:
                axes.imshow(panel.picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
    return figure


def _cut(group: Sequence[Panel]) -> list[Sequence[Panel]]:
    length = -(-len(group) // -(-len(group) // _MOST_COLUMNS)) if group else 1
    return [group[i:i + length] for i in range(0, len(group), length)]


def _height(panel: Panel) -> float:
    """The height of a panel without its title, in inches."""
    size = len(panel.picture)
    if panel.picture.ndim > 1:
        return min(_TALLEST, _WIDTH * size / len(panel.picture[0]))
    return max(0.8 * _WIDTH, _BAR * size) if size <= _MOST_BARS else _TALLEST


def _draw_values(axes: Axes, values: NDArray[Any]) -> None:
    """A bar and a number for each value, or a line if there are many."""
    index = np.arange(len(values))
    axes.axvline(0, color="0.6", linewidth=0.8)
    if len(values) > _MOST_BARS:
        axes.plot(values, index, color="#0072B2", linewidth=0.8)
    else:
        axes.barh(index, values, color="#0072B2", height=0.6)
        axes.set_yticks(index)
        for i, value in enumerate(values):
            axes.text(0.98, i, f"{value:.3g}", ha="right", va="center", fontsize=8,
                      transform=axes.get_yaxis_transform())
        reach = max(1.0, float(np.abs(values).max()))
        axes.set_xlim(-1.1 * reach, 1.8 * reach)  # room for the numbers
    axes.invert_yaxis()
    axes.tick_params(labelsize=8)
    axes.set_ylabel("index", fontsize=8)
