"""Averaged weights, which evaluations and saved policies have and training does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun

import vantage
from vantage.errors import ConfigError
from vantage.runs.checkpoint import load_latest, load_named

SHORT: dict[str, Any] = {"env": "tiny:Bandit", "num_envs": 4, "rollout_length": 8, "hidden": "4", "threads": 1,
                         "eval_ema": 0.9, "lr": 1e-2}


@pytest.mark.parametrize("algo", ["a2c", "acer"])
def test_the_average_follows_every_gradient_step(algo: str) -> None:
    with begun(vantage.configure(algo, **SHORT, **({"replay_ratio": 0} if algo == "acer" else {}))) as one:
        learner = one.learner
        expected = learner.flat.vector.clone()
        for _ in range(5):
            one.advance(lambda: 0)
            expected = 0.9 * expected + 0.1 * learner.flat.vector
        assert learner.ema is not None
        torch.testing.assert_close(learner.ema.vector, expected)
        assert not torch.allclose(expected, learner.flat.vector)


@pytest.mark.parametrize("workers", [1, 2])
def test_saved_policies_and_evaluations_have_the_averaged_weights(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    from vantage.runtimes import evaluator

    played = []
    real = evaluator.play_games

    def noted(model: Any, *arguments: Any, **options: Any) -> Any:
        played.append(model.value_head.weight.detach().clone())
        return real(model, *arguments, **options)

    monkeypatch.setattr(evaluator, "play_games", noted)
    run = tmp_path / "run"
    with vantage.Trainer("a2c", run=run, **SHORT, steps=128, eval_every=128, eval_episodes=2, num_workers=workers,
                         tensorboard=False) as trainer:
        list(trainer)
        agent = trainer.agent
    saved = load_latest(run).tensors
    weight = saved["ema"]["value_head.weight"]
    assert not torch.allclose(weight, saved["model"]["value_head.weight"])
    for each in (*played, agent.model.value_head.weight, load_named(run, "best").tensors["model"]["value_head.weight"],
                 vantage.load(run, checkpoint="latest").model.value_head.weight):
        assert torch.equal(each, weight)


def test_workers_without_a_learner_of_their_own_refuse_it() -> None:
    with pytest.raises(ConfigError, match=r"eval_ema=0\.9 averages the weights of one learner"):
        vantage.configure("a3c", env="CartPole-v1", eval_ema=0.9)
