"""Observation spaces: what each part is taken for, what becomes of its numbers, and how the others are refused."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import environments
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import vantage
from vantage.config import Config
from vantage.envs.checks import bounds_of
from vantage.envs.offsets import first_offsets
from vantage.envs.spaces import check_obs_size, describe, make_observer, reasons
from vantage.errors import ConfigError, EnvError
from vantage.learning.collect import check_rollouts
from vantage.models.actor_critic import make_model
from vantage.models.normalization import ScaleNormalizer
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.tools.onnx_policy import PolicyStep

CLOCK = 1_700_000_000


class Shown(gym.Env[Any, Any]):
    """Shows one of two observations, which says which of two actions pays; an episode has ten steps."""

    zero: Any
    one: Any

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def draw(self) -> Any:
        self.side = int(self.np_random.integers(2))
        return self.one if self.side else self.zero

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.side)
        self.t += 1
        return self.draw(), reward, False, self.t >= 10, {}


class Pixels(Shown):
    """A uint8 image of the size of MiniGrid's, half of whose pixels are dark or bright."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 255, (7, 7, 3), np.uint8))
        self.zero = np.zeros((7, 7, 3), np.uint8)
        self.one = self.zero.copy()
        self.one[:3] = 255


class Clock(Shown):
    """A number of seconds since 1970, ten seconds later where action 1 pays."""

    def __init__(self, dtype: str = "float64") -> None:
        kind = np.dtype(dtype).type
        low, high = (-np.inf, np.inf) if dtype == "float64" else (0, 2**62)
        super().__init__(spaces.Box(low, high, (2,), kind))
        self.zero, self.one = np.array([CLOCK, 3], kind), np.array([CLOCK + 10, 3], kind)


class Map(Shown):
    """A camera, a map whose numbers are floats, a position and a text."""

    def __init__(self) -> None:
        super().__init__(spaces.Dict({"camera": spaces.Box(0, 255, (84, 84, 3), np.uint8),
                                      "map": spaces.Box(0.0, 1.0, (12, 12)), "mission": spaces.Text(5),
                                      "position": spaces.Box(-1.0, 1.0, (2,))}))
        self.zero = self.one = {"camera": np.zeros((84, 84, 3), np.uint8), "map": np.full((12, 12), 0.3, np.float32),
                                "position": np.zeros(2, np.float32), "mission": "go"}


def bytes_box(*shape: int, high: int = 255, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, high, shape, dtype)


@pytest.mark.parametrize(("space", "spec", "says"), [
    (bytes_box(84, 84, 4), ArraySpec("image", (4, 84, 84)), "channels last, 255 seen as 1"),
    (bytes_box(4, 84, 84), ArraySpec("image", (4, 84, 84)), "channels first, 255 seen as 1"),
    (bytes_box(4, 84, 84, 3), ArraySpec("image", (12, 84, 84)), "frames stacked"),
    (bytes_box(84, 84, 3, 4), ArraySpec("image", (12, 84, 84)), "4 axes"),
    (bytes_box(2, 3, 2, 2), ArraySpec("vector", (24,)), "4 axes, sides below 10"),
    (bytes_box(8, 8, 17, high=1), ArraySpec("image", (17, 8, 8), 1), "channels last"),
    (bytes_box(17, 8, 8, high=1), ArraySpec("image", (17, 8, 8), 1), "channels first"),
    (bytes_box(8, 9, 17, high=1), ArraySpec("image", (17, 8, 9), 1), "channels last"),
    (bytes_box(20, 5, 3), ArraySpec("image", (3, 20, 5)), "channels last"),
    (bytes_box(7, 7, 3), ArraySpec("image", (3, 7, 7), 1), "scaled by what occurs"),
    (bytes_box(30, 30, 1, high=1), ArraySpec("image", (1, 30, 30), 1), "1 seen as 1"),
    (bytes_box(10, 10, 6, high=1, dtype=bool), ArraySpec("image", (6, 10, 10), 1), "bool from 0 to 1"),
    (spaces.Box(100, 200, (84, 84, 1), np.uint8), ArraySpec("image", (1, 84, 84), 200), "from 100 to 200"),
    (bytes_box(84, 84, 3, dtype=np.int64), ArraySpec("image", (3, 84, 84)), "int64 from 0 to 255"),
    (bytes_box(84, 84, dtype=np.int64), ArraySpec("vector", (7056,)), "int64 on two axes may be a table"),
    (spaces.Box(0, 1000, (20, 20, 3), np.int64), ArraySpec("vector", (1200,)), "numbers that are not from 0 to 255"),
    (spaces.Box(0.0, 1.0, (20, 20, 3)), ArraySpec("image", (3, 20, 20), 1, floats=True), "1 seen as 1"),
    (spaces.Box(0.0, 1.0, (7, 3, 5)), ArraySpec("vector", (105,)), "floats on sides below 5 may be a table"),
    (spaces.Box(0.0, 1.0, (20, 20)), ArraySpec("vector", (400,)), "floats on two axes may be a table"),
    (spaces.Box(-1.0, 1.0, (20, 20, 3)), ArraySpec("vector", (1200,)), "floats that are not from 0 to 1"),
    (spaces.Box(-1.0, 1.0, (4,)), ArraySpec("vector", (4,)), "one axis")])
