"""What render returns: other forms of pictures are converted, what is no picture is named, sizes may change."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from conftest import train_shortly
from raw_envs import GRAY, RGB

import vantage
from vantage.envs.config import EnvConfig
from vantage.envs.make import make_single
from vantage.envs.vector_env import Environments
from vantage.errors import EnvError


def make(picture: str, fps: object = 10) -> Environments:
    config = EnvConfig(id="raw_envs:Drawn", env_kwargs=json.dumps({"picture": picture, "fps": fps}))
    return make_single(config, seed=0, stream=1)


GRAY_RGB = np.stack([GRAY] * 3, axis=2)


@pytest.mark.parametrize(("picture", "expected"), [
    ("rgb", RGB), ("rgba", RGB), ("gray", GRAY_RGB), ("gray channel", GRAY_RGB), ("floats", RGB), ("float bytes", RGB),
    ("ints", RGB), ("list", RGB), ("bools", np.where(GRAY_RGB > 40, 255, 0))])
def test_a_picture_in_another_form_is_converted(picture: str, expected: np.ndarray) -> None:
    envs = make(picture)
    envs.reset()
    screen = envs.render()
    assert screen.dtype == np.uint8 and np.array_equal(screen, expected)


@pytest.mark.parametrize(("picture", "says"), [
    ("None", "returned None"), ("text", "returned 'picture'"), ("empty list", "returned an empty list"),
    ("channels first", r"returned an array of uint8 of shape \(3, 8, 10\)"), ("negative", "numbers from -5 to"),
    ("nan", "numbers from nan to nan"), ("nothing", r"of shape \(0, 10, 3\)"), ("vector", r"of shape \(3,\)")])
def test_what_is_no_picture_is_named(picture: str, says: str) -> None:
    envs = make(picture)
    envs.reset()
    with pytest.raises(EnvError, match=rf"step 0\): render\(\) .*{says}.*; return a picture of uint8 \[height, width"):
        envs.render()


@pytest.mark.parametrize(("fps", "expected"), [(12, 12.0), ("fast", 30.0), (-1, 30.0), ([4], 30.0), (1e9, 30.0)])
def test_a_speed_at_which_nothing_can_be_shown_is_30(fps: object, expected: float) -> None:
    envs = make("rgb", fps)
    envs.reset()
    assert envs.fps == expected


def test_a_picture_that_changes_its_size_is_recorded_in_that_of_the_first(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = train_shortly(tmp_path / "run", "raw_envs:Drawn", steps=20, rollout_length=5, env_kwargs={"picture": "grows"})
    with caplog.at_level(logging.WARNING):
        recording = vantage.record(run, tmp_path / "game.mp4", episodes=2)
    assert recording.scores == [5.0, 5.0] and recording.frames == 12
    lines = [text for text in caplog.messages if "changed its size" in text]
    assert lines == ["render() changed its size from 10x8 to 10x10; such frames are resized to the first, as a video "
                     "has one size"]


def test_an_export_to_onnx_prints_nothing_of_torchvision(
        tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    run = train_shortly(tmp_path / "run", "raw_envs:Raw", steps=20, rollout_length=5)
    capfd.readouterr()
    vantage.export(run, format="onnx")
    streams = capfd.readouterr()
    assert "torchvision" not in streams.out + streams.err + caplog.text
    logging.getLogger("torch.onnx._internal.exporter._registration").warning("torchvision is not installed")
    assert "torchvision is not installed" in caplog.text, "the filter is gone after the export"
