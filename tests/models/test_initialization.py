"""Initial weights: norms, bounds and deviations of every kind of layer, for every `init`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vantage.config.config import Config
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.memory.gru import Gru
from vantage.models.memory.lstm import Lstm
from vantage.types import ActionSpec, ArraySpec, EnvSpec

CELLS: dict[str, Any] = {"lstm": Lstm, "gru": Gru}
IMAGE, VECTOR = ArraySpec("image", (2, 40, 40)), ArraySpec("vector", (12,))
DISCRETE, BOX = ActionSpec("discrete", (6,)), ActionSpec("box", (3,), (-1.0,) * 3, (1.0,) * 3)
INITS = ("orthogonal", "columns", "kaiming", "xavier")
GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "elu": math.sqrt(2), "silu": math.sqrt(2),
         "leaky_relu": math.sqrt(2 / 1.0625)}


def model(spec: ArraySpec, action: ActionSpec = DISCRETE, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = Config().change(**keys)
    return make_model(config.policy, EnvSpec(spec, action), critic=config.algorithm.needs.critic)


def layers(module: nn.Module) -> list[Any]:
    result = [x for x in module.modules() if isinstance(x, nn.Linear | nn.Conv1d | nn.Conv2d)]
    assert result
    return result


def assert_uniform(values: Tensor, bound: float) -> None:
    """Within ±bound, with an extreme near it, and with the deviation bound/√3."""
    assert values.abs().max() <= bound * (1 + 1e-6)
    assert values.std(correction=0).item() == pytest.approx(bound / math.sqrt(3), rel=4 / math.sqrt(values.numel()))
    assert values.abs().max() > bound * (1 - 8 / values.numel())


def assert_initial(weight: Tensor, init: str, *, gain: float = 1.0, scale: float = 1.0, orthogonal: float) -> None:
    """`gain` is kaiming's, `scale` the norm of columns' rows, `orthogonal` the singular values."""
    weight, inputs = weight.detach(), weight[0].numel()
    rows = weight.flatten(1)
    if init == "columns":
        torch.testing.assert_close(rows.norm(dim=1), torch.full((len(rows),), scale))
        assert rows.std() > 0
    elif init == "orthogonal":
        singular = torch.linalg.svdvals(rows)
        torch.testing.assert_close(singular, torch.full_like(singular, orthogonal), rtol=1e-4, atol=1e-4)
    else:
        fans = inputs + len(weight) * weight[0, 0].numel()
        assert_uniform(rows.flatten(), gain * math.sqrt(3 / inputs) if init == "kaiming" else math.sqrt(6 / fans))


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize(("spec", "keys"), [
    *[(VECTOR, {"hidden": "64,48", "activation": activation}) for activation in GAINS],
    (IMAGE, {"network": "a3c"}), (IMAGE, {"network": "universe"}), (IMAGE, {"network": "impala"}),
    (VECTOR, {"network": "conv1d", "frame_stack": 2})], ids=str)
def test_hidden_layers_begin_as_the_name_says_without_biases(spec: ArraySpec, keys: Any, init: str) -> None:
    for layer in layers(model(spec, init=init, **keys).actor):
        assert_initial(layer.weight, init, gain=GAINS[keys.get("activation", "relu")], orthogonal=math.sqrt(2))
        assert (layer.bias == 0).all()


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("action", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("algo", ["a2c", "acer"])
def test_heads_begin_small_for_the_policy_and_at_one_for_the_critic(algo: str, action: ActionSpec, init: str) -> None:
    net = model(VECTOR, action, algo=algo, init=init, hidden="300", std="state", log_std_init=-1.0)
    policy = net.policy_head.linear
    assert_initial(policy.weight, init, scale=0.01, orthogonal=0.01)
    assert policy.bias.tolist() == ([0] * 6 if action is DISCRETE else [0, 0, 0, -1, -1, -1])
    assert_initial(net.value_head.weight, init, orthogonal=1)
    assert (net.value_head.bias == 0).all()
    assert (net.advantage_head is not None) == (algo == "acer" and action is BOX)
    if net.advantage_head is not None:
        assert_initial(net.advantage_head.out.weight, init, orthogonal=1)
        assert_initial(net.advantage_head.hidden.weight, init, gain=5 / 3, orthogonal=math.sqrt(2))


def test_columns_of_normal_rows_point_anywhere() -> None:
    layer, = layers(model(VECTOR, hidden="4000", init="columns").actor)
    weight = layer.weight.detach()
    torch.testing.assert_close(weight.T @ weight / 4000, torch.eye(12) / 12, rtol=0, atol=0.01)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_each_gate_begins_as_a_layer_would_and_the_forget_gate_open(kind: str, init: str) -> None:
    torch.manual_seed(0)
    cells = CELLS[kind](input_size=20, memory_size=32, init=init)
    for gate in (*cells.weight_ih.split(32), *cells.weight_hh.split(32)):
        assert_initial(gate, init, orthogonal=1)
    open_gate = [0.0, 1.0, 0.0, 0.0] if kind == "lstm" else [0.0] * 3
    assert torch.equal(cells.bias_ih + cells.bias_hh, torch.tensor(open_gate).repeat_interleave(32))


def test_torchs_own_initialisation_is_left_alone() -> None:
    first, *_ = layers(model(VECTOR, init="torch", hidden="32"))
    torch.manual_seed(0)
    expected = nn.Linear(12, 32)
    assert torch.equal(first.weight, expected.weight) and torch.equal(first.bias, expected.bias)
    for kind in ("lstm", "gru"):
        cells = CELLS[kind](input_size=20, memory_size=32, init="torch")
        assert_uniform(torch.cat([p.detach().flatten() for p in cells.parameters()]), 32 ** -0.5)
