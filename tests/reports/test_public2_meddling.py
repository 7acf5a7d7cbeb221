"""Reports on environments that change their process: the working directory, gradients, actions.

Gradients in an environment: github.com/automl/DACBench/issues/95. The working directory:
github.com/ray-project/ray/issues/9571 and 29128.
Actions that are overwritten: github.com/rlworkgroup/garage/issues/273, github.com/mees/calvin/issues/29.
StopIteration: github.com/ray-project/ray/issues/24243 and 3107.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from environments import make
from public_envs import Overwriting

import vantage
from vantage.config.config import Config
from vantage.learning.collect import Position, collect
from vantage.models.build import make_model


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Undo what the environments change."""
    folder = os.getcwd()
    yield
    os.chdir(folder)
    torch.set_grad_enabled(True)


def train(what: str, at: int, steps: int = 64) -> list[vantage.Report]:
    config = vantage.configure(
        "ppo",
        env="public_envs:Meddling",
        env_kwargs={"what": what, "at": at},
        steps=steps,
        num_envs=2,
        rollout_length=16,
        eval_every=32,
        threads=1,
        tensorboard=False,
        log_every_seconds=0,
    )
    return list(vantage.Trainer(config, run="runs/here"))


@pytest.mark.parametrize("at", [0, 6])
def test_a_relative_run_stays_where_it_was_begun(at: int, tmp_path: Path) -> None:
    reports = train("working directory", at)
    run = tmp_path / "runs" / "here"
    assert {path.name for path in run.parent.iterdir()} == {"here"}, "no second one"
    assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == "step-000000000064"
    assert (run / "best").is_dir()
    assert (run / "summary.json").is_file()
    assert reports[-1].status == "done"
    os.chdir(tmp_path)
    reports = list(vantage.Trainer.resume("runs/here", steps=96, extend_schedule=True))
    assert reports[-1].status == "done"
    assert (run / "checkpoints" / "step-000000000096").is_dir()
    os.chdir(tmp_path)
    vantage.record("runs/here", "game.mp4")
    assert (tmp_path / "game.mp4").stat().st_size > 500


@pytest.mark.parametrize("at", [0, 6])
def test_an_environment_that_disables_gradients_changes_no_training(
    at: int, tmp_path: Path
) -> None:
    train("gradients", at)
    changed = vantage.load("runs/here").model.state_dict()
    (tmp_path / "runs" / "here").rename(tmp_path / "changed")
    torch.set_grad_enabled(True)
    train("nothing", at)
    plain = vantage.load("runs/here").model.state_dict()
    assert all(torch.equal(changed[name], plain[name]) for name in plain)


def test_an_environment_may_compute_gradients_of_its_own(tmp_path: Path) -> None:
    config = vantage.configure(
        "ppo",
        env="public_envs:Differentiating",
        steps=64,
        num_envs=2,
        rollout_length=16,
        eval_every=32,
        threads=1,
        tensorboard=False,
    )
    reports = list(vantage.Trainer(config, run=tmp_path / "run"))
    assert reports[-1].metrics["rollout/ep_rew_mean"] == 9
    assert vantage.evaluate(tmp_path / "run", episodes=2).returns == [9, 9]
    agent = vantage.load(tmp_path / "run")
    env = agent.make_env()
    env.reset()
    assert env.step(0)[1] == 3


@pytest.mark.parametrize("space", ["unbounded", "bounded", "multi-discrete"])
def test_actions_are_stored_as_they_were_drawn_though_the_environment_overwrites_them(
    space: str,
) -> None:
    envs = make("public_envs:Overwriting", 2, options={"space": space})
    model = make_model(Config().policy, envs.spec, critic="state")
    position = Position.after(envs.reset(), model.initial_state(2), torch.device("cpu"))
    Overwriting.received.clear()
    generator = torch.Generator().manual_seed(0)
    rollout = collect(model, envs, position, length=4, generator=generator).rollout
    received = np.array(Overwriting.received).reshape(4, 2, 2)
    np.testing.assert_array_equal(received, rollout.actions.numpy())
    np.testing.assert_array_equal(envs.snapshot()["actions"].reshape(2, 4, 2), received.swapaxes(0, 1))


def test_data_that_end_are_an_error_of_the_environment_with_its_place(tmp_path: Path) -> None:
    config = vantage.configure(
        "a2c", env="public_envs:Exhausted", steps=400, num_envs=1, eval_every=0, threads=1
    )
    with pytest.raises(vantage.EnvError, match=r"environment 0 of public_envs:Exhausted .*StopIt"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
