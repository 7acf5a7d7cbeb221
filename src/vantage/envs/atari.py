"""Atari games: emulators that follow a protocol, ale_py's native vector or single ones under Gymnasium's wrappers.
Episodes, FIRE and lives are in `vector_env`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py import AtariEnv, AtariVectorEnv, roms
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vantage.config_groups import EnvConfig
from vantage.envs.ids import AtariId
from vantage.envs.interface import Array, Info, Obs, Outcome, Seeds, Traits
from vantage.envs.options import EnvOptions, Margins, frames_pooled, in_words, margins_of, mean_of, subset_of
from vantage.envs.vector_env import FIRE
from vantage.envs.wrappers import FrameSkip, Resized, Start, shrink
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.system import cores_for

FRAME_SKIP = 4
SIDE = 84
MAX_FRAMES = 108_000
MOST_FRAMES = 2**31 - 1
"""Limit of ale_py's counter of an episode's frames."""
FRAMES_PER_SECOND = 60  # of an NTSC console
# A seeded reset reloads the ROM: 80-145 ms instead of 3-5 ms. At one in 20,000 steps that is below 1% of the time.
RESEED_STEPS = 20_000
# 400 against 320 microseconds of a core's time, Pong, max_frames=3, ale-py 0.12.1.
SLOWER = "which take 1.3 times the time of a core, use one core alone, and do not step while the network computes"


@dataclass(frozen=True, slots=True)
class Play:
    """How a game is played and shown, with all defaults filled in."""

    atari: AtariId
    skip: tuple[int, int]
    pooled: int
    """An observation is the maximum over this many of a step's last frames."""
    margins: Margins | None
    """Taken off the screen."""
    size: tuple[int, int]
    gray: bool
    random_start: int
    max_steps: int
    """Time limit of an episode in steps."""

    @classmethod
    def of(cls, atari: AtariId, options: EnvOptions, max_episode_steps: int) -> Play:
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
        """Options that ale_py's vector of emulators does not support, in words."""
        wanted = {f"frame_skip={in_words(self.skip)}": self.skip[0] != self.skip[1],
                  f"max_frames={self.pooled}": self.pooled > 2, f"random_start={self.random_start}": self.random_start}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an observation: [C, H, W]."""
        return (1 if self.gray else 3, *self.size)


class NativeEmulators:
    """ale_py's vector of emulators in C++, stepped by threads."""

    def __init__(self, play: Play, num_envs: int, threads: int) -> None:
        protocol = play.atari.protocol
        height, width = play.size if play.margins is None else screen_of(play.atari.game)
        self.vector = AtariVectorEnv(
            play.atari.game, num_envs, num_threads=min(num_envs, threads), stack_num=1, grayscale=play.gray,
            frameskip=play.skip[0], maxpool=play.pooled == 2, noop_max=protocol.noop_max, img_height=height,
            img_width=width, repeat_action_probability=protocol.sticky, full_action_space=protocol.full_actions,
            reward_clipping=False, use_fire_reset=False, episodic_life=False, life_loss_info=False,
            autoreset_mode=AutoresetMode.NEXT_STEP, max_num_frames_per_episode=play.max_steps * play.skip[0])
        self.actions: tuple[Any, ...] = tuple(self.vector.ale.get_action_set())
        self.send, self.close = self.vector.send, self.vector.close
        self._show = _reshape(play)

    def reset(self, seeds: list[int], which: Array) -> tuple[Array, Info]:
        obs, info = self.vector.reset(seed=np.array(seeds)[which], options={"reset_mask": which})
        return (obs if self._show is None else self._show(obs)), info

    def receive(self) -> Outcome:
        obs, rewards, terminated, truncated, info = self.vector.recv()
        return obs if self._show is None else self._show(obs), rewards, terminated, truncated, info


class WrappedEmulators:
    """Single emulators under Gymnasium's wrappers, one stepped after the other in this process."""

    def __init__(self, play: Play, num_envs: int, *, rendered: bool = False) -> None:
        self.vector = SyncVectorEnv([lambda: _wrapped(play, rendered=rendered)] * num_envs,
                                    autoreset_mode=AutoresetMode.NEXT_STEP)
        single: Any = self.vector.envs[0].unwrapped
        self.actions: tuple[Any, ...] = tuple(single._action_set)
        self.close = self.vector.close
        self._sent: Array = np.zeros(num_envs, np.int64)

    def reset(self, seeds: list[int], which: Array) -> tuple[Array, Info]:
        result: tuple[Array, Info] = self.vector.reset(seed=list(seeds), options={"reset_mask": which.copy()})
        return result

    def send(self, actions: Array) -> None:
        self._sent = actions

    def receive(self) -> Outcome:
        return self.vector.step(self._sent)


