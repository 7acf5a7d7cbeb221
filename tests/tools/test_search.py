"""`vantage search`: what its files mean, and that no trial is lost, doubled or stuck, whatever is killed."""

from __future__ import annotations

import csv
import errno
import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.presets import configure
from vantage.runs.directory import RunDirectory
from vantage.tools.search import study as study_module
from vantage.tools.search.directory import find_directory
from vantage.tools.search.plan import Plan
from vantage.tools.search.search import Search
from vantage.tools.search.show import EventLines, LiveTable, View, ranked
from vantage.tools.search.space import Choices, Range, Space, read_grid, read_space
from vantage.tools.search.study import Row, Trials, open_storage
from vantage.tools.search.work import Outcome, Segment, Worker, _serve, _train
from vantage.training import train

TESTS = Path(__file__).parents[1]
SHORT = ["--threads", "1", "--no-tensorboard", "--eval-every", "0", "--num-envs", "4", "--hidden", "8"]
GRID = {"lr": [1e-3, 1e-2], "entropy_coef": [0, 0.05]}
SEARCH = ["search", "a2c", "--env", "tiny:DelayedReward", "--grid", "grid.json", "--steps", "2000", "--save-every",
          "500", *SHORT]


def write(name: str, value: Any) -> Path:
    Path(name).write_text(json.dumps(value))
    return Path(name)


