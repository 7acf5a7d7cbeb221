"""Laws of the whole model: steps equal unrolls, gradients, states, masks, precision, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from vantage.algorithms.distributions import MASKED
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.types import ActionSpec, ArraySpec, EnvSpec, Obs, State, map_parts

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (2, 20, 21))
OBS: dict[str, ArraySpec | Mapping[str, ArraySpec]] = {
    "vector": VECTOR, "image": IMAGE, "dict": {"z.pos": VECTOR, "a": ArraySpec("vector", (2,)), "camera": IMAGE}}
DISCRETE, BOX = ActionSpec("discrete", (4,)), ActionSpec("box", (2,), (-1.0, -1.0), (1.0, 1.0))
T, B = 7, 3
MIDDLE = torch.zeros(T, B, dtype=torch.bool)
MIDDLE[[0, 3, 4, 4, 6], [0, 0, 0, 1, 2]] = True


def model(obs: str = "vector", action: ActionSpec = DISCRETE, *, masked: bool = False, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    keys = {"hidden": "8", "memory_size": 5, "init": "torch", **keys}
    return make_model(Config().change(**keys).policy, EnvSpec(OBS[obs], action, masked), critic="state")


def random_obs(name: str, *, seed: int = 0, length: int = T) -> Any:
    source, spec = torch.Generator().manual_seed(seed), OBS[name]

    def part(spec: ArraySpec) -> Tensor:
        shape = (length, B, *spec.shape)
        return (torch.randint(0, 256, shape, dtype=torch.uint8, generator=source) if spec.kind == "image" else
                torch.randn(shape, generator=source))

    return {key: part(each) for key, each in spec.items()} if isinstance(spec, Mapping) else part(spec)


def step_all(net: ActorCritic, obs: Obs, is_first: Tensor, state: State,
             mask: Tensor | None = None) -> tuple[Tensor, Tensor, list[State]]:
    params, values, states = [], [], [state]
    for t in range(len(is_first)):
        p, v, state = net.step_with_values(map_parts(lambda part, t=t: part[t], obs), is_first[t], state,
                                           None if mask is None else mask[t])
        params.append(p)
        values.append(v)
        states.append(state)
    return torch.stack(params), torch.stack(values), states


@pytest.mark.parametrize(("obs", "memory", "frame_stack", "stack_pad", "separate"), [
    ("vector", "none", 1, "zeros", False), ("vector", "lstm", 3, "repeat", True), ("image", "none", 3, "zeros", True),
    ("image", "gru", 3, "repeat", False), ("dict", "lstm", 3, "zeros", True), ("dict", "gru", 1, "zeros", False)])
def test_unrolling_is_stepping(obs: str, memory: str, frame_stack: int, stack_pad: str, separate: bool) -> None:
    net = model(obs, memory=memory, frame_stack=frame_stack, stack_pad=stack_pad, separate=separate,
                obs_norm=True).double()
    data = random_obs(obs)
    with torch.no_grad():
        state = step_all(net, random_obs(obs, seed=9), MIDDLE, net.initial_state(B))[2][-1]
        net.observe(data)
        params, values, states = step_all(net, data, MIDDLE, state)
        unrolled, policy = net.unroll(data, MIDDLE, state), net.unroll_features(data, MIDDLE, state, critic=False)[0]
        without_values = net.step(map_parts(lambda part: part[0], data), MIDDLE[0], state)
    torch.testing.assert_close(without_values, (params[0], states[1]), rtol=0, atol=0)
    torch.testing.assert_close(unrolled, (params, values), rtol=1e-10, atol=1e-12)
    assert torch.equal(policy, unrolled[0]) and params.shape == (T, B, 4) and values.shape == (T, B)
    assert [(s.shape, s.dtype) for s in states[-1]] == [(s.shape, s.dtype) for s in net.initial_state(B)]


def test_the_state_is_frames_by_key_then_the_policys_cells_then_the_critics() -> None:
    net = model("dict", memory="lstm", frame_stack=4, separate=True)
    expected = [((B, 3, 2), torch.float32), ((B, 3, 2, 20, 21), torch.uint8), ((B, 3, 3), torch.float32)]
    assert [(tuple(s.shape), s.dtype) for s in net.initial_state(B)] == expected + [((B, 5), torch.float32)] * 4
    assert all((s == 0).all() for s in net.initial_state(B))
    assert model().initial_state(B) == () and len(model(memory="gru").initial_state(B)) == 1


@pytest.mark.parametrize(("obs", "memory", "separate", "bptt"), [
    ("vector", "none", True, True), ("vector", "gru", False, False), ("image", "lstm", True, False),
    ("dict", "gru", True, True), ("dict", "lstm", False, True)])
def test_the_loss_of_an_unroll_reaches_every_parameter_through_memories_of_the_configs_bptt(
        obs: str, memory: str, separate: bool, bptt: bool) -> None:
    net = model(obs, BOX, memory=memory, separate=separate, bptt=bptt, frame_stack=2, squash_mean=True)
    params, values = net.unroll(random_obs(obs), MIDDLE, net.initial_state(B))
    (params.sin().sum() + values.square().sum()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    assert all(trunk is None or trunk.memory is None or trunk.bptt == bptt for trunk in (net.actor, net.critic))


def test_acting_and_the_policy_alone_run_no_separate_critic_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    net, obs = model(separate=True), random_obs("vector")
    monkeypatch.setattr(net.critic, "encode", None)
    assert net.step(obs[0], MIDDLE[0], ())[0].shape == (B, 4)
    assert net.unroll_features(obs, MIDDLE, (), critic=False)[0].shape == (T, B, 4)


def test_the_last_row_only_bootstraps() -> None:
    net = model()
    net.unroll(random_obs("vector"), MIDDLE, ())[1][-1].sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in net.actor.parameters())


@pytest.mark.parametrize(("keys", "reaches_actor"), [({}, True), ({"separate": True}, False),
                                                     ({"detach_critic": True}, False)])
def test_the_value_loss_reaches_a_shared_trunk_only(keys: dict[str, Any], reaches_actor: bool) -> None:
    net = model(memory="gru", **keys)
    params, values = net.unroll(random_obs("vector"), MIDDLE, net.initial_state(B))
    values.square().sum().backward(retain_graph=True)
    assert any(p.grad is not None for p in net.actor.parameters()) == reaches_actor
    assert net.value_head.weight.grad is not None and all(p.grad is None for p in net.policy_head.parameters())
    net.zero_grad()
    params.sum().backward()
    assert net.critic is None or all(p.grad is None for p in net.critic.parameters())


@pytest.mark.parametrize("action", [DISCRETE, ActionSpec("multi_discrete", (3, 2))])
def test_actions_not_allowed_are_masked_in_steps_and_unrolls_alike(action: ActionSpec) -> None:
    net, data = model(action=action, masked=True, memory="lstm"), random_obs("vector")
    mask = torch.rand(T, B, sum(action.sizes)) < 0.6
    params, _, _ = step_all(net, data, MIDDLE, net.initial_state(B), mask)
    torch.testing.assert_close(params, net.unroll(data, MIDDLE, net.initial_state(B), mask)[0], rtol=1e-4, atol=1e-5)
    assert (params[~mask] == MASKED).all() and (params[mask].abs() < 10).all()


def test_observations_are_normalised_by_the_statistics_of_observe() -> None:
    keys: dict[str, Any] = {"network": "mlp", "frame_stack": 2}
    net, raw = model("dict", obs_norm=True, image_norm="global", **keys), model("dict", **keys)
    data, is_first = random_obs("dict", length=50), torch.zeros(50, B, dtype=torch.bool)
    data = {**data, "a": data["a"] * 100 + 7, "camera": data["camera"] // 4 + 50}
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    net.unroll(data, is_first, net.initial_state(B))
    assert all(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())
    net.observe(data)
    scaled = {key: (part - part.mean((0, 1))) / part.std((0, 1), correction=0) if key != "camera" else part
              for key, part in data.items()}
    pixels = data["camera"].float()
    low = float(-pixels.mean() / pixels.std())
    raw.preprocessor.pixel_range = (low, low + 255 / float(pixels.std()))
    # From the second step on: the frame before the first is raw zeros on one side, normalised ones on the other.
    ours, theirs = net.unroll(data, is_first, net.initial_state(B)), raw.unroll(scaled, is_first, raw.initial_state(B))
    torch.testing.assert_close(ours[0][1:], theirs[0][1:], rtol=1e-3, atol=1e-4)


def test_every_tensor_that_the_model_makes_is_on_its_own_device() -> None:
    net = model("dict", BOX, memory="lstm", frame_stack=3, obs_norm=True, squash_mean=True).to("meta")
    obs = map_parts(lambda part: part[0].to("meta"), random_obs("dict"))
    params, values, state = net.step_with_values(obs, MIDDLE[0].to("meta"), net.initial_state(B))
    assert {tensor.device.type for tensor in (params, values, *state)} == {"meta"}


@pytest.mark.parametrize(("network", "memory", "obs"), [
    ("mlp", "none", "image"), ("universe", "lstm", "dict"), ("impala", "gru", "image")])
def test_bfloat16_rounds_and_no_more(network: str, memory: str, obs: str) -> None:
    results = []
    for precision in ("float32", "bfloat16"):
        net = model(obs, network=network, memory=memory, frame_stack=2, precision=precision)
        params, values = net.unroll(random_obs(obs), MIDDLE, net.initial_state(B))
        (params.square().sum() + values.square().sum()).backward()
        results.append((params.detach(), values.detach(),
                        torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])))
    for a, b in zip(*results, strict=True):
        assert b.dtype == torch.float32 and not torch.equal(a, b) and (a - b).norm() < 0.05 * a.norm()


def test_constant_weights_in_bfloat16_are_those_of_the_moment() -> None:
    net, obs, first = model("image", network="mlp", precision="bfloat16"), random_obs("image")[0], MIDDLE[0]
    results = []
    for _ in range(2):
        with torch.no_grad(), net.constant_weights():
            once, again = (net.step(obs, first, ())[0] for _ in range(2))
        assert torch.equal(once, again)
        results.append(once)
        for parameter in net.parameters():
            parameter.data.mul_(2)
    assert not torch.allclose(*results)


@pytest.mark.parametrize(("obs", "keys", "message"), [
    ("vector", {"action": BOX, "masked": True}, "not for box"),
    ("vector", {"precision": "bfloat16"}, "precision=bfloat16 is for images"),
    ("vector", {"image_norm": "global"}, "image_norm=global is for images"),
    ("vector", {"network": "nature"}, "network=nature is for images, and this environment shows none"),
    ("vector", {"separate": True, "detach_critic": True}, "give separate=False"),
    ("image", {"network": "conv1d"}, "conv1d is for vectors"),
    ("image", {"image_norm": "global", "obs_scale": "-1:1"}, "obs_scale=-1:1 has no effect on images that image_norm"),
])
def test_options_without_effect_are_refused(obs: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(obs, **keys)


@pytest.mark.parametrize(("shape", "keys"), [
    ((3,), {"hidden": "65536,65536"}), ((3,), {"memory": "lstm", "memory_size": 65_536}), ((10**7,), {"hidden": "64"}),
    ((10**7, 10**7, 3), {"network": "mlp", "hidden": "65536"}), ((10**7, 10**7, 10**7), {"network": "mlp"})])
def test_a_network_of_absurd_size_is_refused(
        shape: tuple[int, ...], keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBS, "large", ArraySpec("vector" if len(shape) == 1 else "image", shape))
    words = r"more than 500,000,000, .*numbers and actions of 4; give smaller ones"
    with torch.device("meta"), pytest.raises(ConfigError, match=words):
        model("large", **keys)


def test_a_squashed_gaussian_has_the_density_of_its_own_samples_with_any_mean() -> None:
    policy = PolicyConfig(distribution="squashed", hidden=(8,))
    spec = EnvSpec(ArraySpec("vector", (1,)), ActionSpec("box", (1,), (-1.0,), (1.0,)))
    model = make_model(policy, spec, critic="state")
    with torch.no_grad():
        model.policy_head.linear.bias.fill_(100.0)
    params, _, _ = model.step_with_values(torch.zeros(64, 1), torch.ones(64, dtype=torch.bool), ())
    actions = model.distribution.sample(params, torch.Generator().manual_seed(0))
    assert model.distribution.mode(params).min() > 0.999
    u = params.detach()[:, 0] + torch.randn(64, generator=torch.Generator().manual_seed(0))
    known = u < 7
    normal = torch.distributions.Normal(params[:, 0], params[:, 1].exp())
    expected = normal.log_prob(u) - (1 - u.double().tanh() ** 2).log().float()
    log_probs = model.distribution.log_prob(params, actions)
    torch.testing.assert_close(log_probs[known], expected[known], rtol=0.05, atol=0.05)
    assert params.requires_grad and log_probs.abs().max() < 20
