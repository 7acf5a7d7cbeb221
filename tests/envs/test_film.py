"""Environments that can be seen: the same games as those that cannot, in colour; and what cannot be seen."""

from __future__ import annotations

from typing import Any

import drawn
import numpy as np
import pytest
from ale_py import AtariVectorEnv

from vantage.config import Config
from vantage.envs import Rendered, make_environments, make_rendered
from vantage.envs.film import film
from vantage.errors import ConfigError, EnvError


def rendered(env: str, **values: Any) -> Rendered:
    return make_rendered(Config().change(env=env, **values), stream=2)


@pytest.mark.parametrize(("env", "limit"), [("Breakout", 60), ("ALE/Seaquest-v5", 60), ("AirRaid", 30),
                                            ("CartPole-v1", 0), ("drawn:Drawn", 0)])
def test_a_game_that_is_seen_is_the_game_that_is_scored(env: str, limit: int) -> None:
    config = Config().change(env=env, max_episode_steps=limit, seed=3)
    seen, unseen = make_rendered(config, stream=2), make_environments(config, num_envs=1, stream=2, evaluation=True)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(seen.reset().obs, unseen.reset().obs)
    games = 0
    for _ in range(130):
        assert seen.render().dtype == np.uint8
        action = rng.integers(seen.spec.action.sizes[0], size=1)
        one, other = seen.step(action), unseen.step(action)
        for name in ("obs", "rewards", "terminated", "is_first"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        games += len(one.episodes)
    assert games >= 2
    seen.close()
    unseen.close()


def test_the_screen_is_in_full_size_and_colour() -> None:
    envs = rendered("Breakout")
    envs.reset()
    assert envs.render().shape == (210, 160, 3) and envs.fps == 15
    assert [200, 72, 72] in envs.render()[60].tolist()  # the top row of bricks is red
    envs.close()


@pytest.mark.parametrize("other", [{"noop_max": 1}, {"repeat_action_probability": 0.5}])
def test_a_screen_that_leaves_the_game_is_an_error(other: dict[str, Any]) -> None:
    def make(**values: Any) -> AtariVectorEnv:
        return AtariVectorEnv("breakout", 1, stack_num=1, use_fire_reset=False, **values, **(other if "grayscale" in
                                                                                            values else {}))

    filmed = film(make, (210, 160), 4, 2)
    with pytest.raises(EnvError, match="left the game that is scored"):
        filmed.reset(seed=np.array([1]), options={"reset_mask": np.ones(1, bool)})
        for action in (1, 2, 3, 2, 2, 3, 3, 2) * 5:
            filmed.step(np.array([action]))
    filmed.close()


def test_a_picture_of_another_game_is_an_error_even_where_the_counters_agree() -> None:
    def make(**values: Any) -> AtariVectorEnv:
        game = "pong" if "grayscale" in values else "tennis"
        return AtariVectorEnv(game, 1, stack_num=1, noop_max=0, use_fire_reset=False, **values)

    filmed = film(make, (210, 160), 4, 2)
    with pytest.raises(EnvError, match="differs by"):
        filmed.reset(seed=np.array([1]), options={"reset_mask": np.ones(1, bool)})
    filmed.close()


@pytest.mark.parametrize("env", ["tiny:Bandit", "drawn:Careless"])
def test_an_environment_without_pictures_is_one_clear_error(env: str) -> None:
    with pytest.raises(ConfigError, match="draws no pictures"):
        rendered(env)


def test_what_else_is_wrong_is_said_instead() -> None:
    with pytest.raises(ConfigError, match="size_of_cart"):
        rendered("CartPole-v1", env_kwargs='{"size_of_cart": 3}')


@pytest.mark.parametrize(("bad", "says"), [("raises", "no canvas"), ("shape", r"shape \(3, 4\)")])
def test_a_bad_picture_is_named_with_its_place(bad: str, says: str) -> None:
    envs = rendered("drawn:Drawn", env_kwargs=f'{{"bad": "{bad}"}}')
    envs.reset()
    with pytest.raises(EnvError, match=f"episode 0, step 0.*{says}"):
        envs.render()


@pytest.mark.parametrize(("env", "fps"), [("CartPole-v1", 50), ("drawn:Drawn", 60)])
def test_frames_a_second_are_the_environments_own(env: str, fps: float) -> None:
    envs = rendered(env)
    envs.reset()
    assert envs.fps == fps


def test_frames_a_second_are_30_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn.Drawn, "metadata", {"render_modes": ["rgb_array"]})
    test_frames_a_second_are_the_environments_own("drawn:Drawn", 30)
