"""Games of a run's policy as a video file, without a screen: MP4 by ffmpeg, GIF by Pillow."""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import imageio_ffmpeg
import numpy as np
from PIL import GifImagePlugin, Image

from vantage.envs import Rendered, make_rendered
from vantage.errors import ConfigError, VantageError
from vantage.learning.play import moments
from vantage.tools.evaluate import STREAM, action_generator, acts_deterministically, check_games, one_thread, seeded
from vantage.tools.frames import Canvas, Picture, game_words, number
from vantage.tools.output import whole_file
from vantage.training import Agent, load

# A GIF counts hundredths of a second, and browsers show what is to last less than two of them for ten.
_GIF_MOST_FPS = 50


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded."""

    path: Path
    scores: list[float]
    frames: int
    fps: float
    deterministic: bool
    checkpoint: str

    def sentence(self) -> str:
        """For a person."""
        games = "1 game" if len(self.scores) == 1 else f"{len(self.scores)} games"
        actions = "most probable" if self.deterministic else "sampled"
        return (f"{self.path}: {games}, score {', '.join(map(number, self.scores))}; {self.frames} frames, "
                f"{self.frames / self.fps:.1f} s at {self.fps:g} a second, {actions} actions, {self.checkpoint}")


class Writer(Protocol):
    """Takes frames RGB [H, W, 3], all of one size."""

    fps: float
    """Frames a second of the file, which may be fewer than those that come."""
    frames: int
    """In the file so far."""

    def add(self, frame: Picture) -> None:
        """The next frame."""

    def finish(self) -> None:
        """The file is whole after this; VantageError where it is not."""

    def abandon(self) -> None:
        """Let go of the file, which is of no use."""


def record(run: str | Path, output: Path, *, episodes: int = 1, deterministic: bool | None = None,
           checkpoint: str = "auto", seed: int = 0, notify: Callable[[str], None] = warnings.warn) -> Recording:
    """Play `episodes` whole games in real time speed into `output`, a .mp4 or .gif, which appears once it is whole.

    The games are played as `evaluate` plays them; `deterministic`, `checkpoint`, `seed` and `notify` are as there.
    """
    suffix = output.suffix.lower()
    if suffix not in (".mp4", ".gif"):
        raise ConfigError(f"{output}: the name must end in .mp4 or .gif")
    check_games(episodes, seed)
    agent = load(run, checkpoint=checkpoint)
    deterministic = acts_deterministically(agent.config) if deterministic is None else deterministic
    envs = make_rendered(seeded(agent.config, seed), stream=STREAM)
    try:
        with (one_thread(), whole_file(output) as path,
              closing(_frames(agent, envs, episodes, deterministic, seed)) as frames):
            scores, writer = _write(frames, path, envs)
    finally:
        envs.close()
    if len(scores) < episodes:
        notify(f"the last game was cut at {number(scores[-1])} points as too long; {episodes - len(scores)} were not "
               "played")
    return Recording(output, scores, writer.frames, writer.fps, deterministic, agent.checkpoint)


def _frames(agent: Agent, envs: Rendered, episodes: int, deterministic: bool,
            seed: int) -> Generator[tuple[Picture, float | None]]:
    """Every frame of the games, and at the end of a game its score."""
    canvas, game = None, 1
    for moment in moments(agent.model, envs, deterministic=deterministic, generator=action_generator(seed)):
        screen = envs.render()
        canvas = canvas or Canvas(screen)
        words = game_words(moment.score, moment.value, f"step {moment.length:,}")
        words += [f"game {game} of {episodes}"] * (episodes > 1)
        yield canvas.draw(screen, words), moment.score if moment.over else None
        game += moment.over
        if game > episodes:
            return


def _write(frames: Iterator[tuple[Picture, float | None]], path: Path, envs: Rendered) -> tuple[list[float], Writer]:
    """The scores of the games in the file, and who wrote it."""
    scores: list[float] = []
    first, score = next(frames)
    height, width = first.shape[:2]
    writer: Writer = Gif(path, envs.fps) if path.suffix == ".gif" else Mp4(path, (width, height), envs.fps)
    try:
        for frame, ended_with in chain([(first, score)], frames):
            writer.add(frame)
            if ended_with is not None:
                scores.append(ended_with)
    except BaseException:
        writer.abandon()
        raise
    writer.finish()
    return scores, writer


class Mp4:
    """H.264, as every browser plays it."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float) -> None:
        self.fps, self.frames, self._path = fps, 0, path
        # The index at the front: a browser then plays the file while it loads.
        self._pipe = imageio_ffmpeg.write_frames(
            str(path), size, fps=fps, codec="libx264", quality=7, macro_block_size=2, ffmpeg_log_level="quiet",
            output_params=["-movflags", "+faststart"])
        try:
            self._pipe.send(None)  # starts ffmpeg
        except (OSError, RuntimeError) as error:  # the package for this machine may be without one
            raise ConfigError(f"no ffmpeg for an MP4 ({error}): pip install imageio-ffmpeg where it has a wheel, or "
                              "record a .gif") from None

    def add(self, frame: Picture) -> None:
        """The next frame."""
        try:
            self._pipe.send(np.ascontiguousarray(frame))
        except OSError:
            raise VantageError("ffmpeg ended before the video did; is the disk full? Free space, or choose another "
                               "output") from None
        self.frames += 1

    def finish(self) -> None:
        """Wait for ffmpeg, then count what is in the file."""
        self._pipe.close()
        try:
            written = imageio_ffmpeg.count_frames_and_secs(str(self._path))[0]
        except RuntimeError:
            written = 0
        if written != self.frames:
            raise VantageError(f"ffmpeg wrote {written} of {self.frames} frames; is the disk full?")

    def abandon(self) -> None:
        """End ffmpeg."""
        self._pipe.close()


