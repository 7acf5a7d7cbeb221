"""PPO: its loss against the paper's, step by step; A2C as its special case; minibatches that respect memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rollouts import begun, random_rollout
from torch import Tensor

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Update
from vantage.algorithms.losses import ppo_loss
from vantage.algorithms.ppo import PPO
from vantage.learning.learner import Learner
from vantage.learning.minibatches import Pieces, by_current_policy, minibatches
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.types import Minibatch, Rollout

T, B, A = 6, 4, 3
UPDATE = Update(0, 100)


def model_of(**policy: Any) -> ActorCritic:
    torch.manual_seed(1)
    config = vantage.Config.of("ppo").change(**{"hidden": "16", "memory_size": 8, **policy})
    return make_model(config.policy, EnvSpec(ArraySpec("vector", (2,)), ActionSpec("discrete", (A,))), critic="state")


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("ppo", threads=1, **options)


def steps_of(rollout: Rollout, algorithm: PPO, model: ActorCritic, *, size: int, epochs: int = 1,
             rank: int = 0, num_ranks: int = 1) -> list[Minibatch]:
    pieces = Pieces(size, epochs, torch.Generator().manual_seed(0), rank, num_ranks)
    return list(minibatches(rollout, *algorithm.estimate(rollout, UPDATE), model, pieces))


def gradient(loss: Tensor, model: ActorCritic) -> Tensor:
    parts = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([part.flatten() for part in parts if part is not None])


@pytest.mark.parametrize("value_clip", [None, 0.1])
def test_the_loss_is_the_papers_step_by_step(value_clip: float | None) -> None:
    torch.manual_seed(0)
    log_probs, behaviour, entropies, values, old, advantages, targets = torch.randn(7, T, B, dtype=torch.float64)
    valid = torch.rand(T, B) < 0.7
    loss, metrics = ppo_loss(log_probs, behaviour, entropies, values, old, advantages, targets, valid, clip=0.2,
                             value_clip=value_clip, value_coef=0.5, entropy_coef=0.01)
    total, clipped, kl, count = 0.0, 0, 0.0, 0
    for t in range(T):
        for b in range(B):
            if not valid[t, b]:
                continue
            count += 1
            advantage, ratio = float(advantages[t, b]), math.exp(float(log_probs[t, b] - behaviour[t, b]))
            total -= min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            value, before, target = float(values[t, b]), float(old[t, b]), float(targets[t, b])
            error = (target - value) ** 2
            if value_clip is not None:
                near = before + min(max(value - before, -value_clip), value_clip)
                error = max(error, (target - near) ** 2)
            total += 0.5 * 0.5 * error - 0.01 * float(entropies[t, b])
            clipped += abs(ratio - 1) > 0.2
            kl += ratio - 1 - math.log(ratio)
    assert float(loss) == pytest.approx(total / count, abs=1e-12)
    assert float(metrics["train/clip_fraction"]) == pytest.approx(clipped / count, abs=1e-12)
    assert float(metrics["train/approx_kl"]) == pytest.approx(kl / count, abs=1e-12)


@pytest.mark.parametrize(("log_ratio", "advantage", "moves"), [
    (0.5, 1.0, False), (0.5, -1.0, True), (-0.5, 1.0, True), (-0.5, -1.0, False),
    (0.1, 1.0, True), (0.1, -1.0, True), (1000.0, 1.0, False)])
def test_the_clip_stops_the_gradient_only_where_the_step_went_too_far(log_ratio: float, advantage: float,
                                                                      moves: bool) -> None:
    log_probs = torch.full((1, 1), log_ratio, dtype=torch.float64, requires_grad=True)
    zero, yes = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    loss, _ = ppo_loss(log_probs, zero, zero, zero, zero, zero + advantage, zero, yes, clip=0.2, value_clip=None,
                       value_coef=0.5, entropy_coef=0.0)
    (slope,) = torch.autograd.grad(loss, log_probs)
    assert (float(slope) * advantage < 0) if moves else float(slope) == 0


@pytest.mark.parametrize("policy", [{}, {"frame_stack": 3}, {"memory": "lstm"}, {"memory": "gru", "separate": True}],
                         ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_one_epoch_over_one_minibatch_has_the_gradient_of_a2c(policy: dict[str, Any], masked: bool) -> None:
    model = model_of(**policy)
    rollout = random_rollout(model, T, B, masked=masked)
    ppo, a2c = PPO(advantage_norm=False, gae_lambda="0.9"), A2C(gae_lambda="0.9")
    (minibatch,) = steps_of(rollout, ppo, model, size=T * B)
    (loss, _), (expected, _) = ppo.loss(model, minibatch, UPDATE), a2c.loss(model, rollout, UPDATE)
    torch.testing.assert_close(gradient(loss, model), gradient(expected, model), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("policy", [{}, {"frame_stack": 3, "stack_pad": "repeat"}, {"memory": "lstm"},
                                    {"memory": "gtrxl", "memory_window": 3}], ids=str)
def test_minibatches_hold_every_step_once_with_the_memory_that_acted(policy: dict[str, Any]) -> None:
    model = model_of(**policy)
    rollout = random_rollout(model, T, B)
    parts = steps_of(rollout, PPO(), model, size=2 * T, epochs=2)
    assert len(parts) == 4
    for epoch in (parts[:2], parts[2:]):
        rewards = sorted(float(x) for part in epoch for x in part.behaviour[..., 0].flatten())
        assert rewards == sorted(rollout.behaviour[..., 0].flatten().tolist())
    assert not torch.equal(parts[0].behaviour, parts[2].behaviour), "each epoch is shuffled anew"
    for part in parts:
        params, values = model.unroll_inputs(part.inputs, part.is_first, part.state, part.action_mask)
        torch.testing.assert_close(params, part.behaviour)
        torch.testing.assert_close(values, part.values)


def test_each_of_two_ranks_has_half_of_the_environments_of_every_minibatch() -> None:
    model = model_of(memory="lstm")
    rollout = random_rollout(model, T, B)
    for rank in (0, 1):
        parts = steps_of(rollout, PPO(), model, size=2 * T, epochs=20, rank=rank, num_ranks=2)
        assert [part.valid.shape for part in parts] == [(T, 1)] * len(parts)
        assert len({float(part.values[0, 0]) for part in parts[::4]}) > 1, "in random order"


def test_advantages_are_normalised_over_the_valid_steps_of_the_rollout() -> None:
    model = model_of()
    rollout = random_rollout(model, T, B)
    advantages, _ = PPO().estimate(rollout, UPDATE)
    chosen = advantages[rollout.valid]
    assert float(chosen.mean()) == pytest.approx(0, abs=1e-6)
    assert float(chosen.std(correction=0)) == pytest.approx(1, abs=1e-5)
    (whole,) = steps_of(rollout, PPO(advantage_norm=False), model, size=T * B)
    loss, _ = PPO(advantage_norm_over="minibatch").loss(model, whole, UPDATE)
    (normalised,) = steps_of(rollout, PPO(), model, size=T * B)
    torch.testing.assert_close(loss, PPO().loss(model, normalised, UPDATE)[0])


def test_the_ratio_is_that_of_the_new_policy_to_the_one_that_acted() -> None:
    model = model_of()
    (minibatch,) = steps_of(random_rollout(model, T, B), PPO(), model, size=T * B)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
        params, _ = model.unroll_inputs(minibatch.inputs, minibatch.is_first, minibatch.state, minibatch.action_mask)
    new, old = (x.log_softmax(-1).gather(-1, minibatch.actions.unsqueeze(-1)).squeeze(-1)[minibatch.valid]
                for x in (params, minibatch.behaviour))
    _, metrics = PPO().loss(model, minibatch, UPDATE)
    expected = float(((new - old).exp() - 1 - (new - old)).mean())
    assert expected > 0.01 and float(metrics["train/approx_kl"]) == pytest.approx(expected, rel=1e-4)


def test_a_policy_that_moved_too_far_leaves_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for max_kl in (None, 0.01):
        steps = []
        with begun(configure(env="tiny:Bandit", num_envs=4, rollout_length=8, minibatch_size=8, epochs=25, lr=0.05,
                             max_kl=max_kl)) as one:
            apply = one.learner.sink.apply
            monkeypatch.setattr(one.learner.sink, "apply", lambda *args, steps=steps, apply=apply, **options: (
                steps.append(1) or apply(*args, **options)))
            one.advance(lambda: 0)
        counts.append(len(steps))
    assert counts[0] == 100 and counts[1] < 50


def test_values_are_those_of_the_weights_that_acted() -> None:
    config = configure(env="tiny:Recall", memory="lstm", memory_size=8, num_envs=3, rollout_length=7)
    with begun(config) as one, torch.no_grad():
        (rollout,), _ = one.collect()
        _, values = one.model.unroll(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask)
    torch.testing.assert_close(rollout.values, values, rtol=0, atol=1e-5)


def test_ppo_learns_from_an_older_policy_with_values_and_weights_of_the_current_one() -> None:
    """The importance weights of an unchanged policy are 1, and V-trace is then GAE."""
    with begun(configure(env="tiny:Bandit", num_envs=4, rollout_length=8, hidden="16")) as one:
        with_values = one.collect()[0][0]
    current = by_current_policy(with_values, one.model)
    assert current.rhos is not None and torch.allclose(current.rhos, torch.ones_like(current.rhos), atol=1e-5)
    learner = Learner(one.model, one.config)
    update, algorithm = learner._coefficients(0), one.config.algorithm
    for ours, theirs in zip(algorithm.estimate(current, update), algorithm.estimate(with_values, update), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        learner.flat.vector.add_(0.1 * torch.randn(len(learner.flat.vector)))
    moved = by_current_policy(with_values, one.model)
    assert moved.rhos is not None and (moved.rhos - 1).abs().max() > 1e-3
    with_values.valid[2, 1] = False  # the environment replaced the action
    replaced = by_current_policy(with_values, one.model).rhos
    assert replaced is not None and replaced[2, 1] == 1 and moved.rhos[2, 1] != 1
    assert torch.equal(replaced[with_values.valid], moved.rhos[with_values.valid])


@pytest.mark.parametrize("options", [{"env": "tiny:MaskedBandit"}, {"env": "tiny:ManyParts", "frame_stack": 2}],
                         ids=["masks", "stacked parts"])
def test_a_rollout_that_is_evaluated_in_pieces_has_the_values_of_the_whole(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.learning.minibatches._UNROLLED", 16)
    with begun(configure(num_envs=5, rollout_length=8, hidden="16", **options)) as one, torch.no_grad():
        one.collect()
        one.move_on()
        (rollout,), _ = one.collect()
        pieces = by_current_policy(rollout, one.model)
        params, values = one.model.unroll(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask)
    torch.testing.assert_close(pieces.values, values, rtol=0, atol=1e-5)
    torch.testing.assert_close(pieces.behaviour, params[:-1], rtol=1e-6, atol=1e-5)


def test_a_single_pass_has_the_normalised_inputs_of_several() -> None:
    model = model_of(obs_norm=True, frame_stack=2)
    rollout = random_rollout(model, T, B)
    model.observe(3 * rollout.obs + 1)
    one, two = (steps_of(rollout, PPO(), model, size=8, epochs=epochs)[0] for epochs in (1, 2))
    assert torch.equal(one.inputs[0], two.inputs[0]) and torch.equal(one.actions, two.actions)
    assert not torch.isin(one.inputs[0][..., -4:], rollout.obs).any()


def test_past_rollouts_are_learned_from_with_the_newest_one_by_the_current_policy(
        monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[Rollout] = []
    gradients, fresh = [], []
    with begun(configure(env="tiny:Bandit", num_envs=3, rollout_length=8, hidden="16", lr=0.05, epochs=2,
                         minibatch_size=8, past_rollouts=2)) as one:
        update, apply = one.learner.update, one.learner.sink.apply
        monkeypatch.setattr(one.learner, "update",
                            lambda rollout, step: learned.append(rollout) or update(rollout, step))
        monkeypatch.setattr(one.learner.sink, "apply",
                            lambda *args, **options: gradients.append(len(learned)) or apply(*args, **options))
        for step in range(4):
            rollouts, _ = one.collect()
            fresh += rollouts
            list(one.updates(rollouts, step))
    assert [rollout.rewards.shape[1] for rollout in learned] == [3, 6, 9, 9]
    assert [gradients.count(i) for i in (1, 2, 3, 4)] == [2 * 3, 2 * 6, 2 * 9, 2 * 9]
    rings = learned[3].actions.view(8, 3, 3)  # [T, place in the ring, environment]
    for place, number in enumerate((3, 1, 2)):
        assert torch.equal(rings[:, place], fresh[number].actions)
        assert torch.equal(learned[3].behaviour.view(8, 3, 3, -1)[:, place], fresh[number].behaviour)
