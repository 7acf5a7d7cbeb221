"""config.json keeps what was left to the machine, so that it can be used on another; meta.json has what that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import train_shortly

import vantage
from vantage.cli import main
from vantage.config.config import Config
from vantage.runs.directory import RunDirectory
from vantage.runtimes import training
from vantage.runtimes.machine import prepare


def read(run: Path, name: str) -> Any:
    return json.loads((run / name).read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("auto") / "run"
    return train_shortly(path, "CartPole-v1", device="auto", precision="auto", threads=0, num_workers=0)


def test_config_json_keeps_what_was_automatic(run: Path) -> None:
    config = read(run, "config.json")
    assert config["runtime"] == {"kind": "sync", "rollout_length": config["runtime"]["rollout_length"],
                                 "rollouts_per_update": 1, "num_workers": 0, "device": "auto", "threads": 0}
    assert config["policy"]["precision"] == "auto"
    in_force = RunDirectory.open(run).config
    assert read(run, "meta.json")["resolved"] == {
        "device": in_force.runtime.device, "threads": 1, "num_workers": 1, "precision": "float32"}
    assert in_force.runtime.device != "auto" and in_force.runtime.threads == 1


def test_config_of_a_run_pins_no_cores_and_no_device(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(run / "config.json"), "--dry-run"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert (config["runtime"]["device"], config["runtime"]["threads"], config["policy"]["precision"]) == (
        "auto", 0, "auto")


def test_given_values_stay_in_config_json(tmp_path: Path) -> None:
    train_shortly(tmp_path / "run", "CartPole-v1", threads=1, device="cpu")
    assert read(tmp_path / "run", "config.json")["runtime"]["threads"] == 1
    assert read(tmp_path / "run", "meta.json")["resolved"] == {"num_workers": 1}


def test_a_resume_has_the_values_of_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = read(run, "meta.json")
    (run / "meta.json").write_text(json.dumps(meta | {"resolved": meta["resolved"] | {"threads": 3}}))
    prepared: list[Config] = []

    def remember(config: Config) -> Config:
        prepared.append(config)
        return prepare(config)

    monkeypatch.setattr(training, "prepare", remember)
    for _ in vantage.Trainer.resume(run, steps=RunDirectory.open(run).config.run.steps + 80):
        pass
    assert prepared[0].runtime.threads == 3
    assert read(run, "config.json")["runtime"]["threads"] == 0
    assert read(run, "meta.json")["resolved"]["threads"] == 3


def test_a_device_that_this_machine_lacks_is_replaced(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    meta = read(run, "meta.json")
    (run / "meta.json").write_text(json.dumps(meta | {"resolved": meta["resolved"] | {"device": "cuda:77"}}))
    for _ in vantage.Trainer.resume(run, steps=RunDirectory.open(run).config.run.steps + 80):
        pass
    assert "device=cuda:77 is not on this machine: this resume is not exact" in caplog.text
    assert read(run, "config.json")["runtime"]["device"] == "auto"
    assert read(run, "meta.json")["resolved"]["device"] != "cuda:77"


def test_odd_values_in_meta_json_are_named_and_not_used(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    meta = read(run, "meta.json")
    for odd in ({"threads": "many"}, {"threads": -1}, [1], "x"):
        (run / "meta.json").write_text(json.dumps(meta | {"resolved": odd}))
        assert RunDirectory.open(run).config.runtime.threads == 0
        assert "meta.json: " in caplog.text
        caplog.clear()
    (run / "meta.json").write_text(json.dumps(meta | {"resolved": {"steps": 7}}))
    assert RunDirectory.open(run).config.run.steps != 7


def test_a_run_of_the_former_version_is_read_and_resumed(tmp_path: Path) -> None:
    run = train_shortly(tmp_path / "run", "CartPole-v1")
    directory = RunDirectory.open(run)
    meta = read(run, "meta.json")
    del meta["resolved"]
    (run / "config.json").write_text(directory.config.to_json())
    (run / "meta.json").write_text(json.dumps(meta))
    assert RunDirectory.open(run).config == directory.config
    for report in vantage.Trainer.resume(run, steps=directory.config.run.steps + 80):
        assert report.step <= directory.config.run.steps + 160
    assert read(run, "config.json")["runtime"]["threads"] == 1
