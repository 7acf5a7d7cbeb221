"""A file of a run that is truncated, empty, zeroed or deleted is named in one line by the commands that use it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vantage.cli import main

DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": lambda path: path.unlink(),
    "another object": lambda path: path.write_text("{}"),
}


@pytest.fixture
def run(cartpole_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(cartpole_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best", ignore_errors=True)
    return tmp_path / "run"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_meta_json_is_named_and_loses_nothing(damage: str, run: Path, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    DAMAGES[damage](run / "meta.json")
    for command in (["evaluate", str(run), "--episodes", "1"],
                    ["export", str(run), "--format", "safetensors", "-o", str(tmp_path / "policy.safetensors")],
                    ["resume", str(run), "--steps", "500"]):
        assert main(command) == 0
        captured = capsys.readouterr()
        text = captured.err + captured.out  # of a resume the display
        named = [line for line in text.splitlines() if str(run / "meta.json") in line]
        assert len(named) == 1 and "unknown" in named[0], (command, text)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["config.json", "state.json", "manifest.json"])
def test_a_damaged_file_that_is_needed_is_refused_in_words(name: str, damage: str, run: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    for path in [run / name] if (run / name).exists() else [folder / name for folder in checkpoints]:
        DAMAGES[damage](path)
    for command in ("evaluate", "resume", "export --format safetensors"):
        word, *options = command.split()
        assert main([word, str(run), *options]) in (1, 2)
        error = capsys.readouterr().err
        assert name in error and "Traceback" not in error and error.count("\n") <= 1 + len(checkpoints), error


@pytest.mark.usefixtures("one_curve")
@pytest.mark.parametrize("damage", ["truncated", "empty", "zeroed", "deleted"])
def test_a_damaged_summary_is_named_by_the_report_and_replaced_by_a_resume(
        damage: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DAMAGES[damage](run / "summary.json")
    status = main(["report", str(run), "--episodes", "1", "--no-video"])
    assert status == (0 if damage == "deleted" else 2)
    assert "summary.json" in capsys.readouterr().err
    assert main(["resume", str(run), "--steps", "500"]) == 0
    assert '"done"' in (run / "summary.json").read_text()
