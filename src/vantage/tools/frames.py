"""Frames of a game for people: its enlarged screen above a strip with the score, the value estimate and the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from vantage.envs import Environments
from vantage.learning.play import Moment, moments
from vantage.models.actor_critic import ActorCritic

Picture = NDArray[np.uint8]

_LONG_SIDE = 600
"""Small screens are enlarged by the whole number that brings their longer side closest to this many pixels."""
_STRIP, _MIN_WIDTH, _FONT_SIZE, _MARGIN = 34, 400, 20, 12
_BACKGROUND, _TEXT = (24, 24, 27), (235, 235, 235)
_font = lru_cache(ImageFont.load_default)


class Canvas:
    """Frames of one size, which fits the first screen. Its sides are even, as video needs."""

    def __init__(self, screen: Picture) -> None:
        height, width = screen.shape[:2]
        zoom = max(1, round(_LONG_SIDE / max(height, width)))
        self._screen = (width * zoom, height * zoom)
        self.size = (_even(max(_MIN_WIDTH, width * zoom)), _even(height * zoom + _STRIP))

    def draw(self, screen: Picture, words: Sequence[str]) -> Picture:
        """RGB [H, W, 3] of `screen`, scaled to fit, above `words` in columns of equal width."""
        frame = Image.new("RGB", self.size, _BACKGROUND)
        picture = ImageOps.contain(Image.fromarray(screen), self._screen, Image.Resampling.NEAREST)
        frame.paste(picture, ((self.size[0] - picture.width) // 2, (self.size[1] - _STRIP - picture.height) // 2))
        draw, column = ImageDraw.Draw(frame), (self.size[0] - 2 * _MARGIN) / len(words)
        widest = max(draw.textlength(word, _font(_FONT_SIZE)) for word in words)
        font = _font(max(8, min(_FONT_SIZE, int(_FONT_SIZE * (column - 8) / widest))))
        for i, word in enumerate(words):
            draw.text((_MARGIN + i * column, self.size[1] - _STRIP // 2), word, _TEXT, font, anchor="lm")
        return np.asarray(frame)


def shown_games(model: ActorCritic, envs: Environments, note: Callable[[], str], *, deterministic: bool,
                generator: torch.Generator) -> Iterator[tuple[Moment, Picture]]:
    """Every step of the games of `moments`, drawn; `note` returns the last words of the strip."""
    canvas = None
    for moment in moments(model, envs, deterministic=deterministic, generator=generator):
        screen = envs.render()
        canvas = canvas or Canvas(screen)
        yield moment, canvas.draw(screen, [f"score {number(moment.score)}", f"value {moment.value:.2f}",
                                           f"step {moment.length:,}", note()])


def number(score: float) -> str:
    """A score, without decimals if it is whole."""
    return f"{score:,.0f}" if math.isfinite(score) and score == int(score) else f"{score:,.1f}"


def _even(length: int) -> int:
    return length + length % 2
