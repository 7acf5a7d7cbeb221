"""Parallel environments of PettingZoo's interface: a row for each agent, also after it has left."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from environments import make
from pettingzoo_envs import Relay

import vantage
from vantage._host.seeding import episode_seed
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, EnvError
from vantage.keys.objects import named
from vantage.learning.running_statistics import seen

ZEROS = np.zeros(3, np.int64)
FIRST_SEED = episode_seed(0, 0, 0, 0)


def played(envs: Environments, steps: int) -> list[Any]:
    return [envs.step(np.arange(envs.num_envs) % 2) for _ in range(steps)]


def begun(env: Any, **options: Any) -> Environments:
    envs = make(env, 1, options=options)
    envs.reset()
    return envs


def flags(values: Any) -> list[str]:
    return ["".join("x" if flag else "." for flag in row) for row in values]


def test_the_rows_of_agents_that_have_left_wait_for_the_next_game() -> None:
    envs = make("pettingzoo_envs:Relay", 1)
    first = envs.reset()
    assert (envs.num_envs, envs.spec.agents, first.is_first.tolist()) == (3, 3, [True] * 3)
    steps = played(envs, 6)
    assert flags(step.terminated for step in steps) == ["...", "x..", ".x.", "..x", "...", "..."]
    assert flags(step.valid for step in steps) == ["xxx", "xxx", ".xx", "..x", "...", "xxx"]
    assert flags(step.is_first for step in steps) == ["...", "...", "x..", "xx.", "xxx", "..."]
    assert [[(game.env, game.length, game.info) for game in step.episodes] for step in steps] == [
        [], [(0, 2, {"t": 2})], [(1, 3, {"t": 3})], [(2, 4, {"t": 4})], [], []]
    assert steps[3].obs[:, 1].tolist() == [2, 3, 4]  # those that have left repeat what they saw last
    assert steps[4].obs[:, 1].tolist() == [0, 0, 0]
    scores = {game.env: game.score for step in steps for game in step.episodes}
    rewards = np.sum([step.rewards for step in steps[:4]], axis=0)
    assert [scores[env] for env in range(3)] == rewards.tolist()


def test_a_time_limit_truncates_all_agents_that_are_there() -> None:
    envs = make("pettingzoo_envs:Relay", 2, max_episode_steps=3)
    envs.reset()
    steps = played(envs, 4)
    assert flags(step.terminated for step in steps) == ["......", "x..x..", ".x..x.", "......"]
    assert [len(step.episodes) for step in steps] == [0, 2, 4, 0]
    assert steps[3].is_first.all()


class Silenced(Relay):
    """Agents observe nothing in the step in which they leave."""

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, ended, cut, infos = super().step(actions)
        stay = self.agents
        return {each: obs[each] for each in stay}, rewards, ended, cut, {each: infos[each] for each in stay}


def test_games_with_masks_end_without_a_last_observation() -> None:
    envs = make(Silenced, 2, options={"mask": "obs"})
    step = envs.reset()
    for _ in range(11):
        step = envs.step(step.action_mask.argmax(1))
        assert step.action_mask.any(1).all()
        assert (step.rewards == step.valid).all()


@pytest.mark.parametrize("mask", ["obs", "info"])
def test_masks_of_observations_and_of_infos_reach_the_policy(mask: str) -> None:
    envs = make("pettingzoo_envs:Relay", 2, options={"mask": mask})
    step = envs.reset()
    assert (str(envs.spec.obs), envs.spec.masked) == ("vector [3]", True)
    for _ in range(6):
        allowed = step.action_mask
        left = step.is_first & (step.obs[:, 1] > 0)
        assert (allowed.sum(1) == np.where(left, 2, 1)).all()
        step = envs.step(allowed.argmax(1))
        assert (step.rewards == step.valid).all()


def test_a_snapshot_continues_exactly_while_agents_have_left() -> None:
    envs = make("pettingzoo_envs:Relay", 2)
    envs.reset()
    before = played(envs, 13)[-1]
    assert flags([before.is_first]) == ["x..x.."]
    copy = make("pettingzoo_envs:Relay", 2)
    first = copy.reset(envs.snapshot())
    assert (first.lost, flags([first.is_first])) == ((), ["x..x.."])
    for one, other in zip(played(envs, 9), played(copy, 9), strict=True):
        np.testing.assert_array_equal(one.obs, other.obs)
        for name in ("rewards", "valid", "terminated", "is_first"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.episodes == other.episodes


def test_the_copies_of_two_workers_begin_with_different_seeds() -> None:
    def bits(first_env: int) -> list[Any]:
        config = vantage.configure("a2c", env="pettingzoo_envs:Relay").env
        envs = make_environments(config, seed=0, num_envs=2, stream=0, first_env=first_env)
        envs.reset()
        return [np.concatenate([envs.step(np.zeros(6, np.int64)).obs[:, 0] for _ in range(8)]).reshape(8, 2, 3)[:, i]
                for i in range(2)]

    copies = [str(copy) for copy in (*bits(0), *bits(2))]
    assert len({*copies}) == 4


def test_the_observations_that_stand_in_are_not_counted_in_statistics() -> None:
    is_first = torch.tensor([[True, True], [False, False], [False, True], [False, True], [True, True]])
    obs = torch.arange(10.0).reshape(5, 2, 1).repeat(1, 1, 3)
    rollout: Any = SimpleNamespace(obs=obs, is_first=is_first, valid=~is_first[1:])
    counted: Any = seen(rollout)
    assert counted[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 6]


class Faulty(Relay):
    """Breaks PettingZoo's interface in the way of `fault`."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        if fault == "no ids":
            del self.possible_agents

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        obs, infos = super().reset(seed)
        if self.fault == "absent":
            del obs["c"]
        if self.fault == "late":
            self.agents.remove("c")
        if self.fault == "case":
            self.agents[0] = "A"
        if self.fault == "wide":
            obs["b"] = np.zeros(4, np.float32)
        return obs, infos

    def step(self, actions: Any) -> Any:
        obs, rewards, ended, cut, infos = super().step(actions)
        match self.fault:
            case "undead" if self.agents:
                self.agents = self.possible_agents[:]
            case "revived" if self.t == 3:
                self.agents.insert(0, "a")
            case "new":
                self.agents.append("dave")
            case "vanished":
                self.agents.remove("c")
            case "none":
                infos = None
            case "text":
                infos["b"] = "text"
            case "spelling":
                rewards["A"] = rewards.pop("a")
            case "nan":
                obs["c"][0] = np.nan
            case "idle":
                infos["c"] = {"action_mask": np.zeros(2)}
            case "last" if ended["a"]:
                infos["a"] = {"action_mask": np.ones(3)}
        return obs, rewards, ended, cut, infos


