"""One picture of a game as the environment shows it and as the network sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vantage._host.extras import needs
from vantage.agents.evaluation_settings import torch_threads
from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.envs.vector_env import Environments
from vantage.learning.collect import Position, reset_envs, step_envs
from vantage.models.actor_critic import make_model
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
    """Draw into `output` (png, svg or pdf) the screen, the observation, and the input of the network's first layers.

    It is the step furthest into a game among 60 of an untrained policy, which are all that normalisers have seen.
    """
    with (whole_file(output, ".png", ".svg", ".pdf") as path, torch_threads(1),
          torch.random.fork_rng(devices=[]),
          closing(make_single(config.env, seed=config.run.seed, stream=STREAM, draws=None,
                              num_envs=config.envs_per_process)) as envs):
        torch.manual_seed(config.run.seed)
        step, rows = max(look(config, envs), key=itemgetter(0))
        columns = max(map(len, rows))
        figure = Figure(figsize=(2.6 * max(columns, 2), 3.2 * len(rows) + 0.4),
                        layout="constrained")
        figure.suptitle(f"{config.env.id} at step {step}")
        for axes, row in zip(figure.subplots(len(rows), columns, squeeze=False), rows, strict=True):
            for place, panel in zip(axes, row, strict=False):
                _draw(place, *panel)
            for place in axes[len(row):]:
                place.set_axis_off()
        figure.savefig(path, dpi=80)
    return output


@torch.no_grad()
def look(config: Config, envs: Environments) -> Iterator[tuple[int, list[list[Panel]]]]:
    """Each step of an untrained policy: its number in the game, and the panels of each part of the observation."""
    first, inputs = reset_envs(envs), dict[int, Tensor]()
    model = make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic).eval()
    for i, torso in enumerate(model.actor.torsos):
        torso.register_forward_pre_hook(lambda _, args, i=i: inputs.update({i: args[0][0].float()}))
    position, step = Position.after(first, model.initial_state(envs.num_envs),
                                    torch.device("cpu")), 0
    for _ in range(_STEPS):
        shown = map_parts(lambda part: part[None], position.obs)
        model.observe(shown, "vector", "image")
        params, state = model.step(position.obs, position.is_first, position.state,
                                   position.action_mask)
        obs = {"observation": position.obs} if isinstance(position.obs, Tensor) else position.obs
        rows = [_panels(name, obs[name][0], part.unit, inputs[i], config.policy.frame_stack)
                for i, (name, part) in enumerate(zip(sorted(obs), envs.spec.parts, strict=True))]
        if envs.draws:
            rows[0].insert(0, ("screen", envs.render().copy()))
        yield step, rows
        actions = model.distribution.sample(params, torch.default_generator)
        position = Position.after(step_envs(envs, actions), state, torch.device("cpu"))
        step = 0 if position.is_first[0] else step + 1


def _panels(name: str, obs: Tensor, unit: float, inputs: Tensor, frame_stack: int) -> list[Panel]:
    """The raw observation [C, H, W] up to `unit`, or [N]; then its stack [k*C, H, W] or [k*N] as networks see it."""
    obs, title = obs.clone(), f"{name}\n{'x'.join(map(str, obs.shape))}"
    if obs.dim() == 1:
        return [(title, obs.numpy()),
                ("network input" + ", oldest first" * (frame_stack > 1), inputs.clone().numpy())]
    if unit != 255 or obs.is_floating_point():
        obs = obs / unit
    inputs = inputs / 255  # as torsos do
    low, high = min(0.0, float(inputs.min())), max(1.0, float(inputs.max()))
    frames = torch.unflatten((inputs - low) / (high - low), 0, (frame_stack, -1))
    titles = [title, *(f"network input, {i} of {frame_stack}\nblack {low:.3g}, white {high:.3g}"
                       for i in range(1, frame_stack + 1))]
    # Gray [H, W] or RGB [H, W, 3].
    return [(title, (image[0] if len(image) < 3 else image[:3].permute(1, 2, 0)).numpy())
            for title, image in zip(titles, [obs, *frames], strict=True)]


def _draw(axes: Axes, title: str, values: NDArray[np.generic]) -> None:
    axes.set_title(title, fontsize=9)
    if values.ndim > 1:
        axes.imshow(values, cmap="gray", vmin=0, vmax=255 if values.dtype == np.uint8 else 1,
                    interpolation="nearest")
        axes.set_axis_off()
        return
    bars = axes.barh(range(len(values)), values)
    if len(values) <= 16:
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axes.margins(x=0.3)
    axes.invert_yaxis()
