"""A picture of what the network sees: each stage from the environment's screen to the network's input, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from vantage.envs import Environments, make_environments, make_rendered
from vantage.errors import ConfigError
from vantage.learning.collect import tensor_obs
from vantage.models.memory import push_frame
from vantage.models.normalize import ObsNormalizer
from vantage.specs import ActionSpec, ArraySpec
from vantage.tools.evaluate import one_thread
from vantage.types import Obs

Pictures = tuple[tuple[str, NDArray[Any]], ...]

STREAM = 4
"""Streams 0 to 3 are training's, the evaluations' and the person's."""

_STEPS = 200
"""Random steps that a normaliser learns from."""
_SHOWN_STEP = {True: 60, False: 10}
"""The moment of the game that is drawn, for Atari and for others, or the last before the game ends."""
_MOST_BARS = 40
_FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True)
class _Panel:
    """One column of the picture."""

    title: str
    picture: NDArray[Any]
    """[H, W] gray, [H, W, 3] colour, or [N] values."""


@dataclass(slots=True)
class _Shown:
    """The moment that is drawn."""

    step: int
    pictures: tuple[tuple[str, NDArray[Any]], ...]
    obs: Mapping[str, Tensor]
    stacks: Mapping[str, Tensor]


def preview(config: Config, output: Path) -> Path:
    """Draw into `output` (png, svg or pdf) what a policy under `config` sees, some random actions into a game.

    The observation and its stack are those that training would give the network; a normaliser has seen 200 random
    steps. An environment that draws no pictures shows its observation alone.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{output}: the name must end in {', '.join(_FORMATS)}")
    envs, pictures = _open(config)
    try:
        with one_thread():
            shown, normalizers = _look(config, envs, pictures)
        panels = [_Panel(title, picture) for title, picture in shown.pictures]
        for name, spec in _parts(envs).items():
            panels += _panels(config, name, spec, shown, normalizers.get(name))
    finally:
        envs.close()
    title = f"{config.env}: what the network sees at step {shown.step} of a game\nframe_stack {config.frame_stack}"
    title += f", {config.memory} of {config.memory_size}" if config.memory != "none" else ""
    title += "" if shown.pictures else "; this environment draws no pictures for people"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _draw(panels, title).savefig(output, dpi=80)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}; choose another output") from None
    return output


def _open(config: Config) -> tuple[Environments, Callable[[], Pictures]]:
    """The environment, and what gives its pictures; where it draws none, an environment without."""
    try:
        rendered = make_rendered(config, stream=STREAM)
        return rendered, rendered.stages
    except ConfigError:
        plain = config.override({"vector": "sync"}, source="preview")
        return make_environments(plain, num_envs=1, stream=STREAM, evaluation=True), tuple


def _look(config: Config, envs: Environments,
          pictures: Callable[[], Pictures]) -> tuple[_Shown, Mapping[str, ObsNormalizer]]:
    """The moment to draw, and the normalisers after random steps."""
    rng = np.random.default_rng(config.seed)
    parts = _parts(envs)
    normalizers = {name: ObsNormalizer(spec.shape[0]) for name, spec in parts.items()
                   if config.obs_norm and spec.kind == "vector"}
    first = envs.reset()
    obs, is_first, mask = _split(tensor_obs(first.obs, torch.device("cpu"))), first.is_first, first.action_mask
    frames = {name: part.new_zeros(1, config.frame_stack - 1, *part.shape[1:]) for name, part in obs.items()}
    shown: _Shown | None = None
    chosen = _SHOWN_STEP[envs.frames_per_step > 1]
    over = False
    for t in range(_STEPS + 1):
        stacks = {}
        for name, part in obs.items():
            stacks[name], frames[name] = push_frame(part, torch.from_numpy(is_first), frames[name],
                                                    pad=config.stack_pad)
            if name in normalizers:
                normalizers[name].update(part[None])
        over = over or (t > 0 and bool(is_first[0]))
        if t <= chosen and not over:
            shown = _Shown(t, pictures(), obs, stacks)
        elif not normalizers:
            break
        step = envs.step(_random_actions(rng, envs.spec.action, mask))
        obs, is_first, mask = _split(tensor_obs(step.obs, torch.device("cpu"))), step.is_first, step.action_mask
        obs = {name: part.clone() for name, part in obs.items()}
    assert shown is not None
    return shown, normalizers


def _panels(config: Config, name: str, spec: ArraySpec, shown: _Shown,
            normalizer: ObsNormalizer | None) -> list[_Panel]:
    """The stages of one part of the observation."""
    prefix, k = f"{name}: " if name else "", config.frame_stack
    obs, stack = shown.obs[name][0], torch.unflatten(shown.stacks[name][0], 0, (k, -1))
    if spec.kind == "image":
        panels = [_Panel(f"{prefix}observation\n{'x'.join(map(str, spec.shape))}", _picture(obs))]
        return panels + [_Panel(f"{prefix}stack, {j + 1} of {k}\n{'newest' if j + 1 == k else 'older'}",
                                _picture(frame)) for j, frame in enumerate(stack) if k > 1]
    panels = [_Panel(f"{prefix}observation, raw\n{spec.shape[0]} values", obs.numpy())]
    if k > 1:
        panels.append(_Panel(f"{prefix}stack of {k}, raw\noldest first", stack.flatten().numpy()))
    if normalizer is None:
        panels[-1] = replace(panels[-1], title=f"{panels[-1].title}; obs_norm is off")
    else:
        panels.append(_Panel(f"{prefix}normalised{', stacked' * (k > 1)}\nby {_STEPS} random steps",
                             normalizer(stack).flatten().numpy()))
    return panels


def _picture(frame: Tensor) -> NDArray[Any]:
    """[C, H, W] as matplotlib shows it: gray, or three colours."""
    image = frame.numpy()
    return image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)


def _parts(envs: Environments) -> Mapping[str, ArraySpec]:
    """The parts of an observation by name; '' for one that is alone."""
    return {"": envs.spec.obs} if isinstance(envs.spec.obs, ArraySpec) else envs.spec.obs


def _split(obs: Obs) -> dict[str, Tensor]:
    return {"": obs} if isinstance(obs, Tensor) else dict(obs)


def _random_actions(rng: np.random.Generator, spec: ActionSpec, mask: NDArray[Any] | None) -> NDArray[Any]:
    """One action [1, ...] of those that the mask allows."""
    if spec.kind == "box":
        low, high = (np.nan_to_num(bound, posinf=1.0, neginf=-1.0) for bound in (spec.low, spec.high))
        return rng.uniform(low, high).astype(np.float32)[None]
    allowed = np.ones(sum(spec.sizes), bool) if mask is None else mask[0]
    chosen = [rng.choice(np.flatnonzero(part)) for part in np.split(allowed, np.cumsum(spec.sizes)[:-1])]
    return np.array(chosen, np.int64).reshape(1, *spec.shape)


def _draw(panels: list[_Panel], title: str) -> Figure:
    columns = min(len(panels), 5)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.9 * columns, 3.6 * rows + 0.8), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.set_title(panel.title, fontsize=9)
        if panel.picture.ndim == 1:
            _draw_values(axes, panel.picture)
        else:
            axes.imshow(panel.picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
    return figure


def _draw_values(axes: Axes, values: NDArray[Any]) -> None:
    """A bar for each value, and its number where there is room for it."""
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
