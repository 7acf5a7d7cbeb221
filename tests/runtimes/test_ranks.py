"""Data-parallel ranks: which configs have them, how they train, resume, fail and stop. Updates: `test_rank_updates`."""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from processes import children, launch
from rollouts import begun
from stopping import saved_tensors, stop_after
from zygote import Command, call

import vantage
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.runs.checkpoint import load_latest
from vantage.runtimes import machine, training
from vantage.runtimes.child_processes import Process
from vantage.runtimes.progress import Advance
from vantage.runtimes.rank_worker import without_metrics
from vantage.runtimes.ranks import Ranks
from vantage.tools.bench import bench
from vantage.types import Episode

pytestmark = pytest.mark.integration

PLAIN: dict[str, Any] = {
    "env": "CartPole-v1", "num_envs": 4, "num_workers": 2, "threads": 1, "tensorboard": False, "eval_every": 0,
    "log_every_seconds": 0.1, "rollout_length": 5}


def configure(**options: Any) -> vantage.Config:
    return vantage.configure(options.pop("algo", "a2c"), **(PLAIN | options))


# Which configs have ranks


@pytest.mark.parametrize(("options", "message"), [
    ({"norm": "batch"}, "norm=batch needs the whole batch"),
    ({"num_envs": 5}, "num_envs=5 cannot be divided evenly"),
    ({"vector": "async"}, "have processes of their own"),
    ({"optimizer": "AdamW"}, "optimizer=AdamW needs one process"),
    ({"device": "cuda"}, "needs a GPU of its own"),
    ({"algo": "acer", "runtime": "sync"}, "acer has one process"),
])
def test_what_ranks_cannot_learn_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"num_workers=2: .*{message}"):
        configure(**options)


@pytest.mark.parametrize(("cores", "options", "workers", "threads"), [
    (2, {"env": "Pong", "num_envs": 16}, 2, 1),
    (4, {"env": "Pong", "num_envs": 16}, 2, 2),
    (2, {"env": "Pong", "algo": "ppo", "num_envs": 32}, 2, 1),
    (4, {"env": "Pong", "num_envs": 32}, 4, 1),
    (3, {"env": "Pong", "num_envs": 16}, 1, 3),
    (5, {"env": "Pong", "num_envs": 16}, 2, 2),
    (2, {"env": "Pong", "num_envs": 8}, 1, 2),
    (2, {"env": "Pong", "num_envs": 16, "threads": 2}, 1, 2),
    (2, {"env": "Pong", "num_envs": 16, "norm": "batch"}, 1, 2),
    (2, {"env": "CartPole-v1", "num_envs": 16}, 1, 1),
    (2, {"env": "Pong", "num_envs": 16, "device": "cpu:0"}, 2, 1),
    (4, {"env": "CartPole-v1", "num_envs": 16, "num_workers": 2}, 2, 1),
])
def test_atari_has_a_rank_per_core_with_at_least_eight_environments_each(
        cores: int, options: dict[str, Any], workers: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: cores)
    prepared = machine.prepare(configure(**({"num_workers": 0, "threads": 0} | options)))
    assert (prepared.runtime.num_workers, prepared.runtime.threads) == (workers, threads)
    assert prepared.all_threads == workers * threads


