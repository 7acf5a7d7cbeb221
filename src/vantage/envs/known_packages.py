"""Packages of widely used environments by the beginnings of their ids, for hints in messages.

Nothing is imported. Modules are those whose import registers the ids; package names are PyPI's.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

_GYMNASIUM = {
    "highway_env highway-env": "(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn|"
                               "lane-keeping)-(.*-)?v",
    "minigrid minigrid": "(MiniGrid|BabyAI)-",
    "miniworld miniworld": "MiniWorld-",
    "gymnasium_robotics gymnasium-robotics": "(Fetch|Hand(Reach|Manipulate)|AdroitHand|FrankaKitchen|PointMaze|AntMaze|"
                                             "MaMuJoCo|Maze)",
    "panda_gym panda-gym": "Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)",
    "pybullet_envs_gymnasium pybullet-envs-gymnasium": ".*Bullet(Env)?-v",
    "flappy_bird_gymnasium flappy-bird-gymnasium": "FlappyBird-v",
    "gym_anytrading gym-anytrading": "(stocks|forex)-v",
    "gym_trading_env gym-trading-env": "TradingEnv|MultiDatasetTradingEnv",
    "mo_gymnasium mo-gymnasium": "mo-|deep-sea-treasure|resource-gathering|four-room-v|minecart-|fruit-tree-|"
                                 "breakable-bottles-|fishwood-|water-reservoir-",
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
    "tetris_gymnasium.envs tetris-gymnasium": "tetris_gymnasium/",
    "gym_pusht gym-pusht": "gym_pusht/",
    "gym_aloha gym-aloha": "gym_aloha/",
    "gym_xarm gym-xarm": "gym_xarm/",
    "gym_hil gym-hil": "gym_hil/",
    "myosuite MyoSuite": "myo[A-Z]|motor[A-Z]",
    "mani_skill.envs mani-skill": "(PickCube|PushCube|PushT|StackCube|PegInsertion|LiftPeg|PullCube|PickSingle|"
                                  "OpenCabinet|TurnFaucet|RollBall|PokeCube|PlaceSphere|PlugCharger|Humanoid(Stand|Place)"
                                  "|MS-)",
    "shimmy shimmy": "dm_control/|bsuite/|dm_lab/",
    "evogym.envs evogym": "(Walker|BridgeWalker|CaveCrawler|Jumper|Flipper|Balancer|UpStepper|DownStepper|"
                          "Climber|Carrier|Pusher|Thrower|Catcher|Lifter|BeamToppler|BeamSlider|Traverser|GapJumper)-v",
    "simglucose simglucose": "simglucose",
    "nasim nasim": "nasim:|nasim/|Tiny(Gen)?(PO)?-v",
    "gymnasium_2048 gymnasium-2048": "gymnasium_2048/",
    "gym_electric_motor gym-electric-motor": "(Cont|Finite)-(CC|TC|SC)-",
    "gym_jsbsim gym-jsbsim": "JSBSim-",
    "gym_saturation gym-saturation": "(Vampire|iProver|Prover)",
}
_OLD_GYM = {
    "procgen": "procgen[:-]", "gym-super-mario-bros": "SuperMarioBros", "minerl": "MineRL",
    "gym-tetris": "Tetris[AB]?-v", "crafter": "Crafter", "gym-sokoban": "Sokoban-|Boxoban-",
    "griddly": "GDY-", "memory-maze": "MemoryMaze-|memory_maze", "gym-donkeycar": "donkey-",
    "textworld": "tw-|textworld-"}


def hint(gym_id: str) -> str:
    """'; install or import its package' for the id of a known package, or an empty string."""
    for words, pattern in _GYMNASIUM.items():
        module, package = words.split()
        if re.match(pattern, gym_id):
            if find_spec(module.partition(".")[0]):
                return f"; did you mean {module}:{gym_id}, which imports its package?"
            return f"; it seems to be of the package {package}: pip install {package}, then give {module}:{gym_id}"
    for package, pattern in _OLD_GYM.items():
        if re.match(pattern, gym_id):
            return (f"; it seems to be of the package {package}, which is for the old gym library: "
                    "make a gymnasium.Env around it in a module of your own and give module:Class")
    return ""
