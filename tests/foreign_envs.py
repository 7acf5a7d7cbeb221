"""Stand-ins for environments of other libraries: their methods, and classes whose modules are named as theirs are."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces


def _of(module: str, name: str, *bases: type, **members: Any) -> type:
    """A class as the library that owns `module` defines it."""
    return type(name, bases, {"__module__": module, **members})


def _method(self: Any, *arguments: Any) -> Any:
    """Stands for any method: none is called."""
    raise AssertionError


BOTH = {"reset": _method, "step": _method}
AECEnv = _of("pettingzoo.utils.env", "AECEnv", **BOTH, agent_iter=_method, last=_method, observe=_method)
ParallelEnv = _of("pettingzoo.utils.env", "ParallelEnv", **BOTH)
Chess = _of("my_games", "Chess", AECEnv)
CopiedTurns = _of("copied", "Turns", **BOTH, agent_iter=_method, last=_method, observe=_method)
Markov = _of("supersuit.vector.markov_vector_wrapper", "MarkovVectorEnv", gym.vector.VectorEnv)
MultiAgent = _of("ray.rllib.env.multi_agent_env", "MultiAgentEnv", gym.Env)
TwoPlayers = _of("my_games", "TwoPlayers", MultiAgent)
Suite = _of("dm_control.rl.control", "Environment", **BOTH, observation_spec=_method, action_spec=_method)
CopiedSuite = _of("copied", "Suite", **BOTH, observation_spec=_method, action_spec=_method)
OldGym = _of("my_games", "OldGym", _of("gym.core", "Env", **BOTH))
Pool = _of("envpool.python.env", "CartPoleGymnasiumEnvPool", gym.Env, recv=_method, send=_method, async_reset=_method)
VecEnv = _of("stable_baselines3.common.vec_env.base_vec_env", "VecEnv", **BOTH, step_async=_method, step_wait=_method)
Unity = _of("mlagents_envs.environment", "UnityEnvironment", **BOTH, get_steps=_method, set_actions=_method)
Isaac = _of("isaacgymenvs.tasks.base.vec_task", "VecTask", **BOTH, allocate_buffers=_method)
Lab = _of("isaaclab.envs", "ManagerBasedRLEnv", gym.Env)
Batched = _of("my_games", "Batched", **BOTH, num_envs=4)
Plain = _of("my_games", "Plain", **BOTH)


def make(name: str) -> Any:
    """An instance of one of the above, as functions that build environments return it."""
    return globals()[name]()


class OldSpaces(gym.Env[Any, Any]):
    """Ported to Gymnasium but for its spaces."""

    observation_space = _of("gym.spaces.box", "Box", _of("gym.spaces.space", "Space"))()  # type: ignore[assignment]
    action_space = spaces.Discrete(2)


class Wild(gym.Env[Any, Any]):
    """Does one wild thing outside reset and step."""

    action_space = spaces.Discrete(2)

    def __init__(self, how: str = "") -> None:
        self.how = how
        self.observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
        if how == "metadata None":
            self.metadata = None  # type: ignore[assignment]
        if how == "spec text":
            self.spec = "mine"  # type: ignore[assignment]
        if how == "spec limit":
            self.spec = gym.envs.registration.EnvSpec("Mine-v0", max_episode_steps="many")  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if self.__dict__.get("how") == "getattr":
            raise RuntimeError(f"nothing here is called {name}")
        raise AttributeError(name)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.how == "spaces change":
            self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        if self.how == "close exits":
            raise SystemExit(3)
        if self.how == "close raises":
            raise RuntimeError("no")


class RaisingSpace(Wild):
    """Has no space before its reset, in words of its own."""

    @property
    def action_space(self) -> Any:  # type: ignore[override]
        raise RuntimeError("call reset() first")


class OtherEachTime(Wild):
    """Each instance observes one number more."""

    built = 0

    def __init__(self) -> None:
        super().__init__()
        OtherEachTime.built += 1
        self.observation_space = spaces.Box(-1, 1, (OtherEachTime.built,), np.float32)


class Duel(ParallelEnv):  # type: ignore[misc, valid-type]
    """Two agents act at once for three steps; the first earns its action and one more."""

    possible_agents = ("first", "second")
    agents = possible_agents

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def _each(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self._each(np.zeros(2, np.float32)), self._each({})

    def step(self, actions: dict[str, Any]) -> Any:
        assert actions.keys() == {"first", "second"}
        self.t += 1
        rewards = {agent: 1.0 + action for agent, action in actions.items()}
        return self._each(np.zeros(2, np.float32)), rewards, self._each(self.t == 3), self._each(False), self._each({})


class TimeStep(NamedTuple):
    """As dm_env defines it."""

    step_type: int
    reward: float | None
    discount: float | None
    observation: Any

    def last(self) -> bool:
        return self.step_type == 2


class Countdown(Suite):  # type: ignore[misc, valid-type]
    """Pays the action; its task ends after three steps."""

    def reset(self) -> TimeStep:
        self.t = 0
        return TimeStep(0, None, None, np.zeros(2, np.float32))

    def step(self, action: Any) -> TimeStep:
        self.t += 1
        return TimeStep(1 + (self.t == 3), float(action), float(self.t < 3), np.zeros(2, np.float32))
