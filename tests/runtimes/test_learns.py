"""Learning, end to end: each tiny environment needs one property, and is learnt in seconds. Break one and see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import vantage
from vantage.training import Agent

FAST = {"num_envs": 8, "rollout_length": 4, "lr": "5e-3", "gamma": "0.95", "gae_lambda": "0.95", 
        "entropy_coef": "0.01", "optimizer": "adam", "separate": False, "obs_norm": False,
        "reward_norm": False, "advantage_norm": False, 
        "eval_every": 0, "threads": 1, "hidden": "32", "tensorboard": False, "log_every_seconds": 1000}
LEARNT = 0.92  # of the 1 that the best policy gets


def learn(env: str, folder: Path, steps: int, *, until: float | None = None, **options: object) -> tuple[Agent, float]:
    """Train, and return the policy and the mean return of the last 100 episodes, at which `until` ends the training."""
    chosen = {"algo": "a2c", "stop_at_return": until} | FAST | options
    algo = str(chosen.pop("algo"))
    if algo == "acer":
        del chosen["gae_lambda"], chosen["advantage_norm"]
    config = vantage.configure(algo, env=f"tiny:{env}", steps=steps, **chosen)
    *_, last = vantage.train(config, run=folder / "run")
    return vantage.load(folder / "run", checkpoint="latest"), last.metrics["rollout/ep_rew_mean"]


def greedy(agent: Agent, obs: object) -> np.ndarray:
    actions, _ = agent.act(np.asarray(obs, np.float32), agent.initial_state(len(obs)))  # type: ignore[arg-type]
    return actions


def test_a_bandit_needs_the_advantage(tmp_path: Path) -> None:
    _, score = learn("Bandit", tmp_path, 3_000)
    assert score > 0.95


def test_a_delayed_reward_needs_the_bootstrap_value(tmp_path: Path) -> None:
    _, score = learn("DelayedReward", tmp_path, 12_000, until=LEARNT)
    assert score > 0.9


def test_a_time_limit_is_not_an_end(tmp_path: Path) -> None:
    agent, _ = learn("TimeLimitChain", tmp_path, 10_000)
    assert greedy(agent, np.eye(6)).tolist() == [1] * 6


@pytest.mark.parametrize("options", [{"memory": "lstm", "memory_size": 16}, {"memory": "gru", "memory_size": 16},
                                     {"frame_stack": 4}], ids=["lstm", "gru", "frames"])
def test_recall_needs_memory(tmp_path: Path, options: dict[str, object]) -> None:
    _, score = learn("Recall", tmp_path, 25_000, until=LEARNT, rollout_length=10, **options)
    assert score > 0.9


def test_recall_without_memory_stays_at_chance(tmp_path: Path) -> None:
    _, score = learn("Recall", tmp_path, 10_000, rollout_length=10)
    assert score < 0.75


@pytest.mark.parametrize("std", ["free", "state"])
def test_a_continuous_target_needs_the_gaussian(tmp_path: Path, std: str) -> None:
    agent, _ = learn("ContinuousTarget", tmp_path, 40_000, until=-0.03, std=std, log_std_init=-0.5, entropy_coef=0)
    targets = np.linspace(-0.7, 0.7, 5)[:, None]
    assert np.abs(greedy(agent, targets) - targets).max() < 0.2


@pytest.mark.parametrize("kwargs", ["{}", '{"binary": true}'], ids=["multi_discrete", "multi_binary"])
def test_two_switches_are_learnt_together(tmp_path: Path, kwargs: str) -> None:
    _, score = learn("TwoSwitches", tmp_path, 15_000, until=LEARNT, env_kwargs=kwargs)
    assert score > 0.9


def test_a_mask_forbids(tmp_path: Path) -> None:
    _, score = learn("MaskedBandit", tmp_path, 3_000)
    assert score > 0.9


def test_a_picture_and_a_number_are_seen_together(tmp_path: Path) -> None:
    _, score = learn("Picture", tmp_path, 20_000, until=LEARNT, network="mlp")
    assert score > 0.9


def test_vtrace_and_normalised_advantages_learn(tmp_path: Path) -> None:
    _, score = learn("DelayedReward", tmp_path, 12_000, until=LEARNT, vtrace=True, advantage_norm=True)
    assert score > 0.9


def test_the_policy_of_a_run_needs_no_environment(tmp_path: Path) -> None:
    agent, _ = learn("Bandit", tmp_path, 3_000)
    state = agent.initial_state(batch=1)
    action, state = agent.act(torch.zeros(1, 1), state)
    assert action.tolist() == [1]


ACER = {"algo": "acer", "replay_start": 200, "replay_size": 5_000}


def test_acer_learns_a_delayed_reward_from_fewer_steps(tmp_path: Path) -> None:
    _, score = learn("DelayedReward", tmp_path, 3_000, until=LEARNT, **ACER)
    assert score > 0.9


def test_acer_knows_that_a_time_limit_is_not_an_end(tmp_path: Path) -> None:
    agent, _ = learn("TimeLimitChain", tmp_path, 4_000, **ACER)
    assert greedy(agent, np.eye(6)).tolist() == [1] * 6


def test_acer_recalls_with_an_lstm(tmp_path: Path) -> None:
    _, score = learn("Recall", tmp_path, 10_000, until=LEARNT, rollout_length=10, memory="lstm",
                     memory_size=16, **ACER)
    assert score > 0.9


@pytest.mark.parametrize(("std", "steps"), [("fixed", 6_000), ("state", 3_000)])
def test_acer_learns_a_continuous_target(tmp_path: Path, std: str, steps: int) -> None:
    agent, _ = learn("ContinuousTarget", tmp_path, steps, std=std, log_std_init=-1, entropy_coef=0, **ACER)
    targets = np.linspace(-0.7, 0.7, 5)[:, None]
    assert np.abs(greedy(agent, targets) - targets).max() < 0.2


def test_acer_minds_a_mask(tmp_path: Path) -> None:
    _, score = learn("MaskedBandit", tmp_path, 1_500, **ACER)
    assert score > 0.9


PPO = {"algo": "ppo", "rollout_length": 16, "minibatch_size": 32, "epochs": 4, "lr": "3e-3"}


def test_ppo_learns_a_delayed_reward(tmp_path: Path) -> None:
    _, score = learn("DelayedReward", tmp_path, 12_000, until=LEARNT, **PPO)
    assert score > 0.9


def test_ppo_knows_that_a_time_limit_is_not_an_end(tmp_path: Path) -> None:
    agent, _ = learn("TimeLimitChain", tmp_path, 8_000, **PPO)
    assert greedy(agent, np.eye(6)).tolist() == [1] * 6


@pytest.mark.parametrize("options", [{"memory": "lstm", "memory_size": 16}, {"frame_stack": 4}], ids=["lstm", "frames"])
def test_ppo_recalls(tmp_path: Path, options: dict[str, object]) -> None:
    _, score = learn("Recall", tmp_path, 20_000, until=LEARNT, **PPO | options)
    assert score > 0.9


def test_ppo_learns_a_continuous_target(tmp_path: Path) -> None:
    agent, _ = learn("ContinuousTarget", tmp_path, 20_000, until=-0.03, log_std_init=-0.5, entropy_coef=0, **PPO)
    targets = np.linspace(-0.7, 0.7, 5)[:, None]
    assert np.abs(greedy(agent, targets) - targets).max() < 0.2


def test_ppo_minds_a_mask(tmp_path: Path) -> None:
    _, score = learn("MaskedBandit", tmp_path, 3_000, **PPO)
    assert score > 0.9
