"""Episodes after a resume: their seeds and numbers go on, wherever the environments begin anew."""

from __future__ import annotations

import math
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


@pytest.mark.parametrize(("groups", "num_envs", "expected"), [
    ({"acting": [3, 5]}, 2, [5, 7]), ({"envs": [3, 5]}, 2, [5, 7]),
    ({"acting": [3, 5], "partner_1_acting": [40, 9], "envs": [3, 5]}, 2, [5, 7]),
    ({"acting": [3, 5], "partner_1_acting": [40, 9]}, 4, 42), ({"acting": [3, 5], "partner_1_envs": [40, 9]}, 1, 42),
    ({"acting": [3, 5]}, 1, 9), ({}, 2, 9)])
def test_the_next_numbers_are_beyond_those_of_all_processes(
        groups: dict[str, list[int]], num_envs: int, expected: Any) -> None:
    tensors = {name: {"episode": torch.tensor(numbers)} for name, numbers in groups.items()}
    numbers = next_episodes({"model": {}, "acting": {}} | tensors, num_envs, least=9)
    assert (numbers if isinstance(numbers, int) else numbers.tolist()) == expected


@pytest.mark.parametrize("numbers", [
    torch.tensor([3.0, 5.0]), torch.tensor([math.inf, 1]), torch.tensor([-2, 5]), torch.tensor([2**62, 5]),
    torch.tensor(3), torch.tensor([[3, 5]]), torch.tensor([], dtype=torch.int64), torch.tensor([1j, 5])],
    ids=str)
def test_other_numbers_are_not_continued(numbers: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="the numbers of the episodes are"):
        next_episodes({"acting": {"episode": numbers}}, 2)
