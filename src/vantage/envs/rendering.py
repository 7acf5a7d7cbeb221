"""For people: pictures of a single environment, their speed, and the stages of its images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation

from vantage.envs.interface import Array
from vantage.envs.options import FrameSkip, luma
from vantage.errors import EnvError

DEFAULT_FPS = 30.0
"""As in gymnasium.utils.play, if an environment's metadata has no render_fps."""

Stage = tuple[str, Array]
"""Two lines of title, and the picture: RGB [H, W, 3] or gray [H, W]."""


def render(env: gym.Env[Any, Any], place: str) -> Array:
    """uint8 RGB [H, W, 3]; EnvError with the `place` if the environment returns none."""
    try:
        picture = np.asarray(env.render())
    except (Exception, SystemExit) as error:
        raise EnvError(f"{place}: render() raised {type(error).__name__}: {error}") from error
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise EnvError(f"{place}: render() returned {picture.dtype} of shape {picture.shape}, not a picture of "
                       "uint8 [height, width, 3]")
    return picture


def stages_of(env: gym.Env[Any, Any], picture: Array | None) -> list[Stage]:
    """The `picture` for people, then the images of `show_images`, up to the one that it resizes."""
    stages = [] if picture is None else [("rendered for people", picture)]
    layers: list[Any] = []
    while isinstance(env, gym.Wrapper):
        layers.insert(0, env)
        env = env.env
    kinds = [type(layer) for layer in layers]
    if FrameSkip in kinds and TransformObservation in kinds:
        skip, *layers = layers[kinds.index(FrameSkip):]
        image, pooled = skip.latest, min(skip.pooled, skip.played)
        stages.append((f"maximum of {pooled} frames" if pooled > 1 else "image", image))
        for layer in layers:
            if type(layer) is TransformObservation:
                image = layer.func(image)
                stages.append(("gray" if layer.func is luma else "crop to {}x{}".format(*image.shape), image))
    return [(f"{title}\n{'RGB ' * (image.ndim == 3)}{'x'.join(map(str, image.shape[:2]))}", image)
            for title, image in stages]
