"""The pictures between a screen and an image observation: what is resized last is what the policy sees."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from vantage.config import Config
from vantage.envs import Rendered, make_rendered


def stepped(env: str, steps: int, **keys: Any) -> tuple[Rendered, np.ndarray]:
    """A rendered environment after random steps, and its observation [C, H, W]."""
    envs = make_rendered(Config().change(env=env, **keys), stream=4, required=False)
    obs, rng = envs.reset().obs, np.random.default_rng(0)
    for _ in range(steps):
        action = envs.spec.action
        obs = envs.step(rng.uniform(-1, 1, (1, *action.shape)).astype(np.float32) if action.kind == "box" else
                        rng.integers(action.sizes[0], size=1)).obs
    return envs, obs[0]


def names(envs: Rendered) -> list[str]:
    """The first lines of the titles."""
    return [title.split("\n")[0] for title, _ in envs.stages()]


@pytest.mark.parametrize("steps", [0, 40])
@pytest.mark.parametrize(("env", "keys"), [
    ("Pong", {}), ("Breakout", {"grayscale": False}), ("Pong", {"crop": "35,15,8,9"}),
    ("Breakout", {"crop": "rl-a3c-pytorch", "max_frames": 3, "random_start": 3}),
    ("Pong", {"frame_skip": "2-4", "max_frames": 2, "grayscale": False, "crop": "0,0,16,0"}),
    ("CarRacing-v3", {"frame_skip": "3", "max_frames": 2, "crop": "0,12,0,0", "grayscale": True, "screen_size": "40"}),
    ("test_env_options:Frames", {"env_kwargs": '{"colour": true}', "crop": "2,4,1,5", "frame_skip": "2"})])
def test_the_last_stage_resized_is_the_observation(env: str, keys: dict[str, Any], steps: int) -> None:
    envs, obs = stepped(env, steps, **keys)
    _, last = envs.stages()[-1]
    resized = cv2.resize(last, obs.shape[:0:-1], interpolation=cv2.INTER_AREA)
    small = resized[None] if resized.ndim == 2 else resized.transpose(2, 0, 1)
    assert np.abs(small.astype(int) - obs).max() <= 1  # ALE rounds halves the other way
    envs.close()


def test_stages_that_change_nothing_are_left_out() -> None:
    assert names(stepped("Pong", 9, max_frames=1)[0]) == ["screen, frame 4 of 4", "gray"]
    assert names(stepped("Pong", 9, max_frames=1, grayscale=False)[0]) == ["screen, frame 4 of 4"]
    assert names(stepped("Pong", 0)[0]) == ["screen after a reset", "gray"]
    assert names(stepped("CarRacing-v3", 1)[0]) == ["rendered for people"]
    assert names(stepped("test_env_options:Frames", 1)[0]) == []


def test_every_option_of_images_has_its_stage() -> None:
    envs, _ = stepped("Pong", 9, max_frames=3, crop="34,16,0,4")
    assert [title for title, _ in envs.stages()] == [
        "screen, frame 2 of 4\nRGB 210x160", "screen, frame 3 of 4\nRGB 210x160", "screen, frame 4 of 4\nRGB 210x160",
        "gray\n210x160", "maximum of frames\n2 to 4 of 4", "crop to 160x156\noff: 34 top, 16 bottom, 4 right"]
    keys = {"env_kwargs": '{"colour": true}', "frame_skip": "3", "max_frames": 2, "crop": "1,0,0,0", "grayscale": True}
    envs, _ = stepped("test_env_options:Frames", 5, **keys)
    assert names(envs) == ["image, frame 2 of 3", "image, frame 3 of 3", "maximum of frames", "gray", "crop to 19x16"]
    assert [picture.max() for _, picture in envs.stages()] == [14, 15, 15, 15, 15]


def test_a_range_of_frames_says_how_many_the_step_took() -> None:
    said = set()
    envs, _ = stepped("Pong", 0, frame_skip="2-4", max_frames=2)
    for _ in range(12):
        envs.step(np.zeros(1, np.int64))
        said.add(names(envs)[1])
    assert said == {f"screen, frame {n} of {n}" for n in (2, 3, 4)}
    envs.close()


def test_of_very_many_frames_the_last_are_shown() -> None:
    assert names(stepped("Pong", 3, frame_skip="12", max_frames=12)[0])[:2] == [
        "screen, frame 9 of 12", "screen, frame 10 of 12"]
