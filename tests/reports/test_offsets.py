"""Large offsets in observations: subtracted before float32 loses them, the same numbers wherever a policy plays."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any

import environments
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from shown_envs import CLOCK

import vantage
from vantage.envs.checks import bounds_of
from vantage.envs.offsets import first_offsets
from vantage.envs.spaces import make_observer
from vantage.errors import ConfigError
from vantage.runs.spec_json import spec_from_json, spec_to_json
from vantage.specs import ActionSpec, EnvSpec


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_large_offset_is_subtracted_in_the_precision_of_the_environment(dtype: str) -> None:
    specs, seen = [], set()
    for seed, stream, evaluation in ((0, 0, False), (1, 0, False), (0, 1, True)):
        with closing(environments.make("shown_envs:Clock", 2, seed=seed, stream=stream, evaluation=evaluation,
                                       options={"dtype": dtype})) as envs:
            specs.append(envs.spec.obs)
            seen |= {tuple(row) for row in envs.reset().obs.tolist()}
            for _ in range(6):
                seen |= {tuple(row) for row in envs.step(np.zeros(2, int)).obs.tolist()}
    (offset, small), = {spec.shift for spec in specs}
    assert offset in (CLOCK, CLOCK + 10) and small == 0, "the same in training and evaluations of any seed"
    assert seen == {(CLOCK - offset, 3), (CLOCK + 10 - offset, 3)}
    assert spec_from_json(json.loads(json.dumps(spec_to_json(EnvSpec(specs[0], ActionSpec("discrete", (2,))))))
                             ).obs == specs[0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_a_clock_in_nanoseconds_loses_none(dtype: Any) -> None:
    now = 1_700_000_000_123_456_789
    space = spaces.Box(0, 2**63 - 1, (1,), dtype)
    _, observe = make_observer(space, shifts={"": (now,)})
    assert [observe(np.array([now + step], dtype)).item() for step in (-7, 0, 3)] == [-7, 0, 3]


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "faulty_envs:Counter"])
def test_ordinary_observations_are_not_shifted(env: str) -> None:
    with closing(environments.make(env)) as envs:
        assert envs.spec.shifts == {}


def test_the_offset_is_saved_with_a_run_and_used_by_its_evaluation_and_resume(tmp_path: Any) -> None:
    config = vantage.configure("a2c", env="shown_envs:Clock", steps=200, seed=3, threads=1, eval_every=100)
    for _ in vantage.Trainer(config, run=tmp_path / "run"):
        pass
    agent = vantage.load(tmp_path / "run")
    (offset, small), = agent.config.env.shifts.values()
    assert offset in (CLOCK, CLOCK + 10) and small == 0
    assert agent.model.spec.obs.shift == (offset, 0)
    assert vantage.evaluate(tmp_path / "run", episodes=2, num_envs=1).episodes == 2
    for _ in vantage.Trainer.resume(tmp_path / "run", steps=400, extend_schedule=True):
        pass
    assert vantage.load(tmp_path / "run", checkpoint="latest").model.spec.obs.shift == (offset, 0)


def test_the_bounds_of_a_shifted_part_are_shifted_too() -> None:
    space = spaces.Box(CLOCK, CLOCK + 100, (1,), np.int64)
    low, high = bounds_of(space, make_observer(space, shifts={"": (CLOCK,)})[0])[""]
    assert low[0] == pytest.approx(0, abs=1e-3) and high[0] == pytest.approx(100, abs=0.1)


def test_a_part_of_a_dict_is_shifted_by_its_name_and_others_are_not() -> None:
    space = spaces.Dict({"clock": spaces.Box(-np.inf, np.inf, (1,), np.float64),
                         "seed": spaces.Box(0, 2**40, (1,), np.int64), "small": spaces.Box(0, 2e9, (1,))})
    firsts = [{"clock": np.array([CLOCK + 0.25 * i]), "seed": np.array([1 + 10**8 * i]),
               "small": np.float32([CLOCK])} for i in range(2)]
    spec, _ = make_observer(space)
    assert first_offsets(lambda seed: firsts.pop(0), space, spec) == {"clock": (CLOCK,)}


@pytest.mark.parametrize("text", ['{"x": [1]}', '{"": [1, 2, 3]}', '{"": "1"}', "{", '{"": [NaN, 1]}'])
def test_offsets_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="obs_shift"):
        environments.make("shown_envs:Clock", obs_shift=text)


class Now(gym.Env[Any, Any]):
    """A clock that no two processes and no two episodes begin with alike."""

    def __init__(self, sign: int = 1) -> None:
        self.sign = sign
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.array([self.sign * time.time()]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.array([self.sign * time.time()]), 1.0, self.t >= 5, False, {}


def many(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Now] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


QUIET: dict[str, Any] = {"steps": 64, "num_envs": 2, "threads": 1, "tensorboard": False, "eval_every": 32,
                         "eval_episodes": 2}


@pytest.mark.parametrize("env", ["Now", "many"])
def test_a_clock_keeps_the_offset_of_the_policys_first_look(env: str, tmp_path: Any) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:{env}", **QUIET)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done" and last.metrics["eval/mean_reward"] == 5
    shift = vantage.load(tmp_path / "run").model.spec.shifts
    assert vantage.evaluate(tmp_path / "run", episodes=2).return_mean == 5
    *_, last = vantage.Trainer.resume(tmp_path / "run", steps=128, extend_schedule=True)
    assert last.status == "done" and vantage.load(tmp_path / "run").model.spec.shifts == shift


def test_weights_of_another_offset_are_refused_with_the_key_that_helps(tmp_path: Any) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:Now", **QUIET)
    list(vantage.Trainer(config, run=tmp_path / "run"))
    again = config.change(init_from=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"give obs_shift '(.*)'$") as error:
        list(vantage.Trainer(again, run=tmp_path / "new"))
    *_, last = vantage.Trainer(again.change(obs_shift=str(error.value).split("'")[1]), run=tmp_path / "new")
    assert last.status == "done"
