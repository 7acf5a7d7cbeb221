"""Recorded videos, read back: whole games, frames, size and speed; no file after a failure."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from conftest import train_shortly
from PIL import Image

from vantage.cli import main
from vantage.config import Config
from vantage.envs import Environments
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.learning.play import Moment
from vantage.tools import record as module
from vantage.tools.evaluate import evaluate, shown_game
from vantage.tools.frames import Canvas
from vantage.tools.record import Video, record
from vantage.training import load


def read_mp4(path: Path) -> tuple[np.ndarray, float]:
    """All frames [N, H, W, 3] and how many a second."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    stream = re.search(rb"h264.*?, (\d+)x(\d+).*?, ([\d.]+) fps", done.stderr)
    assert stream is not None, done.stderr
    width, height = int(stream[1]), int(stream[2])
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3), float(stream[3])


def read_gif(path: Path) -> tuple[np.ndarray, list[int]]:
    """All frames [N, H, W, 3] and for how many milliseconds each is shown."""
    frames, durations = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
    return np.stack(frames), durations


def test_an_mp4_has_every_step_of_the_games_that_are_evaluated(cartpole_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "new folder/video.mp4"
    result = record(cartpole_run, output, episodes=2, seed=5)
    assert result.scores == evaluate(cartpole_run, episodes=2, seed=5, num_envs=1).returns
    frames, fps = read_mp4(output)
    assert len(frames) == result.frames == sum(result.scores) + 2  # a point a step, and the frame before the first
    assert frames.shape[1:] == (434, 600, 3) and fps == 50
    assert [path.name for path in output.parent.iterdir()] == ["video.mp4"]


def test_a_game_without_an_end_is_cut_where_evaluation_cuts_it(
        cartpole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("vantage.envs.single.LONGEST_GAME", 6)
    result = record(cartpole_run, tmp_path / "video.gif", episodes=3)
    assert result.scores == evaluate(cartpole_run, episodes=3, num_envs=1).returns == [6]
    assert result.frames == 7 and "2 were not played" in caplog.text


def test_a_gif_has_the_same_frames_at_the_same_speed(cartpole_run: Path, tmp_path: Path) -> None:
    result = record(cartpole_run, tmp_path / "video.gif", seed=5)
    record(cartpole_run, tmp_path / "video.mp4", seed=5)
    frames, durations = read_gif(tmp_path / "video.gif")
    film, _ = read_mp4(tmp_path / "video.mp4")
    assert set(durations) == {20} and len(frames) == len(film) == result.frames
    assert np.abs(frames.astype(int) - film).mean() < 2


def test_an_atari_video_shows_the_games_own_screen(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "Breakout", steps=10, max_episode_steps=20)
    result = record(run, tmp_path / "video.mp4", deterministic=True)
    frames, fps = read_mp4(tmp_path / "video.mp4")
    assert frames.shape == (21, 664, 480, 3) and fps == 15 and result.fps == 15
    envs = shown_game(load(run).config, 0)
    envs.reset()
    screen = np.repeat(np.repeat(envs.render(), 3, 0), 3, 1)
    assert np.abs(frames[0, :630].astype(int) - screen).mean() < 3
    assert frames[0, 630:, :, 0].max() > 200  # the strip has its words


@pytest.mark.parametrize(("fps", "change"), [(15.0, 4), (60.0, 4), (24.0, 0)])
def test_a_gif_has_the_right_duration_where_hundredths_do_not_fit(fps: float, change: int, tmp_path: Path) -> None:
    frames = [np.full((4, 4, 3), change * i, np.uint8) for i in range(60)]
    shown, durations = write_gif(tmp_path / "x.gif", frames, fps)
    assert min(durations) >= 20 and abs(sum(durations) - 1000 * len(frames) / fps) <= 40
    np.testing.assert_array_equal(shown[[0, -1]], [frames[0], frames[-1]])


def write_gif(path: Path, frames: list[np.ndarray], fps: float) -> tuple[np.ndarray, list[int]]:
    """The frames of the GIF, and the milliseconds that each is shown."""
    video = Video(path, (frames[0].shape[1], frames[0].shape[0]), fps)
    for i, frame in enumerate(frames):
        video.add(frame, last=i == len(frames) - 1)
    video.finish()
    video.close()
    return read_gif(path)


def interrupted(*_: object, **__: object) -> Iterator[Moment]:
    yield Moment(0.0, 0.0, 0, False)
    raise KeyboardInterrupt


def begun(config: Config, seed: int) -> Environments:
    envs = shown_game(config, seed)
    envs.reset()
    return envs


@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
def test_an_interrupt_leaves_no_half_file_and_the_former_one_whole(
        name: str, cartpole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text("the former one")
    monkeypatch.setattr(module, "moments", interrupted)
    monkeypatch.setattr(module, "shown_game", begun)
    assert main(["record", str(cartpole_run), "-o", str(tmp_path / name)]) == 130
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the former one"]


def ending(*_: object, **__: object) -> Iterator[None]:
    yield
    yield
    raise BrokenPipeError


@pytest.mark.parametrize(("part", "replacement", "says"), [
    ("count_frames_and_secs", lambda path: (3, 1.0), "wrote 3 of"), ("write_frames", ending, "is the disk full")])
def test_a_video_that_lacks_frames_is_an_error_without_a_file(
        part: str, replacement: Any, says: str, cartpole_run: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imageio_ffmpeg, part, replacement)
    with pytest.raises(VantageError, match=says):
        record(cartpole_run, tmp_path / "video.mp4")
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_the_remedy_is_named(
        cartpole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nowhere/ffmpeg")
    with pytest.raises(ConfigError, match="pip install imageio-ffmpeg"):
        record(cartpole_run, tmp_path / "video.mp4")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(cartpole_run: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()
    for output in ("folder.mp4", "file/video.mp4"):
        with pytest.raises(ConfigError, match=output):
            record(cartpole_run, tmp_path / output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.mp4"]


@pytest.mark.parametrize(("env", "kwargs", "error", "says"), [
    ("tiny:Bandit", "{}", ConfigError, "render_mode"),
    ("drawn:Drawn", '{"bad": "raises"}', EnvError, "no canvas")])
def test_an_environment_that_cannot_be_drawn_leaves_no_file(
        env: str, kwargs: str, error: type[Exception], says: str, tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", env, steps=10, env_kwargs=kwargs)
    with pytest.raises(error, match=says):
        record(run, tmp_path / "video.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_canvas_enlarges_small_screens_by_whole_numbers_and_hides_nothing() -> None:
    screen = np.random.default_rng(0).integers(256, size=(210, 160, 3), dtype=np.uint8)
    frame = Canvas(screen).draw(screen, ["score 1", "value 2"])
    np.testing.assert_array_equal(frame[1:630:3, 1:480:3], screen)
    other = Canvas(screen).draw(screen[:100], ["score 1,000,000,000,000,000", "a value that is much too long for it"])
    assert other.shape == frame.shape
