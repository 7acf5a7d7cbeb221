"""Trainings under the runtime `ray` that tests drive, and what a cluster still runs after them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vantage
from vantage.runs.checkpoint import load_latest
from vantage.runtimes.training import train_updates

ray = pytest.importorskip("ray")

from vantage.runtimes import ray as ray_runtime  # noqa: E402

ROLLOUT = 8 * 4
"""Steps of a rollout of `configure`."""


def configure(algo: str = "a2c", **options: Any) -> vantage.Config:
    workers = options.get("num_workers", 2)
    values = {"env": "tiny:Bandit", "runtime": "ray", "num_workers": workers, "num_envs": 4 * workers,
              "rollout_length": 8, "threads": 1, "lr": "1e-2", "hidden": "16", "tensorboard": False,
              "log_every_seconds": 0.2, "eval_every": 0, "device": "cpu"}
    return vantage.configure(algo, **(values | options))


def no_actor_is_left() -> None:
    from ray._private.state import actors  # the public list needs the dashboard

    deadline = time.monotonic() + 20
    while (running := [actor for actor in actors().values() if actor["State"] != "DEAD"]):
        assert time.monotonic() < deadline, running
        time.sleep(0.1)


class Training:
    """A run of `process_envs:Counted` that a test drives."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, faults: str = "", **options: Any) -> None:
        runs: list[ray_runtime.RayRun] = []
        prepare = ray_runtime.RayRun._prepare
        monkeypatch.setattr(ray_runtime.RayRun, "_prepare", lambda self, *args: runs.append(self) or prepare(self,
                                                                                                             *args))
        self.folder = path / "counted"
        self.folder.mkdir()
        config = configure(steps=10**9, env="process_envs:Counted",
                           env_kwargs={"folder": str(self.folder), "faults": faults}, **options)
        self.updates = train_updates(config, run=path / "run")
        next(self.updates)
        self.run = runs[0]

    def until(self, reached: Callable[[], bool], seconds: float = 100.0) -> None:
        """Train until `reached`."""
        deadline = time.monotonic() + seconds
        while not reached():
            next(self.updates)
            assert time.monotonic() < deadline

    def learns(self, steps: int = 300) -> None:
        """Train for so many more steps."""
        goal = self.run.progress.step + steps
        self.until(lambda: self.run.progress.step >= goal)

    def nodes(self) -> list[str]:
        """Where workers act."""
        return [member.node for member in self.run._requests.values() if member.begun]

    def assert_only_work_in_flight_is_lost(self) -> None:
        """End the run. One rollout of each worker that it ever had is lost at most, and the reset before it."""
        self.updates.close()
        stepped = sum(path.stat().st_size for path in self.folder.glob("*.steps"))
        lost, workers = stepped - self.run.progress.step, self.run.recorder.workers_started
        print(f"lost {lost} of {stepped} steps: {lost / ROLLOUT:.1f} rollouts of {workers} workers, "
              f"{self.run._restarts.count} of them replaced")
        assert 0 <= lost <= workers * ROLLOUT
        assert load_latest(Path(self.run.recorder.directory.path)).step == self.run.progress.step
