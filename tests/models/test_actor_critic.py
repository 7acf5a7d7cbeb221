"""Laws of the whole model: steps equal unrolls, gradients, states, masks, precision, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from vantage.algorithms.distributions import MASKED
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models import ActorCritic, make_model
from vantage.types import ActionSpec, ArraySpec, EnvSpec, Obs, State

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (2, 20, 21))
OBS: dict[str, ArraySpec | Mapping[str, ArraySpec]] = {
    "vector": VECTOR, "image": IMAGE, "dict": {"z.pos": VECTOR, "a": ArraySpec("vector", (2,)), "camera": IMAGE}}
DISCRETE = ActionSpec("discrete", (4,))
T, B = 7, 3


def model(obs: str = "vector", action: ActionSpec = DISCRETE, *, masked: bool = False, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    keys = {"hidden": "8", "memory_size": 5, "init": "torch", **keys}
    return make_model(Config().change(**keys).policy, EnvSpec(OBS[obs], action, masked), critic="state")


def random_obs(spec: ArraySpec | Mapping[str, ArraySpec], *, seed: int = 0, length: int = T) -> Obs:
    source = torch.Generator().manual_seed(seed)
    if isinstance(spec, Mapping):
        return {key: random_obs(part, seed=i, length=length) for i, (key, part) in enumerate(spec.items())}
    shape = (length, B, *spec.shape)
    if spec.kind == "image":
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=source)
    return torch.randn(shape, generator=source)


def resets(*at: tuple[int, int]) -> Tensor:
    is_first = torch.zeros(T, B, dtype=torch.bool)
    for t, b in at:
        is_first[t, b] = True
    return is_first


MIDDLE = resets((0, 0), (3, 0), (4, 0), (4, 1), (6, 2))


def take(obs: Obs, index: Any) -> Obs:
    return obs[index] if isinstance(obs, Tensor) else {key: part[index] for key, part in obs.items()}


def step_all(net: ActorCritic, obs: Obs, is_first: Tensor, state: State,
             mask: Tensor | None = None) -> tuple[Tensor, Tensor, list[State]]:
    params, values, states = [], [], [state]
    for t in range(len(is_first)):
        p, v, state = net.step_with_values(take(obs, t), is_first[t], state, None if mask is None else mask[t])
        params.append(p)
        values.append(v)
        states.append(state)
    return torch.stack(params), torch.stack(values), states


def used_state(net: ActorCritic, obs: Obs) -> State:
    """A state that has seen some steps."""
    return step_all(net, obs, resets((1, 1)), net.initial_state(B))[2][-1]


@pytest.mark.parametrize(("obs", "memory", "frame_stack", "stack_pad", "separate"), [
    ("vector", "none", 1, "zeros", False), ("vector", "lstm", 3, "repeat", True), ("vector", "gru", 1, "zeros", True),
    ("image", "none", 3, "zeros", True), ("image", "lstm", 1, "zeros", False), ("image", "gru", 3, "repeat", False),
    ("dict", "none", 3, "repeat", False), ("dict", "lstm", 3, "zeros", True), ("dict", "gru", 1, "zeros", False)])
def test_unrolling_is_stepping(obs: str, memory: str, frame_stack: int, stack_pad: str, separate: bool) -> None:
    net = model(obs, memory=memory, frame_stack=frame_stack, stack_pad=stack_pad, separate=separate,
                obs_norm=True).double()
    data = random_obs(OBS[obs])
    with torch.no_grad():
        state = used_state(net, random_obs(OBS[obs], seed=9))
        net.observe(data)
        params, values, states = step_all(net, data, MIDDLE, state)
        unrolled = net.unroll(data, MIDDLE, state)
        without_values = net.step(take(data, 0), MIDDLE[0], state)
    torch.testing.assert_close(without_values, (params[0], states[1]), rtol=0, atol=0)
    torch.testing.assert_close(unrolled, (params, values), rtol=1e-10, atol=1e-12)
    assert params.dtype == values.dtype == torch.float64
    initial = net.initial_state(B)
    assert [(s.shape, s.dtype) for s in states[-1]] == [(s.shape, s.dtype) for s in initial]
    assert params.shape == (T, B, 4) and values.shape == (T, B)


@pytest.mark.parametrize(("memory", "frame_stack"), [("none", 3), ("lstm", 3), ("gru", 1)])
def test_an_opening_observation_meets_the_initial_state_whatever_came_before(memory: str, frame_stack: int) -> None:
    net = model("dict", memory=memory, frame_stack=frame_stack, separate=True)
    data, first = random_obs(OBS["dict"]), torch.ones(B, dtype=torch.bool)
    with torch.no_grad():
        fresh = net.step_with_values(take(data, 0), first, net.initial_state(B))
        later = net.step_with_values(take(data, 0), first, used_state(net, random_obs(OBS["dict"], seed=5)))
    for a, b in zip((*fresh[:2], *fresh[2]), (*later[:2], *later[2]), strict=True):
        assert torch.equal(a, b)


def test_the_state_is_frames_by_key_then_the_policys_cells_then_the_critics() -> None:
    net = model("dict", memory="lstm", frame_stack=4, separate=True)
    expected = [((B, 3, 2), torch.float32), ((B, 3, 2, 20, 21), torch.uint8), ((B, 3, 3), torch.float32)]
    expected += [((B, 5), torch.float32)] * 4
    assert [(tuple(s.shape), s.dtype) for s in net.initial_state(B)] == expected
    assert all((s == 0).all() for s in net.initial_state(B))
    assert model().initial_state(B) == ()
    assert len(model(memory="gru").initial_state(B)) == 1


@pytest.mark.parametrize(("obs", "memory", "separate", "bptt"), [
    ("vector", "none", True, True), ("vector", "gru", False, False), ("image", "lstm", True, False),
    ("image", "none", False, True), ("dict", "gru", True, True), ("dict", "lstm", False, True)])
def test_the_loss_of_an_unroll_reaches_every_parameter(obs: str, memory: str, separate: bool, bptt: bool) -> None:
    box = ActionSpec("box", (2,), (-1.0, -1.0), (1.0, 1.0))
    net = model(obs, box, memory=memory, separate=separate, bptt=bptt, frame_stack=2, squash_mean=True)
    params, values = net.unroll(random_obs(OBS[obs]), MIDDLE, net.initial_state(B))
    (params.sin().sum() + values.square().sum()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_without_bptt_gradients_are_those_of_single_steps_from_the_stored_states(memory: str) -> None:
    net = model(memory=memory, bptt=False, frame_stack=2).double()
    data = random_obs(VECTOR)
    with torch.no_grad():
        start = used_state(net, random_obs(VECTOR, seed=3))
        states = step_all(net, data, MIDDLE, start)[2]
    losses = []
    for t, state in enumerate(states[:-2]):  # the last row is a constant
        params, values, _ = net.step_with_values(data[t], MIDDLE[t], state)
        losses.append(params.sin().sum() + values.square().sum())
    params, values = net.unroll(data, MIDDLE, start)
    loss = params[:-1].sin().sum() + values[:-1].square().sum()
    parameters = list(net.parameters())
    expected = torch.autograd.grad(torch.stack(losses).sum(), parameters)
    for ours, theirs in zip(torch.autograd.grad(loss, parameters), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_value_loss_gives_a_separate_policy_no_gradient_and_a_shared_trunk_some() -> None:
    for separate in (True, False):
        net = model(memory="gru", separate=separate)
        net.unroll(random_obs(VECTOR), MIDDLE, net.initial_state(B))[1].sum().backward()
        touched = any(p.grad is not None for p in net.actor.parameters())
        assert touched != separate and all(p.grad is None for p in net.policy_head.parameters())
    net = model(memory="gru", separate=True)
    net.unroll(random_obs(VECTOR), MIDDLE, net.initial_state(B))[0].sum().backward()
    assert net.critic is not None and all(p.grad is None for p in net.critic.parameters())


@pytest.mark.parametrize("action", [DISCRETE, ActionSpec("multi_discrete", (3, 2))])
def test_actions_not_allowed_are_masked_in_steps_and_unrolls_alike(action: ActionSpec) -> None:
    net = model(action=action, masked=True, memory="lstm")
    mask = torch.rand(T, B, sum(action.sizes), generator=torch.Generator().manual_seed(4)) < 0.6
    params, _, _ = step_all(net, random_obs(VECTOR), MIDDLE, net.initial_state(B), mask)
    unrolled, _ = net.unroll(random_obs(VECTOR), MIDDLE, net.initial_state(B), mask)
    torch.testing.assert_close(params, unrolled, rtol=1e-4, atol=1e-5)
    assert (params[~mask] == MASKED).all() and (params[mask].abs() < 10).all()


def test_observations_are_normalised_by_what_was_observed_and_only_then() -> None:
    net, raw = model("dict", obs_norm=True, frame_stack=2), model("dict", frame_stack=2)
    data = random_obs(OBS["dict"], length=50)
    assert isinstance(data, Mapping)
    data = {**data, "a": data["a"] * 100 + 7, "z.pos": data["z.pos"] - 3}
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    is_first = torch.zeros(50, B, dtype=torch.bool)
    net.unroll(data, is_first, net.initial_state(B))
    assert all(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())
    net.observe(data)
    scaled = {key: (part - part.mean((0, 1))) / part.std((0, 1), correction=0) if key != "camera" else part
              for key, part in data.items()}
    # From the second step on: the frame before the first is raw zeros on one side, normalised ones on the other.
    ours, theirs = net.unroll(data, is_first, net.initial_state(B)), raw.unroll(scaled, is_first, raw.initial_state(B))
    torch.testing.assert_close(ours[0][1:], theirs[0][1:], rtol=1e-3, atol=1e-4)
    raw.observe(data)
    assert not [name for name, _ in raw.named_buffers() if "normal" in name]


def test_every_tensor_that_the_model_makes_is_on_its_own_device() -> None:
    net = model("dict", ActionSpec("box", (1,), (-1.0,), (1.0,)), memory="lstm", frame_stack=3, obs_norm=True,
                squash_mean=True).to("meta")
    state = net.initial_state(B)
    obs = {key: part.to("meta") for key, part in random_obs(OBS["dict"]).items()}
    params, values, state = net.step_with_values(take(obs, 0), MIDDLE[0].to("meta"), state)
    assert {tensor.device.type for tensor in (params, values, *state)} == {"meta"}


@pytest.mark.parametrize(("network", "memory", "obs"), [
    ("mlp", "none", "image"), ("universe", "lstm", "dict"), ("impala", "gru", "image")])
def test_bfloat16_rounds_and_no_more(network: str, memory: str, obs: str) -> None:
    exact, rounded = (model(obs, network=network, memory=memory, frame_stack=2, precision=precision)
                      for precision in ("float32", "bfloat16"))
    data = random_obs(OBS[obs])
    gradients = []
    for net in (exact, rounded):
        params, values = net.unroll(data, MIDDLE, net.initial_state(B))
        (params.square().sum() + values.square().sum()).backward()
        gradients.append((params.detach(), values.detach(),
                          torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])))
    for a, b in zip(*gradients, strict=True):
        assert b.dtype == torch.float32
        assert not torch.equal(a, b)
        assert (a - b).norm() < 0.05 * a.norm()


def test_constant_weights_in_bfloat16_are_those_of_the_moment() -> None:
    net = model("image", network="mlp", precision="bfloat16")
    obs, first, state = take(random_obs(IMAGE), 0), torch.ones(B, dtype=torch.bool), net.initial_state(B)

    def act() -> Tensor:
        with torch.no_grad(), net.constant_weights():
            once, again = (net.step(obs, first, state)[0] for _ in range(2))
        assert torch.equal(once, again)
        return once

    before = act()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    assert not torch.allclose(act(), before)


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_a_detached_critic_gives_the_trunk_no_gradient(memory: str) -> None:
    data, gradients = random_obs(VECTOR), []
    for detach in (False, True):
        net = model("vector", memory=memory, detach_critic=detach)
        _, values = net.unroll(data, MIDDLE, net.initial_state(B))
        values.square().sum().backward()
        gradients.append(sum(float(p.grad.abs().sum()) for p in net.actor.parameters() if p.grad is not None))
        assert net.value_head.weight.grad is not None and net.value_head.weight.grad.abs().sum() > 0
    assert gradients[0] > 0 and gradients[1] == 0


def test_normalised_images_ignore_contrast_and_brightness() -> None:
    net, source = model("image", network="mlp", image_norm=True), torch.Generator().manual_seed(3)
    dark = torch.randint(0, 60, (T, B, *IMAGE.shape), dtype=torch.uint8, generator=source)
    outputs = []
    for images in (dark, 100 + 2 * dark):
        other = model("image", network="mlp", image_norm=True)
        assert torch.equal(net.unroll(images, MIDDLE, ())[0], other.unroll(images, MIDDLE, ())[0])
        other.observe(images)
        outputs.append(other.unroll(images, MIDDLE, ())[0])
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)


BOX = ActionSpec("box", (1,), (-1.0,), (1.0,))


@pytest.mark.parametrize(("obs", "keys", "message"), [
    ("vector", {"action": BOX, "masked": True}, "not for box"),
    ("vector", {"action": ActionSpec("multi_binary", (2, 2)), "masked": True}, "not for multi_binary"),
    ("vector", {"precision": "bfloat16"}, "precision=bfloat16 is for images"),
    ("vector", {"image_norm": True}, "image_norm=True is for images"),
    ("vector", {"network": "nature"}, "network=nature is for images, and this environment shows none"),
    ("vector", {"separate": True, "detach_critic": True}, "give --separate false"),
    ("image", {"network": "conv1d"}, "conv1d is for vectors"),
    ("image", {"image_norm": True, "obs_scale": "-1:1"}, "obs_scale=-1:1 has no effect on images that image_norm"),
])
def test_options_without_effect_are_refused(obs: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(obs, **keys)
