"""The conversion of spaces, the steps of an environment, and its errors. Names have test_ids, Atari test_atari."""

from __future__ import annotations

import re
from typing import Any

import environments
import numpy as np
import pytest
from gymnasium import spaces

from vantage.envs.actions import make_actor, make_masker
from vantage.envs.history import History
from vantage.envs.spaces import make_observer
from vantage.errors import ConfigError, EnvError
from vantage.runs.spec_json import spec_from_json, spec_to_json
from vantage.specs import ActionSpec, ArraySpec, EnvSpec


def make(env: str, num_envs: int = 2, **keys: Any):
    return environments.make(env, num_envs, **keys)


@pytest.mark.parametrize(("name", "limit"), [("faulty_envs:Counter", 3), ("faulty_envs:RegisteredByModule-v0", 3),
                                             ("faulty_envs:RegisteredByModule-v0", 0)])
def test_a_time_limit_ends_the_episode_but_not_the_task(name, limit):
    envs, length = make(name, max_episode_steps=limit), limit or 4
    envs.reset()
    steps = [envs.step(np.zeros(2, int)) for _ in range(length + 1)]
    assert [s.is_first[0] for s in steps] == [False] * length + [True]
    assert not any(s.terminated.any() for s in steps)
    assert [(e.env, e.length) for e in steps[length - 1].episodes] == [(0, length), (1, length)]
    assert f"time limit {length} steps" in envs.notes


def test_the_step_after_an_end_only_resets():
    envs = make("faulty_envs:make_counter", options={"length": 2})
    assert envs.reset().is_first.all()
    steps = [envs.step(np.ones(2, int)) for _ in range(5)]
    assert [s.obs[0, 0] for s in steps] == [s.rewards[0] for s in steps] == [1, 2, 0, 1, 2]
    assert [bool(s.terminated[0]) for s in steps] == [False, True, False, False, True]
    assert [s.is_first[0] for s in steps] == [not s.valid[0] for s in steps] == [False, False, True, False, False]
    ends = [[(e.env, e.score, e.length) for e in s.episodes] for s in steps]
    assert ends == [[], [(0, 3.0, 2), (1, 3.0, 2)]] + [[]] * 2 + [[(0, 3.0, 2), (1, 3.0, 2)]]


def test_observations_are_images_and_vectors_by_the_path_of_their_part():
    envs = make("faulty_envs:Odd")
    obs = envs.reset().obs
    assert envs.spec.obs == {"a": ArraySpec("one_hot", (3,), sizes=(3,)),
                             "b/0": ArraySpec("one_hot", (2,), sizes=(1, 1)),
                             "b/1": ArraySpec("one_hot", (5,), sizes=(2, 3)),
                             "camera": ArraySpec("image", (3, 6, 7), 1), "flat": ArraySpec("vector", (4,))}
    assert [obs[key][1].tolist() for key in ("a", "b/0", "b/1", "flat")] == [
        [0, 0, 1], [1, 0], [0, 1, 0, 0, 1], [1, 2, 3, 4]]
    assert {part.dtype.name for key, part in obs.items()} == {"float32", "uint8"}
    camera = np.arange(6 * 7 * 3).reshape(6, 7, 3)
    assert (obs["camera"][1] == camera.transpose(2, 0, 1)).all()
    assert any("camera: image 3x6x7" in note for note in envs.notes)
    assert envs.step(np.array([0, 2])).rewards.tolist() == [5, 7], "discrete actions start where the space does"


@pytest.mark.parametrize(("shape", "target"), [
    ((18, 19), (1, 18, 19)), ((4, 18, 19), (4, 18, 19)), ((18, 19, 7), (7, 18, 19)), ((6, 18, 19), (6, 18, 19))])
def test_a_byte_box_is_an_image_where_its_shape_is_one(shape, target):
    spec, convert = make_observer(spaces.Box(0, 255, shape, np.uint8))
    assert spec == ArraySpec("image", target)
    assert convert(np.zeros(shape, np.uint8)).shape == target


@pytest.mark.parametrize(("space", "unit", "value", "seen"), [
    (spaces.Box(0, 1, (10, 10, 6), bool), 1, True, 1),  # MinAtar
    (spaces.Box(0, 255, (7, 7, 3), np.uint8), 1, 10, 10),  # MiniGrid
    (spaces.Box(0, 12, (20, 20, 2), np.int64), 12, 6, 6), (spaces.Box(0, 255, (20, 20, 3), np.uint8), 255, 51, 51),
    (spaces.Box(0.0, 1.0, (20, 20, 5)), 1, 0.2, np.float32(0.2)), (spaces.Box(0.0, 255.0, (3, 20, 20)), 255, 5.5, 5.5)])
