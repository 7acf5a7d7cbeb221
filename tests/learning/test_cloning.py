"""Cloning: its loss against one step at a time, units of actions, normalisers, early stopping."""

from __future__ import annotations

from typing import Any

import hybrid_envs
import numpy as np
import pytest
import torch
from environments import make

from vantage.errors import ConfigError
from vantage.learning.cloning import Cloning
from vantage.learning.demonstrations import Demonstrations, of_episodes
from vantage.learning.weights import FlatParameters
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.types import ActionSpec, ArraySpec, EnvSpec

SPEC = EnvSpec(ArraySpec("vector", (2,)), ActionSpec("discrete", (3,)))


def episodes(*lengths: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"observations": rng.normal(5, 2, (length + 1, 2)).astype(np.float32),
             "actions": rng.integers(3, size=length), "rewards": np.ones(length)} for length in lengths]


def model_of(spec: EnvSpec = SPEC, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    return make_model(PolicyConfig(hidden=(8,), **keys), spec, critic="state")


def read(*lengths: int, spec: EnvSpec = SPEC) -> Demonstrations:
    return of_episodes(episodes(*lengths), spec, {})


@pytest.mark.parametrize("keys", [
    {}, {"frame_stack": 3}, {"frame_stack": 2, "stack_pad": "repeat"}, {"memory": "lstm", "memory_size": 4},
    {"memory": "gru", "memory_size": 4, "frame_stack": 2, "separate": True}])
@torch.no_grad()
def test_the_loss_is_that_of_acting_step_by_step(keys: dict[str, Any]) -> None:
    model = model_of(**keys)
    cloning = Cloning(model, read(2, 5, 1), seed=0)
    total = 0.0
    for episode in episodes(2, 5, 1):
        state = model.initial_state(1)
        for t, action in enumerate(episode["actions"]):
            obs = torch.from_numpy(episode["observations"][t:t + 1])
            params, state = model.step(obs, torch.tensor([t == 0]), state)
            total -= float(model.distribution.log_prob(params, torch.tensor([action])))
    chosen = torch.arange(3 if model.recurrent else 8)
    assert float(cloning.loss(chosen)) == pytest.approx(total / 8, rel=1e-5)


def test_box_actions_are_cloned_in_the_units_of_the_policy() -> None:
    scaled = ActionSpec("box", (2,), (100.0, -np.inf), (200.0, np.inf), (True, False))
    spec = EnvSpec(SPEC.obs, scaled)
    rows = np.array([[100.0, 7.0], [175.0, -3.0]])
    demos = of_episodes([{"observations": np.zeros((2, 2), np.float32), "actions": rows}], spec, {})
    cloning = Cloning(model_of(spec), demos, seed=0)
    np.testing.assert_allclose(cloning._actions, [[-1, 7], [0.5, -3]])


def test_cloning_fits_the_normalisers_and_the_policy_and_keeps_an_episode_apart() -> None:
    model = model_of(obs_norm=True)
    each = episodes(30, 30, 30)
    for episode in each:  # what the first number asks for
        episode["actions"] = np.digitize(episode["observations"][:-1, 0], [4, 6])
    demos = of_episodes(each, SPEC, {})
    metrics = Cloning(model, demos, seed=0).clone(FlatParameters(model.parameters()), 300)
    (_, normalizer), = model.running_stats()
    np.testing.assert_allclose(normalizer.mean, demos.obs["obs"].mean(0), rtol=1e-4)
    assert metrics["demo/loss"] < 0.6  # log 3 = 1.1 at first
    assert metrics["demo/held_out_loss"] < 0.7


def test_cloning_stops_when_the_held_out_loss_rises_and_keeps_the_best_weights(
        caplog: pytest.LogCaptureFixture) -> None:
    model = model_of()  # the actions are noise, so that only the learned episodes can be fitted
    cloning = Cloning(model, read(40, 40), seed=0)
    with caplog.at_level("INFO"):
        metrics = cloning.clone(FlatParameters(model.parameters()), 10_000)
    passes = int(caplog.records[-1].getMessage().split()[-2])
    assert passes < 1_000
    assert metrics["demo/held_out_loss"] == pytest.approx(cloning._losses()[1])


@torch.no_grad()
def test_masked_actions_have_no_probability_in_the_loss() -> None:
    spec = EnvSpec(SPEC.obs, SPEC.action, masked=True)
    (episode,) = episodes(4)
    masks = np.eye(3, dtype=bool)[episode["actions"]]
    demos = of_episodes([{**episode, "action_masks": masks}], spec, {})
    assert float(Cloning(model_of(spec), demos, seed=0).loss(torch.arange(4))) == 0
    with pytest.raises(ConfigError, match="not allowed by its mask"):
        of_episodes([{**episode, "action_masks": ~masks}], spec, {})
    with pytest.raises(ConfigError, match="give action_masks"):
        of_episodes([episode], spec, {})


def test_dict_actions_are_read_as_they_are_nested() -> None:
    envs = make("hybrid_envs:Panel")
    action = {"throttle": np.array([[150.0, 0.5]]), "gear": np.array([3]),
              "panel": (np.array([[[1], [0]]]), {"dials": np.array([[5, 7]])})}
    demos = of_episodes([{"observations": np.zeros((1, 3), np.float32), "actions": action}], envs.spec, {})
    steps = [{"throttle": np.array([150.0, 0.5]), "gear": 3, "panel": (np.array([[1], [0]]), {"dials": [5, 7]})}]
    listed = of_episodes([{"observations": [np.zeros(3)], "actions": steps}], envs.spec, {})
    assert listed.digest == demos.digest
    envs.close()
    np.testing.assert_allclose(demos.actions, [[150, 0.5, 2, 1, 0, 1, 2]])
    assert hybrid_envs.SPACE["gear"].start == 1
    loss = Cloning(model_of(envs.spec), demos, seed=0).loss(torch.arange(1))
    assert torch.isfinite(loss)


def test_masks_of_each_step_are_read_as_infos_have_them() -> None:
    envs = make("hybrid_envs:Masked")
    env = hybrid_envs.Masked()
    env.goal = 0
    action = {"throttle": np.array([150, 0]), "gear": 2, "panel": (np.zeros((2, 1)), {"dials": np.array([5, 6])})}
    episode = {"observations": [np.zeros(3)] * 2, "actions": [action] * 2, "action_masks": [env.masks()] * 3}
    demos = of_episodes([episode], envs.spec, {})
    envs.close()
    assert demos.masks is not None
    np.testing.assert_array_equal(demos.masks, [[0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1]] * 2)
    spec = EnvSpec(SPEC.obs, ActionSpec("multi_discrete", (2, 3)), masked=True)
    pairs = [([1, 0], [0, 1, 1]), ([0, 1], [1, 0, 0])]
    masks = of_episodes([{"observations": np.zeros((2, 2)), "actions": [[0, 1], [1, 0]], "action_masks": pairs}], spec,
                        {}).masks
    np.testing.assert_array_equal(masks, [[1, 0, 0, 1, 1], [0, 1, 1, 0, 0]])


def test_lists_of_the_values_of_each_step_are_read_as_stacked_ones() -> None:
    part = ArraySpec("vector", (2,))
    spec = EnvSpec({"at": part, "way": part}, SPEC.action)
    rng = np.random.default_rng(0)
    at, way = rng.normal(size=(2, 4, 2)).astype(np.float32)
    stacked = {"observations": {"at": at, "way": way}, "actions": np.array([0, 2, 1])}
    steps = [{"at": at[t], "way": torch.from_numpy(way[t])} for t in range(4)]
    listed = {"observations": steps, "actions": [0, 2, np.int64(1)]}
    assert of_episodes([listed], spec, {}).digest == of_episodes([stacked], spec, {}).digest
    del steps[2]["way"]
    with pytest.raises(ConfigError, match=r"episode 0 .* differ in their parts"):
        of_episodes([listed], spec, {})
    uneven = {"observations": [np.zeros(2), np.zeros(3)], "actions": [0]}
    with pytest.raises(ConfigError, match=r"episode 0 .* differ in their parts or shapes"):
        of_episodes([uneven], SPEC, {})


@pytest.mark.parametrize(("change", "says"), [
    ({"actions": np.array([0, 3])}, "action 3 is not within 0 and 2"),
    ({"actions": np.array([0.5, 1])}, "not a whole number"),
    ({"actions": np.array(["a", "b"])}, "give numbers"),
    ({"actions": np.zeros((2, 2))}, "have shape"),
    ({"actions": np.zeros(0)}, "give numbers, a row"),
    ({"actions": np.zeros(4)}, "3 observations and 4 actions"),
    ({"actions": None}, "has no actions"),
    ({"observations": np.zeros((3, 5), np.float32)}, "the policy takes"),
    ({"observations": np.full((3, 2), np.nan, np.float32)}, "not finite"),
    ({"rewards": np.zeros(3)}, "rewards have shape"),
])
def test_an_episode_that_does_not_fit_is_refused(change: dict[str, Any], says: str) -> None:
    good, bad = episodes(2, 2)
    with pytest.raises(ConfigError, match=f"episode 1 of the demonstrations: .*{says}"):
        of_episodes([good, {**bad, **change}], SPEC, {})


def test_the_last_observation_may_be_left_out_and_objects_have_attributes() -> None:
    (episode,) = episodes(3)
    short = {**episode, "observations": episode["observations"][:-1]}
    as_object = type("EpisodeData", (), episode)
    whole = of_episodes([episode], SPEC, {})
    assert whole.digest == of_episodes([short], SPEC, {}).digest == of_episodes([as_object], SPEC, {}).digest
    assert str(whole) == "1 episodes, 3 steps, mean return 3"
