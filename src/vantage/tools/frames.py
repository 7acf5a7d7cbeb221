"""Frames of a game for people: its enlarged screen above a strip of words."""

from __future__ import annotations

import logging
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vantage._host.extras import needs
from vantage.learning.evaluation import GameStep

with needs("video"):
    from PIL import Image, ImageDraw, ImageFont

log = logging.getLogger(__name__)

Picture = NDArray[np.uint8]

_LONG_SIDE = 600
"""Small screens are enlarged by the whole number that brings their longer side closest to this many
pixels."""
_STRIP, _MIN_WIDTH, _FONT_SIZE, _MARGIN = 34, 400, 20, 12
_BACKGROUND, _TEXT = (24, 24, 27), (235, 235, 235)
_font = lru_cache(ImageFont.load_default)


def draw_frame(screen: Picture, *words: str) -> Picture:
    """RGB [H, W, 3] of `screen` above `words` in columns of equal width.

    H and W are even, as video needs.
    """
    height, width = screen.shape[:2]
    zoom = max(1, round(_LONG_SIDE / max(height, width)))
    height, width = height * zoom + _STRIP, max(_MIN_WIDTH, width * zoom)
    frame = Image.new("RGB", (width + width % 2, height + height % 2), _BACKGROUND)
    picture = Image.fromarray(screen.repeat(zoom, 0).repeat(zoom, 1))
    frame.paste(picture, ((width - picture.width) // 2, 0))
    draw, column = ImageDraw.Draw(frame), (width - 2 * _MARGIN) / len(words)
    widest = max(draw.textlength(word, _font(_FONT_SIZE)) for word in words)
    font = _font(max(8, min(_FONT_SIZE, int(_FONT_SIZE * (column - 8) / widest))))
    for i, word in enumerate(words):
        draw.text((_MARGIN + i * column, height - _STRIP // 2), word, _TEXT, font, anchor="lm")
    return np.asarray(frame)


class Screens:
    """The screens of a video: all of the size of the first, as its format requires."""

    def __init__(self) -> None:
        self._size: tuple[int, int] | None = None
        self._warned = False

    def fit(self, screen: Picture) -> Picture:
        """`screen`, resized if its size is not that of the first; the first time, a warning says so."""
        size = (screen.shape[1], screen.shape[0])
        self._size = self._size or size
        if size == self._size:
            return screen
        if not self._warned:
            self._warned = True
            log.warning("render() changed its size from %dx%d to %dx%d; such frames are resized to "
                        "the first, as a video has one size", *self._size, *size)
        return np.asarray(Image.fromarray(screen).resize(self._size))


def describe(moment: GameStep) -> tuple[str, str, str]:
    """The words for a step of a policy's game."""
    return f"score {number(moment.score)}", f"value {moment.value:.2f}", f"step {moment.length:,}"


def number(score: float) -> str:
    """A score, without decimals if it is whole."""
    return f"{score:,.0f}" if math.isfinite(score) and score == int(score) else f"{score:,.1f}"
