"""`vantage train --seeds`: several seeds train, stop, go on and are summarised by one command."""

from __future__ import annotations

import csv
import json
import logging
import signal
import subprocess
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import train_shortly
from zygote import Command

import vantage
from vantage.cli import main
from vantage.runs.checkpoint import newest_step
from vantage.runs.directory import RunDirectory
from vantage.runtimes import machine
from vantage.tools import child_runs, seeds
from vantage.tools.child_runs import ForeignRunError, share_cores, trusts
from vantage.tools.scores import markdown_table, write_results

pytestmark = pytest.mark.integration

COMMAND = ["train", "a2c", "--env", "CartPole-v1", "--steps", "20k", "--seed", "3", "--seeds", "2", "--jobs", "2",
           "--threads", "1", "--no-tensorboard", "--eval-every", "0", "--hidden", "8", "--log-every-seconds", "0.01"]


def test_one_signal_saves_all_seeds_and_the_same_command_finishes_them(capsys: pytest.CaptureFixture[str]) -> None:
    process = Command(["-m", "vantage", *COMMAND], stdout=subprocess.PIPE)
    assert process.stdout is not None
    seen = set[str]()
    while not {"seed 3", "seed 4"} <= seen:
        seen.add(next(process.stdout).partition(":")[0])
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    directory = Path("runs/CartPole-v1/a2c-1")
    runs = [directory / f"seed-{seed}" for seed in (3, 4)]
    before = [newest_step(run) or 0 for run in runs]
    assert process.returncode == 130 and out.splitlines()[-1].endswith(f"--run {directory}")
    assert all(0 < step < 20_000 for step in before) and not (directory / "scores.csv").exists()

    assert main([*COMMAND, "--run", str(directory)]) == 0
    assert [RunDirectory.open(run).config.run.seed for run in runs] == [3, 4]
    assert [RunDirectory.open(run).read_summary()["status"] for run in runs] == ["done", "done"]
    with (directory / "scores.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["checkpoint"] == "latest"]
    mean = np.mean([float(row["return_mean"]) for row in rows])
    assert [row["seed"] for row in rows] == ["3", "4"] and f"| {mean:.1f} (" in capsys.readouterr().out
    assert (directory / "curve.png").exists() and json.loads((directory / "protocol.json").read_text())["command"]


def test_seeds_of_another_config_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("seeds")
    folder.mkdir()
    assert main([*COMMAND, "--dry-run"]) == 0
    (folder / "seeds.json").write_text(capsys.readouterr().out)
    assert main([*COMMAND, "--run", "seeds", "--lr", "1e-5"]) == 2
    assert "seeds holds seeds of another config, which differs in lr;" in capsys.readouterr().err
    assert main([*COMMAND, "--jobs", "3"]) == main([*COMMAND, "--report"]) == main([*COMMAND, "--seeds", "0"]) == 2
    assert list(folder.iterdir()) == [folder / "seeds.json"] and not Path("runs").exists()


@pytest.mark.parametrize(("content", "says"), [
    (b'{"algo": "evil:Algo", "lr": 1}', "seeds of another config, which differs in "),
    (b"\xff\xfe", "cannot read seeds/seeds.json: 'utf-8' codec"),
    (b"[]", "seeds.json holds list, not a JSON object; seeds/seeds.json must be as Vantage wrote it"),
])
def test_a_foreign_seeds_file_is_read_without_its_code(content: bytes, says: str,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil.py").write_text("raise SystemExit('its code ran')")
    Path("seeds").mkdir()
    Path("seeds/seeds.json").write_bytes(content)
    assert main([*COMMAND, "--run", "seeds"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_seed_under_another_key_is_done_whatever_algorithm_it_names() -> None:
    Path("config.json").write_text('{"algo": "evil:Algo"}')
    Path("summary.json").write_text('{"status": "done"}')
    assert seeds._is_done(Path())


def test_a_finished_seed_of_someone_else_is_not_played_with_code_that_the_command_does_not_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_shortly(tmp_path / "run", "tiny:Bandit")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    monkeypatch.setattr(logging.getLogger("vantage"), "handlers", [])  # to which the process of a seed adds its own
    here, there = Pipe()
    own, other = (vantage.configure("a2c", env=env) for env in ("tiny:Bandit", "CartPole-v1"))
    assert trusts(own, run)
    with pytest.raises(ForeignRunError, match=r"imports tiny:Bandit; .*vantage resume .*--trust"):
        seeds._train_one(there, other, run, [], 1)
    assert not here.poll()


def test_the_iqm_of_scores_is_the_mean_without_the_outer_quarters() -> None:
    def row(seed: int, score: float) -> dict[str, Any]:
        return {"seed": seed, "checkpoint": "latest", "return_mean": score, "minutes": 1.0}

    # Of five seeds, floor(5/4) = 1 is left out on each side, as by scipy's trim_mean, which rliable uses.
    rows = [row(seed, score) for seed, score in enumerate([10, 500, 30, 20, -90])]
    text = markdown_table("a2c", "CartPole-v1", 100, rows, "command")
    assert "| CartPole-v1 | a2c | 100 | 5 | 20.0 (" in text
    assert "| 20.0 (-90.0 to 500.0) |  | 1.0 to 1.0 | `command` |" in text


def test_a_seed_without_an_ended_training_game_has_scores_and_no_curve(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "Pendulum-v1", steps=100)
    row = {"seed": 0, "checkpoint": "latest", "step": 100, "return_mean": -1_000.0, "minutes": 1.0}
    *table, no_curve, files = write_results(tmp_path, [run], [row], command="command").splitlines()
    assert len(table) == 3 and no_curve.startswith(f"no curve: {run} has no finite value of rollout/ep_rew_mean")
    assert files == f"in {tmp_path}: scores.csv; protocol.json; table.md" and (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize(("keys", "shared"), [
    ({"env": "CartPole-v1"}, {"threads": 1}), ({"env": "CartPole-v1", "hidden": "1024,1024"}, {"threads": 4}),
    ({"env": "Pong"}, {"threads": 4}), ({"env": "CartPole-v1", "threads": 3}, {"threads": 3}),
    ({"algorithm": "a3c", "env": "CartPole-v1"}, {"num_workers": 4})])
def test_runs_at_a_time_share_the_cores(keys: dict[str, Any], shared: dict[str, int],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 8)
    monkeypatch.setattr(child_runs, "available_cores", lambda: 8)
    config = share_cores(vantage.configure(**{"algorithm": "a2c"} | keys), 2)
    assert {name: getattr(config.runtime, name) for name in shared} == shared
