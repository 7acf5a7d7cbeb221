"""Self-play: who plays whom, ratings, past policies in checkpoints, and what it learns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo_envs import TicTacToe
from safetensors.torch import load_file

import vantage
from vantage.errors import ConfigError
from vantage.learning.self_play import CURRENT, RANDOM, SelfPlay
from vantage.runtimes.actor_learner import ActorLearner

GAME = "pettingzoo_envs:TicTacToe"
QUICK: dict[str, Any] = {"num_envs": 4, "hidden": "8", "rollout_length": 8, "threads": 1, "eval_every": 0,
                         "self_play": 2, "self_play_every": 2, "lr": 1e-3}


@pytest.fixture
def games() -> Iterator[SelfPlay]:
    config = vantage.configure("ppo", env=GAME, **{**QUICK, "num_envs": 40})
    with closing(ActorLearner(config)) as actor_learner:
        assert actor_learner.self_play is not None
        actor_learner.self_play.join()
        yield actor_learner.self_play


def test_ratings_follow_elo_and_a_new_policy_takes_the_place_of_the_oldest(games: SelfPlay) -> None:
    games.opponents[:2] = [0, CURRENT]
    games.end(0, 1.0)
    assert games.rating == 8  # even players: K/2
    games.end(0, 0.0)
    assert games.rating == pytest.approx(8 + 16 * (0.5 - 1 / (1 + 10 ** (-8 / 400))))
    games.end(1, -1.0)  # not rated
    assert games.follow() == {"self_play/elo": games.rating, "self_play/win_rate": 0.75}
    assert [past.rating for past in games.past] == [0]
    assert "self_play/win_rate" not in games.follow()
    assert [past.rating for past in games.past] == [0, games.rating]
    second = games.past[1]
    for _ in range(2):
        games.follow()
    assert [past.rating for past in games.past] == [games.rating] * 2
    assert games.past[1] is second


def test_opponents_are_the_current_policy_in_half_of_the_games_random_in_a_tenth_and_else_past(games: SelfPlay) -> None:
    games.updates = 2
    games.join()
    drawn = []
    for _ in range(10):
        for row in range(40):
            games.begin(row)
        drawn += games.opponents
    counts = [drawn.count(number) for number in (CURRENT, RANDOM, 0, 1)]
    assert sum(counts) == 400 and np.allclose(counts, [200, 40, 80, 80], atol=25)


def test_random_opponents_follow_the_mask_and_are_not_rated(games: SelfPlay) -> None:
    games.opponents[0] = RANDOM
    obs, mask = np.zeros(18, np.float32), np.eye(9)[3] + np.eye(9)[5]
    moves = []
    for _ in range(50):
        games._played[0] = 0
        games._moves[0].clear()
        moves.append(games.act(0, obs, mask))
    assert {*moves} == {3, 5} and 10 < moves.count(3) < 40
    games._played[0] = 0
    games._moves[0].clear()
    assert 0 <= games.act(0, obs, None) < 9
    saved = games.tensors()
    expected = [games._sample(0, obs, mask, is_first=True) for _ in range(20)]
    games.load(saved)
    assert [games._sample(0, obs, mask, is_first=True) for _ in range(20)] == expected and len({*expected}) == 2
    assert games._sample(0, obs, -255 * mask[::-1].astype(int), is_first=True) in (3, 5)
    games.end(0, -1.0)
    assert games.rating == 0 and "self_play/win_rate" not in games.follow()


def test_opponents_move_by_their_own_weights_and_masks(games: SelfPlay) -> None:
    model: Any = games._learner.model
    for row, (policy, wanted) in enumerate(((games.past[0].policy, 2), (model, 7))):
        with torch.no_grad():
            policy.policy_head.linear.bias.copy_(30.0 * torch.eye(9)[wanted])
        games.opponents[row] = (0, CURRENT)[row]
        assert games.act(row, np.zeros(18, np.float32), np.ones(9)) == wanted
        assert games.act(row, np.zeros(18, np.float32), 1 - np.eye(9)[wanted]) != wanted


@pytest.mark.parametrize(("algo", "memory"), [("ppo", "gru"), ("acer", "none")])
def test_a_resume_equals_never_having_stopped(algo: str, memory: str, tmp_path: Path) -> None:
    keys = {**QUICK, "memory": memory, "progress": False, "schedule_steps": 288}
    keys |= {"memory_size": 8} if memory == "gru" else {}
    keys |= {"replay_save_every": 1} if algo == "acer" else {}
    vantage.train(algo, env=GAME, run=tmp_path / "whole", steps=288, **keys)
    vantage.train(algo, env=GAME, run=tmp_path / "parts", steps=160, **keys)
    vantage.resume(tmp_path / "parts", steps=288, progress=False)
    whole, parts = (max((tmp_path / name / "checkpoints").iterdir()) for name in ("whole", "parts"))
    for file in ("model", "acting", "envs", "self_play"):
        one, other = (load_file(folder / f"{file}.safetensors") for folder in (whole, parts))
        assert one.keys() == other.keys()
        assert [name for name in one if not one[name].equal(other[name])] == []
    assert int(one["updates"]) == 9
    assert any(one["num_moves"].tolist())


def test_past_policies_and_moves_that_do_not_fit_are_refused(games: SelfPlay) -> None:
    saved = games.tensors()
    for name, value in (("ratings", [float("nan"), 0.0]), ("opponents", [1] * 40), ("opponents", [-3] * 40),
                        ("num_moves", [1] * 40)):
        with pytest.raises(ValueError, match="do not fit self_play=2"):
            games.load(saved | {name: torch.tensor(value)})
    with pytest.raises(RuntimeError, match="Missing key"):
        games.load({name: tensor for name, tensor in saved.items() if "weight" not in name})


@pytest.mark.parametrize(("keys", "says"), [
    ({"algo": "a3c"}, "self_play=2 has one process, and runtime=hogwild several; train a2c, ppo or acer under"),
    ({"num_workers": 2}, "num_workers=2: self-play has one process; leave it out"),
    ({"runtime": "ray"}, "self_play=2 has one process, and runtime=ray several")])
def test_self_play_is_for_one_process(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        vantage.configure(keys.pop("algo", "ppo"), env=GAME, self_play=2, **keys)


class Split(TicTacToe):
    """The marks of each player are a part of the observation."""

    def observation_space(self, agent: str) -> Any:
        whole: Any = super().observation_space(agent)
        marks = spaces.Box(0, 1, (9,), np.float32)
        return spaces.Dict({**whole.spaces, "observation": spaces.Dict({"mine": marks, "theirs": marks})})

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        return {**seen, "observation": {"mine": seen["observation"][:9], "theirs": seen["observation"][9:]}}


def test_an_agent_acts_on_an_observation_of_parts_beside_its_mask() -> None:
    agent = vantage.train("ppo", env=Split, progress=False, seed=0, self_play=1, num_envs=2, hidden="8", threads=1,
                          rollout_length=4, minibatch_size=8, steps=8, eval_every=0)
    game = Split()
    game.reset()
    obs = game.observe("x")
    mask = np.eye(9, dtype=np.int8)[7]
    assert agent.model.spec.keys == ("mine", "theirs")
    assert agent.act({**obs, "action_mask": mask})[0] == agent.act(obs["observation"], action_mask=mask)[0] == 7


def test_self_play_learns_to_win_and_seldom_loses_to_a_random_player(tmp_path: Path) -> None:
    agent = vantage.train("ppo", env=TicTacToe, run=tmp_path / "run", progress=False, seed=1, self_play=5, num_envs=16,
                          hidden="64", rollout_length=32, minibatch_size=128, epochs=4, lr=4e-3, threads=1,
                          obs_norm=False, reward_norm=False, steps=6_000, eval_every=0)
    result = vantage.evaluate(agent, episodes=200, deterministic=True)
    assert result.success_rate is not None and result.success_rate > 0.6  # 0.44 of two random players
    obs = np.zeros(18, np.float32)
    obs[[0, 1]] = 1  # the third of these wins
    obs[[9 + 4, 9 + 8]] = 1
    mask = obs[:9] + obs[9:] == 0
    action, _ = agent.act(obs, action_mask=mask, deterministic=True)
    in_obs = {"observation": obs, "action_mask": mask.astype(np.int8)}  # as last() of a game returns it
    assert agent.act(in_obs, deterministic=True)[0] == action
    only = {**in_obs, "action_mask": np.eye(9, dtype=np.int8)[7]}
    assert [agent.act(only)[0], agent.act(only, action_mask=np.eye(9)[8])[0]] == [7, 8]
    assert action == 2
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["self_play/elo"] > 20
    with closing(agent.make_env()) as env:  # also against a random player
        obs, info = env.reset(seed=0)
        assert (obs.sum() in (0, 1), env.action_space.n, info["action_mask"].sum() in (8, 9)) == (True, 9, True)
    assert set(vantage.record(agent, tmp_path / "game.gif", episodes=2).scores) <= {-1, 0, 1}
