"""What every test starts from: one thread, no display, known seeds, an empty directory of its own."""

from __future__ import annotations

import multiprocessing.util
import os
import random
import shutil
import tempfile
from pathlib import Path

# Before anything opens a window: Matplotlib and SDL (which Gymnasium draws with) read these when they are imported.
os.environ["MPLBACKEND"] = "Agg"
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"

# The threads of runs are limited by it.
os.environ.pop("OMP_NUM_THREADS", None)

# Processes that tests start can import the environments beside this file.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).rstrip(":")

# In memory where there is room: on a disk, short runs spend most of their time in fsync (a search 31 s instead of 6).
if (Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 4 << 30
        and not os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# Where the key is that marks runs as the user's own; processes that tests start inherit it.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="vantage-state-")

import numpy as np
import pytest
import torch
import zygote

import vantage

zygote.use()  # workers need not import torch


def pytest_unconfigure() -> None:
    """Remove the key, and end the zygote."""
    zygote.close()
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def known_start() -> None:
    """One thread, so that results do not depend on the machine's cores, and the same seeds for every test."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture
def fresh_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are interpreters of their own, as outside the tests."""
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", zygote.exec_passfds)


@pytest.fixture
def one_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a report has one curve; Matplotlib takes two seconds to draw all."""
    monkeypatch.setattr("vantage.tools.report._CURVES", ("rollout/ep_rew_mean",))


@pytest.fixture(scope="session")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole of 400 steps, games of 60 at most; to be left as it is."""
    return train_shortly(tmp_path_factory.mktemp("runs") / "cartpole", "CartPole-v1", max_episode_steps=60)


def train_shortly(path: Path, env: str, **overrides: object) -> Path:
    """A new run of 400 steps in one environment, with a constant lr: more steps may be added."""
    values = {"steps": 400, "num_envs": 1, "lr": 1e-3, "tensorboard": False, "eval_every": 0, "threads": 1,
              **overrides}
    config = vantage.configure("a2c", env=env, **values)
    assert [report.status for report in vantage.Trainer(config, run=path)][-1] == "done"
    return path


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, empty: what is written to a relative path, such as runs/, goes there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
