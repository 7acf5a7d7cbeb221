"""What every test starts from: one thread, no display, known seeds, an empty directory of its own."""

from __future__ import annotations

import os
import random
from pathlib import Path

# Before anything opens a window: Matplotlib and SDL (which Gymnasium draws with) read these when they are imported.
os.environ["MPLBACKEND"] = "Agg"
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def known_start() -> None:
    """One thread, so that results do not depend on the machine's cores, and the same seeds for every test."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, empty: what is written to a relative path, such as runs/, goes there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
