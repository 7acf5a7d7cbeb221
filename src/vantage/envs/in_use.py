"""Environment objects in use in this process: no two trainings or evaluations share one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol
from weakref import WeakValueDictionary

from vantage.errors import ConfigError


class Player(Protocol):
    """Plays an environment object until it is closed."""

    def played(self) -> object:
        """The innermost environment; None once this is closed."""


_PLAYERS: WeakValueDictionary[int, Player] = WeakValueDictionary()
"""By the id of the environment."""


def check_unused(env: object, name: str, *, own: Collection[Player] = ()) -> None:
    """ConfigError if anything but `own` plays the object `env`, which the config calls `name`."""
    player = _PLAYERS.get(id(env))
    if player is not None and player.played() is env and not any(player is each for each in own):
        raise ConfigError(f"env={name} gives an object that another training or evaluation is "
                          "playing; let it build a new one, or close that one first (eval_every=0 "
                          "has no evaluations)")


def check_distinct(envs: Collection[object], name: str) -> None:
    """ConfigError if two of the `envs`, built for the config's `name`, are one object."""
    if len({id(env) for env in envs}) < len(envs):
        raise ConfigError(f"env={name} returns the same object every time; let it build a new one")


def note_player(player: Player) -> None:
    """Note that `player` plays its environment."""
    env = player.played()
    if env is not None:
        _PLAYERS[id(env)] = player
