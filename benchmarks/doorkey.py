"""PPO on MiniGrid's DoorKey with twenty demonstrations of a planner, and alone for ten times the steps.

    pip install minigrid
    python benchmarks/doorkey.py --seeds 0 1 2

The only reward is at the goal, behind a locked door whose key must be picked up first. The planner searches breadth
first for the shortest way, in games of other seeds than those of the training.
"""

from __future__ import annotations

import argparse
from collections import deque
from copy import deepcopy
from typing import Any

import gymnasium as gym

import vantage

GAME = "minigrid:MiniGrid-DoorKey-8x8-v0"
LEFT, RIGHT, FORWARD, PICK_UP, TOGGLE = 0, 1, 2, 3, 5
KEYS = {"env": GAME, "num_envs": 16, "epochs": 4, "minibatch_size": 256, "lr": "linear:1e-3:0",
        "entropy_coef": 0.005, "separate": False, "threads": 1, "num_workers": 1, "eval_every": 0,
        "tensorboard": False}


def shortest_way(game: Any) -> list[int]:
    """The actions that lead to the goal in the fewest steps."""
    queue, seen = deque([(deepcopy(game), ())]), {_state(game)}
    while queue:
        before, actions = queue.popleft()
        for action in (FORWARD, LEFT, RIGHT, PICK_UP, TOGGLE):
            after = deepcopy(before)
            reward = after.step(action)[1]
            if reward > 0:
                return [*actions, action]
            state = _state(after)
            if state not in seen:
                seen.add(state)
                queue.append((after, (*actions, action)))
    raise AssertionError("the goal cannot be reached")


def _state(game: Any) -> tuple[Any, ...]:
    door = next(thing for thing in game.grid.grid if thing is not None and thing.type == "door")
    return tuple(game.agent_pos), game.agent_dir, game.carrying is not None, door.is_open


def demonstrations(count: int) -> list[dict[str, Any]]:
    env = gym.make(GAME)
    episodes = []
    for seed in range(count):
        obs, _ = env.reset(seed=1_000 + seed)
        actions = shortest_way(env.unwrapped)
        observations = [obs, *(env.step(action)[0] for action in actions)]
        episodes.append({"observations": observations, "actions": actions})
    return episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    shown = demonstrations(20)
    for seed in seeds:
        for steps, more in ((20_000, {"demonstrations": shown}), (200_000, {})):
            agent = vantage.train("ppo", steps=steps, seed=seed, **KEYS, **more)
            print(seed, steps, *more, vantage.evaluate(agent, episodes=100), flush=True)


if __name__ == "__main__":
    main()
