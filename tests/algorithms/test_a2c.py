"""The A2C loss: its value by hand, the signs of its gradients, what its options change."""

from __future__ import annotations

import torch
from torch import Tensor

from vantage.algorithms.losses import a2c_loss, explained_variance, masked_mean

OPTIONS = {"gamma": 0.5, "gae_lambda": 1.0, "value_coef": 0.5, "entropy_coef": 0.1}


def column(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None].requires_grad_(grad)


def flags(*values: bool) -> Tensor:
    return torch.tensor(values)[:, None]


def test_the_loss_of_two_steps_by_hand() -> None:
    log_probs, entropies = column(-1.0, -2.0), column(0.5, 0.7)
    loss, metrics = a2c_loss(log_probs, entropies, column(1.0, 2.0, 4.0), column(1.0, 0.0), flags(False, False),
                             flags(True, True), flags(True, True), **OPTIONS)
    targets = [1 + 0.5 * (0.5 * 4), 0.5 * 4]  # 2 and 2
    policy = -((targets[0] - 1) * -1.0 + (targets[1] - 2) * -2.0) / 2
    value = 0.5 * ((targets[0] - 1) ** 2 + (targets[1] - 2) ** 2) / 2
    assert metrics["train/policy_loss"] == policy
    assert metrics["train/value_loss"] == value
    torch.testing.assert_close(loss, torch.tensor(policy + 0.5 * value - 0.1 * 0.6, dtype=torch.float64))


def test_a_better_arm_becomes_more_probable_and_its_value_rises() -> None:
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    values = column(0.0, 0.0, grad=True)
    log_probs = torch.log_softmax(logits, 0)
    loss, _ = a2c_loss(log_probs[1].reshape(1, 1), torch.zeros(1, 1, dtype=torch.float64), values, column(1.0),
                       flags(True), flags(True), flags(True), **OPTIONS)
    loss.backward()
    assert logits.grad is not None and values.grad is not None
    assert logits.grad[1] < 0 < logits.grad[0]
    assert values.grad[0, 0] < 0
    assert values.grad[1, 0] == 0, "the bootstrap value is a constant"


def test_the_entropy_bonus_flattens_the_policy() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    p = torch.softmax(logits, 0)
    entropy = -(p * p.log()).sum().reshape(1, 1)
    loss, _ = a2c_loss(torch.zeros(1, 1, dtype=torch.float64), entropy, column(0.0, 0.0), column(0.0), flags(True),
                       flags(True), flags(True), **OPTIONS)
    loss.backward()
    assert logits.grad is not None and logits.grad[0] > 0 > logits.grad[1]


def test_invalid_steps_weigh_nothing() -> None:
    log_probs, values = column(-1.0, -5.0, grad=True), column(0.0, 3.0, 0.0, grad=True)
    loss, _ = a2c_loss(log_probs, column(0.0, 9.0), values, column(1.0, 0.0), flags(False, False), flags(False, True),
                       flags(True, False), **OPTIONS)
    loss.backward()
    assert log_probs.grad is not None and log_probs.grad[1] == 0 and log_probs.grad[0] != 0
    assert values.grad is not None and values.grad[1, 0] == 0


def test_a_rollout_of_resets_gives_zero_and_no_nan() -> None:
    loss, metrics = a2c_loss(column(float("-inf")), column(0.0), column(0.0, 0.0), column(0.0), flags(False),
                             flags(True), flags(False), **OPTIONS)
    assert loss == 0 and all(torch.isfinite(v) for v in metrics.values())


def test_the_loss_does_not_depend_on_how_often_the_data_is_repeated() -> None:
    def of(repeats: int) -> Tensor:
        return a2c_loss(column(-1.0, -2.0).repeat(1, repeats), column(0.5, 0.7).repeat(1, repeats),
                        column(1.0, 2.0, 4.0).repeat(1, repeats), column(1.0, 0.0).repeat(1, repeats),
                        flags(False, True).repeat(1, repeats), flags(True, True).repeat(1, repeats),
                        flags(True, True).repeat(1, repeats), **OPTIONS)[0]

    torch.testing.assert_close(of(1), of(7))


