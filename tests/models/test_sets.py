"""Sets of entities: what is read as one, rows that do not exist, and the network that has no order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import crowds
import numpy as np
import pytest
import torch
from crowds import ROWS
from environments import make
from gymnasium import spaces
from rollouts import begun
from stopping import saved_tensors, stop_after
from torch import nn

import vantage
from vantage.config.flat import of_run
from vantage.envs.spaces import describe, make_observer, reasons
from vantage.errors import ConfigError
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.models.mlp_arrays import fits
from vantage.types import ActionSpec, ArraySpec, EnvSpec

pytestmark = pytest.mark.integration

KEYS: dict[str, Any] = {"env": "crowds:Crowd", "num_envs": 8, "rollout_length": 8, "hidden": "8", "threads": 1,
                        "eval_every": 0, "tensorboard": False, "separate": True}
BOX, BITS = spaces.Box(-1, 1, (4, 3)), spaces.MultiBinary(4)
SET = ArraySpec("set", (4, 4))


def kinds_of(**keys: Any) -> Any:
    return vantage.configure("a2c", env="CartPole-v1", **keys).env.kinds_of_parts


@pytest.mark.parametrize(("parts", "keys", "expected"), [
    ({"a": BOX, "a_mask": BITS}, {}, {"a": "set"}),
    ({"a": BOX, "a_mask": spaces.Box(0, 1, (4,), np.int8)}, {}, {"a": "set"}),
    ({"deep": spaces.Dict({"a": BOX, "a_mask": BITS}), "b": BITS}, {}, {"deep/a": "set", "b": "one_hot"}),
    ({"a": BOX, "a_mask": spaces.MultiBinary(3)}, {}, {"a": "vector", "a_mask": "one_hot"}),
    ({"a": BOX, "a_mask": spaces.Box(-1, 1, (4,))}, {}, {"a": "vector", "a_mask": "vector"}),
    ({"a": BOX, "alive": BITS}, {}, {"a": "vector", "alive": "one_hot"}),
    ({"a": BOX, "alive": BITS}, {"obs_as": "a=set:alive"}, {"a": "set"}),
    ({"a": BOX, "b": BOX}, {"obs_as": "b=set"}, {"a": "vector", "b": "set"}),
    ({"a": BOX, "a_mask": spaces.Box(0, 1, (4,))}, {"obs_as": "set"}, {"a": "set"}),
    ({"a": BOX, "a_mask": BITS}, {"obs_as": "a=vector"}, {"a": "vector", "a_mask": "one_hot"}),
    ({"a": BOX, "a_mask": BITS}, {"obs_sets": False}, {"a": "vector", "a_mask": "one_hot"}),
    ({"a": BOX, "a_mask": BITS}, of_run({"algo": "a2c", "env": "CartPole-v1", "steps": 1, "seed": 1, "num_envs": 1,
                                         "network": "mlp", "memory": "none", "rollout_length": 1, "lr": 1,
                                         "obs_as": "auto"}), {"a": "vector", "a_mask": "one_hot"})])
def test_a_box_beside_its_mask_is_a_set_unless_a_key_or_an_older_run_differs(
        parts: Any, keys: dict[str, Any], expected: dict[str, str]) -> None:
    kinds = kinds_of(**{name: value for name, value in keys.items() if name in ("obs_as", "obs_sets")})
    obs, _ = make_observer(spaces.Dict(parts), kinds=kinds)
    assert isinstance(obs, dict)
    assert {name: part.kind for name, part in obs.items()} == expected


def test_the_start_of_a_run_says_what_is_a_set_and_what_marks_its_rows() -> None:
    space = spaces.Dict({"a": BOX, "a_mask": BITS})
    spec = EnvSpec(make_observer(space)[0], ActionSpec("discrete", (2,)))
    assert describe(spec, (), reasons(space, {}))[0] == "observations/a: set 4x3 (rows that a_mask marks)"


@pytest.mark.parametrize(("space", "obs_as", "words"), [
    (spaces.Dict({"a": BOX, "b": BITS}), "a=set:c", r"mask 'c', which does not exist; .* MultiBinary\(N\)"),
    (spaces.Dict({"a": BOX, "b": BOX}), "a=set:b", r"mask 'b', which is Box"),
    (spaces.Dict({"a": spaces.Box(0, 1, (4,)), "b": BOX}), "a=set", r"'a'.*has the shape \(4,\); give vector"),
    (spaces.Dict({"a": BOX, "b": BITS}), "b=set", "obs_as=set is for Boxes"),
    (spaces.Dict({"a": BOX}), "a=image:b", "'image:b' is not one of auto, image, vector, codes, set"),
    (spaces.Dict({"a": spaces.Sequence(BOX)}), "auto", r"no largest length: pad .* NAME_mask")])
def test_what_cannot_be_a_set_is_refused_in_one_line(space: Any, obs_as: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_observer(space, kinds=kinds_of(obs_as=obs_as))


def test_rows_that_do_not_exist_become_zeros_whatever_they_hold() -> None:
    _, observe = make_observer(spaces.Dict({"a": BOX, "a_mask": BITS}), (2,))
    rows, exists = np.arange(24, dtype=np.float32).reshape(2, 4, 3), np.int8([[1, 0, 1, 0], [0, 0, 0, 0]])
    rows[exists == 0] = [np.nan, np.inf, 1e30]
    found = observe({"a": rows, "a_mask": exists})["a"]
    assert np.array_equal(found[0], [[0, 1, 2, 1], [0] * 4, [6, 7, 8, 1], [0] * 4])
    assert not found[1].any()
    with pytest.raises(ValueError, match="mask 'a_mask' has numbers other than 0 and 1"):
        observe({"a": rows, "a_mask": exists * 2})


def test_the_tensors_of_a_vector_environment_become_the_same_sets() -> None:
    tensors = make("crowds:Tensors", 5)
    found = tensors.reset().obs
    env = crowds.Crowd()
    _, observe = make_observer(env.observation_space)
    for i in range(5):
        for name, part in observe(env.reset(seed=i)[0]).items():
            assert np.array_equal(found[name][i], part)


def model_of(**keys: Any) -> Any:
    torch.manual_seed(0)
    spec = EnvSpec({"a": SET, "v": ArraySpec("vector", (2,))}, ActionSpec("discrete", (3,)))
    return make_model(PolicyConfig(**{"separate": True, "obs_norm": True, **keys}), spec, critic="state")


def observed(batch: int, exists: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(batch, 4, 4, generator=generator)
    a[..., 3] = torch.as_tensor(exists)
    return {"a": a, "v": torch.zeros(batch, 2)}


def outputs(model: Any, obs: Any) -> Any:
    first = torch.ones(len(obs["v"]), dtype=torch.bool)
    return model.step_with_values(obs, first, model.initial_state(len(first)))[:2]


@pytest.mark.parametrize("keys", [{}, {"norm": "layer", "hidden": (6,)}, {"hidden": (), "init": "torch"}])
def test_neither_the_order_of_rows_nor_those_that_do_not_exist_have_influence(keys: dict[str, Any]) -> None:
    model = model_of(**keys)
    assert not fits(model)
    obs = observed(2, [1, 0, 1, 1])
    model.observe({name: part[None] for name, part in obs.items()})
    expected = outputs(model, obs)
    moved = {**obs, "a": obs["a"][:, [2, 0, 3, 1]].clone()}
    for junk in (1e30, torch.nan, torch.inf):
        moved["a"][moved["a"][..., 3] == 0] = torch.tensor([junk, junk, junk, 0])
        torch.testing.assert_close(outputs(model, moved), expected)
    for t in range(3):  # and each entity has some
        changed = {**obs, "a": obs["a"].clone()}
        changed["a"][:, [0, 2, 3][t], 0] += 1
        assert not torch.allclose(outputs(model, changed)[0], expected[0])


def test_an_empty_set_has_features_of_zero_and_finite_gradients() -> None:
    model = model_of()
    torso = model.actor.torsos[0]
    inputs = model.preprocessor([observed(2, [[0] * 4, [1, 0, 0, 0]])["a"], torch.zeros(2, 2)], torch.float32)
    features = torso(inputs[0])
    assert not features[0].any()
    assert features[1].any()
    features.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in torso.parameters())


def test_normalisers_count_the_rows_that_exist() -> None:
    model = model_of()
    obs = observed(3, [[1, 0, 0, 1], [0] * 4, [0, 0, 1, 0]])
    rows = torch.stack([obs["a"][0, 0], obs["a"][0, 3], obs["a"][2, 2]])[:, :3]
    obs["a"][1] = 0
    model.observe({name: part[None] for name, part in obs.items()})
    normalizer = model.normalizers["0"]
    assert float(normalizer.count) == pytest.approx(3, abs=1e-3)
    torch.testing.assert_close(normalizer.mean, rows.mean(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(normalizer.var, rows.var(0, correction=0), rtol=1e-3, atol=1e-3)


def test_steps_equal_the_unrolled_policy() -> None:
    model = model_of(memory="lstm", memory_size=4)
    obs = {"a": torch.randn(5, 3, 4, 4), "v": torch.randn(5, 3, 2)}
    obs["a"][..., 3] = torch.rand(5, 3, 4) < 0.5
    is_first = torch.rand(5, 3) < 0.3
    params, values = model.unroll(obs, is_first, model.initial_state(3))
    state = model.initial_state(3)
    for t in range(5):
        row = {key: part[t] for key, part in obs.items()}
        found, value, state = model.step_with_values(row, is_first[t], state)
        torch.testing.assert_close((found, value), (params[t], values[t]))


@pytest.mark.parametrize(("keys", "words"), [
    ({"frame_stack": 2}, "frame_stack=2 is not for sets"), ({"norm": "batch"}, "norm=batch is not for sets"),
    ({"network": "conv1d", "env": crowds.Alone}, "network=conv1d is for vectors")])
def test_options_that_sets_cannot_have_are_refused(keys: dict[str, Any], words: str) -> None:
    options = KEYS | keys
    del options["hidden"]  # conv1d has layers of its own
    with pytest.raises(ConfigError, match=words):
        vantage.Trainer("a2c", run="run", **options)


class Counting(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        assert shape == (ROWS, 3)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x[..., -1].sum(1, keepdim=True)


def test_a_network_of_ones_own_sees_the_rows_and_which_exist() -> None:
    keys = {name: value for name, value in KEYS.items() if name != "hidden"}
    with begun(vantage.configure("a2c", **keys | {"env": crowds.Alone, "network": Counting})) as one:
        one.advance(lambda: 0)
        torso = one.learner.model.actor.torsos[0]
    assert torso(torch.ones(1, ROWS, 3)).item() == pytest.approx(ROWS, abs=0.1)


def test_a_policy_learns_what_the_members_of_a_set_show() -> None:
    keys = {"hidden": "32,32", "rollout_length": 64, "lr": 3e-3, "minibatch_size": 128, "epochs": 5}
    config = vantage.configure("ppo", **KEYS | keys)
    with begun(config) as one:
        updates = [one.advance(lambda: 0).episodes for _ in range(18)]
    scores = [[episode.score for episode in episodes] for episodes in updates]
    assert np.mean(scores[0]) < 3.0
    assert np.mean(np.concatenate(scores[-4:])) > 3.6, "of 4"


@pytest.mark.parametrize(("algo", "more"), [
    ("ppo", {"memory": "lstm", "memory_size": 4}), ("ppo", {"critic_obs": "units", "obs_norm": True}),
    ("acer", {"replay_start": 0, "separate": False}), ("a2c", {"num_workers": 2}),
    ("a2c", {"env": crowds.Alone, "vector": "async", "num_envs": 2})])
def test_a_resume_is_exact(tmp_path: Path, algo: str, more: dict[str, Any]) -> None:
    config = vantage.configure(algo, **KEYS | more, steps=256)
    stop_after(100, tmp_path / "whole", config)
    stop_after(2, tmp_path / "stopped", config)
    stop_after(100, tmp_path / "stopped")
    whole, stopped = saved_tensors(tmp_path / "whole"), saved_tensors(tmp_path / "stopped")
    assert whole.keys() == stopped.keys() and all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_workers_of_a3c_learn_from_sets(tmp_path: Path) -> None:
    agent = vantage.train("a3c", run=tmp_path / "run", **KEYS, num_workers=2, steps=256)
    assert agent.step >= 256


@pytest.mark.parametrize(("env", "more"), [
    ("crowds:Crowd", {"env_kwargs": {"mask": "alive"}, "obs_as": "units=set:alive"}),
    ("crowds:Everyone", {"obs_as": "set"})])
def test_agents_and_exports_read_one_set_or_many(tmp_path: Path, env: str, more: dict[str, Any]) -> None:
    agent = vantage.train("ppo", run=tmp_path / "run", **KEYS | more | {"env": env}, steps=64)
    made = agent.make_env()
    one = made.reset(seed=0)[0]
    single, _ = agent.act(one, deterministic=True)
    many = {name: np.stack([part] * 3) for name, part in one.items()} if isinstance(one, dict) else np.stack([one] * 3)
    assert np.array_equal(agent.act(many, deterministic=True)[0], [single] * 3)
    for format in ("onnx", "safetensors"):
        file = vantage.export(agent, output=tmp_path / f"policy.{format}", format=format)
        assert file.difference < 1e-4
    assert vantage.load(file.path, trust=True).act(one, deterministic=True)[0] == single
    assert vantage.evaluate(tmp_path / "run", episodes=2).episodes == 2
