"""A2C in several processes: what they may share, how they fail, and that nothing is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import assert_ends, assert_group_ends

import vantage
from vantage import machine, training
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError
from vantage.runs.checkpoint import load_latest
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.ranks import rank_config
from vantage.tools.bench import bench
from vantage.training import prepare

TESTS = Path(__file__).parents[1]
PLAIN: dict[str, Any] = {
    "env": "CartPole-v1", "num_envs": 4, "num_workers": 2, "threads": 1, "tensorboard": False, "eval_every": 0,
    "log_every_seconds": 0.1, "obs_norm": False, "reward_norm": False, "advantage_norm": False}
SCRIPT = """
import vantage
for report in vantage.train(vantage.configure("a2c", env="Pong", num_envs=2, num_workers=2, steps=200, threads=1)):
    last = report
print(last.status)
"""


@pytest.fixture(autouse=True, scope="module")
def importable_in_children() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        yield


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("a2c", **(PLAIN | options))


def children() -> list[int]:
    """Processes that this one started and that still run, the resource tracker apart."""
    pids = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize(("options", "says"), [
    ({"obs_norm": True}, "obs_norm needs the whole batch"),
    ({"reward_norm": True}, "reward_norm needs the whole batch"),
    ({"advantage_norm": True}, "advantage_norm needs the whole batch"),
    ({"norm": "batch"}, "norm=batch needs the whole batch"),
    ({"num_envs": 5}, "num_envs=5 cannot be divided evenly"),
    ({"vector": "async"}, "have processes of their own"),
    ({"optimizer": "AdamW"}, "optimizer=AdamW needs one process"),
    ({"device": "cuda"}, "share a CPU"),
])
def test_what_cannot_be_learnt_together_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"num_workers=2: .*{says}"):
        configure(**options)


def test_processes_under_sync_are_for_a2c() -> None:
    with pytest.raises(ConfigError, match="under runtime=sync acer has one process"):
        vantage.configure("acer", env="CartPole-v1", runtime="sync", num_workers=2)


@pytest.mark.parametrize(("cores", "options", "workers", "threads"), [
    (2, {"env": "Pong", "num_envs": 16}, 2, 1),
    (4, {"env": "Pong", "num_envs": 16}, 2, 2),
    (4, {"env": "Pong", "num_envs": 32}, 4, 1),
    (3, {"env": "Pong", "num_envs": 24}, 3, 1),
    (3, {"env": "Pong", "num_envs": 16}, 1, 3),
    (5, {"env": "Pong", "num_envs": 16}, 2, 2),
    (1, {"env": "Pong", "num_envs": 16}, 1, 1),
    (2, {"env": "Pong", "num_envs": 8}, 1, 2),
    (2, {"env": "Pong", "num_envs": 16, "threads": 2}, 1, 2),
    (2, {"env": "Pong", "num_envs": 16, "advantage_norm": True}, 1, 2),
    (2, {"env": "CartPole-v1", "num_envs": 16}, 1, 2),
    (2, {"env": "Pong", "num_envs": 16, "device": "cpu:0"}, 2, 1),
    (4, {"env": "CartPole-v1", "num_envs": 16, "num_workers": 2}, 2, 2),
])
def test_atari_has_a_process_a_core_as_far_as_its_environments_go(
        cores: int, options: dict[str, Any], workers: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores_for", lambda asked: asked or cores)
    prepared = prepare(configure(**({"num_workers": 0, "threads": 0} | options)))
    assert (prepared.runtime.num_workers, prepared.runtime.threads) == (workers, threads)


def test_a_run_begun_in_one_process_stays_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(vantage.train(configure(num_workers=1, rollout_length=5, steps=100), run=tmp_path / "run"))
    edit(tmp_path / "run", num_workers=0)
    assert resumed_config(tmp_path / "run", monkeypatch).runtime.num_workers == 1


def edit(run: Path, **values: Any) -> None:
    path = run / "config.json"
    path.write_text(vantage.Config.from_json(path.read_text(), source="test").change(**values).to_json())


def resumed_config(run: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> vantage.Config:
    """What a resume would prepare; it ends there."""
    seen: list[vantage.Config] = []

    def prepared(config: vantage.Config) -> vantage.Config:
        seen.append(config)
        raise InterruptedError

    monkeypatch.setattr(training, "prepare", prepared)
    with pytest.raises(InterruptedError):
        list(vantage.resume(run, steps=400, **options))
    return seen[0]


def test_it_learns_and_tells_of_all_its_games(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(env="tiny:DelayedReward", num_envs=8, steps=8_000, rollout_length=5, gamma=0.95, lr="1e-2",
                       hidden="32", eval_every=8_000, eval_episodes=20)
    caplog.set_level("INFO", logger="vantage")
    *_, last = vantage.train(config, run=tmp_path / "run")
    assert last.step == 8_000 and "2 processes, 4 environments in each; one update by all" in caplog.messages
    assert last.metrics["eval/mean_reward"] == 1.0
    alone = tmp_path / "alone"
    *_, other = vantage.train(config.change(num_workers=1), run=alone)
    assert last.metrics["rollout/episodes"] == pytest.approx(other.metrics["rollout/episodes"], rel=0.05)
    assert not children()


def test_its_environments_are_those_of_one_process_and_its_draws_its_own() -> None:
    config = configure()
    shown, draws = [], []
    for one in (ActorLearner(config.change(num_workers=1)), *(ActorLearner(rank_config(config), worker=rank, index=rank)
                                                                for rank in range(2))):
        one.begin()
        shown.append(one.position.obs)
        draws.append(torch.rand(4, generator=one.generator).tolist())
        one.close()
    whole, *parts = shown
    assert torch.equal(torch.cat(parts), whole)  # type: ignore[arg-type]
    assert draws[0] == draws[1] != draws[2]


def test_what_an_environment_of_another_process_raises_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    config = configure(env="tiny:Misbehaving", env_kwargs={"how": "raise in a child"}, steps=10_000, rollout_length=5)
    with pytest.raises(EnvError, match=r"environment [23] .*\n(.*\n)*.*the simulator broke"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert load_latest(tmp_path / "run").step == 40 * 4
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert not children()


def test_a_killed_process_ends_the_run_with_a_checkpoint_that_resumes(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(steps=10**7, save_every=10**7)
    reports = vantage.train(config, run=tmp_path / "run")
    reached = next(reports).step
    (rank,) = children()
    os.kill(rank, signal.SIGKILL)
    with pytest.raises(VantageError, match="process 2 of 2 failed: it ended without a message, killed by SIGKILL"):
        for _ in range(100):
            next(reports)
    assert not children()
    stopped = load_latest(tmp_path / "run").step
    assert stopped >= reached > 0
    caplog.set_level("INFO", logger="vantage")
    *_, last = vantage.resume(tmp_path / "run", steps=stopped + 40)
    assert last.step >= stopped + 40
    assert "process 2: the checkpoint follows an error, so its environments begin new episodes" in caplog.messages


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_killed_while_the_run_pauses_loses_nothing(ends: bool, tmp_path: Path) -> None:
    reports = vantage.train(configure(steps=10**7, save_every=10**7), run=tmp_path / "run")
    reached = next(reports).step
    (rank,) = children()
    os.kill(rank, signal.SIGKILL)
    if ends:
        reports.close()
    else:
        with pytest.raises(VantageError, match="killed by SIGKILL"):
            list(reports)
    assert not children() and load_latest(tmp_path / "run").step == reached > 0


def test_a_loss_that_is_not_finite_ends_all(tmp_path: Path) -> None:
    config = configure(env="tiny:ContinuousTarget", reward_scale=1e30, steps=10_000)
    with pytest.raises(NonFiniteError, match="weights were not changed"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert not children()


def test_a_killed_run_takes_its_processes_along(tmp_path: Path) -> None:
    arguments = ["train", "a2c", "--env", "CartPole-v1", "--num-envs", "4", "--num-workers", "2", "--no-obs-norm",
                 "--no-reward-norm", "--no-advantage-norm", "--steps", "1e9", "--run", str(tmp_path / "run")]
    process = subprocess.Popen([sys.executable, "-m", "vantage.cli", *arguments], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while not (tmp_path / "run" / "checkpoints").exists():
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert_ends(process.pid, 5)
    assert_group_ends(process.pid, 5)


def test_a_script_that_trains_on_atari_needs_no_main_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_bench_measures_all_processes() -> None:
    snapshot = bench(configure(rollout_length=5), seconds=1.0, rounds=1)
    assert min(snapshot.env, snapshot.act, snapshot.learn, snapshot.whole) > 0 and snapshot.rounds == 1
    assert not children()


def test_a_pools_process_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is daemonic, and so may have no children."""
    monkeypatch.setattr(machine, "cores_for", lambda asked: asked or 2)
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert prepare(configure(env="Pong", num_envs=16, num_workers=0, threads=0)).runtime.num_workers == 1
    with pytest.raises(ConfigError, match="num_workers=2: a daemonic process"):
        prepare(configure())


