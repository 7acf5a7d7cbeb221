"""An algorithm named by an import path: the example trains by the command, and what is no algorithm is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import random_rollout

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Needs, Reuse, Update
from vantage.cli import main
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.models.build import make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

EXAMPLE = Path(__file__).parents[2] / "examples" / "huber_a2c.py"


def test_the_example_trains_by_the_command_with_flags_of_its_own(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    train = ["train", "huber_a2c:HuberA2C", "--env", "CartPole-v1"]
    assert main([*train, "--huber-delta", "0.25", "--steps", "256", "--threads", "1", "--tensorboard", "false",
                 "--eval-every", "0"]) == 0
    directory = Path("runs/CartPole-v1/HuberA2C-1")
    config = json.loads((directory / "config.json").read_text())
    assert config["algorithm"]["huber_delta"] == 0.25 and "vtrace" not in config["algorithm"]
    assert main(["resume", str(directory), "--steps", "512", "--extend-schedule"]) == 0
    assert main([*train, "--vtrace"]) == 2
    assert "vtrace has no effect with huber_a2c:HuberA2C" in capsys.readouterr().err


def test_a_huber_critic_with_a_large_delta_is_a2c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    coefficients = {"gae_lambda": "0.9", "entropy_coef": "0.01"}
    own = Config.of("huber_a2c:HuberA2C").change(huber_delta=1e6, **coefficients)
    a2c = Config.of("a2c").change(**coefficients)
    spec = EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (2,)))
    model = make_model(a2c.policy, spec, critic="state")
    rollout = random_rollout(model, 5, 3)
    losses = [config.algorithm.loss(model, rollout, Update(0, 100))[0] for config in (own, a2c)]
    torch.testing.assert_close(*losses)


@dataclass(frozen=True)
class Tabled(A2C):
    """Fields of types that no key of Vantage has."""

    weights: dict[str, float] = field(default_factory=lambda: {"a": 1.0})
    stages: list[int] | None = field(default_factory=lambda: [1, 2])
    extra: Any = None


def test_tables_and_lists_of_an_algorithm_are_read_back() -> None:
    config = Config.of("test_own_algorithm:Tabled").change(stages=[3])
    assert Config.from_json(config.to_json(), source="here") == config
    assert vars(config.algorithm) | {"weights": {"a": 1.0}, "stages": [3]} == vars(config.algorithm)
    for extra in (5, [[3]], {"b": None}, "5", False):
        config = config.change(extra=extra)
        assert vars(Config.from_json(config.to_json(), source="here").algorithm)["extra"] == extra
    for wrong, says in (({"weights": 3}, 'weights=3 is not a JSON object such as {"a": 1}'),
                        ({"stages": "x"}, "stages='x' is not a list such as 1,2 or [1, 2] or none")):
        with pytest.raises(ConfigError, match=re.escape(says)):
            config.change(**wrong)


@pytest.mark.parametrize(("flag", "value", "taken"), [
    ("stages", "3,4", [3, 4]), ("stages", "3", [3]), ("stages", "[[3], 4]", [[3], 4]), ("stages", "none", None),
    ("weights", '{"b": 2}', {"b": 2}), ("extra", "[3, 4]", [3, 4]), ("extra", "3", "3"), ("extra", "none", None)])
def test_lists_and_tables_are_flags_too(flag: str, value: str, taken: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "test_own_algorithm:Tabled", "--env", "CartPole-v1"]
    assert main([*command, f"--{flag}", value, "--dry-run"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["algorithm"][flag] == taken
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert '--weights {"a": 1.0}' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, f"--{flag}", value, "--help-all"])
    assert "--weights JSON" in capsys.readouterr().out


@dataclass(frozen=True)
class Choosing(A2C):
    """A key with choices, declared by the metadata of its field alone."""

    mode: str = field(default="fast", metadata={"choices": ("fast", "slow")})


def test_choices_in_the_metadata_of_a_field_are_checked() -> None:
    config = Config.of("test_own_algorithm:Choosing")
    assert vars(config.change(mode="slow").algorithm)["mode"] == "slow"
    with pytest.raises(ConfigError, match="mode='slwo' is not one of fast, slow; did you mean slow"):
        config.change(mode="slwo")


@dataclass(frozen=True)
class Clashing(A2C):
    """A field with the name of the optimiser's learning rate."""

    lr: float = 1.0


@dataclass(frozen=True)
class Unfinished(A2C):
    """A field without a default."""

    extra: float = field(kw_only=True)


@dataclass(frozen=True)
class Forgetful(A2C):
    """An algorithm of minibatches without estimates."""

    @property
    def needs(self) -> Needs:
        return Needs(reuse=Reuse(1, 64))


@pytest.mark.parametrize(("path", "message"), [
    ("collections:OrderedDict", "collections:OrderedDict is not an algorithm: it lacks loss, needs, gamma"),
    ("test_own_algorithm:Clashing", "has a field lr, which is the name of another key; rename it"),
    ("test_own_algorithm:Unfinished", "has a field extra without a default; give it one"),
    ("test_own_algorithm:Forgetful", "lacks estimate")])
