"""Frames of a shown game: its enlarged screen above a strip with the score, the value estimate and the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]

_LONG_SIDE = 600
"""Small screens are enlarged by the whole number that brings their longer side closest to this many pixels."""
_STRIP, _MIN_WIDTH, _FONT_SIZE, _MARGIN = 34, 400, 20, 12
_BACKGROUND, _TEXT = (24, 24, 27), (235, 235, 235)


class Canvas:
    """Draws frames of one size: the first screen, enlarged, above a strip of text. Video needs even sizes."""

    def __init__(self, screen: Picture) -> None:
        height, width = screen.shape[:2]
        zoom = max(1, round(_LONG_SIDE / max(height, width)))
        self._width, self._height = width * zoom, height * zoom
        self.size = (_even(max(_MIN_WIDTH, self._width)), _even(self._height + _STRIP))

    def draw(self, screen: Picture, words: Sequence[str]) -> Picture:
        """RGB [H, W, 3] of `screen` above `words`. A screen of another size than the first is scaled to fit."""
        frame = Image.new("RGB", self.size, _BACKGROUND)
        picture = Image.fromarray(np.ascontiguousarray(screen))
        factor = min(self._width / picture.width, self._height / picture.height)
        size = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
        picture = picture.resize(size, Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX)
        frame.paste(picture, ((self.size[0] - size[0]) // 2, (self.size[1] - _STRIP - size[1]) // 2))
        self._write(ImageDraw.Draw(frame), words)
        return np.asarray(frame)

    def _write(self, draw: ImageDraw.ImageDraw, words: Sequence[str]) -> None:
        """The words in columns of equal width, in a smaller font if they would not fit."""
        column = (self.size[0] - 2 * _MARGIN) / len(words)
        size = _FONT_SIZE
        while size > 8 and max(draw.textlength(word, _font(size)) for word in words) > column - 8:
            size -= 1
        for i, word in enumerate(words):
            draw.text((_MARGIN + i * column, self.size[1] - _STRIP // 2), word, _TEXT, _font(size), anchor="lm")


def game_words(score: float, value: float | None, *rest: str) -> list[str]:
    """The text under a picture."""
    return [f"score {number(score)}", *([] if value is None else [f"value {value:.2f}"]), *rest]


def number(score: float) -> str:
    """A score, without decimals if it is whole."""
    return f"{score:,.0f}" if math.isfinite(score) and score == int(score) else f"{score:,.1f}"


@lru_cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _even(length: int) -> int:
    return length + length % 2
