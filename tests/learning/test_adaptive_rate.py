"""A learning rate that follows the KL divergence, and coefficients as functions of the progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun
from stopping import saved_tensors, stop_after

import vantage
from vantage.errors import ConfigError
from vantage.keys.schedules import Schedule
from vantage.learning.adaptive_rate import AdaptiveRate
from vantage.runs.metrics import read_metrics

PPO: dict[str, Any] = {
    "env": "CartPole-v1", "num_envs": 4, "rollout_length": 16, "epochs": 3, "hidden": "8", "threads": 1,
    "eval_every": 0, "tensorboard": False, "log_every_seconds": 0, "lr": "kl:0.003:1e-3", "steps": 512}


class Own(vantage.PPO):
    """PPO under a name that may run under hogwild."""


def test_the_rate_falls_above_twice_the_target_and_rises_below_its_half() -> None:
    rate = AdaptiveRate.of(Schedule.parse("kl:0.01:1e-3"))
    assert rate is not None
    found = []
    for divergence in (0.021, 0.02, 0.005, 0.0049, 0.0049):
        rate.follow({"train/approx_kl": divergence})
        found.append(rate.rate)
    assert found == pytest.approx([1e-3 / 1.5, 1e-3 / 1.5, 1e-3 / 1.5, 1e-3, 1.5e-3])
    for divergence, bound in ((0.0, 1e-2), (1.0, 1e-6)):
        for _ in range(40):
            rate.follow({"train/approx_kl": divergence})
        assert rate.rate == bound
    with pytest.raises(ConfigError, match="which the algorithm does not log"):
        rate.follow({})


def test_updates_of_ppo_have_the_rate_that_their_divergences_give(tmp_path: Path) -> None:
    with vantage.Trainer("ppo", run=tmp_path / "run", **PPO) as trainer:
        expected = 1e-3
        rates = set()
        while trainer.status == "running":
            metrics = trainer.update().metrics
            assert metrics["train/learning_rate"] == pytest.approx(expected)
            rates.add(round(expected, 9))
            divergence = metrics["train/approx_kl"]
            expected *= 1.5 if divergence < 0.0015 else 1 / 1.5 if divergence > 0.006 else 1
            expected = min(expected, 1e-2)
            assert trainer.lr == pytest.approx(expected), "the rate of the next update"
        assert len(rates) > 2, "the test needs a rate that changes"


@pytest.mark.parametrize("more", [{}, {"eval_ema": 0.9, "critic_lr_scale": 2.0}])
def test_a_resume_has_the_rate_and_the_averages_of_a_run_without_a_stop(tmp_path: Path, more: dict[str, Any]) -> None:
    config = vantage.configure("ppo", **PPO | more)
    stop_after(100, tmp_path / "whole", config)
    stop_after(4, tmp_path / "stopped", config)
    stop_after(100, tmp_path / "stopped")
    whole, stopped = saved_tensors(tmp_path / "whole"), saved_tensors(tmp_path / "stopped")
    assert "learning_rate/rate" in whole and whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    rates = [line.get("train/learning_rate") for line in read_metrics(tmp_path / "whole")]
    assert rates == [line.get("train/learning_rate") for line in read_metrics(tmp_path / "stopped")]


@pytest.mark.parametrize(("algo", "keys", "words"), [
    ("a2c", {"lr": "kl:0.01"}, "a2c does not make; .* train ppo"), ("acer", {"lr": "kl:0.01"}, "acer does not make"),
    (Own, {"lr": "kl:0.01", "runtime": "hogwild"}, "runtime=hogwild update at the same time"),
    ("ppo", {"entropy_coef": "kl:0.01"}, "only lr follows"), ("ppo", {"lr": "kl:0"}, "kl:TARGET:START"),
    ("ppo", {"lr": "kl:0.01:0.1"}, "START from 1e-06 to 0.01"), ("ppo", {"lr": "kl:0.01:1e-3:2"}, "not a schedule")])
def test_a_rate_by_divergence_is_refused_where_it_cannot_work(algo: Any, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        vantage.configure(algo, env="CartPole-v1", **keys)


def test_a_rate_by_divergence_times_a_factor_begins_elsewhere_with_the_same_target() -> None:
    assert (Schedule.parse("kl:0.01") * 2).values == (0.01, 6e-4)
    assert Schedule.parse(str(Schedule.parse("kl:0.01:1e-3") * 2)).values == (0.01, 2e-3)


@pytest.mark.parametrize("algo", ["a2c", "ppo", "acer"])
def test_every_coefficient_may_be_a_function_of_the_progress(algo: str) -> None:
    plain = vantage.configure(algo, env="CartPole-v1", steps=1000)
    names = [name for name, key in plain.settable().items() if "Schedule" in str(key.hint)]
    assert {"lr", "max_grad_norm", "gamma", "entropy_coef"} <= set(names)
    config = vantage.configure(algo, env="CartPole-v1", steps=1000,
                               **dict.fromkeys(names, lambda progress: 0.5 - 0.25 * progress))
    for name in names:
        assert [config.at(name, step) for step in (0, 500, 1000)] == pytest.approx([0.5, 0.375, 0.25]), name


def test_a_rate_of_the_critic_moves_its_parameters_alone() -> None:
    moves = {}
    for separate in (False, True):
        for scale in (1.0, 0.5):
            config = vantage.configure("a2c", env="tiny:DelayedReward", num_envs=4, rollout_length=8, hidden="4",
                                       threads=1, separate=separate, critic_lr_scale=scale, lr=1e-3)
            with begun(config) as one:
                before = {name: each.detach().clone() for name, each in one.model.named_parameters()}
                one.advance(lambda: 0)
                moves[scale] = {name: each - before[name] for name, each in one.model.named_parameters()}
        for name, move in moves[1.0].items():
            assert name != "value_head.weight" or move.abs().max() > 1e-6
            of_critic = name.startswith(("value_head", "critic"))
            torch.testing.assert_close(moves[0.5][name], move * (0.5 if of_critic else 1), atol=1e-7, rtol=1e-3)


def test_a_rate_that_would_follow_a_single_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="single step, of 256 rows"):
        vantage.configure("ppo", env="CartPole-v1", lr="kl:0.01", epochs=1, minibatch_size=256, num_envs=8,
                          rollout_length=32)


def test_a_multiple_of_the_schedule_can_be_read_again() -> None:
    assert Schedule.parse("kl:0.01:5e-3") * 4 == Schedule.parse("kl:0.01:1e-2")


def test_the_rate_of_a_trainer_is_that_of_the_next_update(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": "CartPole-v1", "num_envs": 4, "rollout_length": 16, "minibatch_size": 16,
                               "epochs": 2, "threads": 1, "run": tmp_path / "run", "lr": "kl:0.5:1e-3"}
    with vantage.Trainer("ppo", steps=10_000, **options) as trainer:
        for _ in range(3):
            trainer.update()
        before = trainer.lr
        assert before > 1e-3
    with vantage.Trainer.resume(tmp_path / "run") as trainer:
        assert trainer.lr == before
        trainer.lr = "kl:0.02:1e-4"
        assert trainer.lr == 1e-4