def test_images_of_any_type_keep_their_numbers_and_have_a_value_that_a_network_sees_as_one(space, unit, value, seen):
    spec, convert = make_observer(space)
    assert isinstance(spec, ArraySpec) and spec.kind == "image" and spec.unit == unit
    assert spec_from_json(spec_to_json(EnvSpec(spec, ActionSpec("discrete", (2,))))).obs == spec
    image = convert(np.full(space.shape, value, space.dtype))
    assert image.dtype == spec.dtype == ("float32" if space.dtype.kind == "f" else "uint8")
    assert image.shape == spec.shape and (image == seen).all()
    if space.dtype.kind == "f":
        with pytest.raises(ValueError, match="not finite"):
            convert(np.full(space.shape, np.nan, space.dtype))


def test_texts_are_left_out_of_observations():
    space = spaces.Dict({"mission": spaces.Text(9), "x": spaces.Box(0, 1, (2,))})
    assert make_observer(space)[0] == {"x": ArraySpec("vector", (2,))}
    for empty in (spaces.Dict({"mission": spaces.Text(9)}), spaces.Dict({})):
        with pytest.raises(ConfigError, match="hold no array or number"):
            make_observer(empty)


def test_an_image_that_may_be_either_has_its_channels_last():
    image = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert (make_observer(spaces.Box(0, 255, (3, 3, 3), np.uint8))[1](image) == image.transpose(2, 0, 1)).all()


@pytest.mark.parametrize(("space", "value", "says"), [
    (spaces.Discrete(3), 3, "outside its space"), (spaces.Discrete(3), 1.0, "float64 .*must be int or uint of shape"),
    (spaces.MultiDiscrete([2, 2]), np.array([0, 2]), "outside its space"), (spaces.Box(0, 1, (2,)), [1, 2, 3], "shape"),
    (spaces.Box(0, 255, (4, 4), np.uint8), np.zeros((4, 4)), "is float64 .*must be uint8 of shape"),
    (spaces.Box(0, 255, (4, 4), np.uint8), np.zeros((4, 5), np.uint8), "shape"),
    (spaces.Dict({"a": spaces.Box(0, 1, (2,))}), {}, "the observation lacks 'a'"),
    (spaces.Dict({"field": spaces.Box(0, 1, (2,))}), {"feild": np.zeros(2)}, r"lacks 'field'; did you mean 'feild'\?$"),
    (spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.Discrete(2)])]), (0, ()), "the observation lacks '1/0'$"),
    (spaces.Dict({"a": spaces.Box(0, 1, (2,))}), {"a": np.zeros(3)}, "in 'a': .* shape")])
def test_an_observation_outside_its_space_is_an_error(space, value, says):
    with pytest.raises(ValueError, match=says):
        make_observer(space)[1](value)


@pytest.mark.parametrize(("kind", "action", "arrives"), [
    ("box", [-5.0, -5.0], [-1, 0]), ("box", [5.0, 5.0], [2, 5]), ("whole", [1.6, -9.0], [2, -3]),
    ("choices", [1, 2], [1, 2]), ("bits", [0, 1], [0, 1])])
def test_actions_arrive_inside_their_space(kind, action, arrives):
    envs = make("faulty_envs:Echo", options={"kind": kind}, num_envs=1)
    envs.reset()
    actions = np.array([action], np.float32 if kind in ("box", "whole") else np.int64)
    assert envs.step(actions).obs[0, :2].tolist() == arrives
    with pytest.raises(ValueError, match="actions have shape"):
        envs.step(actions.repeat(2, axis=0))


def test_action_specs_have_kind_sizes_and_bounds():
    assert make_actor(spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf])))[0] == ActionSpec(
        "box", (2,), (-1.0, 0.0), (1.0, float("inf")))
    spec, convert = make_actor(spaces.MultiDiscrete([[2, 3]], start=[[1, 4]]))
    assert spec == ActionSpec("multi_discrete", (2, 3)) and convert(np.array([0, 2])).tolist() == [[1, 6]]
    assert make_actor(spaces.MultiBinary(3))[0] == ActionSpec("multi_discrete", (2, 2, 2))


def test_with_reward_terminates_a_reward_ends_the_return_but_not_the_episode_in_training_alone():
    keys = {"reward": "sign", "reward_terminates": True}
    envs, raw = make("faulty_envs:Counter", **keys), make("faulty_envs:Counter", evaluation=True, **keys)
    envs.reset(), raw.reset()
    assert envs.step(np.zeros(2, int)).terminated.all() and not raw.step(np.zeros(2, int)).terminated.any()
    assert not envs.step(np.zeros(2, int)).is_first.any()


def test_masks_come_with_every_observation():
    envs = make("faulty_envs:Masked")
    first = envs.reset()
    assert envs.spec.masked
    masks = [first.action_mask] + [envs.step(np.full(2, t % 3)).action_mask for t in range(5)]
    assert [mask[0].tolist() for mask in masks] == [
        [True, False, False], [False, True, False], [False, False, True], [True, False, False],
        [True, True, True], [True, False, False]]


@pytest.mark.parametrize(("fault", "says"), [
    ("none", "allows no action"), ("size", r"shape \(4,\), the actions need \(3,\)"), ("absent", "lacks action_mask")])
