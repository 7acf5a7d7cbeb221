"""Box actions of any bounds: the policy acts from -1 to 1, everyone outside sees the environment's units."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import boxes
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import vantage
from vantage.config.config import Config
from vantage.envs.actions import make_actor
from vantage.envs.make import make_environments
from vantage.envs.spaces import describe
from vantage.errors import ConfigError
from vantage.runs.spec_json import spec_to_json
from vantage.runs.validation import read_spec
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

SHORT: dict[str, Any] = {"eval_every": 0, "threads": 1, "tensorboard": False, "log_every_seconds": 1000}
EXTREME = float(np.finfo(np.float32).max)
BOUNDS: dict[str, dict[str, Any]] = {
    "100 to 200": {"low": 100, "high": 200}, "0 to 1000": {"low": 0, "high": 1000},
    "hundredths": {"low": -0.01, "high": 0.01}, "two ranges": {"low": [2, -10], "high": [3, 90]},
    "unit": {"low": -1, "high": 1}, "-2 to 2": {"low": -2, "high": 2}, "0 to 1": {"low": 0, "high": 1},
    "10,000": {"low": -1e4, "high": 1e4}, "whole": {"low": 0, "high": 20, "dtype": "int64"},
    "half unbounded": {"low": [100, -1e30], "high": [200, 1e30], "dtype": "float64"},
    "matrix": {"low": [[0, -5], [10, -1]], "high": [[1, 5], [1000, 1]]},
    "far off": {"low": 1e6, "high": 1e6 + 1, "dtype": "float64"}}


class Aim(boxes.Aim):
    """The benchmark's task, which refuses actions outside its space."""

    def __init__(self, low: Any = -1, high: Any = 1, at: float = 0.7, dtype: str = "float32") -> None:
        super().__init__(low, high, at, dtype)
        self.taken: list[np.ndarray] = []

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.taken.append(action)
        return super().step(action)


