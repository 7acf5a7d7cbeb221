"""Reports that an id which a script registers is unknown in worker processes.

github.com/Farama-Foundation/Gymnasium/issues/222, github.com/DLR-RM/stable-baselines3/issues/1869.
"""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

from vantage.config.config import Config
from vantage.envs.build import create
from vantage.envs.episodes import ERROR, Episodes
from vantage.envs.ids import EnvId
from vantage.envs.interface import Seeds
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec


def test_an_id_that_only_the_main_program_registers_is_named_with_the_remedy(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with pytest.raises(ConfigError, match="register it where a module is imported, and give module:Hidden-v0"):
        create(EnvId("Hidden-v0", "other"), Config().env, {})


def test_an_error_of_the_config_comes_out_of_a_process_without_a_traceback() -> None:
    def build() -> Environments:
        raise ConfigError("give module:Hidden-v0")

    spec = EnvSpec(ArraySpec("vector", (1,)), ActionSpec("discrete", (2,)), False)
    episodes = Episodes(build, spec, {}, Seeds("Hidden-v0", 0, 0), 0, 0)
    episodes._parent = 1  # as in a process
    _, info = episodes.reset(options={"episodes": np.zeros(1, np.int64), "seed": 0})
    assert info[ERROR].endswith("give module:Hidden-v0")
    assert "Traceback" not in info[ERROR]
