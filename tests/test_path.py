"""An update of A2C on Pong passes few enough files and lines to be read in one sitting."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import vantage
from vantage.algorithms import returns
from vantage.envs.vector_env import Environments
from vantage.learning.optimizers import FlatOptimizer
from vantage.runtimes import train_loop
from vantage.runtimes.training import train_updates

SOURCE = Path(vantage.__file__).parent
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def path_of_an_update(monkeypatch: pytest.MonkeyPatch, run: Path) -> list[CodeType]:
    """The functions that one update calls in the files of its path, in the order of their first call.

    The path is the call stacks from the training loop to the environments, to the advantages and to the optimiser.
    """
    called: dict[CodeType, None] = {}
    files: set[str] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.setdefault(frame.f_code)

    def leaf(function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arguments: Any, **keywords: Any) -> Any:
            stack = [frame.frame.f_code for frame in inspect.stack(0)]
            start = next(i for i, code in enumerate(stack) if code is train_loop.updates.__code__)
            files.update(code.co_filename for code in stack[:start + 1])
            return function(*arguments, **keywords)

        return record

    config = vantage.configure("ppo", env="Pong", num_envs=2, rollout_length=2, steps=4, num_workers=1, threads=1,
                               minibatch_size=4, image_norm_steps=4, tensorboard=False)
    updates = train_updates(config, run=run)
    next(updates)
    for owner, name in ((Environments, "step"), (returns, "reverse_scan"), (FlatOptimizer, "step")):
        monkeypatch.setattr(owner, name, leaf(getattr(owner, name)))
    sys.setprofile(trace)
    try:
        next(updates)
    finally:
        sys.setprofile(None)
        updates.close()
    return [code for code in called if code.co_filename in files and SOURCE in Path(code.co_filename).parents
            and "<" not in code.co_qualname]


def test_an_update_of_ppo_passes_the_files_of_the_architecture_page(monkeypatch: pytest.MonkeyPatch,
                                                                    tmp_path: Path) -> None:
    codes = path_of_an_update(monkeypatch, tmp_path / "run")
    files = dict.fromkeys(str(Path(code.co_filename).relative_to(SOURCE)) for code in codes)
    table = re.findall(r"^\| `([\w/]+\.py)` \| (.*?) \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(files) == list(dict.fromkeys(file for file, _ in table)) and len(files) <= 10
    names = {code.co_qualname.rpartition(".")[2] for code in codes}
    assert names >= {name.rpartition(".")[2] for _, words in table for name in re.findall("`(.+?)`", words)} - {"step"}
    assert sum(len(inspect.getsourcelines(code)[0]) for code in codes) <= 700