def test_what_a_box_is_taken_for_and_why(space: spaces.Box, spec: ArraySpec, says: str) -> None:
    assert make_observer(space)[0] == spec
    assert says in reasons(space, {})[""]


def test_a_stack_of_four_axes_has_the_frames_and_channels_of_its_pixels_in_order() -> None:
    space = bytes_box(2, 11, 12, 3)
    frames = np.random.default_rng(0).integers(256, size=space.shape, dtype=np.uint8)
    image = make_observer(space)[1](frames)
    assert image.shape == (6, 11, 12)
    for frame in range(2):
        for channel in range(3):
            assert (image[3 * frame + channel] == frames[frame, :, :, channel]).all()
    assert (make_observer(space, (5,))[1](np.stack([frames] * 5))[4] == image).all()


@pytest.mark.parametrize("shape", [(20, 20, 3), (7, 3, 5), (20, 20)])
@pytest.mark.parametrize("kinds", [{}, {"": "vector"}, {"": "image"}])
def test_floats_keep_their_values_whatever_they_are_taken_for(shape: tuple[int, ...], kinds: dict[str, str]) -> None:
    space = spaces.Box(0.0, 1.0, shape)
    value = np.random.default_rng(0).random(shape, np.float32)
    read = make_observer(space, kinds=kinds)[1](value)
    assert read.dtype == np.float32
    assert sorted(read.ravel().tolist()) == sorted(value.ravel().tolist())


def test_bytes_stay_bytes() -> None:
    image = np.random.default_rng(0).integers(256, size=(84, 84, 3), dtype=np.uint8)
    read = make_observer(bytes_box(84, 84, 3))[1](image)
    assert read.dtype == np.uint8
    assert (read == image.transpose(2, 0, 1)).all()


def test_whole_numbers_that_no_byte_holds_are_an_error_and_not_clipped() -> None:
    _, observe = make_observer(bytes_box(20, 20, 3, dtype=np.int64))
    with pytest.raises(ValueError, match="numbers from 300 to 300; its Box has whole ones from 0 to 255"):
        observe(np.full((20, 20, 3), 300))


def test_the_start_says_what_each_part_is_taken_for_and_a_key_overrides_it() -> None:
    with closing(environments.make("test_spaces:Map")) as envs:
        assert envs.notes[0] == (
            "observations/camera: image 3x84x84 (uint8 from 0 to 255 on 3 axes, channels last, 255 seen as 1); "
            "observations/map: vector 144 (floats on two axes may be a table); "
            "observations/position: vector 2 (one axis); observations/mission: left out, since it is text")
    with closing(environments.make("test_spaces:Map", obs_as="map=image,camera=vector")) as envs:
        assert envs.spec.obs == {"camera": ArraySpec("vector", (21168,)), "position": ArraySpec("vector", (2,)),
                                 "map": ArraySpec("image", (1, 12, 12), 1, floats=True)}
        assert "map: image 1x12x12 (as obs_as says, 1 seen as 1)" in envs.notes[0]
        assert envs.reset().obs["map"][0, 0, 3, 4] == np.float32(0.3)


def test_many_parts_alike_are_named_in_one_short_line() -> None:
    with closing(environments.make("tiny:ManyParts")) as envs:
        assert len(envs.notes[0].split(";")) == 11
    space = spaces.Dict({f"{i:03}": spaces.Box(-1, 1, (2,)) for i in range(160)})
    spec = EnvSpec(make_observer(space)[0], ActionSpec("discrete", (2,)))
    assert describe(spec, why=reasons(space, {}))[0] == (
        "observations/000, 001, 002, 157 more: vector 2 (one axis)")


