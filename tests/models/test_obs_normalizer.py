"""Laws of the running normaliser of observations."""

from __future__ import annotations

import torch

from vantage.models.normalization import ObsNormalizer, PixelNormalizer


def data() -> torch.Tensor:
    return torch.randn(40, 8, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1]) + 3


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    x, normalizer = data(), ObsNormalizer(3)
    for piece in (x[:3], x[3:4], x[4:]):
        normalizer.update(piece)
    torch.testing.assert_close(normalizer.mean, x.mean((0, 1)), rtol=1e-4, atol=0)
    torch.testing.assert_close(normalizer.var, x.var((0, 1), correction=0), rtol=1e-4, atol=1e-5)
    assert normalizer.count.dtype == torch.float64 and abs(normalizer.count.item() - 320) < 1e-3


def test_data_is_clipped_and_after_an_update_has_mean_zero_and_deviation_one() -> None:
    x, normalizer = data(), ObsNormalizer(3)
    untrained = normalizer(torch.tensor([[0.0, -3.0, 11.0]]))
    torch.testing.assert_close(untrained, torch.tensor([[0.0, -3.0, 10.0]]))
    normalizer.update(x)
    y = normalizer(x).flatten(0, 1)
    torch.testing.assert_close(y.mean(0), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(y.std(0), torch.ones(3), rtol=0, atol=1e-2)
    assert normalizer(x * 1e6).abs().max() == 10


def test_statistics_change_only_in_update_in_place_and_travel_with_the_state() -> None:
    normalizer, mean = ObsNormalizer(3), None
    mean = normalizer.mean
    normalizer(data())
    assert torch.equal(mean, torch.zeros(3))
    normalizer.eval().update(data())
    assert normalizer.mean is mean and (mean != 0).all()
    copy = ObsNormalizer(3)
    copy.load_state_dict(normalizer.state_dict())
    assert torch.equal(copy(data()), normalizer(data()))


def test_a_constant_observation_stays_finite() -> None:
    normalizer = ObsNormalizer(1)
    for _ in range(50):
        normalizer.update(torch.full((100, 8, 1), 1e4))
    assert normalizer(torch.full((1, 1), 1e4)).abs().item() <= 10 and normalizer.var.item() >= 0


def test_pixels_share_one_mean_and_one_deviation() -> None:
    generator = torch.Generator().manual_seed(0)
    x, normalizer = torch.randint(0, 90, (6, 2, 1, 9, 8), dtype=torch.uint8, generator=generator), PixelNormalizer()
    for piece in (x[:1], x[1:]):
        normalizer.update(piece)
    torch.testing.assert_close(normalizer.mean, x.float().mean().view(1), rtol=1e-4, atol=0)
    torch.testing.assert_close(normalizer.var, x.float().var(correction=0).view(1), rtol=1e-4, atol=0)
    y = normalizer(x.flatten(0, 1).float())
    assert y.shape == (12, 1, 9, 8) and abs(y.mean()) < 1e-3 and abs(y.std() - 1) < 1e-2
