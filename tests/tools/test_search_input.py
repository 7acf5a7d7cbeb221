"""Bad input to `vantage search` is one line with the remedy, before any file is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawing import Drawing
from torch import nn

import vantage
from vantage.cli import main
from vantage.errors import ConfigError
from vantage.tools.search.command import find_directory
from vantage.tools.search.study import open_storage

SPACE = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}}
GRID = {"lr": [1e-3, 1e-2]}


def refused(kind: str, content: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the search prints, with status 2, for a file with `content`."""
    Path("file.json").write_text(json.dumps(content))
    assert main(["search", "a2c", "--env", "CartPole-v1", f"--{kind}", "file.json", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not Path("runs").exists()
    return error


@pytest.mark.parametrize(("kind", "content", "says"), [
    ("grid", {"lr": 1}, "must be a list of values"),
    ("grid", {"size": {"num_envs": [8, 16], "hidden": [32]}}, "the lists in 'size' differ in length"),
    ("grid", {"lr": [1] * 101, "gamma": [0.9] * 101}, "10,201 points are more than 10,000; use --space"),
    ("grid", {"steps": [1, 2]}, "give it as the flag --steps"),
    ("grid", {"optimizer": ["adam", "nope"]}, "optimizer='nope' is not known"),
    ("space", {"lr": {"low": 1e-3, "high": 1e-2, "logs": True}}, "unexpected keyword argument 'logs'"),
    ("space", {"lr": {"low": 0, "high": 1, "as": "linear:1:0"}}, '"as" must hold {}'),
    ("space", {"num_envs": {"low": 10, "high": 32, "step": 8}}, "not divisible by `step`"),
    ("space", {"gamma": {"low": 0.9, "high": 1.5}}, "gamma=1.5 is above 1"),
])
def test_a_bad_file_is_one_line_with_its_name(
        kind: str, content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(kind, content, [], capsys)
    assert "file.json: " in error and says in error and "configure" not in error


@pytest.mark.parametrize(("arguments", "says"), [
    (["train", "--from-search", "partial"], "is missing or damaged ('algo')"),
    (["train", "a3c", "--from-search", "ended"], "is of algo=a2c, not a3c"),
])
def test_a_search_that_cannot_be_trained_from_is_one_line(
        arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    best = {"trial": 0, "value": 1.0, "objective": "return"}
    for name, config in (("partial", {}), ("ended", {"algo": "a2c", "env": "CartPole-v1", "lr": "1e-3"})):
        Path(name).mkdir()
        (Path(name) / "best.json").write_text(json.dumps({**best, "config": config}))
    assert main(arguments) != 0
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(("kind", "arguments", "says"), [
    ("space", ["--device", "cuda:99"], "device='cuda:99': torch can use"),
    ("grid", ["--reduction", "3"], "--reduction have no effect"),
    ("space", ["--pruner", "asha", "--steps", "1000", "--eval-every", "1000"], "first compared near their end"),
    ("space", ["--trials", "0"], "--trials 0 is not from 1"),
    ("space", ["--eval-every-seconds", "30"], "give --eval-every"),
    ("space", ["--storage", "postgresql+pg8000://me:an@secret@host/x"], "cannot use --storage"),
    ("space", ["--storage", "sqlite://"], "cannot share a database in memory; give a file that ends in .db"),
])
def test_options_without_effect_or_beyond_reason_are_refused(
        kind: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(kind, GRID if kind == "grid" else SPACE, arguments, capsys)
    assert says in error and "secret" not in error and "file.json: " not in error


@pytest.mark.parametrize(("option", "says"), [
    ({"pruner": "median"}, "pruner 'median' is not asha or none"),
    ({"trials": "5"}, "trials '5' is not a whole number"), ({"trials": 2.5}, r"trials=2\.5 is not a whole number"),
])
def test_wrong_options_of_the_call_are_named_before_any_directory_exists(option: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        vantage.search("a2c", env="CartPole-v1", space=SPACE, **option)
    assert not Path("runs").exists()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`vantage.search` on CartPole without its trainings; returns its plan and its directory."""
    monkeypatch.setattr("vantage.tools.search.scheduler.train_all", lambda plan, _, directory, __: (plan, directory))
    return lambda algorithm, **keys: vantage.search(algorithm, env="CartPole-v1", **{"grid": GRID, **keys})


def test_an_algorithm_has_one_study_however_it_is_given(planned: Callable[..., Any]) -> None:
    plan, directory = planned("ppo", epochs=2)
    for same, keys in ((vantage.PPO, {"epochs": 2}), (vantage.PPO(epochs=2), {}), ("PPO", {"epochs": "2"})):
        other, place = planned(same, **keys)
        assert (other.definition(), place) == (plan.definition(), directory)
    assert directory == Path("runs/search/CartPole-v1/ppo-1")
    assert planned(Drawing)[1] == directory.with_name("Drawing-1")
    with pytest.raises(ConfigError, match="epochs is given twice, in an object and as an argument"):
        planned(vantage.PPO(epochs=2), epochs=2)


@pytest.mark.parametrize(("key", "given", "text"), [
    ("lr", lambda progress: progress, vantage.Schedule.of(lambda progress: progress).text),
    ("activation", nn.ELU(), "elu"),
    ("optimizer", torch.optim.AdamW, "AdamW"), ("num_envs", np.int64(4), 4), ("gamma", torch.tensor(0.5), 0.5)])
def test_a_search_takes_what_configure_turns_into_text(
        key: str, given: Any, text: Any, planned: Callable[..., Any]) -> None:
    plan, _ = planned("a2c", **{key: given}, grid={"gae_lambda": np.array([0.5, 0.9])})
    assert plan.definition()["given"] == {key: text} and plan.domains == {"gae_lambda": [0.5, 0.9]}
    assert planned("a2c", grid={key: [given]})[0].points == [{key: text}]
    assert planned("a2c", grid={"both": {key: [given], "hidden": [(8,)]}})[0].points == [{key: text, "hidden": "8"}]


def test_a_search_refuses_code_that_its_processes_cannot_import(planned: Callable[..., Any]) -> None:
    class Own(vantage.PPO):
        """Of a function."""

    def linear(shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], 4)

    calls: list[tuple[Any, dict[str, Any], str]] = [
        (Own, {}, "Own"), (Own(epochs=2), {}, "Own"), ("a2c", {"network": linear}, "linear"),
        ("a2c", {"grid": {"network": [linear]}}, "linear")]
    for algorithm, keys, name in calls:
        with pytest.raises(ConfigError, match=f"<{name}> has no import path"):
            planned(algorithm, **keys)
    with pytest.raises(ConfigError, match="unknown key 'lrr'; did you mean lr"):
        planned("a2c", grid={"lrr": [linear]})
    assert not Path("runs").exists()


def test_a_directory_that_takes_no_database_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot write none/study.db: .*; free space there, or choose another run"):
        open_storage(None, Path("none"))


def test_the_directory_of_another_search_is_left_alone() -> None:
    first = find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 1}, None)
    assert first == find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 1}, None) == find_directory(
        {"algo": "a2c", "env": "CartPole-v1", "steps": 1}, first)
    assert find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 2}, None) == first.with_name("a2c-2")
    with pytest.raises(ConfigError, match="holds another search: steps differ"):
        find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 2}, first)
    (first / "search.json").write_text("{")
    with pytest.raises(ConfigError, match="missing or damaged; choose another run"):
        find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 1}, first)
    assert find_directory({"algo": "a2c", "env": "CartPole-v1", "steps": 1}, None) == first.with_name("a2c-3")
