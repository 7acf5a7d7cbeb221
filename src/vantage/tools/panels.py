"""Pictures and values side by side in one figure. `preview` supplies them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

_MOST_COLUMNS = 5
_WIDTH, _TALLEST, _TITLE = 2.9, 3.8, 0.5
"""Inches: width and maximum height of a panel, height of its title."""
_MOST_BARS, _BAR = 40, 0.14
"""Above this number of values, draw a line instead of bars. Height of a bar in inches; its number needs 0.11."""
_CHARACTERS = 13
"""Characters of the caption per inch."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture or list of values under its title."""

    title: str
    picture: NDArray[Any]
    """uint8 [H, W] gray or [H, W, 3] colour, or [N] values."""


def draw_panels(groups: Sequence[Sequence[Panel]], title: str, caption: str) -> Figure:
    """The figure, with each group in a row, or in several rows of equal length if it is long."""
    rows = [row for group in groups for row in _cut(group)]
    columns = max(map(len, rows))
    width = _WIDTH * max(columns, 2)
    lines = textwrap.wrap(caption, int(width * _CHARACTERS))
    heights = [max(map(_height, row)) + _TITLE for row in rows]
    figure = Figure(figsize=(width, sum(heights) + 0.3 + 0.17 * len(lines)), layout="constrained")
    figure.suptitle("\n".join([title, *lines]), fontsize=10)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            axes = figure.add_subplot(grid[i, j])
            axes.set_title(panel.title, fontsize=9)
            if panel.picture.ndim == 1:
                _draw_values(axes, panel.picture)
            else:
                axes.imshow(panel.picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
    return figure


def _cut(group: Sequence[Panel]) -> list[Sequence[Panel]]:
    length = -(-len(group) // -(-len(group) // _MOST_COLUMNS)) if group else 1
    return [group[i:i + length] for i in range(0, len(group), length)]


def _height(panel: Panel) -> float:
    """The height of a panel without its title, in inches."""
    size = len(panel.picture)
    if panel.picture.ndim > 1:
        return min(_TALLEST, _WIDTH * size / len(panel.picture[0]))
    return max(0.8 * _WIDTH, _BAR * size) if size <= _MOST_BARS else _TALLEST


def _draw_values(axes: Axes, values: NDArray[Any]) -> None:
    """A bar and a number for each value, or a line if there are many."""
    index = np.arange(len(values))
    axes.axvline(0, color="0.6", linewidth=0.8)
    if len(values) > _MOST_BARS:
        axes.plot(values, index, color="#0072B2", linewidth=0.8)
    else:
        axes.barh(index, values, color="#0072B2", height=0.6)
        axes.set_yticks(index)
        for i, value in enumerate(values):
            axes.text(0.98, i, f"{value:.3g}", ha="right", va="center", fontsize=8,
                      transform=axes.get_yaxis_transform())
        reach = max(1.0, float(np.abs(values).max()))
        axes.set_xlim(-1.1 * reach, 1.8 * reach)  # room for the numbers
    axes.invert_yaxis()
    axes.tick_params(labelsize=8)
    axes.set_ylabel("index", fontsize=8)
