"""Reports on action spaces of unusual sizes: none, one, ten thousand, and three hundred dimensions.

None: github.com/entity-neural-network/incubator/issues/128,
github.com/hill-a/stable-baselines/issues/214. Ten thousand:
github.com/jimkon/Deep-Reinforcement-Learning-in-Large-Discrete-Action-Spaces/issues/31.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import vantage


def train(space: str, run: Path, algo: str = "ppo", **keys: object) -> dict[str, float]:
    """The last metrics of a short training."""
    config = vantage.configure(
        algo,
        env="public_envs:AnyActions",
        env_kwargs={"space": space},
        num_envs=2,
        rollout_length=16,
        eval_every=0,
        tensorboard=False,
        threads=1,
        **{"steps": 32, **keys},
    )
    return [report.metrics for report in vantage.Trainer(config, run=run) if report.metrics][-1]


@pytest.mark.parametrize("space", ["empty box", "box without rows", "empty multi-discrete"])
def test_actions_that_hold_no_number_are_named_with_the_remedy(space: str, tmp_path: Path) -> None:
    with pytest.raises(
        vantage.ConfigError, match=r"actions in .* hold no number: the shape is \(0.*Discrete\(1\)"
    ):
        train(space, tmp_path / "run")


@pytest.mark.parametrize(
    ("space", "entropy"),
    [
        ("one", 0),
        ("many", math.log(10_000)),
        ("long box", 300 * (0.5 + 0.5 * math.log(2 * math.pi))),
    ],
)
@pytest.mark.parametrize("algo", ["a2c", "ppo", "acer"])
def test_the_first_entropy_is_that_of_all_actions(
    algo: str, space: str, entropy: float, tmp_path: Path
) -> None:
    metrics = train(
        space, tmp_path / "run", algo, lr="0", **({"replay_ratio": 0} if algo == "acer" else {})
    )
    assert metrics["train/entropy"] == pytest.approx(entropy, rel=1e-3, abs=1e-6)
    assert metrics["rollout/ep_rew_mean"] == 2
    assert math.isfinite(metrics["train/policy_loss"])