@pytest.mark.parametrize(("obs_as", "says"), [
    ("camra=image", "names the part 'camra'.*did you mean camera"), ("place=codes", "'map', 'position'; give one of"),
    ("position=image", "part 'position' .*needs two to four axes.* give vector"),
    ("map=codes", "part 'map' .*whole numbers from 0 to at most 255.*float32"),
    ("picture", "is not one of auto, image"), ("imge", "did you mean image"),
    ("map=image,map=codes", "names a part twice")])
def test_a_part_that_is_unknown_or_cannot_be_of_the_kind_is_refused(obs_as: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        environments.make("test_spaces:Map", obs_as=obs_as).close()
    assert "\n" not in str(error.value)


def test_a_discrete_part_and_atari_take_no_kind() -> None:
    with pytest.raises(ConfigError, match=r"obs_as=image is for Boxes, and this is Discrete\(3\)"):
        make_observer(spaces.Discrete(3), kinds={"": "image"})
    with pytest.raises(ConfigError, match="obs_as has no effect here: Atari"):
        vantage.configure("a2c", env="Pong", obs_as="vector")


def test_an_image_of_unbounded_floats_is_scaled_by_what_occurs() -> None:
    spec, observe = make_observer(spaces.Box(-np.inf, np.inf, (12, 12, 3)), kinds={"": "image"})
    assert spec.adapts and spec.floats
    model = make_model(Config().policy, EnvSpec(spec, ActionSpec("discrete", (2,))), critic="state")
    images = torch.from_numpy(observe(np.full((12, 12, 3), -40, np.float32)))[None, None]
    model.observe(images)
    assert model.inputs([images])[0].min().item() / 255 == pytest.approx(-1, rel=1e-3)


@pytest.mark.parametrize(("values", "seen"), [((0, 255), 255 / 128), ((255, 255), 1), ((0, 10), 10), ((3, 8), 8)])
def test_pixels_of_a_small_grid_are_scaled_and_codes_are_not(values: tuple[int, int], seen: float) -> None:
    normalizer = ScaleNormalizer(1.0, floats=False)
    frames = torch.zeros(2, 1, 3, 7, 7)
    frames[0, ..., 0], frames[1, ..., 0] = values
    normalizer.merge(*normalizer.batch(frames))
    assert normalizer(frames).max().item() == pytest.approx(seen, rel=0.01)
    assert normalizer.state_dict().keys() == {"count", "mean", "var"}, "saved with the run"


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_large_offset_is_subtracted_in_the_precision_of_the_environment(dtype: str) -> None:
    specs, seen = [], set()
    for seed, stream, evaluation in ((0, 0, False), (1, 0, False), (0, 1, True)):
        with closing(environments.make("test_spaces:Clock", 2, seed=seed, stream=stream, evaluation=evaluation,
                                       options={"dtype": dtype})) as envs:
            specs.append(envs.spec.obs)
            seen |= {tuple(row) for row in envs.reset().obs.tolist()}
            for _ in range(6):
                seen |= {tuple(row) for row in envs.step(np.zeros(2, int)).obs.tolist()}
    (offset, small), = {spec.shift for spec in specs}
    assert offset in (CLOCK, CLOCK + 10) and small == 0, "the same in training and evaluations of any seed"
    assert seen == {(CLOCK - offset, 3), (CLOCK + 10 - offset, 3)}
    assert EnvSpec.from_json(json.loads(json.dumps(EnvSpec(specs[0], ActionSpec("discrete", (2,))).to_json()))
                             ).obs == specs[0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_a_clock_in_nanoseconds_loses_none(dtype: Any) -> None:
    now = 1_700_000_000_123_456_789
    space = spaces.Box(0, 2**63 - 1, (1,), dtype)
    _, observe = make_observer(space, shifts={"": (now,)})
    assert [observe(np.array([now + step], dtype)).item() for step in (-7, 0, 3)] == [-7, 0, 3]


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "faulty_envs:Counter"])
def test_ordinary_observations_are_not_shifted(env: str) -> None:
    with closing(environments.make(env)) as envs:
        assert envs.spec.shifts == {}


