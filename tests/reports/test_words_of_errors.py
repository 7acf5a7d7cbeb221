"""Errors of the command and of configure: a remedy that works when it is followed, in the words of who reads it."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import train_shortly
from gymnasium import spaces
from tiny import Bandit
from zygote import call

import vantage
from vantage.cli import main
from vantage.errors import with_keywords


def configure(**values: Any) -> vantage.Config:
    return vantage.configure("ppo", env="CartPole-v1", **values)


def test_classes_of_torch_are_taken_by_their_names() -> None:
    for activation, name in ((torch.nn.ReLU, "relu"), (torch.nn.Tanh(), "tanh"), (torch.relu, "relu"),
                             (torch.nn.functional.silu, "silu"), (torch.nn.ELU, "elu")):
        assert configure(activation=activation).policy.activation == name
    for optimizer, name in ((torch.optim.AdamW, "AdamW"), (torch.optim.Adam, "adam"), (torch.optim.RMSprop, "rmsprop")):
        assert configure(optimizer=optimizer).optimizer.optimizer == name


@pytest.mark.parametrize(("key", "value", "message", "remedy"), [
    ("lr", Bandit.obs, "lr=obs raised AttributeError at progress 0: .*lambda progress: 1e-3",
     lambda progress: 1e-3 * (1 - progress)),
    ("entropy_coef", lambda progress: "x", "entropy_coef=<lambda> returned 'x' at progress 0; return", lambda _: 0.01),
    ("clip", lambda progress: 0.5 - progress, "clip=curve from 0.5 to -0.5 is below 0", lambda progress: 0.5),
    ("activation", torch.nn.LeakyReLU, "LeakyReLU; give tanh, .*leaky_relu has slope 0.25 below 0", "leaky_relu"),
    ("activation", torch.nn.GELU, "activation is GELU; give tanh, relu", "relu"),
    ("activation", torch.nn.ELU(2.0), "activation is ELU; give tanh", "elu"),
    ("optimizer", Bandit, "optimizer is a Bandit; give a name such as adam, or a class of torch.optim", "adam"),
    ("optimizer", torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]), "without arguments", torch.optim.AdamW),
    ("norm", torch.nn.LayerNorm, "norm is the type LayerNorm", "layer"),
])
def test_the_remedy_for_a_class_or_function_works(key: str, value: Any, message: str, remedy: Any) -> None:
    with pytest.raises(vantage.ConfigError, match=message) as error:
        configure(**{key: value})
    assert "\n" not in str(error.value)
    configure(**{key: remedy})


@pytest.mark.parametrize("name", ["progress_remaining", "remaining", "left", "p_left"])
def test_a_schedule_of_what_remains_is_refused(name: str) -> None:
    falling = eval(f"lambda {name}: 1e-3 * {name}")
    message = f"lr=<lambda>: its parameter {name} receives the progress, which rises from 0 to 1; write"
    with pytest.raises(vantage.ConfigError, match=message):
        configure(lr=falling)
    assert configure(lr=lambda progress: 1e-3 * (1 - progress)).at("lr", 0) == 1e-3


def test_a_config_says_where_a_key_is() -> None:
    config = configure()
    for name, message in (("lr", r"write config\.optimizer\.lr$"),
                          ("rollout_length", r"config\.runtime\.rollout_length"),
                          ("n_steps", "n_steps is rollout_length")):
        with pytest.raises(AttributeError, match=message):
            getattr(config, name)
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config


def test_env_kwargs_name_what_json_cannot_hold() -> None:
    with pytest.raises(vantage.ConfigError, match=r"env_kwargs\['goal'\] has a ndarray, .*tolist"):
        configure(env_kwargs={"size": 3, "goal": np.zeros(2)})
    with pytest.raises(vantage.ConfigError, match=r"env_kwargs\['make'\] has a function"):
        configure(env_kwargs={"make": test_env_kwargs_name_what_json_cannot_hold})
    config = configure(env_kwargs={"goal": np.zeros(2).tolist(), "size": np.int64(3), "mass": np.float32(0.5)})
    assert config.env.env_options == {"goal": [0.0, 0.0], "size": 3, "mass": 0.5}


class Bounded(Bandit):
    """Takes one argument."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()


@pytest.mark.parametrize("env", ["CartPole-v1", f"{__name__}:Bounded"])
def test_a_time_limit_in_env_kwargs_points_at_its_key(
        env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "a2c", "--env", env, "--env-kwargs", '{"max_episode_steps": 50}', "--run", run]) == 2
    assert "give --max-episode-steps" in capsys.readouterr().err
    config = vantage.configure("a2c", env=env, env_kwargs={"max_episode_steps": 50})
    with pytest.raises(vantage.ConfigError, match="give max_episode_steps"):
        next(vantage.Trainer(config, run=run))


