"""Normalised values: preserved where the statistics of their targets change, in raw units outside of learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun
from stopping import saved_tensors, stop_after
from torch import Tensor

import vantage
from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.models.normalization import stats_of
from vantage.models.value_norm import ValueNormalizer
from vantage.tools.onnx_policy import PolicyStep

POPART: dict[str, Any] = {"value_norm": "popart", "obs_norm": False}
SHORT: dict[str, Any] = {"env": "tiny:DelayedReward", "num_envs": 4, "rollout_length": 8, "steps": 256, "hidden": "8",
                         "threads": 1, "tensorboard": False, "eval_every": 0, "log_every_seconds": 1000,
                         "optimizer": "adam", "reward_scale": 5000.0, **POPART}
LEARNING = {**SHORT, "num_envs": 8, "rollout_length": 16, "steps": 10_000, "hidden": "32", "lr": 3e-3, "gamma": 0.95,
            "gae_lambda": 0.95, "entropy_coef": 0.01, "advantage_norm": False, "seed": 0, "stop_at_return": 0.92}
A2C = {"rollout_length": 4, "lr": 5e-3, "steps": 15_000}


def configure(algo: str, **options: Any) -> vantage.Config:
    return vantage.configure(algo, **SHORT | options)


def values_of(model: ActorCritic, obs: Tensor) -> Tensor:
    with torch.no_grad():
        return model.step_with_values(obs, torch.zeros(len(obs), dtype=torch.bool), model.initial_state(len(obs)))[1]


def test_values_are_preserved_where_the_statistics_change() -> None:
    torch.manual_seed(0)
    norm = ValueNormalizer()
    head = torch.nn.Linear(5, 1)
    features = torch.randn(9, 5)
    before = norm(head(features)) * norm.deviation
    for scale in (1e4, 1e-3, 300.0):
        targets = scale * (torch.randn(50, 1) + 3).double()
        norm.follow(stats_of(targets), [head])
        torch.testing.assert_close(norm(head(features)) * norm.deviation, before, rtol=0, atol=1e-5 * 1e4)
    norm = ValueNormalizer()
    norm.follow(stats_of(targets), [head])
    torch.testing.assert_close((norm.mean, norm.deviation), (targets.mean(0).float(), targets.std(0).float()),
                               rtol=0.02, atol=0)


@pytest.mark.parametrize(("algo", "options"), [
    ("ppo", {}), ("a2c", {}), ("ppo", {"memory": "gru", "memory_size": 4, "eval_ema": 0.5}),
    ("ppo", {"past_rollouts": 2}), ("a3c", {"num_workers": 1})])
def test_an_update_at_a_rate_of_0_changes_statistics_and_no_value(algo: str, options: dict[str, Any]) -> None:
    with begun(configure(algo, lr=0.0, **options)) as one:
        obs = torch.randn(6, 7)
        models = [one.model] + ([one.learner.ema.model] if one.learner.ema else [])
        before = [values_of(model, obs) for model in models]
        for _ in range(3):
            one.advance(lambda: 0)
        norm = one.model.value_norm
        assert norm is not None and 1e-4 < norm.deviation < 5000 and norm.count > 32
        for model, values in zip(models, before, strict=True):
            assert model.value_norm is not None and torch.equal(model.value_norm.var, norm.var)
            torch.testing.assert_close(values_of(model, obs), values, rtol=1e-4, atol=1e-3)


def test_unrolled_values_are_those_of_steps_in_units_of_the_deviation() -> None:
    for options in ({}, {"memory": "gru", "memory_size": 4}):
        with begun(configure("ppo", **options)) as one:
            for _ in range(4):
                one.advance(lambda: 0)
            (rollout,), _ = one.collect()
            assert rollout.values is not None and one.model.value_norm is not None
            with torch.no_grad():
                values = one.model.unroll(rollout.obs, rollout.is_first, rollout.state)[1]
            assert one.model.value_norm.deviation > 10
            torch.testing.assert_close(values * one.model.value_norm.deviation, rollout.values, rtol=1e-4, atol=1e-2)
            scaled = one.learner._prepared(rollout, 0)
            torch.testing.assert_close(scaled.rewards * one.model.value_norm.deviation, rollout.rewards)


@pytest.mark.parametrize(("algo", "options"), [
    ("ppo", {}), ("a2c", A2C), ("a2c", A2C | {"activation": "elu"}),
    ("a3c", A2C | {"num_workers": 1})])
def test_rewards_in_thousands_are_learnt_as_those_of_1(algo: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Without value_norm, or with statistics that stay at 0 and 1, the return stays below 0.8."""
    *_, last = vantage.Trainer(algo, run=tmp_path / "run", **LEARNING | options)
    assert last.metrics["rollout/ep_rew_mean"] > 0.9
    if algo != "a3c":  # whose last report may be the mean of all updates, the first included
        assert last.metrics["train/value_loss"] < 2


