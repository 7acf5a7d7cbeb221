"""Vectors of Atari emulators: ale_py's in C++, and, for what it cannot do, single ones under Gymnasium's wrappers.

Both are stepped alike and know nothing of episodes' seeds, FIRE or lives, which are `atari`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import ale_py
import gymnasium as gym
import numpy as np
from ale_py import AtariEnv, AtariVectorEnv, roms
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vantage.envs.film import FilmedEmulator, film
from vantage.envs.ids import AtariId
from vantage.envs.interface import Array
from vantage.envs.options import EnvOptions, Margins, frames_pooled, in_words, margins_of, mean_of
from vantage.envs.wrappers import FrameSkip, Shown, Start, shrink
from vantage.errors import ConfigError

FRAME_SKIP = 4
SIDE = 84
MAX_FRAMES = 108_000
MOST_FRAMES = 2**31 - 1
"""That ale_py's counter of an episode holds."""

Outcome = tuple[Array, Array, Array, Array, dict[str, Any]]


class Emulators(Protocol):
    """What `AtariVectorEnv` offers, of which this much is used: NEXT_STEP autoreset, lives in `info`."""

    def reset(self, *, seed: Array, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        """Reset where `options["reset_mask"]` is True, with a seed for each of these."""

    def send(self, actions: Array) -> None:
        """Begin a step."""

    def recv(self) -> Outcome:
        """Observations [B, C, H, W], rewards, terminated, truncated, info."""

    def step(self, actions: Array) -> Outcome:
        """`send`, then `recv`."""

    def close(self) -> None:
        """Let go of the emulators."""


@dataclass(frozen=True, slots=True)
class Play:
    """How a game is played and shown, all decided."""

    atari: AtariId
    skip: tuple[int, int]
    pooled: int
    """The maximum over this many of a step's last frames."""
    margins: Margins | None
    """Taken off the screen."""
    size: tuple[int, int]
    gray: bool
    random_start: int
    max_steps: int
    """Time limit of an episode in steps."""

    @classmethod
    def of(cls, atari: AtariId, options: EnvOptions, max_episode_steps: int) -> Play:
        """What the protocol of `atari` and the options come to."""
        skip = options.frame_skip or (FRAME_SKIP, FRAME_SKIP)
        if max_episode_steps > MOST_FRAMES // skip[1]:
            raise ConfigError(f"max_episode_steps={max_episode_steps} of {in_words(skip)} frames are more than the "
                              f"emulators count; give at most {MOST_FRAMES // skip[1]:,}")
        margins = None if options.crop is None else margins_of(options.crop, atari.game, screen_of(atari.game))
        return cls(atari, skip, frames_pooled(options, skip, 2), margins,
                   options.screen_size or (SIDE, SIDE), options.grayscale is not False, options.random_start,
                   max_episode_steps or int(MAX_FRAMES // mean_of(skip)))

    @property
    def beyond_native(self) -> tuple[str, ...]:
        """What ale_py's vector of emulators cannot do, in words."""
        wanted = {f"frame_skip={in_words(self.skip)}": self.skip[0] != self.skip[1],
                  f"max_frames={self.pooled}": self.pooled > 2, f"random_start={self.random_start}": self.random_start}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an observation: [C, H, W]."""
        return (1 if self.gray else 3, *self.size)


class Film(Protocol):
    """What a person sees of the only game."""

    @property
    def frames(self) -> tuple[Array, ...]:
        """RGB [H, W, 3]: those of the latest step that the policy sees the maximum of; one after a reset."""

    @property
    def played(self) -> int:
        """How many frames the latest step took; 0 for a reset."""

    @property
    def screen(self) -> Array:
        """RGB [H, W, 3]: one picture of them."""


def make_emulators(play: Play, num_envs: int, threads: int, *,
                   rendered: bool = False) -> tuple[Emulators, tuple[Any, ...], Film | None]:
    """Emulators that play so, the ALE actions that they take by number, and with `rendered` their film."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    if play.beyond_native:
        stepped = SteppedEmulators(play, num_envs, rendered=rendered)
        return stepped, stepped.actions, stepped if rendered else None
    make = partial(AtariVectorEnv, play.atari.game, num_envs, **_native(play, min(num_envs, threads)))
    filmed = film(make, screen_of(play.atari.game), play.skip[0], play.pooled) if rendered else None
    native: AtariVectorEnv | FilmedEmulator = filmed or make()
    actions = tuple(native.ale.get_action_set())
    if play.margins is not None:
        return Reshaped(native, _cropped(play.margins, play)), actions, filmed
    return (native if play.gray else Reshaped(native, _channels_first)), actions, filmed


class Reshaped:
    """Native emulators whose observations go through `show`."""

    def __init__(self, native: AtariVectorEnv | FilmedEmulator, show: Callable[[Array], Array]) -> None:
        self._native, self._show = native, show
        self.send, self.close = native.send, native.close

    def reset(self, *, seed: Array, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        obs, info = self._native.reset(seed=seed, options=options)
        return self._show(obs), info

    def recv(self) -> Outcome:
        obs, rewards, terminated, truncated, info = self._native.recv()
        return self._show(obs), rewards, terminated, truncated, info

    def step(self, actions: Array) -> Outcome:
        self.send(actions)
        return self.recv()


class SteppedEmulators:
    """Single emulators under wrappers, one stepped after the other in this process; with `rendered` it is a `Film`."""

    def __init__(self, play: Play, num_envs: int, *, rendered: bool = False) -> None:
        make = partial(_wrapped, play, rendered=rendered)
        self._vector = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        single: Any = self._vector.envs[0].unwrapped
        self.actions: tuple[Any, ...] = tuple(single._action_set)
        self._ale = single.ale
        self._screens = _screens_of(self._vector.envs[0]) if rendered else None
        self._lives = np.zeros(num_envs, np.int64)
        self._sent: Array = np.zeros(num_envs, np.int64)

    @property
    def frames(self) -> tuple[Array, ...]:
        """The last frames of the first game's latest step, RGB [H, W, 3]."""
        assert self._screens is not None
        return tuple(self._screens.frames)

    @property
    def played(self) -> int:
        """How many frames that step took; 0 for a reset."""
        assert self._screens is not None
        return self._screens.played

    @property
    def screen(self) -> Array:
        """The last frame."""
        screen: Array = self._ale.getScreenRGB()
        return screen

    def reset(self, *, seed: Array, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        which = options["reset_mask"]
        seeds: list[int | None] = [None] * len(which)
        for env, value in zip(np.flatnonzero(which).tolist(), seed.tolist(), strict=True):
            seeds[env] = value
        obs, info = self._vector.reset(seed=seeds, options={"reset_mask": which.copy()})
        self._lives = np.where(which, info["lives"], self._lives)
        return obs, {"lives": self._lives}

    def send(self, actions: Array) -> None:
        self._sent = actions

    def recv(self) -> Outcome:
        if self._screens is not None:
            self._screens.begin()
        obs, rewards, terminated, truncated, info = self._vector.step(self._sent)
        self._lives = info["lives"]
        return obs, rewards, terminated, truncated, {"lives": self._lives}

    def step(self, actions: Array) -> Outcome:
        self.send(actions)
        return self.recv()

    def close(self) -> None:
        self._vector.close()


class _Screens(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps an emulator's last `most` colour screens since `begin`, as those of a step; of a reset the last one."""

    def __init__(self, env: gym.Env[Any, Any], most: int) -> None:
        super().__init__(env)
        self._ale = cast(AtariEnv, env.unwrapped).ale
        self.frames: deque[Array] = deque(maxlen=most)
        self.played = 0

    def begin(self) -> None:
        """A step begins."""
        self.frames.clear()
        self.played = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self.begin()
        self.frames.append(self._ale.getScreenRGB())
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self.frames.append(self._ale.getScreenRGB())
        self.played += 1
        return result


def _screens_of(env: gym.Env[Any, Any]) -> _Screens:
    while not isinstance(env, _Screens):
        assert isinstance(env, gym.Wrapper)
        env = env.env
    return env


def _native(play: Play, threads: int) -> dict[str, Any]:
    """Arguments of `AtariVectorEnv`."""
    protocol = play.atari.protocol
    height, width = play.size if play.margins is None else screen_of(play.atari.game)
    return {"num_threads": threads, "stack_num": 1, "grayscale": play.gray, "frameskip": play.skip[0],
            "maxpool": play.pooled == 2, "noop_max": protocol.noop_max, "img_height": height, "img_width": width,
            "repeat_action_probability": protocol.sticky, "full_action_space": protocol.full_actions,
            "reward_clipping": False, "use_fire_reset": False, "episodic_life": False, "life_loss_info": False,
            "autoreset_mode": AutoresetMode.NEXT_STEP, "max_num_frames_per_episode": play.max_steps * play.skip[0]}


def _wrapped(play: Play, *, rendered: bool = False) -> gym.Env[Any, Any]:
    """One emulator that plays so, and keeps its screens if `rendered`. Rewards of the start are nobody's."""
    protocol = play.atari.protocol
    env: gym.Env[Any, Any] = AtariEnv(
        play.atari.game, frameskip=1, obs_type="grayscale" if play.gray else "rgb",
        repeat_action_probability=protocol.sticky, full_action_space=protocol.full_actions)
    env = Start(env, noop_max=protocol.noop_max, random_start=play.random_start)
    env = FrameSkip(_Screens(env, play.pooled) if rendered else env, play.skip, play.pooled)
    env = Shown(env, play.margins, play.size)
    return gym.wrappers.TimeLimit(env, play.max_steps)


def _channels_first(obs: Array) -> Array:
    """[B, 1, H, W, 3] as [B, 3, H, W]."""
    return np.ascontiguousarray(obs[:, 0].transpose(0, 3, 1, 2))


def _cropped(margins: Margins, play: Play) -> Callable[[Array], Array]:
    """What crops and resizes whole screens [B, 1, H, W] or [B, 1, H, W, 3] as `play` says."""
    show = shrink(margins, play.size)

    def apply(obs: Array) -> Array:
        images = np.stack([show(screen) for screen in obs[:, 0]])
        return images[:, None] if play.gray else np.ascontiguousarray(images.transpose(0, 3, 1, 2))

    return apply


@lru_cache
def screen_of(game: str) -> tuple[int, int]:
    """Height and width of a game's screen."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    ale = ale_py.ALEInterface()
    path: Any = roms.get_rom_path(game)
    ale.loadROM(path)
    height, width = ale.getScreenDims()
    return height, width
