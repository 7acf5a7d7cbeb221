"""best/ of runs without evaluations goes by the training games after a checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

import vantage
from vantage import configure
from vantage.runs.checkpoint import load_named
from vantage.runtimes.best_policy import BestPolicy
from vantage.runtimes.progress import Advance, Progress
from vantage.runtimes.save_failures import SaveFailures
from vantage.specs import Episode


def test_a_policy_is_scored_by_the_games_after_it(tmp_path: Path) -> None:
    """An update that ruins the policy comes just before the second save."""
    progress = Progress(1.0, window=3)
    best = BestPolicy(progress, SaveFailures(), lambda: {"model": {"weight": torch.tensor(progress.step)}},
                      lambda: {"progress": progress.state()})

    def play(*scores: float) -> None:
        for score in scores:
            progress.add(Advance(steps=10, episodes=(Episode(0, score, 10),)))
            best.judge(tmp_path)

    def saved_step() -> int:
        return int(json.loads((tmp_path / "best/manifest.json").read_text())["step"])

    play(1, 1, 1)
    best.wait_for_games()
    play(5, 5)
    assert not (tmp_path / "best").exists(), "one of the last three games was played before it"
    play(8)
    assert saved_step() == 30 and progress.best_return == 6
    play(9, 9, 9)
    best.wait_for_games()
    play(2, 2, 2)
    assert saved_step() == 30, "the games before the policy of step 90 say nothing about it"
    best.wait_for_games()
    play(7)
    best.judge(tmp_path, games=0)
    assert saved_step() == 30 and progress.best_return == 6
    play(7, 7)
    best.wait_for_games()
    best.judge(tmp_path, games=0)
    assert saved_step() == 150 and progress.best_return == 7


def test_a_run_that_was_killed_chooses_as_one_that_was_not(tmp_path: Path) -> None:
    config = configure("a2c", env="CartPole-v1", steps=4_096, save_every=512, eval_every=0, return_window=8,
                       rollout_length=16, threads=1)
    with vantage.Trainer(config, run=tmp_path / "whole") as trainer:
        while trainer.status == "running":
            trainer.update()
            if trainer.step == 1_664:  # one update after a save
                shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    *_, last = vantage.Trainer.resume(tmp_path / "killed")
    assert last.status == "done"
    whole, killed = load_named(tmp_path / "whole", "best"), load_named(tmp_path / "killed", "best")
    assert whole.step == killed.step
    assert whole.state["progress"]["best_return"] == killed.state["progress"]["best_return"]
