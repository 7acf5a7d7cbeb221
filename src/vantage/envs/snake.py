"""Snake with one or several snakes on a board, as images of coloured squares.

Independent of the rest of Vantage. The game of Gym-Snake's snake-v0 and snake-plural-v0, with seeds
and Gymnasium's interface.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vantage.errors import ConfigError

Image = NDArray[np.uint8]
Cell = tuple[int, int]  # row and column

UP, RIGHT, DOWN, LEFT = range(4)
MOVES: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))

SPACE, BODY, HEAD, FOOD = range(4)
# Gym-Snake's: a body is all but black, so that each of the four has a channel value of its own.
COLOURS = np.array([(0, 255, 0), (1, 0, 0), (255, 0, 0), (0, 0, 255)], np.uint8)


@dataclass(slots=True)
class Body:
    """A living snake."""

    cells: deque[Cell]  # from the tail to the head
    direction: int


class Snake(gym.Env[Image, Any]):
    """A board of `grid_size` (a side, or width and height) with `num_snakes` snakes.

    Snakes are `snake_size` cells long at first. A cell is `unit_size` pixels wide; its last
    `unit_gap` pixels are empty except within a body. Actions of each snake are 0 up, 1 right,
    2 down, 3 left; straight back is ignored. All snakes move at once.

    Eating food pays 1 and makes the snake a cell longer; new food appears elsewhere. A snake that
    hits a wall, a body or another head pays -1 and disappears. The reward is the sum over the
    snakes; `info["rewards"]` has the reward of each, `info["snakes_remaining"]` the number alive.
    The game ends with the last snake, or when the board has no room for food.
    """

    # as Gymnasium declares it
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, grid_size: int | list[int] | tuple[int, int] = 15, unit_size: int = 10,
                 unit_gap: int = 1, snake_size: int = 3, num_snakes: int = 1, num_foods: int = 1,
                 render_mode: str | None = None) -> None:
        width, height = grid_size if isinstance(grid_size, list | tuple) else (grid_size, grid_size)
        if not (0 <= unit_gap < unit_size and snake_size > 1 and num_snakes > 0 and num_foods > 0
                and snake_size < width and num_snakes <= height
                and num_snakes * snake_size + num_foods <= width * height):
            raise ConfigError(f"grid_size={width}x{height}, unit_size={unit_size}, "
                              f"unit_gap={unit_gap}, snake_size={snake_size}, "
                              f"num_snakes={num_snakes}, num_foods={num_foods} make no game of "
                              "Snake: raise grid_size and unit_size, keep the others positive")
        self.render_mode = render_mode
        self._height = height
        self._width = width
        self._unit = unit_size
        self._gap = unit_gap
        self._size = snake_size
        self._num_snakes = num_snakes
        self._num_foods = num_foods
        self._snakes: list[Body | None] = []
        self._foods: set[Cell] = set()
        self.action_space: spaces.Space[Any] = (
            spaces.Discrete(4) if num_snakes == 1 else spaces.MultiDiscrete([4] * num_snakes))
        self.observation_space = spaces.Box(0, 255, (height * unit_size, width * unit_size, 3),
                                            np.uint8)

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        """A new board; `options` is ignored."""
        super().reset(seed=seed)
        self._foods = set()
        self._snakes = self._new_snakes()
        self._add_foods()
        return self._image(), self._info(np.zeros(self._num_snakes))

    def step(self, action: Any) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Move every living snake one cell."""
        rewards = np.zeros(self._num_snakes)
        moves: list[tuple[int, Body, Cell]] = []
        turns = np.ravel(action).tolist()
        for i, (snake, turn) in enumerate(zip(self._snakes, turns, strict=True)):
            if snake is not None:
                if (turn - snake.direction) % 4 != 2:
                    snake.direction = turn
                head = _ahead(snake.cells[-1], snake.direction)
                moves.append((i, snake, head))
                if head not in self._foods:
                    snake.cells.popleft()
        taken = self._taken()
        new_heads = [head for _, _, head in moves]
        for i, snake, head in moves:
            if not self._on_board(head) or head in taken or new_heads.count(head) > 1:
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

    def _new_snakes(self) -> list[Body | None]:
        """Random places and directions, each with a free cell ahead."""
        snakes: list[Body | None] = []
        taken: set[Cell] = set()
        for _ in range(100_000):
            row, column, way = self.np_random.integers((self._height, self._width, 4)).tolist()
            cells = [(row, column)]
            for _ in range(self._size):
                cells.append(_ahead(cells[-1], way))
            if self._on_board(cells[-1]) and taken.isdisjoint(cells):
                snakes.append(Body(deque(cells[:-1]), way))
                taken.update(cells)
            if len(snakes) == self._num_snakes:
                return snakes
        raise ConfigError(f"a board of {self._width}x{self._height} has no room for "
                          f"num_snakes={self._num_snakes}; raise grid_size")

    def _add_foods(self) -> None:
        """Add missing foods while there is room."""
        missing = self._num_foods - len(self._foods)
        if missing:
            taken = self._taken() | self._foods
            cells = product(range(self._height), range(self._width))
            free = [cell for cell in cells if cell not in taken]
            if free:
                chosen = self.np_random.choice(len(free), min(missing, len(free)), replace=False)
                self._foods |= {free[i] for i in chosen}

    def _image(self) -> Image:
        unit = self._unit
        wide = unit - self._gap
        image: Image = np.full((self._height * unit, self._width * unit, 3), COLOURS[SPACE])

        def paint(cell: Cell, neighbour: Cell, colour: int) -> None:
            (top, bottom), (left, right) = map(sorted, zip(cell, neighbour, strict=True))
            image[top * unit:bottom * unit + wide,
                  left * unit:right * unit + wide] = COLOURS[colour]

        for food in self._foods:
            paint(food, food, FOOD)
        for snake in self._living:
            # with the gaps within a body, so that its course is visible
            for cell, neighbour in pairwise(snake.cells):
                paint(cell, neighbour, BODY)
            paint(snake.cells[-1], snake.cells[-1], HEAD)
        return image


def _ahead(cell: Cell, direction: int) -> Cell:
    down, right = MOVES[direction]
    return cell[0] + down, cell[1] + right


def register() -> None:
    """Register the games with Gymnasium.

    The time limit is for snakes that go in circles; Gym-Snake had none.
    """
    plural = {"grid_size": 25, "snake_size": 5, "num_snakes": 3, "num_foods": 2}
    for name, options in (("Snake", {}), ("SnakePlural", plural)):
        if f"vantage/{name}-v0" not in gym.registry:
            gym.register(f"vantage/{name}-v0", entry_point="vantage.envs.snake:Snake",
                         max_episode_steps=1000, kwargs=options)


register()
