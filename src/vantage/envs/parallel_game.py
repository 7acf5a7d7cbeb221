"""One copy of a PettingZoo parallel environment: its agents' results, checked and in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vantage.envs.agent_spaces import AgentSpaces
from vantage.envs.descriptions import shown
from vantage.envs.interface import MASK, Array, Info
from vantage.envs.masks import sizes_of
from vantage.envs.outcomes import OutcomeError, check_reset, five, flag, number
from vantage.envs.parts import leaves_of
from vantage.keys.suggestions import nearest


class ParallelGame:
    """One copy of the environment, and what its agents observed last."""

    def __init__(self, env: Any, agents: AgentSpaces) -> None:
        self.env = env
        self.names = agents.names
        self.obs: list[Any] = [None] * len(self.names)
        self.max_steps = 0.0
        self.closed = False
        self._split = agents.split
        self._mask_size = sum(sizes_of(leaf).sum() for leaf in leaves_of(agents.action).values())

    def played(self) -> object:
        """The environment; None once this is closed."""
        return None if self.closed else self.env

    def reset(self, seed: int | None = None) -> None:
        obs, infos = check_reset(self.env.reset(seed=seed))
        if missing := _listed(name for name in self.names if name not in obs):
            raise OutcomeError(f"reset() returned no observation of {missing}; begin episodes with "
                               "all possible_agents")
        there = self._agents_there()
        if missing := _listed(name for name in self.names if name not in there):
            raise OutcomeError(f"after reset(), agents lacks {missing}; let reset() set agents to "
                               "all possible_agents")
        self.steps = 0
        self.present = [True] * len(self.names)
        self._clear()
        for i in range(len(self.names)):
            self._observe(i, obs, self._inform(i, infos))

    def step(self, actions: Sequence[Any]) -> None:
        """Let the present agents act; after the end of the game, reset instead."""
        if not any(self.present):
            self.reset()
            return
        acted = [i for i, present in enumerate(self.present) if present]
        chosen = {self.names[i]: actions[i] for i in acted}
        obs, rewards, terminations, truncations, infos = five(self.env.step(chosen))
        if not isinstance(infos, Mapping):
            raise OutcomeError(f"step() returned {shown(infos)} as infos; return a dict")
        self.steps += 1
        self._clear()
        there = self._agents_there()
        for i in acted:
            self._end(i, rewards, terminations, truncations, stays=self.names[i] in there)
            self.present[i] = not (self.terminated[i] or self.truncated[i])
        self._check_left(there)
        for i in acted:
            info = self._inform(i, infos)
            if not self.terminated[i] or self.names[i] in obs:
                self._observe(i, obs, info)

    def _agents_there(self) -> set[Any]:
        """The environment's `agents`. OutcomeError for an id that is not in possible_agents."""
        there = set(self.env.agents)
        unknown = there.difference(self.names)
        if unknown:
            name = min(unknown, key=str)
            remedy = (nearest(str(name), map(str, self.names))
                      or f" ({_listed(self.names)}); list it there and let reset() return it")
            raise OutcomeError(f"agents contains {name}, which is not in possible_agents{remedy}")
        return there

    def _end(self, i: int, rewards: Any, terminations: Any, truncations: Any, *,
             stays: bool) -> None:
        """Read the reward and the flags of an agent that acted."""
        name = self.names[i]
        self.rewards[i] = number(_of(name, rewards, "reward"))
        truncated = flag("truncated", _of(name, truncations, "truncation"))
        self.terminated[i] = flag("terminated", _of(name, terminations, "termination"))
        if not (stays or truncated or self.terminated[i]):
            raise OutcomeError(f"{name} has left agents without an end; return True as its "
                               "termination, or as its truncation where only a time limit cut it")
        self.truncated[i] = (not self.terminated[i]
                             and (truncated or self.steps >= self.max_steps))

    def _check_left(self, there: set[Any]) -> None:
        """OutcomeError if an agent that has ended is in `agents` while others go on."""
        ended = [name for i, name in enumerate(self.names) if not self.present[i]]
        for name in ended if any(self.present) else ():
            if name in there:
                raise OutcomeError(f"agents contains {name}, whose episode has ended; remove "
                                   "agents that terminate or are truncated, until the next reset")

    def _clear(self) -> None:
        self.rewards = [0.0] * len(self.names)
        self.terminated = [False] * len(self.names)
        self.truncated = [False] * len(self.names)
        self.infos: list[Info] = [{}] * len(self.names)
        self.masks: list[Array | None] = [None] * len(self.names)

    def _inform(self, i: int, infos: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep and return the agent's info, also where it has no last observation."""
        info = infos.get(self.names[i]) or {}
        if not isinstance(info, Mapping):
            raise OutcomeError(f"the info of {self.names[i]} is {shown(info)}; return a dict")
        self.infos[i] = {key: value for key, value in info.items() if key != MASK}
        return info

    def _observe(self, i: int, obs: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        name = self.names[i]
        self.obs[i], mask = self._split(_of(name, obs, "observation"), info)
        if mask is not None:
            if self._mask_size and mask.shape != (self._mask_size,):
                raise OutcomeError(f"the action_mask of {name} has shape {mask.shape}, its actions "
                                   f"need ({self._mask_size},)")
            if self.present[i] and not mask.any():
                raise OutcomeError(f"the action_mask of {name} allows no action, and its episode "
                                   "goes on; allow at least one, or end the agent's episode")
        self.masks[i] = mask


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))


def _of(name: str, results: Mapping[str, Any], what: str) -> Any:
    """The result of the agent `name`. OutcomeError without one."""
    try:
        return results[name]
    except (KeyError, TypeError, IndexError):
        near = ""
        if isinstance(results, Mapping):
            near = nearest(str(name), [str(key) for key in results])
        raise OutcomeError(f"step() returned no {what} of {name}; return one for each agent that "
                           f"acted{near}") from None
