"""Episodes after a resume: their seeds and numbers go on, wherever the environments begin anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.errors import EnvError
from vantage.runtimes.startup import next_episodes

STAGES = '[[0, {"level": 0}], [8, {"level": 1}]]'


def begun(folder: Path) -> list[tuple[int, int]]:
    """The seed and level of every reset so far."""
    return [(int(seed), int(level)) for seed, level in map(str.split, (folder / "episodes").read_text().splitlines())]


def config(folder: Path, algo: str = "a2c", limit: int = 10**6, **keys: Any) -> vantage.Config:
    return vantage.configure(algo, env="process_envs:Begun", env_kwargs={"folder": str(folder), "limit": limit},
                             reset_options=STAGES, steps=10**6, rollout_length=8, hidden=[8], eval_every=0,
                             tensorboard=False, threads=1, save_every=10**6, **keys)


@pytest.mark.parametrize("workers", [1, 2])
def test_after_an_error_other_episodes_follow(tmp_path: Path, workers: int) -> None:
    run = tmp_path / "run"
    with pytest.raises(EnvError, match="the simulator broke"):
        list(vantage.Trainer(config(tmp_path, limit=20, num_envs=2, num_workers=workers), run=run))
    before = begun(tmp_path)
    trainer = vantage.Trainer.resume(run)
    while len(begun(tmp_path)) < len(before) + 20:
        next(trainer)
    trainer.close()
    after = begun(tmp_path)[len(before):]
    # Each process looks at the first reset of an environment before it begins.
    assert [level for _, level in after].count(0) == workers
    early = {seed for seed, level in before if level == 0}
    assert len(early) == 16 and not early & {seed for seed, level in after if level == 1}


def test_workers_count_on_from_the_mean_of_the_environments(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = vantage.Trainer(config(tmp_path, "a3c", num_workers=1, envs_per_worker=2), run=run)
    while len(begun(tmp_path)) < 60:
        next(trainer)
    trainer.close()
    before = begun(tmp_path)
    trainer = vantage.Trainer.resume(run)
    while len(begun(tmp_path)) < len(before) + 20:
        next(trainer)
    trainer.close()
    levels = [level for _, level in begun(tmp_path)[len(before):]]
    assert levels.count(0) == [level for _, level in before].count(0) - 16


def test_the_numbers_of_other_environments_or_of_an_older_run() -> None:
    acting = {"episode": torch.tensor([3, 5])}
    assert next_episodes(acting, 2).tolist() == [4, 6]  # type: ignore[union-attr]
    assert next_episodes(acting, 3) == 6
    assert next_episodes({}, 2) == 0
