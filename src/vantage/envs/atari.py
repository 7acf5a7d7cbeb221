"""Atari games: single frames, FIRE, lives, seeds, records. The emulators are `emulators`'; other environments have
`vector`."""

from __future__ import annotations

import dataclasses

import ale_py
import numpy as np

from vantage.config import Config
from vantage.envs.emulators import MAX_FRAMES, Play, make_emulators
from vantage.envs.film import gray
from vantage.envs.ids import AtariId
from vantage.envs.interface import (
    Array,
    First,
    History,
    Record,
    Step,
    check_actions,
    check_record,
    learnt_rewards,
    same_obs,
)
from vantage.envs.options import EnvOptions, in_words, mean_of, subset_of
from vantage.envs.stages import Stage, cropped, frames_of_a_step, grayed, maximum_of
from vantage.errors import ConfigError
from vantage.seeding import episode_seed
from vantage.specs import ActionSpec, ArraySpec, EnvSpec, Episode
from vantage.system import cores_for

# A seeded reset loads the ROM anew: 80-145 ms against 3-5 ms. At one in 20,000 steps that is below 1% of the time.
RESEED_STEPS = 20_000
FRAMES_PER_SECOND = 60  # of an NTSC console
FIRE = 1
# 400 against 320 microseconds of a core's time, Pong, max_frames=3, ale-py 0.12.1.
SLOWER = "which take 1.3 times the time of a core, use one core alone, and do not step while the network computes"


class AtariEnvironments:
    """B games. `is_first`, `terminated` and `valid` follow from what the emulators report, see `step`.

    Emulators reset themselves in the step after an end. The first reset at least `reseed_steps` after an emulator's
    last seeded one is seeded from the episode's number, so that a record holds a bounded number of actions.
    """

    def __init__(self, config: Config, atari: AtariId, *, num_envs: int, stream: int, first_env: int = 0,
                 evaluation: bool = False, threads: int = 0, reseed_steps: int = RESEED_STEPS,
                 rendered: bool = False) -> None:
        _check(config)
        options = EnvOptions.of(config)
        atari = _with_overrides(atari, options)
        play = Play.of(atari, options, config.env.max_episode_steps)
        self.drawn = rendered
        self._config, self._stream, self._first_env, self._evaluation = config, stream, first_env, evaluation
        self._protocol, self._reseed_steps, self.num_envs = atari.protocol, reseed_steps, num_envs
        threads = cores_for(threads)
        self._env, actions, self._film = make_emulators(play, num_envs, threads, rendered=rendered)
        # As baselines' FireResetEnv: where FIRE is the second of at least three actions.
        self._fires = bool(atari.protocol.fire and len(actions) >= 3 and actions[FIRE] == ale_py.Action.FIRE)
        if options.fire_on_reset and not self._fires:
            raise ConfigError(f"fire_on_reset has no effect on {config.env.id}, which does not have FIRE as the second of "
                              "its actions; leave it out")
        meanings = tuple(action.name for action in actions)
        subset = subset_of(options.action_subset, meanings)
        self._play = play
        self.action_names = tuple(meanings[i] for i in subset)
        self._chosen = np.array(subset, np.int64)
        """The emulators' action for each of the policy's."""
        self.frames_per_step = mean_of(play.skip)
        self.fps = FRAMES_PER_SECOND / self.frames_per_step
        self.longest_game = int(MAX_FRAMES // self.frames_per_step)
        self.spec = EnvSpec(ArraySpec("image", play.shape), ActionSpec("discrete", (len(subset),)))
        self.notes = self._describe(play, meanings, min(num_envs, threads))
        self._history = History(num_envs, self.spec.action)
        self._episode = np.full(num_envs, -1, np.int64)
        self._seeded_episode = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self._score = np.zeros(num_envs, np.float64)
        self._lives = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self._press = np.zeros(num_envs, bool)
        self._obs: Array = np.zeros((num_envs, *play.shape), np.uint8)
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
        self._sent = np.where(self._press, FIRE, self._chosen[actions])
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
        if self._config.env.reward_terminates and not self._evaluation:
            terminated = terminated | (rewards != 0)
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

    def stages(self) -> list[Stage]:
        """What becomes of the screen, up to what is resized into the observation."""
        assert self._film is not None
        frames, played = self._film.frames, self._film.played
        found = frames_of_a_step("screen", frames, played)
        if self._play.gray:
            frames = tuple(gray(frame) for frame in frames)
            found.append(grayed(frames[-1]))
        found += maximum_of(frames, played)
        return found + cropped(np.maximum.reduce(frames), self._play.margins or (0, 0, 0, 0))

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
        seeds = np.array([episode_seed(self._config.run.seed, self._stream, self._first_env + i, self._seeded_episode[i])
                          for i in np.flatnonzero(which).tolist()], np.int64)
        obs, info = self._env.reset(seed=seeds, options={"reset_mask": which})
        return obs, info["lives"].astype(np.int64)

    def _describe(self, play: Play, meanings: tuple[str, ...], threads: int) -> tuple[str, ...]:
        protocol, skip = play.atari.protocol, in_words(play.skip)
        switches = (f"sticky actions {protocol.sticky:g}" if protocol.sticky else "no sticky actions",
                    f"0 to {protocol.noop_max - 1} no-ops at a reset" if protocol.noop_max else "no no-op starts",
                    *((f"then 0 to {play.random_start} random actions",) * bool(play.random_start)),
                    f"{'all' if protocol.full_actions else 'minimal'} actions ({len(meanings)})",
                    "FIRE pressed after a reset and a lost life" if self._fires else "FIRE not pressed",
                    "a lost life ends the bootstrap in training" if protocol.life_signal else "no life signal")
        shown = (f"image {'x'.join(map(str, play.shape))}", "gray" if play.gray else "in colour",
                 f"maximum of the last {play.pooled} of {skip} frames" if play.pooled > 1 else f"last of {skip} frames")
        notes = [f"Atari protocol {protocol.name}: {', '.join(switches)}", f"observations: {', '.join(shown)}"]
        if len(self._chosen) < len(meanings):
            notes.append(f"actions chosen from: {', '.join(self.action_names)}")
        if play.beyond_native:
            notes.append(f"{', '.join(play.beyond_native)}: leaves ALE's native path for Gymnasium's wrappers, "
                         f"{SLOWER}")
        elif play.margins is not None:
            notes.append("crop: native emulators show whole screens, which this process cuts and resizes at next to no "
                         "cost")
        frames = play.max_steps * mean_of(play.skip)
        how = "in turn" if play.beyond_native else f"by {threads} thread{'s' * (threads > 1)}"
        return (*notes, f"time limit {play.max_steps} steps ({frames:g} frames)",
                f"emulators in this process, stepped {how}")


def _check(config: Config) -> None:
    if config.env.vector != "sync":
        raise ConfigError(f"vector={config.env.vector} is not for Atari, whose emulators run in threads; leave it sync")
    if config.env.env_options:
        raise ConfigError(f"env_kwargs={config.env.env_kwargs} is not for Atari games: how they are played and shown is "
                          "atari_protocol, screen_size, grayscale, frame_skip, noop_max and the other options of "
                          "environments")


def _with_overrides(atari: AtariId, options: EnvOptions) -> AtariId:
    """The protocol with what the options say instead."""
    protocol = atari.protocol
    if options.noop_max is not None:
        protocol = dataclasses.replace(protocol, noop_max=options.noop_max)
    if options.fire_on_reset is not None:
        protocol = dataclasses.replace(protocol, fire=options.fire_on_reset)
    return AtariId(atari.game, protocol)
