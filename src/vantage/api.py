"""`train` and `resume`: a training to its end, with progress.

The training itself is a `Trainer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vantage.agents.agent import Agent, load
from vantage.config.configure import Env
from vantage.config.groups import Group
from vantage.runs.checkpoint import newest_step
from vantage.runs.handed_over import continuation, objects_of
from vantage.runtimes.trainer import Trainer
from vantage.runtimes.training import config_of
from vantage.tools.progress_line import shown_progress
from vantage.types import Report

log = logging.getLogger(__name__)


def train(algorithm: Any, *groups: Group, env: Env | None = None,
          run: str | Path | None = None, root: str | Path = "runs",
          argv: Sequence[str] | None = None, progress: bool = True,
          **keys: Any) -> Agent:
    """Train to the end in a new run directory; returns an agent with the best policy of the run.

        agent = vantage.train("ppo", env="CartPole-v1", steps=100_000)
        action, state = agent.act(obs)

    All arguments but `progress` are those of `vantage.Trainer`: `algorithm`, `groups`, `env`,
    `run`, `root`, `argv` and `keys`. `progress` shows the panel of the command in a terminal, or a
    line that updates in place in a notebook; elsewhere it logs a line every 10 s to the logger
    `vantage`. Ctrl-C ends the training after the update under way, and a second one at once; both
    save the run and raise KeyboardInterrupt with the call that continues it.
    """
    config = config_of(algorithm, groups, env, keys)
    with shown_progress(config, progress) as show:
        return _to_the_end(Trainer(config, run=run, root=root, argv=argv), show)


def resume(run: str | Path | Agent, *, steps: int | None = None, extend_schedule: bool = False,
           max_minutes: float | None = None, device: str | None = None, trust: bool = False,
           env: Any = None, network: Any = None, memory: Any = None, algorithm: Any = None,
           progress: bool = True) -> Agent:
    """Continue a run to its end; returns an agent with its best policy.

        agent = vantage.resume("runs/first", steps=200_000, extend_schedule=True)

    `run` is its directory, or an agent of it. `steps`, `extend_schedule`, `max_minutes`, `device`,
    `trust`, `env`, `network`, `memory` and `algorithm` are explained in `vantage.Trainer.resume`,
    `progress` in `vantage.train`.
    """
    trainer = Trainer.resume(run, steps=steps, extend_schedule=extend_schedule,
                             max_minutes=max_minutes, device=device, trust=trust, env=env,
                             network=network, memory=memory, algorithm=algorithm)
    with shown_progress(trainer.config, progress) as show:
        return _to_the_end(trainer, show)


def _to_the_end(trainer: Trainer, show: Callable[[Report], object]) -> Agent:
    try:
        with trainer:
            for report in trainer:
                show(report)
    except KeyboardInterrupt:
        step = newest_step(trainer.run) or 0
        text = (f"stopped at step {step:,}, saved; go on with "
                f"{continuation('resume', trainer.run, trainer.config)}")
        log.info(text)  # for programs that catch the error
        # The traceback of the update that was interrupted would hide this line.
        raise KeyboardInterrupt(text) from None
    if not trainer.has_run:  # a rank above 0, which has no directory
        return trainer.agent
    # Its code has just run in this process.
    return load(trainer.run, trust=True, **objects_of(trainer.config))
