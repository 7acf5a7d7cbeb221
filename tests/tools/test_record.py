"""Recorded videos, read back: whole games, frames, size and speed; no file after a failure."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from conftest import train_shortly
from PIL import Image

from vantage.agents.agent import load
from vantage.agents.evaluate import evaluate, single_game
from vantage.cli import main
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.tools import record as module
from vantage.tools.frames import draw_frame
from vantage.tools.record import record, write_video


def read_mp4(path: Path) -> tuple[np.ndarray, float]:
    """All frames [N, H, W, 3] and how many a second."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    stream = re.search(rb"h264.*?, (\d+)x(\d+).*?, ([\d.]+) fps", done.stderr)
    assert stream is not None, done.stderr
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, int(stream[2]), int(stream[1]), 3), float(stream[3])


def read_gif(path: Path) -> tuple[np.ndarray, list[int]]:
    """All frames [N, H, W, 3] and for how many milliseconds each is shown."""
    frames, durations = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
    return np.stack(frames), durations


def test_an_mp4_and_a_gif_have_every_step_of_the_games_that_are_evaluated(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "CartPole-v1", steps=40, max_episode_steps=15)
    output = tmp_path / "new folder/video.mp4"
    result = record(run, output, episodes=2, seed=5)
    assert result.scores == evaluate(run, episodes=2, seed=5, num_envs=1).returns
    film, fps = read_mp4(output)
    assert len(film) == result.frames == sum(result.scores) + 2  # a point a step, and the frame before the first
    assert film.shape[1:] == (434, 600, 3) and fps == 50
    record(run, tmp_path / "new folder/video.gif", episodes=2, seed=5)
    frames, durations = read_gif(tmp_path / "new folder/video.gif")
    assert set(durations) == {20} and len(frames) == len(film) and np.abs(frames.astype(np.int16) - film).mean() < 2
    assert sorted(path.name for path in output.parent.iterdir()) == ["video.gif", "video.mp4"]


def test_games_are_cut_where_evaluation_cuts_them_and_all_are_recorded(cartpole_run: Path, tmp_path: Path) -> None:
    result = record(cartpole_run, tmp_path / "video.mp4", episodes=2, seed=1)
    evaluation = evaluate(cartpole_run, episodes=2, seed=1, num_envs=1)
    assert result.scores == evaluation.returns and result.frames == sum(result.scores) + 2
    cut = [score for score in result.scores if score == 60]
    assert evaluation.cut_games == len(cut) == 1
    assert "1 of them cut at a step limit" in evaluation.sentence()


def test_an_evaluation_has_both_ways_to_play_and_a_step_limit_of_its_own(cartpole_run: Path) -> None:
    result = evaluate(cartpole_run, episodes=5, max_episode_steps=4)
    assert result.other is not None and result.other.deterministic is not result.deterministic
    assert result.returns == result.other.returns == [4] * 5 and result.cut_games == 5
    assert result.sentence().count("\n") == 1
    assert evaluate(cartpole_run, episodes=1, deterministic=True, max_episode_steps=4).other is None


def test_an_atari_video_shows_the_games_own_screen(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "Breakout", steps=10, max_episode_steps=20, image_norm_steps=100)
    result = record(run, tmp_path / "video.mp4", deterministic=True)
    frames, fps = read_mp4(tmp_path / "video.mp4")
    assert frames.shape == (21, 664, 480, 3) and fps == 15 and result.fps == 15
    envs = single_game(load(run).config, 0)
    envs.reset()
    assert np.abs(frames[0, :630].astype(int) - envs.render().repeat(3, 0).repeat(3, 1)).mean() < 3
    assert frames[0, 630:, :, 0].max() > 200  # the strip has its words


def test_a_frame_enlarges_small_screens_by_whole_numbers_and_is_even() -> None:
    screen = np.random.default_rng(0).integers(256, size=(210, 160, 3), dtype=np.uint8)
    frame = draw_frame(screen, "score 1,000,000,000,000,000", " ")
    np.testing.assert_array_equal(frame[1:630:3, 1:480:3], screen)
    assert frame[632:, :240].max() > 200 > 30 > frame[632:, 240:].max()  # words stay in their columns
    assert draw_frame(screen[:201, :41], "score 1").shape == (638, 400, 3)
    assert draw_frame(np.zeros((701, 999, 3), np.uint8), "score 1").shape == (736, 1000, 3)


@pytest.mark.parametrize(("fps", "count"), [(15.0, 60), (60.0, 30)])
def test_a_gif_has_the_right_duration_where_hundredths_do_not_fit(fps: float, count: int, tmp_path: Path) -> None:
    frames = [np.full((4, 4, 3), 4 * i, np.uint8) for i in range(60)]
    assert write_video(tmp_path / "x.GIF", iter(frames), fps) == (count, fps * count / 60)
    shown, durations = read_gif(tmp_path / "x.GIF")
    assert len(shown) == count and min(durations) >= 20 and abs(sum(durations) - 1000 * 60 / fps) <= 40
    np.testing.assert_array_equal(shown[:2], frames[:2 * 60 // count:60 // count])


@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
def test_an_interrupt_leaves_no_half_file_and_the_former_one_whole(
        name: str, cartpole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(moment: Any) -> tuple[str]:
        if moment.length == 3:
            raise KeyboardInterrupt
        return ("",)

    (tmp_path / name).write_text("the former one")
    monkeypatch.setattr(module, "step_words", interrupt)
    assert main(["record", str(cartpole_run), "-o", str(tmp_path / name)]) == 130
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the former one"]


def broken_pipe(*_: object, **__: object) -> Any:
    yield
    yield
    raise OSError("broken pipe")


@pytest.mark.parametrize(("part", "replacement", "says"), [
    ("count_frames_and_secs", lambda path: (3, 1.0), "wrote 3 of"), ("write_frames", broken_pipe, "is the disk full")])
def test_a_video_that_lacks_frames_is_an_error_without_a_file(
        part: str, replacement: Any, says: str, cartpole_run: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imageio_ffmpeg, part, replacement)
    with pytest.raises(VantageError, match=says):
        record(cartpole_run, tmp_path / "video.mp4")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_recorded_is_an_error_with_the_remedy(
        cartpole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for env, kwargs, error, says in (("tiny:Bandit", "{}", ConfigError, "render_mode"),
                                     ("drawn:Drawn", '{"bad": "raises"}', EnvError, "no canvas")):
        run = train_shortly(tmp_path / env, env, steps=10, env_kwargs=kwargs)
        with pytest.raises(error, match=says):
            record(run, tmp_path / "video.mp4")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nowhere/ffmpeg")
    with pytest.raises(ConfigError, match="pip install imageio-ffmpeg"):
        record(cartpole_run, tmp_path / "video.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn:Drawn", "tiny:Bandit"]