class Emulators:
    """B games under a protocol and the options of `config`."""

    seeds_itself, exact = False, True

    def __init__(self, config: EnvConfig, atari: AtariId, seeds: Seeds, *, num_envs: int, first_env: int = 0,
                 threads: int = 0, rendered: bool = False) -> None:
        _check(config)
        options = EnvOptions.of(config)
        atari = _with_overrides(atari, options)
        play = Play.of(atari, options, config.max_episode_steps)
        threads = min(num_envs, cores_for(threads))
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
        self.emulators: NativeEmulators | WrappedEmulators = (
            WrappedEmulators(play, num_envs, rendered=rendered) if rendered or play.beyond_native
            else NativeEmulators(play, num_envs, threads))
        actions = self.emulators.actions
        # As baselines' FireResetEnv: where FIRE is the second of at least three actions.
        fires = bool(atari.protocol.fire and len(actions) >= 3 and actions[FIRE] == ale_py.Action.FIRE)
        if options.fire_on_reset and not fires:
            raise ConfigError(f"fire_on_reset has no effect on {config.id}, which does not have FIRE as the second of "
                              "its actions; leave it out")
        meanings = tuple(action.name for action in actions)
        subset = subset_of(options.action_subset, meanings)
        names = tuple(meanings[i] for i in subset)
        frames_per_step = mean_of(play.skip)
        self.traits = Traits(
            EnvSpec(ArraySpec("image", play.shape), ActionSpec("discrete", (len(subset),))),
            (*_describe(play, len(meanings), fires=fires),
             *((f"actions chosen from: {', '.join(names)}",) * (len(subset) < len(meanings))),
             *_describe_path(play, threads)),
            frames_per_step=frames_per_step, longest_game=int(MAX_FRAMES // frames_per_step),
            fps=FRAMES_PER_SECOND / frames_per_step, action_names=names, actions=np.array(subset, np.int64),
            fires=fires, life_signal=atari.protocol.life_signal, reseed_steps=RESEED_STEPS, drawn=rendered)
        self._seeds, self._first_env = seeds, first_env
        self.send, self.receive, self.close = self.emulators.send, self.emulators.receive, self.emulators.close

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        return self.emulators.reset([self._seeds.of(self._first_env + i, max(0, episode))
                                     for i, episode in enumerate(episodes.tolist())], which)

    @property
    def single(self) -> gym.Env[Any, Any]:
        assert isinstance(self.emulators, WrappedEmulators)
        return self.emulators.vector.envs[0]


def _wrapped(play: Play, *, rendered: bool = False) -> gym.Env[Any, Any]:
    """One emulator. Rewards of the actions with which an episode starts are not counted."""
    protocol = play.atari.protocol
    env: gym.Env[Any, Any] = AtariEnv(
        play.atari.game, frameskip=1, obs_type="grayscale" if play.gray else "rgb",
        repeat_action_probability=protocol.sticky, full_action_space=protocol.full_actions,
        render_mode="rgb_array" if rendered else None)
    env = Start(env, noop_max=protocol.noop_max, random_start=play.random_start)
    env = FrameSkip(env, play.skip, play.pooled)
    env = Resized(env, play.margins, play.size)
    return gym.wrappers.TimeLimit(env, play.max_steps)


def _reshape(play: Play) -> Callable[[Array], Array] | None:
    """From ale_py's [B, 1, H, W] or [B, 1, H, W, 3], whole screens if they are cropped, to [B, C, H, W]."""
    if play.margins is None:
        return None if play.gray else lambda obs: np.ascontiguousarray(obs[:, 0].transpose(0, 3, 1, 2))
    show = shrink(play.margins, play.size)

    def crop(obs: Array) -> Array:
        images = np.stack([show(screen) for screen in obs[:, 0]])
        return images[:, None] if play.gray else np.ascontiguousarray(images.transpose(0, 3, 1, 2))

    return crop


@lru_cache
def screen_of(game: str) -> tuple[int, int]:
    """Height and width of a game's screen."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    ale = ale_py.ALEInterface()
    path: Any = roms.get_rom_path(game)
    ale.loadROM(path)
    height, width = ale.getScreenDims()
    return height, width


def _describe(play: Play, num_actions: int, *, fires: bool) -> tuple[str, str]:
    protocol, skip = play.atari.protocol, in_words(play.skip)
    switches = (f"sticky actions {protocol.sticky:g}" if protocol.sticky else "no sticky actions",
                f"0 to {protocol.noop_max - 1} no-ops at a reset" if protocol.noop_max else "no no-op starts",
                *((f"then 0 to {play.random_start} random actions",) * bool(play.random_start)),
                f"{'all' if protocol.full_actions else 'minimal'} actions ({num_actions})",
                "FIRE pressed after a reset and a lost life" if fires else "FIRE not pressed",
                "a lost life ends the bootstrap in training" if protocol.life_signal else "no life signal")
    shown = (f"image {'x'.join(map(str, play.shape))}", "gray" if play.gray else "in colour",
             f"maximum of the last {play.pooled} of {skip} frames" if play.pooled > 1 else f"last of {skip} frames")
    return f"Atari protocol {protocol.name}: {', '.join(switches)}", f"observations: {', '.join(shown)}"


def _describe_path(play: Play, threads: int) -> tuple[str, ...]:
    limit = f"time limit {play.max_steps} steps ({play.max_steps * mean_of(play.skip):g} frames)"
    if play.beyond_native:
        return (f"{', '.join(play.beyond_native)}: leaves ALE's native path for Gymnasium's wrappers, {SLOWER}", limit,
                "emulators in this process, stepped one after the other")
    cost = "crop: this process cuts and resizes the whole screens of native emulators, at almost no cost"
    return (*((cost,) * (play.margins is not None)), limit,
            f"emulators in this process, stepped by {threads} thread{'s' * (threads > 1)}")


def _check(config: EnvConfig) -> None:
    if config.vector != "sync":
        raise ConfigError(f"vector={config.vector} is not for Atari, whose emulators run in threads; leave it sync")
    if config.env_options:
        raise ConfigError(f"env_kwargs={config.env_kwargs} is not for Atari games: how they are played and shown is "
                          "atari_protocol, screen_size, grayscale, frame_skip, noop_max and the other options of "
                          "environments")


def _with_overrides(atari: AtariId, options: EnvOptions) -> AtariId:
    """The protocol, changed by the options."""
    changes: dict[str, Any] = {"noop_max": options.noop_max, "fire": options.fire_on_reset}
    changes = {key: value for key, value in changes.items() if value is not None}
    return AtariId(atari.game, dataclasses.replace(atari.protocol, **changes))
