"""Runs whose code a file cannot name: what resumes, loads and plays them takes it again as arguments."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from tiny import Bandit
from torch import nn

import vantage
from vantage.errors import ConfigError

pytestmark = pytest.mark.integration


@pytest.fixture
def code() -> dict[str, Any]:
    """An environment, a network and an algorithm without import paths."""
    @dataclass(frozen=True)
    class Own(vantage.PPO):
        """Of a function."""

        widths: tuple[int, ...] = (1, 2)
        layers: list[int] = field(default_factory=lambda: [3, 4])
        weights: dict[str, float] = field(default_factory=lambda: {"a": 1.0})

    return {"env": lambda: Bandit(), "network": lambda shape: nn.Linear(shape[0], 4), "algorithm": Own}


def begun(path: Path, code: dict[str, Any], stop: int | None = None) -> Path:
    """A run of 256 steps, or one that is stopped after `stop`."""
    config = vantage.configure(code["algorithm"], env=code["env"], network=code["network"], steps=256, save_every=64,
                               num_envs=2, rollout_length=16, minibatch_size=16, threads=1, tensorboard=False,
                               log_every_seconds=0, eval_every=128, eval_episodes=2)
    reports = vantage.Trainer(config, run=path)
    for report in reports:
        if stop is not None and report.step >= stop:
            reports.close()
    return path


def test_a_resume_with_the_code_handed_over_equals_never_having_stopped(tmp_path: Path, code: dict[str, Any]) -> None:
    whole, part = begun(tmp_path / "whole", code), begun(tmp_path / "part", code, stop=96)
    assert [report.step for report in vantage.Trainer.resume(part, **code)][-1] == 256
    loading = {"network": code["network"], "algorithm": code["algorithm"]}
    one, other = (vantage.load(run, checkpoint="latest", **loading).model.state_dict() for run in (whole, part))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_missing_is_named_with_the_call_that_takes_it(tmp_path: Path, code: dict[str, Any]) -> None:
    run = begun(tmp_path / "run", code)
    saved = json.loads((run / "config.json").read_text())
    names = saved["algo"], saved["env"]["id"], saved["policy"]["network"]
    assert names == ("<Own>", "<lambda of Bandit>", "<lambda>")
    assert "lambda: Bandit()" in json.loads((run / "meta.json").read_text())["sources"]["env"]
    calls: dict[str, Any] = {"resume": lambda **given: list(vantage.Trainer.resume(run, **given)),
                             "evaluate": lambda **given: vantage.evaluate(run, **given),
                             "load": lambda **given: vantage.load(run, **given)}
    for name, call in calls.items():
        with pytest.raises(ConfigError, match=rf'network=<lambda>, .*: vantage\.{name}\("{run}", network=\.\.\.\)'):
            call(**code | {"network": None})
    with pytest.raises(ConfigError, match=r"algorithm=<Own>.*env=<lambda of .*algorithm=\.\.\., env=\.\.\., network="):
        vantage.evaluate(run)
    with pytest.raises(ConfigError, match=r"the algorithm has epochs=77, and .* epochs=10; give the same"):
        vantage.evaluate(run, **code | {"algorithm": code["algorithm"](epochs=77)})
    agent = vantage.load(run, **code | {"env": None})
    assert agent.act([0.0])[0] in (0, 1)
    with pytest.raises(ConfigError, match=r"env=<lambda of Bandit>, .*; write vantage\.load\("
                                          r"'.*run', algorithm=\.\.\., network=\.\.\., env=\.\.\.\)"):
        agent.make_env()
    with pytest.raises(ConfigError, match=r"; write vantage\.evaluate\(agent, \.\.\., env=\.\.\.\)"):
        vantage.evaluate(agent)
    assert vantage.evaluate(agent, env=code["env"], episodes=2) == vantage.evaluate(run, episodes=2, **code)
    assert agent.config.env.id == "<lambda of Bandit>", "the agent keeps its config"
    assert vantage.evaluate(run, episodes=2, **code).episodes == 2


def test_an_agent_is_evaluated_without_handing_its_code_over_again(tmp_path: Path, code: dict[str, Any]) -> None:
    agent = vantage.load(begun(tmp_path / "run", code), **code)
    assert agent.run == tmp_path / "run"
    result = vantage.evaluate(agent, episodes=4)
    assert result == vantage.evaluate(agent.run, episodes=4, **code)
    needs = r"env=\.\.\., network=\.\.\."
    with pytest.raises(ConfigError, match=r"write vantage\.evaluate\('.*run', checkpoint='latest', .*" + needs):
        vantage.evaluate(agent, checkpoint="latest")
    with pytest.raises(ConfigError, match=r"write vantage\.evaluate\('.*run', .*" + needs):
        vantage.evaluate(agent, network=code["network"])
    other = vantage.evaluate(agent, env=lambda: gym.wrappers.TransformReward(Bandit(), lambda _: 7), episodes=2)
    assert other.returns == [7, 7], "played in the environment at hand"


def test_an_agent_stands_for_its_run_and_code_wherever_a_run_is_taken(tmp_path: Path, code: dict[str, Any]) -> None:
    agent = vantage.load(begun(tmp_path / "run", code), **code)
    assert len(vantage.plot(agent, "one.svg")) == len(vantage.plot([agent, agent.run], "both.svg")) == 1
    assert vantage.report(agent, episodes=2, video=False) == tmp_path / "run/report.html"
    assert vantage.export(agent, format="safetensors").path == tmp_path / "run/policy.safetensors"
    assert vantage.resume(agent, steps=320, extend_schedule=True, progress=False).step >= 64
    assert vantage.load(agent, checkpoint="latest", network=code["network"], algorithm=code["algorithm"]).step == 320
    lone = replace(agent, run=None)
    for call in (vantage.plot, vantage.report, vantage.resume, lambda one: vantage.export(one, format="safetensors")):
        with pytest.raises(ConfigError, match="has no run; give a run directory"):
            call(lone)


def test_files_and_pages_of_such_a_run(tmp_path: Path, code: dict[str, Any]) -> None:
    run = begun(tmp_path / "run", code)
    loading = {"network": code["network"], "algorithm": code["algorithm"]}
    file = vantage.export(run, format="safetensors", **loading).path
    with pytest.raises(ConfigError, match=r"vantage\.load\(.*policy.safetensors"):
        vantage.load(file)
    assert vantage.load(file, **loading).step == 256
    assert vantage.plot([run], tmp_path / "curve.svg")  # its config is read without the algorithm's class
    page = vantage.report(run, episodes=2, video=False, **code).read_text()
    assert "&lt;Own&gt; on &lt;lambda of Bandit&gt;" in page
    assert "Bandit()" not in page


def test_code_of_others_that_is_replaced_is_not_imported(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", {"env": Bandit, "network": "mlp", "algorithm": "ppo"})
    path = run / "config.json"
    path.write_text(path.read_text().replace("tiny:Bandit", "not_there:Bandit"))
    with pytest.raises(ConfigError, match="imports not_there:Bandit"):
        vantage.evaluate(run, episodes=2)
    assert vantage.evaluate(run, episodes=2, env=lambda: Bandit()).episodes == 2


def test_a_run_that_exists_names_the_call_that_continues_it(tmp_path: Path, code: dict[str, Any]) -> None:
    keys = {"steps": 64, "num_envs": 2, "rollout_length": 16, "threads": 1, "tensorboard": False, "eval_every": 0,
            "progress": False}
    run = tmp_path / "run"
    vantage.train("ppo", env=Bandit, network=code["network"], run=run, **keys)
    with pytest.raises(ConfigError) as error:
        vantage.train("ppo", env=code["env"], network=code["network"], run=run, **keys)
    call = f"vantage.resume({str(run)!r}, network=..., steps=128, extend_schedule=True)"
    assert str(error.value) == f"{run} exists; continue it with {call}, choose another run, or leave run out"
    assert vantage.resume(run, network=code["network"], steps=128, extend_schedule=True, progress=False).step == 128
    del keys["progress"]
    with vantage.Trainer("ppo", env=Bandit, run=tmp_path / "begun", **keys) as trainer:
        trainer.update()
    with pytest.raises(ConfigError, match=r"continue it with vantage\.resume\('[^']*begun'\), choose"):
        vantage.Trainer("ppo", env=Bandit, run=trainer.run, **keys)
    for key in ("overwrite", "resume", "reset_num_timesteps"):
        with pytest.raises(ConfigError, match=rf"{key} (is|has no counterpart).*(another run|vantage\.resume)"):
            vantage.train("ppo", env=Bandit, **{key: True})
