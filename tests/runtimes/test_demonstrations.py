"""Trainings with demonstrations: what they reach, exact resumes, ranks, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny import Tiny

import vantage
from vantage.errors import ConfigError
from vantage.runs.demonstration_file import read_demonstrations
from vantage.tools.demonstrations import record_demonstrations

CODE = (2, 0, 3, 1, 1, 2, 0, 3, 2, 1)


class Lock(Tiny):
    """Opens after the ten digits of CODE in a row and pays 1; a wrong digit ends it: by chance 4^-10."""

    arms, size = 4, len(CODE)

    def obs(self) -> np.ndarray:
        return np.eye(len(CODE), dtype=np.float32)[min(self.t, len(CODE) - 1)]

    def play(self, action: Any) -> tuple[Any, bool]:
        right = action == CODE[self.t - 1]
        opened = right and self.t == len(CODE)
        return opened, bool(opened or not right)


class Target(Tiny):
    """Two numbers from 100 to 200."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(100, 200, (2,), np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return -np.abs(action - 150).mean(), self.t == 3


OPENED = [{"observations": np.eye(len(CODE), dtype=np.float32), "actions": np.array(CODE)}] * 4
KEYS: dict[str, Any] = {"env": Lock, "num_envs": 4, "rollout_length": 16, "threads": 1, "eval_every": 0,
                        "tensorboard": False, "seed": 1, "return_window": 20}


def ppo(**keys: Any) -> vantage.Trainer:
    return vantage.Trainer("ppo", **{**KEYS, "minibatch_size": 32, "epochs": 2, **keys})


def last_metrics(trainer: vantage.Trainer) -> dict[str, float]:
    *_, last = trainer
    return dict(last.metrics)


