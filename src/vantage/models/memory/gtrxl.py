"""Gated Transformer-XL, a memory by attention: Parisotto et al. 2020, arXiv:1910.06764.

The input of each layer attends to itself and to the inputs of the `window` steps before it, across
rollouts and within its episode. The window is the state, so gradients flow through the steps of a
rollout and end where it began.
"""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.models.initialization import fill, initialise
from vantage.types import State


class Gtrxl(nn.Module):
    """Layers of gated attention, whose state is (window, count).

    The window [B, L, W, M] has the inputs of each of L layers at the last W steps, the newest last;
    `count` [B] says how many of them are of the current episode.
    """

    state_names = ("gtrxl_window", "gtrxl_count")

    def __init__(self, *, input_size: int, memory_size: int, window: int, num_layers: int,
                 num_heads: int, init: str) -> None:
        super().__init__()
        self.out_features = memory_size
        self.window = window
        self.embedding = nn.Linear(input_size, memory_size)
        initialise(self.embedding, init=init)
        self.layers = nn.ModuleList(
            Layer(memory_size, num_heads, init=init) for _ in range(num_layers))
        self.distances: Tensor
        self.register_buffer("distances", encoded_distances(window, memory_size), persistent=False)

    def initial_state(self, batch: int) -> State:
        weight = self.embedding.weight
        window = weight.new_zeros(batch, len(self.layers), self.window, self.out_features)
        return window, torch.zeros(batch, dtype=torch.int64, device=weight.device)

    def step(self, features: Float[Tensor, "B F"], is_first: Bool[Tensor, " B"],
             state: State) -> tuple[Float[Tensor, "B M"], State]:
        window, count = state
        window = window.masked_fill(is_first[:, None, None, None], 0)
        count = count.masked_fill(is_first, 0)
        outputs, inputs = self._attend(features.unsqueeze(0), is_first.unsqueeze(0),
                                       (window, count))
        newest = torch.stack([each[:, 1:] for each in inputs], 1)
        return outputs.squeeze(0), (newest, (count + 1).clamp(max=self.window))

    def unroll(self, features: Float[Tensor, "T B F"], is_first: Bool[Tensor, "T B"],
               state: State) -> Float[Tensor, "T B M"]:
        return self._attend(features, is_first, state)[0]

    def _attend(self, features: Tensor, is_first: Tensor,
                state: State) -> tuple[Tensor, list[Tensor]]:
        """Outputs [T, B, M], and each layer's inputs [B, W+T, M], those of the window first."""
        window, count = state
        visible = visible_steps(is_first, count, window=self.window)
        x = self.embedding(features).transpose(0, 1)
        inputs = []
        for layer, past in zip(self.layers, window.unbind(1), strict=True):
            inputs.append(torch.cat([past, x], 1))
            x = layer(inputs[-1], visible, self.distances)
        return x.transpose(0, 1), inputs


class Layer(nn.Module):
    """Attention, then two dense layers, each behind a layer norm and combined by a gate.

    Section 3.2: y = gate(x, relu(attention(norm(x)))), then gate(y, relu(mlp(norm(y)))).
    """

    def __init__(self, size: int, num_heads: int, *, init: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size)
        self.attention = RelativeAttention(size, num_heads, init=init)
        self.attention_gate = Gate(size, init=init)
        self.mlp_norm = nn.LayerNorm(size)
        # 4 times the size, as in Vaswani et al. 2017, arXiv:1706.03762.
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.ReLU(), nn.Linear(4 * size, size))
        initialise(self.mlp, init=init, activation="relu")
        self.mlp_gate = Gate(size, init=init)

    def forward(self, inputs: Tensor, visible: Tensor, distances: Tensor) -> Tensor:
        """Outputs [B, T, M] of the last T of the inputs [B, W+T, M]."""
        x = inputs[:, inputs.shape[1] - visible.shape[1]:]
        attended = self.attention(self.attention_norm(inputs), visible, distances)
        x = self.attention_gate(x, attended.relu())
        return cast(Tensor, self.mlp_gate(x, self.mlp(self.mlp_norm(x)).relu()))


