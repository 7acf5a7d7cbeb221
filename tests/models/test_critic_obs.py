"""Parts of an observation that only the critic sees: learned from, and absent where the policy acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from rollouts import begun
from stopping import saved_tensors, stop_after
from tiny import Hidden

import vantage
from vantage.agents.agent import Agent
from vantage.envs.space_json import space_to_json
from vantage.envs.spaces import make_observer
from vantage.errors import ConfigError
from vantage.models.build import make_model
from vantage.models.checks import check_inputs
from vantage.models.config import PolicyConfig
from vantage.types import ActionSpec, ArraySpec, EnvSpec

pytestmark = pytest.mark.integration

KEYS: dict[str, Any] = {"env": "tiny:Hidden", "num_envs": 8, "rollout_length": 12, "hidden": "16", "threads": 1,
                        "eval_every": 0, "tensorboard": False, "separate": True, "optimizer": "adam"}
PRIVATE = {"critic_obs": ("state",)}
MEMORY = {"memory": "gru", "memory_size": 4}


class Without(Hidden):
    """The same without the part."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.observation_space["image"]

    def obs(self) -> Any:
        return super().obs()["image"]


@pytest.mark.parametrize("more", [{}, MEMORY])
def test_a_critic_that_sees_what_the_value_needs_explains_it(more: dict[str, Any]) -> None:
    explained = []
    for keys in (PRIVATE, {"env": Without}):
        with begun(vantage.configure("ppo", **KEYS | more | keys, gamma=1.0, epochs=8, lr=1e-2)) as one:
            for _ in range(20):
                metrics = one.advance(lambda: 0).means()
        explained.append(metrics["train/explained_variance"])
    assert explained[0] > 0.9 and explained[1] < 0.5, explained


@pytest.mark.parametrize("more", [{}, MEMORY, {"obs_norm": True}])
def test_a_policy_acts_and_is_exported_without_the_part(tmp_path: Path, more: dict[str, Any],
                                                        caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="vantage"):
        agent = vantage.train("ppo", run=tmp_path / "run", **KEYS | PRIVATE | more, steps=192)
    assert "policy sees: image; critic alone: state" in caplog.messages
    obs = {"image": np.array([[0.3], [0.6]], np.float32)}
    state = agent.initial_state(2)
    assert len(state) == (1 if more == MEMORY else 0)
    action, after = agent.act(obs, state, deterministic=True)
    for seen in (-1.0, 1.0):
        whole = {**obs, "state": np.full((2, 1), seen, np.float32)}
        again, _ = agent.act(whole, state, deterministic=True)
        assert np.array_equal(action, again)
    assert [part.shape for part in after] == [part.shape for part in state]
    for format in ("onnx", "safetensors"):
        exported = vantage.export(agent, output=tmp_path / f"policy.{format}", format=format)
        assert "obs.state" not in exported.inputs and "critic" not in " ".join(exported.inputs + exported.outputs)
        assert "value" not in exported.outputs and exported.difference < 1e-4
    names = [each.name for each in onnx.load(str(tmp_path / "policy.onnx")).graph.initializer]
    assert names and not [name for name in names if "critic" in name or "value_head" in name]
    assert np.array_equal(vantage.load(exported.path).act(obs, state, deterministic=True)[0], action)
    assert vantage.evaluate(agent, episodes=2).episodes == 2


BOX, X, Y = spaces.Box(-1, 1, (1,), np.float32), np.float32([0.3]), np.float32([0.6])


@pytest.mark.parametrize(("space", "names", "own", "forms"), [
    (spaces.Tuple([BOX, BOX]), "1", "0", [(X, Y), (X,), (X, None), {"0": X}, {"0": X, "1": Y}]),
    (spaces.Tuple([BOX, BOX]), "0", "1", [(Y, X), (None, X), {"1": X}, {"0": Y, "1": X}]),
    (spaces.Dict({"a/b": BOX, "c": BOX}), "a/b", "c", [{"a/b": Y, "c": X}, {"c": X}]),
    (spaces.Dict({"a/b": BOX, "c": BOX}), "a", "c", [{"a/b": Y, "c": X}, {"c": X}]),
    (spaces.Dict({"a": spaces.Dict({"b": BOX, "d": BOX})}), "a/b", "a/d",
     [{"a": {"b": Y, "d": X}}, {"a": {"d": X}}, {"a/b": Y, "a/d": X}, {"a/d": X}])])
