"""Reports on environments in tensors that reset in the step that ends an episode, as Isaac Gym's and Isaac Lab's do.

Trained as if the next step reset, the first step of every episode has no effect, and time limits bootstrap from the
first state of another episode: github.com/leggedrobotics/rsl_rl (r + gamma V(s_t) at `time_outs`),
github.com/DLR-RM/stable-baselines3/issues/633 (time limits counted as ends of the task).
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

import vantage
from vantage.envs.make import make_environments
from vantage.errors import ConfigError, EnvError
from vantage.learning.collect import Position, collect
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.runtimes.startup import new_model

PAGE = Path(__file__).parents[2] / "docs" / "vector-environments.md"
LENGTH, LIMIT, GAMMA = 3, 4, 0.5
SMALL: dict[str, Any] = {"num_envs": 8, "threads": 1, "tensorboard": False, "eval_every": 0, "hidden": "16", "seed": 0,
                         "log_every_seconds": 1000, "gamma": GAMMA}


class Isaac:
    """Pays 1 a step. Odd environments end after 3 steps, even ones are cut after 4. Observes kind, step and 1.

    `reports` has time_outs in info with one flag for all ends, truncated, or truncated and final_obs.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, num_envs: int, reports: str = "time_outs") -> None:
        self.num_envs = num_envs
        self.reports = reports
        self.single_observation_space = spaces.Box(0, 1, (3,))
        self.single_action_space = spaces.Discrete(2)
        self.is_task = torch.arange(num_envs) % 2 == 1
        self.t = torch.zeros(num_envs)

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        self.t = torch.zeros(self.num_envs)
        return self.observe(), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        self.t = self.t + 1
        last = self.observe()
        ended = self.is_task & (self.t >= LENGTH)
        cut = ~self.is_task & (self.t >= LIMIT)
        over = ended | cut
        self.t = torch.where(over, 0.0, self.t)
        rewards = torch.ones(self.num_envs)
        if self.reports == "time_outs":  # an end is flagged as a whole; Isaac Gym's time_outs are integers
            return self.observe(), rewards, over, torch.zeros_like(over), {"time_outs": cut.long()}
        info = {"final_obs": last} if self.reports == "final_obs" else {}
        return self.observe(), rewards, ended, cut, info

    def observe(self) -> Tensor:
        return torch.stack([self.is_task.float(), self.t / LIMIT, torch.ones(self.num_envs)], 1)

    def close(self) -> None:
        """Nothing is open."""


class Undeclared(Isaac):
    metadata: dict[str, Any] = {}  # noqa: RUF012


class Declared(Isaac):
    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012


class Vector(VectorEnv):
    """Derives from Gymnasium's class."""

    metadata: dict[str, Any] = Isaac.metadata
    __init__, reset, step, observe, close = (  # type: ignore[assignment]
        Isaac.__init__, Isaac.reset, Isaac.step, Isaac.observe, Isaac.close)


def made(name: str, reports: str, num_envs: int = 2) -> Any:
    config = vantage.configure("a2c", env=f"{__name__}:{name}", env_kwargs={"reports": reports}, num_envs=num_envs).env
    return make_environments(config, seed=0, num_envs=num_envs, stream=0)


@pytest.mark.parametrize("name", ["Isaac", "Vector"])
def test_no_step_is_lost_and_games_have_their_scores(name: str) -> None:
    envs = made(name, "time_outs")
    envs.restart(0)
    steps = [envs.step(torch.zeros(2, dtype=torch.int64)) for _ in range(6)]
    assert all(step.valid.all() and step.rewards.tolist() == [1, 1] for step in steps)
    assert [step.is_first.tolist() for step in steps] == [
        [False, False]] * 2 + [[False, True], [True, False], [False, False], [False, True]]
    assert [step.terminated.tolist()[1] for step in steps] == [False, False, True, False, False, True]
    assert not any(step.terminated[0] for step in steps) and steps[3].time_outs.tolist() == [True, False]
    assert [(game.env, game.score, game.length) for step in steps for game in step.episodes] == [
        (1, 3.0, 3), (0, 4.0, 4), (1, 3.0, 3)]