def metrics_of(run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


def weights(trainer: vantage.Trainer) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(trainer.agent.model.parameters())


def test_without_passes_nothing_is_cloned_before_training() -> None:
    ppo(steps=64, demonstrations=OPENED, demo_passes=0, run="none")
    first, *_ = metrics_of("none")
    assert first["step"] == 0 and first["demo/loss"] > 0


def test_a_sparse_task_is_solved_with_demonstrations_and_not_without() -> None:
    assert last_metrics(ppo(steps=640, demonstrations=OPENED, demo_passes=100, run="with"))["rollout/ep_rew_mean"] > 0.8
    assert last_metrics(ppo(steps=640, run="without"))["rollout/ep_rew_mean"] == 0
    first, *_ = metrics_of("with")
    assert first["step"] == 0
    assert first["demo/held_out_loss"] < 0.5
    assert any("train/demo_loss" in line for line in metrics_of("with"))


@pytest.mark.parametrize(("algo", "keys"), [
    ("ppo", {"minibatch_size": 32, "epochs": 2, "memory": "gru", "memory_size": 8, "obs_norm": True, "eval_ema": 0.9}),
    ("a2c", {"frame_stack": 2, "norm": "batch"})])
def test_a_resumed_run_is_exact(algo: str, keys: dict[str, Any]) -> None:
    keys = {**KEYS, **keys, "demonstrations": OPENED, "demo_coef": "curve:1,0,0", "demo_passes": 2, "steps": 640}
    whole = vantage.Trainer(algo, **keys, run="whole")
    for _ in whole:
        pass
    with vantage.Trainer(algo, **keys, run="parts") as part:
        part.update()
        part.update()
    resumed = vantage.Trainer.resume("parts", env=Lock)
    for _ in resumed:
        pass
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


def test_a_resume_needs_the_copy_while_the_coefficient_counts() -> None:
    keys: dict[str, Any] = {"steps": 640, "demonstrations": OPENED, "demo_passes": 1}
    with ppo(**keys, run="early") as trainer:
        trainer.update()
    with ppo(**keys, demo_coef=0, run="late") as trainer:
        trainer.update()
    file = Path("early/demonstrations.safetensors")
    assert json.loads(Path("early/config.json").read_text())["cloning"]["demonstrations"] == "<4 episodes>"
    with ppo(**{**keys, "demonstrations": OPENED[:3]}, run="other"):
        pass
    shutil.copy("other/demonstrations.safetensors", file)
    with pytest.raises(ConfigError, match="is not the file that this run has learned from"):
        vantage.Trainer.resume("early", env=Lock)
    file.unlink()
    with pytest.raises(ConfigError, match=r"is missing, and demo_coef=.* still needs it"):
        vantage.Trainer.resume("early", env=Lock)
    Path("late/demonstrations.safetensors").unlink()
    with vantage.Trainer.resume("late", env=Lock) as trainer:
        assert "train/demo_loss" not in trainer.update().metrics


def test_an_extension_needs_the_demonstrations_again_after_a_resume_that_did_not() -> None:
    with ppo(steps=256, demonstrations=OPENED, demo_passes=1, demo_coef="curve:1,0,0", run="run") as trainer:
        while trainer.step < 192:
            trainer.update()
    with vantage.Trainer.resume("run", env=Lock) as trainer:
        trainer.update()
    with vantage.Trainer.resume("run", steps=2560, extend_schedule=True, env=Lock) as trainer:
        assert "train/demo_loss" in trainer.update().metrics
    with ppo(steps=64, demonstrations=OPENED[:3], demo_passes=0, run="other"):
        pass
    shutil.copy("other/demonstrations.safetensors", "run/demonstrations.safetensors")
    with pytest.raises(ConfigError, match="is not the file that this run has learned from"):
        vantage.Trainer.resume("run", env=Lock)


def test_ranks_learn_from_the_demonstrations_of_rank_0() -> None:
    metrics = last_metrics(ppo(steps=128, num_workers=2, demonstrations=OPENED, demo_passes=1, demo_coef=1.0))
    assert metrics["train/demo_loss"] > 0


def test_an_agent_records_demonstrations_that_another_clones() -> None:
    with vantage.Trainer("a2c", **{**KEYS, "env": Target, "steps": 64}, run="expert") as expert:
        expert.update()
    demos = record_demonstrations("expert", "games.safetensors", episodes=3, env=Target)
    assert demos.lengths == (3, 3, 3)
    assert 100 <= demos.actions.min() <= demos.actions.max() <= 200
    assert np.ptp(demos.actions) < 60  # the middle, where an untrained policy acts
    with vantage.Trainer("ppo", **{**KEYS, "env": Target, "steps": 64}, demonstrations="games.safetensors",
                         demo_passes=1, run="pupil") as pupil:
        assert "train/demo_loss" in pupil.update().metrics
    with pytest.raises(ConfigError, match="of test_demonstrations:Target, and the run is on"):
        ppo(steps=64, demonstrations="games.safetensors")


class Stops(Target):
    """A game of the probe, two more, then Ctrl-C."""

    games = 0

    def reset(self, **options: Any) -> Any:
        self.games += 1
        return super().reset(**options)

    def play(self, action: Any) -> tuple[Any, bool]:
        if self.games == 4 and self.t == 2:
            signal.raise_signal(signal.SIGINT)
        return super().play(action)


def test_ctrl_c_keeps_the_games_that_had_ended(caplog: pytest.LogCaptureFixture) -> None:
    with vantage.Trainer("a2c", **{**KEYS, "env": Target, "steps": 64}, run="expert") as expert:
        expert.update()
    with pytest.raises(KeyboardInterrupt):
        record_demonstrations("expert", "games.safetensors", episodes=5, env=Stops)
    assert "interrupted; games.safetensors holds the games that had ended: 2 episodes" in caplog.text
    assert read_demonstrations(Path("games.safetensors"), expert.agent.model.spec).lengths == (3, 3)
    with pytest.raises(KeyboardInterrupt):
        record_demonstrations("expert", "games.safetensors", episodes=5, env=Stops)
    assert "games.safetensors, which existed before, is left as it was" in caplog.text


@pytest.mark.parametrize(("algo", "remedy"), [
    ("a3c", "clone with one of these, and give that run as init_from"),
    ("acer", "train one of these, since acer cannot start from their weights")])
def test_other_algorithms_refuse_demonstrations(algo: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"are for a2c and ppo under runtime=sync, not {algo} .*; {remedy}$"):
        vantage.configure(algo, env="CartPole-v1", demonstrations="some.safetensors")
