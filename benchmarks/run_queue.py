"""Trains the runs of a plan, one or two at a time, when nothing else needs the machine.

    .venv/bin/python benchmarks/run_queue.py benchmarks/atari.toml --root ~/vantage-queue

Each run is an ordinary run directory, ROOT/<env>/<algo>-<seed>. Stop the queue by any signal, SIGKILL included; the
same command goes on where it was. While a file named `pause` lies beside the plan, the runs are saved and stopped. A
finished run is evaluated over 100 games, and the seeds of one algorithm and environment are written to results/. With
--jobs 2 a new run gets half of the cores, and keeps them when it is resumed: two runs of A2C on Breakout on one of two
cores each train 2,140 steps/s in all, one run on both 1,750.

    [[runs]]                    algo, env, seed and steps; every other entry is a config key
    algo = "a2c"
    env = "Breakout"
    seed = 1
    steps = "10M"
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import vantage
from vantage._host.processes import die_with_parent
from vantage._host.system import compute_for_long
from vantage.errors import ConfigError
from vantage.keys.fields import convert
from vantage.runs.checkpoint import newest_step
from vantage.runs.files import write_atomically
from vantage.runs.lock import HeldError, is_locked, locked
from vantage.runs.metrics import read_metrics
from vantage.tools.child_runs import share_cores
from vantage.tools.plot import plot
from vantage.tools.scores import score, write_results

POLL_SECONDS = 2.0
HANDOVER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One entry of the plan."""

    algo: str
    env: str
    seed: int
    steps: int
    keys: tuple[tuple[str, str], ...]
    """Config keys other than the defaults, as flags take them."""
    path: Path

    @property
    def group(self) -> str:
        """The folder in results/: all seeds of one setting."""
        return f"{self.algo}-{self.env}{suffix(self.keys)}".replace("/", "-").replace(":", "-")

    @property
    def scores(self) -> Path:
        """Where the evaluation of this run is stored."""
        return self.path.with_name(f"{self.path.name}.scores.json")

    @property
    def done(self) -> bool:
        """The run is trained and evaluated, and its results are written."""
        return self.scores.exists()

    def status(self) -> str:
        """`status` of summary.json; empty before the run has one."""
        try:
            return str(json.loads((self.path / "summary.json").read_text())["status"])
        except (OSError, ValueError, KeyError):
            return ""

    def step(self) -> int:
        """Agent steps so far."""
        with suppress(Exception):  # not yet written, or damaged: nothing is known
            return int(read_metrics(self.path)[-1]["step"] or 0)
        return 0

    def train_command(self) -> list[str]:
        """The command that begins the run, as a user would type it."""
        flags = [word for name, value in self.keys for word in (f"--{name.replace('_', '-')}", value)]
        return ["vantage", "train", self.algo, "--env", self.env, "--seed", str(self.seed), "--steps", str(self.steps),
                *flags]

    def command(self, jobs: int) -> list[str]:
        """The command that begins the run, with its share of the cores among `jobs`, or goes on with it."""
        if self.path.exists():
            return ["vantage", "resume", str(self.path)]
        return [*self.train_command(), *(self.cores(jobs) if jobs > 1 else ()), "--run", str(self.path)]

    def cores(self, jobs: int) -> list[str]:
        """Flags for the share of the cores; none where the plan sets it."""
        config = vantage.configure(self.algo, env=self.env, **dict(self.keys))
        runtime, shared = config.runtime, share_cores(config, jobs).runtime
        return [word for key in ("threads", "num_workers") if getattr(shared, key) != getattr(runtime, key)
                for word in (f"--{key.replace('_', '-')}", str(getattr(shared, key)))]


def suffix(keys: tuple[tuple[str, str], ...]) -> str:
    """What names of folders say of keys other than the defaults."""
    return "".join(f"-{name}-{value}" for name, value in keys)


def read_plan(path: Path, root: Path) -> list[Run]:
    """The runs of a plan, in order."""
    runs = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["runs"]:
        values = {name: str(value) for name, value in entry.items()}
        algo, env, seed = values.pop("algo"), values.pop("env"), int(values.pop("seed"))
        steps = convert("steps", values.pop("steps"), int, source=str(path))
        keys = tuple(sorted(values.items()))
        runs.append(Run(algo, env, seed, steps, keys, root / env.replace("/", "-") / f"{algo}{suffix(keys)}-{seed}"))
    return runs


