"""A new run from given weights: what it takes over, what begins anew, and what it refuses before it has a directory."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from stopping import stop_after
from torch import Tensor

import vantage
from vantage.cli import main
from vantage.errors import ConfigError
from vantage.learning.flat_parameters import FlatParameters
from vantage.runs.checkpoint import load_latest, load_named, save_best
from vantage.tools.export import export

QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 1000, "eval_every": 0, "num_envs": 2, "hidden": "8",
         "save_every": 10_000, "rollout_length": 4, "steps": 80}


def train(algo: str, run: str, **options: Any) -> list[str]:
    """Train a new run to its end; returns its log messages."""
    messages: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vantage")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        *_, last = vantage.train(vantage.configure(algo, **(QUIET | options)), run=run)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert last.status == "done"
    return messages


def step_0(run: str) -> dict[str, dict[str, Tensor]]:
    return dict(load_named(Path(run), "0").tensors)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]


PENDULUM = {"env": "Pendulum-v1", "obs_norm": True, "reward_norm": True}


@pytest.mark.parametrize(("algo", "options"), [("a2c", {}), ("a3c", {"num_workers": 1})], ids=["sync", "hogwild"])
def test_a_run_begins_with_weights_and_normalisers_and_nothing_else(algo: str, options: dict[str, Any]) -> None:
    train("a2c", "source", **PENDULUM)
    train(algo, "new", **PENDULUM, **options, init_from="source", seed=1)
    source, begun = load_latest(Path("source")), load_named(Path("new"), "0")
    assert source.step == 80 and begun.state["progress"]["step"] == 0
    assert_same(begun.tensors["model"], source.tensors["model"])
    assert torch.equal(begun.tensors["rewards"]["moments"], source.tensors["rewards"]["moments"])
    assert begun.tensors["model"]["normalizers.0.count"] > 80
    assert source.tensors["optimizer"]["exp_avg"].abs().sum() > 0
    assert sum(float(x.abs().sum()) for x in begun.tensors["optimizer"].values()) == 0
    learnt = load_latest(Path("new"))
    assert learnt.step == 80
    name = "actor.torsos.0.layers.0.weight"
    assert not torch.equal(learnt.tensors["model"][name], begun.tensors["model"][name])


def test_the_best_of_a_run_with_workers_has_its_deviation_of_returns_too(importable: None) -> None:
    options = {"env": "tiny:ContinuousTarget", "reward_norm": True}
    train("a3c", "source", **options, num_workers=1, eval_every=40, eval_episodes=1, steps=4000)
    moments = load_named(Path("source"), "best").tensors["rewards"]["moments"]
    assert 1 < moments[0] <= load_latest(Path("source")).tensors["rewards"]["moments"][0]
    said = train("a2c", "new", **options, init_from="source")
    assert not any("begins anew" in note for note in said)
    assert torch.equal(step_0("new")["rewards"]["moments"], moments)


@pytest.mark.parametrize(("env", "options"), [("CartPole-v1", {}), ("Pendulum-v1", {}),
                                              ("CartPole-v1", {"runtime": "hogwild", "num_workers": 1})],
                         ids=["discrete", "continuous", "hogwild"])
def test_acers_critic_is_taken_over_and_its_average_policy_begins_as_a_copy(env: str, options: dict[str, Any]) -> None:
    train("acer", "source", env=env, replay_start=8, replay_size=200)
    train("acer", "new", env=env, replay_start=8, replay_size=200, **options, init_from="source", seed=1)
    begun = step_0("new")
    assert_same(begun["model"], load_latest(Path("source")).tensors["model"])
    assert torch.equal(begun["average"]["vector"], FlatParameters(vantage.load("new", checkpoint="0").model).vector)
    assert not torch.equal(begun["average"]["vector"], load_latest(Path("source")).tensors["average"]["vector"])


def test_the_checkpoint_is_chosen_as_for_an_evaluation() -> None:
    train("a2c", "source", env="CartPole-v1", save_every=40)
    former = load_named(Path("source"), "40")
    save_best(Path("source"), former.step, tensors=former.tensors, state=former.state)
    assert [load_named(Path("source"), name).step for name in ("auto", "best", "latest")] == [40, 40, 80]
    for name in ("best", "latest", "40", "auto"):
        train("a2c", f"new-{name}", env="CartPole-v1", init_from="source", init_checkpoint=name)
        assert_same(step_0(f"new-{name}")["model"], load_named(Path("source"), name).tensors["model"])
    with pytest.raises(ConfigError, match=r"no checkpoint of step 7; it has best, 80, 40, 0"):
        train("a2c", "new-7", env="CartPole-v1", init_from="source", init_checkpoint="7")
    assert not Path("new-7").exists()


def test_a_damaged_checkpoint_is_passed_over_and_said() -> None:
    train("a2c", "source", env="CartPole-v1")
    next(Path("source/checkpoints").glob("*80/model.safetensors")).write_bytes(b"cut")
    said = train("a2c", "new", env="CartPole-v1", init_from="source")
    assert any("model.safetensors has 3 bytes" in note for note in said)
    assert_same(step_0("new")["model"], step_0("source")["model"])


def test_an_exported_file_does_as_well_but_for_the_normaliser_of_rewards() -> None:
    train("a2c", "source", **PENDULUM)
    export("source", format="safetensors", output=Path("policy.safetensors"))
    said = train("a2c", "new", **PENDULUM, init_from="policy.safetensors")
    assert "the deviation of returns is not among them: reward_norm begins anew" in said
    assert_same(step_0("new")["model"], load_latest(Path("source")).tensors["model"])
    assert step_0("new")["rewards"]["moments"][0] < 1


def test_a_resume_needs_the_weights_no_more() -> None:
    train("a2c", "source", env="CartPole-v1")
    train("a2c", "whole", env="CartPole-v1", init_from="source")
    stop_after(1, Path("parts"), vantage.configure("a2c", **QUIET, env="CartPole-v1", init_from="source"))
    shutil.rmtree("source")
    *_, last = vantage.resume("parts")
    assert last.status == "done"
    assert_same(load_latest(Path("parts")).tensors["model"], load_latest(Path("whole")).tensors["model"])
    assert json.loads(Path("parts/config.json").read_text())["policy"]["init_from"] == "source"


@pytest.mark.parametrize(("algo", "options", "message"), [
    ("a2c", {"env": "Acrobot-v1"}, r"for discrete \[2\] actions, this environment has discrete \[3\]; .*action-subset"),
    ("a2c", {"env": "Pendulum-v1"}, r"for discrete \[2\] actions, this environment has box \[1\]; give weights"),
    ("a2c", {"env": "tiny:Bandit"}, r"it sees vector \[4\], this environment shows vector \[1\]"),
    ("acer", {"separate": True}, "the critic of a2c is not that of acer"),
    ("a2c", {"hidden": "16", "obs_norm": False},
     r"hidden=8 there, 16 here; obs_norm=true there, false here; \d+ tensors differ, first: "
     r"actor\.torsos\.0\.layers\.0\.weight is \[8, 4\] there, \[16, 4\] here; .*give --hidden 8 --obs-norm true$"),
    ("a2c", {"memory": "gru", "memory_size": 4}, r"memory=none there, gru here; .*give --memory none"),
    ("a2c", {"activation": "relu"}, r"network: activation=tanh there, relu here; give --activation tanh$"),
    ("a2c", {"network": "conv1d"}, r"network: network=mlp there, conv1d here; .*give --network mlp$"),
    ("a2c", {"init_from": "sourse"}, "sourse: no such run directory; did you mean source"),
    ("a2c", {"init_from": "no.safetensors"}, "cannot read no.safetensors"),
    ("a2c", {"init_from": "source/checkpoints"}, "not a run directory: .*did you mean source"),
])
def test_weights_that_do_not_fit_are_refused_before_there_is_a_run(
        algo: str, options: dict[str, Any], message: str, importable: None) -> None:
    train("a2c", "source", env="CartPole-v1", steps=8)
    with pytest.raises(ConfigError, match=message):
        train(algo, "runs/new", **({"env": "CartPole-v1", "init_from": "source"} | options))
    assert not Path("runs").exists()


GAUSSIAN = {"env": "tiny:ContinuousTarget", "std": "fixed", "log_std_init": -1.0, "squash_mean": True}


@pytest.mark.parametrize(("options", "message"), [
    ({"min_std": 0.5}, r"network: min_std=0\.001 there, 0\.5 here; give --min-std 0\.001$"),
    ({"log_std_init": 0.5}, r"network: log_std_init=-1\.0 there, 0\.5 here; give --log-std-init -1\.0$"),
    ({"squash_mean": False}, r"network: squash_mean=true there, false here; give --squash-mean true$"),
    ({"std": "free", "log_std_init": 0.0}, r"std=fixed there, free here; log_std_init=-1\.0 there, 0\.0 here; .*"
                      r"policy_head\.log_std only here; give --std fixed --log-std-init -1\.0$"),
    ({"env_kwargs": {"bound": 2}}, r"scales its means to actions from \[-1\.0\] to \[1\.0\], .* \[-2\.0\] to \[2\.0\]"),
])
def test_a_gaussian_that_would_be_another_is_refused(
        options: dict[str, Any], message: str, importable: None) -> None:
    train("a2c", "source", **GAUSSIAN, steps=8)
    with pytest.raises(ConfigError, match=message):
        train("a2c", "new", **(GAUSSIAN | options), init_from="source")
    assert not Path("new").exists()


def test_where_means_are_not_squashed_other_bounds_do(importable: None) -> None:
    gaussian = GAUSSIAN | {"squash_mean": False}
    train("a2c", "source", **gaussian, steps=8)
    train("a2c", "new", **gaussian, env_kwargs={"bound": 2}, init_from="source", steps=8)
    assert_same(step_0("new")["model"], load_latest(Path("source")).tensors["model"])


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def test_a_run_without_a_sound_checkpoint_is_refused() -> None:
    train("a2c", "source", env="CartPole-v1", steps=8)
    for path in Path("source/checkpoints").iterdir():
        (path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"^init_from=source: source has no valid checkpoint left: .*000008: model.*"
                                          r" is missing; give a run with a whole checkpoint$"):
        train("a2c", "new", env="CartPole-v1", init_from="source")
    shutil.rmtree("source/checkpoints")
    with pytest.raises(ConfigError, match=r"^init_from=source: source has no checkpoint yet: nothing was saved; "
                                          r"give a run with a whole checkpoint$"):
        train("a2c", "new", env="CartPole-v1", init_from="source")
    assert not Path("new").exists()


@pytest.mark.parametrize(("arguments", "says"), [
    (["--init-from", ""], "init_from='' names nothing"),
    (["--init-from", "nowhere"], "init_from=nowhere: nowhere: no such run directory"),
    (["--init-from", "source", "--hidden", "16"], "hidden=8 there, 16 here"),
    (["--init-from", "source", "--init-checkpoint", "lateest"], "init_checkpoint='lateest' is not auto, latest"),
    (["--init-from", "x.safetensors", "--init-checkpoint", "best"], "init_checkpoint='best': x.safetensors is a file"),
    (["--init-from", "source", "--init", "columns"], "init=columns has no effect beside init_from"),
    (["--init-from", "source", "--log-std-init", "-1"], "log_std_init=-1.0 has no effect beside init_from"),
])
def test_bad_weights_are_one_line_and_status_2_in_a_dry_run_too(
        arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    train("a2c", "source", env="CartPole-v1", steps=8)
    command = ["train", "a2c", "--env", "CartPole-v1", "--hidden", "8", *arguments]
    for dry in ([], ["--dry-run"]):
        assert main([*command, *dry, "--run", "new"]) == 2
        out, error = capsys.readouterr()
        assert says in error and error.count("\n") == 1 and "{" not in out
    assert not Path("new").exists()


def test_a_preset_says_nothing_of_how_weights_begin_where_they_are_given() -> None:
    given = vantage.configure("a3c-continuous", env="Pendulum-v1", init_from="source")
    assert given.policy.init == "orthogonal"
    assert vantage.configure("a3c-continuous", env="Pendulum-v1").policy.init == "kaiming"
    fixed = vantage.configure("a3c-acer-pytorch", env="Pendulum-v1", init_from="source")
    assert fixed.policy.log_std_init == -0.6
    free = vantage.configure("a3c-acer-pytorch", env="Pendulum-v1", init_from="source", std="free")
    assert free.policy.log_std_init == 0


def test_the_command_takes_it_from_a_flag_and_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    train("a2c", "source", env="CartPole-v1", steps=8)
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in QUIET.items()]
    train_cartpole = ["train", "a2c", "--env", "CartPole-v1", *flags]
    assert main([*train_cartpole, "--init-from", "source", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"]["init_from"] == "source"
    Path("c.json").write_text('{"init_from": "source", "init_checkpoint": "latest"}')
    assert main([*train_cartpole, "--config", "c.json", "--run", "new"]) == 0
    assert "weights and normalisers of a2c on CartPole-v1, step 8, from source" in capsys.readouterr().out
    assert_same(step_0("new")["model"], load_latest(Path("source")).tensors["model"])
    assert main([*train_cartpole, "--init-checkpoint", "best"]) == 2
    assert "name the run with --init-from" in capsys.readouterr().err