def test_a_mask_that_cannot_be_used_is_an_error(fault, says):
    envs = make("faulty_envs:Masked", options={"fault": fault})
    envs.reset()
    envs.step(np.zeros(2, int))
    with pytest.raises(EnvError, match=says):
        envs.step(np.ones(2, int))


def test_a_mask_of_several_choices_allows_one_of_each():
    masker = make_masker(EnvSpec(ArraySpec("vector", (1,)), ActionSpec("multi_discrete", (2, 3)), masked=True))
    for mask in ((np.array([1, 0]), np.array([0, 1, 1])), np.array([1, 0, 0, 1, 1]), [1, 0, 0, 1, 1]):
        assert masker({"action_mask": mask}, False)["action_mask"].tolist() == [True, False, False, True, True]
    with pytest.raises(ValueError, match="allows no action"):
        masker({"action_mask": (np.array([1, 0]), np.array([0, 0, 0]))}, False)


def fault_after_two_steps(fault: str, vector: str) -> str:
    envs = make("faulty_envs:Counter", options={"fault": fault}, vector=vector, seed=4)
    try:
        envs.reset()
        for _ in range(2):
            envs.step(np.ones(2, int))
        with pytest.raises(EnvError) as caught:
            envs.step(np.ones(2, int))
        return str(caught.value)
    finally:
        envs.close()


@pytest.mark.parametrize(("fault", "says"), [
    ("raise", "KeyError: '100% of %s'"), ("nan obs", "nan.* is not finite after action 1"),
    ("inf reward", "reward inf is not finite"), ("shape", r"shape \(4,\); it must be shape \(3,\)"),
    ("text", "the observation is <U1"), ("reward", "the reward is None;"),
    ("old step", r"step\(\) returned a tuple of 4 ")])
def test_an_error_names_environment_seed_episode_and_step(fault, says):
    message = fault_after_two_steps(fault, "sync")
    assert re.search(says, message)
    assert re.match(r"environment 0 of faulty_envs:Counter \(seed \d+, episode 0, step 3\)", message)


@pytest.mark.parametrize(("options", "says"), [
    ({"fault": "far obs"}, "observation has 200 at index 0, outside its Box of -100 to 100;"),
    ({"fault": "large reward"}, "reward -2e\\+06 is beyond 1e\\+06"), ({}, "episode is longer than 1,000,000 steps")])
def test_numbers_that_are_likely_a_mistake_are_warned_of_once_in_training(options, says, caplog):
    for evaluation in (True, False):
        envs = make("faulty_envs:Counter", options={"length": 10**9, "at": 100, **options}, evaluation=evaluation)
        envs.reset()
        if not options:
            envs._length[1] = 1_000_000
            envs._history._seeded_at[1] = -1_000_000
        for _ in range(300):
            envs.step(np.zeros(2, int))
    message, = (record.getMessage() for record in caplog.records)
    place = f"environment {0 if options else 1} of faulty_envs:Counter \\(seed \\d+, episode 0, step 100(0100)?\\)"
    assert re.match(f"{place}: .*{says}", message)


def test_mujoco_models_are_built_without_a_word(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    environments.make("HalfCheetah-v5", 2).reset()
    assert capfd.readouterr() == ("", "") and not list(tmp_path.iterdir())


def seeds(env: str = "faulty_envs:Counter", **keys: Any) -> list[float]:
    envs = make(env, options={"length": 1}, **keys)
    first = envs.reset().obs[:, 1].tolist()
    envs.step(np.zeros(2, int))
    return first + envs.step(np.zeros(2, int)).obs[:, 1].tolist()


def test_every_environment_and_episode_has_a_seed_of_its_own():
    drawn = seeds() + seeds(seed=1) + seeds(stream=1)
    assert len(set(drawn)) == 12 and seeds() == drawn[:4]
    assert all(0 <= seed < 2 ** 31 for seed in drawn)


def test_a_history_moves_and_drops_what_passes_its_limit():
    def actions(history):
        """Those of each environment; None if they were dropped."""
        rows = zip(history.starts.tolist(), history.actions.swapaxes(0, 1), strict=True)
        return [row[start:].tolist() if start >= 0 else None for start, row in rows]

    rng, limit = np.random.default_rng(0), 400
    history, expected = History(3, ActionSpec("discrete", (200,)), limit=limit), [[], [], []]
    for t in range(3 * limit):
        row = rng.integers(200, size=3)
        history.append(row)
        which = np.array([t % 70 == 9, t % 190 == 5, False])
        history.restart(which)
        expected = [[] if again else [*part, int(action)]
                    for again, part, action in zip(which, expected, row, strict=True)]
    assert actions(history) == [*expected[:2], None]
    restored = History(3, ActionSpec("discrete", (200,)), limit=limit)
    restored.restore(history.snapshot())
    assert actions(restored) == [*expected[:2], None]
    for each in (history, restored):
        each.restart(np.array([False, False, True]))
    assert len(history.actions) == len(restored.actions) == max(map(len, expected[:2]))
