"""The list of mutations names lines and tests that exist. `make mutate` applies them, which takes minutes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutate import SURVIVED, Mutation, apply, failure, read_mutations

TESTS = Path(__file__).parent


@pytest.mark.parametrize("mutation", read_mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_changes_one_place_and_its_tests_exist(mutation: Mutation) -> None:
    assert mutation.source.count(mutation.find) == 1 and mutation.find != mutation.replace
    compile(mutation.source.replace(mutation.find, mutation.replace), mutation.file, "exec")
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {re.escape(name.partition('[')[0])}\(", text, re.MULTILINE), test


def test_a_mutation_changes_a_copy_alone(tmp_path: Path) -> None:
    mutation = read_mutations()[0]
    mutated = (apply(mutation, tmp_path) / "vantage" / mutation.file).read_text(encoding="utf-8")
    assert mutation.find not in mutated and mutation.replace in mutated and mutation.find in mutation.source


def test_a_mutation_is_caught_by_the_test_that_fails_and_not_by_one_that_cannot_run() -> None:
    assert failure(0, "1 passed") == SURVIVED
    assert failure(1, "F\nFAILED tests/a/test_b.py::test_c[1] - assert 1\n") == "a/test_b.py::test_c[1]"
    with pytest.raises(RuntimeError, match="status 2"):
        failure(2, "ERROR tests/test_a.py\n")
