"""Learning, end to end: each tiny environment needs one property, and is learnt in seconds. Break one and see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vantage
from vantage.agents.agent import Agent

pytestmark = pytest.mark.integration

FAST = {"num_envs": 8, "rollout_length": 4, "lr": "5e-3", "gamma": "0.95", "gae_lambda": "0.95",
        "entropy_coef": "0.01", "optimizer": "adam", "separate": False, "obs_norm": False,
        "reward_norm": False, "advantage_norm": False,
        "eval_every": 0, "threads": 1, "hidden": "32", "tensorboard": False, "log_every_seconds": 1000}
LEARNT = 0.92  # of the 1 that the best policy gets
LSTM, FRAMES = {"memory": "lstm", "memory_size": 16}, {"frame_stack": 4}
ACER = {"algo": "acer", "replay_start": 200, "replay_size": 5_000}
PPO = {"algo": "ppo", "rollout_length": 16, "minibatch_size": 32, "epochs": 4, "lr": "3e-3"}
# Rollouts are shorter than the three steps to the cue, and the window just reaches it.
ACROSS_ROLLOUTS = {"rollout_length": 2, "num_envs": 16, "minibatch_size": 16, "memory": "gtrxl", "memory_size": 16,
                   "memory_window": 3, "memory_layers": 1, "memory_heads": 2}


def learn(env: str, folder: Path, steps: int, *, until: float | None = None, **options: object) -> tuple[Agent, float]:
    """Train, and return the policy and the mean return of the last 100 episodes, at which `until` ends the training."""
    chosen = {"algo": "a2c", "stop_at_return": until} | FAST | options
    algo = str(chosen.pop("algo"))
    if algo == "acer":
        del chosen["gae_lambda"], chosen["advantage_norm"]
    config = vantage.configure(algo, env=f"tiny:{env}", steps=steps, **chosen)
    *_, last = vantage.Trainer(config, run=folder / "run")
    return vantage.load(folder / "run", checkpoint="latest"), last.metrics["rollout/ep_rew_mean"]


def greedy(agent: Agent, obs: Any) -> np.ndarray:
    states = agent.initial_state(len(obs))
    actions, _ = agent.act(np.asarray(obs, np.float32), states, deterministic=True)
    return actions


@pytest.mark.parametrize(("env", "steps", "options"), [
    ("DelayedReward", 12_000, {}),
    ("DelayedReward", 3_000, ACER),
    ("DelayedReward", 12_000, PPO),
    ("Recall", 25_000, LSTM | {"rollout_length": 10}),
    ("Recall", 25_000, FRAMES | {"rollout_length": 10}),
    ("Recall", 10_000, LSTM | ACER | {"rollout_length": 10}),
    ("Recall", 20_000, LSTM | PPO),
    ("Recall", 20_000, PPO | ACROSS_ROLLOUTS),
    ("TwoSwitches", 15_000, {}),
    ("TwoSwitches", 15_000, {"env_kwargs": '{"binary": true}'}),
    ("Picture", 20_000, {"network": "mlp"}),
    ("MaskedBandit", 3_000, {}),
])
def test_a_task_that_needs_one_property_is_learnt(
        env: str, steps: int, options: dict[str, Any], tmp_path: Path) -> None:
    """A bootstrap value, memory, actions of several parts or bits, observations of several parts, action masks."""
    _, score = learn(env, tmp_path, steps, until=LEARNT, **options)
    assert score > 0.9


def test_a_bandit_needs_the_advantage_and_its_policy_no_environment(tmp_path: Path) -> None:
    agent, score = learn("Bandit", tmp_path, 3_000)
    assert score > 0.95
    action, _ = agent.act(torch.zeros(1, 1), agent.initial_state(batch=1), deterministic=True)
    assert action.tolist() == [1]


def test_recall_without_memory_stays_at_chance(tmp_path: Path) -> None:
    _, score = learn("Recall", tmp_path, 10_000, rollout_length=10)
    assert score < 0.75


@pytest.mark.parametrize(("steps", "options"), [(10_000, {}), (4_000, ACER)], ids=["a2c", "acer"])
def test_a_time_limit_is_not_an_end(steps: int, options: dict[str, Any], tmp_path: Path) -> None:
    agent, _ = learn("TimeLimitChain", tmp_path, steps, **options)
    assert greedy(agent, np.eye(6)).tolist() == [1] * 6


@pytest.mark.parametrize(("steps", "until", "options"), [
    (40_000, -0.03, {"std": "free", "log_std_init": -0.5}),
    (20_000, -0.03, {"log_std_init": -0.5} | PPO),
    (3_000, None, {"std": "state", "log_std_init": -1} | ACER),
], ids=["free", "ppo", "acer-state"])
def test_a_continuous_target_needs_the_gaussian(
        steps: int, until: float | None, options: dict[str, Any], tmp_path: Path) -> None:
    agent, _ = learn("ContinuousTarget", tmp_path, steps, until=until, entropy_coef=0, **options)
    targets = np.linspace(-0.7, 0.7, 5)[:, None]
    assert np.abs(greedy(agent, targets) - targets).max() < 0.2
