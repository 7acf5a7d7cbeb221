"""Evaluations: which games they play, by which actions, when, and in which environments."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluated_envs import Balanced

import vantage
from vantage.agents.evaluate import evaluate, single_game
from vantage.errors import VantageError
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runs.metrics import read_metrics
from vantage.runtimes.training import check
from vantage.tools.preview import preview

SMALL = {"threads": 1, "hidden": "8", "tensorboard": False, "num_envs": 4, "rollout_length": 4, "log_every_seconds": 0}


def train(run: Path, algo: str = "a2c", **options: Any) -> list[vantage.Report]:
    return list(vantage.Trainer(vantage.configure(algo, **{**SMALL, **options}), run=run))


def evaluations(run: Path) -> list[tuple[int, float]]:
    return [(int(line["eval/step"] or 0), float(line["eval/mean_reward"] or 0)) for line in read_metrics(run)
            if "eval/step" in line]


def count(folder: Path, name: str) -> int:
    return len((folder / name).read_text()) if (folder / name).exists() else 0


@pytest.mark.parametrize(("algo", "options", "most"), [
    ("a2c", {}, 4 + 10), ("ppo", {"minibatch_size": 16}, 4 + 10), ("a2c", {"vector": "async"}, 1 + 4 + 10),
    ("a3c", {"num_workers": 2}, 1 + 2 * 4 + 10), ("a2c", {"num_workers": 2}, 4 + 10), ("acer", {}, 4 + 10)],
    ids=["a2c", "ppo", "async", "a3c", "ranks", "acer"])
def test_environments_are_built_once_and_closed_once_in_a_run_with_twenty_evaluations(
        algo: str, options: dict[str, Any], most: int, tmp_path: Path) -> None:
    train(tmp_path / "run", algo, env="evaluated_envs:Licensed", env_kwargs=json.dumps({"folder": str(tmp_path)}),
          steps=640, eval_every=32, eval_episodes=20, max_eval_share=1, **options)
    assert len(evaluations(tmp_path / "run")) >= (1 if algo == "a3c" else 20)
    assert count(tmp_path, "built") <= most, "training, evaluation, and one where workers build their own"
    if algo != "a3c":  # whose workers may be killed after the last update
        assert count(tmp_path, "closed") == count(tmp_path, "built")


def test_an_evaluation_plays_new_games_each_time_which_its_step_decides_alone(tmp_path: Path) -> None:
    """A resume from the middle plays the games that the whole run played, though its environments are new."""
    seeds = {}
    for name, parts in (("whole", (192,)), ("resumed", (96, 192))):
        folder = tmp_path / name
        folder.mkdir()
        run = folder / "run"
        train(run, env="evaluated_envs:Logged", env_kwargs=json.dumps({"folder": str(folder)}), steps=parts[0],
              schedule_steps=192, eval_every=32, eval_episodes=3, save_every=96, max_eval_share=1)
        if len(parts) > 1:
            list(vantage.Trainer.resume(run, steps=parts[1]))
        seeds[name] = evaluations(run)
    assert seeds["whole"] == seeds["resumed"] and len(seeds["whole"]) == 6
    assert len({mean for _, mean in seeds["whole"]}) == 6, "new games at each"
    resets = Counter((tmp_path / "whole" / "seeds").read_text().split())
    del resets["None"]
    assert all(times <= 3 for times in resets.values()), "both ways, and the probe"


def test_the_clock_decides_nothing_about_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which environments take a hundred times longer makes the same evaluations and the same choice."""
    runs = {}
    for name, seconds in (("fast", 0.01), ("slow", 1.0)):
        moments = count_seconds(monkeypatch, seconds)
        for module in ("progress", "recorder", "sync", "train_loop", "actor_learner"):
            monkeypatch.setattr(f"vantage.runtimes.{module}.perf_counter", moments, raising=False)
        train(tmp_path / name, env="evaluated_envs:Balanced", steps=1_600, eval_episodes=2, seed=3)
        runs[name] = evaluations(tmp_path / name), load_named(tmp_path / name, "best").step
    assert runs["fast"] == runs["slow"] and 2 <= len(runs["fast"][0]) < 20, "some waited"


