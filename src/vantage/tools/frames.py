"""One frame as a person sees it: the screen enlarged, and under it a strip with what the game came to so far."""

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
"""Small screens are enlarged by the whole number that brings their longer side nearest to this many pixels."""
_STRIP, _LEAST_WIDTH, _FONT_SIZE, _MARGIN = 34, 400, 20, 12
_BACKGROUND, _TEXT = (24, 24, 27), (235, 235, 235)


class Canvas:
    """Draws frames of one size: that of the first screen, enlarged, and the strip. Width and height are even, as video
    wants them."""

    def __init__(self, screen: Picture) -> None:
        height, width = screen.shape[:2]
        self._zoom = max(1, round(_LONG_SIDE / max(height, width)))
        self._screen_size = (width * self._zoom, height * self._zoom)
        self.size = (_even(max(_LEAST_WIDTH, self._screen_size[0])), _even(self._screen_size[1] + _STRIP))

    def draw(self, screen: Picture, words: Sequence[str]) -> Picture:
        """RGB [H, W, 3] of `screen` over `words`. A screen of another size than the first is fitted into its place."""
        frame = Image.new("RGB", self.size, _BACKGROUND)
        picture = Image.fromarray(np.ascontiguousarray(screen))
        room_width, room_height = self.size[0], self.size[1] - _STRIP
        factor = min(self._screen_size[0] / picture.width, self._screen_size[1] / picture.height)
        size = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
        picture = picture.resize(size, Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX)
        frame.paste(picture, ((room_width - size[0]) // 2, (room_height - size[1]) // 2))
        self._write(ImageDraw.Draw(frame), words)
        return np.asarray(frame)

    def _write(self, draw: ImageDraw.ImageDraw, words: Sequence[str]) -> None:
        """The words in columns of equal width, smaller where they would not fit."""
        column = (self.size[0] - 2 * _MARGIN) / len(words)
        size = _FONT_SIZE
        while size > 8 and max(draw.textlength(word, _font(size)) for word in words) > column - 8:
            size -= 1
        middle = self.size[1] - _STRIP // 2
        for i, word in enumerate(words):
            draw.text((_MARGIN + i * column, middle), word, _TEXT, _font(size), anchor="lm")


def game_words(score: float, value: float | None, *rest: str) -> list[str]:
    """What the strip says of a game."""
    return [f"score {number(score)}", *([] if value is None else [f"value {value:.2f}"]), *rest]


def number(score: float) -> str:
    """A score without decimals where it is whole."""
    return f"{score:,.0f}" if math.isfinite(score) and score == int(score) else f"{score:,.1f}"


@lru_cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _even(length: int) -> int:
    return length + length % 2
