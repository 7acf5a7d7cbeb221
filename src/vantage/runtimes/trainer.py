"""`Trainer`: a training as an object that is stepped; `api` uses it to the end.

What an update does is in `runtimes`, how a run begins and continues in `training`.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from typing import Any, NoReturn, Self
from weakref import WeakSet

from vantage.agents.agent import Agent
from vantage.agents.evaluate import Evaluation, evaluate_policy
from vantage.agents.evaluation_settings import acts_most_probably
from vantage.config.config import Config, Group, keys_of
from vantage.config.configure import Env, configure
from vantage.errors import ConfigError, VantageError
from vantage.keys.fields import convert, nearest
from vantage.keys.schedules import Coefficient
from vantage.runs.checkpoint import path_of
from vantage.runtimes.progress import Advance, sum_of
from vantage.runtimes.ranks import Followed, follow_torchrun
from vantage.runtimes.recorder import Status, means
from vantage.runtimes.train_loop import Run
from vantage.runtimes.training import resume_updates, train_updates
from vantage.types import Episode, Report

MOST_EPISODES = 10_000
"""Episodes that one report has at most, the newest ones."""

_OWN_METRICS = ("train/", "rollout/", "eval/", "time/", "ray/", "final/")

_Updates = Generator[Report | None]
_UNFINISHED: WeakSet[_Updates] = WeakSet()


@atexit.register
def _close_unfinished() -> None:
    """Save the runs whose trainers are open when the interpreter exits."""
    for updates in list(_UNFINISHED):
        with contextlib.suppress(ValueError):  # another thread is executing it and ends with the program
            updates.close()


os.register_at_fork(after_in_child=_UNFINISHED.clear)


class Trainer:
    """A training that you step: in this process and in the workers that the config asks for.

        trainer = vantage.Trainer("ppo", env="CartPole-v1", steps=100_000)
        while trainer.step < 50_000:
            report = trainer.update()
            if report.metrics["train/approx_kl"] > 0.05:
                trainer.lr = trainer.lr / 2
        for report in trainer:
            print(report.step, report.metrics.get("rollout/ep_rew_mean"))

    `update` makes one update. Iterating trains to the end and yields the reports that are due, every
    `log_every_seconds` and the last; both may be mixed. Leaving the loop leaves the trainer open.

    Each coefficient of the config (lr, gamma, entropy_coef, ...) is an attribute: reading it gives its
    value now; a number, or a schedule in text, that is set replaces its schedule from the next update
    on, and also in config.json, so that a resume continues with it.

    `close`, or the end of a `with` block, saves the run; `Trainer.resume` continues it. A trainer that
    is not closed is saved when it is garbage collected or when the interpreter exits. An error in
    training saves the last complete update and ends the trainer.

    A script that trains with worker processes (a3c, a3g, num_workers, vector="async") needs
    `if __name__ == "__main__":`, because they import it. Under torchrun, ranks above 0 share the
    updates of rank 0 within the constructor, to the end of its training, and are done after it.
    """

    def __init__(self, algorithm: Any, *groups: Group, env: Env | None = None,
                 run: str | Path | None = None, root: str | Path = "runs",
                 argv: Sequence[str] | None = None, **keys: Any) -> None:
        """Begin a training in a new run directory.

        `algorithm`, `groups`, `env` and `keys` are those of `vantage.configure`; or `algorithm` is
        its config.

        `run` is the directory, which must not exist; by default the next free `root`/ENV/ALGO-N. It
        holds config.json, metrics.jsonl, checkpoints and the best policy. A `root` that is a URL of
        fsspec, such as s3://BUCKET/RUNS, receives a copy of the run in runs/ at every save, from which
        `vantage.resume(URL)` continues on any machine. `argv` is the command that meta.json names, by
        default that of this program. Messages go to the logger `vantage`.

        Raises ConfigError if the directory exists, or if the environment, the network or the policy of
        `init_from` does not fit; EnvError for an environment that fails.
        """
        config = config_of(algorithm, groups, env, keys)
        self._begin(lambda on_start: train_updates(config, run=run, root=root, argv=argv,
                                                   on_start=on_start))

    @classmethod
    def resume(cls, run: str | Path, *, steps: int | None = None, extend_schedule: bool = False,
               max_minutes: float | None = None, device: str | None = None,
               trust: bool = False, env: Any = None, network: Any = None, memory: Any = None,
               algorithm: Any = None) -> Self:
        """Continue the run in directory `run` from its newest valid checkpoint, as if it had not stopped.

            trainer = vantage.Trainer.resume("runs/first", steps=200_000)

        `run` may be the URL of a copy, see `root`. `steps` is the new total; schedules keep running
        over the former total unless `extend_schedule`. `max_minutes` applies to this session only,
        `device` from now on. `trust` allows code from outside Vantage that the config of someone
        else's run names. `env`, `network`, `memory` and `algorithm` take the place of those that the
        run names; a lambda, a class of a notebook and the like, which a file cannot name, have to be
        given again. ConfigError for a run that has nothing left to do.
        """
        trainer = cls.__new__(cls)
        trainer._begin(lambda on_start: resume_updates(
            run, steps=steps, extend_schedule=extend_schedule, max_minutes=max_minutes, device=device,
            trust=trust, env=env, network=network, memory=memory, algorithm=algorithm,
            on_start=on_start))
        return trainer

    def _begin(self, begin: Callable[[Callable[[Run], object]], _Updates]) -> None:
        self._coefficients: Sequence[str] = ()
        self._session: Run | None = None
        self._logged: dict[str, list[float]] = {}
        self._episodes: deque[Episode] = deque(maxlen=MOST_EPISODES)
        self._followed: Followed | None = follow_torchrun()
        # No method of this object: in a cycle with the generator it would be collected late.
        started: list[Run] = []
        self._updates = begin(started.append)
        if self._followed is not None:
            self._updates.close()
            return
        _UNFINISHED.add(self._updates)
        next(self._updates)  # the report before the first update
        self._session = session = started[0]
        self._coefficients = session.config.coefficients()
        session.recorder.progress.ended = self._episodes

    @property
    def has_run(self) -> bool:
        """This process trains; False in a rank above 0 of torchrun, which has shared a training."""
        return self._session is not None

    @property
    def _running(self) -> bool:
        return getgeneratorstate(self._updates) != GEN_CLOSED

    @property
    def _open(self) -> Run:
        """The run. VantageError if it has ended."""
        session = self._own
        if not self._running:
            words = {"done": "is done", "interrupted": "was closed", "failed": "has failed"}[self.status]
            steps = f", steps={2 * self.step}" if self.status == "done" else ""
            raise VantageError(f"this training {words}, at step {self.step:,}; go on with "
                               f"vantage.Trainer.resume({str(self.run)!r}{steps})")
        return session

    @property
    def _own(self) -> Run:
        """The run. VantageError in a rank above 0, which has none."""
        if self._session is None:
            raise VantageError("this process is a rank above 0 of torchrun, which has shared the training "
                               "of rank 0; leave this to rank 0")
        return self._session

    # Training

    def update(self) -> Report:
        """Make one update, and the evaluation and the checkpoint that are due after it.

        Under hogwild and ray it returns after a moment in which updates have arrived. The report has
        the metrics of this update (means over its minibatches), of the recent games, of an evaluation
        if one was made, and the episodes that ended in it. Files are written as often as they would be
        without. VantageError if the training has ended.
        """
        recorder = self._open.recorder
        progress, evaluation = recorder.progress, recorder.evaluation
        advances: list[Advance] = []
        progress.latest = advances
        try:
            self._pull()
            while self._running and not (recorder.between_updates
                                         and any(advance.updates for advance in advances)):
                self._pull()
        finally:
            progress.latest = None
        total = sum_of(advances)
        metrics = {**total.means(), **progress.metrics_of_recent(), **means(self._logged)}
        self._logged.clear()
        if recorder.evaluation is not evaluation:
            metrics |= recorder.evaluation
        return Report(progress.step, progress.seconds, metrics, self.status, str(self.run),
                      self._take_episodes())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Report:
        while self._running:
            report = self._pull()
            if report is not None and report.metrics:
                self._logged.clear()
                return replace(report, episodes=self._take_episodes())
        raise StopIteration

    def _pull(self) -> Report | None:
        """Train until the next yield of `train_loop.updates`."""
        report = next(self._updates)
        if report is not None and report.status != "running":
            self._updates.close()  # it was the last: releases the lock of the directory
        return report

    def _take_episodes(self) -> tuple[Episode, ...]:
        episodes = tuple(self._episodes)
        self._episodes.clear()
        return episodes

    def log(self, name: str, value: float) -> None:
        """Add a metric of your own to the next report, metrics.jsonl and TensorBoard.

            trainer.log("maze/reached", 0.7)

        Of several values until then, their mean is logged.
        """
        if not (isinstance(name, str) and name and name.isprintable()) or name in ("step", "seconds"):
            raise ConfigError(f"{name!r:.100} is no name of a metric; give a text such as 'my/metric'")
        if name.startswith(_OWN_METRICS):
            raise ConfigError(f"{name!r:.100}: names that begin with {', '.join(_OWN_METRICS)} are those of "
                              "Vantage's own metrics; choose another, such as 'my/metric'")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"the value of {name} is {value!r:.100}; give a number") from None
        self._open.recorder.log(name, number)
        self._logged.setdefault(name, []).append(number)

    def save(self) -> Path:
        """Write a checkpoint now; returns its directory. CheckpointError if it cannot be written."""
        session = self._open
        session.save()
        return path_of(self.run, self.step)

    def close(self) -> None:
        """Save the run, and release its processes and environments. A second call does nothing.

        CheckpointError if the run cannot be saved; all is released nevertheless.
        """
        self._updates.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The policy

    @property
    def agent(self) -> Agent:
        """An agent with a copy of the current policy."""
        model = self._followed_or_own_model()
        config = self.config.with_shifts(model.spec.shifts)
        deterministic = acts_most_probably(config, model.spec)
        scores = {"eval/deterministic": float(deterministic)}
        if self._session is not None and self._session.recorder.progress.return_mean is not None:
            scores["rollout/ep_rew_mean"] = self._session.recorder.progress.return_mean
        run = None if self._session is None else self.run
        return Agent(model, config, self.step, "the current policy", scores, deterministic, run)

    def _followed_or_own_model(self) -> Any:
        if self._followed is not None and self._followed.actor_learner is not None:
            return copy.deepcopy(self._followed.actor_learner.model).cpu().eval()
        return copy.deepcopy(self._own.policy()).cpu().eval()

    def evaluate(self, episodes: int = 20, *, deterministic: bool | None = None, seed: int = 0,
                 num_envs: int | None = None) -> Evaluation:
        """Play whole games with the current policy, in environments of their own.

        The arguments are those of `vantage.evaluate`. Training continues as if there had been no
        evaluation; best/ and the run's metrics do not change.
        """
        return evaluate_policy(self.agent, episodes=episodes, deterministic=deterministic, seed=seed,
                               num_envs=num_envs)

    # What it is

    @property
    def step(self) -> int:
        """Agent steps so far, all environments together."""
        if self._followed is not None:
            return self._followed.step
        return self._own.recorder.progress.step

    @property
    def config(self) -> Config:
        """The config in force."""
        if self._followed is not None and self._followed.actor_learner is not None:
            return self._followed.actor_learner.config
        return self._own.config

    @property
    def run(self) -> Path:
        """The run directory."""
        return self._own.recorder.directory.path

    @property
    def status(self) -> Status:
        """`running` until the training has ended; then `done`, `interrupted` (closed before) or `failed`."""
        if self._followed is not None:
            return "failed" if self._followed.actor_learner is None else "done"
        if self._running:
            return "running"
        last = self._own.recorder.last_report
        return "failed" if last is None or last.status == "running" else last.status

    def __repr__(self) -> str:
        if self._session is None:
            return f"<Trainer in a rank above 0: {self.status}>"
        config, mean = self.config, self._session.recorder.progress.return_mean
        score = "" if mean is None else f", return {mean:.4g}"
        return (f"<Trainer {config.algo} on {config.env.id}: {self.status}, step {self.step:,} of "
                f"{config.run.steps:,}{score}, {self.run}>")

    def __reduce__(self) -> NoReturn:
        """TypeError: a run has one trainer."""
        raise TypeError("a Trainer cannot be copied or pickled, since it holds an open run; use trainer.agent for "
                        "its policy, or close it and give its run to vantage.Trainer.resume")

    # Coefficients

    def __getattr__(self, name: str) -> float:
        if not name.startswith("_") and name in self._coefficients:
            return self.config.at(name, self.step)
        raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in self._coefficients:
            self._open.change({name: convert(name, value, Coefficient)})
        elif hasattr(type(self), name):
            raise AttributeError(f"{name} of a trainer cannot be set")
        else:
            raise AttributeError(self._unknown(name))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._coefficients})

    def _unknown(self, name: str) -> str:
        if name.startswith("_"):
            return f"'Trainer' object has no attribute {name!r}"
        if self._session is not None and name in self._session.config.flat_keys():
            return (f"{name} is fixed for the run: read trainer.config; what may change is "
                    f"{', '.join(self._coefficients)}")
        public = [each for each in dir(self) if not each.startswith("_")]
        return f"a trainer has no {name!r}{nearest(name, public)}"


def config_of(algorithm: Any, groups: Sequence[Group], env: Env | None,
              keys: dict[str, Any]) -> Config:
    """The config that is given whole, as `algorithm`, or as the arguments of `configure`."""
    if isinstance(algorithm, Config):
        if groups:
            keys = {**keys_of(groups[0]), **keys}
        if given := [*([] if env is None else ["env"]), *keys]:
            raise ConfigError(f"{given[0]} beside a config; change it in the config: config.change("
                              f"{given[0]}=...)")
        return algorithm
    if env is None:
        raise ConfigError("env is missing; give an environment, such as env='CartPole-v1'")
    return configure(algorithm, *groups, env=env, **keys)