def test_a_process_of_a_pool_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is daemonic, and so may have no children."""
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert machine.prepare(configure(env="Pong", num_envs=16, num_workers=0, threads=0)).runtime.num_workers == 1
    with pytest.raises(ConfigError, match="num_workers=2: a daemonic process"):
        machine.prepare(configure())


# Runs


def test_ranks_learn_play_every_game_and_leave_none_behind(tmp_path: Path) -> None:
    config = configure(env="tiny:DelayedReward", num_envs=8, steps=8_000, gamma=0.95, lr="1e-2", hidden="32",
                       eval_every=8_000, eval_episodes=20)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.step == 8_000 and last.metrics["eval/mean_reward"] == 1.0
    assert last.metrics["rollout/episodes"] == pytest.approx(8_000 / 7, rel=0.05), "six steps and a reset each"
    assert not children()


def test_ranks_have_the_environments_of_one_process_and_their_own_draws() -> None:
    config, obs, draws = configure(), [], []
    for own, rank in ((config.change(num_workers=1), 0), (config, 0), (config, 1)):
        with begun(own, worker=rank, index=rank) as one:
            obs.append(one.position.obs)
            draws.append(torch.rand(4, generator=one.generator).tolist())
    whole, *parts = obs
    assert torch.equal(torch.cat(parts), whole)  # type: ignore[arg-type]
    assert draws[0] == draws[1] != draws[2]


TORCHRUN = ["-c", """
import sys
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
from zygote import Command
subprocess_handler.Popen = lambda args, **options: Command(args[args.index("-m"):], **options)
run.main(sys.argv[1:])
"""]
"""torchrun, whose ranks are forks."""


def test_torchrun_trains_on_two_nodes_and_resumes_on_one_as_num_workers_does_bit_for_bit(tmp_path: Path) -> None:
    """On loopback."""
    given = PLAIN | {"steps": 100, "hidden": 8, "memory": "lstm", "memory_size": 8}
    list(vantage.Trainer(vantage.configure("a2c", **given), run=tmp_path / "spawned"))
    list(vantage.Trainer.resume(tmp_path / "spawned", steps=200, extend_schedule=True))
    del given["num_workers"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = [Command([*TORCHRUN, "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1",
                      "--master-addr=127.0.0.1", f"--master-port={port}", "-m", "--", "vantage", "train",
                      "a2c", *(f"--{name}={value}" for name, value in given.items()), "--seed=0",
                      "--run=launched"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for node in range(2)]
    outputs = [node.communicate(timeout=200)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    for arguments in (["resume", "launched", "--steps=200", "--extend-schedule"], ["train", "a2c", "--help"]):
        outputs.append("".join(launch(2, arguments, tmp_path)))  # with --help the ranks that wait for a run end
    assert ["".join(outputs[:2]).count("steps in"), outputs[2].count("steps in")] == [1, 1], "rank 0 alone prints"
    tensors, others = saved_tensors(tmp_path / "spawned"), saved_tensors(tmp_path / "launched")
    assert tensors.keys() == others.keys()
    assert not [name for name, tensor in tensors.items() if not torch.equal(tensor, others[name])]


def test_torchrun_is_for_data_parallel_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="torchrun starts data-parallel ranks, which a3c does not have"):
        next(vantage.Trainer(vantage.configure("a3c", env="CartPole-v1"), run="run"))
    runtime = training._with_torchrun(configure(num_workers=0, device="cuda")).runtime
    assert (runtime.num_workers, runtime.device) == (4, "cuda:0,cuda:1,cuda:0,cuda:1")
    with pytest.raises(ConfigError, match="num_workers=4: num_envs=6 cannot be divided evenly"):
        training._resumed_config(configure(num_workers=4, num_envs=6), None, False, None)


def test_an_environment_of_another_rank_that_raises_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    config = configure(env="odd:Misbehaving", env_kwargs={"how": "raise in a child"}, steps=10_000)
    with pytest.raises(EnvError, match=r"environment [23] (.|\n)*odd.py(.|\n)*the simulator broke"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert load_latest(tmp_path / "run").step == 40 * 4
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert not children()


def test_an_environment_of_another_rank_that_cannot_be_built_fails_at_once(tmp_path: Path) -> None:
    config = configure(env="odd:Misbehaving", env_kwargs={"how": "refuse a child"}, steps=1_000)
    with pytest.raises(EnvError, match="no licence for two"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert not (tmp_path / "run").exists() and not children()


@pytest.mark.parametrize("options", [{}, {"algo": "ppo", "minibatch_size": 15, "past_rollouts": 2}],
                         ids=["a2c", "past rollouts"])
def test_a_killed_rank_ends_the_run_with_a_checkpoint_that_resumes(
        options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A rank that is killed while the run pauses loses nothing but the rollouts that it kept."""
    run = tmp_path / "run"
    reports = vantage.Trainer(configure(num_envs=6, num_workers=3, steps=10**7, save_every=10**7, **options), run=run)
    reached = next(reports).step
    max(children(), key=lambda child: child.pid).kill()
    with pytest.raises(VantageError, match=r"process [23] of 3 failed: it ended without a message, killed by SIGKILL"):
        for _ in range(100):
            next(reports)
    assert not children()
    stopped = load_latest(run).step
    assert stopped >= reached > 0
    reports = vantage.Trainer.resume(run)
    reached = next(reports).step
    assert reached > stopped
    note = "process 2: the checkpoint has no state of this process's environments, so they begin new episodes"
    assert note in caplog.messages
    children()[0].kill()
    reports.close()
    assert not children() and load_latest(run).step == reached
    reports = vantage.Trainer.resume(run)
    for report, _ in zip(reports, range(5), strict=False):
        assert report.step > reached
    assert any("so all collect theirs again" in note for note in caplog.messages) is ("algo" in options)
    reports.close()