def results(directory: str = "runs/search/tiny-DelayedReward/a2c-1") -> list[dict[str, str]]:
    with (Path(directory) / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# What the files mean.


def test_a_grid_is_the_full_product_and_lists_in_one_object_go_together() -> None:
    space = read_grid(write("grid.json", {"lr": ["1e-3", "linear:1e-3:0"],
                                          "size": {"num_envs": [8, 16], "hidden": [[32], [64, 64]]}}))
    assert space.points == (
        {"lr": "1e-3", "num_envs": 8, "hidden": "32"}, {"lr": "1e-3", "num_envs": 16, "hidden": "64,64"},
        {"lr": "linear:1e-3:0", "num_envs": 8, "hidden": "32"},
        {"lr": "linear:1e-3:0", "num_envs": 16, "hidden": "64,64"})


def test_a_range_is_whole_where_its_key_counts_something() -> None:
    space = read_space(write("space.json", {
        "num_envs": {"low": 4, "high": 64, "log": True}, "rollout_length": {"low": 5, "high": 20, "step": 5},
        "gamma": {"low": 0, "high": 1}, "lr": {"low": "1e-4", "high": 0.01, "log": True, "as": "linear:{}:0"},
        "memory": ["none", "lstm"], "separate": {"choices": [True, False]}}))
    assert space.domains == {
        "num_envs": Range(4, 64, True, log=True), "rollout_length": Range(5, 20, True, step=5),
        "gamma": Range(0, 1, False), "lr": Range(1e-4, 0.01, False, log=True, text="linear:{}:0"),
        "memory": Choices(("none", "lstm")), "separate": Choices((True, False))}
    assert space.domains["lr"].value(0.00123456789) == "linear:0.0012346:0"  # type: ignore[union-attr]


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
    ("space", {"lr": {"low": 1e-3, "hihg": 1}}, "or a range such as"),
    ("space", {"lr": {"low": 1e-3, "high": 1e-2, "logs": True}}, "did you mean log"),
    ("space", {"lr": {"low": 1e-2, "high": 1e-3}}, "is not below"),
    ("space", {"lr": {"low": 0, "high": 1e-3, "log": True}}, "begins above 0"),
    ("space", {"lr": {"low": 0, "high": 1, "as": "linear:1:0"}}, "the number's place"),
    ("space", {"rollout_length": {"low": "few", "high": 5}}, "'few' is not a number"),
    ("space", {"frame_stack": {"low": 0.5, "high": 5}}, "is a whole number"),
    ("space", {"gamma": {"low": 0.9, "high": 1.5}}, "gamma=1.5 is above 1"),
    ("space", {"memory": ["lsmt"]}, "did you mean lstm"),
])
def test_a_bad_file_is_one_line_with_the_remedy_and_status_2(
        kind: str, content: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("file.json", content)
    assert main(["search", "a2c", "--env", "CartPole-v1", f"--{kind}", "file.json", "--num-envs", "4"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(("kind", "text", "says"), [
    ("grid", '{"lr": [1e-3], "gamma": [0.9], "lr": [1e-2]}', "lr is there twice; give each key once"),
    ("space", '{"lr": {"low": 1e-4, "high": 1e-2, "low": 1e-3}}', "low is there twice; give each key once"),
])
def test_a_key_given_twice_is_refused(kind: str, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file.json").write_text(text)
    assert main(["search", "a2c", "--env", "CartPole-v1", f"--{kind}", "file.json"]) == 2
    assert says in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("arguments", "says"), [
    ([], "--grid FILE.json or --space FILE.json"),
    (["--grid", "grid.json", "--space", "grid.json"], "not both"),
    (["--grid", "missing.json"], "cannot read missing.json"),
    (["--grid", "grid.json", "--trials", "5"], "as many trials as points"),
    (["--grid", "grid.json", "--seeds", "0"], "--seeds 0 is below 1"),
    (["--grid", "grid.json", "--jobs", "0"], "--jobs 0 is below 1"),
    (["--grid", "grid.json", "--max-minutes", "1"], "give --steps"),
    (["--grid", "grid.json", "--eval-every", "2000", "--steps", "1000"], "eval_every=2000 is above steps=1000"),
    (["--grid", "grid.json", "--seeds", "2", "--seed", str(2**63 - 1)], f"on they end above {2**63 - 1}"),
    (["--grid", "grid.json", "--min-steps", "1000"], "--min-steps 1000 has no effect without pruning"),
    (["--grid", "grid.json", "--pruner", "none", "--reduction", "4"], "--reduction 4 has no effect without pruning"),
    (["--grid", "grid.json", "--sampler", "random"], "--sampler random has no effect on a grid"),
    (["--grid", "grid.json", "--storage", "somewhere"], "is no storage"),
    (["--grid", "grid.json", "--storage", "nosql://me:secret@host/x"], "nosql://me:***@host/x"),
    (["--grid", "grid.json", "--storage", "grid.json/study.db"], "cannot use the storage"),
    (["--grid", "grid.json", "--run", "."], "no search directory"),
    (["--grid", "grid.json", "--init-from", "nowhere"], "init_from=nowhere: nowhere: no such run directory"),
])
def test_bad_options_are_one_line_with_the_remedy_and_status_2(
        arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("grid.json", GRID)
    assert main(["search", "a2c", "--env", "CartPole-v1", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and "secret" not in error
    assert not Path("runs").exists()


def test_without_optuna_the_error_names_the_command_that_installs_it(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("vantage.tools.search.command.find_spec", lambda name: None)
    assert main(["search", "a2c", "--env", "CartPole-v1", "--grid", "grid.json"]) == 2
    assert "pip install 'vantage-rl[search]'" in capsys.readouterr().err


def test_training_the_best_takes_no_optuna() -> None:
    code = "import sys, vantage.tools.search.directory; sys.exit('optuna' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


# What trials are compared by, and where they are.


def plan(**options: Any) -> Plan:
    space = Space({"lr": Range(1e-4, 1e-2, False, log=True)})
    return Plan("a2c", "CartPole-v1", {"steps": 100_000, **options.pop("given", {})}, space, **options)


def test_trials_are_compared_where_evaluations_are() -> None:
    assert plan().rungs == (15_000, 45_000, 100_000)  # 11,111 up to a multiple of eval_every, then three times that
    assert plan(min_steps=20_000, reduction=2).rungs == (20_000, 40_000, 100_000)
    assert plan(pruner="none").rungs == (100_000,)
    assert plan(given={"eval_every": 0}).rungs == (11_111, 33_333, 100_000)
    assert plan().metric == "eval/mean_reward"
    assert plan(given={"eval_every": 0}).metric == "rollout/ep_rew_mean"


def test_the_same_search_has_the_same_directory_and_another_a_new_one() -> None:
    first = find_directory(plan(), None, None)
    assert find_directory(plan(), None, None) == first == Path("runs/search/CartPole-v1/a2c-1")
    assert find_directory(plan(seeds=2), None, None).name == "a2c-2"
    with pytest.raises(ConfigError, match=r"another search: seeds, objective differ"):
        find_directory(plan(seeds=2), first, None)


# Who has which trial. Two `Trials` with one storage are two machines.


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(study_module, "GRACE_SECONDS", -1.0)


def machines(names: Sequence[str], storage: str, total: int, **options: Any) -> list[Trials]:
    for name in names:
        Path(name).mkdir()
    return [Trials(plan(**options), Path(name), open_storage(storage), total) for name in names]


@pytest.mark.parametrize("storage", ["study.db", "study.journal"])
def test_an_abandoned_trial_is_taken_up_with_its_number_and_its_values(storage: str, at_once: None) -> None:
    here, there = machines(["here", "there"], storage, total=2)
    first = here.take()
    assert first is not None and there.compare(first, 15_000, 3.0)
    second = there.take()  # which sees the lease of the first, and that it might be alive
    assert second is not None and second.number == 1 and second.values != first.values
    taken = there.take()  # which sees the same lease again
    assert taken is not None and (taken.number, taken.values, taken.reached) == (0, first.values, 15_000)
    assert here.beat([first]) == [first]  # lost to the other
    here.complete(first, 7.0, {0: 7.0}, 1)
    assert [row.state for row in there.rows()] == ["running", "running"]
    there.complete(taken, 8.0, {0: 8.0}, 1)
    there.complete(taken, 9.0, {0: 9.0}, 1)
    there.prune(second, {}, 1) if there.compare(second, 15_000, 1.0) else there.fail(second, "x", 1)
    assert there.rows()[0].value == 8.0 and there.over and here.over and here.take() is None


def test_a_trial_that_beats_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "SETTLE_SECONDS", 0.0)
    here, there = machines(["here", "there"], "study.db", total=1)
    first = here.take()
    assert first is not None
    for _ in range(3):
        monkeypatch.setattr(study_module, "GRACE_SECONDS", 1e9)
        assert there.take() is None
        monkeypatch.setattr(study_module, "GRACE_SECONDS", -1.0)
        assert here.beat([first]) == []
        assert there.take() is None
    here.leave(first)
    left = there.take()
    assert left is not None and left.values == first.values


def test_of_two_machines_that_make_the_last_trial_at_once_one_has_it() -> None:
    here, there = machines(["here", "there"], "study.db", total=1)
    assert here.take() is not None
    assert there._new() is None  # as if it had counted before the other's was there
    assert [row.number for row in there.rows()] == [0]


def test_a_trial_killed_before_it_had_values_gets_those_it_would_have_had() -> None:
    (whole,) = machines(["whole"], "whole.db", total=1)
    (cut,) = machines(["cut"], "cut.db", total=1)
    cut._storage.create_new_trial(cut._study_id)  # and then kill -9
    cut.shared = False  # the directory's lock is this process's, and so is the study
    expected, found = whole.take(), cut.take()
    assert expected is not None and found is not None
    assert (found.number, found.values) == (0, expected.values)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_each_trial_draws_anew_and_the_same_when_the_study_is_resumed(sampler: str) -> None:
    def drawn(directory: str, at_a_time: int) -> list[Any]:
        Path(directory).mkdir()
        values: list[Any] = []
        while len(values) < 4:
            trials = Trials(plan(sampler=sampler), Path(directory), None, total=4)
            for _ in range(at_a_time):
                trial = trials.take()
                assert trial is not None
                trials.complete(trial, trial.number, {}, 0)
                values.append(trial.values["lr"])
        return values

    at_once, one_by_one = drawn("a", 4), drawn("b", 1)
    assert at_once == one_by_one and len(set(at_once)) == 4


def test_of_three_trials_one_goes_on_and_of_equals_those_that_came_first() -> None:
    (trials,) = machines(["here"], "study.db", total=12)
    went_on = []
    for value in (1.0, 0.0, 2.0, 2.0, 2.0, 2.0, 1.5, 2.0, 3.0):
        trial = trials.take()
        assert trial is not None
        if trials.compare(trial, 15_000, value):
            went_on.append(trial.number)
        else:
            trials.prune(trial, {}, 15_000)
    # Of three or fewer the best alone, of six two, of nine three: 5 is the sixth, and as good as the best.
    assert went_on == [0, 2, 5, 8]


def test_a_trial_let_go_on_stays_so_whatever_comes_later() -> None:
    (trials,) = machines(["here"], "study.db", total=9)
    first = trials.take()
    assert first is not None and trials.compare(first, 15_000, 1.0)
    for _ in range(4):
        other = trials.take()
        assert other is not None
        trials.compare(other, 15_000, 2.0)
    assert trials.compare(first, 15_000, 1.0) and trials.goes_on(first)


def test_seeds_that_ended_before_their_steps_are_forgotten_where_their_runs_cannot_be_read(at_once: None) -> None:
    here, there = machines(["here", "there"], "study.db", total=1)
    first = here.take()
    assert first is not None
    here.stopped(first, 0, 500)  # but "here" has no directory of it, as if on another disk
    here.leave(first)
    taken = there.take()
    assert taken is not None and taken.stopped == {} and taken.runs == Path("there/trial-000").resolve()


# What a run has come to, wherever it was cut off.


def segment(target: int, eval_every: int = 0) -> Segment:
    config = configure("a2c", env="tiny:DelayedReward", steps=1200, num_envs=4, rollout_length=5, hidden="8",
                       threads=1, tensorboard=False, save_every=200, eval_every=eval_every,
                       eval_episodes=3, keep_checkpoints=2)
    return Segment(Path("run"), config, target, "eval/mean_reward" if eval_every else "rollout/ep_rew_mean")


def do(segment: Segment, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    return _train(segment, 1, [], should_stop, lambda message: None)


def checkpoints() -> dict[str, int]:
    """Those of the run, and when each was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in Path("run/checkpoints").glob("step-*/manifest.json")}


@pytest.mark.parametrize("eval_every", [0, 400])
def test_a_run_past_a_comparison_tells_its_value_there_and_loses_nothing(eval_every: int) -> None:
    at_first = do(segment(400, eval_every))
    polls = iter(range(10**9))
    assert do(segment(1200, eval_every), lambda: next(polls) > 15).interrupted
    kept = checkpoints()
    assert len(kept) == 2 and min(kept) > "step-000000000400"
    again = do(segment(400, eval_every))
    assert (again.value, again.interrupted) == (at_first.value, False) and again.step > 400
    assert checkpoints() == kept


@pytest.mark.parametrize("eval_every", [0, 400])
def test_a_kill_before_the_record_of_the_last_step_costs_no_step(eval_every: int) -> None:
    whole = do(segment(400, eval_every))
    kept, run = checkpoints(), RunDirectory.open(Path("run"))
    lines = Path("run/metrics.jsonl").read_text().splitlines(keepends=True)
    Path("run/metrics.jsonl").write_text("".join(lines[:-1]))
    run.write_summary({**run.read_summary(), "status": "running"})
    assert do(segment(400, eval_every)) == whole and whole.value is not None
    assert checkpoints() == kept
    assert run.read_summary()["status"] == "done"
    assert do(segment(1200, eval_every)).step == 1200


def test_an_evaluation_that_a_stop_cut_short_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = do(segment(400, 400))
    Path("run").rename("whole")
    stopped = False

    def cut_short(*_: object) -> None:
        nonlocal stopped
        stopped = True

    with monkeypatch.context() as patch:
        patch.setattr("vantage.runtimes.sync.evaluate_policy", cut_short)
        assert do(segment(400, 400), lambda: stopped) == Outcome(400, None, interrupted=True)
    assert do(segment(400, 400)) == whole


# Who trains what, without processes.


@pytest.mark.parametrize("target", [400, 1200])
def test_a_run_of_another_config_is_not_taken_for_the_trials(target: int) -> None:
    do(segment(400))
    mine = segment(target)
    do(replace(mine, config=replace(mine.config, threads=2)))  # its own, from another machine
    other = replace(mine, config=replace(mine.config, lr="1e-2"))
    with pytest.raises(ConfigError, match=r"another run, with lr='linear:7e-4:0' instead of '1e-2'; move it away"):
        do(other)


def test_trials_without_their_study_are_not_run_over() -> None:
    machines(["here"], "study.db", total=1)
    Path("here/trial-000/seed-0").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"trial-000 is there, but its storage has no trial.*another --run"):
        Trials(plan(), Path("here"), open_storage("lost.db"), 1)


class FakeWorker:
    """Takes note of what it is sent."""

    def __init__(self, *_: object) -> None:
        self.sent: list[Segment | None] = []

    def send(self, segment: Segment | None) -> None:
        self.sent.append(segment)


def searching(monkeypatch: pytest.MonkeyPatch, total: int, **options: Any) -> Search:
    """A search of 1,000 steps, of two seeds in two processes, with comparisons at 111 and 333."""
    monkeypatch.setattr("vantage.tools.search.search.Worker", FakeWorker)
    given = {"steps": 1000, "eval_every": 0, **options}
    (trials,) = machines(["here"], "study.db", total=total, seeds=2, given=given)
    return Search(plan(seeds=2, given=given), trials, jobs=2, display=EventLines(), argv=[])


def test_a_trial_taken_up_begins_at_the_comparison_after_its_last_with_the_seeds_that_have_more_to_do(
        monkeypatch: pytest.MonkeyPatch) -> None:
    search = searching(monkeypatch, 1, stop_at_return=5.0)
    trial = search.trials.take()
    assert trial is not None and search.trials.compare(trial, 111, 3.0)
    trial.run(0).mkdir(parents=True)
    (trial.run(0) / "metrics.jsonl").write_text('{"step": 90, "seconds": 1, "rollout/ep_rew_mean": 5.5}\n')
    search.trials.stopped(trial, 0, 90)
    search.trials.leave(trial)
    assert search._deal()
    ((worker, job),) = search.working.items()
    assert job is not None and (job.seed, job.active.pending) == (1, [])
    assert job.active.outcomes == {0: Outcome(90, 5.5)}
    assert [sent and (sent.path, sent.target) for sent in worker.sent] == [  # type: ignore[attr-defined]
        (trial.run(1), 333)]


def test_a_trial_killed_between_its_verdict_and_its_end_ends_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    search = searching(monkeypatch, 2)
    better, worse = search.trials.take(), search.trials.take()
    assert better is not None and search.trials.compare(better, 111, 3.0)
    assert worse is not None and not search.trials.compare(worse, 111, 1.0)
    search.trials.complete(better, 3.0, {}, 2000)
    search.trials.leave(worse)
    assert not search._deal() and search.trials.over
    assert [(row.state, row.value, row.reached) for row in search.trials.rows()] == [
        ("complete", 3.0, 1000), ("pruned", 1.0, 111)]


def test_values_that_do_not_go_together_fail_their_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.search.Worker", FakeWorker)
    space = Space({"norm": Choices(("none", "batch")), "num_envs": Choices((4, 1)), "rollout_length": Choices((5, 2))})
    Path("here").mkdir()
    together = Plan("a2c", "CartPole-v1", {}, space, sampler="random")
    search = Search(together, Trials(together, Path("here"), None, 20), jobs=20, display=EventLines(), argv=[])
    search._deal()
    failed = {(*row.values.values(), row.error) for row in search.trials.rows() if row.state == "failed"}
    assert failed == {("batch", 1, 2, "norm=batch lets no gradient through a batch of 2; give a larger "
                       "--rollout-length or --num-envs, or norm=layer")}
    assert [row.state for row in search.trials.rows()].count("running") == len(search.working) > 10


def test_a_seed_that_fails_stops_the_others_of_its_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    search = searching(monkeypatch, 2)
    search.jobs = 3
    assert search._deal()
    (failing, job), (sibling, other), (stranger, _) = search.working.items()
    assert job is not None and other is not None and job.active is other.active
    search.working[failing] = None
    search._take_in(job, Outcome(0, None, error="the simulator broke"))
    assert [worker.sent[1:] for worker in (failing, sibling, stranger)] == [[], [None], []]  # type: ignore[attr-defined]
    search._take_in(other, Outcome(50, None, interrupted=True))
    assert [row.state for row in search.trials.rows()] == ["failed", "running"]
    assert search.trials.rows()[0].error == "seed 0: the simulator broke"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_is_full_stops_the_search_and_fails_no_trial(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("vantage.runs.directory.write_atomically", full)
        outcome = served()
    search = searching(monkeypatch, 2)
    assert search._deal()
    (meeting, job), (sibling, other) = search.working.items()
    assert job is not None and other is not None

    def listen() -> None:
        for worker, told in ((meeting, outcome), (sibling, Outcome(50, None, interrupted=True))):
            if (now := search.working[worker]) is not None:
                search.working[worker] = None
                search._take_in(now, told)

    monkeypatch.setattr(search, "_listen", listen)
    monkeypatch.setattr(FakeWorker, "end", lambda _: None, raising=False)
    with pytest.raises(VantageError, match=f"cannot go on: .*{os.strerror(number)}.*the same command goes on"):
        search.run(lambda: False)
    assert [row.state for row in search.trials.rows()] == ["waiting"]


def served() -> Outcome:
    """What a process of the search says at the end of a run."""
    here, there = multiprocessing.Pipe()
    config = configure("a2c", env="CartPole-v1", steps=20, num_envs=1, eval_every=0, tensorboard=False)
    here.send(Segment(Path("run"), config, 20, "rollout/ep_rew_mean"))
    here.send(None)
    process = threading.Thread(target=_serve, args=(there, 1, ()))
    process.start()
    while not isinstance(outcome := here.recv(), Outcome):
        pass
    here.close()
    process.join()
    return outcome


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_process_of_the_search_starts_inherits_no_blocked_signals() -> None:
    worker, deadline = Worker(1, ()), time.monotonic() + 30
    try:
        while not re.search(r"SigBlk:\s0+\n", Path(f"/proc/{worker.process.pid}/status").read_text()):
            assert time.monotonic() < deadline, "it still blocks the signals that the search blocked while it began"
            time.sleep(0.05)
    finally:
        worker.end()


def test_how_many_environments_a_run_has_is_said_once_and_all_else_every_time(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    search = searching(monkeypatch, 1)
    for text in ("8 environments, in this process", "16 environments, in this process", "2 workers, 8 environments in "
                 "each", "4 workers, 1 environments in each", "worker 1 failed", "worker 2 failed", "worker 2 failed"):
        search._pass_on(text)
    assert capsys.readouterr().out.splitlines() == [
        "- 8 environments, in this process", "- 2 workers, 8 environments in each", "- worker 1 failed",
        "- worker 2 failed"]


def test_of_equal_trials_that_is_best_which_was_there_sooner() -> None:
    compared = [{10: 100.0, 30: 500.0}, {10: 400.0, 30: 500.0}, {10: 500.0, 30: 500.0}, {10: 500.0, 30: 500.0}]
    values = [500.0, 500.0, 499.0, None]
    rows = [Row(i, "complete", value, {}, 90, 90, "", {}, "", part, {})
            for i, (value, part) in enumerate(zip(values, compared, strict=True))]
    assert [row.number for row in ranked(rows)] == [1, 0, 2, 3]


@pytest.mark.parametrize("width", [80, 132])
def test_the_live_table_cuts_keys_and_nothing_else(width: int) -> None:
    keys = {"lr": "linear:0.0001234:0", "entropy_coef": 0.01234, "num_envs": 16, "gae_lambda": 0.9512,
            "value_coef": 0.5123, "optimizer_eps": 1.234e-05}
    rows = [Row(number, "complete", -1234.5, keys, 24_000, 24_000, "", {}, "", {}, {}) for number in range(14)]
    table = LiveTable()
    table.show(View(plan(given={"steps": 24_000}), 14, rows, {}))
    screen = io.StringIO()
    Console(file=screen, width=width).print(table._panel())
    lines = [line for line in screen.getvalue().splitlines() if "lr=" in line]
    assert len(lines) == 14 and all(re.search(r"24,000 +-1,234 +lr=.*…", line) for line in lines)


# Whole searches.


def test_a_search_killed_in_the_middle_ends_as_if_nothing_had_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.results.write_plots", lambda *_: [])  # another test looks at them
    write("grid.json", GRID)
    process = subprocess.Popen([sys.executable, "-m", "vantage.cli", *SEARCH, "--jobs", "2"], start_new_session=True,
                               stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    search = Path("runs/search/tiny-DelayedReward/a2c-1")
    deadline = time.monotonic() + 60
    while not list(search.glob("trial-*/seed-0/checkpoints/step-000000001*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    begun = sorted(search.glob("trial-*"))
    assert begun and not (search / "results.csv").exists()

    assert main(SEARCH) == 0
    found = results()
    assert [(row["trial"], row["state"], row["lr"], row["entropy_coef"]) for row in found] == [
        ("0", "complete", "0.001", "0"), ("1", "complete", "0.001", "0.05"), ("2", "complete", "0.01", "0"),
        ("3", "complete", "0.01", "0.05")]
    assert len(list(search.glob("trial-*"))) == 4
    for row in found:
        config = RunDirectory.open(Path(row["runs"]) / "seed-0").config
        *_, last = train(config, run=f"whole-{row['trial']}")
        assert last.step == int(row["steps"])
        assert last.metrics["rollout/ep_rew_mean"] == pytest.approx(float(row["value"]), abs=1e-5)
    assert len({row["value"] for row in found}) > 1


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_pruned_search_stopped_past_its_first_comparison_loses_no_checkpoint(
        by: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.tools.search.results.write_plots", lambda *_: [])
    write("grid.json", {"lr": [1e-3]})
    command = ["search", "a2c", "--env", "tiny:DelayedReward", "--grid", "grid.json", "--pruner", "asha", "--steps",
               "8000", "--min-steps", "400", "--reduction", "10", "--rollout-length", "5", "--save-every", "500",
               "--keep-checkpoints", "99", *SHORT]
    process = subprocess.Popen([sys.executable, "-m", "vantage.cli", *command], start_new_session=True,
                               stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    search = Path("runs/search/tiny-DelayedReward/a2c-1")
    run = search / "trial-000" / "seed-0"
    deadline = time.monotonic() + 60
    while not (run / "checkpoints" / "step-000000001500").exists():  # on its way from 400 to 4,000
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, by)
    assert process.wait(timeout=60) == (-by if by is signal.SIGKILL else 130)

    def written() -> dict[Path, int]:
        paths = [run / "meta.json", *run.glob("checkpoints/step-*/manifest.json")]
        return {path: path.stat().st_mtime_ns for path in paths}

    left = written()
    assert main(command) == 0
    assert left.items() <= written().items()
    row = results()[0]
    *_, last = train(RunDirectory.open(run).config, run="whole")
    assert (row["state"], int(row["steps"])) == ("complete", last.step)
    assert last.metrics["rollout/ep_rew_mean"] == pytest.approx(float(row["value"]), abs=1e-5)


def test_poor_trials_are_pruned_and_the_best_is_what_train_takes(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("space.json", {"lr": {"low": 1e-4, "high": 0.1, "log": True, "as": "linear:{}:0"}})
    command = ["search", "a2c", "--env", "tiny:Bandit", "--space", "space.json", "--trials", "6", "--seeds", "2",
               "--steps", "1200", "--min-steps", "300", "--reduction", "4", *SHORT]
    assert main(command) == 0
    directory = Path("runs/search/tiny-Bandit/a2c-1")
    rows = results(str(directory))
    complete = [row for row in rows if row["state"] == "complete"]
    assert len(rows) == 6 and complete and all(row["state"] in ("complete", "pruned") for row in rows)
    assert sum(int(row["steps"]) for row in rows) < 0.7 * 6 * 2 * 1200
    for row in rows:
        steps = 1200 if row["state"] == "complete" else int(row["compared_at"])
        for seed in (0, 1):
            run = RunDirectory.open(Path(row["runs"]) / f"seed-{seed}")
            summary, update = run.read_summary(), run.config.env.num_envs * run.config.runtime.rollout_lengths[0]
            assert summary["status"] == "done" and 0 <= summary["steps"] - steps < update
            # On the schedule of the whole trial from its first step.
            assert (run.config.run.seed, run.config.run.schedule_steps, run.config.optimizer.lr) == (seed, 1200, row["lr"])
    assert {path.name for path in directory.iterdir()} >= {"results.md", "history.png", "slices.png", "importance.png",
                                                           "curves.png", "study.db"}
    best = max(complete, key=lambda row: float(row["value"]))
    capsys.readouterr()
    assert main(["train", "--from-search", str(directory), "--seed", "5", "--dry-run"]) == 0
    config = Config.from_json(capsys.readouterr().out, source="output")
    assert (config.env.id, config.optimizer.lr, config.run.seed, config.run.steps, config.run.schedule_steps) == (
        "tiny:Bandit", best["lr"], 5, 1200, 0)

    monkeypatch.setattr("vantage.tools.search.results.write_plots", lambda *_: [])
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")}
    assert main(command) == 0
    assert "6 of 6 trials ended" in capsys.readouterr().out
    assert results(str(directory)) == rows
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("metrics.jsonl")} == before


def test_a_stopped_search_saves_and_leaves_nothing_running_and_an_error_ends_one_trial_alone() -> None:
    write("grid.json", {"reward_scale": [1e30, 1]})
    command = [sys.executable, "-m", "vantage.cli", "search", "a2c", "--env", "tiny:DelayedReward", "--grid",
               "grid.json", "--steps", "1M", "--log-every-seconds", "0.1", "--no-reward-norm", *SHORT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True, env=environment)
    search = Path("runs/search/tiny-DelayedReward/a2c-1")
    deadline = time.monotonic() + 60
    record = search / "trial-001" / "seed-0" / "metrics.jsonl"
    while not (record.exists() and record.stat().st_size):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it, to all processes of the group
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped by SIGINT" in out
    failed, left = results(str(search))
    assert failed["state"] == "failed" and "not finite" in failed["error"]
    assert left["state"] == "waiting"
    summary = RunDirectory.open(search / "trial-001" / "seed-0").read_summary()
    assert summary["status"] == "interrupted" and summary["steps"] > 0