class Gif:
    """Each frame is only where it differs from the one before, with a palette of its own; nothing is kept in memory."""

    def __init__(self, path: Path, fps: float) -> None:
        self.frames = 0
        self._every = max(1, -int(-fps // _GIF_MOST_FPS))
        self.fps = fps / self._every
        self._file, self._seen = path.open("wb"), 0
        self._before: Picture | None = None
        self._skipped: Picture | None = None

    def add(self, frame: Picture) -> None:
        """The next frame, or one of those left out."""
        if self._seen % self._every == 0:
            self._put(frame)
            self._skipped = None
        else:
            self._skipped = frame
        self._seen += 1

    def finish(self) -> None:
        """The last frame, and the mark of the end."""
        if self._skipped is not None:
            self._put(self._skipped)
        self._file.write(b";")
        self._file.close()

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()

    def _put(self, frame: Picture) -> None:
        top, bottom, left, right = (0, *frame.shape[:1], 0, frame.shape[1]) if self._before is None \
            else _changed(self._before, frame)
        part = Image.fromarray(np.ascontiguousarray(frame[top:bottom, left:right]))
        image = part.quantize(256, dither=Image.Dither.NONE)
        if self._before is None:
            header, _ = GifImagePlugin.getheader(image.copy(), info={"loop": 0, "duration": 1})
            self._file.write(b"".join(header))
        # Rounded where they begin, not how long they last, so that a long film is not too fast or too slow.
        begin, end = (round(100 * i / self.fps) for i in (self.frames, self.frames + 1))
        for block in GifImagePlugin.getdata(image, (left, top), duration=10 * (end - begin), disposal=1,
                                            include_color_table=True):
            self._file.write(block)
        self._before = frame
        self.frames += 1


def _changed(before: Picture, after: Picture) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of what differs; one pixel where nothing does."""
    differs = (before != after).any(axis=2)
    rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
    if not len(rows):
        return 0, 1, 0, 1
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def defect(path: Path) -> str:
    """What is wrong with the video in `path`; empty where all of it plays, and where there is no ffmpeg to say."""
    try:
        path.open("rb").close()
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    except OSError as error:
        return error.strerror or str(error)
    except RuntimeError:
        return ""
    done = subprocess.run([ffmpeg, "-v", "error", "-xerror", "-i", str(path.absolute()), "-f", "null", "-"],
                          capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or ["unreadable"]
    return re.sub(r"^\[[^]]*\] ", "", said[0]).rstrip(".")
