"""Rendered environments: the same observations, pictures, and the stages of an image."""

from __future__ import annotations

from typing import Any

import cv2
import drawn
import numpy as np
import pytest

from vantage.config import Config
from vantage.envs import Environments, make_environments, make_rendered
from vantage.errors import ConfigError, EnvError


def rendered(env: str, *, required: bool = True, **values: Any) -> Environments:
    return make_rendered(Config().change(env=env, **values).env, seed=3, stream=2, required=required)


def stepped(env: str, steps: int, **keys: Any) -> tuple[Environments, np.ndarray]:
    """A rendered environment after random steps, and its observation [C, H, W]."""
    envs = rendered(env, required=False, **keys)
    obs, rng = envs.reset().obs, np.random.default_rng(0)
    for _ in range(steps):
        action = envs.spec.action
        obs = envs.step(rng.uniform(-1, 1, (1, *action.shape)).astype(np.float32) if action.kind == "box" else
                        rng.integers(action.sizes[0], size=1)).obs
    return envs, obs[0]


def names(envs: Environments) -> list[str]:
    """The first lines of the titles."""
    return [title.split("\n")[0] for title, _ in envs.stages()]


@pytest.mark.parametrize(("env", "keys", "exact"), [
    ("Breakout", {"noop_max": 0, "grayscale": False, "crop": "30,0,0,0"}, False),
    ("Breakout", {"max_frames": 3, "action_subset": "0,3"}, True), ("CartPole-v1", {}, True),
    ("drawn:Drawn", {}, True)])
def test_a_rendered_game_equals_the_scored_one(env: str, keys: dict[str, Any], exact: bool) -> None:
    config = Config().change(env=env, max_episode_steps=60, **keys).env
    seen = make_rendered(config, seed=3, stream=2)
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
    for env, fps in (("CartPole-v1", 50), ("drawn:Drawn", 30), ("Breakout", 15)):
        envs = rendered(env)
        envs.reset()
        assert envs.fps == fps


@pytest.mark.parametrize("env", ["tiny:Bandit", "drawn:Careless", "drawn:Drawn"])
def test_an_environment_without_pictures_is_refused(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env == "drawn:Drawn":
        monkeypatch.setattr(drawn.Drawn, "metadata", {"render_modes": ["human"]})
    with pytest.raises(ConfigError, match=r"draws no pictures|render_mode"):
        rendered(env)
    assert not rendered(env, required=False).drawn


def test_another_error_takes_precedence_over_missing_pictures() -> None:
    with pytest.raises(ConfigError, match="size_of_cart"):
        rendered("CartPole-v1", env_kwargs='{"size_of_cart": 3}')


@pytest.mark.parametrize(("bad", "says"), [("raises", "no canvas"), ("shape", r"shape \(3, 4\)")])
def test_a_bad_picture_is_named_with_its_place(bad: str, says: str) -> None:
    envs = rendered("drawn:Drawn", env_kwargs=f'{{"bad": "{bad}"}}')
    envs.reset()
    with pytest.raises(EnvError, match=f"episode 0, step 0.*{says}"):
        envs.render()


@pytest.mark.parametrize("steps", [0, 40])
@pytest.mark.parametrize(("env", "keys"), [
    ("Pong", {}), ("Breakout", {"grayscale": False, "crop": "0,0,16,0"}), ("Pong", {"crop": "35,15,8,9"}),
    ("CarRacing-v3", {"frame_skip": "3", "max_frames": 2, "crop": "0,12,0,0", "grayscale": True, "screen_size": "40"})])
def test_the_last_stage_resized_is_the_observation(env: str, keys: dict[str, Any], steps: int) -> None:
    envs, obs = stepped(env, steps, **keys)
    _, last = envs.stages()[-1]
    resized = cv2.resize(last, obs.shape[:0:-1], interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(resized[None] if resized.ndim == 2 else resized.transpose(2, 0, 1), obs)


def test_every_option_of_images_has_its_stage_and_no_other() -> None:
    envs, _ = stepped("Pong", 9, max_frames=3, crop="34,16,0,4")
    assert [title for title, _ in envs.stages()] == [
        "rendered for people\nRGB 210x160", "maximum of 3 frames\n210x160",
        "crop to 160x156\n160x156"]
    assert names(stepped("Pong", 0)[0]) == ["rendered for people", "image"]
    keys = {"env_kwargs": '{"colour": true}', "frame_skip": "3", "max_frames": 2, "crop": "1,0,0,0", "grayscale": True}
    envs, _ = stepped("test_env_options:Frames", 5, **keys)
    assert names(envs) == ["maximum of 2 frames", "gray", "crop to 19x16"]
    assert [picture.max() for _, picture in envs.stages()] == [15, 15, 15]
    assert names(stepped("CarRacing-v3", 1)[0]) == ["rendered for people"]
