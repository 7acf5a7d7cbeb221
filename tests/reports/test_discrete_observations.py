"""Discrete observations, alone and beside others: their scale, what is never normalised, older runs, and learning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import vantage
from vantage.config.config import Config
from vantage.envs.spaces import make_observer
from vantage.keys.objects import ObjectName
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.runs.checkpoint import load_latest, save_as
from vantage.runs.spec_json import spec_to_json
from vantage.runs.validation import read_spec
from vantage.types import ActionSpec, ArraySpec, EnvSpec

TWO = ActionSpec("discrete", (2,))
QUIET = {"threads": 1, "tensorboard": False, "eval_every": 0, "num_envs": 2, "rollout_length": 8, "hidden": "8"}


class Rooms(gym.Env[Any, int]):
    """A corridor of 6 rooms, seen with a Box, bits and an image; right pays at its end."""

    def __init__(self, alone: bool = False) -> None:
        self.room = spaces.Discrete(6, start=3)
        self.observation_space = self.room if alone else spaces.Dict({
            "room": self.room, "noise": spaces.Box(-9, 9, (2,), np.float32),
            "more": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))})
        self.action_space, self.alone = spaces.Discrete(2), alone

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.t = 0, 0
        return self.obs(), {}

    def obs(self) -> Any:
        room = np.int64(self.place + 3)
        if self.alone:
            return room
        bits = np.array([self.place % 2, self.t % 2], np.int8)
        return {"room": room, "noise": self.np_random.normal(4, 2, 2).clip(-9, 9).astype(np.float32),
                "more": (bits, np.array([self.place % 2, self.place % 3]))}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.t = min(max(self.place + (1 if action else -1), 0), 5), self.t + 1
        over = self.place == 5
        return self.obs(), float(over), over, self.t >= 20, {}


ROOMS = "test_discrete_observations:Rooms"


def network(space: spaces.Space[Any], **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = Config().change(**{"obs_norm": True, "hidden": "8", **keys})
    return make_model(config.policy, EnvSpec(make_observer(space)[0], TWO), critic="state")


@pytest.mark.parametrize(("space", "value", "seen"), [
    (spaces.Discrete(4, start=7), 9, [0, 0, 2, 0]), (spaces.Discrete(4), np.uint64(2), [0, 0, 2, 0]),
    (spaces.Discrete(1), 0, [2 ** 0.5]),
    (spaces.MultiDiscrete([4, 9]), [1, 8], [0, 2, 0, 0, *[0] * 8, 3]),
    (spaces.MultiDiscrete([[4, 1], [1, 4]]), [[0, 0], [0, 3]],
     [2, 0, 0, 0, 2 ** 0.5, 2 ** 0.5, 0, 0, 0, 2]),
    (spaces.MultiBinary(3), [1, 0, 1], [2 ** 0.5, 0, 2 ** 0.5]),
])
def test_a_one_hot_of_n_values_is_scaled_by_the_root_of_n_and_never_normalised(space: Any, value: Any,
                                                                               seen: list[float]) -> None:
    net, convert = network(space), make_observer(space)[1]
    x = torch.from_numpy(convert(np.array(value)))[None]
    for _ in range(3):
        torch.testing.assert_close(net._prepare([x]), [torch.tensor([seen], dtype=torch.float32)])
        net.observe(x.expand(50, 1, -1))
    assert not dict(net.running_stats())


def test_a_rare_state_is_no_larger_input_than_a_common_one() -> None:
    net = network(spaces.Discrete(100))
    common, rare = torch.eye(100)[0], torch.eye(100)[1]
    net.observe(torch.cat([common.expand(9999, 1, -1), rare.expand(1, 1, -1)]))
    assert [float(net._prepare([x[None]])[0].max()) for x in (common, rare)] == [10, 10]


@pytest.mark.parametrize("kind", [spaces.Dict, spaces.Tuple])
def test_beside_boxes_only_boxes_are_normalised_also_in_stacked_frames(kind: Any) -> None:
    parts = {"0": spaces.Discrete(4), "1": spaces.Box(-99, 99, (2,)), "2": spaces.MultiBinary(1),
             "3": spaces.Box(-99, 99, (1,))}
    net = network(kind(parts) if kind is spaces.Dict else kind(parts.values()), frame_stack=2)
    samples = torch.Generator().manual_seed(0)
    boxes = {key: torch.randn(500, 1, size, generator=samples) * 5 + 20 for key, size in (("1", 2), ("3", 1))}
    net.observe({**boxes, "0": torch.eye(4)[:1].expand(500, 1, -1), "2": torch.ones(500, 1, 1)})
    before = [torch.tensor([[0.0, 1, 0, 0]]), boxes["1"][0], torch.ones(1, 1), boxes["3"][0]]
    now = [torch.tensor([[0.0, 0, 0, 1]]), boxes["1"][1], torch.zeros(1, 1), boxes["3"][1]]
    (x,) = net._prepare([torch.cat(frames, -1) for frames in zip(before, now, strict=True)])

    def normalised(key: str, row: int) -> Tensor:
        every = boxes[key].flatten(0, 1)
        return (boxes[key][row, 0] - every.mean(0)) / every.std(0, correction=0)

    root = 2 ** 0.5
    expected = torch.cat([normalised("1", 0), normalised("3", 0), torch.tensor([0, 2, 0, 0, root]),
                          normalised("1", 1), normalised("3", 1), torch.tensor([0, 0, 0, 2, 0.0])])
    torch.testing.assert_close(x[0], expected, rtol=1e-4, atol=1e-4)


def test_all_vectors_of_a_dict_share_one_mlp_that_computes_what_one_box_would() -> None:
    keys = [f"part{i:03}" for i in range(160)]
    many = network(spaces.Dict({key: spaces.Box(-9, 9, (2,)) for key in keys}), separate=True)
    one = network(spaces.Box(-9, 9, (320,)), separate=True)
    assert [len(trunk.torsos) for trunk in (many.actor, many.critic) if trunk is not None] == [1, 1]
    x = torch.randn(40, 3, 320, generator=torch.Generator().manual_seed(1)) * 2 + 1
    parts = dict(zip(keys, x.split(2, -1), strict=True))
    many.observe(parts)
    one.observe(x)
    is_first = torch.zeros(40, 3, dtype=torch.bool)
    assert many.state_dict().keys() == one.state_dict().keys()
    for ours, theirs in zip(many.unroll(parts, is_first, ()), one.unroll(x, is_first, ()), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_images_and_networks_of_ones_own_keep_a_torso_for_each_part() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (3,)), "b": spaces.Box(0, 255, (12, 12, 3), np.uint8),
                         "c": spaces.Discrete(5), "d": spaces.Box(0, 255, (12, 12, 3), np.uint8)})
    assert len(network(space).actor.torsos) == 3
    vectors = spaces.Dict({"a": spaces.Box(-1, 1, (3,)), "c": spaces.Discrete(5)})
    assert len(network(vectors, network="test_discrete_observations:Own").actor.torsos) == 2
    assert len(network(vectors, torsos="separate").actor.torsos) == 2
    assert len(network(vectors, network="conv1d").actor.torsos) == 2


FORM = spaces.Box(-1, 1, (5, 3))
IMAGE = spaces.Box(0, 255, (9, 9, 3), np.uint8)


@pytest.mark.parametrize(("space", "stack", "shapes"), [
    (FORM, 1, [(15,)]), (FORM, 4, [(60,)]), (spaces.Discrete(6), 1, [(6,)]), (spaces.Discrete(6), 4, [(24,)]),
    (IMAGE, 1, [(3, 9, 9)]), (IMAGE, 4, [(12, 9, 9)]),
    (spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(4)}), 1, [(4,), (2,)]),
    (spaces.Dict({"a": FORM, "b": IMAGE}), 1, [(3, 9, 9)])])
def test_a_network_of_ones_own_is_built_from_the_shape_of_each_part(
        space: gym.Space[Any], stack: int, shapes: list[tuple[int, ...]]) -> None:
    built: list[tuple[int, ...]] = []

    def make(shape: tuple[int, ...]) -> torch.nn.Module:
        assert type(shape) is tuple and all(type(size) is int for size in shape)
        built.append(shape)
        return torch.nn.Flatten()

    network(space, network=ObjectName("<make>", make), frame_stack=stack)
    assert built == shapes


class Own(torch.nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_features = shape[0]

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_a_spec_names_the_one_hots_and_reads_those_of_older_runs() -> None:
    space = spaces.Dict({"a": spaces.MultiDiscrete([2, 3]), "b": spaces.Box(-1, 1, (3,))})
    spec = EnvSpec(make_observer(space)[0], TWO)
    assert spec.parts[0] == ArraySpec("one_hot", (5,), sizes=(2, 3))
    saved = json.loads(json.dumps(spec_to_json(spec)))
    assert read_spec(saved) == spec
    saved["obs"]["a"] = {"kind": "vector", "shape": [5], "unit": 255.0}
    del saved["obs"]["b"]["sizes"]
    old = read_spec(saved)
    assert old.observes_as(spec) and spec.observes_as(old) and old != spec


@pytest.mark.parametrize("sizes", [[], [2, 2], [5, 0], [2.0, 3], [-1, 6], ["2", "3"]])
def test_a_spec_whose_sizes_do_not_fit_its_one_hots_is_refused(sizes: list[Any]) -> None:
    spec = spec_to_json(EnvSpec(ArraySpec("one_hot", (5,), sizes=(2, 3)), TWO))
    spec["obs"]["sizes"] = sizes
    with pytest.raises(ValueError, match=r"^spec is "):
        read_spec(spec)


def as_before(run: Path) -> None:
    """Rewrite a run of one_hot=vector and torsos=separate as one from before these keys."""
    values = json.loads((run / "config.json").read_text())
    assert values["policy"].pop("one_hot") == "vector" and values["policy"].pop("torsos") == "separate"
    (run / "config.json").write_text(json.dumps(values))
    checkpoint = load_latest(run)
    state = json.loads(json.dumps(checkpoint.state))
    obs = state["spec"]["obs"]
    for part in [obs] if "shape" in obs else obs.values():
        part["kind"] = part["kind"].replace("one_hot", "vector")
        del part["sizes"]
    save_as(run, str(checkpoint.path.relative_to(run)), checkpoint.step, tensors=checkpoint.tensors, state=state)


@pytest.mark.parametrize("alone", [False, True])
def test_a_run_from_before_is_played_exported_and_resumed_as_it_was(alone: bool, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = vantage.configure("a2c", env=ROOMS, env_kwargs={"alone": alone}, steps=64, frame_stack=2,
                               schedule_steps=1000, one_hot="vector", torsos="separate", **QUIET)
    list(vantage.Trainer(config, run="now"))
    shutil.copytree("now", "then")
    as_before(Path("then"))
    model = vantage.load("then", trust=True).model
    assert len(model.actor.torsos) == len(dict(model.running_stats())) == (1 if alone else 4)
    scores = [vantage.evaluate(run, episodes=4, trust=True).returns for run in ("now", "then")]
    assert scores[0] == scores[1]
    assert vantage.export("then", format="safetensors", trust=True).difference == 0
    for run in ("now", "then"):
        list(vantage.Trainer.resume(run, steps=160, trust=True))
    ours, theirs = (load_latest(Path(run)).tensors["model"] for run in ("then", "now"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_init_from_an_older_run_names_the_options_that_make_it_fit(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys: dict[str, Any] = {"env": ROOMS, "env_kwargs": {"alone": True}, "steps": 32, "obs_norm": False, **QUIET}
    list(vantage.Trainer(vantage.configure("a2c", **keys, one_hot="vector", torsos="separate"), run="then"))
    as_before(Path("then"))
    with pytest.raises(vantage.ConfigError, match=r"give one_hot='vector'$"):
        list(vantage.Trainer(vantage.configure("a2c", **keys, init_from="then"), run="new"))
    list(vantage.Trainer(vantage.configure("a2c", **keys, one_hot="vector", init_from="then"), run="new"))


def test_onnx_takes_one_hots_and_scales_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    list(vantage.Trainer(vantage.configure("ppo", env=ROOMS, steps=32, frame_stack=2, **QUIET), run="run"))
    file = vantage.export("run", format="onnx")
    assert {"obs.room", "obs.more/0", "obs.more/1", "obs.noise"} <= set(file.inputs) and file.difference < 1e-4


CLIFF = {"env": "CliffWalking-v1", "max_episode_steps": 200}
ICE = {"env": "FrozenLake-v1", "env_kwargs": {"is_slippery": False}}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("algo", "keys", "least", "steps"), [
    ("ppo", CLIFF, -13, 150_000), ("a2c", CLIFF, -13, 150_000), ("acer", CLIFF, -13, 60_000),
    ("ppo", ICE, 1, 100_000), ("a2c", ICE, 1, 100_000), ("acer", ICE, 1, 40_000)],
    ids=["ppo-cliff", "a2c-cliff", "acer-cliff", "ppo-ice", "a2c-ice", "acer-ice"])
def test_the_defaults_find_the_best_path(
        algo: str, keys: dict[str, Any], least: float, steps: int, tmp_path: Path) -> None:
    """Within the default number of steps, which is named here so that a larger default does not hide a failure."""
    config = vantage.configure(algo, **keys, steps=steps, seed=100, threads=1, tensorboard=False, eval_every=0)
    assert config == vantage.configure(algo, **keys, seed=100, threads=1, tensorboard=False, eval_every=0)
    list(vantage.Trainer(config, run=tmp_path / "run"))
    assert vantage.evaluate(tmp_path / "run", episodes=10, deterministic=True).return_mean == least