@pytest.mark.parametrize(("fault", "says"), [
    ("absent", r"step 0\): reset\(\) returned no observation of c; begin episodes with all possible_agents$"),
    ("late", r"step 0\): after reset\(\), agents lacks c; let reset\(\) set agents to all possible_agents$"),
    ("case", r"step 0\): agents contains A, which is not in possible_agents; did you mean a\?$"),
    ("new", r"dave, which is not in possible_agents \(a, b, c\); list it there and let reset\(\) return it$"),
    ("vanished", r"step 1\): c has left agents without an end; return True as its termination, or as its truncation"),
    ("undead", r"step 2\): agents contains a, whose episode has ended; remove agents that terminate or"),
    ("revived", r"step 3\): agents contains a, whose episode has ended; remove agents that terminate or"),
    ("wide", r"of agent b, the observation is float32 of shape \(4,\); it must be shape \(3,\); correct the "
     "observation or observation_space$"),
    ("none", r"step\(\) returned None as infos; return a dict$"),
    ("text", r"the info of b is 'text'; return a dict$"),
    ("spelling", r"step\(\) returned no reward of a; return one for each agent that acted; did you mean A\?$"),
    ("nan", rf"^agent c of environment 0 of .* \(seed {FIRST_SEED}, episode 0, step 1\): observation .* is not finite "
     "after action 0$"),
    ("idle", r"mask of c allows no action, and its episode goes on; allow at least one, or end the agent's episode$"),
    ("last", r"step 2\): the action_mask of a has shape \(3,\), its actions need \(2,\)$")])
