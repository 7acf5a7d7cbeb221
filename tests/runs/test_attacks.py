"""What a downloaded run or file could try beside naming code, which `test_trust` covers: refused, or without effect."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from checkpoints import replace_file
from rich.console import Console

import vantage
from vantage.cli import main
from vantage.errors import CheckpointError, ConfigError, VantageError
from vantage.runs.checkpoint import load, load_latest
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import read_policy
from vantage.tools.display import Display
from vantage.tools.plot import plot
from vantage.tools.report import report
from vantage.types import Report


class Payload:
    """Makes a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("executed", "w")


def header(text: bytes, length: int | None = None) -> bytes:
    """A safetensors file with this JSON header, which claims to have `length` bytes."""
    return struct.pack("<Q", len(text) if length is None else length) + text


NO_TENSORS = [
    pytest.param(pickle.dumps(Payload()), id="pickle"), pytest.param(b"PK\x03\x04" + bytes(99), id="zip"),
    pytest.param(header(b"{}", 2**63), id="header larger than the file"),
    pytest.param(header(b'{"w":' * 20_000, None), id="deep header"),
    pytest.param(header(json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()),
                 id="tensor larger than the file"),
    pytest.param(header(json.dumps({"w": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 0]}}).encode()),
                 id="shape that overflows")]


@pytest.fixture
def run(cartpole_run: Path) -> Path:
    return Path(shutil.copytree(cartpole_run, "run"))


def set_key(path: Path, keys: str, value: object) -> None:
    """Change one value of a JSON file, by keys that are joined with dots."""
    content = json.loads(path.read_text())
    *parents, last = keys.split(".")
    part = content
    for parent in parents:
        part = part[parent]
    part[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("data", NO_TENSORS)
def test_what_is_no_safetensors_file_is_refused_and_never_unpickled(data: bytes, run: Path) -> None:
    path = load_latest(run).path
    for name in ("model.safetensors", "acting.safetensors"):
        copy = Path(shutil.copytree(path, f"copy-{name}"))
        replace_file(copy, name, data)
        with pytest.raises(CheckpointError, match=f"{name} is not a safetensors file"):
            load(copy)
    Path("policy.safetensors").write_bytes(data)
    with pytest.raises(VantageError, match=r"policy\.safetensors"):
        read_policy(Path("policy.safetensors"))
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", [
    "../../secret.safetensors",
    "/etc/passwd",
    "a\0.json",
    "config.pkl",
    "model.safetensors\n",
])
def test_a_manifest_names_only_files_beside_it(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = load_latest(run).path
    for other in path.parent.iterdir():
        manifest = json.loads((other / "manifest.json").read_text())
        manifest["files"][name] = manifest["files"]["state.json"]
        (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="not a file of a checkpoint"):
        load(path)
    assert main(["resume", str(run), "--steps", "500"]) == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_nothing_is_written_through_a_link(name: str, run: Path) -> None:
    victim = Path(shutil.copytree(run / "checkpoints", "victim")).absolute()
    before = sorted((path, path.stat().st_size) for path in victim.rglob("*"))
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(victim)
    with pytest.raises(ConfigError, match=rf"{name} is a symbolic link"):
        next(vantage.Trainer.resume(run, steps=800))
    assert sorted((path, path.stat().st_size) for path in victim.rglob("*")) == before


@pytest.mark.parametrize("name", ["best", "checkpoints/step-000000000400"])
def test_pruning_removes_a_link_and_not_its_target(name: str, run: Path) -> None:
    target = Path(shutil.move(run / name if (run / name).exists() else load_latest(run).path, "target")).absolute()
    (run / name).symlink_to(target)
    *_, last = vantage.Trainer.resume(run, steps=800)
    assert last.status == "done" and load(target).step == 400
    assert sorted(os.listdir(target)) == sorted([*json.loads((target / "manifest.json").read_text())["files"],
                                                 "manifest.json"])


HOSTILE = '</pre><script>alert(1)</script><img src="http://x.test/a" onerror=alert(2)>"\'&$\\frac$'


@pytest.mark.usefixtures("one_curve")
def test_names_from_a_run_are_text_in_the_page(run: Path) -> None:
    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "iframe", "object", "link") and not any(
                name.startswith("on") or (name in ("src", "href") and not str(value).startswith("data:"))
                for name, value in attrs), (tag, attrs)

    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps(meta | {HOSTILE: HOSTILE, "argv": [HOSTILE]}))
    set_key(run / "summary.json", "status", HOSTILE)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 400, "seconds": 1, HOSTILE: 1.0}) + "\n")
    page = report(run, episodes=1, video=False).read_text()
    Tags().feed(page)
    assert "alert(1)" in page and "<script" not in page


def test_no_cell_of_a_table_begins_a_formula() -> None:
    envs, runs = ("CartPole-v1", "=HYPERLINK(1)", "+1+1", "-1", "@SUM(1)", HOSTILE, 'a",=1\n=2'), []
    for number, env in enumerate(envs):
        config = vantage.configure("a2c", env="CartPole-v1").change(env=env)
        runs.append(RunDirectory.create(config, path=Path(f"run-{number}")).path)
        (runs[-1] / "metrics.jsonl").write_text('{"step": 1, "seconds": 1, "rollout/ep_rew_mean": 1.0}\n')
    plot(runs, Path("curve.svg"), csv=Path("curve.csv"))
    with Path("curve.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert all(any(env in cell for cell in cells) for env in envs)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]
    assert "<script" not in Path("curve.svg").read_text()


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"
"""Sets the window's title, clears the screen, colours and reverses the text, and returns to the line's start."""


@pytest.mark.parametrize(("change", "command"), [
    (lambda run: set_key(run / "config.json", "env.id", ESCAPE), "plot run"),
    (lambda run: set_key(run / "config.json", "env.id", f"a{ESCAPE}:B"), "evaluate run"),
    (lambda run: set_key(run / "config.json", "algorithm.gamma", ESCAPE), "export run --format onnx"),
    (lambda run: set_key(load_latest(run).path / "manifest.json", f"files.{ESCAPE}", {}), "resume run --steps 500"),
    (lambda run: [set_key(run / file, key, ESCAPE) for file, key in (("meta.json", "versions"),
                                                                     ("summary.json", "steps"))],
     "report run --no-video --episodes 1"),
    (lambda run: (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "seconds": 1, f"a/{ESCAPE}": 1.0}) + "\n"),
     "plot run"),
    (lambda run: run.rename(f"run{ESCAPE}"), "evaluate ru"),
    (lambda run: Path("best.json").write_text(json.dumps(
        {"trial": ESCAPE, "value": 1, "objective": ESCAPE, "config": {"algo": ESCAPE, "env": "CartPole-v1"}})),
     "train --from-search ."),
])
def test_names_from_files_do_not_command_the_terminal(
        change: Callable[[Path], object], command: str, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change(run)
    main(command.split())
    out, err = capfd.readouterr()
    assert out + err and (out + err).replace("\n", "").isprintable()
    assert "Traceback" not in err


def test_a_live_display_shows_names_from_files_escaped() -> None:
    config = vantage.configure("a2c", env="CartPole-v1").change(env=ESCAPE)
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    display = Display(config, console=console)
    display.show(Report(step=1, seconds=1.0, metrics={ESCAPE: 1.0}, run=ESCAPE, status="running"))
    console.print(display._panel())
    display.note(ESCAPE)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\\u001b[2J" in shown and "\x1b[2J" not in shown and not {"\x07", "\x9b", "\u202e", "\r"} & set(shown)