def test_remedies_are_keywords_in_python_and_flags_in_the_command(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(vantage.ConfigError, match="give memory='lstm', gru or gtrxl"):
        vantage.configure("acer", env="CartPole-v1", burn_in=1)
    assert main(["train", "acer", "--env", "CartPole-v1", "--burn-in", "1", "--dry-run"]) == 2
    assert "give --memory lstm, gru or gtrxl" in capsys.readouterr().err
    run = train_shortly(tmp_path / "run", "CartPole-v1")
    with pytest.raises(vantage.ConfigError, match="give a larger total to go on, such as steps=800"):
        next(vantage.Trainer.resume(run))
    assert main(["resume", str(run)]) == 2
    assert "give a larger total to go on, such as --steps 800" in capsys.readouterr().err


def test_ipython_shows_an_error_in_two_lines_and_its_cause_in_three_more() -> None:
    line = "vantage.configure('ppo', env='CartPole-v1', lr='fast')  # of a cell"
    with pytest.raises(vantage.ConfigError) as raised:
        exec(compile(line, "<cell>", "exec"), {"vantage": vantage})
    where, what = raised.value._render_traceback_()
    assert where.startswith("line 1 of <cell>") and what.startswith("ConfigError: lr='fast' is not a schedule")
    error = vantage.EnvError("the environment failed")
    error.__cause__ = ValueError("no key")
    assert error._render_traceback_() == ["EnvError: the environment failed", "caused by:", "ValueError: no key"]


@pytest.mark.parametrize(("flags", "keywords"), [
    ("give --num-workers 1", "give num_workers=1"),
    ("lower --lr, --max-grad-norm 0.5", "lower lr, max_grad_norm=0.5"),
    ("--no-obs-norm", "obs_norm=False"),
    ("with `vantage resume RUN --steps 5`", "with `vantage resume RUN --steps 5`"),
    ("docker run --shm-size 1g", "docker run --shm-size 1g"),
    ("use --format safetensors", "use format='safetensors'"),
    ("give --min-std 1e-05 --hidden 64,64", "give min_std=1e-05 hidden='64,64'"),
    ("--lr piecewise:0=1e-3,50%=0; or", "lr='piecewise:0=1e-3,50%=0'; or"),
])
def test_flags_become_keywords(flags: str, keywords: str) -> None:
    assert with_keywords(flags) == keywords


@pytest.mark.parametrize(("env", "message"), [
    ("highway-v0", "highway-env: pip install highway-env, then give highway_env:highway-v0"),
    ("PyFlyt/QuadX-Hover-v4", "PyFlyt.gym_envs:"),
    ("SuperMarioBros-v0", "gym-super-mario-bros, which is for the old gym library"),
    ("procgen-coinrun-v0", "the package procgen"),
])
def test_ids_of_known_packages_have_a_hint(env: str, message: str) -> None:
    with pytest.raises(vantage.ConfigError, match="not a Gymnasium id") as error:
        vantage.configure("ppo", env=env)
    assert message in str(error.value)


def test_a_name_near_a_builtin_one_is_still_suggested() -> None:
    with pytest.raises(vantage.ConfigError, match="did you mean CartPole-v1"):
        vantage.configure("ppo", env="CartPol-v1")


class Changing(Bandit):
    """Its spaces are those of the class."""

    width, arms = 2, 2

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1, 1, (self.width,), np.float32)

    def obs(self) -> Any:
        return np.zeros(self.width, np.float32)


@pytest.mark.parametrize(("attribute", "value", "message"), [
    ("width", 5, r"its observations were vector \[2\] and are vector \[5\]"),
    ("arms", 4, r"its actions were discrete \[2\] and are discrete \[4\]")])
def test_changed_spaces_are_named_at_a_resume(attribute: str, value: int, message: str, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_shortly(tmp_path / "run", f"{__name__}:Changing")
    monkeypatch.setattr(Changing, attribute, value)
    with pytest.raises(vantage.ConfigError, match=message) as error:
        next(vantage.Trainer.resume(run, steps=1000))
    assert "edited" not in str(error.value)


NOISY = """
import atexit, ctypes, os
import gymnasium as gym
print("import")
C = ctypes.CDLL(None)
atexit.register(print, "exit")

def say(text):
    print(text)
    os.write(1, b"descriptor\\n")
    C.printf(b"from C\\n")

class Noisy(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        say("made")

    def reset(self, *, seed=None, options=None):
        say("reset")
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        say("step")
        return self.observation_space.sample() * 0, 1.0, True, False, {}
"""


def test_output_for_programs_holds_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    train_shortly(tmp_path / "run", "noisy:Noisy")

    def vantage_command(*words: str) -> str:
        done = call(["-m", "vantage", *words], cwd=tmp_path)
        return done.stdout

    dry = vantage_command("train", "a2c", "--env", "noisy:Noisy", "--steps", "80", "--dry-run")
    assert json.loads(dry)["env"]["id"] == "noisy:Noisy"
    assert json.loads(vantage_command("evaluate", "run", "--episodes", "2", "--json"))["return_mean"] == 1.0


def test_the_command_in_a_program_gives_its_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "a2c", "--env", "CartPole-v1", "--dry-run"]) == 0
    print("afterwards")
    out, err = capfd.readouterr()
    assert out.endswith("}\nafterwards\n") and json.loads(out.removesuffix("afterwards\n")) and err == ""


def test_an_environment_of_the_policy_refuses_the_tuple_that_act_returns(tmp_path: Path) -> None:
    with vantage.Trainer("ppo", env=Bandit, run=tmp_path / "run", steps=64, num_envs=2, threads=1,
                         tensorboard=False, eval_every=0) as trainer:
        trainer.log("mine", np.array([3.0]))
        assert trainer.update().metrics["mine"] == 3
        env = trainer.agent.make_env()
        obs, _ = env.reset(seed=0)
        with pytest.raises(vantage.ConfigError, match=r"write action, state = agent\.act\(obs, state\)"):
            env.step(trainer.agent.act(obs))
        assert env.step(trainer.agent.act(obs)[0])[2]


def test_an_action_may_be_a_tuple_of_numbers(tmp_path: Path) -> None:
    class Pair(Bandit):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.MultiDiscrete([3, 2])

        def play(self, action: Any) -> tuple[Any, bool]:
            return float(action[0]), True

    agent = vantage.train("ppo", env=Pair, run=tmp_path / "run", steps=64, num_envs=2, threads=1, tensorboard=False,
                          eval_every=0, progress=False)
    env = agent.make_env()
    env.reset(seed=0)
    assert env.step((2, 1))[1] == 2
