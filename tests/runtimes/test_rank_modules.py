"""What data-parallel ranks share beside the policy: an algorithm's module, and curiosity."""

from __future__ import annotations

import pytest
import torch
from test_rank_updates import BOTH, learners, play, sharing, update
from test_ranks import configure

from vantage.learning.learner_state import tensors_of


@BOTH
def test_ranks_share_the_module_of_an_algorithm_and_the_mean_of_its_buffers(
        how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(algo="curious:CuriousA2C", hidden="8")
    rollout = play(configure(hidden="8"))
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    for _ in range(3):
        assert not update([first, second], rollout)
        whole.update(rollout, 0)
    ours, others, alone = (tensors_of(learner)["module"] for learner in (first, second, whole))
    for name, tensor in alone.items():
        assert torch.equal(ours[name], others[name])
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-6)


@BOTH
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_ranks_share_the_predictor_and_the_statistics_of_curiosity(
        algo: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(algo=algo, hidden="8", curiosity="rnd")
    rollout = play(config)
    (whole,), (first, second) = learners(config, 1), sharing(config, how, monkeypatch)
    metrics: list[dict[str, float]] = []
    for _ in range(2):
        assert not update([first, second], rollout, metrics)
        expected = whole.update(rollout, 0)
    for name in ("rollout/intrinsic_reward", "train/intrinsic_value_loss", "train/predictor_loss"):
        assert metrics[-2][name] == metrics[-1][name] == pytest.approx(expected[name], rel=1e-3)
    ours, others, alone = (tensors_of(learner) for learner in (first, second, whole))
    for group in ("model", "curiosity"):
        for name, tensor in alone[group].items():
            assert torch.equal(ours[group][name], others[group][name])
            torch.testing.assert_close(ours[group][name], tensor, rtol=1e-3, atol=1e-5)
