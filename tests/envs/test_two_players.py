"""Games of two players in turn: the learner's steps, with the opponent's moves within them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from environments import make
from pettingzoo_envs import Relay, TicTacToe

from vantage.envs.config import EnvConfig
from vantage.envs.ids import resolve_env
from vantage.envs.two_players import Opponent, two_players
from vantage.errors import ConfigError
from vantage.keys.objects import named

GAME = "pettingzoo_envs:TicTacToe"


class Lowest:
    """Plays the lowest square that is free."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.scores: list[tuple[int, float]] = []

    def begin(self, row: int) -> None:
        self.begun.append(row)

    def act(self, row: int, obs: Any, mask: Any) -> int:
        assert obs[:9].sum() - obs[9:].sum() in (0, -1)  # its own marks come first
        return int(mask.argmax())

    def end(self, row: int, score: float) -> None:
        self.scores.append((row, score))


def test_the_learner_plays_either_side_and_sees_its_own_turns_alone() -> None:
    envs = make(GAME, 8, self_play=3)
    player = envs.opponent.player = Lowest()
    first = envs.reset()
    moves_first = first.obs.sum(1) == 0
    assert 0 < moves_first.sum() < 8
    assert (first.action_mask.sum(1) == np.where(moves_first, 9, 8)).all()
    assert envs.step(np.full(8, 3)).rewards.tolist() == [0] * 8
    step = envs.step(np.full(8, 4))  # the opponent completes 0, 1, 2 where it has moved first
    assert step.rewards.tolist() == np.where(moves_first, 0, -1).tolist()
    assert step.terminated.tolist() == (~moves_first).tolist()
    assert {(game.score, game.length, game.info["is_success"]) for game in step.episodes} == {(-1, 2, False)}
    step = envs.step(np.full(8, 5))  # the learner completes 3, 4, 5 before; the others begin anew
    assert step.rewards.tolist() == moves_first.tolist()
    assert step.is_first.tolist() == (~moves_first).tolist()
    assert {(game.score, game.length, game.info["is_success"]) for game in step.episodes} == {(1, 3, True)}
    assert dict(player.scores) == dict(enumerate(np.where(moves_first, 1, -1).tolist()))
    assert sorted(player.begun) == sorted([*range(8), *(~moves_first).nonzero()[0]])


def test_a_move_that_loses_ends_the_game_without_masks() -> None:
    envs = make(GAME, 8, self_play=1, options={"masks": False})
    first = envs.reset()
    assert first.action_mask is None
    taken = first.obs[:, 9:].argmax(1)
    step = envs.step(taken)
    moved_second = first.obs.sum(1) == 1
    assert step.rewards[moved_second].tolist() == [-1] * moved_second.sum()
    assert step.terminated[moved_second].all()


def test_random_opponents_are_seeded_and_play_what_masks_allow() -> None:
    games = []
    for seed in (0, 0, 1):
        envs = make(GAME, 3, self_play=1, seed=seed, evaluation=True)
        step: Any = envs.reset()
        boards = []
        for _ in range(20):
            step = envs.step(step.action_mask.argmax(1))
            boards.append(step.obs.tolist())
        games.append(boards)
    assert games[0] == games[1] != games[2]


def test_a_time_limit_cuts_a_game_which_nobody_has_won() -> None:
    envs = make(GAME, 4, self_play=1, max_episode_steps=1)
    player = envs.opponent.player = Lowest()
    envs.reset()
    for _ in range(2):
        step = envs.step(np.full(4, 4))
        assert (step.terminated.any(), step.is_first.any()) == (False, False)
        assert {(game.score, game.length, game.info["is_success"]) for game in step.episodes} == {(0, 1, False)}
        assert len(step.episodes) == 4 and envs.step(np.full(4, 4)).is_first.all()
    assert player.scores == [(row, 0) for _ in range(2) for row in range(4)]


@pytest.mark.parametrize(("env", "keys", "says"), [
    (GAME, {}, r"take turns \(AEC\); give the parallel_env .*; a game for two trains by .*, given"),
    (GAME, {"self_play": 1, "options": {"players": 3}}, "two players in turn: it has 3; leave self_play out and give "
     r"the parallel_env of its module, or pettingzoo\.utils\.conversions\.aec_to_parallel\(env\)"),
    (named(lambda: TicTacToe(players=3)), {}, r"take turns \(AEC\); give .* where agents may act at once$"),
    (GAME, {"self_play": 1, "frame_skip": "4"}, "frame_skip has no effect here: .* is a game of two players"),
    ("pettingzoo_envs:Relay", {"self_play": 1}, "has no self-play, which is for two players in turn, a PettingZoo"),
    ("test_batched:Walk", {"self_play": 1}, "has no self-play, which is for two players in turn, a Petting"),
    ("tiny:Bandit", {"self_play": 1}, "has no self-play, which is for two players in turn, a PettingZoo AECEnv; give"),
    ("Pong", {"self_play": 1}, "self_play=1 has no effect on Atari, whose games have one player")])
def test_other_environments_have_no_self_play(env: str, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make(env, 1, **keys)


def test_a_game_without_turns_is_refused_whatever_self_play_says() -> None:
    with pytest.raises(ConfigError, match="has no self-play, which is for two players in turn, a PettingZoo AECEnv"):
        two_players(resolve_env("pettingzoo_envs:Relay"), Opponent(), 0, EnvConfig(), Relay())
