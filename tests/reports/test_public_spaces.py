"""Reports on actions that arrive outside their space, and on observations that are mixed up.

Actions: github.com/DLR-RM/stable-baselines3/issues/1718, 913, 2207 and 547, github.com/hill-a/stable-baselines/
issues/1034, github.com/ray-project/ray/issues/8597 and 42196. Observations: github.com/google-deepmind/dm_control/
issues/34, github.com/Farama-Foundation/SuperSuit/pull/116.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from environments import make
from gymnasium import spaces
from public_cases import ACTION_SPACES

import vantage
from vantage.config.config import Config
from vantage.envs.spaces import make_observer, reasons
from vantage.learning.collect import Position, collect
from vantage.models.build import make_model


@pytest.mark.parametrize("space", ACTION_SPACES)
def test_every_action_is_in_the_space_in_value_type_and_shape(space: str) -> None:
    envs = make("public_cases:Contains", 4, options={"space": space})
    model = make_model(Config().policy, envs.spec, critic="state")
    position = Position.after(envs.reset(), model.initial_state(4), torch.device("cpu"))
    collected = collect(model, envs, position, length=40, generator=torch.Generator().manual_seed(0))
    assert {episode.score for episode in collected.episodes} == {1}
    assert len(collected.episodes) == 80


@pytest.mark.parametrize("env", ["OneArray", "RichInfo"])
def test_a_rollout_holds_every_step_of_an_environment_that_reuses_its_array(env: str) -> None:
    envs = make(f"public_cases:{env}", 2)
    model = make_model(Config().policy, envs.spec, critic="state")
    position = Position.after(envs.reset(), model.initial_state(2), torch.device("cpu"))
    rollout = collect(model, envs, position, length=6, generator=torch.Generator().manual_seed(0)).rollout
    assert rollout.obs[..., 0].tolist() == [[t, t] for t in range(7)]
    assert rollout.rewards.tolist() == [[t, t] for t in range(1, 7)]


def test_parts_of_a_dict_are_told_apart_by_their_keys() -> None:
    obs = make("public_cases:UnsortedKeys", 2).reset().obs
    assert {key: part.tolist() for key, part in obs.items()} == {"a": [[1], [1]], "b": [[2, 2], [2, 2]]}


def test_actions_are_clipped_for_the_environment_and_stored_as_they_were_drawn() -> None:
    """github.com/thu-ml/tianshou/issues/312, github.com/ray-project/ray/issues/8889."""
    envs = make("public_cases:Contains", 8, options={"space": "box of float64"})
    model = make_model(Config().policy, envs.spec, critic="state")
    position = Position.after(envs.reset(), model.initial_state(8), torch.device("cpu"))
    rollout = collect(model, envs, position, length=20, generator=torch.Generator().manual_seed(0)).rollout
    outside = rollout.actions.abs() > 1
    assert 0.2 < outside.double().mean().item() < 0.45, "0.32 of N(0, 1)"


class Missions(gym.Space[str]):
    """Texts in a space of a package's own, as in MiniGrid."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: object = None, probability: object = None) -> str:
        return "go to the door"


class Room(gym.Env):
    """Pays for the action that the observation names, beside a text."""

    observation_space = spaces.Dict({"door": spaces.Discrete(2), "mission": Missions()})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.door = int(self.np_random.integers(2))
        return {"door": self.door, "mission": "go to the door"}, {}

    def step(self, action):
        return {"door": self.door, "mission": "go to the door"}, float(action == self.door), True, False, {}


def test_texts_in_a_space_of_a_package_s_own_are_left_out(tmp_path) -> None:
    """github.com/Farama-Foundation/Minigrid/issues/343: the mission."""
    agent = vantage.train("a2c", env=Room, steps=4_000, seed=0, num_workers=1, threads=1, eval_every=0,
                          tensorboard=False, run=tmp_path / "run")
    assert vantage.evaluate(agent, episodes=20).return_mean == 1
    action, _ = agent.act({"door": np.int64(1), "mission": "go to the door"})
    assert action == 1
    assert vantage.load(tmp_path / "run").act({"door": 0, "mission": "?"})[0] == 0


class Words(spaces.MultiDiscrete):
    """Numbers of words in a vocabulary, with the dtype that TextWorld's Word has."""

    def __init__(self) -> None:
        super().__init__([3, 3])
        self.dtype = np.int64


def test_a_space_whose_dtype_is_a_type_is_read_as_its_kind_says() -> None:
    """github.com/microsoft/TextWorld: textworld/gym/spaces/text_spaces.py."""
    spec, convert = make_observer(spaces.Dict({"words": Words()}))
    row = convert({"words": np.array([0, 2])})["words"]
    assert spec["words"].kind == "one_hot" and row.nonzero()[0].tolist() == [0, 5]
    assert make_observer(Words())[0] == spec["words"] and reasons(Words(), {}) == {"": "one-hot of Words"}
