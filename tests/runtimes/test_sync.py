"""The synchronous runtime: the same seed gives the same bits, and a run that stopped goes on as if it had not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun
from stopping import saved_tensors, stop_after
from torch import Tensor

import vantage
from vantage.errors import ConfigError
from vantage.keys.schedules import Schedule
from vantage.learning.learner import Learner
from vantage.runs.checkpoint import load_latest, load_named, save_as
from vantage.runs.metrics import read_metrics
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.progress import Advance
from vantage.types import Rollout

pytestmark = pytest.mark.integration

QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 1000}

CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "eval_every": 0}

CASES: dict[str, dict[str, Any]] = {
    "cartpole": CARTPOLE | {"steps": 1_000, "eval_every": 375, "eval_episodes": 2},
    "processes of environments": CARTPOLE | {"steps": 288, "num_envs": 2, "vector": "async", "rollout_length": 8,
                                             "rollouts_per_update": 3},
    "eleven parts": {"env": "tiny:ManyParts", "frame_stack": 2, "steps": 320, "num_envs": 2, "rollout_length": 4,
                     "eval_every": 0},
    "bipedal walker": {"env": "BipedalWalker-v3", "steps": 400, "num_envs": 2, "obs_norm": True, "reward_norm": True,
                       "eval_every": 0},
    "pong": {"env": "Pong", "steps": 120, "num_envs": 2, "rollout_length": 5, "memory": "none",
             "image_norm_steps": 64},
    "ppo on pong": {"algo": "ppo", "env": "Pong", "steps": 192, "num_envs": 2, "rollout_length": 16,
                    "minibatch_size": 16, "past_rollouts": 2, "image_norm_steps": 64, "short_episode_steps": 40,
                    "short_episode_every": 2, "threads": 1, "num_workers": 1},
    "two processes": CARTPOLE | {"algo": "drawing:Drawing", "steps": 1_000, "num_workers": 2, "eval_every": 375,
                                 "short_episode_steps": 9, "short_episode_every": 3,
                                 "eval_episodes": 2, "optimizer": "adam", "memory": "lstm", "memory_size": 8},
    "ppo in two processes": CARTPOLE | {"algo": "ppo", "steps": 1_536, "rollout_length": 32, "num_workers": 2,
                                         "past_rollouts": 1, "rollouts_per_update": 2},
    "acer on pendulum": {"algo": "acer", "env": "Pendulum-v1", "steps": 640, "replay_start": 100,
                         "replay_size": 1_000, "eval_every": 0, "memory": "lstm", "memory_size": 8, "burn_in": 2},
    "batch norm with gru": CARTPOLE | {"norm": "batch", "num_envs": 2, "hidden": "8", "rollout_length": 4, "steps": 160,
                                       "rollouts_per_update": 2, "memory": "gru", "memory_size": 4},
    "ppo with a transformer": CARTPOLE | {"algo": "ppo", "steps": 192, "num_envs": 4, "rollout_length": 8,
                                          "minibatch_size": 16, "memory": "gtrxl", "memory_size": 8,
                                          "memory_window": 12},
    "parts of actions": {"algo": "ppo", "env": "hybrid_envs:Masked", "steps": 256, "num_envs": 2, "rollout_length": 32,
                         "memory": "gru", "memory_size": 4, "distribution": "beta", "eval_every": 0},
    "batch norm with acer": CARTPOLE | {"algo": "acer", "norm": "batch", "num_envs": 2, "hidden": "8", "steps": 160,
                                        "rollout_length": 4, "replay_start": 40, "replay_size": 400},
}


def configure(**options: Any) -> vantage.Config:
    return vantage.configure(options.pop("algo", "a2c"), **(QUIET | options))


def finish(config: vantage.Config, run: Path) -> vantage.Report:
    *_, last = vantage.Trainer(config, run=run)
    assert last.status == "done"
    return last


def assert_same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_a_stopped_and_resumed_run_equals_the_uninterrupted_bit_for_bit(case: str, tmp_path: Path) -> None:
    config = configure(**CASES[case])
    finish(config, tmp_path / "whole")
    runtime = config.runtime
    updates = config.run.steps // (config.env.num_envs * runtime.rollout_lengths[0] * runtime.rollouts_per_update)
    run = tmp_path / "parts"
    for part, count in enumerate((0, updates // 3, updates // 3)):
        assert (stop_after(count, run, None if part else config) > 0) is (count > 0)
        assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
    *_, last = vantage.Trainer.resume(run)
    assert last.status == "done"
    saved = saved_tensors(run)
    assert_same(saved_tensors(tmp_path / "whole"), saved)
    assert config.policy.norm != "batch" or saved["model/actor.torsos.0.norms.0.mean"].any()


def test_evaluations_and_checkpoints_do_not_change_the_weights(tmp_path: Path) -> None:
    for name, options in {"without": {"eval_every": 0, "save_every": 10**9},
                          "with": {"eval_every": 500, "eval_episodes": 2, "save_every": 300}}.items():
        finish(configure(env="CartPole-v1", steps=2_000, **options), tmp_path / name)
    assert_same(saved_tensors(tmp_path / "without"), saved_tensors(tmp_path / "with"))


def test_another_seed_gives_other_weights_episodes_and_draws() -> None:
    starts = []
    for seed in (0, 1):
        with begun(configure(**CARTPOLE, seed=seed)) as one:
            starts.append((one.learner.flat.vector.clone(), one.position.obs, one.generator.get_state()))
    assert not any(map(torch.equal, *starts))


def test_training_stops_after_its_minutes(tmp_path: Path) -> None:
    last = finish(configure(**CARTPOLE, steps=10**8, max_minutes=0.01), tmp_path / "run")
    assert last.seconds < 20


def test_more_steps_at_an_lr_of_0_are_refused_unless_the_schedule_is_extended(tmp_path: Path) -> None:
    finish(configure(**CARTPOLE, steps=512, lr="linear:1e-3:0"), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"give a larger total to go on, such as steps=1024 and extend_schedule=True"):
        list(vantage.Trainer.resume(tmp_path / "run"))
    saved = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"lr has ended at 0, .* up to step 1,024; add extend_schedule=True"):
        vantage.Trainer.resume(tmp_path / "run", steps=1_024)
    assert saved == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    *_, last = vantage.Trainer.resume(tmp_path / "run", steps=2_048, extend_schedule=True)
    assert 0 < last.metrics["train/learning_rate"] < 1e-3


def test_the_remedy_for_an_lr_that_is_0_in_the_longer_schedule_too_is_a_new_run(tmp_path: Path) -> None:
    lr = "piecewise:0=1e-3,50%=0"
    finish(configure(**CARTPOLE, steps=512, lr=lr), tmp_path / "run")
    with pytest.raises(ConfigError, match="begin a run from its weights, with init_from and another lr"):
        vantage.Trainer.resume(tmp_path / "run", steps=768)
    with pytest.raises(ConfigError, match="add extend_schedule=True"):
        vantage.Trainer.resume(tmp_path / "run", steps=1_536)
    *_, last = vantage.Trainer.resume(tmp_path / "run", steps=1_536, extend_schedule=True)
    assert last.step == 1_536


@pytest.mark.parametrize(("lr", "is_zero"), [
    ("linear:1e-3:0", True), ("linear:1e-3:1e-9", False), ("cosine:1e-3:0", True), ("curve:0,1e-3,0", True),
    ("piecewise:0=1e-3,100=0", True), ("piecewise:0=1e-3,100=0,150=1e-4", False)])
def test_which_schedules_are_0_after_their_steps(lr: str, is_zero: bool) -> None:
    assert Schedule.parse(lr).is_zero(100, 200, 100) is is_zero
    assert not Schedule.parse(lr).is_zero(50, 200, 100)


def test_metrics_of_a_resumed_run_have_no_step_twice(tmp_path: Path) -> None:
    config = configure(**CARTPOLE, steps=5_120, log_every_seconds=0, save_every=1_000)
    reports = vantage.Trainer(config, run=tmp_path / "run")
    for _ in range(6):
        next(reports)
    del reports
    list(vantage.Trainer.resume(tmp_path / "run"))
    steps = [line["step"] for line in read_metrics(tmp_path / "run")]
    assert steps == sorted(set(steps)) and steps[-1] == 5_120


def test_a_best_that_is_newer_than_the_checkpoint_stays(tmp_path: Path) -> None:
    """As after a kill between an evaluation and the next save."""
    config, run = configure(env="tiny:Bandit", steps=256, eval_every=128, eval_episodes=2), tmp_path / "run"
    finish(config, run)
    latest = load_latest(run)
    progress = latest.state["progress"] | {"best_return": 99.0}
    save_as(run, "best", 999, tensors=latest.tensors, state={**latest.state, "progress": progress})
    *_, last = vantage.Trainer.resume(run, steps=512, extend_schedule=True)
    assert last.status == "done" and last.metrics["eval/mean_reward"] <= 1
    assert load_named(run, "best").step == 999


def test_an_interrupted_notebook_has_saved_also_its_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, left = ActorLearner.advance, [1] * 5

    def interrupted(one: ActorLearner, step: Any) -> Advance:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return advance(one, step)

    monkeypatch.setattr(ActorLearner, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(vantage.Trainer(configure(**CARTPOLE, algo="acer", steps=10**6), run=tmp_path / "run"))
    assert load_latest(tmp_path / "run").step == 5 * 8 * 16
    assert (tmp_path / "run" / "replay" / "manifest.json").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_an_interrupt_between_two_reports_saves_the_run(tmp_path: Path) -> None:
    config = configure(**CARTPOLE, steps=10**6)
    with pytest.raises(KeyboardInterrupt), vantage.Trainer(config, run=tmp_path / "run") as trainer:
        step = trainer.update().step
        raise KeyboardInterrupt
    assert load_latest(tmp_path / "run").step == step < 10**6


def test_a_stop_cuts_an_evaluation_short_and_the_resume_makes_it_again(tmp_path: Path) -> None:
    config = configure(env="CartPole-v1", steps=2_048, eval_every=1_024, eval_episodes=20)
    finish(config, tmp_path / "whole")
    run = tmp_path / "parts"
    assert stop_after(1_024 // 128 + 2, run, config) == 1_024, "in the third step of the first evaluation"
    assert not any("eval/mean_reward" in line for line in read_metrics(run))
    *_, last = vantage.Trainer.resume(run)
    assert last.status == "done"
    scores = [[line["eval/mean_reward"] for line in read_metrics(path) if "eval/mean_reward" in line]
              for path in (run, tmp_path / "whole")]
    assert scores[0] == scores[1] and len(scores[0]) == 2
    assert_same(saved_tensors(run), saved_tensors(tmp_path / "whole"))
    assert load_named(run, "best").step == load_named(tmp_path / "whole", "best").step


def test_evaluations_go_by_the_clock_and_it_goes_on_after_a_resume(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fake clock, an update and a step of an evaluation take one second each; each evaluation plays twice."""
    now = 0.0
    monkeypatch.setattr("vantage.runtimes.progress.perf_counter", lambda: now)

    def tick() -> None:
        nonlocal now
        now += 1

    config = configure(env="tiny:Bandit", steps=22 * 32, rollout_length=4, eval_every_seconds=5, eval_episodes=2,
                       stop_at_eval=2.0, log_every_seconds=0)
    assert config.run.eval_every == 0, "the clock is enough"
    stop_after(10**6, tmp_path / "whole", config, meanwhile=tick)
    assert stop_after(8, tmp_path / "parts", config, meanwhile=tick) == 6 * 32
    stop_after(10**6, tmp_path / "parts", meanwhile=tick)
    for name in ("whole", "parts"):
        lines = read_metrics(tmp_path / name)
        assert [line["step"] for line in lines if "eval/mean_reward" in line] == [5 * 32, 10 * 32, 15 * 32, 20 * 32]
    assert (tmp_path / "parts" / "best").exists()


@pytest.mark.parametrize("memory", [{"memory": "none"}, {"memory": "lstm", "memory_size": 8}], ids=["none", "lstm"])
def test_rollouts_of_one_update_are_made_by_one_policy_and_learnt_from_side_by_side(
        memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rollouts of 8 steps are one of 24 in the same games."""
    config = configure(env="CartPole-v1", rollouts_per_update=3, rollout_length=8, num_envs=4,
                       obs_norm=False, reward_norm=False, **memory)
    learnt: list[Rollout] = []
    monkeypatch.setattr(Learner, "update", lambda learner, rollout, step: learnt.append(rollout) or {})
    for each in (config, config.change(rollouts_per_update=1, rollout_length="24")):
        with begun(each) as one:
            advance = one.advance(lambda: 0)
            assert (advance.steps, advance.updates) == (96, 1)
    together, whole = learnt
    assert together.actions.shape == (8, 12)
    for name in ("actions", "rewards", "obs", "is_first"):
        part = getattr(together, name)
        assert torch.equal(torch.cat([part[:8, 4 * i:4 * i + 4] for i in range(3)]), getattr(whole, name)[:24]), name
    assert all(part.shape[0] == 12 for part in together.state)
