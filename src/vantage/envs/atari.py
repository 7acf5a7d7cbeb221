"""Atari games on ale_py's C++ vector of emulators: 84x84 gray single frames. Other environments have `vector`."""

from __future__ import annotations

from functools import partial
from typing import Any

import ale_py
import numpy as np
from ale_py import AtariVectorEnv, roms
from gymnasium.vector import AutoresetMode

from vantage.config import Config, nearest
from vantage.envs.film import FilmedEmulator, film, gray
from vantage.envs.ids import AtariId
from vantage.envs.interface import (
    Array,
    First,
    History,
    Record,
    Step,
    check_actions,
    check_record,
    episode_seed,
    learnt_rewards,
    same_obs,
)
from vantage.errors import ConfigError
from vantage.machine import cores_for
from vantage.specs import ActionSpec, ArraySpec, EnvSpec, Episode

# A seeded reset loads the ROM anew: 80-145 ms against 3-5 ms. At one in 20,000 steps that is below 1% of the time.
RESEED_STEPS = 20_000
FRAME_SKIP = 4
FRAMES_PER_SECOND = 60  # of an NTSC console
SIDE = 84
MAX_FRAMES = 108_000
OPTIONS = ("img_height", "img_width")
FIRE = 1


class AtariEnvironments:
    """B games. `is_first`, `terminated` and `valid` follow from what the emulators report, see `step`.

    Emulators reset themselves in the step after an end. The first reset at least `reseed_steps` after an emulator's
    last seeded one is seeded from the episode's number, so that a record holds a bounded number of actions.
    """

    frames_per_step = FRAME_SKIP
    fps = FRAMES_PER_SECOND / FRAME_SKIP

    def __init__(self, config: Config, atari: AtariId, *, num_envs: int, stream: int, first_env: int = 0,
                 evaluation: bool = False, threads: int = 0, reseed_steps: int = RESEED_STEPS,
                 rendered: bool = False) -> None:
        self._config, self._stream, self._first_env, self._evaluation = config, stream, first_env, evaluation
        self._protocol, self._reseed_steps, self.num_envs = atari.protocol, reseed_steps, num_envs
        make = partial(_emulators, config, atari, num_envs, cores_for(threads))
        self._film = film(make, _screen_size(atari.game), FRAME_SKIP) if rendered else None
        self._env: AtariVectorEnv | FilmedEmulator = self._film or make()
        actions = self._env.ale.get_action_set()
        self.action_names = tuple(action.name for action in actions)
        # As baselines' FireResetEnv: where FIRE is the second of at least three actions.
        self._fires = bool(atari.protocol.fire and len(actions) >= 3 and actions[FIRE] == ale_py.Action.FIRE)
        shape = (1, config.env_options.get("img_height", SIDE), config.env_options.get("img_width", SIDE))
        self.spec = EnvSpec(ArraySpec("image", shape), ActionSpec("discrete", (len(actions),)))
        self.notes = self._describe(atari, shape, len(actions))
        self._history = History(num_envs, self.spec.action)
        self._episode = np.full(num_envs, -1, np.int64)
        self._seeded_episode = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self._score = np.zeros(num_envs, np.float64)
        self._lives = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self._press = np.zeros(num_envs, bool)
        self._obs: Array = np.zeros((num_envs, *shape), np.uint8)
        self._sent: Array = np.zeros(num_envs, np.int64)

    def reset(self, record: Record | None = None) -> First:
        """Begin the next game in every emulator, or go on from `record`."""
        if record is not None:
            return self._restore(record)
        everyone = np.ones(self.num_envs, bool)
        self._start(everyone)
        self._obs, self._lives = self._seed(everyone)
        return First(self._obs, everyone, None)

    def step(self, actions: Array) -> Step:
        """Take one action [B] in every game."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Let the emulators' threads begin a step with one action [B] of every game."""
        check_actions(actions, self.num_envs, self.spec.action)
        self._sent = np.where(self._press, FIRE, actions).astype(np.int64)
        self._env.send(self._sent)

    def receive(self) -> Step:
        """What the step led to; with `over` = terminated | truncated as the emulators report it:

        is_first[t+1] = over[t-1];  life_lost = lives fell & lives > 0 & not a reset step;
        terminated = game over | life_lost, the latter in classic training alone.
        """
        resetting, pressed = self._over, self._press
        obs, raw, terminated, truncated, info = self._env.recv()
        lives = info["lives"].astype(np.int64)
        self._history.append(self._sent)
        self._length += 1
        if resetting.any():
            self._start(resetting)
            due = resetting & (self._history.lengths >= self._reseed_steps)
            if due.any():
                obs, lives = self._seed(due)
        self._score += raw
        life_lost = (lives < self._lives) & (lives > 0) & ~resetting
        self._obs, self._lives, self._over = obs, lives, terminated | truncated
        self._press = (resetting | life_lost) & ~self._over & self._fires
        episodes = tuple(Episode(self._first_env + int(i), float(self._score[i]), int(self._length[i]))
                         for i in np.flatnonzero(self._over))
        if self._protocol.life_signal and not self._evaluation:
            terminated = terminated | life_lost
        rewards = learnt_rewards(raw, self._config, evaluation=self._evaluation)
        return Step(obs, rewards, terminated, resetting, ~(resetting | pressed), None, episodes)

    def record(self) -> dict[str, Array]:
        """All that `reset` needs to go on from here, in arrays alone."""
        arrays = {"episode": self._episode, "seeded_episode": self._seeded_episode, "length": self._length,
                  "score": self._score, "lives": self._lives, "over": self._over, "press": self._press,
                  "obs": self._obs}
        return {key: array.copy() for key, array in arrays.items()} | self._history.record()

    def render(self) -> Array:
        """The game's screen in colour, RGB [H, W, 3]; of the only game, made with `rendered`."""
        assert self._film is not None
        return self._film.screen

    def stages(self) -> tuple[tuple[str, Array], ...]:
        """What becomes of the screen, each picture with its name, up to what the policy is given."""
        assert self._film is not None
        *before, last = self._film.frames
        frames = f"{FRAME_SKIP - 1} and {FRAME_SKIP} of {FRAME_SKIP}" if before else "after a reset"
        size = "x".join(map(str, last.shape[:2]))
        return (*((f"screen, frame {FRAME_SKIP - 1} of {FRAME_SKIP}\nRGB {size}", frame) for frame in before),
                (f"screen, frame {FRAME_SKIP if before else 0} of {FRAME_SKIP}\nRGB {size}", last),
                (f"gray\n{size}", gray(last)), (f"maximum of frames\n{frames}", gray(self._film.screen)))

    def keys_to_action(self) -> None:
        """None: `action_names` tell which keys mean what."""

    def close(self) -> None:
        """Let go of the emulators; a second call does nothing."""
        self._env.close()

    def _restore(self, record: Record) -> First:
        check_record(record, self.record())
        self._history.restore(record)
        self._episode, self._seeded_episode = record["episode"].copy(), record["seeded_episode"].copy()
        self._length, self._score, self._lives = (record[key].copy() for key in ("length", "score", "lives"))
        self._over, self._press = record["over"].copy(), record["press"].copy()
        self._obs, over = self._replay()
        lost = ~same_obs(self._obs, record["obs"]) | (over != self._over)
        if lost.any():
            self._start(lost)
            self._obs, lives = self._seed(lost)
            self._lives = np.where(lost, lives, self._lives)
        return First(self._obs, self._length == 0, None, tuple(self._first_env + int(i) for i in np.flatnonzero(lost)))

    def _replay(self) -> tuple[Array, Array]:
        """Step all emulators through their histories, aligned at the end; who starts later idles until then."""
        lengths = self._history.lengths.copy()
        longest = int(lengths.max())
        obs, _ = self._emulator_reset(np.ones(self.num_envs, bool))
        over = np.zeros(self.num_envs, bool)
        for t in range(longest + 1):
            starting = lengths == longest - t
            if t and starting.any():
                obs, _ = self._emulator_reset(starting)
                over = over & ~starting
            if t < longest:
                obs, _, terminated, truncated, _ = self._env.step(self._history.aligned(longest - t))
                over = terminated | truncated
        return obs, over

    def _start(self, which: Array) -> None:
        """The next game of these emulators has begun."""
        self._episode[which] += 1
        self._length[which] = 0
        self._score[which] = 0.0
        self._over = self._over & ~which
        self._press = np.where(which, self._fires, self._press)

    def _seed(self, which: Array) -> tuple[Array, Array]:
        """Reset these emulators with their episode's seed; observations and lives of all."""
        self._seeded_episode[which] = self._episode[which]
        self._history.restart(which)
        return self._emulator_reset(which)

    def _emulator_reset(self, which: Array) -> tuple[Array, Array]:
        seeds = np.array([episode_seed(self._config.seed, self._stream, self._first_env + i, self._seeded_episode[i])
                          for i in np.flatnonzero(which).tolist()], np.int64)
        obs, info = self._env.reset(seed=seeds, options={"reset_mask": which})
        return obs, info["lives"].astype(np.int64)

    def _describe(self, atari: AtariId, shape: tuple[int, ...], num_actions: int) -> tuple[str, ...]:
        protocol = atari.protocol
        switches = (f"sticky actions {protocol.sticky:g}" if protocol.sticky else "no sticky actions",
                    f"0 to {protocol.noop_max - 1} no-ops at a reset" if protocol.noop_max else "no no-op starts",
                    f"{'all' if protocol.full_actions else 'minimal'} actions ({num_actions})",
                    "FIRE pressed after a reset and a lost life" if self._fires else "FIRE not pressed",
                    "a lost life ends the bootstrap in training" if protocol.life_signal else "no life signal")
        limit = self._config.max_episode_steps or MAX_FRAMES // FRAME_SKIP
        return (f"Atari protocol {protocol.name}: {', '.join(switches)}",
                f"observations: image {'x'.join(map(str, shape))}, gray, maximum of the last 2 of {FRAME_SKIP} frames",
                f"time limit {limit} steps ({limit * FRAME_SKIP} frames)")


