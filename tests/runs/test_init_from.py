"""A new run from given weights: what it takes over, what begins anew, and what it refuses before it has a directory."""

from __future__ import annotations

import json
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
from vantage.learning.weights import FlatParameters
from vantage.runs.checkpoint import load_latest, load_named, save_as
from vantage.tools.export import export

QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 1000, "eval_every": 0, "num_envs": 2, "hidden": "8",
         "save_every": 10_000, "rollout_length": 4, "steps": 80}
PENDULUM = {"env": "Pendulum-v1", "obs_norm": True, "reward_norm": True}
GAUSSIAN = {"env": "tiny:ContinuousTarget", "std": "fixed", "log_std_init": -1.0, "squash_mean": True}


def train(algo: str, run: str, **options: Any) -> None:
    *_, last = vantage.Trainer(vantage.configure(algo, **(QUIET | options)), run=run)
    assert last.status == "done"


def step_0(run: str) -> dict[str, dict[str, Tensor]]:
    return {name: dict(group) for name, group in load_named(Path(run), "0").tensors.items()}


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]


def test_the_weights_of_an_agent_are_given_as_a_file() -> None:
    with vantage.Trainer("a2c", run="source", threads=1, **PENDULUM) as trainer:
        trainer.update()
        for value, name in ((trainer.agent, "agent"), (trainer, "trainer.agent")):
            with pytest.raises(ConfigError, match=rf"to a file by {name}\.save\("):
                vantage.configure("a2c", **PENDULUM, init_from=value)
        file = trainer.agent.save("policy.safetensors")
    assert vantage.configure("a2c", **PENDULUM, init_from=file).policy.init_from == "policy.safetensors"


@pytest.mark.parametrize(("algo", "options"), [("a2c", {}), ("a3c", {"num_workers": 1})], ids=["sync", "hogwild"])
def test_a_run_begins_with_weights_and_normalisers_and_nothing_else(algo: str, options: dict[str, Any]) -> None:
    train("a2c", "source", **PENDULUM)
    train(algo, "new", **PENDULUM, **options, init_from="source", seed=1)
    source, begun, end = load_latest(Path("source")), load_named(Path("new"), "0"), load_latest(Path("new"))
    assert source.step == end.step == 80 and begun.state["progress"]["step"] == 0
    assert_same(begun.tensors["model"], source.tensors["model"])
    assert torch.equal(begun.tensors["rewards"]["var"], source.tensors["rewards"]["var"])
    assert begun.tensors["model"]["normalizers.0.count"] > 80
    assert source.tensors["optimizer"]["exp_avg"].abs().sum() > 0
    assert sum(float(x.abs().sum()) for x in begun.tensors["optimizer"].values()) == 0
    name = "actor.torsos.0.layers.0.weight"
    assert not torch.equal(end.tensors["model"][name], begun.tensors["model"][name])


@pytest.mark.parametrize(("env", "options"), [
    ("Pendulum-v1", {}), ("CartPole-v1", {"runtime": "hogwild", "num_workers": 1})], ids=["continuous", "hogwild"])
def test_acers_critic_is_taken_over_and_its_average_policy_begins_as_a_copy(env: str, options: dict[str, Any]) -> None:
    train("acer", "source", env=env, replay_start=8, replay_size=200)
    train("acer", "new", env=env, replay_start=8, replay_size=200, **options, init_from="source", seed=1)
    begun = step_0("new")
    assert_same(begun["model"], load_latest(Path("source")).tensors["model"])
    assert torch.equal(begun["average"]["vector"], FlatParameters(
        vantage.load("new", checkpoint="0").model.parameters()).vector)
    assert not torch.equal(begun["average"]["vector"], load_latest(Path("source")).tensors["average"]["vector"])


def test_the_checkpoint_is_chosen_as_for_an_evaluation(caplog: pytest.LogCaptureFixture) -> None:
    train("a2c", "source", env="CartPole-v1", save_every=40)
    former = load_named(Path("source"), "40")
    save_as(Path("source"), "best", former.step, tensors=former.tensors, state=former.state)
    for name, step in {"best": 40, "latest": 80, "0": 0, "auto": 40}.items():
        train("a2c", f"new-{name}", env="CartPole-v1", init_from="source", init_checkpoint=name)
        assert_same(step_0(f"new-{name}")["model"], load_named(Path("source"), str(step)).tensors["model"])
    next(Path("source/checkpoints").glob("*80/model.safetensors")).write_bytes(b"cut")
    train("a2c", "new", env="CartPole-v1", init_from="source", init_checkpoint="latest")
    assert "model.safetensors is damaged" in caplog.text
    assert_same(step_0("new")["model"], step_0("new-best")["model"])
    for path in Path("source/checkpoints").iterdir():
        (path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"^init_from=source: source has no valid checkpoint: .*a whole checkpoint$"):
        train("a2c", "no", env="CartPole-v1", init_from="source", init_checkpoint="latest")