def count_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Callable[[], float]:
    """A clock that every step of `Balanced` moves by `seconds`, and every look at it by one."""
    now = 0.0

    def pass_time(_: Balanced) -> None:
        nonlocal now
        now += seconds

    def look() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(Balanced, "pass_time", pass_time)
    return look


@pytest.mark.parametrize("deterministic", [True, False])
def test_best_and_early_stops_go_by_the_way_that_was_fixed_beforehand(deterministic: bool, tmp_path: Path) -> None:
    """An untrained policy takes arm 1 in no game or in all by its most probable action, and in half by sampled ones."""
    run = tmp_path / "run"
    train(run, env="tiny:Bandit", steps=64, eval_every=16, eval_episodes=20, eval_deterministic=deterministic, lr=0)
    lines = [line for line in read_metrics(run) if "eval/step" in line]
    own, other = "deterministic", "sampled"
    if not deterministic:
        own, other = other, own
    assert lines and all(line["eval/mean_reward"] == line[f"eval/mean_reward_{own}"] for line in lines)
    assert any(line["eval/mean_reward"] != line[f"eval/mean_reward_{other}"] for line in lines)
    assert vantage.load(run).deterministic is deterministic
    assert evaluate(run, episodes=2).deterministic is deterministic


@pytest.mark.parametrize(("env", "most_probable"), [("tiny:Bandit", True), ("tiny:Picture", False)])
def test_a_run_without_evaluations_is_evaluated_by_the_rule_of_the_documentation(
        env: str, most_probable: bool, tmp_path: Path) -> None:
    train(tmp_path / "run", env=env, steps=512, eval_every=0)
    assert (tmp_path / "run" / "best").exists()
    assert load_latest(tmp_path / "run").state["progress"]["deterministic"] is most_probable, "fixed at the start"
    assert evaluate(tmp_path / "run", episodes=2).deterministic is most_probable


@pytest.mark.parametrize("episodes", [3, 12, 20])
def test_a_vector_environment_is_evaluated_with_the_number_that_it_takes_and_each_game_counts_once(
        episodes: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, env="evaluated_envs:Twelve", num_envs=12, steps=480, eval_every=240, eval_episodes=20,
          max_eval_share=1)
    # Twenty games: the first eight environments play two. Those that end first would have a mean below 3.
    twenty = (2 * sum(range(1, 9)) + sum(range(9, 13))) / 20
    assert evaluations(run) == [(240, twenty), (480, twenty)]
    result = evaluate(run, episodes=episodes, deterministic=True)
    assert sorted(result.returns) == sorted(float(i % 12 + 1) for i in range(episodes))


def test_an_agent_makes_an_environment_of_a_vector_that_takes_one_number(tmp_path: Path) -> None:
    train(tmp_path / "run", env="evaluated_envs:Twelve", num_envs=12, steps=48, eval_every=0)
    env = vantage.load(tmp_path / "run").make_env(seed=1)
    for _ in range(2):
        env.reset(seed=1)
        assert env.step(0)[1:4] == (1.0, True, False), "the first game lasts one step"
    env.close()


def test_record_and_watch_say_that_a_vector_shows_no_single_game(tmp_path: Path) -> None:
    train(tmp_path / "run", env="evaluated_envs:Twelve", num_envs=12, steps=48, eval_every=0)
    with pytest.raises(VantageError, match="shows no single game"):
        single_game(vantage.load(tmp_path / "run").config, 0)


def test_a_vector_that_takes_one_number_is_checked_and_previewed_with_it(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env="evaluated_envs:Twelve", **{**SMALL, "num_envs": 12})
    check(config)
    assert preview(config, tmp_path / "preview.png").exists()


