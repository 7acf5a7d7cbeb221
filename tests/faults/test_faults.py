"""The part of the faults that is quick and always the same; `make chaos` makes many more, in real processes."""

from __future__ import annotations

import io
import itertools
import json
import random
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import faults
import pytest
from case import Bad, Case
from commands import Ended
from damage import HOWS, names
from program import Injected
from saved import complete_checkpoints
from surroundings import damage_file
from systems import SYSTEMS, Laboratory, Undisturbed

from vantage.cli import main

pytestmark = pytest.mark.integration


class Hook:
    """An audit hook cannot be removed: this one passes on to the fault of the command that runs."""

    injected: Injected | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.injected is not None:
            self.injected(event, arguments)


HOOK = Hook()


def run_here(words: Sequence[str], folder: Path, *_: object, **__: object) -> Ended:
    """A command, with or without an injected fault, in this process, which has imported all already."""
    program = words[1].endswith("program.py")
    output = io.StringIO()
    HOOK.injected = Injected(**json.loads(words[2])) if program else None
    try:
        with redirect_stdout(output), redirect_stderr(output):
            status = main(words[3:])
    except Exception:
        output.write(traceback.format_exc())
        status = 1
    finally:
        HOOK.injected = None
    return Ended(tuple(words), status, output.getvalue(), (), 1.0)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    sys.addaudithook(HOOK)  # only now: it slows down all that follows
    return Laboratory(tmp_path_factory.mktemp("undisturbed"), run_here)


def test_a_damaged_file_is_named_and_the_resume_loses_nothing(laboratory: Laboratory, tmp_path: Path) -> None:
    run, hows = laboratory.undisturbed(SYSTEMS["a2c"]).stopped, itertools.cycle(HOWS)
    older = tuple(f"checkpoints/{path.name}" for path in list(complete_checkpoints(run).values())[:-1])
    for number, name in enumerate(name for name in names(run) if not name.startswith(older)):
        case = Case(laboratory, tmp_path / str(number), SYSTEMS["a2c"], random.Random(number))
        case.stopped()
        outcome = damage_file(case, name, next(hows), "resume")
        assert outcome == "resumed bit-equal" or name == "config.json", name


@pytest.mark.parametrize("seed", range(3))
def test_an_error_of_the_disk_at_any_moment_loses_nothing(seed: int, laboratory: Laboratory, tmp_path: Path) -> None:
    case = Case(laboratory, tmp_path, SYSTEMS["a2c"], random.Random(seed))
    assert faults.fail_at_a_file(case) in ("resumed bit-equal", "named and refused"), case.story


@pytest.mark.timeout(300)
def test_a_kill_at_a_file_resumes_to_the_same_weights(laboratory: Laboratory, tmp_path: Path) -> None:
    case = Case(laboratory, tmp_path, SYSTEMS["a2c"], random.Random(3))
    case.laboratory = Laboratory(tmp_path)
    case.laboratory.made["a2c"] = laboratory.undisturbed(case.system)
    assert faults.kill_at_a_file(case) == "resumed bit-equal", case.story
    assert case.commands[0].status == -9 and case.saved_step > 0, case.story


@pytest.mark.parametrize(("ended", "outcome"), [
    ({"left": ("python",)}, "orphan"), ({"status": None}, "lost"), ({"status": 1}, "silent"),
    ({"status": -11}, "traceback"),
    ({"status": 1, "output": "vantage: it broke\nTraceback (most recent call last):"}, "traceback")])
def test_a_bad_end_of_a_command_is_called_bad(ended: dict[str, Any], outcome: str, tmp_path: Path) -> None:
    values = {"words": (), "status": 0, "output": "", "left": (), "seconds": 1.0, **ended}
    laboratory = Laboratory(tmp_path, lambda *_, **__: Ended(**values))
    ended_well = Ended((), 0, "", (), 1.0)
    laboratory.made["a2c"] = Undisturbed({}, ended_well, 0.5, 9, tmp_path, tmp_path)
    with pytest.raises(Bad) as error:
        Case(laboratory, tmp_path, SYSTEMS["a2c"], random.Random(0)).call([])
    assert error.value.outcome == outcome
