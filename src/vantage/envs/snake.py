"""Snake, alone or several on one board, as images of coloured squares. Knows nothing of Vantage's training.

The game of Gym-Snake's snake-v0 and snake-plural-v0, with seeds and Gymnasium's interface.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise, product
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vantage.errors import ConfigError

Image = NDArray[np.uint8]
Cell = tuple[int, int]
"""Row and column."""

UP, RIGHT, DOWN, LEFT = range(4)
MOVES: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))

SPACE, BODY, HEAD, FOOD = range(4)
# Gym-Snake's: a body is all but black, so that each of the four has a channel value of its own.
COLOURS = np.array([(0, 255, 0), (1, 0, 0), (255, 0, 0), (0, 0, 255)], np.uint8)


class Body:
    """A living snake: its cells from the tail to the head, and its direction."""

    def __init__(self, cells: list[Cell], direction: int) -> None:
        self.cells, self.direction = deque(cells), direction

    def turn(self, action: int) -> None:
        """Change direction; straight back is ignored."""
        if (action - self.direction) % 4 != 2:
            self.direction = action

    def next_head(self) -> Cell:
        row, column = self.cells[-1]
        down, right = MOVES[self.direction]
        return row + down, column + right


class Snake(gym.Env[Image, Any]):
    """`num_snakes` on a board of `grid_size` (a side, or width and height), each `snake_size` cells long at first.

    A cell is `unit_size` pixels wide; the last `unit_gap` of them are empty except within a body. Each snake has the
    actions 0 up, 1 right, 2 down, 3 left; straight back is ignored. All snakes move at once. Eating food pays 1 and
    makes the snake a cell longer, and the food appears elsewhere. A snake that meets a wall, a body or another's head
    pays -1 and disappears. The reward is the sum over the snakes; `info["rewards"]` has the reward of each,
    `info["snakes_remaining"]` the number alive. The game ends with the last snake, or when the board has no room for
    food. With `random_start` the snakes begin anywhere; without it they go right, each in a row of its own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, grid_size: int | list[int] | tuple[int, int] = 15, unit_size: int = 10, unit_gap: int = 1,
                 snake_size: int = 3, num_snakes: int = 1, num_foods: int = 1, random_start: bool = True,
                 render_mode: str | None = None) -> None:
        sides = tuple(grid_size) if isinstance(grid_size, list | tuple) else (grid_size, grid_size)
        if len(sides) != 2:
            raise ConfigError(f"grid_size={list(sides)} is not one side, nor [width, height]")
        width, height = sides
        _check(width, height, random_start, unit_size=unit_size, unit_gap=unit_gap, snake_size=snake_size,
               num_snakes=num_snakes, num_foods=num_foods)
        self.render_mode = render_mode
        self._height, self._width, self._unit, self._gap = height, width, unit_size, unit_gap
        self._size, self._num_snakes, self._num_foods, self._random = snake_size, num_snakes, num_foods, random_start
        self._snakes: list[Body | None] = []
        self._foods: set[Cell] = set()
        self.action_space: spaces.Space[Any] = (
            spaces.Discrete(4) if num_snakes == 1 else spaces.MultiDiscrete([4] * num_snakes))
        self.observation_space = spaces.Box(0, 255, (height * unit_size, width * unit_size, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        """A new board; `options` is ignored."""
        super().reset(seed=seed)
        self._foods = set()
        self._snakes = self._drawn_snakes() if self._random else self._snakes_in_rows()
        self._add_foods()
        return self._image(), self._info(np.zeros(self._num_snakes))

    def step(self, action: Any) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Move every living snake one cell."""
        rewards = np.zeros(self._num_snakes)
        heads: dict[int, Cell] = {}
        for i, chosen in enumerate(np.ravel(action).tolist()):
            snake = self._snakes[i]
            if snake is not None:
                snake.turn(chosen)
                heads[i] = snake.next_head()
                if heads[i] not in self._foods:
                    snake.cells.popleft()
        taken = self._taken()
        ends = list(heads.values())
        for i, head in heads.items():
            snake = self._snakes[i]
            assert snake is not None
            if not self._on_board(head) or head in taken or ends.count(head) > 1:
                self._snakes[i] = None
                rewards[i] = -1
                continue
            snake.cells.append(head)
            if head in self._foods:
                self._foods.remove(head)
                rewards[i] = 1
        self._add_foods()
        terminated = not self._living or not self._foods
        return self._image(), float(rewards.sum()), terminated, False, self._info(rewards)

    def render(self) -> Image | None:
        """The board as an agent sees it."""
        return self._image() if self.render_mode == "rgb_array" else None

    @property
    def _living(self) -> list[Body]:
        return [snake for snake in self._snakes if snake is not None]

    def _taken(self) -> set[Cell]:
        return {cell for snake in self._living for cell in snake.cells}

    def _on_board(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self._height and 0 <= cell[1] < self._width

    def _info(self, rewards: NDArray[np.float64]) -> dict[str, Any]:
        return {"snakes_remaining": len(self._living), "rewards": rewards}

    def _snakes_in_rows(self) -> list[Body | None]:
        """From the left edge to the right, in rows that lie evenly."""
        return [Body([((2 * i + 1) * self._height // (2 * self._num_snakes), column) for column in range(self._size)],
                     RIGHT) for i in range(self._num_snakes)]

    def _drawn_snakes(self) -> list[Body | None]:
        """Anywhere and in any direction, each with a free cell ahead; in rows if 1000 draws find no room."""
        snakes: list[Body | None] = []
        taken: set[Cell] = set()
        for _ in range(1000):
            row, column, way = self.np_random.integers((self._height, self._width, 4)).tolist()
            cells = self._straight((row, column), way)
            if self._on_board(cells[-1]) and taken.isdisjoint(cells):
                snakes.append(Body(cells[:-1], way))
                taken |= set(cells)
            if len(snakes) == self._num_snakes:
                return snakes
        return self._snakes_in_rows()

    def _straight(self, tail: Cell, way: int) -> list[Cell]:
        """The cells of a snake, and the one ahead of it."""
        down, right = MOVES[way]
        return [(tail[0] + i * down, tail[1] + i * right) for i in range(self._size + 1)]

    def _add_foods(self) -> None:
        """Add missing foods, as long as there is room."""
        if len(self._foods) >= self._num_foods:
            return
        taken = self._taken() | self._foods
        free = [cell for cell in product(range(self._height), range(self._width)) if cell not in taken]
        missing = min(self._num_foods - len(self._foods), len(free))
        if missing:
            self._foods |= {free[i] for i in self.np_random.choice(len(free), missing, replace=False)}

    def _image(self) -> Image:
        cells = np.full((self._height, self._width), SPACE)
        for row, column in self._foods:
            cells[row, column] = FOOD
        for snake in self._living:
            for row, column in snake.cells:
                cells[row, column] = BODY
            cells[snake.cells[-1]] = HEAD
        image: Image = COLOURS[cells].repeat(self._unit, 0).repeat(self._unit, 1)
        for gap in range(self._unit - self._gap, self._unit):
            image[gap::self._unit] = image[:, gap::self._unit] = COLOURS[SPACE]
        self._join(image)
        return image

    def _join(self, image: Image) -> None:
        """Fill the gaps within bodies, so that their course is visible."""
        unit, wide = self._unit, self._unit - self._gap
        for snake in self._living:
            for (row, column), (next_row, next_column) in pairwise(snake.cells):
                top, left = min(row, next_row) * unit, min(column, next_column) * unit
                if row == next_row:
                    image[top:top + wide, left + wide:left + unit] = COLOURS[BODY]
                else:
                    image[top + wide:top + unit, left:left + wide] = COLOURS[BODY]


def _check(width: int, height: int, random_start: bool, **numbers: int) -> None:
    """ConfigError for values from JSON that are of another type, or that make no game."""
    for name, value in [("grid_size", width), ("grid_size", height), *numbers.items()]:
        if type(value) is not int:
            raise ConfigError(f"{name}={value!r} is not a whole number")
    if type(random_start) is not bool:
        raise ConfigError(f"random_start={random_start!r} is not true or false")
    for name, low in (("unit_size", 1), ("unit_gap", 0), ("snake_size", 2), ("num_snakes", 1), ("num_foods", 1)):
        if numbers[name] < low:
            raise ConfigError(f"{name}={numbers[name]} is below {low}")
    unit_size, unit_gap, size, snakes, foods = numbers.values()
    if unit_gap >= unit_size:
        raise ConfigError(f"unit_gap={unit_gap} leaves nothing of unit_size={unit_size}; lower it")
    if size >= width or snakes > height or snakes * size + foods > width * height:
        raise ConfigError(f"a grid of {width}x{height} is too small for {snakes} snakes of {size} cells, each in a "
                          f"row with a free cell before it, and {foods} foods; raise grid_size")


def register() -> None:
    """Register the games with Gymnasium. The time limit is for snakes that go in circles; Gym-Snake had none."""
    plural = {"grid_size": 25, "snake_size": 5, "num_snakes": 3, "num_foods": 2}
    for name, options in (("Snake", {}), ("SnakePlural", plural)):
        if f"vantage/{name}-v0" not in gym.registry:
            gym.register(f"vantage/{name}-v0", entry_point="vantage.envs.snake:Snake", max_episode_steps=1000,
                         kwargs=options)