@pytest.mark.parametrize("algo", ["a2c", "ppo", "acer"])
@pytest.mark.parametrize("reports", ["time_outs", "truncated", "final_obs"])
def test_the_reward_of_a_time_limit_includes_the_value_of_the_state_it_cut(algo: str, reports: str) -> None:
    config = vantage.configure(algo, env=f"{__name__}:Isaac", env_kwargs={"reports": reports}, steps=100, **SMALL)
    envs = made("Isaac", reports)
    model = new_model(config, envs.spec)
    position = Position.after(envs.restart(0), model.initial_state(2), torch.device("cpu"))
    rollout = collect(model, envs, position, length=5, generator=torch.Generator().manual_seed(0)).rollout
    last = 3 if reports != "final_obs" else 4
    cut = torch.tensor([[0.0, last / LIMIT, 1.0]])
    value = model.step_with_values(cut, torch.zeros(1, dtype=torch.bool), ())[1].item()
    assert rollout.bootstraps is not None
    expected = torch.zeros(5, 2)
    expected[3, 0] = value
    torch.testing.assert_close(rollout.bootstraps, expected)
    assert rollout.terminated.nonzero().tolist() == [[2, 1], [3, 0]]
    assert rollout.keep.all() and not rollout.resets.any()


@pytest.mark.parametrize(("algo", "keys"), [
    ("ppo", {"minibatch_size": 64, "value_norm": "popart"}), ("a2c", {"memory": "gru"}),
    ("acer", {"replay_start": 200, "replay_size": 960})])
def test_values_are_those_of_a_task_without_end_where_only_a_time_limit_ends_it(
        algo: str, keys: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"reward_norm": False, "entropy_coef": 0.0, "lr": 2e-2, "rollout_length": 8} | SMALL
    agent = vantage.train(algo, env=f"{__name__}:Isaac", steps=1_600, **settings | keys)
    state = agent.model.initial_state(2)
    for t in range(LENGTH):
        obs = torch.tensor([[0.0, t / LIMIT, 1.0], [1.0, t / LIMIT, 1.0]])
        _, values, state = agent.model.step_with_values(obs, torch.full((2,), t == 0), state)
        endless, task = values.tolist()
        assert endless == pytest.approx(1 / (1 - GAMMA), abs=0.2), "1.5 at the last if a limit were an end"
        assert task == pytest.approx(sum(GAMMA**i for i in range(LENGTH - t)), abs=0.2)


def test_rewards_of_all_steps_count_for_their_normalisation() -> None:
    normalizer = RewardNormalizer(1, torch.device("cpu"))
    is_first = torch.tensor([[True], [False], [True]])
    resets = torch.zeros(2, 1, dtype=torch.bool)
    count, mean, _ = normalizer.batch(torch.ones(2, 1), is_first, resets, GAMMA)
    assert (float(count), float(mean)) == (2, 1.25)


@pytest.mark.parametrize(("reports", "message"), [
    ("time_outs", "info has time_outs, .*AutoresetMode.SAME_STEP"),
    ("final_obs", "info has final_obs, .*AutoresetMode.SAME_STEP"),
    ("truncated", "the step after the end of an episode pays 1, .*AutoresetMode.SAME_STEP")])
def test_one_that_declares_nothing_is_refused_with_a_remedy(reports: str, message: str) -> None:
    """The remedy is the declaration of `Isaac`."""
    envs = made("Undeclared", reports)
    envs.restart(0)
    with pytest.raises(EnvError, match=message) as error:
        for _ in range(5):
            envs.step(torch.zeros(2, dtype=torch.int64))
    assert "\n" not in str(error.value)


class Unflagged(Isaac):
    """Ends of the task are reported as truncated, and time_outs says that no limit was reached."""

    def step(self, actions: Tensor) -> Any:
        obs, rewards, ended, cut, _ = super().step(actions)
        return obs, rewards, torch.zeros_like(ended), ended | cut, {"time_outs": torch.zeros_like(cut)}


