"""Any Gymnasium environment, B of them, stepped here or each in a process of its own. Atari games have `atari`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import create_empty_array

from vantage.config import Config
from vantage.envs.episodes import ERROR, MASK, REPLAYED, EnvPlan, Episodes, EpisodesFactory, Replay, close
from vantage.envs.ids import EnvId
from vantage.envs.interface import (
    Array,
    First,
    History,
    Obs,
    Record,
    Step,
    check_actions,
    check_record,
    learnt_rewards,
    same_obs,
)
from vantage.envs.options import check_options, mean_of
from vantage.envs.spaces import make_actor, make_masker, make_observer
from vantage.envs.stages import Stage, for_people
from vantage.envs.wrappers import describe_options
from vantage.errors import EnvError, VantageError
from vantage.specs import EnvSpec, Episode
from vantage.system import deaf_to_signals

# Both keep one Box2D world for all episodes. On a used instance 12 of 20 random episodes of BipedalWalker differed
# from those on a new one (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")

DEFAULT_FPS = 30.0
"""As gymnasium.utils.play has it, where an environment's metadata say nothing."""


class GymEnvironments:
    """B single environments in Gymnasium's vector; each episode is seeded by its number, so a record is short."""

    longest_game = 10_000
    action_names: tuple[str, ...] = ()

    def __init__(self, config: Config, env: EnvId, *, num_envs: int, stream: int, first_env: int = 0,
                 evaluation: bool = False, rendered: bool = False) -> None:
        rebuild = any(name in env.name for name in REBUILT)
        options = check_options(config, env)
        self._plan = EnvPlan(env, config.env.env_kwargs, config.env.max_episode_steps, config.run.seed, stream, rebuild, options,
                             rendered)
        self.spec, notes = probe(self._plan)
        self.frames_per_step = mean_of(options.frame_skip or (1, 1))
        self.drawn = rendered
        self._config, self._evaluation, self.num_envs, self._first_env = config, evaluation, num_envs, first_env
        remote = config.env.vector == "async"
        self.notes = (*notes, *describe_options(options),
                      *(("a new instance for each episode, because a reset does not clear it",) * rebuild),
                      f"{num_envs} environments, " + ("each in a process of its own" if remote else "in this process"))
        factories = [EpisodesFactory(self._plan, self.spec, index, os.getpid() if remote else 0)
                     for index in range(first_env, first_env + num_envs)]
        mode = AutoresetMode.NEXT_STEP
        self._vector: AsyncVectorEnv[Any, Any] | SyncVectorEnv[Any, Any] = (
            _start_workers(factories) if remote
            else SyncVectorEnv(factories, autoreset_mode=mode))
        self._interrupted = False
        self._sent: Array = np.zeros((num_envs, *self.spec.action.shape))
        self._history = History(num_envs, self.spec.action)
        self._episode = np.full(num_envs, -1, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self._score = np.zeros(num_envs, np.float64)
        self._over = np.zeros(num_envs, bool)
        self._obs: Any = create_empty_array(self._vector.single_observation_space, num_envs)

    def reset(self, record: Record | None = None) -> First:
        """Begin the next episode of every environment, or go on from `record`."""
        if record is not None:
            return self._restore(record)
        obs, info = self._call(self._vector.reset)
        everyone = np.ones(self.num_envs, bool)
        self._start(everyone)
        self._obs = obs
        self._check_finite(obs, np.zeros(self.num_envs), None)
        return First(obs, everyone, self._mask(info))

    def step(self, actions: Array) -> Step:
        """Take one action [B, *action] in every environment. EnvError where one raises or leaves its spaces."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Let worker processes begin a step; environments in this process take it in `receive`."""
        check_actions(actions, self.num_envs, self.spec.action)
        self._sent = actions
        if isinstance(self._vector, AsyncVectorEnv):
            self._guard(self._vector.step_async, actions)
            self._interrupted = True  # until the answer is in, a close must not wait for it

    def receive(self) -> Step:
        """What the step led to. EnvError where an environment raises or leaves its spaces."""
        resetting, actions = self._over, self._sent
        obs, raw, terminated, truncated, info = (
            self._call(self._vector.step_wait) if isinstance(self._vector, AsyncVectorEnv)
            else self._call(self._vector.step, actions))
        self._history.append(actions)
        self._length += 1
        if resetting.any():
            self._start(resetting)
        self._score += raw
        rewards = learnt_rewards(raw, self._config, evaluation=self._evaluation)
        self._check_finite(obs, raw, actions)
        self._obs, self._over = obs, terminated | truncated
        episodes = tuple(Episode(self._first_env + int(i), float(self._score[i]), int(self._length[i]))
                         for i in np.flatnonzero(self._over))
        if self._config.env.reward_terminates and not self._evaluation:
            terminated = terminated | (rewards != 0)
        return Step(obs, rewards, terminated, resetting, ~resetting, self._mask(info), episodes)

    def record(self) -> dict[str, Array]:
        """All that `reset` needs to go on from here, in arrays alone."""
        obs = {f"obs.{key}": part for key, part in self._obs.items()} if isinstance(self._obs, Mapping) \
            else {"obs": self._obs}
        arrays = {"episode": self._episode, "length": self._length, "score": self._score, "over": self._over, **obs}
        return {key: array.copy() for key, array in arrays.items()} | self._history.record()

    @property
    def fps(self) -> float:
        """Agent steps a second in real time, as the environment's metadata says; 30 where they do not."""
        rate = self._seen().metadata_and_keys()[0].get("render_fps")
        return float(rate) if isinstance(rate, int | float) and 0 < rate < math.inf else DEFAULT_FPS

    def render(self) -> Array:
        """A picture of the only environment, made with `rendered`, RGB [H, W, 3]."""
        return self._seen().render()

    def stages(self) -> list[Stage]:
        """The picture that a person sees, if there is one, then what becomes of an image that the environment shows."""
        return ([for_people(self.render())] if self.drawn else []) + self._seen().stages()

    def keys_to_action(self) -> Mapping[Any, Any] | None:
        """The environment's own keys for people, where it has any."""
        return self._seen().metadata_and_keys()[1]

    def _seen(self) -> Episodes:
        assert isinstance(self._vector, SyncVectorEnv)
        episodes, = self._vector.envs
        assert isinstance(episodes, Episodes)
        return episodes

    def close(self) -> None:
        """Let go of processes and simulators; a second call does nothing."""
        if self._interrupted and isinstance(self._vector, AsyncVectorEnv):
            # Else it would wait for the answer to the interrupted call, and raise EOFError where a process is dead.
            self._vector._state = AsyncState.DEFAULT
            for process in self._vector.processes:
                process.kill()
            self._vector.close(terminate=True)
        else:
            self._vector.close()

    def _restore(self, record: Record) -> First:
        check_record(record, self.record())
        self._history.restore(record)
        self._episode, self._length, self._score, self._over = (
            record[key].copy() for key in ("episode", "length", "score", "over"))
        self._vector.set_attr("replay", [Replay(int(self._episode[i]), self._history.of(i), bool(self._over[i]))
                                         for i in range(self.num_envs)])
        obs, info = self._call(self._vector.reset)
        saved = {key: record[f"obs.{key}"] for key in obs} if isinstance(obs, Mapping) else record["obs"]
        lost = ~(info[REPLAYED] & same_obs(obs, saved))
        mask = self._mask(info)
        if lost.any():
            obs, info = self._call(self._vector.reset, options={"reset_mask": lost.copy()})
            self._start(lost)
            if mask is not None:
                mask = np.where(lost[:, None], info[MASK], mask)
        self._obs = obs
        return First(obs, self._length == 0, mask, tuple(self._first_env + int(i) for i in np.flatnonzero(lost)))

    def _start(self, which: Array) -> None:
        """A seeded reset has just begun the next episode of these environments."""
        self._episode[which] += 1
        self._length[which] = 0
        self._score[which] = 0.0
        self._over = self._over & ~which
        self._history.restart(which)

    def _mask(self, info: dict[str, Any]) -> Array | None:
        return info[MASK] if self.spec.masked else None

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the vector environment answers. EnvError where an environment failed or its process died."""
        result = self._guard(function, *args, **kwargs)
        self._interrupted = False
        if ERROR in result[-1]:
            raise EnvError(next(message for message in result[-1][ERROR] if message is not None))
        return result

    def _guard(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (EOFError, ConnectionError) as error:
            self._interrupted = True
            raise EnvError(f"{self._dead()} of {self._plan.env.name} ended without a word, as if killed (out of "
                           "memory?) or left by os._exit; a script that trains with vector='async' must do so under "
                           "if __name__ == '__main__'") from error
        except BaseException:
            self._interrupted = True
            raise

    def _dead(self) -> str:
        assert isinstance(self._vector, AsyncVectorEnv)
        for process in self._vector.processes:
            process.join(1.0)
            if process.exitcode is not None:
                index = self._vector.processes.index(process)
                return f"the process of environment {self._first_env + index} (exit code {process.exitcode})"
        return "the process of an environment"

    def _check_finite(self, obs: Obs, rewards: Array, actions: Array | None) -> None:
        """One look at the whole batch: cheaper than one in each environment. Images are whole numbers anyway."""
        parts = obs.values() if isinstance(obs, Mapping) else (obs,)
        if np.isfinite(rewards).all() and all(part.dtype == np.uint8 or np.isfinite(part).all() for part in parts):
            return
        for i in range(self.num_envs):
            bad = [f"reward {rewards[i]}"] * (not np.isfinite(rewards[i]))
            bad += [f"observation {part[i]}" for part in parts if not np.isfinite(part[i]).all()]
            if bad:
                place = self._plan.place(self._first_env + i, int(self._episode[i]), int(self._length[i]))
                after = f" after action {actions[i]}" if actions is not None and self._length[i] else " after reset"
                raise EnvError(f"{place}: {bad[0]} is not finite{after}")


def _start_workers(factories: list[EpisodesFactory]) -> AsyncVectorEnv[Any, Any]:
    """A process for each environment."""
    with deaf_to_signals():
        return AsyncVectorEnv(factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP)


def probe(plan: EnvPlan) -> tuple[EnvSpec, tuple[str, ...]]:
    """The spec of an environment and what was decided about it, in words, from an instance that is closed again."""
    env = plan.build()
    try:
        observer, actor = make_observer(env.observation_space), make_actor(env.action_space)
        result = env.reset(seed=plan.seed_of(0, 0))
        info = result[1] if isinstance(result, tuple) and len(result) == 2 else {}
        masked = isinstance(info, dict) and MASK in info
        if masked:
            make_masker(actor.spec)(info[MASK])
        limit = plan.max_episode_steps or (env.spec.max_episode_steps if env.spec else None)
        unit = "frames" if not plan.max_episode_steps and mean_of(plan.shown.frame_skip or (1, 1)) > 1 else "steps"
    except (Exception, SystemExit) as error:
        if isinstance(error, VantageError):
            raise
        raise EnvError(f"{plan.place(0, 0, 0)}: {type(error).__name__}: {error}") from error
    finally:
        close(env, plan.env.name)
    notes = [observer.note, actor.note, f"time limit {limit} {unit}" if limit else "no time limit of Gymnasium's"]
    return EnvSpec(observer.spec, actor.spec, masked), (*notes, *(("actions masked by info['action_mask']",) * masked))