class Shown(Aim):
    """Draws a black picture."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **bounds: Any) -> None:
        super().__init__(**bounds)
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.zeros((8, 10, 3), np.uint8)


def aim(algo: str, bounds: str, folder: Path, env: Any = Aim, **options: Any) -> Path:
    config = vantage.configure(algo, env=env, env_kwargs=BOUNDS[bounds], **{**SHORT, **options})
    *_, last = vantage.Trainer(config, run=folder / "run")
    assert last.status == "done"
    return folder / "run"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algo", ["ppo", "a2c", "acer"])
@pytest.mark.parametrize("bounds", [name for name in BOUNDS if name != "far off"])
def test_the_optimum_inside_any_bounds_is_found(algo: str, bounds: str, tmp_path: Path) -> None:
    run = aim(algo, bounds, tmp_path, steps=30_000, seed=100)
    played = vantage.evaluate(run, episodes=20, deterministic=True, checkpoint="latest")
    assert np.mean(played.returns) >= 0.97


def test_bounds_far_from_zero_are_learned_in_seconds(tmp_path: Path) -> None:
    run = aim("a2c", "100 to 200", tmp_path, steps=6_000, lr="5e-3", hidden="32")
    assert np.mean(vantage.evaluate(run, episodes=20, deterministic=True, checkpoint="latest").returns) > 0.8


@pytest.mark.parametrize(("space", "scaled", "action", "arrives"), [
    (spaces.Box(100, 200, (1,)), (True,), [0.5], [175]),
    (spaces.Box(100, 200, (1,)), (True,), [-3.0], [100]),
    (spaces.Box(-0.01, 0.01, (1,)), (True,), [1.0], [np.float32(0.01)]),
    (spaces.Box(np.float32([2, -10]), np.float32([3, 90])), (True, True), [0.0, 1.0], [2.5, 90]),
    (spaces.Box(0, 20, (1,), np.int64), (True,), [0.13], [11]),
    (spaces.Box(-1, 1, (2,)), (), [0.3, -0.7], [np.float32(0.3), np.float32(-0.7)]),
    (spaces.Box(-EXTREME, EXTREME, (1,)), (), [3.5], [3.5]),
    (spaces.Box(-1e30, 1e30, (1,), np.float64), (), [3.5], [3.5]),
    (spaces.Box(0, np.inf, (1,)), (), [3.5], [3.5]),
    (spaces.Box(0, np.iinfo(np.int64).max, (1,), np.int64), (), [3.5], [4]),
    (spaces.Box(150, 150, (1,)), (), [0.0], [150]),
    (spaces.Box(np.float32([100, -np.inf]), np.float32([200, np.inf])), (True, False), [1.0, -7.0], [200, -7]),
    (spaces.Box(1e6, 1e6 + 1, (1,), np.float64), (True,), [0.5], [1e6 + 0.75]),
    (spaces.Box(np.float32([[0, -5], [10, -1]]), np.float32([[1, 5], [1000, 1]])), (True, True, True, False),
     [1.0, 0.0, -1.0, 0.5], [[1, 0], [10, 0.5]])])
def test_bounded_dimensions_are_scaled_and_others_stay(
        space: spaces.Box, scaled: tuple[bool, ...], action: list[float], arrives: list[Any]) -> None:
    spec, convert = make_actor(space, scale=True)
    assert spec.scaled == scaled
    taken = convert(np.array(action, np.float32))
    assert taken.dtype == space.dtype and space.contains(taken) and taken.tolist() == arrives
    in_env_units = make_actor(space)[1](spec.to_env(np.array(action, np.float32)))
    assert in_env_units.tolist() == taken.tolist(), "what act returns arrives as training's actions do"


@pytest.mark.parametrize("bounds", ["matrix", "far off"])
def test_act_and_exports_give_the_units_of_the_environment(bounds: str, tmp_path: Path) -> None:
    run = aim("ppo", bounds, tmp_path, steps=500, num_envs=2, log_std_init=-3)
    agent = vantage.load(run)
    obs = np.zeros((3, 1), np.float32)
    action, _ = agent.act(obs, agent.initial_state(3), deterministic=True)
    space = Aim(**BOUNDS[bounds]).action_space
    middle = (space.low.ravel().astype(float) + space.high.ravel()) / 2
    np.testing.assert_allclose(action, np.tile(middle, (3, 1)), atol=0.2 * np.ptp([space.low, space.high], 0).max())
    file = vantage.export(run, format="safetensors").path
    assert (vantage.load(file).act(obs, agent.initial_state(3), deterministic=True)[0] == action).all()

    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(vantage.export(run, format="onnx").path)
    answer = dict(zip([output.name for output in session.get_outputs()], session.run(None, {"obs": obs}), strict=True))
    np.testing.assert_allclose(answer["action"], action, rtol=1e-6)
    np.testing.assert_allclose(answer["mean"], action, rtol=1e-6)
    half = np.where(np.array(agent.model.spec.action.scaled), (space.high.astype(float) - space.low).ravel() / 2, 1)
    np.testing.assert_allclose(np.exp(answer["log_std"][0]), half * np.exp(-3), rtol=0.2)

    env = agent.make_env(seed=5)
    env.reset()
    score = env.step(agent.act(obs[0], agent.initial_state(), deterministic=True)[0])[1]
    played = vantage.evaluate(run, episodes=1, deterministic=True, seed=5, num_envs=1)
    assert score == pytest.approx(played.returns[0], rel=1e-6)


def test_a_recorded_game_is_played_in_the_units_of_the_environment(tmp_path: Path) -> None:
    run = aim("ppo", "100 to 200", tmp_path, env=Shown, steps=128, num_envs=2)
    recording = vantage.record(run, tmp_path / "game.mp4", episodes=2)
    played = vantage.evaluate(run, episodes=2, deterministic=True).returns
    assert recording.scores == pytest.approx(played)
    assert min(recording.scores) > 0.4, "about the middle of the bounds, not 100, which earns -0.4"


def test_the_start_says_what_is_scaled_and_the_run_keeps_it(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    run = aim("a2c", "half unbounded", tmp_path, steps=100)
    assert "scaled from [-1, 1] to [100, 200]" in caplog.text
    assert "1 of 2 not scaled for lack of two bounds at most 1e+09 apart" in caplog.text
    assert json.loads((run / "config.json").read_text())["env"]["scale_actions"] is True
    assert vantage.load(run).model.spec.action.scaled == (True, False)


def test_specs_and_configs_without_the_entry_are_not_scaled() -> None:
    spec = EnvSpec(ArraySpec("vector", (1,)), ActionSpec("box", (1,), (100.0,), (200.0,), (True,)))
    saved = spec_to_json(spec)
    assert read_spec(json.loads(json.dumps(saved))) == spec
    del saved["action"]["scaled"]
    assert read_spec(saved).action.scaled == ()
    values = json.loads(vantage.configure("ppo", env="Pendulum-v1").to_json())
    del values["env"]["scale_actions"], values["policy"]["std_lr_scale"]
    config = Config.from_json(json.dumps(values), source="old")
    assert (config.env.scale_actions, config.policy.std_lr_scale) == (False, 1.0)


@pytest.mark.parametrize("entry", [[True, True], ["yes"], [1], True, "x"])
def test_an_entry_that_no_run_writes_is_refused(entry: Any) -> None:
    saved = spec_to_json(EnvSpec(ArraySpec("vector", (1,)), ActionSpec("box", (1,), (0.0,), (2.0,))))
    saved["action"]["scaled"] = entry
    with pytest.raises(ValueError, match="spec is"):
        read_spec(saved)


def test_a_run_without_scaling_resumes_and_plays_as_it_did(tmp_path: Path) -> None:
    """As the command did before: actions in the environment's units, clipped to 100."""
    run = aim("a2c", "100 to 200", tmp_path, steps=200, scale_actions=False)
    values = json.loads((run / "config.json").read_text())
    del values["env"]["scale_actions"]
    (run / "config.json").write_text(json.dumps(values))
    *_, last = vantage.Trainer.resume(run, steps=400, extend_schedule=True, trust=True)
    assert last.status == "done" and not vantage.load(run).model.spec.action.scaled
    assert vantage.evaluate(run, episodes=2, deterministic=True).returns == pytest.approx([-0.4, -0.4], abs=1e-5)


