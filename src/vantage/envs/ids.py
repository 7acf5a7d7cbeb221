"""Environments by name, and families and Atari protocols by environment. Nothing is built here."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import ale_py
import gymnasium as gym
from ale_py import roms
from ale_py.registration import rom_id_to_name

from vantage.envs import snake
from vantage.errors import ConfigError
from vantage.keys import nearest

gym.register_envs(ale_py)
snake.register()

Family = Literal["atari", "classic", "box2d", "mujoco", "other"]

# These have no single-player cartridge mode; ale_py registers none of them either.
TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")


@dataclass(frozen=True, slots=True)
class AtariProtocol:
    """How a game is played: every switch on which Atari scores depend."""

    name: str
    sticky: float
    """Probability that the emulator repeats the previous action instead."""
    noop_max: int
    """ALE draws 0 to noop_max - 1 no-ops at a reset."""
    fire: bool
    """FIRE is pressed after a reset and after a lost life, in games that have it as their second action."""
    full_actions: bool
    """All 18 actions rather than those that the game reacts to."""
    life_signal: bool
    """A lost life ends the value bootstrap while training."""


PROTOCOLS = {
    "classic": AtariProtocol("classic", sticky=0.0, noop_max=30, fire=True, full_actions=False, life_signal=True),
    "v5": AtariProtocol("v5", sticky=0.25, noop_max=0, fire=False, full_actions=False, life_signal=False),
    # Machado et al. 2018, arXiv:1709.06009: sticky actions take the place of no-op starts.
    "machado": AtariProtocol("machado", sticky=0.25, noop_max=0, fire=False, full_actions=True, life_signal=False),
}


@dataclass(frozen=True, slots=True)
class AtariId:
    """The name of the game's ROM, and how it is played."""

    game: str
    protocol: AtariProtocol


@dataclass(frozen=True, slots=True)
class EnvId:
    """An environment by its canonical name."""

    name: str
    family: Family
    atari: AtariId | None = None
    entry: str = ""
    """The name, if it is module:Class or module:function; "" if it is a Gymnasium id."""


def resolve_env(name: str, atari_protocol: str = "auto") -> EnvId:
    """The environment called `name`: a Gymnasium id, a short Atari name in any case, or module:Class.

    ConfigError names the nearest match. A module that the name mentions is imported.
    """
    env = _atari(name) or (_from_module(name) if ":" in name else _registered(name))
    if atari_protocol == "auto":
        return env
    if env.atari is None:
        raise ConfigError(f"atari_protocol={atari_protocol} is for Atari games, env={name!r} is none; leave it auto")
    if atari_protocol not in PROTOCOLS:
        raise ConfigError(f"atari_protocol={atari_protocol!r} is not one of auto, {', '.join(PROTOCOLS)}")
    return dataclasses.replace(env, atari=AtariId(env.atari.game, PROTOCOLS[atari_protocol]))


def known_names() -> list[str]:
    """Every valid name: short Atari names and Gymnasium ids."""
    ids = [name for name in gym.registry if not _legacy(name) or name.endswith("NoFrameskip-v4")]
    return sorted([*(rom_id_to_name(rom) for rom in _games().values()), *ids])


def load_entry(entry: str) -> Any:
    """The object at module:Class; modules of the current directory are importable."""
    module_name, _, attribute = entry.partition(":")
    module = _import(module_name, entry)
    target: Any = module
    for part in attribute.split("."):
        target = getattr(target, part, None)
    return target


def import_path_here() -> None:
    """Let modules of the current directory be imported, as `python -m` does."""
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)


_OWN = {"mujoco": "vantage-rl[mujoco]"}
"""Extras of Gymnasium that are extras of Vantage too."""


def missing_library(error: gym.error.DependencyNotInstalled) -> str:
    """The missing library and the one command that installs it."""
    text = str(error)
    extra = re.search(r"gymnasium\[([\w-]+)\]", text)
    if extra is None:
        return text
    what = re.split(r", |; |\. ", text, maxsplit=1)[0]
    return f"{what}; pip install '{_OWN.get(extra[1], f'gymnasium[{extra[1]}]')}'"


