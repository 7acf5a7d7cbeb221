"""The small trainings that faults strike: algorithms and runtimes, each with what an undisturbed run of it leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commands import Ended, injected, run_command
from saved import Tensors, complete_checkpoints, last_tensors

ALWAYS = ("--threads 1 --seed 0 --eval-every 0 --log-every-seconds 0.2 --save-every 250 --env-timeout 30 "
          "--lr linear:1e-3:0 --no-tensorboard")


@dataclass(frozen=True)
class System:
    """An algorithm under a runtime; `exact` where a resume is promised to give the same bits."""

    name: str
    algo: str
    flags: str
    steps: int
    exact: bool = True
    children: int = 0

    def train(self, run: Path, env: str = "CartPole-v1") -> list[str]:
        """The arguments of `vantage` for a new run."""
        return f"train {self.algo} --env {env} --steps {self.steps} {ALWAYS} {self.flags} --run {run}".split()


SYSTEMS = {system.name: system for system in (
    System("a2c", "a2c", "--num-envs 4 --eval-every 700 --eval-episodes 3", 2_000),
    System("ppo", "ppo", "--num-envs 4 --rollout-length 32 --tensorboard", 2_048),
    System("acer", "acer", "--num-envs 2 --replay-size 2k --replay-start 300 --replay-save-every 500", 1_500),
    System("a3c", "a3c", "--num-envs 2 --num-workers 2", 2_000, exact=False, children=2),
    System("async", "a2c", "--num-envs 2 --vector async", 1_500, children=2),
    System("ranks", "a2c", "--num-envs 4 --num-workers 2", 2_000, children=1))}


@dataclass(frozen=True)
class Undisturbed:
    """A whole run without a fault, and one of the same seed that was stopped midway."""

    tensors: Tensors
    ended: Ended
    saved_after: float
    """Seconds to its first checkpoint."""
    accesses: int
    """Accesses to files that `program` counts."""
    stopped: Path
    whole: Path


class Laboratory:
    """How commands are run, and the undisturbed runs: made in `folder` when they are first needed."""

    def __init__(self, folder: Path, run_command: Callable[..., Ended] = run_command) -> None:
        self.folder, self.run_command = folder, run_command
        self.made: dict[str, Undisturbed] = {}
        self._lock = threading.Lock()

    def undisturbed(self, system: System) -> Undisturbed:
        """The runs of this system."""
        with self._lock:
            if system.name not in self.made:
                self.made[system.name] = self._make(system)
            return self.made[system.name]

    def _make(self, system: System) -> Undisturbed:
        folder = self.folder / system.name
        folder.mkdir(parents=True)
        run, count, first_saved = folder / "whole", folder / "count", [0.0]
        started = time.monotonic()

        def note_first(_: object) -> None:
            while not complete_checkpoints(run) and time.monotonic() < started + 60:
                time.sleep(0.01)
            first_saved[0] = time.monotonic() - started

        ended = self.run_command(injected(system.train(run), root=str(run), counted=str(count)), folder, note_first)
        if ended.status != 0 or ended.left:
            raise RuntimeError(f"{system.name} fails without a fault: {ended}")
        accesses = int(count.read_text())
        return Undisturbed(last_tensors(run), ended, first_saved[0], accesses,
                           self._stopped(system, folder, accesses), run)

    def _stopped(self, system: System, folder: Path, accesses: int) -> Path:
        """A run that was stopped after two checkpoints or more and before its last step."""
        for percent in (67, 50, 33):  # a3c's workers may be done before its main process has stopped them
            run = folder / f"stopped-{percent}"
            ended = self.run_command(injected(system.train(run), root=str(run), how="SIGTERM",
                                              at=accesses * percent // 100), folder)
            steps = complete_checkpoints(run)
            if ended.status == 143 and len(steps) >= 2 and max(steps) < system.steps:
                return run
        raise RuntimeError(f"{system.name} cannot be stopped midway: {ended}")
