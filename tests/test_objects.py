"""Lambdas, closures, local classes, partials and objects of a script as arguments, in one process and in workers."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import gymnasium as gym
import pytest
import torch
from drawn import Drawn, Parts
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, TimeLimit
from tiny import Bandit
from torch import nn
from zygote import call

import vantage
from vantage.envs.make import make_single
from vantage.errors import ConfigError
from vantage.keys.fields import key
from vantage.keys.objects import ObjectName, folder_name, source_text
from vantage.runs.directory import directory_name

GENERAL = r"give vantage\.record a lambda as env, and build it with render_mode='rgb_array' in the lambda$"


class OwnWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper of the user's."""


class Sized(Bandit):
    """A bandit that takes an argument."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.obs_size = size


class Forgetful(Bandit):
    """Takes a render mode and does not keep it."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  as gymnasium has it

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()


class Linear(nn.Module):
    """A network with a width."""

    def __init__(self, shape: tuple[int, ...], width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], width)
        self.out_features = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def trained(path: Path, algorithm: Any = "a2c", **options: Any) -> dict[str, torch.Tensor]:
    """The weights of a short run of two environments."""
    values = {"num_envs": 2, "steps": 64, "threads": 1, "tensorboard": False, "eval_every": 0} | options
    config = vantage.configure(algorithm, **values)
    assert [report.step for report in vantage.Trainer(config, run=path)][-1] >= 64
    agent = vantage.load(path, checkpoint="latest", network=options.get("network"), algorithm=algorithm)
    return dict(agent.model.state_dict())


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def make_all(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Bandit] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def test_every_way_to_give_an_environment_trains_as_its_class_does(tmp_path: Path) -> None:
    class Local(Sized):
        """Not at the top level."""

    size = 3
    expected = trained(tmp_path / "class", env=Sized)
    for i, env in enumerate((lambda: Sized(size=size), lambda: Local(size), Local, partial(Sized, size=size))):
        assert_same(trained(tmp_path / str(i), env=env), expected)
    vectors = trained(tmp_path / "vector", env=make_all(2), num_envs=2)
    assert_same(trained(tmp_path / "vectors", env=lambda num_envs: make_all(num_envs)), vectors)


def test_a_built_environment_trains_as_its_class_does_and_stays_open(tmp_path: Path) -> None:
    class Closing(Bandit):
        closed = 0

        def close(self) -> None:
            Closing.closed += 1

    built = Closing()
    options = {"num_envs": 1, "eval_every": 32, "eval_episodes": 2}
    assert_same(trained(tmp_path / "built", env=built, **options), trained(tmp_path / "class", env=Bandit, **options))
    evaluated = Closing.closed  # copies, which are closed
    assert evaluated > 0
    trained(tmp_path / "again", env=built, num_envs=1)
    assert Closing.closed == evaluated


def test_a_function_may_set_its_own_render_mode() -> None:
    config = vantage.configure("a2c", env=lambda: gym.make("CartPole-v1", render_mode="rgb_array")).env
    envs = make_single(config, seed=0, stream=2)
    envs.reset()
    assert envs.render().shape == (400, 600, 3)
    envs.close()


@pytest.mark.parametrize(("env", "says"), [
    (lambda: gym.make("CartPole-v1"), r'env=lambda: gymnasium\.make\("CartPole-v1", render_mode="rgb_array"\)\)$'),
    (lambda: gym.make("FrozenLake-v1"), r'env=lambda: gymnasium\.make\("FrozenLake-v1", render_mode="rgb_array"\)\)$'),
    (lambda: Parts(), r'env=lambda: Parts\(render_mode="rgb_array"\)\)$'),
    (lambda: gym.make("FrozenLake-v1", is_slippery=False), GENERAL),
    (lambda: gym.make("CartPole-v1", max_episode_steps=7), GENERAL),
    (lambda: FlattenObservation(gym.make("CartPole-v1")), GENERAL),
    (lambda: TimeLimit(gym.make("CartPole-v1"), 7), GENERAL),
    (lambda: TimeLimit(OwnWrapper(gym.make("CartPole-v1").env), 500), GENERAL),
    (lambda: FlattenObservation(Parts()), GENERAL), (lambda: Drawn(), GENERAL),
    (lambda: Forgetful(), "keep it as self.render_mode")])
