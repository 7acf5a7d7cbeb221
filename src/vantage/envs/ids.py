"""Resolves an environment's name to the environment, its family and its Atari protocol."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Literal

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

import vantage.envs.snake  # noqa: F401  registers it
from vantage._host.extras import install_command
from vantage.envs.config import EnvConfig
from vantage.envs.known_packages import hint
from vantage.errors import ConfigError, runs_command
from vantage.keys.import_paths import colon_form, load_class
from vantage.keys.objects import is_code, is_object
from vantage.keys.suggestions import nearest

Family = Literal["atari", "classic", "box2d", "mujoco", "toy_text", "other"]
FAMILIES: dict[str, Family] = {"classic_control": "classic", "box2d": "box2d", "mujoco": "mujoco",
                               "toy_text": "toy_text"}
"""Families by the part of an entry point that identifies them."""

# Games without a single-player mode; ale_py does not register them either.
TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")


@dataclass(frozen=True, slots=True)
class AtariProtocol:
    """The rules of play on which Atari scores depend."""

    name: str
    sticky: float  # probability that the emulator repeats the previous action instead
    noop_max: int  # ALE draws 0 to noop_max - 1 no-ops at a reset
    # press FIRE after a reset and after a lost life, in games that have it as their second action
    fire: bool
    full_actions: bool  # all 18 actions instead of the game's minimal set
    life_signal: bool  # a lost life ends the value bootstrap in training


PROTOCOLS = {
    "classic": AtariProtocol("classic", sticky=0.0, noop_max=30, fire=True, full_actions=False,
                             life_signal=True),
    "v5": AtariProtocol("v5", sticky=0.25, noop_max=0, fire=False, full_actions=False,
                        life_signal=False),
    # Machado et al. 2018, arXiv:1709.06009: sticky actions take the place of no-op starts.
    "machado": AtariProtocol("machado", sticky=0.25, noop_max=0, fire=False, full_actions=True,
                             life_signal=False),
}


@dataclass(frozen=True, slots=True)
class AtariId:
    """A game by the name of its ROM, and its protocol."""

    game: str
    protocol: AtariProtocol


@dataclass(frozen=True, slots=True)
class EnvId:
    """An environment by its canonical name."""

    name: str
    family: Family
    atari: AtariId | None = None
    is_path: bool = False  # the name is that of a class, function or object, not a Gymnasium id

    @property
    def gym_id(self) -> str:
        """The Gymnasium id without the module that registers it; module:Class is unchanged."""
        return self.name if self.is_path else self.name.rpartition(":")[2]


def resolve_env(name: str, atari_protocol: str = "auto") -> EnvId:
    """The environment called `name`: a Gymnasium id, a short Atari name in any case, module:Class
    or an object.

    Imports the module that the name mentions. Raises ConfigError with the nearest match for an
    unknown name.
    """
    env = _atari(name) or (_from_module(name) if is_code(name) else _registered(name, name))
    if atari_protocol == "auto":
        return env
    if atari_protocol not in PROTOCOLS:
        known = ("auto", *PROTOCOLS)
        raise ConfigError(f"atari_protocol={atari_protocol!r} is not one of {', '.join(known)}"
                          f"{nearest(atari_protocol, known)}")
    if env.atari is None:
        raise ConfigError(f"atari_protocol={atari_protocol} is for Atari games, not for "
                          f"env={name!r}; leave it auto")
    return dataclasses.replace(env, atari=AtariId(env.atari.game, PROTOCOLS[atari_protocol]))


def is_atari(name: str) -> bool:
    """Whether `name` is an Atari game; imports no module."""
    return _atari(name) is not None


def check_processes(env: EnvId) -> None:
    """ConfigError for an environment defined in a notebook, which workers cannot import."""
    is_in_main = env.name.startswith("__main__:") or registering_module(env.name) == "__main__"
    if is_in_main and not hasattr(sys.modules["__main__"], "__file__"):
        raise ConfigError(f"env={env.name!r} is defined in a notebook or an interactive session, "
                          "which worker processes cannot import; give its class as env instead of "
                          "the name, or use one process")


def needs_main(env: EnvConfig) -> bool:
    """Whether workers have to import the main module, which may register the environment."""
    return not is_object(env.id) and resolve_env(env.id, env.atari_protocol).atari is None


def registering_module(name: str) -> str:
    """The module with the code of a registered environment; "" if there is none."""
    entry = getattr(gym.registry.get(name.rpartition(":")[2]), "entry_point", None)
    if isinstance(entry, str):
        return entry.partition(":")[0]
    return str(getattr(entry, "__module__", ""))


def known_names() -> list[str]:
    """Every valid name: short Atari names and Gymnasium ids."""
    games = _games().values()  # first, as this registers the ids of ale_py
    ids = [name for name, spec in gym.registry.items()
           if not _is_ale(spec) or re.search(r"^ALE/|NoFrameskip-v4$", name)]
    return sorted([*(title for _, title in games), *ids])


def _is_ale(spec: EnvSpec) -> bool:
    """Whether ale_py registered `spec`, not the user."""
    return "ale_py" in str(spec.entry_point)


def _atari(name: str) -> EnvId | None:
    """The Atari game called `name`, if it is one. ConfigError for ids of unsupported variants."""
    name = re.sub("^ale_py:(?=ALE/)", "", name)
    game = _games().get(_plain(name))
    if game is not None:
        return EnvId(game[1], "atari", AtariId(game[0], PROTOCOLS["classic"]))
    match = re.fullmatch(r"(?:ALE/)?(\w+?)(?:-ram)?(?:NoFrameskip|Deterministic)?-v[045]", name)
    game = _games().get(_plain(match[1])) if match else None
    if match is None or game is None or match[1] != game[1]:
        return None
    protocols = {f"{match[1]}NoFrameskip-v4": "classic", f"ALE/{match[1]}-v5": "v5"}
    if name not in protocols:
        if name in gym.registry and not _is_ale(gym.registry[name]):
            return None  # the user's own environment, which is called like a game
        raise ConfigError(f"env={name!r} is an Atari id that Vantage does not support; did you "
                          f"mean {match[1]} (the classic protocol, as {match[1]}NoFrameskip-v4) or "
                          f"ALE/{match[1]}-v5 (sticky actions)?")
    return EnvId(name, "atari", AtariId(game[0], PROTOCOLS[protocols[name]]))


@lru_cache(1)
def _games() -> dict[str, tuple[str, str]]:
    """ROM name and game name by the lower-case letters of the ROM; {} without ale_py.

    Importing ale_py registers its ids.
    """
    if find_spec("ale_py") is None:
        return {}
    from ale_py import roms
    from ale_py.registration import rom_id_to_name

    return {_plain(rom): (rom, rom_id_to_name(rom))
            for rom in roms.get_all_rom_ids() if rom not in TWO_PLAYERS}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def find_plugin(gym_id: str) -> bool:
    """Whether `gym_id` is registered, after loading the plugin that provides its namespace."""
    gym_id = gym_id.rpartition(":")[2]
    if gym_id in gym.registry:
        return True
    namespace = gym_id.rpartition("/")[0]
    for plugin in entry_points(group="gymnasium.envs"):
        if plugin.name not in (namespace, "__root__"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about ids that it registers again
                plugin.load()()
        except Exception as error:
            raise ConfigError(f"env={gym_id!r}: the plugin {plugin.value} of Gymnasium fails: "
                              f"{type(error).__name__}: {error}; repair or remove its "
                              "package") from error
    return gym_id in gym.registry


def _with_package(gym_id: str) -> str:
    """'; did you mean package:ID?' if the id begins with an installed package, else ""."""
    match = re.match(r"[a-z_]\w*", gym_id.lower())
    if match is None or match[0] in sys.stdlib_module_names:
        return ""
    spec = find_spec(match[0])
    if spec is None or spec.origin is None:  # a folder without code, such as runs/
        return ""
    return f"; did you mean {match[0]}:{gym_id}, which imports its package?"


def _mistaken_for_id(name: str) -> str:
    """'; ...' for the path of a run, or for the name of a class of the program as text; or ''."""
    if os.path.isfile(os.path.join(name, "meta.json")):
        calls = f"vantage.resume({name!r}) continues it, vantage.evaluate({name!r}) plays it"
        if runs_command():
            calls = f"`vantage resume {name}` continues it, `vantage evaluate {name}` plays it"
        return f"; it is a run: {calls}"
    if isinstance(getattr(sys.modules["__main__"], name, None), type) and not runs_command():
        return f"; a class is given without quotes: env={name}"
    return ""


_NOT_A_NAME = "not a Gymnasium id, an Atari game or module:Class"


def _registered(name: str, gym_id: str) -> EnvId:
    if not find_plugin(gym_id):
        if words := _mistaken_for_id(name):
            raise ConfigError(f"env={name!r} is {_NOT_A_NAME}{words}")
        if find_spec("ale_py") is None and re.fullmatch(r"ALE/.*|\w+(NoFrameskip-v4)?", name):
            raise ConfigError(f"env={name!r} is not a Gymnasium id{nearest(name, known_names())}; "
                              "if it is an Atari game, ale_py is not installed: "
                              f"{install_command('atari')}")
        module = name.removesuffix(gym_id)
        near = colon_form(name)
        if module:
            near = near or nearest(gym_id, gym.registry, module.__add__)
        else:
            near = (near or hint(gym_id) or nearest(gym_id, known_names())
                    or _with_package(name))
        near = near or "; `vantage list environments` names them"
        raise ConfigError(f"env={name!r} is {_NOT_A_NAME}{near}")
    entry = str(gym.registry[gym_id].entry_point)
    families = [family for part, family in FAMILIES.items() if part in entry]
    return EnvId(name, families[0] if families else "other")


def _from_module(name: str) -> EnvId:
    """module:Class or an object, or module:id where the import of the module registers the id."""
    try:
        load_class(name, what="env")
    except ConfigError:
        module, _, gym_id = name.partition(":")
        is_id = gym_id in gym.registry or re.search(r"-v\d+$", gym_id)
        if module not in sys.modules or not is_id:
            raise
        return _registered(name, gym_id)
    return EnvId(name, "other", is_path=True)
