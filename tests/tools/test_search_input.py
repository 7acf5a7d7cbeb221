"""`vantage search` on bad input: what it refuses before it makes anything, and what it says of what it finds."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import InMemoryStorage

from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.presets import configure
from vantage.tools.search import study as study_module
from vantage.tools.search.plan import Plan
from vantage.tools.search.search import Search
from vantage.tools.search.space import Choices, Space, kinds, read_grid

SHORT = ["--threads", "1", "--no-tensorboard", "--eval-every", "0", "--num-envs", "4", "--hidden", "8"]
SPACE = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}}
GRID = {"lr": [1e-3, 1e-2]}


def refused(kind: str, content: Any, arguments: list[str], capsys: pytest.CaptureFixture[str], *, algo: str = "a2c",
            env: str = "CartPole-v1") -> str:
    """What the search says, in one line, and with status 2, of a file; text is written as it is."""
    Path("file.json").write_text(content if isinstance(content, str) else json.dumps(content))
    assert main(["search", algo, "--env", env, f"--{kind}", "file.json", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not Path("runs").exists()
    return error


# What no trial could begin with.


@pytest.mark.parametrize(("algo", "arguments", "says"), [
    ("a2c", ["--device", "cuda:99"], "device='cuda:99': torch can use"),
    ("a2c", ["--optimizer", "nope"], "optimizer='nope' is not known; known: rmsprop_tf, rmsprop, adam"),
    ("a3c", ["--optimizer", "Adagrad"], "cannot be shared among workers; use one of rmsprop_tf"),
    ("a2c", ["--network", "nope"], "is not one of auto, mlp"),
    ("a2c", ["--memory", "nope"], "is not one of none, lstm, gru"),
    ("a2c", ["--gamma", "nonsense"], "not a schedule"),
    ("a2c", ["--runtime", "threads"], "is not one of sync, hogwild"),
    ("a2c", ["--obs-scale", "0:255"], "is for images, and this environment shows none"),
    ("acer", ["--replay-size", "1e10"], "give a smaller --replay-size"),
])
def test_keys_that_no_run_could_begin_with_are_refused_at_once(
        algo: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused("space", SPACE, arguments, capsys, algo=algo)
    assert says in error and "file.json" not in error


@pytest.mark.parametrize(("content", "says"), [
    ({"optimizer": ["adam", "nope"]}, "file.json: optimizer='nope' is not known"),
    ({"lr": [1e-3, 1e-2], "device": ["cpu", "cuda:99"]}, "file.json: device='cuda:99'"),
    ({"obs_scale": ["0:1", "0:255"]}, "file.json: obs_scale=0:255 is for images"),
])
@pytest.mark.parametrize("kind", ["grid", "space"])
def test_choices_that_no_run_could_begin_with_are_refused_at_once(
        kind: str, content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refused(kind, content, [], capsys)


def test_train_names_the_optimisers_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "a2c", "--env", "CartPole-v1", "--optimizer", "nope"]) == 2
    assert "known: rmsprop_tf, rmsprop, adam, amsgrad, and classes of torch.optim such as" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_what_no_choice_changes_is_tried_once() -> None:
    space = Space({"lr": Choices((1e-3, 1e-2, 1e-1)), "optimizer": Choices(("adam", "rmsprop"))})
    assert list(kinds(space)) == [{"lr": 1e-3, "optimizer": "adam"}, {"lr": 1e-3, "optimizer": "rmsprop"}]


# Ranges and values.


@pytest.mark.parametrize(("content", "says"), [
    ({"num_envs": {"low": 10, "high": 32, "step": 8}}, "does not reach high=32; give high=26 or 34"),
    ({"gamma": {"low": 0.9, "high": 0.99, "step": 0.04}}, "does not reach high=0.99; give high=0.98 or 1.02"),
    ('{"gae_lambda": {"low": 0.9, "high": 0.95, "step": 1e400}}', "file.json: gae_lambda, step: inf is not a number"),
    ({"reward_scale": {"low": -1.7e308, "high": 1.7e308}}, "file.json: reward_scale: from low=-1.7e+308"),
    ({"lr": {"low": 1, "high": 10**400}}, "file.json: lr, high: 1000"),
    ({"gamma": {"low": 0.9, "high": 1.5}}, "file.json: gamma=1.5 is above 1"),
    ({"num_envs": {"low": 1, "high": 10**19}}, "file.json: num_envs=10000000000000000000 is above 100000"),
    ({"separate": {"low": 0, "high": 1}}, "file.json: separate=0.0 is not true or false"),
    ({"hidden": {"low": 1, "high": 10**19}}, "file.json: hidden='10000000000000000000' is not a list"),
    ({"norm": ["none", "batch"], "lr": [1e-3, 1e400]}, "file.json: lr holds inf, which is not finite"),
    ('{"lr": [1e-3, NaN]}', "file.json: lr holds nan, which is not finite"),
    ('{"lr": [1e-3, -Infinity]}', "file.json: lr holds -inf, which is not finite"),
    ({"lr": [1e-3, 10**400]}, "file.json: lr=1000"),
    ({"rollout_length": [5, 10**19]}, "file.json: rollout_length='10000000000000000000' is not a list"),
    ({"memory": ["none", "lsmt"]}, "file.json: memory='lsmt' is not one of none, lstm, gru"),
])
def test_a_message_about_a_file_names_it_and_the_key(
        content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused("space", content, [], capsys)
    assert says in error and "configure" not in error


def test_a_message_that_names_no_searched_key_tells_which_values_are_meant(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--norm", "batch", "--num-envs", "2"]
    error = refused("grid", {"rollout_length": [16, 1]}, given, capsys)
    assert "file.json: norm=batch lets no gradient through a batch of 2; give a larger --rollout-length" in error
    error = refused("grid", {"replay_start": [10, 20], "replay_size": [30, 15]}, [], capsys, algo="acer")
    assert "file.json: replay_start=20 steps never fit in replay_size=15" in error
    error = refused("grid", {"network": ["auto", "impala"]}, ["--init-checkpoint", "best"], capsys)
    assert "file.json" not in error
    space = Space({"lr": Choices((1e-3,)), "norm": Choices(("none",))}, source="file.json")
    told = space.refusal({"lr": 1e-3, "norm": "none"}, ConfigError("configure: too abnormal"))
    assert str(told) == "file.json: with lr=0.001, norm=none: too abnormal"


@pytest.mark.parametrize(("low", "high", "step"), [(0.1, 0.9, 0.1), (0, 1, 0.05), (8, 32, 8), (1e-5, 1e-4, 1e-5)])
def test_a_step_that_reaches_high_in_decimals_draws_without_a_warning(low: float, high: float, step: float) -> None:
    Path("space.json").write_text(json.dumps({"reward_scale": {"low": low, "high": high, "step": step}}))
    from vantage.tools.search.space import read_space

    study_module._distribution(read_space(Path("space.json")).domains["reward_scale"])  # warnings are errors here


# Options.


@pytest.mark.parametrize(("kind", "arguments", "says"), [
    ("grid", ["--sampler", "tpe"], "--sampler tpe has no effect on a grid"),
    ("grid", ["--reduction", "3"], "--reduction 3 has no effect without pruning"),
    ("grid", ["--min-steps", "100"], "--min-steps 100 has no effect without pruning"),
    ("grid", ["--trials", "30"], "--trials 30: a grid has as many trials as points"),
    ("space", ["--pruner", "none", "--reduction", "3"], "--reduction 3 has no effect without pruning"),
    ("grid", ["--pruner", "asha", "--steps", "1000", "--eval-every", "1000"], "--pruner asha has no effect: trials of "
     "1,000 steps are first compared at their end"),
    ("space", ["--min-steps", "600", "--steps", "1000", "--eval-every", "500"], "--min-steps 600 has no effect"),
    ("space", ["--trials", "1e30"], "is above 100,000"),
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


@pytest.mark.parametrize(("module", "says"), [
    ("psycopg2", "its driver is missing: pip install psycopg2-binary"),
    ("psycopg", "its driver is missing: pip install 'psycopg[binary]'"),
    ("MySQLdb", "its driver is missing: pip install mysqlclient"),
])
def test_a_missing_driver_is_named_with_what_installs_it(
        module: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("no database module") from ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(study_module, "RDBStorage", missing)
    error = refused("space", SPACE, ["--storage", "postgresql://me:secret@host/x"], capsys)
    assert says in error and "secret" not in error


@pytest.mark.parametrize("content", ["no journal\nat all\n", '{"op_code"\n{}\n', '{"study": 1}\n'])
def test_a_damaged_journal_is_called_that(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("study.journal").write_text(content)
    error = refused("space", SPACE, ["--storage", "study.journal"], capsys)
    assert "study.journal is no journal of Optuna's, or a damaged one" in error and "give another --storage" in error


def test_no_run_writes_the_password_of_the_storage_down(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Noted(Search):
        def __init__(self, *arguments: Any, argv: Sequence[str], **options: Any) -> None:
            seen.extend(argv)
            raise VantageError("far enough")

    monkeypatch.setattr("vantage.tools.search.search.Search", Noted)
    monkeypatch.setattr(study_module, "RDBStorage", lambda *_, **__: InMemoryStorage())
    Path("space.json").write_text(json.dumps(SPACE))
    command = ["search", "a2c", "--env", "CartPole-v1", "--space", "space.json", "--steps", "1000", "--storage",
               "postgresql://me:secret@host/x"]
    monkeypatch.setattr("sys.argv", ["vantage", *command])
    assert main(command) == 1
    assert "postgresql://me:***@host/x" in seen
    assert "secret" not in Path("runs/search/CartPole-v1/a2c-1/search.json").read_text()


def test_a_file_saved_by_windows_is_read_as_any_other() -> None:
    Path("file.json").write_text(json.dumps(GRID), encoding="utf-8-sig")
    assert len(read_grid(Path("file.json")).points or ()) == 2


def test_a_search_that_cannot_be_written_into_is_not_called_running(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Path("space.json").write_text(json.dumps(SPACE))
    monkeypatch.setattr("vantage.runs.lock.os.open", refuse)
    assert main(["search", "a2c", "--env", "CartPole-v1", "--space", "space.json", "--steps", "1000"]) == 2
    error = capsys.readouterr().err
    assert "Read-only file system; make it writable" in error and error.count("\n") == 1


def test_a_preset_that_evaluates_by_the_clock_is_searched_by_steps() -> None:
    assert configure("a3c-continuous", env="Pendulum-v1").run.eval_every_seconds == 60
    plan = Plan("a3c-continuous", "Pendulum-v1", {"steps": 1000}, Space({"gae_lambda": Choices(("0.5", "1"))}))
    config: Config = plan.config({"gae_lambda": "0.5"}, 0)
    assert (config.run.eval_every, config.run.eval_every_seconds, plan.metric) == (50, 0, "eval/mean_reward")


# A search that is there.


@pytest.mark.parametrize(("content", "says"), [
    ("{", "search.json is damaged"), ("", "search.json is damaged"), ("[]", "search.json is damaged"),
    ("{}", "search.json is damaged"), (None, "search.json is missing")])
@pytest.mark.parametrize("run", [[], ["--run", "runs/search/CartPole-v1/a2c-1"]])
def test_a_damaged_record_of_a_search_is_called_that(
        run: list[str], content: str | None, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = Path("runs/search/CartPole-v1/a2c-1")
    (directory / "trial-000" / "seed-0").mkdir(parents=True)
    (directory / "best.json").write_text("{}")
    if content is not None:
        (directory / "search.json").write_text(content)
    Path("space.json").write_text(json.dumps(SPACE))
    assert main(["search", "a2c", "--env", "CartPole-v1", "--space", "space.json", *run]) == 2
    error = capsys.readouterr().err
    assert says in error and "put it back" in error and f"vantage train --from-search {directory}" in error
    assert error.count("\n") == 1
    assert [path.name for path in directory.parent.iterdir()] == ["a2c-1"]


def test_a_search_ends_with_what_became_of_its_trials(capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.json").write_text(json.dumps({"reward_scale": {"low": 1e30, "high": 1e31}}))
    command = ["search", "a2c", "--env", "tiny:DelayedReward", "--space", "space.json", "--steps", "600",
               "--no-reward-norm", *SHORT]
    directory = Path("runs/search/tiny-DelayedReward/a2c-1")
    assert main([*command, "--trials", "2"]) == 1
    error = capsys.readouterr().err
    assert "no trial has a value: 2 of 2 failed; trial" in error and "not finite" in error
    assert f"{directory}/trial-*" in error and f"{directory}/results.md" in error and error.count("\n") == 1
    assert "another --run" in error
    assert main([*command, "--trials", "1"]) == 1
    assert "--trials 1: the study has 2 already; they stay, and none is added" in capsys.readouterr().out