def test_what_is_no_whole_algorithm_is_refused_with_what_it_lacks(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        list(vantage.Trainer(vantage.configure(path, env="CartPole-v1"), run=tmp_path / "run"))


@dataclass(frozen=True)
class Broken(A2C):
    """A2C whose loss returns `result` of its own."""

    result: str = "loss"

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        loss, metrics = super().loss(model, rollout, update)
        return {"loss": loss, "vector": (loss.expand(2), metrics)}[self.result]


@pytest.mark.parametrize("result", ["loss", "vector"])
def test_a_loss_that_returns_anything_else_is_named(result: str, tmp_path: Path) -> None:
    config = vantage.configure("test_own_algorithm:Broken", env="CartPole-v1", result=result, threads=1)
    with pytest.raises(ConfigError, match="must return a scalar tensor and a mapping"):
        list(vantage.Trainer(config, run=tmp_path / "run"))


@dataclass(frozen=True)
class Declared(A2C):
    """A2C with coefficients of other types."""

    entropy_coef: str = "0.05"  # type: ignore[assignment]
    gamma: float = 0.5


def test_the_defaults_of_ones_own_algorithm_are_those_that_it_declares() -> None:
    config = vantage.configure("test_own_algorithm:Declared", env="LunarLander-v3")
    assert config.at("entropy_coef", 0) == 0.05
    assert config.at("gamma", 0) == 0.5
    of_a2c = vantage.configure("a2c", env="LunarLander-v3")
    assert config.algorithm.gae_lambda == of_a2c.algorithm.gae_lambda, "the rest is that of its base"
    assert config.optimizer == of_a2c.optimizer


PLAIN = """
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

import vantage
from vantage.algorithms.interface import Algorithm, Model, Needs, Update
from vantage.types import Rollout


@dataclass(frozen=True)
class Critic:
    gamma: float = 0.99
    scale: vantage.Coefficient = 1.0
    sizes: None | tuple[int, ...] = (1, 2)

    @property
    def needs(self) -> Needs:
        return Needs()

    def loss(self, model: Model, rollout: Rollout, update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        _, values = model.unroll(rollout.obs, rollout.is_first, rollout.state)
        return values.square().mean() * update.at(self.gamma) * update.at(self.scale), {}


@dataclass(frozen=True)
class Bold(vantage.PPO):
    gamma: float = 0.9
"""


def test_a_plain_dataclass_is_an_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_critic.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    keys: dict[str, Any] = {"env": "CartPole-v1", "scale": lambda progress: 1 - progress, "sizes": "3,4", "steps": 80,
                            "num_envs": 2, "rollout_length": 4, "eval_every": 0, "threads": 1, "tensorboard": False}
    config = vantage.configure("plain_critic:Critic", gamma="0.9", **keys)
    algorithm: Any = config.algorithm
    assert (algorithm.gamma, algorithm.sizes, config.at("scale", 20)) == (0.9, (3, 4), 0.75)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert (last.status, last.step) == ("done", 80)
    *_, last = vantage.Trainer.resume(tmp_path / "run", steps=160, extend_schedule=True)
    assert last.step == 160
    for wrong, says in (({"gamma": "linear:1:0"}, "gamma='linear:1:0' is not a number"),
                        ({"gamma": float("nan")}, "gamma=nan is not finite"),
                        ({"sizes": "x"}, "sizes='x' is not a list"), ({"scale": True}, "scale=True is not")):
        with pytest.raises(ConfigError, match=says):
            config.change(**wrong)


def test_users_programs_pass_mypy_and_typed_groups_are_checked(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLAIN + """
algorithm: Algorithm = Critic(gamma=0.98)
config = vantage.configure(Critic, env="CartPole-v1", lr=lambda progress: 1e-3 * (1 - progress), hidden=[64, 64])
reveal_type(vantage.PPO().clip)
reveal_type(vantage.PPO().epochs)
reveal_type(config.policy.hidden)
reveal_type(Bold().gamma)
agent = vantage.train(vantage.PPO(gamma=0.98), vantage.RunConfig(steps=1_000), env="CartPole-v1")
trainer = vantage.Trainer(vantage.PPO(), vantage.EnvConfig(num_envs=4), env="CartPole-v1", steps=1_000)
report = trainer.update()
reveal_type(config.algorithm)
reveal_type(config.env)
reveal_type(config.env.num_envs)
reveal_type(agent)
reveal_type(report.metrics)
reveal_type(trainer.lr)
trainer.lr = trainer.lr / 2
vantage.RunConfig(step=1_000)  # type: ignore[call-arg]  # which is unused, and an error, where nothing checks it
vantage.PPO(gama=0.9)  # type: ignore[call-arg]
""")
    # Modules that take most of the time and are not at issue.
    skipped = ("torch numpy gymnasium jaxtyping vantage.envs vantage.learning vantage.models vantage.runs "
               "vantage.runtimes vantage.tools")
    modules = ",".join(f"{name},{name}.*" for name in skipped.split())
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{modules}]\nfollow_imports = skip\n"
                                       "[mypy-vantage.models.config,vantage.learning.config,vantage.envs.config,"
                                       "vantage.runtimes.trainer]\nfollow_imports = normal\n")
    result = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "own.py"], cwd=tmp_path,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    revealed = re.findall('Revealed type is "(.*)"', result.stdout)
    algorithms = "vantage.algorithms.interface"
    assert revealed == [
        "float | vantage.keys.schedules.Schedule", "int", "tuple[int, ...]", "float",
        f"{algorithms}.Algorithm | {algorithms}.MinibatchAlgorithm", "vantage.envs.config.EnvConfig", "int",
        "vantage.agents.agent.Agent", "typing.Mapping[str, float]", "float"]
