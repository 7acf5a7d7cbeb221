"""A number of environments means the same under each runtime; `test_ray` has its part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from process_envs import acting

import vantage
from vantage.config.config import Config
from vantage.config.num_envs import merged, most_workers
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runtimes import machine
from vantage.tools.child_runs import share_cores

QUIET = {"threads": 1, "tensorboard": False, "eval_every": 0, "hidden": "8", "rollout_length": 4}


def configure(algo: str, **options: Any) -> Config:
    return vantage.configure(algo, **({"env": "CartPole-v1"} | QUIET | options))


def numbers(config: Config) -> tuple[int, int, int]:
    """Of the run, of each worker as given, and of each process in fact."""
    return config.env.num_envs, getattr(config.runtime, "envs_per_worker", 0), config.envs_per_process


@pytest.mark.parametrize(("algo", "options", "expected"), [
    ("a2c", {"num_workers": 1}, [6]), ("a2c", {"num_workers": 2}, [3, 3]),
    ("a3c", {"num_workers": 2}, [3, 3])])
def test_processes_divide_the_environments_of_the_run(
        algo: str, options: dict[str, Any], expected: list[int], tmp_path: Path) -> None:
    config = configure(algo, env="process_envs:Counted", env_kwargs={"folder": str(tmp_path)}, num_envs=6, steps=10**9,
                       **options)
    with vantage.Trainer(config, run=tmp_path / "run") as trainer:
        while len(acting(tmp_path)) < len(expected) or sum(acting(tmp_path)) < 6:
            trainer.update()
        for _ in range(3):
            trainer.update()
        assert acting(tmp_path) == expected


@pytest.mark.parametrize(("algo", "runtime"), [("a2c", "sync"), ("a3c", "hogwild"), ("ppo", "ray")])
def test_a_remainder_is_refused_with_the_nearest_numbers_that_work(algo: str, runtime: str) -> None:
    with pytest.raises(ConfigError, match=r"^num_workers=4: num_envs=6 cannot be divided evenly among so many "
                                          "processes; give num_envs=4 or 8, or num_workers=3 or 6$"):
        configure(algo, runtime=runtime, num_envs=6, num_workers=4)
    for remedy in ({"num_envs": 4}, {"num_envs": 8}, {"num_workers": 3}, {"num_workers": 6}):
        configure(algo, runtime=runtime, **({"num_envs": 6, "num_workers": 4} | remedy))


def test_workers_that_the_machine_chooses_divide_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    monkeypatch.setattr("vantage.tools.child_runs.available_cores", lambda: 8)
    assert [most_workers(number, 4) for number in (0, 1, 6, 7, 8)] == [4, 1, 3, 1, 4]
    for chosen in (machine.prepare, lambda config: share_cores(config, 2)):
        assert chosen(configure("a3c", num_envs=6)).runtime.num_workers == 3
        assert chosen(configure("a3c")).runtime.num_workers == 4


def test_each_of_the_two_numbers_replaces_the_other() -> None:
    default = configure("a3c", num_workers=2)
    assert numbers(default) == (0, 8, 8)
    assert numbers(default.change(num_envs=6)) == (6, 0, 3)
    assert numbers(default.change(num_envs=6).change(envs_per_worker=2)) == (0, 2, 2)
    assert numbers(default.change(num_envs=0)) == (0, 8, 8)
    assert merged({"num_envs": 0, "envs_per_worker": 8}, {"num_envs": "6"}) == {"num_envs": "6"}
    assert merged({"envs_per_worker": 8}, {"lr": 1}) == {"envs_per_worker": 8, "lr": 1}


def test_the_number_of_a_process_stays_where_only_the_runtime_changes() -> None:
    ray = configure("ppo", num_envs=16).change(runtime="ray", num_workers=2)
    assert numbers(ray) == (0, 16, 16) and numbers(ray.change(runtime="sync")) == (16, 0, 8)
    assert numbers(configure("ppo", runtime="ray", num_workers=2)) == (0, 8, 8)
    assert numbers(configure("ppo", runtime="ray", num_workers=2, num_envs=8)) == (8, 0, 4)


@pytest.mark.parametrize(("algo", "options", "says"), [
    ("a3c", {"num_envs": 4, "envs_per_worker": 2}, "num_envs=4 is of the whole run and envs_per_worker=2 of each"),
    ("a3c", {"envs_per_worker": 0}, "leave no environment; give num_envs=8 for the whole run, or envs_per_worker=8"),
    ("a2c", {"num_envs": 0}, "give at least num_envs=1"),
    ("a2c", {"envs_per_worker": 2}, "envs_per_worker has no effect with a2c under runtime"),
    ("a3c", {"num_envs": 2, "num_workers": 2, "norm": "batch", "rollout_length": 2}, "through a batch of 2")])
def test_numbers_without_a_meaning_are_refused(algo: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configure(algo, **options)


@pytest.mark.parametrize(("algo", "runtime"), [("a3c", "hogwild"), ("ppo", "ray"), ("a2c", "sync")])
def test_the_number_of_an_older_run_is_of_each_worker(algo: str, runtime: str, tmp_path: Path) -> None:
    """Its config.json lacks envs_per_worker. The same config makes the same run."""
    run = RunDirectory.create(configure(algo, runtime=runtime), path=tmp_path / "run", argv=())
    file = run.path / "config.json"
    values = json.loads(file.read_text())
    if runtime != "sync":
        values["env"]["num_envs"] = values["runtime"].pop("envs_per_worker")
    assert values["env"]["num_envs"] == 8
    file.write_text(json.dumps(values))
    assert RunDirectory.open(run.path).config == run.config


def test_another_algorithm_keeps_the_number_of_a_worker() -> None:
    assert numbers(configure("a3c", num_workers=2).change(algo="a3g")) == (0, 8, 8)
    assert numbers(configure("a2c", runtime="ray", num_workers=2).change(algo="ppo", runtime="ray"))[0] == 0
