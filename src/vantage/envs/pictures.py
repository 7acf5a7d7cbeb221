"""For people: the picture, speed and keys of a single environment, and the stages of its images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from vantage.envs.ids import missing_library
from vantage.envs.interface import Array
from vantage.envs.wrappers import FrameSkip, Resized, cut, luma
from vantage.errors import ConfigError, EnvError

DEFAULT_FPS = 30.0
"""As in gymnasium.utils.play, if an environment's metadata has no render_fps."""

Stage = tuple[str, Array]
"""Two lines of title, and the picture: RGB [H, W, 3] or gray [H, W]."""


def render(env: gym.Env[Any, Any], name: str, place: str) -> Array:
    """uint8 RGB [H, W, 3]; EnvError with the `place` if the environment returns none."""
    try:
        picture = np.asarray(env.render())
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env={name!r}: {missing_library(error)}") from None
    except (Exception, SystemExit) as error:
        raise EnvError(f"{place}: render() raised {type(error).__name__}: {error}") from error
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise EnvError(f"{place}: render() returned {picture.dtype} of shape {picture.shape}, not a picture of "
                       "uint8 [height, width, 3]")
    return picture


def fps_of(env: gym.Env[Any, Any]) -> float:
    return float(env.metadata.get("render_fps") or DEFAULT_FPS)


def keys_of(env: gym.Env[Any, Any]) -> Mapping[Any, Any] | None:
    keys = getattr(env.unwrapped, "get_keys_to_action", None)
    return None if keys is None else keys()


def for_people(picture: Array) -> Stage:
    return f"rendered for people\n{_size(picture)}", picture


def stages_of(env: gym.Env[Any, Any]) -> list[Stage]:
    """The images within `Resized`, up to the one that it resizes; none without that wrapper."""
    skip = next((layer for layer in _layers(env) if isinstance(layer, FrameSkip)), None)
    resized = next((layer for layer in _layers(env) if isinstance(layer, Resized)), None)
    if resized is None:
        return []
    image = resized.image[0] if len(resized.image) == 1 else resized.image[:3].transpose(1, 2, 0)
    pooled = 1 if skip is None else min(skip.pooled, skip.played)
    stages = [(f"maximum of {pooled} frames" if pooled > 1 else "image", image)]
    if resized.gray:
        stages.append(("gray", luma(image)))
    stages = [(f"{title}\n{_size(picture)}", picture) for title, picture in stages]
    if any(resized.margins):
        image = cut(stages[-1][1], resized.margins)
        sides = zip(resized.margins, ("top", "bottom", "left", "right"), strict=True)
        off = ", ".join(f"{pixels} {side}" for pixels, side in sides if pixels)
        stages.append((f"crop to {image.shape[0]}x{image.shape[1]}\noff: {off}", image))
    return stages


def _layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _size(picture: Array) -> str:
    return ("RGB " if picture.ndim == 3 else "") + "x".join(map(str, picture.shape[:2]))