def test_the_offset_is_saved_with_a_run_and_used_by_its_evaluation_and_resume(tmp_path: Any) -> None:
    config = vantage.configure("a2c", env="test_spaces:Clock", steps=200, seed=3, threads=1, eval_every=100)
    for _ in vantage.train(config, run=tmp_path / "run"):
        pass
    saved = json.loads((tmp_path / "run/config.json").read_text())
    (offset, small), = json.loads(saved["env"]["obs_shift"]).values()
    assert offset in (CLOCK, CLOCK + 10) and small == 0
    agent = vantage.load(tmp_path / "run")
    assert agent.model.spec.obs.shift == (offset, 0)
    assert vantage.evaluate(tmp_path / "run", episodes=2, num_envs=1).episodes == 2
    for _ in vantage.resume(tmp_path / "run", steps=400):
        pass
    assert vantage.load(tmp_path / "run", checkpoint="latest").model.spec.obs.shift == (offset, 0)


def test_a_run_without_offsets_keeps_auto(tmp_path: Any) -> None:
    for _ in vantage.train(vantage.configure("a2c", env="tiny:Bandit", steps=50, threads=1), run=tmp_path / "run"):
        pass
    assert json.loads((tmp_path / "run/config.json").read_text())["env"]["obs_shift"] == "auto"


def test_the_bounds_of_a_shifted_part_are_shifted_too() -> None:
    space = spaces.Box(CLOCK, CLOCK + 100, (1,), np.int64)
    low, high = bounds_of(space, make_observer(space, shifts={"": (CLOCK,)})[0])[""]
    assert low[0] == pytest.approx(0, abs=2e5) and high[0] - low[0] == pytest.approx(100, abs=4e5)


def test_a_part_of_a_dict_is_shifted_by_its_name_and_others_are_not() -> None:
    space = spaces.Dict({"clock": spaces.Box(-np.inf, np.inf, (1,), np.float64),
                         "seed": spaces.Box(0, 2**40, (1,), np.int64), "small": spaces.Box(0, 2e9, (1,))})
    firsts = [{"clock": np.array([CLOCK + 0.25 * i]), "seed": np.array([1 + 10**8 * i]),
               "small": np.float32([CLOCK])} for i in range(2)]
    spec, _ = make_observer(space)
    assert first_offsets(lambda seed: firsts.pop(0), space, spec) == {"clock": (CLOCK,)}


@pytest.mark.parametrize("text", ['{"x": [1]}', '{"": [1, 2, 3]}', '{"": "1"}', "{", '{"": [NaN, 1]}'])
def test_offsets_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="obs_shift"):
        environments.make("test_spaces:Clock", obs_shift=text)


def test_parts_whose_paths_read_the_same_keep_names_of_their_own() -> None:
    one, two = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (2,))
    spec, observe = make_observer(spaces.Dict({"a/b": one, "a": spaces.Dict({"b": two}), "c": one}))
    assert set(spec) == {"'a/b'", "'a'/'b'", "c"}
    obs = observe({"a/b": np.float32([1]), "a": {"b": np.float32([2, 3])}, "c": np.float32([4])})
    assert [obs[name].tolist() for name in ("'a/b'", "'a'/'b'", "c")] == [[1], [2, 3], [4]]


def test_numbers_and_texts_as_keys_do_not_merge_and_unique_names_stay() -> None:
    one, two = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (2,))
    spec, _ = make_observer(spaces.Dict({0: one, "0": two}))  # type: ignore[dict-item]
    assert {name: part.shape for name, part in spec.items()} == {"0": (1,), "'0'": (2,)}
    spec, _ = make_observer(spaces.Dict({"b": spaces.Tuple((one, two)), "x.y": one, "0": one}))
    assert set(spec) == {"b/0", "b/1", "x.y", "0"}


def test_keys_with_dots_have_names_of_their_own_in_a_policy_and_a_snapshot() -> None:
    space = spaces.Dict({name: spaces.Box(-1, 1, (i,)) for i, name in enumerate(("x", "x.y", "x/y", "obs.x"), 1)})
    spec = EnvSpec(make_observer(space)[0], ActionSpec("discrete", (2,)))
    policy = PolicyStep(make_model(Config().change(frame_stack=2).policy, spec, critic="state"))
    assert {"obs.x", "obs.x.y", "obs.x/y", "obs.obs.x", "state.frames.x.y"} <= set(policy.inputs)
    assert len(set(policy.inputs)) == len(policy.inputs)


