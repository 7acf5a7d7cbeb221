"""Observation spaces: what each part is taken for, what becomes of its numbers, and how the others are refused."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import environments
import numpy as np
import pytest
import torch
from gymnasium import spaces
from shown_envs import Shown

import vantage
from vantage.config.config import Config
from vantage.envs.spaces import check_obs_size, describe, make_observer, reasons
from vantage.errors import ConfigError, EnvError
from vantage.learning.collect import check_rollouts
from vantage.models.build import make_model
from vantage.models.normalization import ScaleNormalizer
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.tools.onnx_policy import PolicyStep


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
    with closing(environments.make("shown_envs:Map")) as envs:
        assert envs.notes[0] == (
            "observations/camera: image 3x84x84 (uint8 from 0 to 255 on 3 axes, channels last, 255 seen as 1); "
            "observations/map: vector 144 (floats on two axes may be a table); "
            "observations/position: vector 2 (one axis); observations/mission: left out, since it is text")
    with closing(environments.make("shown_envs:Map", obs_as="map=image,camera=vector")) as envs:
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
        environments.make("shown_envs:Map", obs_as=obs_as).close()
    assert "\n" not in str(error.value)


def test_a_discrete_part_and_atari_take_no_kind() -> None:
    with pytest.raises(ConfigError, match=r"obs_as=image is for Boxes, and this is Discrete\(3\)"):
        make_observer(spaces.Discrete(3), kinds={"": "image"})
    with pytest.raises(ConfigError, match="obs_as has no effect here: Atari"):
        vantage.configure("a2c", env="Pong", obs_as="vector")


def test_a_kind_for_all_parts_is_for_the_boxes_among_them() -> None:
    space = spaces.Dict({"grid": spaces.Box(0, 1, (3, 4)), "room": spaces.Discrete(3), "bits": spaces.MultiBinary(2)})
    image, _ = make_observer(space, kinds={"": "image"})
    assert isinstance(image, dict)
    assert {name: part.kind for name, part in image.items()} == {"grid": "image", "room": "one_hot", "bits": "one_hot"}
    with pytest.raises(ConfigError, match=r"part 'room' .*obs_as=image is for Boxes"):
        make_observer(space, kinds={"room": "image"})


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
    config = vantage.configure("ppo", env=f"shown_envs:{name.split()[0]}", env_kwargs=LEARNED[name], steps=15_000,
                               threads=1, eval_every=0)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.metrics["rollout/ep_rew_mean"] > 9.5, "of 10, by sampled actions; 5 is random"