def test_a_run_goes_on_in_one_process_where_it_must(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As on a GPU, which no test has: config.json then has one process, and the checkpoint is still of two."""
    run = tmp_path / "run"
    list(vantage.train(configure(rollout_length=5, memory="lstm", memory_size=8, frame_stack=2, steps=200), run=run))
    edit(run, num_workers=1)
    caplog.set_level("INFO", logger="vantage")
    *_, last = vantage.resume(run, steps=400)
    assert last.step == 400
    assert not any("did not replay" in note or "follows an error" in note for note in caplog.messages), caplog.messages
    assert "partner_1_acting" not in load_latest(run).tensors and not children()


def test_a_resume_on_a_gpu_takes_one_process(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    list(vantage.train(configure(steps=200, rollout_length=5), run=tmp_path / "run"))
    monkeypatch.setattr(training, "resolve_device", lambda config: config.runtime.device)
    caplog.clear()
    config = resumed_config(tmp_path / "run", monkeypatch, device="cuda")
    assert (config.runtime.num_workers, config.runtime.threads, config.runtime.device) == (1, 2, "cuda")
    assert "one process instead of 2: this resume is not exact" in caplog.messages


def test_an_environment_of_another_process_that_cannot_be_built_fails_at_once(tmp_path: Path) -> None:
    config = configure(env="tiny:Misbehaving", env_kwargs={"how": "refuse a child"}, steps=1_000)
    with pytest.raises(EnvError, match="no licence for two"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert not (tmp_path / "run").exists() and not children()


def test_saved_configs_are_accepted_again() -> None:
    for algo in ("a2c", "acer"):
        config = prepare(vantage.configure(algo, env="CartPole-v1"))
        given = {name: value for name, value in config.flat().items() if value is not None}
        assert vantage.configure(**given).runtime.num_workers == (1 if algo == "a2c" else 0)


def test_evaluations_have_the_cores_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores_for", lambda asked: asked or 4)
    assert prepare(configure(env="Pong", num_envs=16, threads=0, num_workers=2)).all_threads == 4
    assert prepare(vantage.configure("a3c", env="CartPole-v1", num_workers=3)).all_threads == 1


def test_a_run_begins_from_anothers_weights_in_all_processes(tmp_path: Path) -> None:
    list(vantage.train(configure(steps=400, rollout_length=5), run=tmp_path / "first"))
    given = configure(steps=20, rollout_length=5, init_from=str(tmp_path / "first"), init_checkpoint="latest", lr=0.0)
    list(vantage.train(given, run=tmp_path / "second"))
    first, second = (load_latest(tmp_path / name).tensors["model"] for name in ("first", "second"))
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
