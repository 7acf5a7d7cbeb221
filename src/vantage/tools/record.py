"""Games of a run's policy as an MP4 or GIF, written by ffmpeg; no screen is needed."""

from __future__ import annotations

import contextlib
import logging
import math
import subprocess
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vantage._host.extras import needs
from vantage.agents.agent import Agent
from vantage.agents.evaluate import action_generator, load_player, single_game
from vantage.agents.evaluation_settings import torch_threads
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, VantageError
from vantage.learning.evaluation import (
    NOTED_STEPS,
    GameStep,
    game_steps,
    no_end_in_evaluation,
)
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over
from vantage.tools.frames import Picture, SameSize, draw_frame, score_text, step_words

with needs("video"):
    import imageio_ffmpeg

log = logging.getLogger(__name__)

# GIF counts in hundredths of a second, and browsers slow delays below two of them down to ten.
_GIF_MAX_FPS = 50
_USE_PALETTE = "paletteuse=dither=none:diff_mode=rectangle"


@dataclass(frozen=True, slots=True)
class Recording:
    """A finished video."""

    path: Path
    """The file."""
    scores: list[float]
    """The raw score of each game."""
    frames: int
    """Pictures in the video."""
    fps: float
    """Pictures a second, as the environment plays in real time."""
    deterministic: bool
    """Actions were the most probable ones; False: they were sampled."""
    checkpoint: str
    """The directory of the policy, within the run."""

    def sentence(self) -> str:
        """One line for a person."""
        games = "1 game" if len(self.scores) == 1 else f"{len(self.scores)} games"
        actions = "most probable" if self.deterministic else "sampled"
        scores = ", ".join(map(score_text, self.scores))
        seconds = self.frames / self.fps
        return (f"{self.path}: {games}, score {scores}; {seconds:.1f} s at {self.fps:g} pictures a "
                f"second, {actions} actions, {self.checkpoint}")


def record(run: str | Path | Agent, output: str | Path, *, episodes: int = 1,
           deterministic: bool | None = None, checkpoint: str | int = "auto", seed: int = 0,
           trust: bool = False, env: Any = None, network: Any = None, memory: Any = None,
           algorithm: Any = None) -> Recording:
    """Record whole games of a `run` or an agent as a .mp4 or .gif, without a screen.

        recording = vantage.record("runs/CartPole-v1/a2c-1", "game.mp4")
        print(recording.scores, recording.frames / recording.fps)

    The games are those that `vantage.evaluate` plays with num_envs=1, at real-time speed;
    `episodes`, `deterministic`, `checkpoint`, `seed`, `trust`, `env`, `network`, `memory` and
    `algorithm` are its options. `output` appears once it is complete. ConfigError for an
    environment that draws no pictures and for an output that cannot be written. A game without a
    time limit is cut after 10,000 steps and is then the last.
    """
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    scores: list[float] = []
    with whole_file(output, ".mp4", ".gif") as path:
        agent, deterministic = load_player(run, checkpoint, deterministic, episodes=episodes,
                                           seed=seed, trust=trust, objects=objects)
        with torch_threads(1), closing(single_game(agent.config, seed)) as envs:
            steps = game_steps(agent.model, envs, deterministic=deterministic,
                               generator=action_generator(seed))
            frames = _draw_games(steps, envs, episodes, scores)
            first = next(frames)  # builds the environment, which then knows its speed
            count, fps = write_video(path, chain([first], frames), envs.fps)
    return Recording(Path(output), scores, count, fps, deterministic, agent.checkpoint)


def _draw_games(steps: Iterator[GameStep], envs: Environments, episodes: int,
                scores: list[float]) -> Iterator[Picture]:
    """A frame for each step of `episodes` games; adds the score of each ended game to `scores`."""
    same_size = SameSize()
    for step in steps:
        screen = same_size.resize(envs.render())
        yield draw_frame(screen, *step_words(step), f"game {len(scores) + 1} of {episodes}")
        if step.over:
            scores.append(step.score)
        elif envs.is_endless and not scores and step.length == NOTED_STEPS:
            log.warning(no_end_in_evaluation(step.length, int(envs.longest_game)))
        is_cut = envs.is_endless and step.length >= envs.longest_game
        if is_cut and not step.over:
            scores.append(step.score)
        if is_cut or len(scores) == episodes:
            return


def write_video(path: Path, frames: Iterator[Picture], fps: float) -> tuple[int, float]:
    """Write `frames` as a GIF or as H.264, which every browser plays.

    Returns their number and how many a second. A GIF that would be too fast leaves some out.
    """
    is_gif = path.suffix.lower() == ".gif"
    if is_gif:
        every = max(1, math.ceil(fps / _GIF_MAX_FPS))
        frames = islice(frames, 0, None, every)
        fps /= every
    first = next(frames)
    count = 0
    written = 0
    with TemporaryDirectory() as folder:
        film = Path(folder, "film.mp4") if is_gif else path
        ffmpeg = _start_ffmpeg(film, first, fps, lossless=is_gif)
        try:
            for frame in chain([first], frames):
                count += 1
                ffmpeg.send(frame)
            ffmpeg.close()
            if is_gif:
                _convert_to_gif(film, path)
        except (OSError, subprocess.CalledProcessError) as error:  # ffmpeg has ended
            raise _incomplete(0, count) from error
        finally:
            ffmpeg.close()
        with contextlib.suppress(RuntimeError):
            written = imageio_ffmpeg.count_frames_and_secs(str(path))[0]
    if written != count:
        raise _incomplete(written, count)
    return count, fps


def _start_ffmpeg(film: Path, first: Picture, fps: float, *,
                  lossless: bool) -> Generator[None, Picture | None]:
    """An ffmpeg that writes the frames that are sent to it, of the size of `first`, to `film`."""
    # The index at the front: browsers then play the file while it loads.
    options: dict[str, Any] = {"quality": 7, "output_params": ["-movflags", "+faststart"]}
    if lossless:
        options = {"codec": "libx264rgb", "pix_fmt_out": "rgb24", "quality": None,
                   "output_params": ["-qp", "0", "-preset", "ultrafast"]}
    height, width, _ = first.shape
    ffmpeg: Generator[None, Picture | None] = imageio_ffmpeg.write_frames(
        str(film), (width, height), fps=fps, macro_block_size=1, ffmpeg_log_level="quiet",
        **options)
    try:
        ffmpeg.send(None)  # starts the process
    except (OSError, RuntimeError) as error:  # the wheel for this machine may contain no ffmpeg
        raise ConfigError(f"cannot start ffmpeg ({error}): pip install imageio-ffmpeg where it "
                          "has a wheel, or set IMAGEIO_FFMPEG_EXE to an ffmpeg of your own"
                          ) from None
    return ffmpeg


def _convert_to_gif(film: Path, path: Path) -> None:
    """Write `film` as a GIF with one palette: one for each frame tripled a game of Breakout."""
    palette = film.with_name("palette.png")
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-nostdin", "-y", "-i", film]
    subprocess.run([*ffmpeg, "-vf", "palettegen", palette], check=True)
    subprocess.run([*ffmpeg, "-i", palette, "-lavfi", _USE_PALETTE, path], check=True)


def _incomplete(written: int, count: int) -> VantageError:
    return VantageError(f"ffmpeg wrote {written} of {count} frames; is the disk full? Free space, "
                        "or choose another output")