def test_the_best_of_a_run_with_workers_has_its_deviation_of_returns_and_an_exported_file_not(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vantage")
    options = {"env": "tiny:ContinuousTarget", "reward_norm": True}
    train("a3c", "source", **options, num_workers=1, eval_every=40, eval_episodes=1, steps=4000)
    best = load_named(Path("source"), "best").tensors
    assert 1 < best["rewards"]["count"] <= load_latest(Path("source")).tensors["rewards"]["count"]
    train("a2c", "new", **options, init_from="source")
    assert torch.equal(step_0("new")["rewards"]["var"], best["rewards"]["var"])
    assert "begins anew" not in caplog.text
    export("source", format="safetensors", output=Path("policy.safetensors"))
    train("a2c", "newer", **options, init_from="policy.safetensors")
    assert "the deviation of returns is not among them: reward_norm begins anew" in caplog.messages
    assert_same(step_0("newer")["model"], best["model"])
    assert step_0("newer")["rewards"]["count"] < 1


def test_a_resume_does_not_need_the_weights_again() -> None:
    train("a2c", "source", env="CartPole-v1")
    train("a2c", "whole", env="CartPole-v1", init_from="source")
    stop_after(1, Path("parts"), vantage.configure("a2c", **QUIET, env="CartPole-v1", init_from="source"))
    shutil.rmtree("source")
    *_, last = vantage.Trainer.resume("parts")
    assert last.status == "done"
    assert_same(load_latest(Path("parts")).tensors["model"], load_latest(Path("whole")).tensors["model"])
    assert json.loads(Path("parts/config.json").read_text())["policy"]["init_from"] == "source"


@pytest.mark.parametrize(("source", "algo", "options", "message"), [
    ({}, "a2c", {"env": "Acrobot-v1"}, r"its actions: \('discrete', \(2,\)\), .*\(3,\)\); .*action_subset"),
    ({}, "a2c", {"env": "tiny:Bandit"}, r"its observations: vector \[4\], of this run: vector \[1\]"),
    ({}, "acer", {"separate": True}, "the critic of a2c values states, that of acer does not; give weights of acer, or "
                                     "train an algorithm whose critic values states, such as a2c"),
    ({}, "a2c", {"hidden": "16", "obs_norm": False}, r"network: actor\.torsos\.0\.layers\.0\.weight is \[8, 4\] in the "
                                                     r"file, \[16, 4\] in the network; give hidden=8 obs_norm=True$"),
    ({}, "a2c", {"activation": "relu"}, r"network; give activation='tanh'$"),
    (GAUSSIAN, "a2c", {"min_std": 0.5}, r"network; give min_std=0\.001$"),
    (GAUSSIAN, "a2c", {"log_std_init": 0.5}, r"network; give log_std_init=-1\.0$"),
    (GAUSSIAN, "a2c", {"std": "free", "log_std_init": 0.0}, r"log_std \[1\] is missing in the file; .*std='fixed'"),
    (GAUSSIAN, "a2c", {"env_kwargs": {"bound": 2}}, r"its action bounds.*: \(\(-1\.0,\).*: \(\(-2\.0,\)"),
])
def test_weights_that_do_not_fit_are_refused_before_there_is_a_run(
        source: dict[str, Any], algo: str, options: dict[str, Any], message: str) -> None:
    source = source or {"env": "CartPole-v1"}
    train("a2c", "source", **source, steps=8)
    with pytest.raises(ConfigError, match=message):
        train(algo, "runs/new", **({"init_from": "source"} | source | options))
    assert not Path("runs").exists()


def test_another_name_of_the_network_and_unused_bounds_fit() -> None:
    options = GAUSSIAN | {"squash_mean": False, "steps": 8}
    train("a2c", "source", **options)
    train("a2c", "new", **options, network="mlp", env_kwargs={"bound": 2}, init_from="source")


def test_a_preset_leaves_the_first_weights_alone_where_they_are_given() -> None:
    def policy(preset: str, **values: Any) -> Any:
        return vantage.configure(preset, env="Pendulum-v1", init_from="source", **values).policy

    assert policy("a3c-continuous").init == "orthogonal"
    assert policy("a3c-acer-pytorch").log_std_init == -0.6
    assert policy("a3c-acer-pytorch", std="free").log_std_init == 0


@pytest.mark.parametrize(("arguments", "says"), [
    (["--init-from", "source", "--hidden", "16"], "give --hidden 8"),
    (["--init-from", "x.safetensors", "--init-checkpoint", "best"], "init_checkpoint='best': x.safetensors is a file"),
    (["--init-from", "source", "--init", "columns"], "init=columns has no effect beside init_from"),
    (["--init-from", "source", "--log-std-init", "-1"], "log_std_init=-1.0 has no effect beside init_from"),
])
def test_bad_weights_are_one_line_in_a_dry_run_too(
        arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    train("a2c", "source", env="CartPole-v1", steps=8)
    assert main(["train", "a2c", "--env", "CartPole-v1", "--hidden", "8", *arguments, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
