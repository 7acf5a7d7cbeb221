"""Packages of widely used environments by the beginnings of their ids, for hints in messages.

Nothing is imported. Modules are those whose import registers the ids; package names are PyPI's.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from vantage.envs.descriptions import cut

_GYMNASIUM = {
    "highway_env highway-env":
        "(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn)-(.*-)?v",
    "minigrid minigrid": "(MiniGrid|BabyAI)-",
    "miniworld miniworld": "MiniWorld-",
    "gymnasium_robotics gymnasium-robotics":
        "(Fetch|Hand(Reach|Manipulate)|AdroitHand|FrankaKitchen|PointMaze|AntMaze|MaMuJoCo|Maze)",
    "panda_gym panda-gym": "Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)",
    "pybullet_envs_gymnasium pybullet-envs-gymnasium": ".*Bullet(Env)?-v",
    "flappy_bird_gymnasium flappy-bird-gymnasium": "FlappyBird-v",
    "gym_anytrading gym-anytrading": "(stocks|forex)-v",
    "gym_trading_env gym-trading-env": "TradingEnv|MultiDatasetTradingEnv",
    "mo_gymnasium mo-gymnasium":
        "mo-|deep-sea-treasure|resource-gathering|four-room-v|minecart-|fruit-tree-|fishwood-",
    "safety_gymnasium safety-gymnasium": "Safety[A-Z]",
    "PyFlyt.gym_envs PyFlyt": "PyFlyt/",
    "metaworld metaworld": "Meta-World/",
    "rware rware": "rware-",
    "lbforaging lbforaging": "Foraging-",
    "popgym popgym": "popgym-",
    "nle nle": "NetHack",
    "minihack minihack": "MiniHack-",
    "vizdoom.gymnasium_wrapper vizdoom": "Vizdoom",
    "sumo_rl sumo-rl": "sumo-rl-",
    "sinergym sinergym": "Eplus-",
    "gym_pusht gym-pusht": "gym_pusht/",
    "gym_aloha gym-aloha": "gym_aloha/",
    "myosuite MyoSuite": "myo[A-Z]|motor[A-Z]",
    "mani_skill.envs mani-skill":
        "(PickCube|PushCube|PushT|StackCube|PegInsertion|LiftPeg|PullCube|OpenCabinet|PlugCharger)",
    "shimmy shimmy": "dm_control/|bsuite/|dm_lab/",
}
"""Patterns of ids by the module that registers them and the package that contains it."""

_OLD_GYM = {
    "procgen": "procgen[:-]",
    "gym-super-mario-bros": "SuperMarioBros",
    "minerl": "MineRL",
    "crafter": "Crafter",
    "gym-sokoban": "Sokoban-|Boxoban-",
}
"""Patterns of ids by packages for the old gym library."""


_PARALLEL = ":parallel_env, a function of this module?"
_IN_TURNS = ":env, a game in turns, with --self-play 20?"


def _function_of_module(name: str) -> str:
    """PettingZoo's function of an installed module; "" without one. Nothing is imported."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        return ""
    folders: list[str] | None = sys.path
    spec = None
    parts = name.split(".")
    for i in range(len(parts)):
        if folders is None:  # of a module that is no package
            return ""
        spec = PathFinder.find_spec(".".join(parts[:i + 1]), folders)
        if spec is None:
            return ""
        folders = spec.submodule_search_locations
    if spec is None or not str(spec.origin).endswith(".py"):
        return ""
    try:
        text = Path(str(spec.origin)).read_text("utf-8", errors="replace")
    except OSError:
        return ""
    if re.search(r"\bparallel_env\b", text):
        return _PARALLEL
    return _IN_TURNS if re.search(r"\braw_env\b", text) else ""


def hint(gym_id: str) -> str:
    """How to install or import the package of `gym_id`, as a remedy; "" if it is unknown."""
    words = _function_of_module(gym_id)
    if not words and gym_id.startswith("pettingzoo."):
        words = _PARALLEL
    if words:
        return f"; did you mean {cut(gym_id, 100)}{words}"
    for words, pattern in _GYMNASIUM.items():
        module, package = words.split()
        if re.match(pattern, gym_id):
            if find_spec(module.partition(".")[0]):
                return f"; did you mean {module}:{gym_id}, which imports its package?"
            return (f"; it seems to be of the package {package}: pip install {package}, then give "
                    f"{module}:{gym_id}")
    for package, pattern in _OLD_GYM.items():
        if re.match(pattern, gym_id):
            return (f"; it seems to be of the package {package}, which is for the old gym library: "
                    "make a gymnasium.Env around it in a module of your own and give module:Class")
    return ""