def test_a_truncation_without_a_time_out_ends_the_task() -> None:
    envs = made("Unflagged", "truncated")
    envs.restart(0)
    steps = [envs.step(torch.zeros(2, dtype=torch.int64)) for _ in range(9)]
    assert all(torch.equal(step.terminated, step.is_first) and not step.time_outs.any() for step in steps)
    assert steps[2].terminated.tolist() == [False, True]


def test_reset_steps_that_pay_are_named_once_and_count_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    envs = made("Declared", "truncated")
    envs.restart(0)
    steps = [envs.step(torch.zeros(2, dtype=torch.int64)) for _ in range(9)]
    assert all(not step.rewards[~step.valid].any() and not step.terminated[~step.valid].any() for step in steps)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "the step after the end of an episode pays 1, which has no effect: it only resets; let it pay 0 and end "
        "nothing"]


class Logging(Isaac):
    """Reports numbers of all, in `info` and in its `log`, where an episode ends, as Isaac Lab does."""

    def step(self, actions: Tensor) -> Any:
        *outcome, info = super().step(actions)
        log = {"Episode_Reward/alive": torch.tensor(0.5), "count": torch.arange(self.num_envs), "text": "x"}
        return *outcome, {**info, "curriculum": 3, "level": torch.tensor(2), "log": log if outcome[2].any() else {}}


def test_numbers_of_all_environments_and_of_a_log_are_metrics() -> None:
    keys = {**SMALL, "num_envs": 2, "rollout_length": 4}
    with vantage.Trainer("a2c", env=Logging, steps=8, **keys) as trainer:
        report = trainer.update()
    info = {name.removeprefix("rollout/info/"): value for name, value in report.metrics.items() if "/info/" in name}
    assert info == {"Episode_Reward/alive": 0.5, "count": 0.5, "curriculum": 3, "level": 2}
    assert [game.info["log"]["count"] for game in report.episodes] == [1, 0]


class Lab(gym.Env[Any, Any]):
    """The interface of Isaac Lab's ManagerBasedRLEnv around `Isaac`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, cfg: int) -> None:
        self.simulator = Isaac(cfg, "truncated")
        self.single_observation_space = spaces.Dict({"policy": self.simulator.single_observation_space})
        self.single_action_space = spaces.Box(-torch.inf, torch.inf, (2,))
        self.observation_space = self.single_observation_space
        self.action_space = self.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, info = self.simulator.reset(seed=seed)
        return {"policy": obs}, info

    def step(self, actions: Tensor) -> Any:
        assert actions.shape == (2, 2)
        obs, *rest = self.simulator.step(actions)
        return {"policy": obs}, *rest


def test_the_pages_class_makes_an_environment_of_isaac_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r'```python title="isaac_lab.py"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert block is not None
    module = ModuleType("isaac_lab")
    exec(block[1], module.__dict__)
    utils: Any = SimpleNamespace(parse_env_cfg=lambda task, num_envs: num_envs)
    monkeypatch.setitem(sys.modules, "isaac_lab", module)
    monkeypatch.setitem(sys.modules, "isaaclab_tasks", ModuleType("isaaclab_tasks"))
    monkeypatch.setitem(sys.modules, "isaaclab_tasks.utils", utils)
    gym.register("Isaac-Ant-v0", Lab, disable_env_checker=True, order_enforce=False)
    try:
        config = vantage.configure("ppo", env="isaac_lab:IsaacLab", num_envs=2).env
        envs = make_environments(config, seed=0, num_envs=2, stream=0)
        envs.restart(0)
        steps = [envs.step(torch.zeros(2, 2)) for _ in range(4)]
    finally:
        del gym.registry["Isaac-Ant-v0"]
    assert steps[3].time_outs.tolist() == [True, False]
    assert [game.length for step in steps for game in step.episodes] == [3, 4]


class WithNext(vantage.A2C):
    """Asks for the observations after each step, which are those of the next episode at an end."""

    @property
    def needs(self) -> Any:
        return replace(super().needs, next_inputs=True)  # type: ignore[misc]


def test_an_algorithm_that_needs_next_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"WithNext needs next_inputs, and .*Isaac resets in the same step; let it"):
        vantage.Trainer(WithNext, env=f"{__name__}:Isaac", run=tmp_path / "run", steps=100, **SMALL)