class Queue:
    """Runs up to `jobs` runs of the plan at a time, each in a process of the lowest priority."""

    def __init__(self, runs: Sequence[Run], pause: Path, results: Path, jobs: int) -> None:
        self.runs, self.pause, self.results, self.jobs = runs, pause, results, jobs
        self.processes: dict[Run, subprocess.Popen[bytes]] = {}
        self.begun: dict[Run, int | None] = {}
        """The newest checkpoint when each process began."""
        self.failed: set[Run] = set()
        self.stopping = False
        self.started = time.monotonic()
        self.steps_before = sum(run.step() for run in runs)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: save the runs and leave."""
        self.stopping = True

    def run(self) -> int:
        """Until all runs are done or a signal arrives; returns the number of runs that failed."""
        said = 0.0
        while not self.stopping:
            self._reap()
            waiting = [run for run in self.runs
                       if not run.done and run not in self.processes and run not in self.failed]
            if not waiting and not self.processes:
                break
            if self.pause.exists():
                self._end()
            else:
                for run in waiting[:self.jobs - len(self.processes)]:
                    if not is_locked(run.path):
                        self._begin(run)
            if time.monotonic() - said > 600:
                said = time.monotonic()
                self.report()
            time.sleep(POLL_SECONDS)
        self._end()
        self.report()
        return len(self.failed)

    def report(self) -> None:
        """Print what is done, what is left, and how long that takes at the speed since the start."""
        steps = sum(run.step() for run in self.runs)
        left = sum(max(0, run.steps - run.step()) for run in self.runs if not run.done)
        speed = (steps - self.steps_before) / max(1.0, time.monotonic() - self.started)
        hours = f"{left / speed / 3600:.1f} hours" if speed > 1 else "unknown time"
        print(f"{time.strftime('%H:%M')} {sum(run.done for run in self.runs)} of {len(self.runs)} done, "
              f"{len(self.failed)} failed, {left / 1e6:.1f}M steps left, {speed:.0f} steps/s, {hours}", flush=True)
        for run in self.processes:
            print(f"      {run.path}: {run.step() / 1e6:.2f}M of {run.steps / 1e6:g}M steps", flush=True)
        for run in self.runs:
            if not run.done and run not in self.processes and is_locked(run.path):
                print(f"      {run.path}: another process trains it", flush=True)

    def _begin(self, run: Run) -> None:
        run.path.parent.mkdir(parents=True, exist_ok=True)
        if run.path.exists() and not any(run.path.glob("checkpoints/step-*")):
            shutil.rmtree(run.path)  # killed before its first checkpoint
        if run.status() == "done":
            self._evaluate(run)
            return
        command, self.begun[run] = run.command(self.jobs), newest_step(run.path)
        with run.path.with_name(f"{run.path.name}.log").open("ab") as log:
            self.processes[run] = subprocess.Popen([sys.executable, "-m", "vantage", *command[1:]], stdout=log,
                                                   stderr=log, stdin=subprocess.DEVNULL,
                                                   preexec_fn=partial(_in_child, os.getpid()))
        print(f"{time.strftime('%H:%M')} {' '.join(command)}", flush=True)

    def _reap(self) -> None:
        for run, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            del self.processes[run]
            if process.returncode == 0 or run.status() == "done":  # it may have been killed before it said so
                self._evaluate(run)
            elif 0 < process.returncode < 128 or (process.returncode < 0 and newest_step(run.path) == self.begun[run]):
                self.failed.add(run)
                print(f"{run.path} failed with status {process.returncode}; see {run.path}.log", flush=True)

    def _evaluate(self, run: Run) -> None:
        """Evaluate a finished run and write its group to results/; after an error the next start tries again."""
        try:
            self._write_results(run)
        except Exception as error:  # the rest of the plan goes on
            self.failed.add(run)
            print(f"{run.path} could not be evaluated: {type(error).__name__}: {error}", flush=True)

    def _write_results(self, run: Run) -> None:
        """The scores are stored last: `done` is True once they exist."""
        rows = score(run.path)
        group = [other for other in self.runs if other.group == run.group and (other.done or other is run)]
        every: list[dict[str, Any]] = [row for other in group for row in
                                       (rows if other is run else json.loads(other.scores.read_text()))]
        folder, minutes = self.results / run.group, self.results / f"{run.group}-minutes"
        paths = [other.path for other in group]
        print(write_results(folder, paths, every, command=" ".join(group[0].train_command())), flush=True)
        plot(paths, minutes / "curve.png", x="minutes", csv=minutes / "curve.csv", trust=True)
        shutil.copy(folder / "protocol.json", minutes)
        write_atomically(run.scores, json.dumps(rows))

    def _end(self) -> None:
        """Stop the runs, which save; the queue goes on with them later."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()


def _in_child(queue: int) -> None:
    """The run is batch work of the lowest priority, in a session of its own, and gets SIGTERM when the queue dies."""
    die_with_parent(queue, signal.SIGTERM)
    os.setsid()
    lowest_priority()


def lowest_priority() -> None:
    """Leave the cores to every other process."""
    with suppress(OSError):  # Linux may share cores among sessions, where nice counts only within each
        Path("/proc/self/autogroup").write_text("19")
    os.nice(19)
    compute_for_long()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="folder of the run directories")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at once (1)")
    arguments = parser.parse_args()
    root = arguments.root.expanduser()
    queue = Queue(read_plan(arguments.plan, root), arguments.plan.with_name("pause"), arguments.results, arguments.jobs)
    root.mkdir(parents=True, exist_ok=True)
    try:
        with locked(root, patience=HANDOVER_SECONDS):  # a second queue would wait for the runs of the first
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, queue.stop)
            lowest_priority()  # for its evaluations
            return 1 if queue.run() else 0
    except HeldError:
        print(f"run_queue.py: another queue uses {root}; stop that one first, or give another --root", file=sys.stderr)
    except ConfigError as error:
        print(f"run_queue.py: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