@pytest.mark.parametrize(("ranks", "failed"), [([(False, None), (False, -9)], 3), ([(True, -9), (True, None)], 2)],
                         ids=["while another is awaited", "after its imports"])
def test_a_rank_that_ends_before_the_ranks_join_ends_the_start(
        ranks: list[tuple[bool, int | None]], failed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank above 0 has imported its modules or has not, and runs or has ended."""

    def stand_in(context: Any, name: str, target: Any, store: Path, rank: int, *_: Any) -> Process:
        imported, exitcode = ranks[rank - 1]
        here, there = context.Pipe()
        sentinel, open_end = context.Pipe()
        if imported:
            there.send(None)
        if exitcode is not None:
            open_end.close()
        process: Any = SimpleNamespace(pid=None, sentinel=sentinel, exitcode=exitcode, ends=(there, open_end),
                                       is_alive=lambda: exitcode is None)
        for method in ("join", "kill", "close"):
            setattr(process, method, lambda *_: None)
        return Process(process, here)

    monkeypatch.setattr("vantage.runtimes.ranks.start", stand_in)
    monkeypatch.setattr("vantage.runtimes.child_processes.kill_descendants", lambda pid: None)
    monkeypatch.setattr("vantage.runtimes.collectives.join", lambda *_: pytest.fail("it would wait for a year"))
    actor_learner: Any = SimpleNamespace(learner=None, device=torch.device("cuda"))
    with pytest.raises(VantageError, match=f"process {failed} of 3 failed: it ended without a message"):
        Ranks(configure(num_envs=6, num_workers=3), actor_learner, None)


def test_a_script_that_trains_on_atari_needs_no_main_guard(tmp_path: Path) -> None:
    """Statistics of each pixel are the largest that ranks exchange."""
    (tmp_path / "script.py").write_text("""
import vantage
for report in vantage.Trainer(vantage.configure("a2c", env="Pong", num_envs=2, num_workers=2, steps=40, threads=1,
                                              image_norm="pixel", image_norm_steps=0, eval_every=0)):
    last = report
print(last.status)
""")
    done = call(["script.py"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_bench_measures_all_ranks() -> None:
    measured = bench(configure(), seconds=0.3)
    assert min(measured.env, measured.act, measured.learn, measured.whole) > 0 and not children()


def test_a_run_resumes_with_another_number_of_ranks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    config = configure(num_envs=6, memory="lstm", memory_size=8, frame_stack=2, obs_norm=False)
    stop_after(4, run, config)
    weights = load_latest(run).tensors["model"]
    for steps, ranks in ((200, 3), (300, 1)):
        (run / "config.json").write_text(config.change(num_workers=ranks, steps=steps, lr="0").to_json())
        caplog.clear()
        *_, last = vantage.Trainer.resume(run)
        assert last.status == "done" and any("begin a new episode" in note for note in caplog.messages)
        tensors = load_latest(run).tensors
        assert all(torch.equal(tensors["model"][name], tensor) for name, tensor in weights.items())
        assert len([name for name in tensors if name.endswith("_acting")]) == ranks - 1


def test_a_resume_on_a_gpu_has_one_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(training, "prepare", lambda config: config)
    monkeypatch.setattr(training, "resolve_device", lambda config: config.runtime.device)
    runtime = training._resumed_config(configure(), None, False, "cuda").runtime
    assert (runtime.num_workers, runtime.threads, runtime.device) == (1, 2, "cuda")
    assert "one process instead of 2: this resume is not exact" in caplog.messages


def test_a_rank_reports_the_numbers_of_its_episodes() -> None:
    own = Advance(8, updates=1, episodes=(Episode(0, 1.5, 3, {"is_success": True, "name": "x"}), Episode(1, 2.0, 4)),
                  metrics={"train/loss": 1.0}, env_seconds=0.5)
    sent = without_metrics(own)
    assert [(each.env, each.score, each.length, *each.info.items()) for each in sent.episodes] == [
        (0, 1.5, 3, ("is_success", 1.0)), (1, 2.0, 4)]
    assert (sent.steps, sent.env_seconds, sent.updates, sent.metrics) == (8, 0.5, 0, {})