def is_old_gym(kind: type) -> bool:
    """The class comes from the unmaintained `gym`, not from Gymnasium."""
    return any(base.__module__.split(".")[0] == "gym" for base in kind.__mro__)


def _atari(name: str) -> EnvId | None:
    game = _games().get(_plain(name)) if re.fullmatch(r"[A-Za-z0-9_]+", name) else None
    if game is not None:
        return EnvId(rom_id_to_name(game), "atari", AtariId(game, PROTOCOLS["classic"]))
    modern = re.fullmatch(r"ALE/(\w+)-v5", name)
    if modern and name in gym.registry:
        return EnvId(name, "atari", AtariId(_games()[_plain(modern[1])], PROTOCOLS["v5"]))
    legacy = _legacy(name)
    if legacy is None:
        return None
    title = rom_id_to_name(legacy[0])
    if legacy[1] == "NoFrameskip-v4":
        return EnvId(name, "atari", AtariId(legacy[0], PROTOCOLS["classic"]))
    raise ConfigError(f"env={name!r} is an old version of an Atari id, which Vantage does not play; did you mean "
                      f"{title} (the classic protocol, as {title}NoFrameskip-v4) or ALE/{title}-v5 (sticky actions)?")


def _legacy(name: str) -> tuple[str, str] | None:
    """ROM and variant of an id such as PongNoFrameskip-v4, Pong-v0 or Pong-ramDeterministic-v4."""
    match = re.fullmatch(r"(\w+?)((?:-ram)?(?:NoFrameskip|Deterministic)?-v[04])", name)
    game = _games().get(_plain(match[1])) if match else None
    return (game, match[2]) if match and game is not None and match[1] == rom_id_to_name(game) else None


@lru_cache(1)
def _games() -> dict[str, str]:
    """ROM names by their letters alone, in lower case."""
    return {_plain(rom): rom for rom in roms.get_all_rom_ids() if rom not in TWO_PLAYERS}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _registered(name: str) -> EnvId:
    if name not in gym.registry:
        raise ConfigError(f"env={name!r} is no Gymnasium id, Atari game or module:Class{nearest(name, known_names())}")
    return EnvId(name, _family(name))


def _family(gym_id: str) -> Family:
    entry = str(gym.registry[gym_id].entry_point)
    families: tuple[tuple[str, Family], ...] = (
        ("classic_control", "classic"), ("box2d", "box2d"), ("mujoco", "mujoco"), ("ale_py", "atari"))
    return next((family for part, family in families if part in entry), "other")


def _from_module(name: str) -> EnvId:
    module_name, _, attribute = name.partition(":")
    target = load_entry(name) if attribute else None
    if callable(target):
        if isinstance(target, type):
            _check_class(target, name)
        return EnvId(name, "other", entry=name)
    if attribute in gym.registry:
        return EnvId(name, _family(attribute))
    offered = [key for key, value in vars(_import(module_name, name)).items()
               if isinstance(value, type) and issubclass(value, gym.Env | gym.vector.VectorEnv)]
    raise ConfigError(f"env={name!r}: module {module_name} has no environment {attribute!r}, nor registers such an id"
                      f"{nearest(attribute, [*offered, *gym.registry])}")


def _import(module_name: str, name: str) -> Any:
    import_path_here()
    try:
        return importlib.import_module(module_name)
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env={name!r}: {missing_library(error)}") from None
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        remedy = "is it installed, or in the current directory?" if absent else "put that right in the module"
        raise ConfigError(f"env={name!r}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}; "
                          f"{remedy}") from error


def _check_class(kind: type, name: str) -> None:
    if is_old_gym(kind):
        raise ConfigError(f"env={name!r} is a class of the old gym library; derive it from gymnasium.Env instead, see "
                          "https://gymnasium.farama.org/introduction/migration_guide")
