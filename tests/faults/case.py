"""One fault on one run: the commands that were made, what was saved on the way, and which outcome that is."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from commands import Ended, injected, vantage
from saved import complete_checkpoints, equal, last_tensors, logged_steps, summary
from systems import Laboratory, System, Undisturbed

BAD = ("lost", "silent", "traceback", "orphan")
OUTCOMES = ("resumed bit-equal", "resumed", "named and refused", *BAD)

_CRASH = re.compile(r"Traceback|Exception ignored|terminate called|Segmentation fault|core dumped|Fatal Python error")
_INEXACT = re.compile(r"begins? (a )?new (episodes?)|not exact")
_DONE = re.compile(r"has done its [\d,]+ steps")


class Bad(Exception):
    """A bad outcome, and why."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(f"{outcome}: {why}")
        self.outcome, self.why = outcome, why


class Case:
    """A fault's run directory and its commands; any command with a bad end raises `Bad`."""

    def __init__(self, laboratory: Laboratory, folder: Path, system: System, rng: random.Random) -> None:
        self.laboratory, self.folder, self.system, self.rng = laboratory, folder, system, rng
        self.run = folder / "run"
        self.commands: list[Ended] = []
        self.story: list[str] = []
        self.may_raise = False
        """The environment is at fault: the traceback of its error is shown above the line that names it."""
        self.deaths: set[int] = set()
        """Statuses of a command that end it without a line."""
        self.saved_step = -1
        """Of the newest checkpoint that was complete at any time."""

    @property
    def undisturbed(self) -> Undisturbed:
        """The runs without a fault to compare with."""
        return self.laboratory.undisturbed(self.system)

    def tell(self, what: str) -> None:
        """Add to the description of the fault."""
        self.story.append(what)

    def begin(self) -> list[str]:
        """The arguments of a new training, or of a resume of one that was stopped midway; drawn."""
        if self.rng.random() < 0.65:
            return self.system.train(self.run)
        return self.stopped()

    def stopped(self) -> list[str]:
        """The arguments that resume a run that was stopped midway."""
        self.tell("in a resume")
        shutil.copytree(self.undisturbed.stopped, self.run, symlinks=True)
        self.note_saved()
        return ["resume", str(self.run)]

    def note_saved(self) -> None:
        """Remember the newest checkpoint."""
        self.saved_step = max([self.saved_step, *complete_checkpoints(self.run)])

    def call(self, arguments: Sequence[str], during: Callable[[subprocess.Popen[bytes]], None] | None = None, *,
             fault: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None,
             limits: Callable[[], None] | None = None, before: Sequence[str] = ()) -> Ended:
        """Run `vantage`, with a fault of `program` or from outside, and judge its end."""
        words = vantage(arguments) if fault is None else injected(arguments, root=str(self.run), **fault)
        ended = self.laboratory.run_command([*before, *words], self.folder, during, environment=environment,
                                            limits=limits, seconds=max(300.0, 10 * self.undisturbed.ended.seconds))
        self.commands.append(ended)
        self._judge(ended)
        return ended

    def _judge(self, ended: Ended) -> None:
        if ended.left:
            raise Bad("orphan", f"{ended.left}")
        if ended.status is None:
            raise Bad("lost", f"it hung for {ended.seconds:.0f} s")
        crash = _CRASH.search(ended.output)
        if crash and not (self.may_raise and crash[0] == "Traceback"):
            raise Bad("traceback", crash[0])
        lines = ended.output.strip().splitlines()
        if ended.status in (1, 2) and not (lines and any(line.startswith("vantage: ") for line in lines)):
            raise Bad("silent", f"status {ended.status} without a line")
        if ended.status not in {0, 1, 2, *self.deaths}:
            raise Bad("traceback", f"status {ended.status}")
        self.note_saved()

    def go_on(self, *, damaged: str = "") -> str:
        """Resume until the run is done, which may have the `damaged` file; the outcome."""
        if not (self.run / "config.json").exists():
            return self._without_a_run()
        whole = complete_checkpoints(self.run)
        if not damaged and self.saved_step > max(whole, default=-1):
            raise Bad("lost", f"the checkpoint of step {self.saved_step} is gone; there are {list(whole)}")
        had_saved = self.saved_step >= 0
        ended = self.call(["resume", str(self.run)])
        if ended.status != 0 and not _DONE.search(ended.output):
            if not had_saved and "has no valid checkpoint" in ended.output:
                return "named and refused"
            raise Bad("lost", "it cannot be resumed")
        if "begins at step 0" in ended.output and had_saved:
            raise Bad("lost", "it began from scratch")
        return self.compare(logged=damaged != "metrics.jsonl")

    def _without_a_run(self) -> str:
        if self.saved_step >= 0:
            raise Bad("lost", "the run directory is gone")
        if self.run.exists():
            self.tell("no config.json yet")
        if self.call(["resume", str(self.run)]).status != 2:
            raise Bad("silent", "a resume of nothing")
        return "named and refused"

    def compare(self, *, logged: bool = True) -> str:
        """The outcome of a run that is done: its weights against those of the undisturbed run, and its log."""
        state, steps = summary(self.run), logged_steps(self.run)
        unwritable = any(re.search(r"cannot write .*summary\.json", ended.output) for ended in self.commands)
        if max(complete_checkpoints(self.run), default=0) < self.system.steps:
            raise Bad("lost", f"there are only {list(complete_checkpoints(self.run))}")
        if state.get("status") != "done" and not unwritable:
            raise Bad("silent", f"summary.json says {state}")
        if logged and any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise Bad("silent", f"a step is logged twice: {steps}")
        if not self.system.exact:
            return "resumed"
        if equal(last_tensors(self.run), self.undisturbed.tensors):
            return "resumed bit-equal"
        if not any(_INEXACT.search(ended.output) for ended in self.commands):
            raise Bad("silent", "the weights are others than those of the undisturbed run")
        return "resumed"
