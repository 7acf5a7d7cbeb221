"""Stacks of images kept from acting: learning with them is learning from the observations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from rollouts import begun

import vantage
from vantage.learning.learner_state import load_tensors, tensors_of
from vantage.learning.minibatches import by_current_policy
from vantage.models.normalization import PixelNormalizer
from vantage.runtimes.acting_state import acting_tensors, restore_acting
from vantage.runtimes.actor_learner import ActorLearner

PICTURES: dict[str, Any] = {"env": "tiny:Picture", "num_envs": 3, "rollout_length": 8, "threads": 1, "norm": "layer",
                            "image_norm": "pixel", "minibatch_size": 6, "frame_stack": 3, "hidden": "4"}


@contextmanager
def pictures(**options: Any) -> Iterator[ActorLearner]:
    """Two updates have been made; images keep their statistics."""
    with begun(vantage.configure("ppo", **PICTURES | {"image_norm_steps": 100} | options)) as one:
        for step in range(2):
            one.advance(lambda step=step: step)
        yield one


def weights_after(rollout: Any, one: ActorLearner) -> torch.Tensor:
    """The weights after an update on `rollout`, which is then undone."""
    before = {group: {name: tensor.clone() for name, tensor in tensors.items()}
              for group, tensors in tensors_of(one.learner).items()}
    one.learner.update(rollout, 0)
    after = one.learner.flat.vector.clone()
    load_tensors(one.learner, before)
    return after


@pytest.mark.parametrize("options", [
    {"epochs": 1}, {"epochs": 2}, {"epochs": 1, "memory": "lstm", "memory_size": 4}, {"stack_pad": "repeat"}],
    ids=["one-epoch", "epochs", "memory", "repeat"])
def test_learning_with_kept_stacks_is_learning_from_the_observations(options: dict[str, Any]) -> None:
    with pictures(**options) as one:
        (rollout,), _ = one.collect()
        expected = one.model.stacks(rollout.obs, rollout.is_first, rollout.state)
        assert rollout.stacks is not None and len(expected) == 2
        for kept, stack in zip(rollout.stacks, expected, strict=True):
            assert torch.equal(kept, stack)
        assert torch.equal(weights_after(rollout, one), weights_after(replace(rollout, stacks=None), one))


class SixEnvironments(Exception):
    """The evaluated inputs are those of six environments: two past rollouts of three."""


def fail_unless_six(inputs: torch.Tensor) -> None:
    assert inputs.shape[:2] == (6, 9)
    raise SixEnvironments


def test_a_past_rollout_has_its_stacks_and_a_new_one_is_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pictures(past_rollouts=2, epochs=1) as one, pictures(past_rollouts=2, epochs=1) as resumed:
        assert restore_acting(resumed, acting_tensors(one)) == []
        resumed.model.load_state_dict(one.model.state_dict())
        for learner in (one, resumed):
            (rollout,), _ = learner.collect()
            assert learner.past is not None
            learner.past.add(rollout)
            together = learner.past.all(rollout)
            assert together.current == slice(6, 9)
            anew = replace(together, stacks=None, values=None, current=None)
            for ours, theirs in zip(together.stacks or (), learner.model.stacks(
                    together.obs, together.is_first, together.state), strict=True):
                assert torch.equal(ours, theirs)
            ours, theirs = (by_current_policy(each, learner.model) for each in (together, anew))
            for name in ("behaviour", "values", "rhos"):
                torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(weights_after(together, learner), weights_after(anew, learner))
            monkeypatch.setattr(learner.model, "unroll_inputs", lambda inputs, *args: fail_unless_six(inputs[0]))
            with pytest.raises(SixEnvironments):
                by_current_policy(together, learner.model)


def test_kept_factors_of_pixels_follow_their_statistics() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, 2, 3, 3), generator=generator).float()
    normalizer = PixelNormalizer((1, 3, 3))
    for scale in (1.0, 0.5):
        normalizer.merge(*normalizer.batch(scale * images[:, :1]))
        fresh = PixelNormalizer((1, 3, 3))
        fresh.load_state_dict(normalizer.state_dict())
        assert torch.equal(normalizer(images), fresh(images))
        assert torch.equal(normalizer(images, 255.0), fresh(images, 255.0))
    normalizer.mean.numpy()[:] = 7.0  # as another process may do
    expected = ((images - 7) / normalizer.var.sqrt().view(1, 1, 3, 3).clamp(min=4)).clamp(-5, 5)
    torch.testing.assert_close(normalizer(images), expected, rtol=0, atol=1e-4)
