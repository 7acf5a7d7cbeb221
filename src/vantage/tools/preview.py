"""One picture of a game as the environment shows it and as the network sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vantage._host.extras import needs
from vantage.agents.evaluation_settings import torch_threads
from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.envs.vector_env import Environments
from vantage.learning.collect import Position, reset_envs, step_envs
from vantage.models.build import make_model
from vantage.runs.files import whole_file
from vantage.types import map_parts

with needs("plot"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STREAM = 4
"""Streams 0 to 3 belong to training, evaluations and `play`."""
_STEPS = 60

Panel = tuple[str, NDArray[np.generic]]
"""Title, and an image [H, W] or [H, W, 3], or values [N]."""


def preview(config: Config, output: Path) -> Path:
    """Draw the screen, the observation and the network's input into `output` (png, svg or pdf).

    The picture shows the step furthest into a game among 60 of an untrained policy. Normalisers
    have seen only these.
    """
    game = make_single(config.env, seed=config.run.seed, stream=STREAM, draws=None,
                       num_envs=config.envs_per_process)
    with (whole_file(output, ".png", ".svg", ".pdf") as path, torch_threads(1),
          torch.random.fork_rng(devices=[]), closing(game) as envs):
        torch.manual_seed(config.run.seed)
        step, rows = max(look(config, envs), key=itemgetter(0))
        _figure(f"{config.env.id} at step {step}", rows).savefig(path, dpi=80)
    return output


@torch.no_grad()
def look(config: Config, envs: Environments) -> Iterator[tuple[int, list[list[Panel]]]]:
    """Steps of an untrained policy: the number in the game, and a row of panels for each part."""
    device = torch.device("cpu")
    first = reset_envs(envs)
    model = make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic).eval()
    inputs = [_InputOf(torso) for torso in model.actor.torsos]
    position = Position.after(first, model.initial_state(envs.num_envs), device)
    step = 0
    for _ in range(_STEPS):
        model.observe(map_parts(lambda part: part[None], position.obs), "vector", "image")
        params, state = model.step(position.obs, position.is_first, position.state,
                                   position.action_mask)
        obs = position.obs
        if isinstance(obs, Tensor):
            obs = {"observation": obs}
        rows = [[_raw_panel(name, obs[name][0], part.unit)]
                for name, part in zip(sorted(obs), envs.spec.parts, strict=True)]
        # Acting has no input for parts that only the critic sees; they come last.
        for group, network_input in zip(model.groups, inputs, strict=False):
            places = (*group.vectors, *group.one_hots)
            rows[min(places)] += _input_panels(network_input.value, config.policy.frame_stack,
                                               num_parts=len(places))
        if envs.draws:
            rows[0].insert(0, ("screen", envs.render().copy()))
        yield step, rows
        actions = model.distribution.sample(params, torch.default_generator)
        position = Position.after(step_envs(envs, actions, model, position.obs), state, device)
        step = 0 if position.is_first[0] else step + 1


class _InputOf:
    """The latest input of a module for the first environment, as floats."""

    value: Tensor

    def __init__(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.value = args[0][0].float()


def _raw_panel(name: str, obs: Tensor, unit: float) -> Panel:
    """The raw observation: an image [C, H, W] up to `unit`, [N], or a set [N, F + 1]."""
    title = f"{name}\n{'x'.join(map(str, obs.shape))}"
    if obs.dim() < 3:
        return title, obs.flatten().clone().numpy()
    if unit != 255 or obs.is_floating_point():
        obs = obs / unit
    return title, _image(obs.clone())


def _input_panels(network_input: Tensor, frame_stack: int, *, num_parts: int) -> list[Panel]:
    """An input of the network: a stack [k*C, H, W], or [k*N] of `num_parts` parts side by side."""
    if network_input.dim() < 3:
        title = "network input"
        if num_parts > 1:
            title += f" of {num_parts} parts"
        if frame_stack > 1:
            title += ", oldest first"
        return [(title, network_input.flatten().clone().numpy())]
    pixels = network_input / 255  # as torsos do
    low = min(0.0, float(pixels.min()))
    high = max(1.0, float(pixels.max()))
    frames = torch.unflatten((pixels - low) / (high - low), 0, (frame_stack, -1))
    return [(f"network input, {i} of {frame_stack}\nblack {low:.3g}, white {high:.3g}",
             _image(frame)) for i, frame in enumerate(frames, 1)]


def _image(image: Tensor) -> NDArray[np.generic]:
    """Gray [H, W] or RGB [H, W, 3] of the first channels of `image` [C, H, W]."""
    shown = image[0] if len(image) < 3 else image[:3].permute(1, 2, 0)
    return shown.numpy()


def _figure(title: str, rows: list[list[Panel]]) -> Figure:
    columns = max(map(len, rows))
    figure = Figure(figsize=(2.6 * max(columns, 2), 3.2 * len(rows) + 0.4), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for places, row in zip(grid, rows, strict=True):
        for place, panel in zip(places, row, strict=False):
            _draw(place, *panel)
        for place in places[len(row):]:
            place.set_axis_off()
    return figure


def _draw(axes: Axes, title: str, values: NDArray[np.generic]) -> None:
    axes.set_title(title, fontsize=9)
    if values.ndim > 1:
        white = 255 if values.dtype == np.uint8 else 1
        axes.imshow(values, cmap="gray", vmin=0, vmax=white, interpolation="nearest")
        axes.set_axis_off()
        return
    bars = axes.barh(range(len(values)), values)
    if len(values) <= 16:
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axes.margins(x=0.3)
    axes.invert_yaxis()
