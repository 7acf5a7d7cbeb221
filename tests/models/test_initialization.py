"""Initial weights: norms, bounds and deviations of every kind of layer, for every `init`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vantage.config import Config
from vantage.models import ActorCritic, make_model
from vantage.models.recurrent import Recurrent
from vantage.types import ActionSpec, ArraySpec, EnvSpec

IMAGE, VECTOR = ArraySpec("image", (2, 40, 40)), ArraySpec("vector", (12,))
DISCRETE, BOX = ActionSpec("discrete", (6,)), ActionSpec("box", (3,), (-1.0,) * 3, (1.0,) * 3)
TORSOS: dict[str, tuple[ArraySpec, dict[str, Any]]] = {
    "mlp": (VECTOR, {"hidden": "64,48", "activation": "leaky_relu"}), "a3c": (IMAGE, {"network": "a3c"}),
    "universe": (IMAGE, {"network": "universe"}), "impala": (IMAGE, {"network": "impala"}),
    "conv1d": (VECTOR, {"network": "conv1d", "frame_stack": 2})}


def model(spec: ArraySpec, action: ActionSpec = DISCRETE, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = Config().change(**keys)
    return make_model(config.policy, EnvSpec(spec, action), critic=config.algorithm.needs.critic)


def layers(module: nn.Module) -> list[Any]:
    result = [x for x in module.modules() if isinstance(x, nn.Linear | nn.Conv1d | nn.Conv2d)]
    assert result
    return result


def rows(weight: Tensor) -> Tensor:
    return weight.detach().flatten(1).norm(dim=1)


def assert_uniform(weight: Tensor, bound: float) -> None:
    """Within ±bound, reaching out to it, and with the deviation bound/√3."""
    values = weight.detach().flatten()
    assert values.abs().max() <= bound * (1 + 1e-6)
    assert values.std(correction=0).item() == pytest.approx(bound / math.sqrt(3), rel=4 / math.sqrt(values.numel()))
    assert values.abs().max() > bound * (1 - 8 / values.numel())


def kaiming_bound(weight: Tensor, gain: float) -> float:
    return gain * math.sqrt(3 / weight[0].numel())


def xavier_bound(weight: Tensor, outputs: int | None = None) -> float:
    field = weight[0, 0].numel()
    return math.sqrt(6 / (field * (weight.shape[1] + (outputs or weight.shape[0]))))


@pytest.mark.parametrize("torso", TORSOS)
def test_hidden_layers_begin_as_the_name_says_without_biases(torso: str) -> None:
    spec, keys = TORSOS[torso]
    gain = math.sqrt(2 / (1 + 0.25 ** 2)) if torso == "mlp" else math.sqrt(2)
    for layer in layers(model(spec, init="columns", **keys).actor):
        torch.testing.assert_close(rows(layer.weight), torch.ones(len(layer.weight)))
        assert layer.weight.std() > 0 and (layer.bias == 0).all()
    for layer in layers(model(spec, init="kaiming", **keys).actor):
        assert_uniform(layer.weight, kaiming_bound(layer.weight, gain))
        assert (layer.bias == 0).all()
    for layer in layers(model(spec, init="xavier", **keys).actor):
        assert_uniform(layer.weight, xavier_bound(layer.weight))
        assert (layer.bias == 0).all()


@pytest.mark.parametrize(("activation", "gain"), [
    ("tanh", 5 / 3), ("relu", math.sqrt(2)), ("elu", math.sqrt(2)), ("silu", math.sqrt(2)),
    ("leaky_relu", math.sqrt(2 / 1.0625))])
def test_kaimings_gain_is_that_of_the_activation(activation: str, gain: float) -> None:
    layer, = layers(model(VECTOR, hidden="200", activation=activation, init="kaiming").actor)
    assert_uniform(layer.weight, kaiming_bound(layer.weight, gain))


def test_columns_of_normal_rows_point_anywhere() -> None:
    layer, = layers(model(VECTOR, hidden="4000", init="columns").actor)
    weight = layer.weight.detach()
    torch.testing.assert_close(weight.T @ weight / 4000, torch.eye(12) / 12, rtol=0, atol=0.01)
    assert weight.mean().abs() < 0.01


@pytest.mark.parametrize("action", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("algo", ["a2c", "acer"])
def test_heads_begin_small_for_the_policy_and_at_one_for_the_critic(algo: str, action: ActionSpec) -> None:
    def heads(init: str) -> tuple[nn.Linear, list[nn.Linear]]:
        whole = model(VECTOR, action, algo=algo, init=init, std="state", hidden="300")
        critic = [whole.value_head, *([whole.advantage_head.out] if whole.advantage_head else [])]
        return whole.policy_head.linear, critic

    policy, critic = heads("columns")
    torch.testing.assert_close(rows(policy.weight), torch.full((len(policy.weight),), 0.01))
    for head in critic:
        torch.testing.assert_close(rows(head.weight), torch.ones(len(head.weight)))
    for init, bound in (("kaiming", lambda w: kaiming_bound(w, 1.0)), ("xavier", xavier_bound)):
        policy, critic = heads(init)
        for head in (policy, *critic):
            assert_uniform(head.weight, bound(head.weight))
            assert (head.bias == 0).all()


def test_the_hidden_layer_of_continuous_acers_advantages_is_one_too() -> None:
    for init in ("columns", "kaiming"):
        head = model(VECTOR, BOX, algo="acer", init=init).advantage_head
        assert head is not None
        if init == "columns":
            torch.testing.assert_close(rows(head.hidden.weight), torch.ones(64))
        else:
            assert_uniform(head.hidden.weight, kaiming_bound(head.hidden.weight, 5 / 3))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_each_gate_begins_as_a_layer_would_and_the_forget_gate_open(kind: str) -> None:
    def memory(init: str) -> Recurrent:
        torch.manual_seed(0)
        return Recurrent(kind, 20, 32, bptt=True, init=init)

    for init in ("columns", "kaiming", "xavier"):
        cells = memory(init)
        for weight in (cells.weight_ih, cells.weight_hh):
            for gate in weight.split(32):
                if init == "columns":
                    torch.testing.assert_close(rows(gate), torch.ones(32))
                else:
                    assert_uniform(gate, kaiming_bound(gate, 1.0) if init == "kaiming" else xavier_bound(gate, 32))
        open_gate = [0.0, 1.0, 0.0, 0.0] if kind == "lstm" else [0.0] * 3
        assert torch.equal(cells.bias_ih + cells.bias_hh, torch.tensor(open_gate).repeat_interleave(32))


def test_deviations_begin_where_the_config_says_for_every_initialisation() -> None:
    for init in ("columns", "kaiming", "xavier"):
        head = model(VECTOR, BOX, init=init, std="state", log_std_init=-1.0).policy_head
        assert torch.equal(head.linear.bias, torch.tensor([0.0] * 3 + [-1.0] * 3))
