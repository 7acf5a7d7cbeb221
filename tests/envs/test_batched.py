"""Vector environments of other projects: used without wrappers, resumed exactly if they can be seeded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from environments import make
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from test_env_resume import check, moments, uninterrupted

import vantage
from vantage.envs.config import EnvConfig
from vantage.envs.make import make_environments, make_single
from vantage.errors import ConfigError, EnvError

EXAMPLES = Path(__file__).parents[2] / "examples"


class Walk(VectorEnv):
    """Observes (place, seed) as a Dict; ends after `length` steps; pays the place. Each has its own seed."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, num_envs: int, length: int = 5, fault: str = "", masked: bool = False) -> None:
        self.num_envs, self.length, self.fault, self.masked = num_envs, length, fault, masked
        self.single_observation_space = spaces.Dict({"place": spaces.Discrete(9), "at": spaces.Box(-1, 1, (1, 2))})
        self.single_action_space = spaces.Discrete(2, start=3)
        self.place, self.seed = np.zeros(num_envs, np.int64), np.zeros(num_envs)
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        which = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.place[which], self.over[which] = 0, False
        self.seed = np.where(which, np.array(seed) / 2**31, self.seed)
        return self.answer()

    def step(self, actions):
        assert set(actions.tolist()) <= {3, 4}
        if self.fault == "raise" and self.place.max() == 2:
            raise KeyError("lost")
        resetting = self.over
        self.place = np.where(resetting, 0, self.place + 1)
        self.over = (self.place >= self.length) & ~resetting
        obs, info = self.answer()
        rewards = np.where(self.fault == "nan" and self.place.max() == 2, np.nan, self.place.astype(np.float32))
        return obs, rewards, self.over[:1] if self.fault == "shape" else self.over, np.zeros_like(self.over), info

    def answer(self):
        at = np.stack([self.seed, self.place / 10], axis=1)[:, None].astype(np.float32)
        mask = np.stack([self.place % 2 == 0, self.place % 2 == 1], 1) & ~self.over[:, None]
        info = {"action_mask": mask} if self.masked else {}
        return {"place": self.place, "at": at}, info


