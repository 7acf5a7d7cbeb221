"""Reports on programs around a training: threads, two at once, a clock that is set back.

Threads: github.com/HorizonRobotics/alf/pull/1439, github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4375.
Callers that change a training's random numbers: github.com/DLR-RM/stable-baselines3/issues/1360.
Minibatches larger than a rollout: github.com/DLR-RM/stable-baselines3/pull/270.
Schedules after a resume: github.com/Unity-Technologies/ml-agents/issues/205 and 116.
"""

from __future__ import annotations

import json
import threading
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.config.config import Config

pytestmark = pytest.mark.integration


def config(algo: str = "ppo", env: str = "tiny:DelayedReward", **keys: Any) -> Config:
    values = {
        "steps": 96,
        "num_envs": 2,
        "rollout_length": 16,
        "eval_every": 0,
        "tensorboard": False,
        "threads": 1,
        "log_every_seconds": 0,
        **keys,
    }
    return vantage.configure(algo, env=env, **values)


def weights(run: Path, checkpoint: str = "latest") -> torch.Tensor:
    model = vantage.load(run, checkpoint=checkpoint).model
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_training_and_an_evaluation_run_in_a_thread(tmp_path: Path) -> None:
    scores = []

    def play() -> None:
        last = [
            *vantage.Trainer(
                config(env="public_envs:SlowBandit", eval_every=100), run=tmp_path / "run"
            )
        ][-1]
        scores.extend([last.status, vantage.evaluate(tmp_path / "run", episodes=3).return_max])

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert scores == ["done", 1]


def test_two_trainings_that_take_turns_are_those_of_one_after_the_other(tmp_path: Path) -> None:
    for seed in (1, 2):
        list(vantage.Trainer(config(seed=seed), run=tmp_path / f"alone-{seed}"))
    turns = [vantage.Trainer(config(seed=seed), run=tmp_path / f"turns-{seed}") for seed in (1, 2)]
    for _ in zip_longest(*turns):
        torch.manual_seed(7)  # as a program may
    for seed in (1, 2):
        assert torch.equal(weights(tmp_path / f"alone-{seed}"), weights(tmp_path / f"turns-{seed}"))
    assert not torch.equal(weights(tmp_path / "alone-1"), weights(tmp_path / "alone-2"))


def test_a_clock_that_is_set_back_changes_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours, clock = [0], time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 3600 * hours[0])
    statuses = []
    for report in vantage.Trainer(config("a2c", max_minutes=5, eval_every=100), run=tmp_path / "run"):
        statuses.append(report.status)
        hours[0] += 24
    assert statuses[-1] == "done"
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0 and seconds[-1] < 120


@pytest.mark.parametrize("algo", ["a2c", "ppo", "acer"])
def test_a_learning_rate_of_zero_moves_no_weight(algo: str, tmp_path: Path) -> None:
    keys = {"replay_start": 20, "replay_size": 100} if algo == "acer" else {}
    list(vantage.Trainer(config(algo, lr="0", keep_checkpoints=99, **keys), run=tmp_path / "run"))
    assert torch.equal(weights(tmp_path / "run", "0"), weights(tmp_path / "run"))


def test_a_minibatch_larger_than_the_rollout_is_the_whole_rollout(tmp_path: Path) -> None:
    for size in (32, 10_000):
        list(vantage.Trainer(config(minibatch_size=size), run=tmp_path / str(size)))
    assert torch.equal(weights(tmp_path / "32"), weights(tmp_path / "10000"))


def test_a_schedule_goes_on_after_a_resume_as_if_there_had_been_no_stop(tmp_path: Path) -> None:
    keys = {"lr": "linear:1e-3:0", "entropy_coef": "linear:0.1:-0.1", "steps": 320}
    training = vantage.Trainer(config(**keys), run=tmp_path / "run")
    for report in training:
        if report.step >= 128:
            break
    training.close()
    list(vantage.Trainer.resume(tmp_path / "run"))
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    rates = {
        line["step"]: line["train/learning_rate"] for line in lines if "train/learning_rate" in line
    }
    assert rates == {
        step: pytest.approx(1e-3 * (1 - (step - 32) / 320)) for step in range(32, 321, 32)
    }
