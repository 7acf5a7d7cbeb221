"""Pictures on the way from a screen to an image that a policy sees, each with its name. Nothing is played here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from vantage.envs.interface import Array
from vantage.envs.options import Margins
from vantage.envs.spaces import make_observer
from vantage.envs.wrappers import FrameSkip, Shown, luma

Stage = tuple[str, Array]
"""Two lines of title, and the picture: RGB [H, W, 3] or gray [H, W]."""


_MOST_FRAMES = 4
"""That are shown of a step."""


def frames_of_a_step(name: str, frames: Sequence[Array], played: int) -> list[Stage]:
    """The last frames of a step of `played`, or the one after a reset, where `played` is 0."""
    frames = frames[-_MOST_FRAMES:]
    numbers = range(played - len(frames) + 1, played + 1)
    return [(f"{name}{f', frame {number} of {played}' if played else ' after a reset'}\n{_size(frame)}", frame)
            for number, frame in zip(numbers, frames, strict=True)]


def maximum_of(frames: Sequence[Array], played: int) -> list[Stage]:
    """The maximum over the last frames of a step of `played`; none where there is one frame."""
    if len(frames) < 2:
        return []
    return [(f"maximum of frames\n{played - len(frames) + 1} to {played} of {played}", np.maximum.reduce(frames))]


def for_people(picture: Array) -> Stage:
    """What an environment draws for those who watch it."""
    return f"rendered for people\n{_size(picture)}", picture


def grayed(picture: Array) -> Stage:
    """A picture that was made gray."""
    return f"gray\n{_size(picture)}", picture


def cropped(picture: Array, margins: Margins) -> list[Stage]:
    """The picture without its margins; none where these are 0."""
    top, bottom, left, right = margins
    cut = picture[top:picture.shape[0] - bottom, left:picture.shape[1] - right]
    sides = [f"{pixels} {side}" for side, pixels in zip(("top", "bottom", "left", "right"), margins, strict=True)
             if pixels]
    return [(f"crop to {cut.shape[0]}x{cut.shape[1]}\noff: {', '.join(sides)}", cut)] if sides else []


def stages_of(env: gym.Env[Any, Any]) -> list[Stage]:
    """What the options make of the images of an environment under `apply_options`, up to what is resized."""
    skip = next((layer for layer in _layers(env) if isinstance(layer, FrameSkip)), None)
    shown = next((layer for layer in _layers(env) if isinstance(layer, Shown)), None)
    found: list[Stage] = []
    if skip is not None and skip.pooled > 1:
        convert = make_observer(skip.observation_space).convert
        images = [_picture(convert(frame)) for frame in skip.frames]
        found = frames_of_a_step("image", images, skip.played) + maximum_of(images, skip.played)
    if shown is not None:
        image = _picture(shown.image)
        found = found or [(f"image\n{_size(image)}", image)]
        if shown.gray:
            image = luma(image)
            found.append(grayed(image))
        found += cropped(image, shown.margins)
    return found


def _layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _picture(image: Array) -> Array:
    """[C, H, W] as it is drawn; a fourth channel is left out."""
    return image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)


def _size(picture: Array) -> str:
    return ("RGB " if picture.ndim == 3 else "") + "x".join(map(str, picture.shape[:2]))
