"""Conversion of the result of `render` to a picture for screens and videos."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vantage.envs.descriptions import shown
from vantage.envs.other_interfaces import metadata_of
from vantage.envs.outcomes import OutcomeError

DEFAULT_FPS = 30.0  # as in gymnasium.utils.play, if an environment's metadata has no render_fps
MOST_FPS = 1000.0
"""Highest plausible frame rate: no video or screen shows more."""
_REMEDY = ("return a picture of uint8 [height, width, 3] from render() where render_mode is "
           "'rgb_array'")


def as_picture(rendered: Any) -> NDArray[np.uint8]:
    """`rendered` as uint8 RGB [H, W, 3]; OutcomeError for anything but a picture.

    Accepts gray pictures, pictures with an alpha channel, floats from 0 to 1, and a list of frames,
    which stands for its last one.
    """
    if isinstance(rendered, list | tuple) and rendered and np.ndim(rendered[-1]) in (2, 3):
        rendered = rendered[-1]
    try:
        array = np.asarray(rendered)
    except Exception:
        array = np.empty(0)
    if array.ndim == 2:
        array = array[..., None]
    is_picture = array.ndim == 3 and 0 not in array.shape and array.shape[2] in (1, 3, 4)
    if not is_picture or array.dtype.kind not in "fiub":
        raise OutcomeError(f"render() returned {shown(rendered)}; {_REMEDY}")
    colours = _bytes(array[..., :3])
    return np.repeat(colours, 3, axis=2) if colours.shape[2] == 1 else colours


def frames_per_second(env: Any) -> float:
    """`render_fps` of an environment's metadata; DEFAULT_FPS if it is missing or out of range."""
    try:
        fps = float(metadata_of(env).get("render_fps") or DEFAULT_FPS)
    except (TypeError, ValueError):
        return DEFAULT_FPS
    return fps if math.isfinite(fps) and 0 < fps <= MOST_FPS else DEFAULT_FPS


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    low = array.min()
    high = array.max()
    if not (low >= 0 and high <= 255):  # also where it is not a number
        raise OutcomeError(f"render() returned numbers from {low:g} to {high:g}; {_REMEDY}")
    scale = 255 if array.dtype.kind == "f" and high <= 1 else 1
    colours: NDArray[np.uint8] = np.rint(array * scale).astype(np.uint8)
    return colours
