"""B single environments in a Gymnasium vector, stepped in this process or each in its own. Atari is in `atari`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from vantage.config_groups import EnvConfig
from vantage.envs.building import close
from vantage.envs.episodes import EPISODES, ERROR, EnvPlan, Episodes, EpisodesFactory
from vantage.envs.ids import EnvId
from vantage.envs.interface import LONGEST_GAME, MASK, Array, Info, Obs, Outcome, Seeds, Traits
from vantage.envs.options import check_options, mean_of
from vantage.envs.spaces import make_actor, make_masker, make_observer
from vantage.envs.wrappers import describe_options
from vantage.errors import EnvError, VantageError
from vantage.specs import EnvSpec
from vantage.system import deaf_to_signals

# Both keep one Box2D world for all episodes: 12 of 20 random episodes of BipedalWalker differed from those on a new
# instance (gymnasium 1.4.0), none of 12 of CarRacing. A new instance costs less than half a millisecond.
REBUILT = ("BipedalWalker", "CarRacing")


class SingleSimulators:
    """Seeds each episode by its number, so that a snapshot holds only the actions of the current episodes."""

    seeds_itself = exact = True

    def __init__(self, config: EnvConfig, env: EnvId, seeds: Seeds, *, num_envs: int, first_env: int,
                 rendered: bool = False) -> None:
        options = check_options(config, env)
        rebuild = any(name in env.name for name in REBUILT)
        plan = EnvPlan(env, config.env_kwargs, config.max_episode_steps, seeds, rebuild, options, rendered)
        spec, notes = probe(plan)
        remote = config.vector == "async"
        notes = (*notes, *describe_options(options),
                 *(("a new instance for each episode, because a reset does not clear it",) * rebuild),
                 f"{num_envs} environments, " + ("each in a process of its own" if remote else "in this process"))
        self.traits = Traits(spec, notes, frames_per_step=mean_of(options.frame_skip or (1, 1)),
                             longest_game=LONGEST_GAME, drawn=rendered)
        self._name, self._first_env = env.name, first_env
        factories = [EpisodesFactory(plan, spec, first_env + place, place, os.getpid() if remote else 0)
                     for place in range(num_envs)]
        self._vector: AsyncVectorEnv[Any, Any] | SyncVectorEnv[Any, Any]
        if remote:
            with deaf_to_signals():
                self._vector = AsyncVectorEnv(factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP)
        else:
            self._vector = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP)
        self._sent: Array | None = None
        self._interrupted = False

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        result: tuple[Obs, Info] = self._call(self._vector.reset,
                                              options={"reset_mask": which.copy(), EPISODES: episodes})
        return result

    def send(self, actions: Array) -> None:
        """Begin a step in worker processes; environments in this process take it in `receive`."""
        self._sent = actions
        if isinstance(self._vector, AsyncVectorEnv):
            self._guard(self._vector.step_async, actions)
            self._interrupted = True  # a close before `receive` must not wait for the results

    def receive(self) -> Outcome:
        result: Outcome = (self._call(self._vector.step_wait) if isinstance(self._vector, AsyncVectorEnv)
                           else self._call(self._vector.step, self._sent))
        return result

    def close(self) -> None:
        if self._interrupted and isinstance(self._vector, AsyncVectorEnv):
            # Otherwise close() waits for the interrupted call, and raises EOFError if a process is dead.
            self._vector._state = AsyncState.DEFAULT
            for process in self._vector.processes:
                process.kill()
            self._vector.close(terminate=True)
        else:
            self._vector.close()

    @property
    def single(self) -> gym.Env[Any, Any]:
        assert isinstance(self._vector, SyncVectorEnv)
        episodes = self._vector.envs[0]
        assert isinstance(episodes, Episodes) and episodes.env is not None
        return episodes.env

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function`. EnvError if an environment failed or its process died."""
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
            raise EnvError(f"{self._dead()} of {self._name} ended without an error: it was killed (out of memory?) or "
                           "called os._exit; a script that trains with vector='async' needs "
                           "if __name__ == '__main__'") from error
        except BaseException:
            self._interrupted = True
            raise

    def _dead(self) -> str:
        assert isinstance(self._vector, AsyncVectorEnv)
        for place, process in enumerate(self._vector.processes):
            process.join(1.0)
            if process.exitcode is not None:
                return f"the process of environment {self._first_env + place} (exit code {process.exitcode})"
        return "the process of an environment"


def probe(plan: EnvPlan) -> tuple[EnvSpec, tuple[str, ...]]:
    """The spec of an environment and notes about it, from a temporary instance."""
    env = plan.build()
    try:
        observer, actor = make_observer(env.observation_space), make_actor(env.action_space)
        result = env.reset(seed=plan.seeds.of(0, 0))
        masked = isinstance(result, tuple) and len(result) == 2 and MASK in result[1]
        if masked:
            make_masker(actor.spec)(result[1][MASK])
        limit = plan.max_episode_steps or (env.spec.max_episode_steps if env.spec else None)
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{plan.seeds.place(0, 0, 0)}: {type(error).__name__}: {error}") from error
    finally:
        close(env, plan.env.name)
    unit = "frames" if not plan.max_episode_steps and mean_of(plan.options.frame_skip or (1, 1)) > 1 else "steps"
    notes = (observer.note, actor.note, f"time limit {limit} {unit}" if limit else "no time limit in Gymnasium",
             *(("actions masked by info['action_mask']",) * masked))
    return EnvSpec(observer.spec, actor.spec, masked), notes
