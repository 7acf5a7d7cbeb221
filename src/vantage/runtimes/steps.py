"""Arithmetic of agent steps: when something is due, and where a run stops.

Goals are in `progress`.
"""

from __future__ import annotations

import math

from vantage.config.config import Config
from vantage.config.runtimes import Sync
from vantage.errors import for_reader


def stop_in_words(config: Config, step: int, agents: int = 1) -> str | None:
    """Where a run that is at `step` stops; None if that is exactly at its `steps`.

    Environments have a row for each of their `agents`. A run may pass its `steps`, because updates
    are never cut short.
    """
    runtime = config.runtime
    steps = config.run.steps
    if step >= steps:
        return None
    num_envs = config.env.num_envs if isinstance(runtime, Sync) else config.envs_per_process
    steps_per_rollout = num_envs * agents * runtime.rollouts_per_update
    sizes = [steps_per_rollout * length for length in runtime.rollout_lengths]
    if not isinstance(runtime, Sync):
        most = sum(sizes[worker % len(sizes)] for worker in range(runtime.num_workers))
        return f"steps={steps:,}: workers complete their updates, up to {most:,} steps more"
    size = sizes[0]
    end = step + math.ceil((steps - step) / size) * size
    if end == steps:
        return None
    return f"steps={steps:,}: an update takes {size:,}, so the run ends at {end:,}"


def no_end_in_training(step: int, *, evaluates: bool = False) -> str:
    """What a training without the end of an episode lacks at `step`, and how to get it."""
    lacks = "the training has no return"
    if evaluates:
        lacks = "evaluations wait for the first end"
    return for_reader(f"no episode has ended in {step:,} steps, so that {lacks}: train for longer, "
                      "or end episodes in the environment or, unless it is a vector environment, "
                      "by --max-episode-steps")


def is_due(every: int, before: int, step: int) -> bool:
    """A multiple of `every` lies in (before, step]; False if `every` is 0.

    It depends on steps alone, so that a resumed run takes the same course.
    """
    return every > 0 and step // every > before // every
