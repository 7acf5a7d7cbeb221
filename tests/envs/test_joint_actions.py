"""Dict and Tuple actions: rows of a policy, the environment's own structure, masks and saved specs. No training."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import hybrid_envs
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hybrid_envs import SPACE

from vantage.envs.actions import make_actor, make_masker, make_writer, to_row
from vantage.envs.masks import allows
from vantage.envs.outcomes import OutcomeError
from vantage.envs.spaces import describe
from vantage.envs.tensor_masks import allowed_actions, side_by_side
from vantage.envs.tensors import tensor_actor
from vantage.errors import ConfigError
from vantage.runs.spec_json import spec_to_json
from vantage.runs.validation import read_spec
from vantage.specs import ArraySpec, EnvSpec

SPEC, ACT = make_actor(SPACE, scale=True)
ROW = np.float32([0.5, -3, 2, 1, 0, 1, 2])
"""Throttle 175 and -1 (clipped), gear 3, bits 1 and 0, dials 5 and 7."""
VECTOR = ArraySpec("vector", (3,))
GEAR, FIRST, SECOND = [1, 0, 1], [1, 0], [1, 1, 0]
FLAT = [*GEAR, 1, 1, 1, 1, *FIRST, *SECOND]


def assert_is_the_row(action: Any) -> None:
    assert action["throttle"].tolist() == [175, -1] and action["gear"] == 3
    assert action["panel"][0].tolist() == [[1], [0]] and action["panel"][1]["dials"].tolist() == [5, 7]


def test_a_row_becomes_what_the_space_contains() -> None:
    action = ACT(ROW)
    assert_is_the_row(action)
    assert SPACE.contains(action)
    assert list(action) == ["throttle", "gear", "panel"] and type(action["gear"]) is np.int64
    rows = ROW + np.zeros((5, 1), np.float32)
    batch = make_actor(SPACE, (5,), scale=True)[1](rows)
    assert batch_space(SPACE, 5).contains(batch)
    assert batch["gear"].tolist() == [3] * 5 and batch["throttle"].shape == (5, 2)
    write = make_writer(SPEC)
    assert_is_the_row(write(rows, True))
    assert batch_space(SPACE, 5).contains(write(rows, False))


def test_a_row_in_the_environments_units_comes_back_from_the_structure() -> None:
    row = to_row(ACT(ROW), SPACE)
    assert row.tolist() == [175, -1, 2, 1, 0, 1, 2]
    assert_is_the_row(make_actor(SPACE)[1](row))
    with pytest.raises(ValueError, match="the environment's are in Dict"):
        to_row({"gear": 1}, SPACE)
    with pytest.raises(ValueError, match=r"'throttle',\) has shape \(\), not \(2,\)"):
        to_row({**ACT(ROW), "throttle": 1.0}, SPACE)


def test_tensors_are_converted_like_arrays() -> None:
    spec, act = tensor_actor(SPACE, 3, torch.device("cpu"), scale=True)
    assert spec == SPEC
    action = act(torch.from_numpy(ROW).expand(3, -1))
    expected = make_actor(SPACE, (3,), scale=True)[1](np.tile(ROW, (3, 1)))
    assert action["gear"].tolist() == expected["gear"].tolist()
    assert action["throttle"].tolist() == expected["throttle"].tolist()
    assert action["panel"][0].tolist() == expected["panel"][0].tolist()
    assert action["panel"][1]["dials"].tolist() == expected["panel"][1]["dials"].tolist()


def test_the_start_describes_each_part() -> None:
    assert describe(EnvSpec(VECTOR, SPEC))[1] == (
        "actions: throttle: box 2, scaled from [-1, 1] to [100, 200]; gear: discrete 3; panel/0: multi_discrete 2x2; "
        "panel/1/dials: multi_discrete 2x3")


def test_a_saved_spec_is_read_back_and_no_other_is() -> None:
    spec = EnvSpec(VECTOR, SPEC, masked=True)
    text = json.dumps(spec_to_json(spec))
    assert read_spec(json.loads(text)) == spec

    def change(**action: Any) -> Any:
        values = json.loads(text)
        values["action"].update(action)
        return values

    saved = json.loads(text)["action"]
    renamed = {f"x{name}": part for name, part in saved["parts"].items()}
    text_part = {"type": "Dict", "spaces": {"throttle": {"type": "Text"}}}
    for values in (change(parts=renamed), change(parts={}), change(space=None), change(sizes=[3]), change(kind="box"),
                   change(space=text_part), change(low=[0] * 7), change(scaled=[]), change(parts=[1])):
        with pytest.raises(ValueError, match="spec is"):
            read_spec(values)


@pytest.mark.parametrize(("space", "says"), [
    (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(3)}), r"part 'b' of the action: Text space actions"),
    (spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]), "part '1' of the action: Sequence"),
    (spaces.Dict({"a": spaces.Box(0, 1, (0,))}), "part 'a' of the action: .* hold no number"),
    (spaces.Dict({}), "give a Dict or Tuple with a part"), (spaces.Dict({1: spaces.Discrete(2)}), "keys are texts"),
    (spaces.Tuple([spaces.Discrete(2**24 + 1)]), r"a part of the action has 16,777,217 choices.*use a Box")])
def test_what_no_row_can_hold_is_refused(space: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_actor(space)


@pytest.mark.parametrize("mask", [
    FLAT, np.array(FLAT, bool),
    {"gear": GEAR, "panel": [None, {"dials": [FIRST, SECOND]}]},
    {"gear": np.array(GEAR), "panel": (np.ones(4, bool), {"dials": [*FIRST, *SECOND]})},
    {"gear": GEAR, "_gear": True, "throttle": None, "panel": [None, {"dials": FIRST + SECOND}]}])
def test_a_mask_may_be_nested_as_the_actions_are(mask: Any) -> None:
    masker = make_masker(EnvSpec(VECTOR, SPEC, masked=True))
    assert masker({"action_mask": mask}, False)["action_mask"].tolist() == [bool(each) for each in FLAT]
    allowed = {**ACT(np.float32([0, 0, 2, 1, 1, 0, 1]))}
    assert allows(mask, allowed, SPACE)
    assert not allows(mask, {**allowed, "gear": np.int64(2)}, SPACE)


@pytest.mark.parametrize(("mask", "says"), [
    ({"geer": GEAR}, "has a part 'geer', and the actions have 'throttle', 'gear', 'panel'"),
    ({"throttle": [1, 1]}, "has a mask for 'throttle', which is Box.*discrete parts"),
    ({"gear": [1, 1]}, r"action_mask of 'gear' has shape \(2,\), its actions need \(3,\)"),
    ({"panel": np.ones(8)}, "action_mask of 'panel' is .*nest it as Tuple"),
    ({"gear": [0, 0, 0]}, "allows no action"), ([1, 0], r"has shape \(2,\), the actions need \(12,\)")])
def test_a_mask_that_does_not_fit_names_its_part(mask: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_masker(EnvSpec(VECTOR, SPEC, masked=True))({"action_mask": mask}, False)


def test_nested_masks_of_tensors_are_side_by_side() -> None:
    mask = {"gear": torch.tensor([GEAR, GEAR]), "panel": (None, {"dials": torch.tensor([FIRST + SECOND] * 2)})}
    assert side_by_side(mask, SPACE, 2).tolist() == [FLAT, FLAT]
    whole = torch.ones(2, 12)
    assert side_by_side(whole, SPACE, 2) is whole


def test_gymnasiums_vectors_stack_nested_masks() -> None:
    """A Dict of masks in info becomes a dict of arrays [B, ...], whose rows are each environment's."""
    vector = gym.vector.SyncVectorEnv([hybrid_envs.Masked] * 2)
    _, info = vector.reset(seed=3)
    mask = info["action_mask"]
    masker = make_masker(EnvSpec(VECTOR, SPEC, masked=True), (2,))
    rows = masker({"action_mask": mask}, np.zeros(2, bool))["action_mask"]
    goals = [env.unwrapped.goal for env in vector.envs]  # type: ignore[attr-defined]
    assert rows[:, :3].tolist() == [(np.arange(3) != goal).tolist() for goal in goals]
    assert rows[:, 7:9].tolist() == [[False, True]] * 2
    vector.close()


