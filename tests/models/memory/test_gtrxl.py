"""A gated transformer steps as it unrolls, as the paper's equations say, within its episode and window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vantage
from vantage.models.memory import unroll
from vantage.models.memory.gtrxl import Gate, Gtrxl, Layer

T, B, SIZE, WINDOW = 9, 3, 6, 4


def memory(num_layers: int = 2, init: str = "orthogonal") -> Gtrxl:
    torch.manual_seed(0)
    built = Gtrxl(input_size=4, memory_size=SIZE, window=WINDOW, num_layers=num_layers, num_heads=2, init=init)
    for parameter in built.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)  # biases and norms too
    return built.double()


def random_steps(reset: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(T, B, 4, dtype=torch.float64), torch.rand(T, B) < reset


def stepped(net: Gtrxl, features: Tensor, is_first: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs = []
    for row, first in zip(features, is_first, strict=True):
        output, state = net.step(row, first, state)
        outputs.append(output)
    return torch.stack(outputs), state


def attend(layer: Layer, inputs: list[Tensor], net: Gtrxl) -> Tensor:
    """The output [M] of a layer for the last of the inputs [M], one head and one past step after another."""
    attention = layer.attention
    x = [layer.attention_norm(each) for each in inputs]
    heads = []
    for h in range(2):
        rows = slice(3 * h, 3 * h + 3)
        query = attention.query.weight[rows] @ x[-1]
        scores = []
        for j, each in enumerate(x):
            encoded = net.distances[WINDOW - (len(x) - 1 - j)]
            by_content = (query + attention.content_bias[h]) @ (attention.key.weight[rows] @ each)
            by_distance = (query + attention.distance_bias[h]) @ (attention.distance.weight[rows] @ encoded)
            scores.append((by_content + by_distance) / 3 ** 0.5)
        weights = torch.stack(scores).softmax(0)
        heads.append(sum(w * (attention.value.weight[rows] @ each) for w, each in zip(weights, x, strict=True)))
    y = layer.attention_gate(inputs[-1], attention.output(torch.cat(heads)).relu())
    return layer.mlp_gate(y, layer.mlp(layer.mlp_norm(y)).relu())


@pytest.mark.parametrize("reset", [0.0, 0.3])
def test_attention_is_that_of_the_paper(reset: float) -> None:
    net, (features, is_first) = memory(), random_steps(reset)
    expected = torch.empty(T, B, SIZE, dtype=torch.float64)
    for b in range(B):
        past: list[list[Tensor]] = [[], []]
        for t in range(T):
            x = net.embedding(features[t, b])
            for layer, steps in zip(net.layers, past, strict=True):
                if is_first[t, b]:
                    steps.clear()
                steps.append(x)
                del steps[:-WINDOW - 1]
                x = attend(layer, steps, net)
            expected[t, b] = x
    torch.testing.assert_close(net.unroll(features, is_first, net.initial_state(B)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bptt", [True, False])
def test_unrolling_is_stepping_from_any_state_in_value_and_gradient(reset: float, bptt: bool) -> None:
    net, (features, is_first) = memory(), random_steps(reset)
    state = tuple(part.detach() for part in stepped(net, features.flip(0), is_first, net.initial_state(B))[1])
    features.requires_grad_()
    expected, _ = stepped(net, features, is_first, state)
    outputs = unroll(net, features, is_first, state, bptt=bptt)
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-9)
    if bptt:
        weights = torch.randn_like(outputs)
        gradients, references = (torch.autograd.grad((out * weights).sum(), [features, *net.parameters()])
                                 for out in (outputs, expected))
        torch.testing.assert_close(gradients, references, rtol=1e-9, atol=1e-9)


def test_a_step_depends_on_its_window_and_episode_alone() -> None:
    """Of one layer. Episodes begin at steps 0 and 2."""
    net, (features, is_first) = memory(num_layers=1), random_steps(0)
    is_first[2] = True
    state = stepped(net, features, is_first, net.initial_state(B))[1]
    features.requires_grad_()
    outputs = net.unroll(features, is_first, state)
    reached = torch.stack([torch.autograd.grad(row.sum(), features, retain_graph=True)[0].abs().sum((1, 2)) > 0
                           for row in outputs])
    step, past = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
    expected = (past <= step) & (step - past <= WINDOW) & ((past >= 2) == (step >= 2))
    assert torch.equal(reached, expected)


def test_an_episode_forgets_the_state_even_what_is_not_finite() -> None:
    net, (features, _) = memory(), random_steps(0)
    window, count = net.initial_state(B)
    output, (newest, steps) = net.step(features[0], torch.ones(B, dtype=torch.bool), (window + torch.nan, count + 4))
    expected, state = net.step(features[0], torch.zeros(B, dtype=torch.bool), (window, count))
    assert torch.equal(output, expected) and torch.equal(newest, state[0]) and steps.tolist() == [1] * B


def test_a_gate_begins_near_the_identity() -> None:
    torch.manual_seed(0)
    for init in ("orthogonal", "torch"):
        gate, (x, y) = Gate(64, init=init), torch.randn(2, 100, 64)
        assert (gate(x, y) - x).norm() < 0.4 * x.norm()
        assert torch.equal(gate.of_new.bias[64:128], torch.full((64,), -2.0))


def test_heads_that_do_not_divide_the_size_and_keys_without_a_transformer_are_refused() -> None:
    with pytest.raises(vantage.ConfigError, match=r"memory_size=30 cannot be split among memory_heads=4; give a mul"):
        vantage.configure("ppo", env="CartPole-v1", memory="gtrxl", memory_size=30)
    with pytest.raises(vantage.ConfigError, match=r"memory_window=9 has no effect with memory=lstm; give"):
        vantage.configure("ppo", env="CartPole-v1", memory="lstm", memory_window=9)
