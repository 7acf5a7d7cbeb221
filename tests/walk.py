"""Prints the functions that one update of PPO on Pong calls, as JSON: file, name and number of lines of each.

A process of its own, since a profiled process should hold nothing but that update.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import vantage
from vantage.algorithms import returns
from vantage.envs.vector_env import Environments
from vantage.learning.optimizers import FlatOptimizer
from vantage.runtimes import train_loop
from vantage.runtimes.training import train_updates

SOURCE = Path(vantage.__file__).parent


def path_of_an_update(run: Path) -> list[CodeType]:
    """The functions that one update calls in the files of its path, in the order of their first call.

    The path is the call stacks from the training loop to the environments, to the advantages and to the optimiser.
    """
    called: dict[int, CodeType] = {}
    files: set[str] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.setdefault(id(frame.f_code), frame.f_code)

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
        setattr(owner, name, leaf(getattr(owner, name)))
    sys.setprofile(trace)
    try:
        next(updates)
    finally:
        sys.setprofile(None)
        updates.close()
    return [code for code in called.values() if code.co_filename in files
            and SOURCE in Path(code.co_filename).parents and "<" not in code.co_qualname]


if __name__ == "__main__":
    print(json.dumps([[str(Path(code.co_filename).relative_to(SOURCE)), code.co_qualname.rpartition(".")[2],
                       len(inspect.getsourcelines(code)[0])] for code in path_of_an_update(Path(sys.argv[1]))]))
