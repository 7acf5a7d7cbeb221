"""Vantage: advantage actor-critic agents. The public API, each name imported when it is first used.

    import vantage

    agent = vantage.train("a2c", env="CartPole-v1", steps=200_000, seed=1)
    for report in vantage.Trainer("ppo", env="CartPole-v1", steps=100_000):
        print(report.step, report.metrics.get("rollout/ep_rew_mean"))

`help(vantage.train)` and the like explain each function; docs/python.md shows them all.

`import vantage` takes no time and imports no torch, so that the command answers help and bad input
at once. Where Gymnasium is imported already, it also registers vantage/Snake-v0 and
vantage/SnakePlural-v0; else `import vantage.envs.snake` does.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from vantage.errors import CheckpointError, ConfigError, EnvError, NonFiniteError, VantageError

if TYPE_CHECKING:
    from vantage.agents.agent import Agent, load
    from vantage.agents.evaluate import Evaluation, evaluate
    from vantage.algorithms.a2c import A2C
    from vantage.algorithms.acer import ACER
    from vantage.algorithms.ppo import PPO
    from vantage.api import resume, train
    from vantage.config.config import Config
    from vantage.config.configure import configure
    from vantage.config.run import RunConfig
    from vantage.config.runtimes import Hogwild, Ray, Sync
    from vantage.envs.config import EnvConfig
    from vantage.keys.schedules import Coefficient, Schedule
    from vantage.learning.config import CloningConfig, ExplorationConfig, OptimizerConfig
    from vantage.models.config import PolicyConfig
    from vantage.runtimes.trainer import Trainer
    from vantage.tools.demonstrations import record_demonstrations
    from vantage.tools.export import Export, export
    from vantage.tools.plot import plot
    from vantage.tools.record import Recording, record
    from vantage.tools.report import report
    from vantage.tools.search.command import SearchResult, search
    from vantage.types import Episode, Report

    __version__: str

# GNU OpenMP, which torch brings, reads this when torch is imported. By default its threads spin for
# milliseconds after each operation; where another program wants the cores, training is then three
# times slower (Pong on 2 cores beside one other training: 70-77 steps/s against 242-265). Alone it
# makes no difference.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

__all__ = [
    "A2C", "ACER", "PPO", "Agent", "CheckpointError", "CloningConfig", "Coefficient", "Config",
    "ConfigError", "EnvConfig", "EnvError", "Episode", "Evaluation", "ExplorationConfig", "Export",
    "Hogwild", "NonFiniteError", "OptimizerConfig", "PolicyConfig", "Ray", "Recording", "Report",
    "RunConfig", "Schedule", "SearchResult", "Sync", "Trainer", "VantageError", "__version__",
    "configure", "evaluate", "export", "load", "plot", "record", "record_demonstrations", "report",
    "resume", "search", "train"]

_NAMES = {
    "vantage.agents.agent": ("Agent", "load"),
    "vantage.agents.evaluate": ("Evaluation", "evaluate"),
    "vantage.algorithms.a2c": ("A2C",),
    "vantage.algorithms.acer": ("ACER",),
    "vantage.algorithms.ppo": ("PPO",),
    "vantage.api": ("resume", "train"),
    "vantage.config.config": ("Config",),
    "vantage.config.configure": ("configure",),
    "vantage.config.run": ("RunConfig",),
    "vantage.config.runtimes": ("Hogwild", "Ray", "Sync"),
    "vantage.envs.config": ("EnvConfig",),
    "vantage.keys.schedules": ("Coefficient", "Schedule"),
    "vantage.learning.config": ("CloningConfig", "ExplorationConfig", "OptimizerConfig"),
    "vantage.models.config": ("PolicyConfig",),
    "vantage.runtimes.trainer": ("Trainer",),
    "vantage.tools.demonstrations": ("record_demonstrations",),
    "vantage.tools.export": ("Export", "export"),
    "vantage.tools.plot": ("plot",),
    "vantage.tools.record": ("Recording", "record"),
    "vantage.tools.report": ("report",),
    "vantage.tools.search.command": ("SearchResult", "search"),
    "vantage.types": ("Episode", "Report"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
"""The module of each lazy name.

Importing a module of this package with one of these names would replace the name.
"""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version
        value: object = version("vantage-rl")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        # `from vantage import NAME` replaces the text of an AttributeError by its own.
        if sys._getframe(1).f_code.co_name == "_handle_fromlist" and not _is_module(name):
            raise ImportError(f"cannot import name {name!r} from 'vantage'{_instead(name)}",
                              name="vantage", path=__file__)
        raise AttributeError(f"module 'vantage' has no attribute {name!r}{_instead(name)}")
    globals()[name] = value
    return value


def _is_module(name: str) -> bool:
    return PathFinder.find_spec(f"{__name__}.{name}", __path__) is not None


def _instead(name: str) -> str:
    """What a user of this module writes instead of `name`; '' for private names."""
    if name.startswith("_"):
        return ""
    from vantage.keys.other_libraries import MODULE
    from vantage.keys.suggestions import nearest
    return f"; {MODULE[name]}" if name in MODULE else nearest(name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "gymnasium" in sys.modules:
    import_module("vantage.envs.snake")
