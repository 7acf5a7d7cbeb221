"""Dict and Tuple actions and bounded distributions from training to `act`, evaluation, recording and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hybrid_envs
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space
from hybrid_envs import SPACE

import vantage
from vantage.envs.actions import to_row
from vantage.errors import ConfigError

SHORT: dict[str, Any] = {"eval_every": 0, "threads": 1, "tensorboard": False, "log_every_seconds": 1000,
                         "num_envs": 2, "hidden": "8", "rollout_length": 8}
OBS = np.eye(3, dtype=np.float32)
MASK = {"gear": [1, 0, 0], "panel": (None, {"dials": ([0, 1], [1, 1, 1])})}


def trained(algo: Any, env: Any, folder: Path, **keys: Any) -> Path:
    *_, last = vantage.Trainer(algo, env=env, run=folder / "run", **{**SHORT, **keys})
    assert last.status == "done"
    return folder / "run"


@pytest.mark.integration
@pytest.mark.parametrize(("algo", "env", "keys", "best"), [
    ("a2c", hybrid_envs.Panel, {}, 1.0), ("ppo", hybrid_envs.Panel, {"distribution": "squashed", "steps": 3_000}, 1.0),
    ("a3c", hybrid_envs.Lever, {"distribution": "beta", "num_workers": 2}, 4.0)], ids=["a2c", "ppo", "a3c"])
def test_the_best_of_discrete_and_continuous_parts_is_learned(
        algo: str, env: Any, keys: dict[str, Any], best: float, tmp_path: Path) -> None:
    """Random actions pay 0.5 of the best, and any part that does not learn costs a quarter or a half of the rest."""
    run = trained(algo, env, tmp_path, **{"steps": 20_000, "num_envs": 8, "hidden": "32", "seed": 100,
                                          "lr": "linear:5e-3:0", "rollout_length": 16, **keys})
    played = vantage.evaluate(run, episodes=30, deterministic=True, checkpoint="latest")
    assert np.mean(played.returns) > 0.9 * best


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred steps of a policy with masks, memory and Beta."""
    return trained("ppo", hybrid_envs.Masked, tmp_path_factory.mktemp("masked"), steps=200, distribution="beta",
                   memory="gru", memory_size=4, minibatch_size=16)


def test_act_gives_the_spaces_own_structure_also_of_a_loaded_file(masked: Path, tmp_path: Path) -> None:
    agent = vantage.load(masked)
    action, state = agent.act(OBS[0], agent.initial_state(), action_mask=MASK)
    assert SPACE.contains(action)
    assert action["gear"] == 1
    assert action["panel"][1]["dials"][0] == 5
    actions, _ = agent.act(OBS, agent.initial_state(3), action_mask={"gear": np.eye(3)})
    assert batch_space(SPACE, 3).contains(actions)
    assert actions["gear"].tolist() == [1, 2, 3]
    again = vantage.load(agent.save(tmp_path / "policy.safetensors"), env=hybrid_envs.Masked)
    same, _ = again.act(OBS[0], agent.initial_state(), action_mask=MASK)
    assert to_row(same, SPACE).tolist() == to_row(action, SPACE).tolist()
    with pytest.raises(ValueError, match=r"trained with masks: give action_mask \[B, 12\]"):
        agent.act(OBS[0], state)


def test_an_own_loop_plays_what_evaluate_plays(masked: Path) -> None:
    agent = vantage.load(masked)
    env = agent.make_env(seed=5)
    assert env.action_space == SPACE
    obs, info = env.reset()
    action, _ = agent.act(obs, agent.initial_state(), action_mask=info["action_mask"], deterministic=True)
    score = env.step(action)[1]
    played = vantage.evaluate(masked, episodes=1, deterministic=True, seed=5, num_envs=1)
    assert played.returns == [pytest.approx(score)]


def test_onnx_has_outputs_for_each_part(masked: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = vantage.export(masked, format="onnx")
    assert result.outputs == (
        "alpha.throttle", "beta.throttle", "logits.gear", "logits.panel/0", "logits.panel/1/dials", "value",
        "action.throttle", "action.gear", "action.panel/0", "action.panel/1/dials",
        "next_state.gru_h", "next_state.critic_gru_h")
    assert result.difference < 1e-4  # of actions up to 200


@pytest.mark.parametrize(("env", "keys"), [
    (hybrid_envs.MaskMethod, {}), (hybrid_envs.Masked, {"vector": "async"}), (hybrid_envs.make_vector, {}),
    (hybrid_envs.InTensors, {})], ids=["method", "async", "vector", "tensors"])
def test_no_masked_choice_is_taken_in_any_kind_of_environment(env: Any, keys: dict[str, Any], tmp_path: Path) -> None:
    """The environments raise for forbidden choices, and for actions outside their space."""
    trained("a2c", env, tmp_path, steps=64, **keys)


@pytest.mark.parametrize(("algo", "env", "keys", "says"), [
    ("acer", hybrid_envs.Panel, {}, "for Discrete and Box actions, not for Dict and Tuple; use a2c, ppo or a3c"),
    ("acer", "Pendulum-v1", {"distribution": "beta"}, "is not for acer.*use distribution=gaussian, or a2c, ppo"),
    ("a2c", "CartPole-v1", {"distribution": "beta"}, "is for Box actions, and these are discrete.*gaussian"),
    ("a2c", "boxes:Aim", {"env_kwargs": {"low": 0, "high": np.inf}, "distribution": "squashed"},
     r"distribution=squashed needs different, finite action bounds.*use distribution=gaussian"),
    ("a2c", "boxes:Aim", {"env_kwargs": {"low": 1e6, "high": 1e6 + 1}, "distribution": "beta", "scale_actions": False},
     "between low=.* where float32 is too coarse for it; use scale_actions=true or distribution=gaussian"),
    ("a2c", "Pendulum-v1", {"distribution": "beta", "squash_mean": True}, "bounds of its own: use squash_mean=false")])
def test_what_cannot_work_is_refused_with_the_remedy(
        algo: str, env: Any, keys: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        trained(algo, env, tmp_path, steps=64, **{key: value for key, value in keys.items()})


def test_keys_of_box_actions_are_named_where_there_are_none(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    trained("a2c", "CartPole-v1", tmp_path / "discrete", steps=64, squash_mean=True, std="state")
    assert caplog.messages == ["without effect: squash_mean=true, std=state; the actions are discrete [2], not a Box"]
    caplog.clear()
    trained("a2c", hybrid_envs.Panel, tmp_path / "hybrid", steps=64, squash_mean=True)
    trained("acer", "CartPole-v1", tmp_path / "default", steps=64)
    assert not caplog.messages
