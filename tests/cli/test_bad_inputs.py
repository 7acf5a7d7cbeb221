"""Wrong input of every kind, from bad_inputs.toml: one line that names the value and the remedy, and status 2."""

from __future__ import annotations

import json
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from vantage.cli import main

GROUPS = tomllib.loads((Path(__file__).parent / "bad_inputs.toml").read_text(encoding="utf-8"))
INPUTS = [pytest.param(f"{start} {rest}", says, id=f"{group}-{i}") for group, lines in GROUPS.items()
          for start, answers in lines.items() for i, (rest, says) in enumerate(answers.items())]
FILES = {"config.json": "{}", "broken.json": '{"lr": 1e-3,}', "list.json": "[1]", "sb3.json": '{"n_steps": [5]}',
         "grid.json": '{"lr": [1e-3]}', "escape.json": json.dumps({"\x1b[31mlr": [1]}), "deep.json": "[" * 100_000,
         "twice.json": '{"lr": 1e-3, "lr": 5}', "groups.json": '{"lr": 1e-3, "optimizer": {"lr": 5}}',
         "huge.json": f'{{"steps": {"9" * 5_000}}}'}


@pytest.fixture(scope="module")
def folder(cartpole_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run, an empty folder and files that are no configs; unchanged at the end."""
    path = tmp_path_factory.mktemp("inputs")
    shutil.copytree(cartpole_run, path / "run")
    (path / "empty").mkdir()
    for name, text in FILES.items():
        (path / name).write_text(text)
    (path / "latin.json").write_bytes(b'{"lr": "\xe9"}')
    before = sorted(path.rglob("*"))
    yield path
    assert sorted(path.rglob("*")) == before, "a refused command leaves nothing behind"


@pytest.mark.parametrize(("line", "says"), INPUTS)
def test_bad_input_is_one_line_with_the_remedy_and_status_2(
        line: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert error.startswith("vantage: ") and says in error and error.endswith("\n") and error[:-1].isprintable()


@pytest.mark.parametrize("name", ["a\0b", "name-\udcff", "x" * 300])
def test_a_name_that_no_file_can_have_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "a2c", "--env", "CartPole-v1", "--threads", "1", "--run", name]) == 2
    error = capsys.readouterr().err
    assert "choose another place with --run" in error and error[:-1].isprintable()