def test_what_an_environment_gets_wrong_is_named(fault: str, says: str) -> None:
    with pytest.raises(EnvError, match=says):
        played(begun("test_parallel_agents:Faulty", fault=fault), 4)


def test_agents_that_all_end_at_once_may_stay_in_agents() -> None:
    class Kept(Relay):
        def step(self, actions: Any) -> Any:
            obs, rewards, ended, cut, infos = super().step(actions)
            ended = dict.fromkeys(ended, self.t >= 2)
            self.agents = self.possible_agents[:]
            return obs, rewards, ended, cut, infos

    steps = played(begun(named(Kept)), 3)
    assert flags(step.terminated for step in steps) == ["...", "xxx", "..."]


def test_the_last_info_needs_no_last_observation() -> None:
    class Told(Relay):
        def step(self, actions: Any) -> Any:
            obs, rewards, ended, cut, infos = super().step(actions)
            return {agent: obs[agent] for agent in self.agents}, rewards, ended, cut, infos

    steps = played(begun(named(Told)), 4)
    assert [game.info for step in steps for game in step.episodes] == [{"t": 2}, {"t": 3}, {"t": 4}]


@pytest.mark.parametrize(("first", "second"), [
    ({"path": [0, 1, 2]}, {"path": [3, 4]}), ({"status": 0}, {"status": "dead"}), ({"x": 1.5}, {"x": {"y": 1}}),
    ({"x": {"y": 1}}, {"x": 1.5}), ({"success": 0}, {"success": 0.75}), ({"x": None}, {"x": True}),
    ({"x": [1, 2], 3: 4}, {"y": 2, "z": 5})])
def test_agents_may_report_values_of_different_types_and_shapes(first: dict[Any, Any], second: dict[Any, Any]) -> None:
    def reported(info: dict[Any, Any]) -> dict[Any, Any]:
        return {key: np.array(value) if key == "path" else value for key, value in info.items()}

    class Reporting(Relay):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {"a": reported(first), "b": reported(second)}

    envs = make(named(Reporting), 1, max_episode_steps=2)
    envs.reset()
    infos = {game.env: game.info for game in played(envs, 2)[-1].episodes}
    shown = [{key: value.tolist() if key == "path" else value for key, value in infos[env].items()} for env in range(3)]
    assert shown == [{key: value for key, value in info.items() if isinstance(key, str) and value != [1, 2]}
                     for info in (first, second, {})]


def test_possible_agents_are_needed() -> None:
    with pytest.raises(ConfigError, match="has no possible_agents; set possible_agents, the list of all ids, in its"):
        make("test_parallel_agents:Faulty", 1, options={"fault": "no ids"})


class NoPettingZoo:
    """An import finder of a machine without PettingZoo."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pettingzoo":
            raise ModuleNotFoundError("No module named 'pettingzoo'", name=name)


@pytest.mark.parametrize(("function", "says"), [
    (":parallel_env", r"No module named 'pettingzoo'; pip install 'pettingzoo\[butterfly\]'$"),
    ("", r"did you mean pettingzoo\.butterfly\.pistonball_v6:parallel_env, a function of this module\?$")])
def test_pettingzoo_may_be_missing_and_a_function_left_out(function: str, says: str,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pettingzoo", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoPettingZoo(), *sys.meta_path])
    with pytest.raises(ConfigError, match=says):
        make(f"pettingzoo.butterfly.pistonball_v6{function}")


@pytest.mark.parametrize(("keys", "says"), [
    ({"options": {"widest": 4}}, r"share one policy, and their spaces differ: a has Box\(.* \(3,\), float32\) "
     r"and Discrete\(2\), c has Box\(.* \(4,\), float32\) .*; pad them, for example as supersuit\."),
    ({"vector": "async"}, "vector has no effect here: pettingzoo_envs:Relay has several agents"),
    ({"reset_options": '{"level": 1}'}, "reset_options has no effect here"),
    ({"frame_skip": "4"}, "frame_skip has no effect here: pettingzoo_envs:Relay has several agents")])
def test_what_has_no_effect_or_does_not_fit_is_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make("pettingzoo_envs:Relay", 2, **keys)
