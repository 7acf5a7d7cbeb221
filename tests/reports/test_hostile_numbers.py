"""JSON of a run from elsewhere with numbers, texts and names that nothing of Vantage writes: one short line each."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vantage
from vantage.cli import main
from vantage.keys import json_text

HUGE = 10**400
ODD: dict[str, Any] = {
    "digits": HUGE, "negative digits": -HUGE, "text": "x" * 3_000_000, "nested": None, "surrogate": "\ud800",
    "escape": "\x1b[2Jcleared\r\n", "infinite": float("inf"), "nan": float("nan"), "minus zero": -0.0}


def nest(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


ODD["nested"] = nest(900)


@pytest.fixture
def run(cartpole_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(cartpole_run, tmp_path / "run")
    return tmp_path / "run"


def change(path: Path, keys: list[str], value: Any) -> None:
    content = json.loads(path.read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(content))
    manifest = path.parent / "manifest.json"
    if path.name == "state.json":
        data, entry = path.read_bytes(), json.loads(manifest.read_text())
        entry["files"]["state.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest.write_text(json.dumps(entry))


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


PLACES: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "config steps": (lambda run: run / "config.json", ["run", "steps"]),
    "config lr": (lambda run: run / "config.json", ["optimizer", "lr"]),
    "config env": (lambda run: run / "config.json", ["env", "id"]),
    "config gamma": (lambda run: run / "config.json", ["algorithm", "gamma"]),
    "config reward_floor": (lambda run: run / "config.json", ["env", "reward_floor"]),
    "config hidden": (lambda run: run / "config.json", ["policy", "hidden"]),
    "config new": (lambda run: run / "config.json", ["policy", "x"]),
    "meta versions": (lambda run: run / "meta.json", ["versions", "vantage"]),
    "meta resolved": (lambda run: run / "meta.json", ["resolved"]),
    "meta cores": (lambda run: run / "meta.json", ["cores"]),
    "summary steps": (lambda run: run / "summary.json", ["steps"]),
    "summary seconds": (lambda run: run / "summary.json", ["seconds"]),
    "summary status": (lambda run: run / "summary.json", ["status"]),
    "state step": (lambda run: newest(run) / "state.json", ["state", "progress", "step"]),
    "state episodes": (lambda run: newest(run) / "state.json", ["state", "progress", "episodes"]),
    "state recent": (lambda run: newest(run) / "state.json", ["state", "progress", "recent"]),
    "state spec": (lambda run: newest(run) / "state.json", ["state", "spec"]),
    "state workers": (lambda run: newest(run) / "state.json", ["state", "workers_started"]),
    "state optimizer": (lambda run: newest(run) / "state.json", ["state", "optimizer"]),
    "manifest step": (lambda run: newest(run) / "manifest.json", ["step"]),
    "manifest files": (lambda run: newest(run) / "manifest.json", ["files"]),
    "state unit": (lambda run: newest(run) / "state.json", ["state", "spec", "obs", "unit"]),
}


CASES = [(place, list(ODD)[number % len(ODD)]) for number, place in enumerate(PLACES)] + [
    ("state unit", "digits")]
"""Each place with one of the values, in turn, and one that was converted to a float unchecked."""


@pytest.mark.usefixtures("one_curve")
@pytest.mark.parametrize(("place", "odd"), CASES)
def test_odd_json_of_a_run_ends_no_command_in_a_traceback(
        place: str, odd: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, keys = PLACES[place]
    change(path(run), keys, ODD[odd])
    shutil.rmtree(run / "best", ignore_errors=True)
    for command in (["evaluate", str(run), "--episodes", "1"], ["plot", str(run), "-o", str(tmp_path / "plot.png")],
                    ["report", str(run), "--episodes", "1", "--no-video"], ["resume", str(run), "--steps", "1"]):
        status = main(command)
        captured = capsys.readouterr()
        lines = captured.err.splitlines()
        assert status in (0, 1, 2) and len(lines) <= 6, captured.err[:2000]
        assert all(len(line) < 3000 for line in captured.out.splitlines() + lines)
        assert "Traceback" not in captured.err and "\x1b" not in captured.err + captured.out


@pytest.mark.usefixtures("one_curve")
@pytest.mark.parametrize("name", ["config.json", "meta.json", "summary.json", "state.json", "manifest.json"])
def test_a_file_of_ten_gigabytes_is_not_read(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "best", ignore_errors=True)
    path = run / name if (run / name).exists() else newest(run) / name
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    main(["report", str(run), "--episodes", "1", "--no-video"])
    error = capsys.readouterr().err
    assert name in error and "Traceback" not in error


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999", "nan"])
@pytest.mark.parametrize("key", ["steps", "clip", "value_clip"])
def test_huge_numbers_on_the_command_line_are_refused_in_one_line(
        key: str, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = f"--{key.replace('_', '-')}={number}"
    assert main(["train", "ppo", "--env", "CartPole-v1", flag, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert key in error and error.count("\n") == 1 and len(error) < 2500


@pytest.mark.parametrize("number", [10**400, 2**63], ids=["400", "2^63"])
@pytest.mark.parametrize("key", ["steps", "hidden", "lr", "value_clip"])
def test_huge_numbers_in_python_are_refused_in_one_line(key: str, number: int) -> None:
    if (key, number) == ("value_clip", 2**63):
        pytest.skip("a float may be as large")
    with pytest.raises(vantage.ConfigError, match=key) as error:
        vantage.configure("ppo", env="CartPole-v1", **{key: number})  # type: ignore[arg-type]
    assert len(str(error.value)) < 2500 and "\n" not in str(error.value)


def test_numbers_up_to_the_states_of_random_generators_are_read() -> None:
    assert json_text.parse(f'{{"state": {2**128}, "zero": -0, "text": "\\ud83d\\ude00"}}') == {
        "state": 2**128, "zero": 0, "text": "\U0001f600"}
    with pytest.raises(ValueError, match="'a' is given twice"):
        json_text.parse('{"a": 1, "a": 2}')