class Undeclared(Walk):
    """Resets all environments from one seed."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  as Gymnasium declares it

    def reset(self, *, seed=None, options=None):
        assert isinstance(seed, int) and options is None
        return super().reset(seed=seed)


class SameStep(Walk):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  as Gymnasium declares it


def frozen_lakes(num_envs: int) -> VectorEnv:
    return SyncVectorEnv([lambda: gym.make("FrozenLake-v1")] * num_envs)


def cart_poles(num_envs: int) -> VectorEnv:
    return gym.make_vec("CartPole-v1", num_envs, "sync")


def not_a_vector(num_envs: int) -> gym.Env:
    return gym.make("CartPole-v1")


def test_its_observations_rewards_ends_and_masks_arrive_as_those_of_single_environments():
    envs = make("test_batched:Walk", 2, options={"length": 2})
    first = envs.reset()
    assert first.obs["place"].tolist() == [[1, *[0] * 8]] * 2 and first.obs["at"].shape == (2, 2)
    steps = [envs.step(np.array([0, 1])) for _ in range(4)]
    assert [s.rewards.tolist() for s in steps] == [[1, 1], [2, 2], [0, 0], [1, 1]]
    assert [bool(s.terminated.all()) for s in steps] == [False, True, False, False]
    assert [s.is_first.all() for s in steps] == [not s.valid.any() for s in steps] == [False, False, True, False]
    assert [(e.env, e.score, e.length) for e in steps[1].episodes] == [(0, 3.0, 2), (1, 3.0, 2)]
    envs = make("test_batched:Walk", 2, options={"masked": True, "length": 2})
    assert envs.spec.masked and envs.reset().action_mask.tolist() == [[True, False]] * 2
    assert envs.step(np.zeros(2, int)).action_mask.tolist() == [[False, True]] * 2
    assert envs.step(np.zeros(2, int)).action_mask.all(), "no action is chosen after an end, so all are allowed"


def test_numbers_without_an_axis_are_those_of_every_episode():
    class Logging(Walk):
        def answer(self):
            obs, _ = super().answer()
            return obs, {"level": np.array(2), "scale": np.float32(0.5), "log": {"alive": torch.tensor(0.25)},
                         "time_outs": self.over, 3: 4}

    with vantage.Trainer("a2c", env=Logging, num_envs=2, rollout_length=6, threads=1, eval_every=0) as trainer:
        metrics = trainer.update().metrics
    assert {name: value for name, value in metrics.items() if "/info/" in name} == {
        "rollout/info/level": 2, "rollout/info/scale": 0.5, "rollout/info/alive": 0.25}


def test_evaluations_cut_its_games_unless_it_has_a_time_limit():
    walk, limited = (make_environments(EnvConfig(id=f"test_batched:{name}"), seed=0, num_envs=2, stream=1,
                                       evaluation=True, longest_game=70) for name in ("Walk", "cart_poles"))
    assert walk.longest_game == 70
    assert limited.longest_game > 500, "CartPole-v1 ends games after 500 steps itself"


def test_every_environment_has_a_seed_of_its_own_and_goes_on_exactly_with_its_mask():
    run = uninterrupted("test_batched:Walk", 40, options={"masked": True})
    assert len(set(run[1].obs["at"][:, 0])) == 2
    for stop in moments(run[2]):
        check("test_batched:Walk", run, stop, 20, options={"masked": True})


def test_one_that_declares_no_reset_mask_trains_all_the_same_and_says_so():
    envs = make("test_batched:Undeclared", 2)
    assert "resumes are not exact" in " ".join(envs.notes[:-1])
    envs.reset()
    for _ in range(7):
        envs.step(np.zeros(2, int))
    again = make("test_batched:Undeclared", 2)
    first = again.reset(envs.snapshot())
    assert first.lost == (0, 1) and first.is_first.all()
    assert again.snapshot()["episode"].tolist() == [2, 2]


def test_a_large_vector_goes_on_exactly_though_some_environments_stay_where_they_are():
    run = uninterrupted("test_batched:frozen_lakes", 60, num_envs=32)
    check("test_batched:frozen_lakes", run, 40, 20, num_envs=32)


@pytest.mark.parametrize(("fault", "says"), [("raise", "step 3.*KeyError: 'lost'"), ("nan", "reward nan is not finite"),
                                             ("shape", "must have the shape")])
def test_its_errors_are_named(fault, says):
    envs = make("test_batched:Walk", 2, options={"fault": fault})
    envs.reset()
    with pytest.raises(EnvError, match=says):
        for _ in range(4):
            envs.step(np.zeros(2, int))


@pytest.mark.parametrize(("name", "keys", "says"), [
    ("SameStep", {}, "NEXT_STEP"), ("not_a_vector", {}, "not a gymnasium.vector.VectorEnv"),
    ("Walk", {"max_episode_steps": 3}, "max_episode_steps has no effect"),
    ("Walk", {"short_episode_steps": 3}, "short_episode_steps has no effect"),
    ("Walk", {"frame_skip": 2}, "frame_skip has no effect"), ("Walk", {"vector": "async"}, "vector has no effect"),
    ("Walk", {"options": {"size": 2}}, "unexpected keyword")])
def test_one_that_cannot_be_used_is_refused_with_the_remedy(name, keys, says):
    with pytest.raises(ConfigError, match=says):
        make(f"test_batched:{name}", 2, **keys)
    with pytest.raises(ConfigError, match="shows no single game"):
        make_single(EnvConfig(id="test_batched:Walk"), seed=0, stream=0)


class Tensors(Walk):
    """Returns tensors, counts how often it is closed, and has the fault `fault` at its first reset."""

    closed = 0

    def reset(self, *, seed=None, options=None):
        while self.fault == "hangs":
            pass
        return torch.full((self.num_envs, 1), np.nan if self.fault == "nan" else 0.0), {}

    def step(self, actions):
        ends = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.reset()[0], torch.ones(self.num_envs), ends, ends, {}

    def close(self):
        Tensors.closed += 1

    def __init__(self, num_envs: int, fault: str = "") -> None:
        super().__init__(num_envs, fault=fault)
        self.single_observation_space = spaces.Box(-1, 1, (2 if fault == "shape" else 1,))


@pytest.mark.parametrize(("fault", "says"), [("hangs", "longer --env-timeout|longer env_timeout"), ("shape", "shape")])
def test_a_vector_whose_first_reset_fails_is_closed_unless_the_user_built_it(fault, says, monkeypatch):
    monkeypatch.setattr(Tensors, "closed", 0)
    built = vantage.configure("a2c", env=Tensors(2, fault), eval_every=0).env
    for config, closed in ((built, 0), (EnvConfig(id="test_batched:Tensors", env_kwargs=f'{{"fault": "{fault}"}}'), 1)):
        with pytest.raises(EnvError, match=says):
            make_environments(replace(config, env_timeout=0.3), seed=0, num_envs=2, stream=0)
        assert Tensors.closed == closed


def test_a_vector_in_tensors_that_the_user_built_stays_open_after_training(monkeypatch, tmp_path):
    monkeypatch.setattr(Tensors, "closed", 0)
    for env, closed in ((Tensors(2), 0), (lambda num_envs: Tensors(num_envs), 1)):
        config = vantage.configure("a2c", env=env, num_envs=2, steps=20, rollout_length=5, threads=1, eval_every=0)
        list(vantage.Trainer(config, run=tmp_path / f"run-{closed}"))
        assert Tensors.closed == closed
    monkeypatch.setattr(Tensors, "closed", 0)
    config = vantage.configure("a2c", env=Tensors(2), eval_every=0).env
    make_environments(config, seed=0, num_envs=2, stream=1, evaluation=True).close()
    assert Tensors.closed == 1, "the copy that an evaluation plays"


def test_the_example_is_cartpole_resumes_exactly_and_trains(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    envs, one = make("numpy_vector_env:NumpyCartPole", 2), gym.make("CartPole-v1").unwrapped
    obs = envs.reset().obs
    one.reset()
    one.state = obs[0].astype(np.float64)
    for action in (1, 0, 1, 1, 0):
        step, expected = envs.step(np.array([action, 0])), one.step(action)
        np.testing.assert_allclose(step.obs[0], expected[0], atol=1e-6)
    run = uninterrupted("numpy_vector_env:NumpyCartPole", 60)
    for stop in moments(run[2]):
        check("numpy_vector_env:NumpyCartPole", run, stop, 30)
    config = vantage.configure("a2c", env="numpy_vector_env:NumpyCartPole", steps=400, num_envs=4, eval_every=0)
    assert list(vantage.Trainer(config, run=tmp_path / "run"))[-1].status == "done"