def test_whole_observations_and_those_without_the_part_are_read(space: Any, names: str, own: str, forms: Any) -> None:
    parts, _ = make_observer(space)
    spec = EnvSpec(parts, ActionSpec("box", (1,), (-9.0,), (9.0,)), space=space_to_json(space))
    config = vantage.configure("a2c", env="tiny:Hidden", separate=True, critic_obs=names, hidden="8")
    check_inputs(config.policy, spec)
    model = make_model(config.policy, spec, critic="state")
    agent = Agent(model, config, 0, "latest", {}, True)
    assert model.acting_spec.keys == (own,)
    expected, _ = agent.act({own: X})
    for obs in forms:
        assert np.array_equal(agent.act(obs)[0], expected)
    many = agent.act(batched(forms[0]))[0]
    assert many.shape == (2, 1)
    np.testing.assert_allclose(many, np.stack([expected] * 2), rtol=1e-6)
    with pytest.raises(ValueError, match="the policy takes a dict with"):
        agent.act({"z": X})
    with pytest.raises(ValueError, match=f"the policy takes a dict with {own} float32") as error:
        agent.act(X)
    assert "Error" not in str(error.value)


def batched(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: batched(part) for key, part in obs.items()}
    return tuple(map(batched, obs)) if isinstance(obs, tuple) else np.stack([obs] * 2)


@pytest.mark.parametrize(("algo", "more"), [
    ("ppo", MEMORY), ("acer", {"replay_start": 0}), ("a2c", {"num_workers": 2})])
def test_a_resume_is_exact(tmp_path: Path, algo: str, more: dict[str, Any]) -> None:
    config = vantage.configure(algo, **KEYS | PRIVATE | more, steps=384)
    stop_after(100, tmp_path / "whole", config)
    stop_after(2, tmp_path / "stopped", config)
    stop_after(100, tmp_path / "stopped")
    whole, stopped = saved_tensors(tmp_path / "whole"), saved_tensors(tmp_path / "stopped")
    assert whole.keys() == stopped.keys() and all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_steps_equal_the_unrolled_policy_and_its_values() -> None:
    spec = EnvSpec({key: ArraySpec("vector", (2,)) for key in ("b", "a/x", "c")}, ActionSpec("discrete", (3,)))
    model = make_model(PolicyConfig(separate=True, critic_obs="a", memory="lstm", memory_size=4), spec, critic="state")
    assert model.acting_spec.keys == ("b", "c")
    assert [group.places for group in model.groups] == [(1, 2), (0,)]
    torch.manual_seed(0)
    obs = {key: torch.randn(5, 3, 2) for key in spec.keys}
    is_first = torch.rand(5, 3) < 0.3
    params, values = model.unroll(obs, is_first, model.initial_state(3))
    state, acting = model.initial_state(3), model.initial_state(3)[:2]
    for t in range(5):
        row = {key: part[t] for key, part in obs.items()}
        found, value, state = model.step_with_values(row, is_first[t], state)
        seen, acting = model.step({key: row[key] for key in "bc"}, is_first[t], acting)
        torch.testing.assert_close((found, value, seen), (params[t], values[t], params[t]))


@pytest.mark.parametrize(("keys", "words"), [
    ({"critic_obs": "stat"}, r"names 'stat', and the observation has image, state"),
    ({"critic_obs": "image,state"}, "leaves the actor no part"),
    ({"critic_obs": "state", "separate": False}, "give separate"),
    ({"critic_obs": "state", "frame_stack": 2}, "frame_stack=1"),
    ({"critic_obs": "state", "env": "CartPole-v1"}, "is no Dict")])
def test_parts_of_the_critic_are_refused_where_they_cannot_work(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"critic_obs=.*{words}"):
        vantage.Trainer("a2c", run="run", **KEYS | keys)
