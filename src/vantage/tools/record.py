"""Games of a run's policy as an MP4 or GIF, written by ffmpeg; no screen is needed."""

from __future__ import annotations

import contextlib
import math
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vantage._host.extras import needs
from vantage.agents.agent import Agent
from vantage.agents.evaluate import action_generator, load_player, shown_game
from vantage.agents.evaluation_settings import torch_threads
from vantage.errors import ConfigError, VantageError
from vantage.learning.evaluation import game_steps
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over
from vantage.tools.frames import Picture, Screens, describe, draw_frame, number

with needs("video"):
    import imageio_ffmpeg

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
        return (f"{self.path}: {games}, score {', '.join(map(number, self.scores))}; "
                f"{self.frames / self.fps:.1f} s at {self.fps:g} pictures a second, {actions} "
                f"actions, {self.checkpoint}")


def record(run: str | Path | Agent, output: str | Path, *, episodes: int = 1,
           deterministic: bool | None = None, checkpoint: str = "auto", seed: int = 0,
           trust: bool = False, env: Any = None, network: Any = None, memory: Any = None,
           algorithm: Any = None) -> Recording:
    """Record whole games of a `run` or an agent into `output`, a .mp4 or .gif, which appears once complete.

        recording = vantage.record("runs/CartPole-v1/a2c-1", "game.mp4")
        print(recording.scores, recording.frames / recording.fps)

    The games are those that `vantage.evaluate` plays with num_envs=1, at real-time speed; `episodes`, `deterministic`,
    `checkpoint`, `seed`, `trust`, `env`, `network`, `memory` and `algorithm` are its options. No screen is needed.
    ConfigError for an environment that draws no pictures and for an output that cannot be written.
    """
    scores: list[float] = []
    screens = Screens()
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    with whole_file(output, ".mp4", ".gif") as path:
        agent, deterministic = load_player(run, checkpoint, deterministic, episodes=episodes,
                                           seed=seed, trust=trust, objects=objects)

        def frames() -> Iterator[Picture]:
            for moment in game_steps(agent.model, envs, deterministic=bool(deterministic),
                                     generator=action_generator(seed)):
                screen = screens.fit(envs.render())
                yield draw_frame(screen, *describe(moment), f"game {len(scores) + 1} of {episodes}")
                if moment.over:
                    scores.append(moment.score)
                if len(scores) == episodes:
                    return

        with torch_threads(1), closing(shown_game(agent.config, seed)) as envs:
            count, fps = write_video(path, frames(), lambda: envs.fps)
    return Recording(Path(output), scores, count, fps, deterministic, agent.checkpoint)


def write_video(path: Path, frames: Iterator[Picture], fps_of: Callable[[], float]) -> tuple[int, float]:
    """Write `frames` as a GIF or as H.264, which every browser plays; returns their number and how many a second.

    `fps_of` is called after the first frame. A GIF that would be too fast leaves some out.
    """
    first, is_gif = next(frames), path.suffix.lower() == ".gif"
    every = max(1, math.ceil(fps_of() / _GIF_MAX_FPS)) if is_gif else 1
    fps, count, written = fps_of() / every, 0, 0
    with TemporaryDirectory() as folder:
        film, palette = Path(folder, "film.mp4") if is_gif else path, Path(folder, "palette.png")
        # The index at the front: browsers then play the file while it loads.
        options: dict[str, Any] = {"quality": 7, "output_params": ["-movflags", "+faststart"]}
        # First without loss: palettes for each frame tripled the size of a game of Breakout.
        if is_gif:
            options = {"codec": "libx264rgb", "pix_fmt_out": "rgb24", "quality": None,
                       "output_params": ["-qp", "0", "-preset", "ultrafast"]}
        pipe = imageio_ffmpeg.write_frames(str(film), (first.shape[1], first.shape[0]), fps=fps,
                                           macro_block_size=1, ffmpeg_log_level="quiet", **options)
        try:
            pipe.send(None)  # starts ffmpeg
        except (OSError, RuntimeError) as error:  # the wheel for this machine may contain no ffmpeg
            raise ConfigError(f"cannot start ffmpeg ({error}): pip install imageio-ffmpeg where it has a wheel, or set "
                              "IMAGEIO_FFMPEG_EXE to an ffmpeg of your own") from None
        try:
            for frame in islice(chain([first], frames), 0, None, every):
                count += 1
                pipe.send(frame)
            pipe.close()
            if is_gif:
                ffmpeg = (imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-nostdin", "-y", "-i",
                          film)
                subprocess.run([*ffmpeg, "-vf", "palettegen", palette], check=True)
                subprocess.run([*ffmpeg, "-i", palette, "-lavfi", _USE_PALETTE, path], check=True)
        except (OSError, subprocess.CalledProcessError):
            path.write_bytes(b"")  # ffmpeg has ended
        finally:
            pipe.close()
        with contextlib.suppress(RuntimeError):
            written = imageio_ffmpeg.count_frames_and_secs(str(path))[0]
    if written != count:
        raise VantageError(f"ffmpeg wrote {written} of {count} frames; is the disk full? Free "
                           "space, or choose another output")
    return count, fps
