"""The colour screen of an Atari game, which the gray emulator that scores it does not give.

A second emulator plays the same game frame by frame, from the same seeds and actions, and every step is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ale_py import AtariVectorEnv

from vantage.envs.interface import Array
from vantage.errors import EnvError

# ITU-R BT.601, which ALE's gray palette follows: equal on every pixel of 7 games.
LUMINANCE = np.array([0.299, 0.587, 0.114])

# Area means of both emulators round once each, to one gray level: 0.5 was the largest difference over 10,000 steps.
TOLERANCE = 1.0


class FilmedEmulator:
    """An `AtariVectorEnv` of one game and its twin, driven as one. `frames` are the latest step's last `pooled`."""

    def __init__(self, emulator: AtariVectorEnv, twin: AtariVectorEnv, frame_skip: int, pooled: int) -> None:
        """`twin` has colour, no frame skip and the screen's own size, and is else like `emulator`."""
        self.ale = emulator.ale
        self.frames: tuple[Array, ...] = ()
        """RGB [H, W, 3], one after a reset, else the last that the step emulated; the policy sees their maximum."""
        self.played = 0
        """How many frames the latest step emulated; 0 for a reset."""
        self._emulator, self._twin, self._frame_skip, self._pooled = emulator, twin, frame_skip, pooled
        shape = emulator.single_observation_space.shape
        assert shape is not None and twin.single_observation_space.shape is not None
        height, width = twin.single_observation_space.shape[1:3]
        self._small = shape[1:3]
        # A larger picture is not made of area means, and one in colour has a maximum for each of them.
        self._comparable = len(shape) == 3 and height >= shape[1] and width >= shape[2]
        self._over = False
        self._sent: Array = np.zeros(1, np.int64)

    @property
    def screen(self) -> Array:
        """RGB [H, W, 3]: of `frames` the brightest pixels, which are those that the policy sees."""
        return brightest(self.frames)

    def reset(self, *, seed: Array, options: dict[str, Any]) -> tuple[Array, dict[str, Array]]:
        """Reset both; as `AtariVectorEnv.reset`."""
        if not options["reset_mask"].all():
            raise ValueError("a filmed emulator is one alone: reset_mask leaves it out")
        obs, info = self._emulator.reset(seed=seed, options=options)
        pictures, twin_info = self._twin.reset(seed=seed, options=options)
        self._over, self.frames, self.played = False, (pictures[0, 0].copy(),), 0
        self._compare(_counters(info), _counters(twin_info), obs)
        return obs, info

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
        """`send`, then `recv`."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Array) -> None:
        """Let the emulator begin its step; the twin takes it in `recv`."""
        self._sent = actions
        self._emulator.send(actions)

    def recv(self) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
        """As `AtariVectorEnv.recv`; EnvError where the twin played anything else."""
        obs, rewards, terminated, truncated, info = self._emulator.recv()
        resetting = self._over
        seen, reward, ended, last = self._play_twin(1 if resetting else self._frame_skip)
        self._over = bool(terminated[0] or truncated[0])
        self.frames, self.played = tuple(seen[-self._pooled:]), 0 if resetting else len(seen)
        # The gray picture of a step that ended in the middle of its frames is in part of the step before.
        self._compare({"reward": int(rewards[0]), "over": self._over, **_counters(info)},
                      {"reward": reward, "over": ended, **_counters(last)}, None if self._over else obs)
        return obs, rewards, terminated, truncated, info

    def close(self) -> None:
        """Let go of both."""
        self._emulator.close()
        self._twin.close()

    def _play_twin(self, count: int) -> tuple[list[Array], int, bool, dict[str, Array]]:
        """Up to `count` frames: their pictures, the sum of rewards, whether the game ended, the counters."""
        seen: list[Array] = []
        reward, over = 0, False
        info: dict[str, Array] = {}
        while len(seen) < count and not over:
            pictures, rewards, terminated, truncated, info = self._twin.step(self._sent)
            seen.append(pictures[0, 0].copy())
            reward += int(rewards[0])
            over = bool(terminated[0] or truncated[0])
        return seen, reward, over, info

    def _compare(self, scored: Mapping[str, int], shown: Mapping[str, int], obs: Array | None) -> None:
        if scored != shown:
            raise EnvError(f"the colour screen left the game that is scored: {dict(shown)} against {dict(scored)}")
        # A PAL console loses its colours at an odd number of lines (Air Raid's first second); ALE's two palettes then
        # differ by up to 100 gray levels.
        if obs is None or not self._comparable or any(_is_colourless(frame) for frame in self.frames):
            return
        rows, columns = self._small
        small = _area_means(_area_means(gray(self.screen), rows).T, columns).T
        difference = float(np.abs(small - obs[0, 0]).max())
        if difference > TOLERANCE:
            raise EnvError(f"the colour screen left the game that is scored: at frame {scored['frame_number']} a pixel "
                           f"of what the policy sees differs by {difference:.0f} gray levels")


def gray(picture: Array) -> Array:
    """RGB [H, W, 3] as ALE's gray levels [H, W]."""
    return np.asarray(np.rint(picture @ LUMINANCE), np.uint8)


def brightest(frames: tuple[Array, ...]) -> Array:
    """Of the frames [H, W, 3], at each pixel the one of the highest gray level, the last where they are equal."""
    result = frames[-1]
    for frame in frames[:-1]:
        result = np.where((gray(frame) > gray(result))[..., None], frame, result)
    return result


def _is_colourless(picture: Array) -> bool:
    return bool((picture == picture[..., :1]).all())


def film(make: Callable[..., AtariVectorEnv], screen: tuple[int, int], frame_skip: int, pooled: int) -> FilmedEmulator:
    """The emulator that `make` builds and its twin; `screen` is the height and width of the game's own picture."""
    height, width = screen
    twin = make(grayscale=False, maxpool=False, frameskip=1, img_height=height, img_width=width)
    return FilmedEmulator(make(), twin, frame_skip, pooled)


def _counters(info: Mapping[str, Array]) -> dict[str, int]:
    return {key: int(info[key][0]) for key in ("lives", "frame_number", "episode_frame_number")}


def _area_means(picture: Array, wanted: int) -> Array:
    """[wanted, W] of [H, W]: each new row the mean of the old ones, or parts of them, that it covers."""
    size = len(picture)
    edges = np.linspace(0, size, wanted + 1)
    whole = np.minimum(edges.astype(np.int64), size - 1)
    sums = np.cumsum(picture, axis=0, dtype=np.float64) - picture  # of all rows above
    up_to = sums[whole] + (edges - whole)[:, None] * picture[whole]
    return np.asarray(np.diff(up_to, axis=0) * (wanted / size))