@pytest.mark.parametrize(("space", "number"), [
    (spaces.Discrete(2**31), "2,147,483,648"), (spaces.MultiDiscrete([2**20] * 10), "10,485,760"),
    (spaces.MultiDiscrete([2**62, 2**62, 2**62]), "13,835,058,055,282,163,712"),
    (spaces.Dict({"big": spaces.Discrete(2**40), "x": spaces.Box(0, 1, (2,))}), "in 'big'"),
    (spaces.Box(0, 255, (2000, 2000, 3), np.uint8), "12,000,000 numbers.*screen_size=84")])
def test_an_observation_too_large_to_keep_is_refused_before_it_is_made(space: Any, number: str) -> None:
    with pytest.raises(ConfigError, match=number) as error:
        check_obs_size(make_observer(space)[0])
    assert "\n" not in str(error.value)


class Numbered(Shown):
    """Counts states up to a number that no one-hot vector can hold."""

    def __init__(self, n: int = 2**31) -> None:
        super().__init__(spaces.Discrete(n))
        self.zero = self.one = 0


def test_a_discrete_observation_of_two_billion_states_is_refused_by_the_run() -> None:
    with pytest.raises(ConfigError, match=r"one observation has 2,147,483,648 numbers, more than 10,000,000"):
        environments.make("test_spaces:Numbered")


def test_rollouts_beyond_the_free_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.learning.collect.free_memory", lambda: 2**30)
    spec = EnvSpec(ArraySpec("vector", (2**20,)), ActionSpec("discrete", (2,)))
    check_rollouts(spec, 8, 31)
    with pytest.raises(ConfigError, match=r"take 1.0 GB, 4.0 MB each.*num_envs=8 and 32 steps; give a smaller"):
        check_rollouts(spec, 8, 32)


class Strided(VectorEnv[Any, Any, Any]):
    """A vector whose observations, rewards and masks run backwards in memory or are read-only."""

    def __init__(self, num_envs: int = 1, fault: str = "") -> None:
        self.num_envs, self.fault, self.metadata = num_envs, fault, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Dict({"x": spaces.Box(-9, 99, (3,)), "i": bytes_box(84, 84, 1)})
        self.single_action_space = spaces.Discrete(2)
        self.t = 0

    def odd(self, array: Any) -> Any:
        if self.fault == "backwards":
            return np.ascontiguousarray(array[::-1])[::-1]
        array = array.copy()
        array.flags.writeable = False
        return array

    def obs(self) -> Any:
        x = np.arange(3 * self.num_envs, dtype=np.float32).reshape(-1, 3) + self.t
        images = np.arange(self.num_envs, dtype=np.uint8)[:, None, None, None] + np.zeros((84, 84, 1), np.uint8)
        return {"x": self.odd(x), "i": self.odd(images)}

    def info(self) -> Any:
        return {"action_mask": self.odd(np.array([[1, 0]] * self.num_envs, np.int8))}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return self.obs(), self.info()

    def step(self, actions: Any) -> Any:
        self.t += 1
        ends = self.odd(np.zeros(self.num_envs, bool))
        return self.obs(), self.odd(np.arange(self.num_envs) * 1.0), ends, ends, self.info()


@pytest.mark.parametrize("fault", ["backwards", "read-only"])
def test_arrays_that_run_backwards_or_are_read_only_are_read(fault: str) -> None:
    with closing(environments.make("test_spaces:Strided", 3, options={"fault": fault})) as envs:
        first, step = envs.reset(), envs.step(np.zeros(3, int))
        for t, obs in enumerate((first.obs, step.obs)):
            assert torch.from_numpy(obs["x"]).tolist() == [[t, t + 1, t + 2], [t + 3, t + 4, t + 5],
                                                           [t + 6, t + 7, t + 8]]
            assert torch.from_numpy(obs["i"])[:, 0, 5, 6].tolist() == [0, 1, 2]
        assert torch.from_numpy(step.rewards).tolist() == [0, 1, 2]
        assert torch.from_numpy(step.action_mask).tolist() == [[True, False]] * 3


class Shared(gym.Env[Any, Any]):
    """All environments write their observations to the same memory."""

    memory = np.zeros(2, np.float32)
    count = 0

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 99, (2,)), spaces.Discrete(2)
        Shared.count += 1
        self.number = Shared.count

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.memory[:] = self.number
        return self.memory, {}

    def step(self, action: Any) -> Any:
        self.memory[:] = self.number + 10
        return self.memory, 0.0, False, False, {}


