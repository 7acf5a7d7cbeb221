"""Rows of a batch that are agents of the same environment, which begin their episodes together."""

from __future__ import annotations

from vantage.envs.interface import Array


def waiting_rows(over: Array, lengths: Array, agents: int) -> tuple[Array, Array]:
    """Rows [B] in which no action follows, and those whose environment begins its next episode.

    `over` [B] is True where an episode ended at the last step. Where an agent has left and others
    go on, its episode's length is 0 and theirs are not.
    """
    if agents == 1:
        return over, over
    left = (lengths == 0) & any_of_agents(lengths > 0, agents)
    waiting = over | left
    return waiting, ~any_of_agents(~waiting, agents)


def any_of_agents(flags: Array, agents: int) -> Array:
    """Rows of the environments that have a True among the `flags` [B] of their agents."""
    rows: Array = flags.reshape(-1, agents).any(axis=1).repeat(agents)
    return rows
