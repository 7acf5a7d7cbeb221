"""Snake, alone and in the plural: its rules, its pictures, its seeds."""

from __future__ import annotations

import subprocess
import sys
from collections import deque

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from vantage.envs.snake import COLOURS, DOWN, FOOD, HEAD, LEFT, RIGHT, SPACE, UP, Body, Snake
from vantage.errors import ConfigError


def board(snakes, foods=((0, 0),), **options):
    """A board with these snakes, cells from tail to head and direction, and these foods."""
    env = Snake(num_snakes=len(snakes), num_foods=len(foods), **{"grid_size": 6, "snake_size": 2, **options})
    env.reset(seed=0)
    env._snakes = [Body(deque(cells), way) for cells, way in snakes]
    env._foods = set(foods)
    return env


def cells(env):
    return list(env._snakes[0].cells)


@pytest.mark.parametrize(("name", "side", "snakes", "size", "foods"), [
    ("vantage/Snake-v0", 150, 1, 3, 1), ("vantage/SnakePlural-v0", 250, 3, 5, 2)])
def test_the_registered_games_are_those_of_gym_snake_and_seeds_decide_all(name, side, snakes, size, foods):
    env = gym.make(name, render_mode="rgb_array")
    check_env(env.unwrapped)
    game, directions, starts = env.unwrapped, set(), set()
    for seed in [*range(30), 0]:
        obs, info = env.reset(seed=seed)
        assert obs.shape == (side, side, 3) and (env.render() == obs).all()
        assert info["snakes_remaining"] == len(game._snakes) == snakes and len(game._foods) == foods
        assert {len(snake.cells) for snake in game._snakes} == {size}
        directions |= {snake.direction for snake in game._snakes}
        starts.add((tuple(tuple(snake.cells) for snake in game._snakes), tuple(sorted(game._foods))))
    assert directions == {UP, RIGHT, DOWN, LEFT} and len(starts) == 30
    assert env.spec.max_episode_steps == 1000


def test_importing_vantage_registers_the_games():
    code = "import gymnasium, vantage; gymnasium.make('vantage/Snake-v0').reset(seed=0)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("action", "head", "way"), [(UP, (2, 3), UP), (RIGHT, (3, 4), RIGHT), (DOWN, (4, 3), DOWN),
                                                     (LEFT, (3, 4), RIGHT)])
def test_a_snake_turns_but_not_straight_back(action, head, way):
    env = board([([(3, 2), (3, 3)], RIGHT)])
    _, reward, terminated, truncated, info = env.step(action)
    assert cells(env) == [(3, 3), head] and env._snakes[0].direction == way
    assert (reward, terminated, truncated, info["snakes_remaining"]) == (0, False, False, 1)


def test_food_pays_lengthens_and_appears_elsewhere():
    env = board([([(3, 2), (3, 3)], RIGHT)], foods=[(3, 4), (0, 0)])
    assert env.step(RIGHT)[1] == 1
    assert cells(env) == [(3, 2), (3, 3), (3, 4)]
    assert len(env._foods) == 2 and (0, 0) in env._foods and env._foods.isdisjoint(cells(env))
    assert env.step(RIGHT)[1] == 0 and len(cells(env)) == 3


RING = [(1, 1), (1, 2), (2, 2), (2, 1)]


@pytest.mark.parametrize(("snake", "way", "action", "dies"), [
    ([(3, 4), (3, 5)], RIGHT, RIGHT, True), ([(1, 2), (0, 2)], UP, UP, True), ([(1, 1), (1, 0)], LEFT, LEFT, True),
    ([(4, 0), (5, 0)], DOWN, DOWN, True), (RING, LEFT, UP, False), ([(0, 1), *RING], LEFT, UP, True)])
def test_a_snake_dies_of_walls_and_of_itself_but_may_follow_its_tail(snake, way, action, dies):
    obs, reward, terminated, _, info = board([(snake, way)], foods=[(5, 5)]).step(action)
    assert (reward, terminated, info["snakes_remaining"]) == ((-1, True, 0) if dies else (0, False, 1))
    assert (obs == COLOURS[HEAD]).all(-1).any() != dies


def test_snakes_die_of_bodies_and_of_heads_and_the_rest_play_on():
    bystander = ([(0, 0), (0, 1)], RIGHT)
    env = board([([(3, 1), (3, 2)], RIGHT), ([(3, 5), (3, 4)], LEFT), bystander], foods=[(3, 3)])
    _, reward, terminated, _, info = env.step([RIGHT, LEFT, RIGHT])
    assert (reward, terminated, env._foods) == (-2, False, {(3, 3)})
    assert info["rewards"].tolist() == [-1, -1, 0] and info["snakes_remaining"] == 1
    assert env.step([RIGHT, LEFT, RIGHT])[1] == 0, "the dead pay once and are in nobody's way"
    env = board([([(3, 1), (3, 2)], RIGHT), ([(1, 3), (2, 3), (3, 3), (4, 3)], DOWN)], foods=[(0, 0)])
    assert env.step([RIGHT, DOWN])[4]["rewards"].tolist() == [-1, 0]


def test_a_full_board_is_won():
    env = board([([(1, 0), (0, 0), (0, 1)], RIGHT)], foods=[(0, 2)], grid_size=[3, 2])
    assert env.step(RIGHT)[1:3] == (1, False)
    env._foods = {(1, 2)}
    assert env.step(DOWN)[1:3] == (1, False)
    assert env._foods == {(1, 1)}
    assert env.step(LEFT)[1:3] == (1, True)


def test_the_picture_shows_units_gaps_and_bodies_that_hold_together():
    image = board([([(1, 1), (1, 2), (2, 2)], DOWN)], foods=[(4, 5)], unit_size=4, unit_gap=1)._image()
    expected = np.full((24, 24), SPACE)
    expected[16:19, 20:23] = FOOD
    expected[4:7, 4:11] = expected[7:8, 8:11] = 1
    expected[8:11, 8:11] = HEAD
    assert (image == COLOURS[expected]).all()


@pytest.mark.parametrize("options", [{"grid_size": 3}, {"num_snakes": 20}, {"num_foods": 300}, {"unit_gap": 10},
                                     {"num_foods": 0}])
def test_an_impossible_board_is_refused(options):
    with pytest.raises(ConfigError, match="make no game of Snake"):
        Snake(**options)