def test_environments_that_share_memory_keep_their_own_observations() -> None:
    Shared.count = 0
    with closing(environments.make("test_spaces:Shared", 3)) as envs:
        first = envs.reset().obs[:, 0]
        assert len(set(first.tolist())) == 3
        assert (envs.step(np.zeros(3, int)).obs[:, 0] == first + 10).all()


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i8", "f2", "f8", "i1"])
def test_numbers_of_any_size_and_byte_order_become_float32(dtype: str) -> None:
    _, observe = make_observer(spaces.Box(-9, 9, (3,)))
    read = observe(np.array([1, -2, 3], dtype))
    assert read.dtype == np.dtype(np.float32) and read.dtype.isnative
    assert torch.from_numpy(read).tolist() == [1, -2, 3]


def test_arrays_of_objects_are_refused_with_what_is_needed() -> None:
    with pytest.raises(ValueError, match=r"observation is object of shape .* it must be float or int"):
        make_observer(spaces.Box(-9, 9, (2,)))[1](np.array([1.0, None], object))


OLD = type("Box", (), {"__module__": "gym.spaces.box", "__repr__": lambda self: "Box(4,)"})


class OldSpace(Shown):
    """Has a space of the library before Gymnasium."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(2))
        self.observation_space = OLD()  # type: ignore[assignment]


class SpaceOf(Shown):
    """Has a space of the kind that its argument names."""

    def __init__(self, kind: str) -> None:
        box = spaces.Box(0, 1, (2,))
        kinds: dict[str, Any] = {
            "graph": spaces.Graph(box, None), "sequence": spaces.Sequence(box),
            "one of": spaces.OneOf((box, spaces.Discrete(2))), "empty": spaces.Box(0, 1, (0,)), "text": spaces.Text(5)}
        name = kind.removeprefix("a ")
        super().__init__(spaces.Dict({"x": box, "part": kinds[name]}) if kind.startswith("a ") else kinds[name])


def test_a_space_of_old_gym_is_named_with_its_library_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"observation_space is Box\(4,\) .*old gym library; make it from "
                                          "gymnasium.spaces"):
        environments.make("test_spaces:OldSpace")


@pytest.mark.parametrize(("kind", "says"), [
    ("empty", r"hold no number: its shape is \(0,\); leave it out"), ("a empty", "part 'part'.*hold no number"),
    ("graph", "Graph.*not supported"), ("a graph", "part 'part'.*Graph.*not supported"),
    ("a sequence", "part 'part'.*Sequence"), ("a one of", "part 'part'.*OneOf"), ("text", "Text.*hold no array|Text")])
def test_a_space_that_cannot_be_read_is_named_with_its_part(kind: str, says: str) -> None:
    with pytest.raises((ConfigError, EnvError), match=says) as error:
        environments.make("test_spaces:SpaceOf", options={"kind": kind})
    assert "\n" not in str(error.value)


def test_a_run_that_is_older_than_the_key_reads_its_observations_as_before() -> None:
    values = json.loads(Config().to_json())
    del values["env"]["obs_as"], values["env"]["obs_shift"]
    config = Config.from_json(json.dumps(values), source="config.json")
    kinds = config.env.kinds_of_parts
    assert kinds == {"": "bytes"} and config.env.shifts == {}
    for space, spec in ((bytes_box(8, 8, 17), ArraySpec("image", (8, 8, 17), 255)),
                        (bytes_box(7, 7, 3), ArraySpec("image", (3, 7, 7), 1)),
                        (bytes_box(4, 20, 20, 3), ArraySpec("vector", (4800,))),
                        (spaces.Box(0.0, 1.0, (7, 3, 5)), ArraySpec("image", (5, 7, 3), 255))):
        read, observe = make_observer(space, kinds=kinds)
        assert read == spec and not read.adapts
        assert observe(np.ones(space.shape, space.dtype)).max() == (255 if space.dtype == np.float32 else 1)
    assert Config().env.kinds_of_parts == {"": "auto"}


LEARNED = {"Pixels": {}, "Clock": {}, "Clock of whole numbers": {"dtype": "int64"}}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LEARNED)
def test_what_is_shown_is_learned(name: str, tmp_path: Any) -> None:
    config = vantage.configure("ppo", env=f"test_spaces:{name.split()[0]}", env_kwargs=LEARNED[name], steps=15_000,
                               threads=1, eval_every=0)
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.metrics["rollout/ep_rew_mean"] > 9.5, "of 10, by sampled actions; 5 is random"
