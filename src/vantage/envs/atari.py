"""Atari games by ale_py's native vector, or single emulators under Gymnasium's wrappers.

Episodes, FIRE and lives are in `vector_env`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vantage._host.extras import needs
from vantage._host.system import available_cores
from vantage.envs.config import EnvConfig
from vantage.envs.ids import AtariId, AtariProtocol
from vantage.envs.interface import (
    RESEED_STEPS,
    Array,
    Info,
    Obs,
    Outcome,
    Seeds,
    Simulators,
)
from vantage.envs.options import Picture, PlayOptions, margins_of, numbers
from vantage.envs.short_episodes import SideBySide, keep_if_shorter
from vantage.envs.vector_env import FIRE
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

with needs("atari"):
    import ale_py
    from ale_py import AtariEnv, AtariVectorEnv

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner

FRAME_SKIP = 4
SIDE = 84
MAX_FRAMES = 108_000
MOST_FRAMES = 2**31 - 1  # of ale_py's counter of an episode's frames
FRAMES_PER_SECOND = 60  # of an NTSC console


@dataclass(frozen=True, slots=True)
class AtariGame:
    """A game, its rules and its display, with defaults filled in."""

    rom: str
    protocol: AtariProtocol
    play: PlayOptions
    picture: Picture

    @classmethod
    def of(cls, atari: AtariId, config: EnvConfig) -> AtariGame:
        """The game of `atari` with the options of `config`."""
        protocol = atari.protocol
        if config.noop_max is not None:
            protocol = replace(protocol, noop_max=config.noop_max)
        if config.fire_on_reset is not None:
            protocol = replace(protocol, fire=config.fire_on_reset)
        margins = (0, 0, 0, 0)
        if config.crop != "none":
            margins = margins_of(config, atari.game, screen_of(atari.game))
        size = numbers(config, "screen_size") or (SIDE, SIDE)
        picture = Picture(margins, size, gray=config.grayscale is not False)
        play = PlayOptions.of(config, picture, skip=FRAME_SKIP, pooled=2,
                              noop_max=protocol.noop_max, max_frames=MAX_FRAMES)
        return cls(atari.game, protocol, play, picture)

    def cut_after(self, steps: int) -> AtariGame:
        """This game with a time limit of `steps`."""
        return replace(self, play=replace(self.play, max_steps=steps))

    @property
    def is_native(self) -> bool:
        """Whether ale_py's native vector supports the options."""
        play = self.play
        return play.skip[0] == play.skip[1] and play.pooled <= 2 and not play.random_start

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an observation, [C, H, W]."""
        assert self.picture.size is not None
        return (1 if self.picture.gray else 3, *self.picture.size)


def native_emulators(game: AtariGame, num_envs: int, threads: int) -> AtariVectorEnv:
    """ale_py's vector of emulators in C++, stepped by threads.

    It returns whole screens if they are cropped later.
    """
    protocol = game.protocol
    play = game.play
    height, width = screen_of(game.rom) if any(game.picture.margins) else game.shape[1:]
    return AtariVectorEnv(
        game.rom,
        num_envs,
        num_threads=threads,
        stack_num=1,
        grayscale=game.picture.gray,
        frameskip=play.skip[0],
        maxpool=play.pooled == 2,
        noop_max=protocol.noop_max,
        img_height=height,
        img_width=width,
        repeat_action_probability=protocol.sticky,
        full_action_space=protocol.full_actions,
        reward_clipping=False,
        use_fire_reset=False,
        episodic_life=False,
        life_loss_info=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        max_num_frames_per_episode=min(play.max_steps * play.skip[0], MOST_FRAMES))


def wrapped_emulator(game: AtariGame, *, rendered: bool = False) -> gym.Env[Any, Any]:
    """One emulator. Rewards of the actions that start an episode do not count."""
    env = AtariEnv(
        game.rom,
        frameskip=1,
        obs_type="grayscale" if game.picture.gray else "rgb",
        repeat_action_probability=game.protocol.sticky,
        full_action_space=game.protocol.full_actions,
        render_mode="rgb_array" if rendered else None)
    return gym.wrappers.TimeLimit(game.play.wrap(env), game.play.max_steps)


class AtariGames:
    """A batch of emulators of one game; those marked `short` [B] have a time limit of their own.

    ale_py's native vector where it can play and show the game, else single emulators under
    Gymnasium's wrappers.
    """

    def __init__(self, game: AtariGame, seeds: Seeds, *, short: Array, short_steps: int,
                 threads: int, rendered: bool) -> None:
        self._game = game
        self._seeds = seeds
        self._threads = threads
        self._rendered = rendered
        self._is_native = game.is_native and not rendered
        vectors = []
        for played, places in ((game, ~short), (game.cut_after(short_steps), short)):
            if places.any():
                vectors.append((self._vector(played, int(places.sum())), places))
        self._batch = SideBySide(vectors)
        self.close = self._batch.close

    def _vector(self, game: AtariGame, num_envs: int) -> Any:
        if self._is_native:
            return native_emulators(game, num_envs, min(num_envs, self._threads))
        build = partial(wrapped_emulator, game, rendered=self._rendered)
        return SyncVectorEnv([build] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, episodes: Array | None, which: Array) -> tuple[Obs, Info]:
        """Reset where `which` is True, with the seeds of `episodes`; None seeds nothing."""
        seeds = None if episodes is None else np.array(self._seeds.of_all(episodes))
        obs, info = self._batch.reset(seeds, which, compact=self._is_native)
        return self._images(obs), info

    def step(self, actions: Array) -> Outcome:
        obs, rewards, terminated, truncated, info = self._batch.step(actions)
        return self._images(obs), rewards, terminated, truncated, info

    def first(self) -> gym.Env[Any, Any]:
        """The first emulator, if it is a single one."""
        env: gym.Env[Any, Any] = self._batch.vectors[0][0].envs[0]
        return env

    @property
    def meanings(self) -> tuple[str, ...]:
        """The names of the actions, such as UPFIRE."""
        vector = self._batch.vectors[0][0]
        if self._is_native:
            actions = vector.ale.get_action_set()
        else:
            actions = vector.envs[0].unwrapped._action_set
        return tuple(action.name for action in actions)

    def forgets_games(self) -> bool:
        """Whether the next game depends only on the number of resets since a seeded one."""
        # Then only no-ops are drawn, once a reset; sticky actions are drawn at every frame.
        return (self._is_native and not self._game.protocol.sticky
                and forgets_games(self._game.rom))

    def simulators(self, *, fires: bool, reseed_steps: int) -> Simulators:
        """The emulators with all that `Environments` needs to know of them."""
        game = self._game
        meanings = self.meanings
        frames = game.play.frames_per_step
        return Simulators(
            spec=EnvSpec(ArraySpec("image", game.shape), ActionSpec("discrete", (len(meanings),))),
            notes=_notes(game, self._threads, fires=fires),
            reset=self.reset,
            step=self.step,
            info=self._batch.info,
            close=self.close,
            forgets_games=self.forgets_games,
            single=None if self._is_native else self.first,
            reseed_steps=reseed_steps,
            frames_per_step=frames,
            longest_game=game.play.max_steps,
            fps=FRAMES_PER_SECOND / frames,
            action_names=meanings,
            fires=fires,
            life_signal=game.protocol.life_signal)

    def _images(self, obs: Array) -> Array:
        """Images [B, C, H, W] of what the vector shows."""
        picture = self._game.picture
        if self._is_native:
            obs = obs[:, 0]
            if any(picture.margins):
                obs = np.stack([picture(screen) for screen in obs])
        if picture.gray:
            return obs[:, None]
        return np.ascontiguousarray(obs.transpose(0, 3, 1, 2))


def atari_environments(config: EnvConfig, atari: AtariId, seeds: Seeds, *, num_envs: int,
                       short: Array, threads: int, rendered: bool,
                       reseed_steps: int = RESEED_STEPS) -> Simulators:
    """Games with a protocol and the options of `config`; `short` [B] bool marks short episodes."""
    for name, why in (("vector", "run in threads"),
                      ("env_kwargs", "are set by options such as screen_size"),
                      ("reset_options", "begin as the emulator does"),
                      ("self_play", "have one player")):
        value = getattr(config, name)
        if value != getattr(EnvConfig, name):
            raise ConfigError(f"{name}={value} has no effect on Atari, whose games {why}; leave it "
                              "out")
    game = AtariGame.of(atari, config)
    threads = min(num_envs, threads or available_cores())
    keep_if_shorter(short, config, game.play.max_steps)
    games = AtariGames(game, seeds, short=short, short_steps=config.short_episode_steps,
                       threads=threads, rendered=rendered)
    meanings = games.meanings
    # As baselines' FireResetEnv: where FIRE is the second of at least three actions.
    fires = game.protocol.fire and len(meanings) >= 3 and meanings[FIRE] == "FIRE"
    if config.fire_on_reset and not fires:
        games.close()
        raise ConfigError(f"fire_on_reset has no effect on {config.id}, which does not have FIRE "
                          "as the second of its actions; leave it out")
    return games.simulators(fires=fires, reseed_steps=reseed_steps)


@lru_cache
def forgets_games(game: str) -> bool:
    """Whether a reset leaves the console in the same state whatever was played before. Takes 0.3 s.

    Games that do not clear their memory, such as Ice Hockey, do not: a quarter of 104 with ale-py
    0.12.1.
    """
    console = AtariEnv(game, frameskip=1, repeat_action_probability=0.0).unwrapped.ale
    actions = console.getMinimalActionSet()
    states = set()
    for frames in (5000, 711, 352):
        for action in np.random.default_rng(frames).integers(len(actions), size=frames):
            console.act(actions[action])
        console.reset_game()
        memory = console.getRAM().tobytes()
        for i in range(60):
            console.act(actions[i % len(actions)])
        states.add((memory, console.getRAM().tobytes(), console.getScreen().tobytes()))
    return len(states) == 1


@lru_cache
def screen_of(game: str) -> tuple[int, int]:
    """Height and width of a game's screen."""
    height, width = AtariEnv(game, obs_type="grayscale").observation_space.shape
    return height, width


def _notes(game: AtariGame, threads: int, *, fires: bool) -> tuple[str, ...]:
    """How the game is played, in words."""
    protocol = game.protocol
    play = game.play
    rules = [
        f"sticky actions {protocol.sticky:g}" if protocol.sticky else "no sticky actions",
        f"0 to {protocol.noop_max - 1} no-ops at a reset" if protocol.noop_max
        else "no no-op starts",
        "all actions" if protocol.full_actions else "minimal actions",
        "FIRE pressed after a reset and a lost life" if fires else "FIRE not pressed",
        "a lost life ends the bootstrap in training" if protocol.life_signal
        else "no life signal",
    ]
    # 400 against 320 microseconds of a core's time, Pong, max_frames=3, ale-py 0.12.1.
    where = ("on one core by Gymnasium's wrappers, as these frame_skip, max_frames and "
             "random_start leave ALE's native path")
    if game.is_native:
        where = f"in {threads} threads"
    frames = "-".join(map(str, sorted(set(play.skip))))
    return (f"Atari protocol {protocol.name}: {', '.join(rules)}",
            f"steps of {frames} frames, shown as the maximum of the last {play.pooled}",
            f"time limit {play.max_steps} steps", f"emulators stepped {where}")
