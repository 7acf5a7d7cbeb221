"""The torso of a set of entities: self-attention among them, then their mean and maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vantage.algorithms.distributions import MASKED
from vantage.models.initialization import initialise

MOST_HEADS = 4


class SetTorso(nn.Module):
    """Features of a set that depend neither on the order of its rows nor on those not in it.

    Each entity is embedded alone and attends to all others (Lee et al. 2019, arXiv:1810.00825,
    section 3.1, without the second layer). The mean, the maximum and the share of rows that exist
    enter one dense layer. The features of an empty set are 0.
    """

    def __init__(self, embedding: nn.Module, activation: Callable[[Tensor], Tensor], *,
                 init: str) -> None:
        super().__init__()
        size = cast(int, embedding.out_features)
        self.embedding = embedding
        self.num_heads = math.gcd(size, MOST_HEADS)
        self.query_key_value = nn.Linear(size, 3 * size, bias=False)
        self.attended = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)
        self.pooled = nn.Linear(2 * size + 1, size)
        self.activation = activation
        self.out_features = size
        for layer in (self.query_key_value, self.attended):
            initialise(layer, init=init)
        initialise(self.pooled, init=init, activation="tanh")

    def forward(self, x: Float[Tensor, "B N F"]) -> Float[Tensor, "B H"]:
        exists = x[..., -1:]
        num_entities = x.shape[1]
        h = self.embedding(x[..., :-1].flatten(0, 1))
        h = h.reshape(-1, num_entities, self.out_features)
        h = self.norm(h + self._attend(h, exists)) * exists
        mean = h.sum(1) / exists.sum(1).clamp(min=1)
        largest = torch.where(exists > 0, h, -torch.inf).amax(1)
        any_exists = exists.amax(1)
        largest = torch.where(any_exists > 0, largest, 0.0)
        pooled = torch.cat([mean, largest, exists.mean(1)], -1)
        return self.activation(self.pooled(pooled)) * any_exists

    def _attend(self, h: Float[Tensor, "B N H"], exists: Float[Tensor, "B N 1"]) -> Tensor:
        """Attention of several heads to the entities that exist; 0 if none does."""
        parts = torch.unflatten(self.query_key_value(h), -1, (3, self.num_heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5)
        keys = exists.transpose(1, 2).unsqueeze(1)
        weights = scores.masked_fill(keys == 0, MASKED).softmax(-1) * keys
        return cast(Tensor, self.attended((weights @ value).transpose(1, 2).flatten(2)))