def test_a_scaled_run_resumes_exactly(tmp_path: Path) -> None:
    whole = aim("a2c", "two ranges", tmp_path / "whole", steps=256)
    part = aim("a2c", "two ranges", tmp_path / "part", steps=128, schedule_steps=256)
    *_, last = vantage.Trainer.resume(part, steps=256)
    assert last.status == "done"
    agents = [vantage.load(run, checkpoint="latest") for run in (whole, part)]
    for one, other in zip(*(agent.model.state_dict().values() for agent in agents), strict=True):
        assert (one == other).all()


def test_an_environment_of_other_bounds_than_the_policy_is_refused(tmp_path: Path) -> None:
    run = aim("a2c", "100 to 200", tmp_path, steps=100)
    path = run / "config.json"
    path.write_text(path.read_text().replace("200", "300"))
    with pytest.raises(ConfigError, match=r"actions .*scaled to .*300.* the policy was trained with .*200"):
        vantage.evaluate(run, episodes=1, trust=True)


def test_weights_in_other_units_are_refused_with_a_flag_that_helps(tmp_path: Path) -> None:
    run = aim("a2c", "100 to 200", tmp_path, steps=100, scale_actions=False)
    config = vantage.configure("a2c", env=Aim, env_kwargs=BOUNDS["100 to 200"], init_from=str(run), steps=100, **SHORT)
    with pytest.raises(ConfigError, match=r"scaled to their bounds.*; give scale_actions=False$"):
        list(vantage.Trainer(config, run=tmp_path / "new"))
    *_, last = vantage.Trainer(config.change(scale_actions=False), run=tmp_path / "new")
    assert last.status == "done"


def test_weights_keep_their_deviation_under_another_factor_of_its_learning_rate(tmp_path: Path) -> None:
    run = aim("a2c", "100 to 200", tmp_path, steps=100, log_std_init=-1.5)
    config = vantage.configure("ppo", env=Aim, env_kwargs=BOUNDS["100 to 200"], init_from=str(run), steps=128, lr=0,
                               **SHORT)
    assert config.policy.std_lr_scale != vantage.load(run).config.policy.std_lr_scale
    list(vantage.Trainer(config, run=tmp_path / "new"))
    obs = np.zeros((1, 1), np.float32)
    spread = [np.std([agent.act(np.repeat(obs, 2000, 0), agent.initial_state(2000), deterministic=False)[0]])
              for agent in (vantage.load(run), vantage.load(tmp_path / "new", checkpoint="latest"))]
    assert spread[1] == pytest.approx(spread[0], rel=0.1) == pytest.approx(50 * np.exp(-1.5), rel=0.25)


def test_a_box_of_minus_one_to_one_is_not_touched() -> None:
    space = spaces.Box(-1, 1, (3,))
    assert make_actor(space, scale=True)[0] == make_actor(space)[0]
    assert describe(EnvSpec(ArraySpec("vector", (1,)), make_actor(space, scale=True)[0]))[1] == "actions: box 3"


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_training_environments_take_the_policys_units(vector: str) -> None:
    config = vantage.configure("a2c", env=Aim, env_kwargs=BOUNDS["100 to 200"], vector=vector).env
    envs = make_environments(config, seed=0, num_envs=2, stream=0)
    envs.reset()
    assert envs.step(np.array([[0.4], [-1]], np.float32)).rewards.tolist() == pytest.approx([1, 1 - 1.4])
    envs.close()


def test_a_vector_environment_takes_the_policys_units() -> None:
    config = vantage.configure("a2c", env=make_aims).env
    envs = make_environments(config, seed=0, num_envs=2, stream=0)
    envs.reset()
    assert envs.step(np.array([[0.4], [-1]], np.float32)).rewards.tolist() == pytest.approx([1, 1 - 1.4])
    envs.close()
    plain = make_environments(replace(config, scale_actions=False), seed=0, num_envs=2, stream=0)
    assert not plain.spec.action.scaled
    plain.close()


def make_aims(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.vector.SyncVectorEnv([lambda: Aim(100, 200)] * num_envs,
                                    autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("edit", [('"scale_actions": true', '"scale_actions": false'), ("200", "300")])
def test_a_resume_in_other_units_is_refused(edit: tuple[str, str], tmp_path: Path) -> None:
    run = aim("a2c", "100 to 200", tmp_path, steps=100)
    path = run / "config.json"
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(ConfigError, match=r"its actions were box \[1\] scaled to \[\(100.0, 200.0\)\] and are box"):
        list(vantage.Trainer.resume(run, steps=400, extend_schedule=True, trust=True))
