"""`make mutate`: breaks one line at a time in a copy of src and runs the tests that should notice it.

mutations.toml lists what is broken and by which tests it is caught. test_mutations.py keeps that list up to date.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SURVIVED = "-- none: it survives --"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`find`, which `file` holds once, becomes `replace`; one of `tests` must then fail."""

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    @property
    def source(self) -> str:
        """The text of the file as it is."""
        return (ROOT / "src/vantage" / self.file).read_text(encoding="utf-8")


def read_mutations() -> list[Mutation]:
    """The content of mutations.toml."""
    values = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))
    return [Mutation(name, table["file"], table["find"], table["replace"], tuple(table["tests"]))
            for name, table in values.items()]


def apply(mutation: Mutation, folder: Path) -> Path:
    """A copy of src in `folder` with the mutation."""
    source = Path(shutil.copytree(ROOT / "src", folder / "src"))
    (source / "vantage" / mutation.file).write_text(mutation.source.replace(mutation.find, mutation.replace),
                                                    encoding="utf-8")
    return source


def run_tests(tests: Sequence[str], source: Path, output: Path) -> None:
    """Run `tests` on the packages in `source` up to the first failure; exits with pytest's status. For a fork."""
    import pytest

    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(source)
    sys.path.insert(0, str(source))
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-rfE", f"--basetemp={output.with_name('tmp')}",
                          *(f"tests/{test}" for test in tests)])
    os._exit(status)


def failure(status: int, output: str) -> str:
    """The test that failed, "a timeout", or SURVIVED. RuntimeError if pytest could not run the tests."""
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
    if status == 0:
        return SURVIVED
    if status == 1 and "+++ Timeout +++" in output:
        return "a timeout"
    if status != 1 or failed is None:
        raise RuntimeError(f"pytest ended with status {status}\n{output}")
    return failed[1]


def failures(mutations: Sequence[Mutation], jobs: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Each mutation and the test that fails with it, in the order in which they end."""
    waiting, running = list(mutations), dict[int, Mutation]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.pop(0)
            source = apply(mutation, folder / mutation.name)
            # Not by multiprocessing, whose parent process the tests would take for their own.
            if (pid := os.fork()) == 0:
                try:
                    run_tests(mutation.tests, source, folder / mutation.name / "output")
                finally:
                    os._exit(3)
            running[pid] = mutation
        pid, status = os.wait()
        name = running.pop(pid).name
        yield name, failure(os.waitstatus_to_exitcode(status), (folder / name / "output").read_text())


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the mutations named on the command line, all without names; the status is 1 if one survives."""
    mutations = read_mutations()
    parser = argparse.ArgumentParser(description="Break the code on purpose and see which test notices.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations of mutations.toml; all if none is given")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - {mutation.name for mutation in mutations}:
        parser.error(f"mutations.toml has no {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in mutations if not args.names or mutation.name in args.names]
    os.environ["OMP_NUM_THREADS"] = "1"
    import gymnasium  # noqa: F401  once for all forks; vantage itself must not be imported here
    import torch  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        intact = Mutation("intact", chosen[0].file, "", "", tuple(sorted({t for m in chosen for t in m.tests})))
        for _, test in failures([intact], 1, Path(folder)):
            if test != SURVIVED:
                print(f"mutate: {test} fails although nothing is broken", file=sys.stderr)
                return 1
        survivors = 0
        print("| mutation | caught by |\n| --- | --- |")
        for name, test in failures(chosen, args.jobs, Path(folder)):
            print(f"| {name} | {test} |", flush=True)
            survivors += test == SURVIVED
    print(f"\n{len(chosen)} mutations, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
