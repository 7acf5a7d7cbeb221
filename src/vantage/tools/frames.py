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
"""Pixels of the longer side, approximately; small screens are enlarged by a whole number."""
_STRIP_HEIGHT = 34
_MIN_WIDTH = 400
_FONT_SIZE = 20
_MIN_FONT_SIZE = 8
_MARGIN = 12
_BACKGROUND = (24, 24, 27)
_TEXT = (235, 235, 235)
_font = lru_cache(ImageFont.load_default)


def draw_frame(screen: Picture, *words: str) -> Picture:
    """`screen` above `words` in columns of equal width: RGB [H, W, 3], H and W even for video."""
    zoom = max(1, round(_LONG_SIDE / max(screen.shape[:2])))
    picture = Image.fromarray(screen.repeat(zoom, 0).repeat(zoom, 1))
    height = picture.height + _STRIP_HEIGHT
    width = max(_MIN_WIDTH, picture.width)
    frame = Image.new("RGB", (width + width % 2, height + height % 2), _BACKGROUND)
    frame.paste(picture, ((width - picture.width) // 2, 0))

    draw = ImageDraw.Draw(frame)
    column = (width - 2 * _MARGIN) / len(words)
    longest = max(draw.textlength(word, _font(_FONT_SIZE)) for word in words)
    fitting_size = int(_FONT_SIZE * (column - 8) / longest)
    font = _font(max(_MIN_FONT_SIZE, min(_FONT_SIZE, fitting_size)))
    middle = height - _STRIP_HEIGHT // 2
    for i, word in enumerate(words):
        draw.text((_MARGIN + i * column, middle), word, _TEXT, font, anchor="lm")
    return np.asarray(frame)


class SameSize:
    """Resizes screens to the size of the first one: a video has one size."""

    def __init__(self) -> None:
        self._size: tuple[int, int] | None = None
        self._warned = False

    def resize(self, screen: Picture) -> Picture:
        """`screen` in the size of the first one; a warning the first time that this changes it."""
        size = (screen.shape[1], screen.shape[0])
        if self._size is None:
            self._size = size
        if size == self._size:
            return screen
        if not self._warned:
            self._warned = True
            log.warning("render() changed its size from %dx%d to %dx%d; such frames are resized to "
                        "the first, as a video has one size", *self._size, *size)
        return np.asarray(Image.fromarray(screen).resize(self._size))


def step_words(step: GameStep) -> tuple[str, str, str]:
    """Score, value and number of a step of a policy's game."""
    return f"score {score_text(step.score)}", f"value {step.value:.2f}", f"step {step.length:,}"


def score_text(score: float) -> str:
    """A score, without decimals if it is whole."""
    is_whole = math.isfinite(score) and score == int(score)
    return f"{score:,.0f}" if is_whole else f"{score:,.1f}"
