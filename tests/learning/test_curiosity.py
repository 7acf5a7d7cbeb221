"""Random network distillation: its rewards and their advantages, what it learns, and where it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun
from safetensors.torch import load_file
from stopping import tensors_of_an_exact_resume
from torch import Tensor

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import no_intrinsic
from vantage.errors import ConfigError
from vantage.learning.array_update import ArrayUpdates
from vantage.learning.curiosity import Curiosity
from vantage.runtimes.actor_learner import ActorLearner
from vantage.tools.export import export
from vantage.types import Rollout

pytestmark = pytest.mark.integration

SHORT: dict[str, Any] = {"env": "CartPole-v1", "num_envs": 4, "rollout_length": 16, "steps": 512, "hidden": "8",
                         "threads": 1, "tensorboard": False, "eval_every": 0, "log_every_seconds": 1000,
                         "curiosity": "rnd"}
REUSE: dict[str, Any] = {"epochs": 2, "minibatch_size": 32}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")


def configure(algo: str = "ppo", **options: Any) -> vantage.Config:
    return vantage.configure(algo, **SHORT | (REUSE if algo == "ppo" else {}) | options)


def curiosity_of(one: ActorLearner) -> Curiosity:
    assert one.learner.curiosity is not None
    return one.learner.curiosity


def collected(one: ActorLearner) -> Rollout:
    (rollout,), _ = one.collect()
    one.move_on()
    return rollout


def begin(one: ActorLearner, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """The intrinsic rewards of `rollout`, and their values."""
    curiosity = curiosity_of(one)
    curiosity.begin(rollout, one.config, 0, one.learner.sink)
    return curiosity._rewards, curiosity._values


@torch.no_grad()
def errors(one: ActorLearner, obs: Tensor) -> Tensor:
    """The predictor's errors on observations [M, ...]."""
    curiosity = curiosity_of(one)
    return curiosity.networks.errors(curiosity._inputs(obs, torch.arange(len(obs))))


def test_advantages_are_those_of_two_streams_and_only_the_tasks_ends_with_an_episode() -> None:
    with begun(configure(rollout_length=30, intrinsic_coef=0.7, intrinsic_gamma=0.9, advantage_norm=False)) as one:
        rollout = collected(one)
        rewards, values = begin(one, rollout)
        advantages = one.config.algorithm.estimate(rollout, one.learner._coefficients(0))[0]  # type: ignore[union-attr]
    assert rollout.is_first[1:].any() and rollout.values is not None and (rewards > 0).any()
    gamma, gae_lambda = one.config.at("gamma", 0), one.config.at("gae_lambda", 0)
    for env in range(4):
        task = curious = 0.0
        for t in reversed(range(30)):
            ends = t < 29 and bool(rollout.is_first[t + 2, env])
            discount = gamma * (not rollout.terminated[t, env])
            delta = rollout.rewards[t, env] + discount * rollout.values[t + 1, env] - rollout.values[t, env]
            task = float(delta) + discount * gae_lambda * (not ends) * task
            curious = float(rewards[t, env] + 0.9 * values[t + 1, env] - values[t, env]) + 0.9 * gae_lambda * curious
            assert float(advantages[t, env]) == pytest.approx(task + 0.7 * curious, rel=1e-4, abs=1e-4)


def test_rewards_are_divided_by_the_deviation_of_returns_that_go_on_in_the_next_game_and_rollout() -> None:
    with begun(configure(intrinsic_gamma=0.9)) as one:
        total = torch.zeros(4, dtype=torch.float64)
        returns = []
        for _ in range(3):
            rollout = collected(one)
            rewards, _ = begin(one, rollout)
            raw = torch.stack([errors(one, x) for x in rollout.obs[1:]])  # type: ignore[index]
            raw[~rollout.valid] = 0
            for row in raw.double():
                total = 0.9 * total + row
                returns.append(total)
            seen = torch.stack(returns)
            unit = max(float(seen.std(correction=0)), float(seen.mean()) / 5)
            torch.testing.assert_close(rewards, (raw / unit).clamp(-10, 10), rtol=1e-3, atol=1e-5)
    assert not rollout.valid.all(), "an episode has ended"


def test_the_predictor_learns_what_it_sees_and_not_the_rest() -> None:
    with begun(configure(predictor_lr=1e-3)) as one:
        networks = curiosity_of(one).networks
        rollout = collected(one)
        seen = rollout.obs[:-1].flatten(0, 1)  # type: ignore[index]
        far = 4 * torch.randn(64, 4)
        before = {}
        for name, obs in (("seen", seen), ("far", far)):
            begin(one, rollout)
            before[name] = errors(one, obs).mean().item()
        target = [parameter.clone() for parameter in networks.target.parameters()]
        for _ in range(40):
            begin(one, rollout)
            one.learner.update(rollout, 0)
        after = {name: errors(one, obs).mean().item() for name, obs in (("seen", seen), ("far", far))}
    assert after["seen"] < 0.1 * before["seen"] and after["far"] > 5 * after["seen"]
    assert all(map(torch.equal, target, networks.target.parameters()))


CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "num_envs": 8},
    "past-rollouts-and-gru": {"algo": "ppo", "past_rollouts": 2, "memory": "gru", "memory_size": 4},
    "a2c": {"algo": "a2c", "reward_norm": True},
    "two-processes": {"algo": "ppo", "num_workers": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_and_resumed_run_is_the_uninterrupted_one_bit_for_bit(case: str, tmp_path: Path) -> None:
    whole = tensors_of_an_exact_resume(configure(**CASES[case]), tmp_path)
    assert "curiosity/exp_avg" in whole
    assert whole["curiosity/step"] > 0 and whole["curiosity/exp_avg"].any()


@pytest.mark.parametrize("options", [{}, {"algo": "a2c"}, {"algo": "a2c", "vtrace": True}])
def test_gradients_in_numpy_have_the_intrinsic_advantages_too(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def weights(**more: Any) -> Tensor:
        torch.manual_seed(0)
        with begun(configure(**options, **more)) as one:
            for step in range(2):
                one.advance(lambda: step)  # noqa: B023
            return one.learner.flat.vector.clone()

    served = weights()
    with monkeypatch.context() as patch:
        patch.setattr(ArrayUpdates, "supports", lambda *_: False)
        torch.testing.assert_close(weights(), served, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(weights(intrinsic_coef=0.0), served, rtol=1e-3, atol=1e-4)


def test_rewards_are_learned_from_all_kinds_of_observations() -> None:
    critic_alone = {"separate": True, "critic_obs": "state"}
    cases: dict[str, dict[str, Any]] = {"tiny:Picture": {"frame_stack": 2}, "tiny:ManyParts": {}, "FrozenLake-v1": {},
                                        "entities:Lighthouse": {}, "tiny:Hidden": critic_alone}
    for env, options in cases.items():
        with begun(configure(env=env, **options)) as one:
            losses = [one.advance(lambda: step).metrics["train/predictor_loss"]  # noqa: B023
                      for step in range(4)]
        assert all(loss > 0 for loss in losses)


def test_the_coefficients_may_change_between_updates() -> None:
    with vantage.Trainer(configure(intrinsic_coef="linear:1:0")) as trainer:
        trainer.update()
        trainer.intrinsic_coef = 0.25
        assert trainer.update().metrics["rollout/intrinsic_reward"] > 0
        assert trainer.config.exploration.intrinsic_coef == 0.25


def test_policies_leave_the_predictor_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    reports = list(vantage.Trainer(configure(eval_every=256, eval_episodes=1, reward_norm=True), run=run))
    assert reports[-1].metrics["rollout/intrinsic_reward"] > 0
    plain = vantage.Trainer(configure(eval_every=256, eval_episodes=1, curiosity="none"), run=tmp_path / "plain")
    list(plain)
    best = ({path.name for path in (each / "best").iterdir()} for each in (run, tmp_path / "plain"))
    assert next(best) == next(best)
    ours, others = (load_file(export(each, format="safetensors").path) for each in (run, tmp_path / "plain"))
    assert ours.keys() == others.keys()


@dataclass(frozen=True)
class Indifferent(A2C):
    """Estimates advantages itself."""

    def estimate_arguments(self, *arguments: Any) -> dict[str, Any]:
        return super().estimate_arguments(*arguments) | {"add_intrinsic": no_intrinsic}


@dataclass(frozen=True)
class Taken(A2C):
    """Has a field with the name of a key."""

    intrinsic_coef: float = 1.0


def test_curiosity_is_refused_where_it_would_have_no_effect() -> None:
    remedy = "is for a2c and ppo under runtime=sync"
    for algo, options in (("acer", {}), ("a3c", {"num_workers": 1}), ("ppo", {"runtime": "ray", "num_workers": 1})):
        values = {key: value for key, value in SHORT.items() if key not in ("num_envs", "rollout_length")}
        with pytest.raises(ConfigError, match=remedy):
            vantage.configure(algo, **values | options)
    with (begun(configure("test_curiosity:Indifferent")) as one,
          pytest.raises(ConfigError, match=r"call update.add_intrinsic, or give curiosity=None")):
        one.advance(lambda: 0)
    with pytest.raises(ConfigError, match="has a field intrinsic_coef, which is the name of another key; rename it"):
        configure("test_curiosity:Taken")
    assert configure(curiosity=None).exploration.curiosity == "none"


def test_nothing_is_normalised_by_default_that_would_outweigh_or_drown_intrinsic_rewards() -> None:
    config = configure()
    assert not config.env.reward_norm and not config.flat()["advantage_norm"]
    asked = configure(reward_norm=True, advantage_norm=True)
    assert asked.env.reward_norm and asked.flat()["advantage_norm"] and configure(curiosity="none").env.reward_norm


def test_ppo_opens_a_lock_with_curiosity_alone() -> None:
    def opened(seed: int, **options: Any) -> bool:
        """Whether half of the last 20 games were won."""
        lock = {"env": "tiny:Lock", "num_envs": 8, "rollout_length": 64, "steps": 10_240, "hidden": "64,64",
                "lr": 1e-3, "epochs": 4, "minibatch_size": 128, "seed": seed, "return_window": 20,
                "stop_at_return": 0.5, "advantage_norm": True}
        with vantage.Trainer(configure(**lock | options)) as trainer:
            return [*trainer][-1].metrics["rollout/ep_rew_mean"] >= 0.5

    assert not opened(0, curiosity="none")
    assert all(opened(seed) for seed in (0, 1))