def test_normalised_advantages_ignore_the_scale_of_rewards() -> None:
    def gradient(scale: float) -> Tensor:
        log_probs = column(-1.0, -2.0, -0.5, grad=True)
        loss, _ = a2c_loss(log_probs, column(0.0, 0.0, 0.0), column(0.0, 0.0, 0.0, 0.0),
                           column(1.0, -2.0, 0.5) * scale, flags(True, True, True), flags(True, True, True),
                           flags(True, True, True), advantage_norm=True, **OPTIONS)
        loss.backward()
        assert log_probs.grad is not None
        return log_probs.grad

    torch.testing.assert_close(gradient(1.0), gradient(100.0), atol=1e-6, rtol=0)


def test_vtrace_weights_of_an_unchanged_policy_change_nothing() -> None:
    arguments = (column(-1.0, -2.0), column(0.5, 0.7), column(1.0, 2.0, 4.0), column(1.0, 0.0), flags(False, False),
                 flags(True, True), flags(True, True))
    plain, _ = a2c_loss(*arguments, **OPTIONS)
    weighted, metrics = a2c_loss(*arguments, behaviour_log_probs=column(-1.0, -2.0), **OPTIONS)
    torch.testing.assert_close(plain, weighted)
    assert metrics["train/rho_mean"] == 1


def test_vtrace_halves_the_gradient_of_an_action_that_became_half_as_probable() -> None:
    log_probs = column(-1.0, grad=True)
    loss, _ = a2c_loss(log_probs, column(0.0), column(0.0, 0.0), column(1.0), flags(True), flags(True), flags(True),
                       behaviour_log_probs=column(-1.0 + torch.log(torch.tensor(2.0)).item()), **OPTIONS)
    loss.backward()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, column(-0.5))


def test_vtrace_gives_weight_1_to_an_action_that_the_environment_replaced() -> None:
    log_probs = column(-1.0, -2.0, -1.0, grad=True)
    values = column(1.0, 2.0, 3.0, 4.0, grad=True)
    loss, metrics = a2c_loss(log_probs, column(0.0, 0.0, 0.0), values, column(1.0, 0.0, 5.0),
                             flags(False, False, False), flags(True, True, True), flags(True, False, True),
                             behaviour_log_probs=column(-1.0, 0.0, -1.0), **OPTIONS)
    loss.backward()
    target = 1 + 0.5 * (0.5 * (5 + 0.5 * 4))  # the rewards after the replaced action count in full
    assert log_probs.grad is not None and values.grad is not None
    torch.testing.assert_close(log_probs.grad[:2], column(-(target - 1.0) / 2, 0.0))
    torch.testing.assert_close(values.grad[:2], column(0.5 * -(target - 1.0) / 2, 0.0))
    assert metrics["train/rho_mean"] == 1


def test_explained_variance_of_a_perfect_and_of_a_constant_critic() -> None:
    targets, valid = column(1.0, 2.0, 3.0), flags(True, True, True)
    assert explained_variance(targets, targets, valid) == 1
    assert explained_variance(column(2.0, 2.0, 2.0), targets, valid) == 0


def test_the_masked_mean_counts_valid_steps_only() -> None:
    assert masked_mean(column(1.0, 100.0, 3.0), flags(True, False, True)) == 2


def test_the_target_of_the_critic_may_be_the_return_whatever_lambda_the_advantages_have() -> None:
    def of(gae_lambda: float, value_target: str, behaviour: Tensor | None) -> tuple[Tensor, Tensor]:
        log_probs, values = column(-1.0, -2.0, grad=True), column(1.0, 3.0, 4.0, grad=True)
        options = {**OPTIONS, "gae_lambda": gae_lambda}
        loss, _ = a2c_loss(log_probs, column(0.5, 0.7), values, column(1.0, 0.0), flags(False, False),
                           flags(True, True), flags(True, True), value_target=value_target,
                           behaviour_log_probs=behaviour, **options)
        loss.backward()
        assert log_probs.grad is not None and values.grad is not None
        return log_probs.grad, values.grad

    for behaviour in (None, column(-0.5, -2.5)):
        mixed, low, high = of(0.3, "return", behaviour), of(0.3, "lambda", behaviour), of(1.0, "lambda", behaviour)
        assert torch.equal(mixed[0], low[0]) and not torch.equal(mixed[0], high[0])
        assert torch.equal(mixed[1], high[1]) and not torch.equal(mixed[1], low[1])
