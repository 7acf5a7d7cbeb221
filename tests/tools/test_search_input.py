"""Bad input to `vantage search` is one line with the remedy, before any file is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vantage.cli import main

SHORT = ["--threads", "1", "--no-tensorboard", "--eval-every", "0", "--num-envs", "4", "--hidden", "8"]
SPACE = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}}
GRID = {"lr": [1e-3, 1e-2]}


def refused(kind: str, content: Any, arguments: list[str], capsys: pytest.CaptureFixture[str], *, algo: str = "a2c",
            env: str = "CartPole-v1") -> str:
    """The one line that the search prints, with status 2, for a file with `content` (JSON, or text as it is)."""
    Path("file.json").write_text(content if isinstance(content, str) else json.dumps(content))
    assert main(["search", algo, "--env", env, f"--{kind}", "file.json", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not Path("runs").exists()
    return error


@pytest.mark.parametrize(("kind", "content", "says"), [
    ("grid", {"lrr": [1]}, "did you mean lr"),
    ("grid", {"lr": 1}, "no list of values"),
    ("grid", {"lr": []}, "no list of values"),
    ("grid", {"lr": ["fast"]}, "not a schedule"),
    ("grid", {"size": {"num_envs": [8, 16], "hidden": [32]}}, "num_envs has 2, hidden has 1"),
    ("grid", {"lr": [1], "both": {"lr": [1]}}, "lr is there twice"),
    ("grid", {"gamma": [0.9, "0.9"]}, "gamma=0.9 is there twice; give each value once"),
    ("grid", {"both": {"gamma": [0.9, 0.9, 0.9], "lr": [1, 2, 1]}}, "gamma=0.9, lr=1 is there twice"),
    ("space", {"memory": ["lstm", "none", "lstm"]}, "memory=lstm is there twice; give each value once"),
    ("grid", {"steps": [1, 2]}, "give --steps"),
    ("grid", {"max_episode_steps": [50, 500]}, "give --max-episode-steps"),
    ("space", {"env_kwargs": [{}, {"gravity": 1}]}, "give --env-kwargs"),
    ("space", {"frame_skip": {"low": 1, "high": 4}}, "give --frame-skip"),
    ("grid", {"num_envs": [4]}, "both given and searched"),
    ("grid", {}, "names no key"),
    ("space", {"lr": {"low": 1e-3}}, "or a range such as"),
    ("space", {"lr": {"low": 1e-3, "high": 1e-2, "logs": True}}, "did you mean log"),
    ("space", {"lr": {"low": 1e-2, "high": 1e-3}}, "is not below"),
    ("space", {"lr": {"low": 0, "high": 1e-3, "log": True}}, "begins above 0"),
    ("space", {"lr": {"low": 0, "high": 1, "as": "linear:1:0"}}, "the number's place"),
    ("space", {"rollout_length": {"low": "few", "high": 5}}, "'few' is not a number"),
    ("space", {"frame_stack": {"low": 0.5, "high": 5}}, "is a whole number"),
    ("space", {"gamma": {"low": 0.9, "high": 1.5}}, "file.json: gamma=1.5 is above 1"),
    ("space", {"memory": ["lsmt"]}, "file.json: memory='lsmt' is not one of none, lstm, gru; did you mean lstm"),
    ("space", {"num_envs": {"low": 10, "high": 32, "step": 8}}, "does not reach high=32; give high=26 or 34"),
    ("space", {"gamma": {"low": 0.9, "high": 0.99, "step": 0.04}}, "does not reach high=0.99; give high=0.98 or 1.02"),
    ("space", '{"gamma": {"low": 0.9, "high": 0.95, "step": 1e400}}', "file.json: gamma, step: inf is not a number"),
    ("space", {"reward_scale": {"low": -1.7e308, "high": 1.7e308}}, "file.json: reward_scale: from low=-1.7e+308"),
    ("space", {"lr": {"low": 1, "high": 10**400}}, "file.json: lr, high: 1000"),
    ("space", {"num_envs": {"low": 1, "high": 10**19}}, "file.json: num_envs=10000000000000000000 is above 100000"),
    ("space", {"separate": {"low": 0, "high": 1}}, "file.json: separate=0.0 is not true or false"),
    ("space", {"norm": ["none", "batch"], "lr": [1e-3, 1e400]}, "file.json: lr holds inf, which is not finite"),
    ("space", '{"lr": [1e-3, NaN]}', "file.json: lr holds nan, which is not finite"),
    ("space", {"lr": [1e-3, 10**400]}, "file.json: lr=1000"),
    ("space", {"rollout_length": [5, 10**19]}, "file.json: rollout_length='10000000000000000000' is not a list"),
])
def test_a_bad_file_is_one_line_with_the_remedy_and_status_2(
        kind: str, content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(kind, content, ["--num-envs", "4"] if says == "both given and searched" else [], capsys)
    assert says in error and "configure" not in error


@pytest.mark.parametrize(("arguments", "says"), [
    (["train"], "which algorithm"),
    (["train", "--from-search", "."], "no search directory"),
    (["train", "--from-search", "begun"], "no trial of it is complete yet"),
    (["train", "--from-search", "damaged"], "is damaged"),
    (["train", "--from-search", "partial"], "is damaged ('algo')"),
    (["train", "a3c", "--from-search", "ended"], "is of algo=a2c, not a3c"),
    (["train", "--from-search", "ended", "--lr", "fast"], "not a schedule"),
])
def test_a_search_that_cannot_be_trained_from_is_one_line(
        arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    best = {"trial": 0, "value": 1.0, "objective": "return"}
    whole = {"algo": "a2c", "env": "CartPole-v1", "lr": "1e-3"}
    for name, file, content in (("begun", "search.json", "{}"), ("damaged", "best.json", "{"),
                                ("partial", "best.json", json.dumps({**best, "config": {"env": "CartPole-v1"}})),
                                ("ended", "best.json", json.dumps({**best, "config": whole}))):
        Path(name).mkdir()
        (Path(name) / file).write_text(content)
    assert main(arguments) != 0
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(("algo", "arguments", "says"), [
    ("a2c", ["--device", "cuda:99"], "device='cuda:99': torch can use"),
    ("a2c", ["--optimizer", "nope"], "optimizer='nope' is not known; known: rmsprop_tf, rmsprop, adam"),
    ("a3c", ["--optimizer", "Adagrad"], "cannot be shared among workers; use one of rmsprop_tf"),
    ("a2c", ["--network", "nope"], "is not one of auto, mlp"),
    ("a2c", ["--memory", "nope"], "is not one of none, lstm, gru"),
    ("a2c", ["--gamma", "nonsense"], "not a schedule"),
    ("a2c", ["--runtime", "threads"], "is not one of sync, hogwild"),
    ("acer", ["--replay-size", "1e10"], "give a smaller --replay-size"),
])
def test_keys_that_no_run_could_begin_with_are_refused_at_once(
        algo: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused("space", SPACE, arguments, capsys, algo=algo)
    assert says in error and "file.json" not in error


@pytest.mark.parametrize(("content", "says"), [
    ({"optimizer": ["adam", "nope"]}, "file.json: optimizer='nope' is not known"),
    ({"lr": [1e-3, 1e-2], "device": ["cpu", "cuda:99"]}, "file.json: device='cuda:99'"),
])
@pytest.mark.parametrize("kind", ["grid", "space"])
def test_choices_that_no_run_could_begin_with_are_refused_at_once(
        kind: str, content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refused(kind, content, [], capsys)


@pytest.mark.parametrize(("kind", "arguments", "says"), [
    ("grid", ["--sampler", "tpe"], "--sampler tpe has no effect on a grid"),
    ("grid", ["--reduction", "3"], "--reduction 3 has no effect without pruning"),
    ("grid", ["--min-steps", "100"], "--min-steps 100 has no effect without pruning"),
    ("grid", ["--trials", "30"], "--trials 30: a grid has as many trials as points"),
    ("space", ["--pruner", "none", "--reduction", "3"], "--reduction 3 has no effect without pruning"),
    ("grid", ["--pruner", "asha", "--steps", "1000", "--eval-every", "1000"], "--pruner asha has no effect: trials of "
     "1,000 steps are first compared at their end"),
    ("space", ["--min-steps", "600", "--steps", "1000", "--eval-every", "500"], "--min-steps 600 has no effect"),
    ("space", ["--trials", "1e30"], "is above 10,000"),
    ("space", ["--trials", "0"], "--trials 0 is below 1"),
    ("space", ["--seeds", "1e18"], "is above 1,000"),
    ("space", ["--jobs", "1e9"], "is above 1,024"),
    ("space", ["--eval-every-seconds", "30"], "give --eval-every"),
    ("space", ["--storage", "postgresql+pg8000://me:secret@host/x"], "pip install pg8000"),
    ("space", ["--storage", "postgresql+pg8000://me:a/secret@host/x"], "me:***@host/x"),
    ("space", ["--storage", "postgresql+pg8000://me:an@secret@host/x"], "me:***@host/x"),
    ("space", ["--storage", "postgresql+pg8000://host/x?password=secret&user=me"], "x?password=***&user=me"),
    ("space", ["--storage", "sqlite://"], "lost with the command; give a file: sqlite:///FILE.db"),
    ("space", ["--storage", "sqlite:///:memory:"], "lost with the command"),
])
def test_options_without_effect_or_beyond_reason_are_refused(
        kind: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(kind, GRID if kind == "grid" else SPACE, arguments, capsys)
    assert says in error and "secret" not in error


def test_a_search_ends_with_what_became_of_its_trials(capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.json").write_text(json.dumps({"reward_scale": {"low": 1e30, "high": 1e31}}))
    command = ["search", "a2c", "--env", "tiny:DelayedReward", "--space", "space.json", "--steps", "600",
               "--no-reward-norm", *SHORT]
    directory = Path("runs/search/tiny-DelayedReward/a2c-1")
    assert main([*command, "--trials", "2"]) == 1
    error = capsys.readouterr().err
    assert "no trial has a value: 2 of 2 failed: the loss" in error and "not finite" in error
    assert f"{directory}/results.md" in error and error.count("\n") == 1
    assert "another --run" in error
    assert main([*command, "--trials", "1"]) == 1
    assert "--trials 1: the study has 2 already; they stay, and none is added" in capsys.readouterr().out