class RelativeAttention(nn.Module):
    """Attention of several heads by content and distance: Dai et al. 2019, arXiv:1901.02860.

    The score of step j for step i is (q_i + u) k_j + (q_i + v) r_{i-j}, over the root of the size of
    a head; q, k and r are linear in the input of i, the input of j and the encoded distance.
    """

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    distance: nn.Linear
    output: nn.Linear

    def __init__(self, size: int, num_heads: int, *, init: str) -> None:
        super().__init__()
        self.num_heads = num_heads
        for name in ("query", "key", "value", "distance", "output"):
            layer = nn.Linear(size, size, bias=False)
            initialise(layer, init=init)
            setattr(self, name, layer)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, size // num_heads))
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, size // num_heads))

    def forward(self, inputs: Float[Tensor, "B S M"], visible: Bool[Tensor, "B T S"],
                distances: Float[Tensor, "D M"]) -> Float[Tensor, "B T M"]:
        num_steps, span = visible.shape[1:]
        query = torch.unflatten(self.query(inputs[:, span - num_steps:]), -1, (self.num_heads, -1))
        # (W x) q = x (Wᵀ q): the weights of keys and values are applied to the queries and to the
        # weighted means. A step then costs no products of weights with the whole window.
        by_content = self._back(query + self.content_bias, self.key).flatten(1, 2)
        each_head = (num_steps, self.num_heads)
        scores = torch.unflatten(by_content @ inputs.transpose(1, 2), 1, each_head)
        by_distance = self._back(query + self.distance_bias, self.distance) @ distances.T
        scores = scores + skewed(by_distance.transpose(1, 2)).transpose(1, 2)
        scores = scores * (query.shape[-1] ** -0.5)
        weights = scores.masked_fill(~visible.unsqueeze(2), -torch.inf).softmax(-1)
        means = torch.unflatten(weights.flatten(1, 2) @ inputs, 1, each_head)
        values = torch.einsum("bthm,hdm->bthd", means, self._heads_of(self.value))
        return cast(Tensor, self.output(values.flatten(2)))

    def _heads_of(self, layer: nn.Linear) -> Tensor:
        """The weights [H, M/H, M]."""
        return torch.unflatten(layer.weight, 0, (self.num_heads, -1))

    def _back(self, query: Tensor, layer: nn.Linear) -> Tensor:
        """Each head's query [B, T, H, M/H] times the weights of its keys: [B, T, H, M]."""
        return torch.einsum("bthd,hdm->bthm", query, self._heads_of(layer))


class Gate(nn.Module):
    """The gate of a GRU: (1 - z) x + z h, with h and z from the stream x and the new part y.

    Section 3.2, whose bias of 2 makes z small at first: each layer begins near the identity, and
    the policy as one without memory.
    """

    def __init__(self, size: int, *, init: str) -> None:
        super().__init__()
        self.of_new = nn.Linear(size, 3 * size)
        self.of_stream = nn.Linear(size, 2 * size, bias=False)
        self.of_reset = nn.Linear(size, size, bias=False)
        if init != "torch":
            nn.init.zeros_(self.of_new.bias)
            for layer in (self.of_new, self.of_stream, self.of_reset):
                for weight in layer.weight.data.chunk(len(layer.weight) // size):
                    fill(weight, init)
        self.of_new.bias.data[size:2 * size] = -2

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        reset_new, update_new, candidate_new = self.of_new(y).chunk(3, -1)
        reset_stream, update_stream = self.of_stream(x).chunk(2, -1)
        reset = (reset_new + reset_stream).sigmoid()
        update = (update_new + update_stream).sigmoid()
        candidate = (candidate_new + self.of_reset(reset * x)).tanh()
        return torch.lerp(x, candidate, update)


def visible_steps(is_first: Bool[Tensor, "T B"], count: Int[Tensor, " B"], *,
                  window: int) -> Bool[Tensor, "B T S"]:
    """Which of the S = window + T inputs each of T steps attends to.

    These are the step itself and up to `window` steps before it in its episode.
    """
    num_steps = len(is_first)
    episode = is_first.T.cumsum(1).unsqueeze(-1)
    age = torch.arange(window, 0, -1, device=count.device)
    before = (episode == 0) & (age <= count.unsqueeze(-1)).unsqueeze(1)
    same = torch.cat([before, episode == episode.transpose(1, 2)], -1)
    step = torch.arange(num_steps, device=count.device).unsqueeze(-1)
    later = torch.arange(window + num_steps, device=count.device) - step
    return same & (later >= 0) & (later <= window)


def skewed(by_distance: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T S"]:
    """Row t moved right by t: scores by distance W ... 0 at the W+T inputs.

    Where an input is farther than W or later than the step, the value has no meaning.
    """
    num_steps, num_distances = by_distance.shape[-2:]
    span = num_distances - 1 + num_steps
    padded = F.pad(by_distance, (0, num_steps)).flatten(-2)
    return torch.unflatten(padded[..., :num_steps * span], -1, (num_steps, span))


def encoded_distances(window: int, size: int) -> Float[Tensor, "D M"]:
    """Sines and cosines [window + 1, size] of the distances from `window` to 0."""
    distances = torch.arange(window, -1, -1, dtype=torch.float32).unsqueeze(-1)
    frequencies = 10_000 ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = distances * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)[:, :size]
