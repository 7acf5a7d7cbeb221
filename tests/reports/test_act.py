"""`agent.act` takes what the environment returns, and names what it cannot take."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import train_shortly
from raw_envs import SPACES, Raw

import vantage
from vantage.envs.space_json import space_from_json, space_to_json
from vantage.envs.spaces import make_observer
from vantage.learning.act_inputs import read_mask
from vantage.runs.spec_json import spec_to_json
from vantage.runs.validation import read_spec
from vantage.types import ActionSpec, ArraySpec, EnvSpec


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, vantage.Agent]:
    """A policy for each kind of observation, by its name."""
    folder = tmp_path_factory.mktemp("agents")
    keys = {"steps": 20, "rollout_length": 5, "network": "mlp"}
    return {name: vantage.load(train_shortly(folder / name.replace(" ", "-"), "raw_envs:Raw",
                                             env_kwargs={"space": name}, **keys)) for name in SPACES}


def batch_of(space: gym.Space[Any], observations: list[Any]) -> Any:
    """As a vector environment returns them."""
    if isinstance(space, gym.spaces.Dict):
        return {key: batch_of(part, [obs[key] for obs in observations]) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(batch_of(part, [obs[i] for obs in observations]) for i, part in enumerate(space.spaces))
    return observations if isinstance(space, gym.spaces.Text) else np.stack(observations)


@pytest.mark.parametrize("name", SPACES)
def test_an_agent_acts_on_what_the_environment_returns_as_on_what_make_env_does(
        name: str, agents: dict[str, vantage.Agent]) -> None:
    agent, space = replace(agents[name], deterministic=True), SPACES[name]
    space.seed(1)
    raw = [space.sample() for _ in range(8)]
    convert = make_observer(space)[1]
    own = [agent.act(convert(obs), ())[0] for obs in raw]
    assert [agent.act(obs)[0] for obs in raw] == own and own[0].shape == ()
    actions, state = agent.act(batch_of(space, raw))
    assert actions.tolist() == [int(action) for action in own] and state == ()
    # The conversion is not constant: observations give other logits.
    whole = [agent.model.step(_tensors(agent.read(obs)[0], agent), torch.ones(1).bool(), ())[0] for obs in raw]
    assert len({tuple(row.flatten().tolist()) for row in whole}) > 1


def _tensors(parts: dict[str, Any], agent: vantage.Agent) -> Any:
    tensors = {key: torch.from_numpy(part.copy()) for key, part in parts.items()}
    return tensors if isinstance(agent.model.spec.obs, dict) else tensors["obs"]


def test_an_agent_plays_in_its_raw_environment_as_in_that_of_make_env(agents: dict[str, vantage.Agent]) -> None:
    agent = agents["nested"]
    env, ours = Raw("nested"), agent.make_env(seed=1)
    obs, _ = env.reset(seed=3)
    ours.reset()
    for _ in range(5):
        action, _ = agent.act(obs)
        obs, _, terminated, *_ = env.step(action)
    assert terminated


def test_an_exported_policy_reads_raw_observations_too(agents: dict[str, vantage.Agent], tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "raw_envs:Raw", steps=20, rollout_length=5, env_kwargs={"space": "discrete"})
    file = vantage.export(run, format="safetensors", output=tmp_path / "policy.safetensors").path
    assert [vantage.load(file).act(i)[0] for i in range(2, 7)] == [vantage.load(run).act(i)[0] for i in range(2, 7)]


@pytest.mark.parametrize(("name", "obs", "says"), [
    ("vector", np.zeros(3), r"an array of float64 of shape \(3,\): .*takes float32 of shape \(4,\), or a batch of "),
    ("vector", None, "the observation is None; "), ("vector", {"obs": np.zeros(4)}, r"a dict of obs float64 of shape"),
    ("image", np.zeros((12, 14, 3), np.uint8), r"uint8 of shape \(12, 14, 3\); the policy takes uint8 \[C, H, W\] of "
     r"shape \(3, 12, 13\), .* what its environment returns, in Box\(0, 255, \(12, 13, 3\), uint8\)"),
    ("discrete", 7, r"the observation is 7; .*Discrete\(5, start=2\) \(the observation is outside its space"),
    ("discrete", "two", "the observation is 'two'; "),
    ("text", {"mission": "go"}, r"a dict of mission 'go'; the policy takes a dict with at float32 of shape \(2,\)"),
    ("nested", {"robot": {}, "cell": 1}, r"\(the observation lacks 'robot/"),
    ("tuple", (1,), r"a tuple of 1 \(int\)"), ("tuple", (0, np.zeros(2), 1, 1), "")])
def test_an_observation_that_fits_nothing_is_named_with_what_the_policy_takes(
        name: str, obs: Any, says: str, agents: dict[str, vantage.Agent]) -> None:
    if not says:  # a longer tuple holds all parts
        assert agents[name].act(obs)[0].shape == ()
        return
    with pytest.raises(ValueError, match=says) as caught:
        agents[name].act(obs)
    assert "\n" not in str(caught.value) and str(caught.value).endswith("agent.make_env() gives them so")


def test_a_policy_with_a_state_needs_it_and_one_without_does_not(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "raw_envs:Raw", steps=20, rollout_length=5, memory="gru")
    agent = vantage.load(run)
    with pytest.raises(ValueError, match=r"the policy has a state: .* at the first initial_state\(1\)"):
        agent.act(np.zeros(4))
    assert agent.act(np.zeros(4), agent.initial_state())[1][0].shape == agent.initial_state()[0].shape


def test_masks_are_taken_as_info_has_them(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "raw_envs:Raw", steps=20, rollout_length=5, env_kwargs={"masked": True})
    agent, (obs, info) = vantage.load(run), Raw(masked=True).reset(seed=1)
    assert agent.act(obs, action_mask=info["action_mask"])[0].tolist() == [1, 2]
    batch = tuple(np.stack([part, part]) for part in info["action_mask"])
    assert agent.act(np.stack([obs, obs]), action_mask=batch)[0].tolist() == [[1, 2], [1, 2]]
    for mask, says in ((np.full(5, np.nan), "other than 0 and 1"), (np.ones(3), "the policy has 5 actions"),
                       (np.zeros(5), r"allows none of \d actions")):
        with pytest.raises(ValueError, match=says):
            agent.act(obs, action_mask=mask)


def test_a_mask_with_a_column_for_each_observation_is_refused() -> None:
    spec = EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,)), masked=True)
    rows = np.array([[1, 0], [1, 1], [0, 1]])
    mask = read_mask(rows, spec, 3)
    assert mask is not None and mask.tolist() == rows.astype(bool).tolist()
    with pytest.raises(ValueError, match=re.escape("shape (2, 3), the policy has 2 actions: give [3, 2]")):
        read_mask(rows.T, spec, 3)


@pytest.mark.parametrize("name", SPACES)
def test_a_space_is_the_same_after_json(name: str) -> None:
    saved = space_to_json(SPACES[name])
    again = space_from_json(saved)
    assert space_to_json(again) == saved
    assert name == "text" or again == SPACES[name]


def test_bounds_of_a_space_are_exact_after_json() -> None:
    box = gym.spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([3, np.inf], np.float32))
    assert space_from_json(space_to_json(box)) == box


@pytest.mark.parametrize("space", [
    1, [], {"type": "Graph"}, {"type": "Box"}, {"type": "Discrete", "n": 10**12, "start": 0},
    {"type": "Box", "low": 0, "high": 1, "shape": [10**6, 10**6], "dtype": "float32"},
    {"type": "Box", "low": 0, "high": 1, "shape": [1], "dtype": "object"},
    {"type": "Tuple", "spaces": [{"type": "MultiBinary", "shape": [6 * 10**6]}] * 2}])
def test_a_damaged_space_in_a_policy_is_refused(space: Any, agents: dict[str, vantage.Agent]) -> None:
    spec = spec_to_json(agents["vector"].model.spec)
    assert read_spec(spec).space == spec["space"]
    with pytest.raises(ValueError, match=r"^spec is "):
        read_spec({**spec, "space": space})
    old = {key: value for key, value in spec.items() if key != "space"}
    assert read_spec(old).space is None