def test_gymnasiums_vectors_stack_tuples_of_masks_as_objects() -> None:
    space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
    masks = np.full(3, None, object)
    masks[0] = ([1, 0], None)
    masks[1] = (np.array([0, 1]), np.array([1, 1, 0]))
    masker = make_masker(EnvSpec(VECTOR, make_actor(space)[0], masked=True), (3,))
    rows = masker({"action_mask": masks}, np.array([False, False, True]))["action_mask"]
    assert rows.astype(int).tolist() == [[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [1] * 5]
    with pytest.raises(ValueError, match="allows no action"):
        masker({"action_mask": masks}, np.zeros(3, bool))


def test_a_mask_of_tensors_allows_a_choice_of_each_component_or_nothing_follows() -> None:
    space = spaces.MultiDiscrete([2, 3])
    over = torch.tensor([False, True])
    mask = torch.tensor([[1, 0, 0, 1, 0], [1, 0, 0, 0, 0]])
    expected = [[True, False, False, True, False], [True] * 5]
    assert allowed_actions(mask, space, (2, 3), over).tolist() == expected
    arrays = make_masker(EnvSpec(VECTOR, make_actor(space)[0], masked=True), (2,))
    assert arrays({"action_mask": mask.numpy()}, over.numpy())["action_mask"].tolist() == expected
    with pytest.raises(OutcomeError, match="allows no action of an environment whose episode goes on"):
        allowed_actions(mask.flip(0), space, (2, 3), over)
