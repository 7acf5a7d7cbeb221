"""Parts of the runtime `ray` that need no cluster."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ray import configure

from vantage.errors import ConfigError
from vantage.learning.learner import Learner

ray = pytest.importorskip("ray")

from vantage.runtimes import ray_cluster  # noqa: E402


def test_a_module_that_a_node_lacks_is_one_line_and_not_tried_again() -> None:
    error = ray_cluster.describe(ray.exceptions.RayError("The actor died\nModuleNotFoundError: No module named 'mine'"))
    assert isinstance(error, ConfigError) and "No module named 'mine'; install" in str(error)


def test_own_signal_handlers_survive_the_connection() -> None:
    def handler(number: int, frame: Any) -> None: ...

    former = signal.signal(signal.SIGTERM, handler)
    try:
        with ray_cluster.own_signals():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, former)


@pytest.mark.parametrize(("algo", "options", "says"), [
    ("ppo", {"send": "gradients"}, "give --send rollouts"), ("acer", {"send": "rollouts"}, "give --send gradients"),
    ("a2c", {"norm": "batch"}, "norm layer"), ("a3g", {}, "contradicts a3g"),
    ("a2c", {"runtime": "sync", "ray_address": "auto"}, "give --runtime ray")])
def test_what_has_no_effect_or_no_meaning_is_refused(algo: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configure(algo, **options)


def test_ppo_learns_from_an_older_policy_with_values_and_weights_of_the_current_one(tmp_path: Path) -> None:
    """The importance weights of an unchanged policy are 1, and V-trace is then GAE."""
    from vantage.learning.minibatches import by_current_policy
    from vantage.runtimes.actor_learner import ActorLearner

    one = ActorLearner(configure("ppo", runtime="sync", num_workers=1))
    one.begin()
    with_values = one.collect()[0].rollout
    current = by_current_policy(with_values, one.model)
    assert current.rhos is not None and torch.allclose(current.rhos, torch.ones_like(current.rhos), atol=1e-5)
    learner = Learner(one.model, one.config)
    update, algorithm = learner._coefficients(0), one.config.algorithm
    for ours, theirs in zip(algorithm.estimate(current, update), algorithm.estimate(with_values, update), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        learner.flat.vector.add_(0.1 * torch.randn(len(learner.flat.vector)))
    assert (by_current_policy(with_values, one.model).rhos - 1).abs().max() > 1e-3  # type: ignore[operator]
    one.close()
