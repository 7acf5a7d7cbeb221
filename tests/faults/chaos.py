"""Random faults on small trainings, for as long as is asked: python tests/faults/chaos.py --minutes 30 --seed 0

Fault N of a seed is always the same, but for the speed of the machine: --only N makes it alone. Ends with a table of
faults and outcomes, and with status 1 if one of them is lost, silent, a traceback or an orphan.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import faults
import surroundings
from case import BAD, OUTCOMES, Bad, Case
from systems import SYSTEMS, Laboratory


@dataclass(frozen=True)
class Kind:
    """A kind of fault, and how often it is made beside the others."""

    name: str
    strike: Callable[[Case], str]
    weight: int = 1
    needs_children: bool = False
    needs_mount: bool = False


KINDS = (
    Kind("kill at any moment", faults.kill_at_any_moment, 3), Kind("kill at a file", faults.kill_at_a_file, 3),
    Kind("kill while stopping", faults.kill_while_stopping, 2),
    Kind("kill a child process", faults.kill_a_child, 2, needs_children=True),
    Kind("one signal", partial(faults.send_signals, count=1), 3),
    Kind("two signals", partial(faults.send_signals, count=2), 2),
    Kind("pause", faults.pause), Kind("pause a child process", faults.pause_a_child, needs_children=True),
    Kind("error at a file", faults.fail_at_a_file, 3), Kind("full disk", surroundings.full_disk, 2, needs_mount=True),
    Kind("read-only disk", surroundings.read_only_disk, needs_mount=True),
    Kind("small /dev/shm", surroundings.small_shared_memory, needs_mount=True),
    Kind("few file descriptors", surroundings.few_files), Kind("little memory", surroundings.little_memory),
    Kind("small files", surroundings.small_files), Kind("damaged file", surroundings.damage, 5),
    Kind("environment", surroundings.environment, 5))


@dataclass(frozen=True)
class Result:
    """A fault that was made."""

    number: int
    kind: str
    system: str
    outcome: str
    story: str
    why: str = ""


def draw(seed: int, number: int) -> tuple[Kind, str, random.Random]:
    """The kind of fault `number`, the name of its system, and the generator of all else in it."""
    rng = random.Random(f"{seed}-{number}")
    kinds = [kind for kind in KINDS for _ in range(kind.weight)]
    random.Random(f"{seed}").shuffle(kinds)  # each of them once before one comes again
    kind = kinds[number % len(kinds)]
    systems = [name for name, system in SYSTEMS.items() if system.children or not kind.needs_children]
    return kind, systems[number // len(kinds) * 5 % len(systems) - rng.randrange(len(systems))], rng


def make_fault(laboratory: Laboratory, folder: Path, seed: int, number: int, *, verbose: bool = False) -> Result | None:
    """Make one fault; None where this user may not."""
    kind, system, rng = draw(seed, number)
    if kind.needs_mount and not surroundings.can_mount():
        return None
    place = folder / f"fault-{number}"
    place.mkdir(parents=True)
    case, why = Case(laboratory, place, SYSTEMS[system], rng), ""
    try:
        outcome = kind.strike(case)
    except Bad as error:
        outcome, why = error.outcome, f": {error.why}"
    if verbose or outcome in BAD:
        why += "".join(f"\n  $ {' '.join(ended.words)}\n    status {ended.status}, {ended.seconds:.1f} s\n"
                       + "".join(f"    {line}\n" for line in ended.output.splitlines()[-30:])
                       for ended in case.commands)
    shutil.rmtree(place, ignore_errors=True)
    return Result(number, kind.name, system, outcome, "; ".join(case.story), why)


def results(laboratory: Laboratory, folder: Path, seed: int, numbers: Iterator[int], deadline: float,
            jobs: int, verbose: bool) -> Iterator[Result]:
    """The results of these faults, made `jobs` at a time until the deadline."""
    with ThreadPoolExecutor(jobs) as threads:
        running: set[Future[Result | None]] = set()
        while True:
            while len(running) < jobs and time.monotonic() < deadline and (number := next(numbers, None)) is not None:
                running.add(threads.submit(make_fault, laboratory, folder, seed, number, verbose=verbose))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (result for future in done if (result := future.result()) is not None)


def table(made: Sequence[Result]) -> str:
    """Faults by kind and outcome, in Markdown."""
    counted = Counter((result.kind, result.outcome) for result in made)
    kinds = [kind.name for kind in KINDS if any(result.kind == kind.name for result in made)]
    rows = [["fault", *OUTCOMES], ["---", *["--:"] * len(OUTCOMES)]]
    rows += [[kind, *(str(counted[kind, outcome]) for outcome in OUTCOMES)] for kind in kinds]
    rows.append(["all", *(str(sum(counted[kind, outcome] for kind in kinds)) for outcome in OUTCOMES)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Make faults; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of these faults alone, with all output")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="vantage-faults-"))
    os.environ["XDG_STATE_HOME"] = str(folder)
    numbers = iter(given.only) if given.only is not None else count()
    made: list[Result] = []
    try:
        for result in results(Laboratory(folder / "undisturbed"), folder, given.seed, numbers,
                              time.monotonic() + 60 * given.minutes, given.jobs, given.only is not None):
            made.append(result)
            print(f"{result.number:5d}  {result.kind}, {result.system}: {result.story}: {result.outcome}{result.why}",
                  flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bad = [result for result in made if result.outcome in BAD]
    print(f"\n{len(made)} faults of seed {given.seed}\n\n{table(made)}")
    for result in bad:
        print(f"{result.outcome}: {result.kind}, {result.system}: {sys.executable} {sys.argv[0]} --seed {given.seed} "
              f"--only {result.number}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
