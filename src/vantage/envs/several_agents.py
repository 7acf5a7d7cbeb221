"""Simulators of PettingZoo's parallel environments, in which several agents act at once.

The package is not imported: `other_interfaces` recognises environments by their methods.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from vantage.envs.agent_spaces import agent_spaces
from vantage.envs.batched import batched_environments, check_without_wrappers
from vantage.envs.build import check_pictures, create_one, is_built
from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly, named_errors
from vantage.envs.ids import EnvId
from vantage.envs.in_use import check_unused, note_player
from vantage.envs.interface import Seeds, Simulators
from vantage.envs.parallel_agents import ParallelAgents
from vantage.errors import ConfigError


def several_agents(config: EnvConfig, env: EnvId, seeds: Seeds, first: Any, *, num_envs: int,
                   rendered: bool, longest_game: int) -> Simulators:
    """Simulators of `num_envs` copies of the environment `first`, which is one of them.

    `longest_game` cuts games after so many steps, unless the config has a limit; 0 cuts none.
    """
    check_without_wrappers(config, f"{env.name} has several agents", "vector", "reset_options",
                           "short_episode_steps")
    if rendered:
        check_pictures(env, first)
    envs = [first]
    try:
        with named_errors(lambda: f"{env.name} cannot be built"):
            agents = agent_spaces(first, env)
            envs += [create_one(env, config, rendered=rendered) for _ in range(num_envs - 1)]
        if len({id(getattr(each, "unwrapped", each)) for each in envs}) < num_envs:
            raise ConfigError(f"env={env.name} returns the same object every time; let it build a "
                              "new one")
        limit = config.max_episode_steps or longest_game or math.inf
        vector = ParallelAgents(envs, agents, limit)
        for game in vector.games:
            check_unused(game.env, env.name)
            note_player(game)
        rows = len(agents.names)
        seeds.first_env *= rows
        simulators = batched_environments(config, env, seeds, vector, longest_game=longest_game)
    except BaseException:
        for each in [] if is_built(config) else envs:
            close_quietly(each)
        raise
    note = (f"{num_envs} copies of {rows} agents each, in this process: a row of the batch is an "
            "agent, and all share one policy")
    is_cut_later = longest_game and not config.max_episode_steps
    return replace(simulators, spec=replace(simulators.spec, agents=rows), notes=(note,),
                   single=lambda: first, longest_game=limit,
                   cut_after=vector.cut_after if is_cut_later else None)
