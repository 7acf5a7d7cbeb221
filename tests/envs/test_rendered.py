"""Rendered environments: the same observations, and pictures."""

from __future__ import annotations

from typing import Any

import drawn
import numpy as np
import pytest

from vantage.config.config import Config
from vantage.envs.make import make_environments, make_single
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, EnvError


def rendered(env: str, *, draws: bool | None = True, **values: Any) -> Environments:
    return make_single(Config().change(env=env, **values).env, seed=3, stream=2, draws=draws)


@pytest.mark.parametrize(("env", "keys", "exact"), [
    ("Breakout", {"noop_max": 0, "grayscale": False, "crop": "30,0,0,0"}, False),
    ("Breakout", {"max_frames": 3, "action_subset": "0,3"}, True), ("CartPole-v1", {}, True),
    ("drawn:Drawn", {}, True)])
def test_a_rendered_game_equals_the_scored_one(env: str, keys: dict[str, Any], exact: bool) -> None:
    config = Config().change(env=env, max_episode_steps=60, **keys).env
    seen = make_single(config, seed=3, stream=2)
    unseen = make_environments(config, seed=3, num_envs=1, stream=2, evaluation=True)
    rng, games = np.random.default_rng(0), 0
    np.testing.assert_array_equal(seen.reset().obs, unseen.reset().obs)
    for _ in range(130):
        assert seen.render().dtype == np.uint8
        action = rng.integers(seen.spec.action.sizes[0], size=1)
        one, other = seen.step(action), unseen.step(action)
        for name in ("rewards", "terminated", "is_first", "valid"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        if exact or not one.episodes:  # native emulators show the frames before the last one at an end
            np.testing.assert_array_equal(one.obs, other.obs)
        games += len(one.episodes)
    assert games >= 2


def test_the_screen_is_in_full_size_and_colour_at_its_own_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = rendered("Breakout")
    envs.reset()
    assert envs.render().shape == (210, 160, 3)
    assert [200, 72, 72] in envs.render()[60].tolist()  # the top row of bricks is red
    monkeypatch.setattr(drawn.Drawn, "metadata", {"render_modes": ["rgb_array"]})
    for env, fps, keys in (("CartPole-v1", 50, {}), ("CartPole-v1", 25, {"frame_skip": "2"}), ("drawn:Drawn", 30, {}),
                           ("Breakout", 15, {})):
        envs = rendered(env, **keys)
        envs.reset()
        assert envs.fps == fps


@pytest.mark.parametrize("env", ["tiny:Bandit", "drawn:Careless", "drawn:Drawn"])
def test_an_environment_without_pictures_is_refused(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env == "drawn:Drawn":
        monkeypatch.setattr(drawn.Drawn, "metadata", {"render_modes": ["human"]})
    with pytest.raises(ConfigError, match=r"draws no pictures|render_mode"):
        rendered(env)
    assert not rendered(env, draws=None).draws
    with pytest.raises(ConfigError, match="size_of"):
        rendered(env, draws=None, env_kwargs='{"size_of": 3}')


@pytest.mark.parametrize(("bad", "says"), [("raises", "no canvas"), ("shape", r"shape \(3, 4, 2\)")])
def test_a_bad_picture_is_named_with_its_place(bad: str, says: str) -> None:
    envs = rendered("drawn:Drawn", env_kwargs=f'{{"bad": "{bad}"}}')
    envs.reset()
    with pytest.raises(EnvError, match=f"episode 0, step 0.*{says}"):
        envs.render()