@pytest.mark.parametrize(("algo", "options"), [
    ("ppo", {"eval_ema": 0.9}), ("ppo", {"num_workers": 2}), ("a2c", {}), ("ppo", {"past_rollouts": 2})])
def test_a_resume_is_exact(tmp_path: Path, algo: str, options: dict[str, Any]) -> None:
    config = configure(algo, **options)
    list(vantage.Trainer(config, run=tmp_path / "whole"))
    stop_after(3, tmp_path / "stopped", config)
    list(vantage.Trainer.resume(tmp_path / "stopped"))
    whole, stopped = saved_tensors(tmp_path / "whole"), saved_tensors(tmp_path / "stopped")
    assert whole["model/value_norm.count"] > 1
    assert whole.keys() == stopped.keys() and all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_a_worker_that_shares_its_values_learns_as_one_process_does(tmp_path: Path) -> None:
    saved = []
    for algo, options in (("a2c", {}), ("a3c", {"num_workers": 1})):
        list(vantage.Trainer(configure(algo, **options, lr=1e-3), run=tmp_path / algo))
        saved.append(saved_tensors(tmp_path / algo))
    for name in ("model/value_norm.var", "model/value_head.weight", "model/policy_head.linear.weight"):
        assert torch.equal(saved[0][name], saved[1][name])


@pytest.mark.parametrize("source", ["none", "popart"])
def test_weights_keep_their_values_where_the_normalisation_changes(source: str, tmp_path: Path) -> None:
    other = {"none": "popart", "popart": "none"}[source]
    list(vantage.Trainer(configure("a2c", value_norm=source), run=tmp_path / "old"))
    list(vantage.Trainer(configure("ppo", value_norm=other, save_every=10_000,
                                  init_from=str(tmp_path / "old")), run=tmp_path / "new"))
    obs = torch.randn(6, 7)
    old = vantage.load(tmp_path / "old").model
    new = vantage.load(tmp_path / "new", checkpoint="0").model
    assert (old.value_norm is None) == (new.value_norm is not None)
    torch.testing.assert_close(values_of(new, obs), values_of(old, obs), rtol=1e-4, atol=1e-2)


def test_exported_values_are_in_units_of_rewards() -> None:
    with begun(configure("ppo")) as one:
        for _ in range(4):
            one.advance(lambda: 0)
        obs = torch.randn(6, 7)
        value = PolicyStep(one.model).call({"obs": obs})["value"]
        torch.testing.assert_close(value, values_of(one.model, obs))
        assert one.model.value_norm is not None and value.std() > one.model.value_norm.deviation / 100


class Silent(vantage.A2C):
    """Computes its targets itself and does not record them."""

    def estimate_arguments(self, *args: Any) -> dict[str, Any]:
        return {**super().estimate_arguments(*args), "record_targets": lambda targets, valid: None}


@pytest.mark.parametrize(("algo", "keys", "words"), [
    ("acer", {}, "acer learns action values or from a replay"),
    ("ppo", {"reward_norm": True}, "give reward_norm=False"),
    ("ppo", {"runtime": "ray", "num_workers": 1}, "not supported under runtime=ray"),
    (Silent, {}, r"call update.record_targets\(targets, valid\) in its loss")])
def test_values_are_not_normalised_where_that_cannot_work(algo: Any, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"value_norm=popart .*{words}"):
        list(vantage.Trainer(algo, run="run", **SHORT | keys))
