"""Normalisers: acting and learning use the same function, and batch normalisation's gradient follows the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vantage
from vantage.config.config import Config
from vantage.errors import ConfigError, NonFiniteError
from vantage.learning.weights import AveragePolicy
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.normalization import EPSILON, RATE, BatchNorm, ImageNormalizer, ObsNormalizer, PixelNormalizer
from vantage.types import ActionSpec, ArraySpec, EnvSpec

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (1, 44, 44))
T, B = 6, 5


def data(*shape: int, seed: int = 0) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x * torch.linspace(0.5, 4, shape[1]).view(-1, *(1,) * (len(shape) - 2)) + 2


def learn_from(norm: BatchNorm, x: Tensor) -> None:
    norm(x.clone().requires_grad_())
    norm.update()


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    x, vectors, pixels = data(320, 3).view(40, 8, 3), ObsNormalizer(3), ImageNormalizer()
    images = torch.randint(0, 90, (40, 2, 1, 9, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for piece in (slice(0, 3), slice(3, 4), slice(4, 40)):
        vectors.merge(*vectors.batch(x[piece]))
        pixels.merge(*pixels.batch(images[piece]))
    for normalizer, samples in ((vectors, x.view(-1, 3)), (pixels, images.float().view(-1, 1))):
        torch.testing.assert_close(normalizer.mean, samples.mean(0), rtol=1e-4, atol=0)
        torch.testing.assert_close(normalizer.var, samples.var(0, correction=0), rtol=1e-4, atol=1e-5)
        assert normalizer.count.dtype == torch.float64 and abs(normalizer.count.item() - len(samples)) < 1e-3
        y = normalizer(samples)
        torch.testing.assert_close(y.mean(0), torch.zeros_like(y[0]), rtol=0, atol=1e-3)
        torch.testing.assert_close(y.std(0), torch.ones_like(y[0]), rtol=0, atol=1e-2)
        assert normalizer(samples * 1e6).abs().max() == 10


def test_pixels_are_normalised_each_by_its_own_statistics_in_every_frame_of_a_stack() -> None:
    images = torch.randint(0, 256, (40, 2, 2, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[..., 0, 0] = 7  # never changes: the floor of the deviation applies
    normalizer = PixelNormalizer((2, 5, 4))
    for piece in (images[:3], images[3:]):
        normalizer.merge(*normalizer.batch(piece))
    samples = images.flatten(0, 1).double()
    mean, deviation = samples.mean(0), samples.std(0, correction=0).clamp(min=4)
    stacks = images.float().flatten(0, 1).unflatten(0, (-1, 2)).flatten(1, 2)  # [N, 2 frames of 2 channels, 5, 4]
    stacks[0, :, 0, 0] = 255
    for layout in (torch.contiguous_format, torch.channels_last):
        x = stacks.contiguous(memory_format=layout)  # type: ignore[call-overload]
        expected = ((stacks.double() - mean.repeat(2, 1, 1)) / deviation.repeat(2, 1, 1)).clamp(-5, 5)
        torch.testing.assert_close(normalizer(x, 255.0), (255 * expected).float(), rtol=1e-4, atol=1e-2)
        assert normalizer(x).is_contiguous(memory_format=layout)


def test_observations_change_statistics_only_in_update_in_place() -> None:
    normalizer = ObsNormalizer(1)
    mean, constant = normalizer.mean, torch.full((100, 8, 1), 1e4)
    assert normalizer(torch.tensor([[-3.0], [11.0]])).flatten().tolist() == [-3, 10] and mean.item() == 0
    for _ in range(50):
        normalizer.merge(*normalizer.batch(constant))
    assert normalizer.mean is mean and mean.item() == pytest.approx(1e4) and normalizer(constant).abs().max() <= 10


@pytest.mark.parametrize("shape", [(20, 3), (20, 3, 5, 4)])
def test_the_gradient_is_that_of_the_paper_with_constant_corrections(shape: tuple[int, ...]) -> None:
    norm, x, weight = BatchNorm(3).double(), data(*shape).double(), data(*shape, seed=9).double()
    learn_from(norm, data(*shape, seed=1).double())
    dims, view = [0, *range(2, len(shape))], (1, 3, *(1,) * (len(shape) - 2))

    def slow(x: Tensor) -> Tensor:
        mean, deviation = x.mean(dims, keepdim=True), (x.var(dims, correction=0, keepdim=True) + EPSILON).sqrt()
        running = (norm.var + EPSILON).sqrt().view(view)
        r, d = (deviation / running).detach(), ((mean - norm.mean.view(view)) / running).detach()
        return (x - mean) / deviation * r + d

    leaf = x.requires_grad_()
    ours, expected = (torch.autograd.grad((f(leaf) * weight).sum(), leaf)[0] for f in (norm, slow))
    torch.testing.assert_close(ours, expected)
    assert not torch.allclose(ours, weight / (norm.var + EPSILON).sqrt().view(view), rtol=0.1)


def test_batch_norm_learns_the_last_batch_with_gradients_which_weighs_at_least_the_rate() -> None:
    norm, x = BatchNorm(3), data(20, 3)
    with torch.no_grad():
        norm(x)
    norm.update()
    norm(x + 5)
    norm(x)
    assert torch.equal(norm.mean, torch.zeros(3))
    norm.update()
    norm.update()
    torch.testing.assert_close(norm.mean, x.mean(0), rtol=1e-3, atol=0)
    torch.testing.assert_close(norm.var, x.var(0, correction=0), rtol=1e-3, atol=0)
    assert norm.count.item() == pytest.approx(20, rel=1e-4)
    for _ in range(300):
        learn_from(norm, x)
    before = norm.mean.clone()
    learn_from(norm, x + 10)
    torch.testing.assert_close(norm.mean - before, torch.full((3,), 10 * RATE), rtol=1e-2, atol=0)


def test_a_constant_channel_stays_finite_and_a_far_value_is_clipped() -> None:
    norm, x = BatchNorm(1), torch.full((20, 1), 3.0, requires_grad=True)
    for _ in range(5):
        learn_from(norm, x.detach())
    y = norm(x)
    y.sum().backward()
    assert y.abs().max() < 0.1 and x.grad is not None and x.grad.isfinite().all()
    assert norm(torch.tensor([[4.0], [1e6]])).flatten().tolist() == [10, 10]


def model(obs: ArraySpec, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = Config().change(**({"norm": "batch", "hidden": "16,8", "memory_size": 4} | keys))
    return make_model(config.policy, EnvSpec(obs, ActionSpec("discrete", (4,))), critic=config.algorithm.needs.critic)


def norms(net: ActorCritic) -> list[BatchNorm]:
    return [module for _, module in net.running_stats() if isinstance(module, BatchNorm)]


@pytest.mark.parametrize(("obs", "keys"), [
    (VECTOR, {"memory": "lstm", "separate": True, "frame_stack": 2, "stack_pad": "repeat"}),
    (VECTOR, {"network": "conv1d", "memory": "gru", "bptt": False}), (IMAGE, {"network": "a3c", "frame_stack": 2}),
    (IMAGE, {"network": "maxpool", "image_norm": "global"}), (IMAGE, {"network": "a3c", "precision": "bfloat16"}),
    (IMAGE, {"network": "a3c", "image_norm": "pixel", "frame_stack": 3})], ids=str)
def test_unrolls_with_gradients_equal_single_steps_without(obs: ArraySpec, keys: dict[str, Any]) -> None:
    net, is_first, start = model(obs, **keys), torch.rand(T + 1, B) < 0.2, ()
    for _ in range(3):
        batch = 3 * torch.randn(T + 1, B, *obs.shape) + 1 if obs is VECTOR else torch.randint(
            256, (T + 1, B, *obs.shape), dtype=torch.uint8)
        start = net.initial_state(B)
        params, values = net.unroll(batch, is_first, start)
        assert all(norm.batch is not None and norm.batch[1].dtype == torch.float32 for norm in norms(net))
        old = [norm.mean.clone() for norm in norms(net)]
        last, tolerance = (params, values), 0.1 if keys.get("precision") else 1e-3
        with torch.no_grad():
            state = start
            for t in range(T + 1):
                *step, state = net.step_with_values(batch[t], is_first[t], state)
                torch.testing.assert_close(tuple(step), (last[0][t], last[1][t]), rtol=tolerance, atol=tolerance / 5)
        net.observe(batch)
        assert not any(torch.equal(norm.mean, mean) for norm, mean in zip(norms(net), old, strict=True))


def test_acers_average_policy_has_its_own_weights_and_shares_the_statistics() -> None:
    net = model(VECTOR, algo="acer")
    average = AveragePolicy(net, 0.99)
    obs = torch.randn(T, B, 3)
    net.unroll(obs, torch.ones(T, B, dtype=torch.bool), ())
    net.observe(obs)
    for ours, theirs in zip(norms(average.model), norms(net), strict=True):
        assert torch.equal(ours.mean, theirs.mean) and ours.mean.abs().sum() > 0
        assert ours.weight is not theirs.weight
    assert dict(average.model.named_buffers()).keys() == dict(net.named_buffers()).keys()


def test_a_batch_that_leaves_no_gradient_is_refused() -> None:
    vantage.configure("a2c", env="CartPole-v1", norm="batch", num_envs=1, rollout_length=3)
    with pytest.raises(ConfigError, match="norm=batch lets no gradient through a batch of 2; give a larger"):
        vantage.configure("a2c", env="CartPole-v1", norm="batch", num_envs=1, rollout_length=2)


def test_an_observation_too_large_for_the_statistics_is_an_error_and_changes_nothing() -> None:
    normalizer = ObsNormalizer(2)
    normalizer.merge(*normalizer.batch(torch.ones(4, 2)))
    before = [part.clone() for part in normalizer.stats]
    with pytest.raises(NonFiniteError, match=r"observations overflow at index 1, where .*obs_norm=False"):
        normalizer.merge(*normalizer.batch(torch.tensor([[1.0, 1e25], [1.0, -1e25]])))
    assert all(torch.equal(part, old) for part, old in zip(normalizer.stats, before, strict=True))
