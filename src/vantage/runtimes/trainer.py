"""`Trainer`: a training as an object that is stepped. `api` runs one to the end.

How a run begins and continues is in `training`; what an update does is in the other runtimes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn, Self

import numpy as np

from vantage.agents.agent import Agent
from vantage.agents.evaluate import Evaluation, evaluate_policy
from vantage.config.config import Config
from vantage.config.configure import Env
from vantage.config.groups import Group
from vantage.errors import ConfigError
from vantage.keys.metric_names import check_free
from vantage.keys.objects import shown_name
from vantage.runs.checkpoint import path_of
from vantage.runs.handed_over import run_of, with_code_of
from vantage.runtimes.recorder import Recorder, Status
from vantage.runtimes.session import Session
from vantage.runtimes.settable import checked_values, value_now, why_unknown
from vantage.runtimes.training import config_of, resume_updates, train_updates
from vantage.types import Episode, Report

MOST_EPISODES = 10_000
"""Most episodes in one report; older ones are dropped."""


class Trainer:
    """A training that you step, in this process and in the workers that the config asks for.

        trainer = vantage.Trainer("ppo", env="CartPole-v1", steps=100_000)
        while trainer.step < 50_000:
            report = trainer.update()
            if report.metrics["train/approx_kl"] > 0.05:
                trainer.lr = trainer.lr / 2
        for report in trainer:
            print(report.step, report.metrics.get("rollout/ep_rew_mean"))

    `update` makes one update. Iterating trains to the end and yields the reports that are due,
    every `log_every_seconds` and the last; both may be mixed. Leaving the loop leaves the trainer
    open.

    The numbers of the algorithm and the optimizer (lr, gamma, entropy_coef, epochs, max_kl, ...)
    are attributes. Reading one gives its current value. Setting it takes effect from the next
    update on, in all processes, and in config.json, so that a resume continues with it. A
    coefficient may be set to a schedule such as "linear:7e-4:0", which replaces the former one.

    `close`, or the end of a `with` block, saves the run; `Trainer.resume` continues it. A trainer
    that is not closed is saved when it is garbage collected or when the interpreter exits. An error
    in training saves the last complete update and ends the trainer. Ctrl-C raises KeyboardInterrupt
    after the update that is under way, and leaves the trainer open; a second Ctrl-C, and one under
    hogwild or ray, ends it as an error does.

    A script that trains with worker processes (a3c, a3g, num_workers, vector="async") needs
    `if __name__ == "__main__":`, because the workers import it. Under torchrun, ranks above 0 share
    the updates of rank 0, and their constructor returns when the training has ended.
    """

    def __init__(self, algorithm: Any, *groups: Group, env: Env | None = None,
                 run: str | Path | None = None, root: str | Path = "runs",
                 argv: Sequence[str] | None = None, **keys: Any) -> None:
        """Begin a training in a new run directory.

        `algorithm`, `groups`, `env` and `keys` are the arguments of `vantage.configure`; or
        `algorithm` is a config, and there are no others.

        `run` is the directory, which must not exist; by default the next free `root`/ENV/ALGO-N. It
        holds config.json, metrics.jsonl, checkpoints and the best policy. If `root` is an fsspec
        URL such as s3://BUCKET/RUNS, the run is written to runs/ and copied to the URL at every
        save; `vantage.resume(URL)` then continues it on any machine. `argv` is the command recorded
        in meta.json, by default sys.argv. Messages go to the logger `vantage`.

        Raises ConfigError if the directory exists, or if the environment, the network or the policy
        of `init_from` does not fit; EnvError for an environment that fails.
        """
        config = config_of(algorithm, groups, env, keys)
        self._follow(Session(partial(train_updates, config, run=run, root=root, argv=argv)))

    @classmethod
    def resume(cls, run: str | Path | Agent, *, steps: int | None = None,
               extend_schedule: bool = False, max_minutes: float | None = None,
               device: str | None = None,
               trust: bool = False, env: Any = None, network: Any = None, memory: Any = None,
               algorithm: Any = None) -> Self:
        """Continue the run in directory `run` from its newest valid checkpoint.

            trainer = vantage.Trainer.resume("runs/first", steps=200_000)

        `run` may be the URL of a copy, see `root`. `steps` is the new total; schedules keep running
        over the former total unless `extend_schedule`; ConfigError if lr would be 0 in all steps
        that are added. `max_minutes` applies to this session only;
        `device` is saved. `trust` allows a run made by someone else to import code from outside
        Vantage. `env`, `network`, `memory` and `algorithm` replace those of the run; they are
        required where config.json could not name the object, such as a lambda or a class of a
        notebook. Raises ConfigError if the run has nothing left to do.
        """
        objects = with_code_of(run, {"env": env, "network": network, "memory": memory,
                                     "algorithm": algorithm})
        path = run_of(run)
        trainer = cls.__new__(cls)
        trainer._follow(Session(partial(
            resume_updates, path, steps=steps, extend_schedule=extend_schedule,
            max_minutes=max_minutes, device=device, trust=trust, **objects)))
        return trainer

    def _follow(self, session: Session) -> None:
        self._session = session
        self._settable: Sequence[str] = ()
        self._logged: dict[str, list[float]] = {}
        self._episodes: deque[Episode] = deque(maxlen=MOST_EPISODES)
        if session.has_run:
            self._settable = [*session.config.settable()]
            self._recorder.progress.new_episodes = self._episodes

    @property
    def has_run(self) -> bool:
        """False in a rank above 0 of torchrun, which shared the training of rank 0."""
        return self._session.has_run

    @property
    def _recorder(self) -> Recorder:
        return self._session.run.recorder

    # Training

    def update(self) -> Report:
        """Make one update, and the evaluation and the checkpoint that are due after it.

        Under hogwild and ray it returns after a moment in which updates have arrived. The report
        has the metrics of this update (means over its minibatches), of the recent games, of an
        evaluation if one was made, and the episodes that ended in it. Files are written as often as
        they would be without. VantageError if the training has ended.
        """
        recorder = self._session.running.recorder
        progress = recorder.progress
        former_evaluation = recorder.evaluation
        total = self._session.advance_one_update()
        metrics = total.means()
        metrics |= progress.metrics_of_recent()
        metrics |= {name: fmean(values) for name, values in self._logged.items()}
        self._logged.clear()
        if recorder.evaluation is not former_evaluation:
            metrics |= recorder.evaluation
        return Report(progress.step, progress.seconds, metrics, self.status, str(self.run),
                      self._take_episodes())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Report:
        while self._session.is_running:
            report = self._session.advance()
            if report is not None and report.metrics:
                self._logged.clear()
                return replace(report, episodes=self._take_episodes())
        raise StopIteration

    def _take_episodes(self) -> tuple[Episode, ...]:
        episodes = tuple(self._episodes)
        self._episodes.clear()
        return episodes

    def log(self, name: str, value: float) -> None:
        """Add a metric of your own to the next report, metrics.jsonl and TensorBoard.

            trainer.log("my/success_rate", 0.7)

        `name` must not be that of another metric; docs/training.md lists Vantage's. Several values
        of one name are averaged. After the last update this has no effect, so that the body of a
        loop need not check whether its report is the last. ConfigError for a taken name.
        """
        check_free(name, self._recorder.progress.logged if self.has_run else ())
        try:
            number = float(value.item() if isinstance(value, np.ndarray) else value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"the value of {name} is {value!r:.100}; give a number") from None
        if self.status == "done":
            return
        self._session.running.recorder.log(name, number)
        self._logged.setdefault(name, []).append(number)

    def save(self) -> Path:
        """Write a checkpoint now; returns its directory.

        CheckpointError if it cannot be written.
        """
        self._session.running.save()
        return path_of(self.run, self.step)

    def close(self) -> None:
        """Save the run, and release its processes and environments. A second call does nothing.

        CheckpointError if the run cannot be saved; everything is released nevertheless.
        """
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The policy

    @property
    def agent(self) -> Agent:
        """An agent with a copy of the current policy."""
        return self._session.agent()

    def evaluate(self, episodes: int = 20, *, deterministic: bool | None = None, seed: int = 0,
                 num_envs: int | None = None) -> Evaluation:
        """Play whole games with the current policy, in environments of their own.

        The arguments are those of `vantage.evaluate`. Training continues as if there had been no
        evaluation; best/ and the run's metrics do not change.
        """
        return evaluate_policy(self.agent, episodes=episodes, deterministic=deterministic,
                               seed=seed, num_envs=num_envs)

    # State

    @property
    def step(self) -> int:
        """Agent steps so far, all environments together."""
        return self._session.step

    @property
    def config(self) -> Config:
        """The config in force."""
        return self._session.config

    @property
    def run(self) -> Path:
        """The run directory."""
        return self._recorder.directory.path

    @property
    def status(self) -> Status:
        """`running`, then `done`, `interrupted` (closed before the end) or `failed`."""
        return self._session.status

    def __repr__(self) -> str:
        if not self.has_run:
            return f"<Trainer in a rank above 0: {self.status}>"
        config = self.config
        mean = self._session.return_mean
        score = "" if mean is None else f", return {mean:.4g}"
        return (f"<Trainer {config.setting}: {self.status}, step {self.step:,} of "
                f"{config.run.steps:,}{score}, {shown_name(self.run)}>")

    def __reduce__(self) -> NoReturn:
        """TypeError: a run has one trainer."""
        raise TypeError("a Trainer cannot be copied or pickled, since it holds an open run; use "
                        "trainer.agent for its policy, or close it and give its run to "
                        "vantage.Trainer.resume")

    # Numbers of the algorithm and the optimizer

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name not in self._settable:
            raise AttributeError(self._unknown(name))
        # None for an optional one
        value: float = value_now(self.config, name, self._recorder.progress)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in self._settable:
            run = self._session.running
            run.change(checked_values(run.config, name, value))
        elif hasattr(type(self), name):
            raise AttributeError(f"{name} of a trainer cannot be set")
        else:
            raise AttributeError(self._unknown(name))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._settable})

    def _unknown(self, name: str) -> str:
        if name.startswith("_"):
            return f"'Trainer' object has no attribute {name!r}"
        public = [each for each in dir(self) if not each.startswith("_")]
        return why_unknown(name, public, self.config if self.has_run else None)
