"""Games of a run's policy as an MP4 or GIF, written by ffmpeg; no screen is needed."""

from __future__ import annotations

import logging
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import imageio_ffmpeg
import numpy as np

from vantage.agent import Agent
from vantage.envs import Environments
from vantage.errors import ConfigError, VantageError
from vantage.learning.play import moments
from vantage.tools.evaluate import action_generator, load_player, one_thread, shown_game
from vantage.tools.frames import Canvas, Picture, game_words, number
from vantage.tools.output import whole_file

log = logging.getLogger(__name__)

# GIF counts in hundredths of a second, and browsers slow delays below two of them down to ten.
_GIF_MAX_FPS = 50
# One palette for the whole video: palettes for each frame tripled the size of a game of Breakout.
_PALETTE, _USE_PALETTE = "palettegen", "paletteuse=dither=none:diff_mode=rectangle"


@dataclass(frozen=True, slots=True)
class Recording:
    """A finished video."""

    path: Path
    scores: list[float]
    frames: int
    fps: float
    deterministic: bool
    checkpoint: str

    def sentence(self) -> str:
        """One line for a person."""
        games = "1 game" if len(self.scores) == 1 else f"{len(self.scores)} games"
        actions = "most probable" if self.deterministic else "sampled"
        return (f"{self.path}: {games}, score {', '.join(map(number, self.scores))}; {self.frames} frames, "
                f"{self.frames / self.fps:.1f} s at {self.fps:g} a second, {actions} actions, {self.checkpoint}")


def record(run: str | Path, output: Path, *, episodes: int = 1, deterministic: bool | None = None,
           checkpoint: str = "auto", seed: int = 0, trust: bool = False) -> Recording:
    """Record `episodes` whole games at real-time speed into `output`, a .mp4 or .gif, which appears once complete.

    The games are those that `evaluate` would play in one environment; the options are the same.
    """
    if output.suffix.lower() not in (".mp4", ".gif"):
        raise ConfigError(f"{output}: the name must end in .mp4 or .gif")
    agent, deterministic = load_player(run, checkpoint, deterministic, episodes=episodes, seed=seed, trust=trust)
    envs = shown_game(agent.config, seed)
    try:
        with one_thread(), whole_file(output) as path:
            scores, video = _film(agent, envs, path, episodes, deterministic, seed)
    finally:
        envs.close()
    if len(scores) < episodes:
        log.warning("the last game was cut at %s points as too long; %d were not played", number(scores[-1]),
                    episodes - len(scores))
    return Recording(output, scores, video.frames, video.fps, deterministic, agent.checkpoint)


def _film(agent: Agent, envs: Environments, path: Path, episodes: int, deterministic: bool,
          seed: int) -> tuple[list[float], Video]:
    """Write every frame of the games into `path`; returns their scores and the video."""
    scores: list[float] = []
    video = None
    try:
        for moment in moments(agent.model, envs, deterministic=deterministic, generator=action_generator(seed)):
            screen = envs.render()
            if video is None:  # the environment has no fps before its first frame
                canvas = Canvas(screen)
                video = Video(path, canvas.size, envs.fps)
            words = game_words(moment.score, moment.value, f"step {moment.length:,}")
            words += [f"game {len(scores) + 1} of {episodes}"] * (episodes > 1)
            video.add(canvas.draw(screen, words), last=moment.over)
            if moment.over:
                scores.append(moment.score)
            if len(scores) == episodes:
                break
        assert video is not None
        video.finish()
    finally:
        if video is not None:
            video.close()
    return scores, video


class Video:
    """A file written by ffmpeg: H.264, which every browser plays, or a GIF. `size` is the frames' width and height."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float) -> None:
        self._path, self._film, self._every = path, path, 1
        self._folder: TemporaryDirectory[str] | None = None
        quality: int | None
        # The index at the front: browsers then play the file while it loads.
        codec, pixels, quality, options = "libx264", "yuv420p", 7, ["-movflags", "+faststart"]
        if path.suffix.lower() == ".gif":  # first without loss, since the palette needs all frames
            self._folder = TemporaryDirectory()
            self._film, self._every = Path(self._folder.name, "film.mp4"), max(1, -int(-fps // _GIF_MAX_FPS))
            codec, pixels, quality, options = "libx264rgb", "rgb24", None, ["-qp", "0", "-preset", "ultrafast"]
        self.fps, self.frames, self._seen = fps / self._every, 0, 0
        self._pipe = imageio_ffmpeg.write_frames(
            str(self._film), size, fps=self.fps, codec=codec, pix_fmt_out=pixels, quality=quality,
            macro_block_size=1, ffmpeg_log_level="quiet", output_params=options)
        try:
            self._pipe.send(None)  # starts ffmpeg
        except (OSError, RuntimeError) as error:  # the wheel for this machine may contain no ffmpeg
            raise ConfigError(f"cannot start ffmpeg ({error}): pip install imageio-ffmpeg where it has a wheel, or set "
                              "IMAGEIO_FFMPEG_EXE to an ffmpeg of your own") from None

    def add(self, frame: Picture, *, last: bool) -> None:
        """The next frame. A GIF that would be too fast leaves some out, but never the `last` of a game."""
        self._seen += 1
        if not last and (self._seen - 1) % self._every:
            return
        try:
            self._pipe.send(np.ascontiguousarray(frame))
        except OSError:
            raise VantageError("ffmpeg ended before the video did; is the disk full? Free space, or choose another "
                               "output") from None
        self.frames += 1

    def finish(self) -> None:
        """Wait for ffmpeg; VantageError if frames are missing from the file."""
        self._pipe.close()
        try:
            if self._folder is not None:
                palette = Path(self._folder.name, "palette.png")
                _ffmpeg("-i", self._film, "-vf", _PALETTE, palette)
                _ffmpeg("-i", self._film, "-i", palette, "-lavfi", _USE_PALETTE, self._path)
            written = imageio_ffmpeg.count_frames_and_secs(str(self._path))[0]
        except (RuntimeError, subprocess.CalledProcessError):
            written = 0
        if written != self.frames:
            raise VantageError(f"ffmpeg wrote {written} of {self.frames} frames; is the disk full? Free space, or "
                               "choose another output")

    def close(self) -> None:
        """End ffmpeg and remove temporary files."""
        self._pipe.close()
        if self._folder is not None:
            self._folder.cleanup()


def _ffmpeg(*arguments: str | Path) -> None:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-y", *arguments], check=True,
                   stdin=subprocess.DEVNULL)


def defect(path: Path) -> str:
    """What is wrong with the video in `path`; empty if all of it plays, or without an ffmpeg to check it."""
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
    errors = done.stderr.strip().splitlines() or ["unreadable"]
    return re.sub(r"^\[[^]]*\] ", "", errors[0]).rstrip(".")
