"""A network of your own: residual convolutions with self-attention over the pixels that they leave.

    cd examples
    vantage train a2c --env Pong --network residual_attention_torso:ResidualAttention

Vantage builds the class with the shape of one observation, its stacked frames included, and adds the heads and, with
--memory lstm, the memory. Evaluating or resuming the run imports this module again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(F.relu(self.first(F.relu(x))))
        return x + y


class ResidualAttention(nn.Module):
    """Images [N, C, H, W] from 0 to 1 to features [N, 128]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = 32
        self.out_features = 128
        # A 4x4 kernel with stride 4 and the pooling leave 11x11 of 84x84 pixels: attention is quadratic in them.
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], channels, 4, stride=4, padding=2), Residual(channels),
            nn.MaxPool2d(2, ceil_mode=True), Residual(channels))
        with torch.no_grad():
            pixels = self.convolutions(torch.zeros(1, *shape)).flatten(2).shape[2]
        self.positions = nn.Parameter(torch.randn(pixels, channels) * 0.02)
        self.norm = nn.LayerNorm(channels)
        self.queries_keys_values = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(2 * channels, self.out_features)

    def forward(self, images: Tensor) -> Tensor:
        pixels = self.convolutions(images).flatten(2).transpose(1, 2)  # [N, pixels, channels]
        queries, keys, values = self.queries_keys_values(self.norm(pixels + self.positions)).chunk(3, -1)
        pixels = pixels + F.scaled_dot_product_attention(queries, keys, values)
        summary = torch.cat([pixels.mean(1), pixels.amax(1)], -1)
        return F.relu(self.out(summary))