@pytest.mark.parametrize("options", [
    {}, {"frame_skip": "2"}, {"max_episode_steps": 3}, {"random_start": 2}, {"vector": "async"},
    {"short_episode_steps": 2, "short_episode_every": 2}], ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("env", ["NoOptions", "wrapped"])
def test_a_reset_without_options_is_enough_for_all_that_plays(env: str, options: dict[str, Any],
                                                             tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, env=f"evaluated_envs:{env}", steps=64, eval_every=32, eval_episodes=2, max_eval_share=1, **options)
    assert [step for step, _ in evaluations(run)] == [32, 64]
    assert evaluate(run, episodes=2, max_episode_steps=4).episodes == 2


def test_a_reset_without_options_is_enough_for_a_video(tmp_path: Path) -> None:
    train(tmp_path / "run", env="evaluated_envs:NoOptionsShown", steps=64, eval_every=0)
    recording = vantage.record(tmp_path / "run", tmp_path / "game.mp4", episodes=2)
    assert len(recording.scores) == 2 and recording.frames == 4


def test_a_reset_without_a_seed_is_named_with_how_to_declare_it(tmp_path: Path) -> None:
    with pytest.raises(VantageError, match=r"^NoSeed\.reset takes no seed; declare it as reset\(self, \*, seed=None"):
        train(tmp_path / "run", env="evaluated_envs:NoSeed", steps=64)


def test_what_an_evaluation_needs_is_tried_before_the_first_step(tmp_path: Path) -> None:
    """The environments that training needs can be built, and no more."""
    with pytest.raises(VantageError, match="no more than 4 at once"):
        train(tmp_path / "run", env="evaluated_envs:FourAtOnce", steps=640, eval_every=320)
    assert not (tmp_path / "run").exists(), "nothing was trained"


def test_the_start_says_where_whole_updates_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    *_, last = train(tmp_path / "odd", env="tiny:Bandit", steps=100, eval_every=0)
    assert last.step == 112 and "steps=100: an update takes 16, so the run ends at 112" in caplog.messages
    caplog.clear()
    *_, last = train(tmp_path / "even", env="tiny:Bandit", steps=96, eval_every=0)
    assert last.step == 96 and not [note for note in caplog.messages if "an update takes" in note]
    train(tmp_path / "workers", "a3c", env="tiny:Bandit", steps=100, eval_every=0, num_workers=2)
    assert "steps=100: workers complete their updates, up to 16 steps more" in caplog.messages


@pytest.mark.parametrize("options", [{"eval_every": 0}, {"eval_every": 48, "eval_episodes": 2},
                                     {"eval_every": 48, "eval_episodes": 2, "max_eval_share": 0}],
                         ids=["none", "in time", "waits for the end"])
def test_every_step_is_reported_once(options: dict[str, Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    reports = train(run, env="tiny:Bandit", steps=96, **options)
    steps = [report.step for report in reports]
    assert steps == list(range(16, 97, 16)) and reports[-1].status == "done"
    lines = [line["step"] for line in read_metrics(run)]
    assert lines == sorted(set(lines)) and lines[-1] == 96
    assert ("eval/mean_reward" in reports[-1].metrics) is (options["eval_every"] > 0)


def test_runs_of_earlier_versions_are_played_as_they_were_selected(tmp_path: Path) -> None:
    """Their state lacks the newer counters and says which way was better; `eval_deterministic` is not in the config."""
    run = tmp_path / "run"
    train(run, env="tiny:Bandit", steps=64, eval_every=32, eval_episodes=2, eval_deterministic=False)
    config = json.loads((run / "config.json").read_text())
    del config["run"]["eval_deterministic"]
    (run / "config.json").write_text(json.dumps(config))
    assert vantage.load(run, trust=True).deterministic is False
    assert load_latest(run).state["progress"]["eval_steps"] > 0