def test_an_object_without_pictures_is_told_how_to_build_the_same_with_them(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_single(vantage.configure("a2c", env=env).env, seed=0, stream=2)


def later() -> Any:
    return lambda: Bandit()


def forgets() -> None:
    Bandit()


@pytest.mark.parametrize(("env", "says"), [
    (lambda: Bandit, r"returns the class Bandit; write lambda: Bandit\(\)$"),
    (lambda num_envs: SyncVectorEnv, r"class SyncVectorEnv; write lambda num_envs: SyncVectorEnv\(num_envs\)$"),
    (lambda: later, r"returns the function later; write lambda: later\(\)$"),
    (later, "returns a function, which builds the environment; call it: give what this returns as env, or let this"),
    (forgets, r"returns None; is its return missing\?$")])
def test_a_function_that_returns_no_environment_is_named_with_what_to_write(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_single(vantage.configure("a2c", env=env).env, seed=0, stream=2, draws=False)


def test_a_function_that_returns_one_object_again_is_refused(tmp_path: Path) -> None:
    built = Bandit()
    with pytest.raises(ConfigError, match="env=<lambda> returns the same object every time"):
        trained(tmp_path / "run", env=lambda: built)


def test_an_evaluation_does_not_play_the_environment_that_training_plays(tmp_path: Path) -> None:
    built = Bandit()
    trainer = vantage.Trainer("a2c", env=lambda: built, num_envs=1, steps=64, eval_every=0, run=tmp_path / "run")
    trainer.update()
    with pytest.raises(ConfigError, match="close that one first"):
        trainer.evaluate(episodes=1)
    with pytest.raises(ConfigError, match="env=<Bandit> gives an object that another training"):
        vantage.Trainer("a2c", env=built, num_envs=1, run=tmp_path / "second")
    trainer.close()
    vector = make_all(2)
    for env in (lambda: built, lambda num_envs: vector):
        with pytest.raises(ConfigError, match="let it build a new one"):
            trained(tmp_path / "evaluated", env=env, num_envs=2, eval_every=32, eval_episodes=2)
    with vantage.Trainer("a2c", env=built, num_envs=1, eval_every=0, run=tmp_path / "second") as second:
        assert second.evaluate(episodes=1).episodes == 1  # of a copy


def test_a_function_may_return_the_same_module_again_which_is_copied(tmp_path: Path) -> None:
    built = Linear((1,), 7)
    before = built.layer.weight.clone()
    weights = trained(tmp_path / "run", env=Bandit, network=lambda shape: built, separate=True, lr=0.1)
    assert torch.equal(built.layer.weight, before)
    actor, critic = (bias for name, bias in weights.items() if "network.layer.bias" in name)
    assert not torch.equal(actor, critic)


def test_every_way_to_give_a_network_builds_it(tmp_path: Path) -> None:
    for i, network in enumerate((partial(Linear, width=7), lambda shape: Linear(shape, 7))):
        weights = trained(tmp_path / str(i), env=Bandit, network=network)
        assert {tensor.shape[-1] for name, tensor in weights.items() if "head.weight" in name} == {7}
    built = Linear((1,), 7)
    before = built.layer.weight.clone()
    weights = trained(tmp_path / "built", env=Bandit, network=built, lr=0)
    assert all(torch.equal(weight, before) for name, weight in weights.items() if "network.layer.weight" in name)
    assert torch.equal(built.layer.weight, before)
    with pytest.raises(ConfigError, match=r"network='<Linear>' cannot be used for observations \[1\]"):
        trained(tmp_path / "wrong", env=Bandit, network=Linear((9,)))


def test_a_subclass_of_a_function_trains_as_its_algorithm_does(tmp_path: Path) -> None:
    class MyPPO(vantage.PPO):
        """PPO by another name."""

    assert_same(trained(tmp_path / "own", MyPPO, env="CartPole-v1", steps=512),
                trained(tmp_path / "ppo", "ppo", env="CartPole-v1", steps=512))


@pytest.mark.parametrize("options", [{"algorithm": "ppo", "num_workers": 2}, {"algorithm": "a3c", "num_workers": 2},
                                     {"vector": "async"}], ids=["ranks", "a3c", "async"])
def test_workers_receive_objects(options: dict[str, Any], tmp_path: Path) -> None:
    class Local(Bandit):
        """Not at the top level."""

    size = 3
    network = partial(Linear, width=7)
    trained(tmp_path / "run", env=lambda: Local() if size else None, network=network, **options)


def test_what_a_script_defines_reaches_its_workers_which_do_not_import_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text('''
from __future__ import annotations

from dataclasses import dataclass

import vantage
from gymnasium.envs.classic_control import CartPoleEnv
from torch import nn


class Maze(CartPoleEnv):
    def __init__(self, size: int) -> None:
        super().__init__()


class Torso(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.out_features = nn.Linear(shape[0], 5), 5

    def forward(self, x):
        return self.layer(x)


Number = float


@dataclass(frozen=True)
class MyPPO(vantage.PPO):
    extra: Number = 0.5


size = 3
print(__name__)
for algorithm, options in ((MyPPO, {"num_workers": 2, "rollout_length": 16, "minibatch_size": 8}),
                           ("a3c", {"num_workers": 1}), ("a2c", {"vector": "async"})):
    config = vantage.configure(algorithm, env=lambda: Maze(size), network=Torso, steps=64, num_envs=2, threads=1,
                               tensorboard=False, eval_every=0, **options)
    for report in vantage.Trainer(config):
        pass
    agent = vantage.load(report.run, network=Torso, algorithm=algorithm, env=lambda: Maze(size))
    obs, _ = agent.make_env().reset()
    print(*str(report.run).split("/")[-2:], agent.act(obs)[0] in (0, 1))
''', encoding="utf-8")
    done = call([script], cwd=tmp_path)
    assert done.stdout.splitlines() == ["__main__", "Maze MyPPO-1 True", "Maze a3c-1 True", "Maze a2c-1 True"], \
        done.stderr


def test_a_lambda_has_the_directory_of_the_class_that_it_builds() -> None:
    class Local(Sized):
        """Not at the top level."""

    size = 3
    names = {"Sized": lambda: Sized(size=size), "Local": lambda: Local(size), "-lambda-": lambda: gym.make("Sized-v0")}
    for name, env in names.items():
        assert directory_name(folder_name(ObjectName("<lambda>", env))) == name.strip("-")
    assert folder_name("CartPole-v1") == "CartPole-v1"


def test_the_source_of_an_object_is_its_text() -> None:
    make = lambda: Sized(size=9)  # noqa: E731
    assert "Sized(size=9)" in (source_text(make) or "")
    assert (source_text(partial(Sized, size=9)) or "").startswith("class Sized")
    assert (source_text(Sized()) or "").startswith("class Sized")
    assert source_text(len) is None


def test_a_program_from_standard_input_trains_with_workers(tmp_path: Path) -> None:
    program = '''
import vantage
print(vantage.train("a3c", env="CartPole-v1", steps=64, num_workers=1, threads=1, eval_every=0, progress=False))
'''
    run = subprocess.run([sys.executable, "-"], input=program, cwd=tmp_path, capture_output=True,
                         text=True, check=False)
    assert (run.returncode, run.stdout[:6], run.stderr) == (0, "<Agent", "")


@pytest.mark.parametrize(("group", "name", "given", "flat"), [
    (vantage.EnvConfig, "env_kwargs", {"size": 3}, "env_kwargs"),
    (vantage.EnvConfig, "obs_as", {"camera": "image"}, "obs_as"),
    (vantage.EnvConfig, "id", Bandit, "env"),
    (vantage.PolicyConfig, "network", Linear, "network"),
    (vantage.PolicyConfig, "memory", None, "memory"),
    (vantage.PolicyConfig, "activation", nn.ReLU, "activation"),
    (vantage.OptimizerConfig, "optimizer", torch.optim.AdamW, "optimizer"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_group_of_keys_takes_the_objects_that_configure_takes(group: Any, name: str, given: Any, flat: str) -> None:
    config = vantage.configure("a2c", **{"env": Bandit, flat: given})
    assert getattr(group(**{name: given}), name) == config.flat()[flat]


class Word(str, enum.Enum):  # noqa: UP042  whose str() is not its text
    """A choice as an enum."""

    RELU = "relu"


@dataclass(frozen=True)
class OwnFields(vantage.A2C):
    """Has fields of types that no key of Vantage has."""

    bins: int | str = key(3, "a number or auto")
    target: float | str = key(0.5, "a number or auto")
    word: str = key(Word.RELU, "an enum")
    kind: Literal["mse", "huber"] = field(default="mse", metadata={"help": "a literal"})


def test_fields_of_an_own_algorithm_keep_their_values_and_an_enum_is_its_text() -> None:
    own = OwnFields()
    assert (own.bins, own.target, own.word, own.kind) == (3, 0.5, Word.RELU, "mse")
    assert vantage.PolicyConfig(activation=Word.RELU).activation == "relu"
    assert vantage.EnvConfig(env_kwargs=MappingProxyType({"a": 1})).env_kwargs == '{"a": 1}'  # type: ignore[arg-type]


def test_a_value_that_is_none_of_the_choices_is_refused_in_a_group_too() -> None:
    for group, name, value in ((vantage.EnvConfig, "reward", None), (vantage.PolicyConfig, "network", 3.5)):
        with pytest.raises(ConfigError, match=f"^{name}='{value}' is not one of "):
            group(**{name: value})