def _screen_size(game: str) -> tuple[int, int]:
    """Height and width of the game's own picture: 210x160, in a few games taller."""
    path = roms.get_rom_path(game)
    assert path is not None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else it tells on stderr what cartridge it found
    ale = ale_py.ALEInterface()
    ale.loadROM(path)
    height, width = ale.getScreenDims()
    return height, width


def _emulators(config: Config, atari: AtariId, num_envs: int, threads: int, **other: Any) -> AtariVectorEnv:
    """The games that the config asks for; `other` are arguments in which they shall differ."""
    if config.vector != "sync":
        raise ConfigError(f"vector={config.vector} is not for Atari, whose emulators run in threads; leave it sync")
    options: dict[str, Any] = config.env_options
    for key in options:
        if key not in OPTIONS:
            raise ConfigError(f"env_kwargs: Atari games take {', '.join(OPTIONS)}, not {key!r}{nearest(key, OPTIONS)}; "
                              "how they are played is atari_protocol")
    protocol = atari.protocol
    return AtariVectorEnv(
        atari.game, num_envs, num_threads=min(num_envs, threads), stack_num=1, noop_max=protocol.noop_max,
        repeat_action_probability=protocol.sticky, full_action_space=protocol.full_actions, reward_clipping=False,
        use_fire_reset=False, episodic_life=False, life_loss_info=False, autoreset_mode=AutoresetMode.NEXT_STEP,
        max_num_frames_per_episode=config.max_episode_steps * FRAME_SKIP or MAX_FRAMES,
        **{"grayscale": True, "frameskip": FRAME_SKIP, "maxpool": True, **options, **other})
