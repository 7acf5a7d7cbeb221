"""Errors of the command and of configure: a remedy that works when it is followed, in the words of who reads it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

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


@pytest.mark.parametrize(("call", "message"), [
    (lambda: vantage.PPO("MlpPolicy", Bandit()),  # type: ignore[arg-type]
     r"PPO\('MlpPolicy', \.\.\.\) is how .* write vantage\.train\(vantage\.PPO, env="),
    (lambda: vantage.PPO("MlpPolicy", env=Bandit),  # type: ignore[arg-type,call-arg]
     r"PPO\('MlpPolicy', \.\.\.\) is how .* write vantage\.train\(vantage\.PPO, env="),
    (lambda: vantage.PPO(n_steps=3),  # type: ignore[call-arg]
     r"PPO has no 'n_steps'; Stable-Baselines3's n_steps is rollout_length; .* give other keys to vantage\.train\("),
    (lambda: vantage.ACER(epoch=3), r"ACER has no 'epoch'; ACER holds only gamma"),  # type: ignore[call-arg]
    (lambda: vantage.configure("ppo", "MlpPolicy", env=Bandit),  # type: ignore[arg-type]
     "'MlpPolicy' is a policy of Stable-Baselines3; give network='mlp' instead"),
    (lambda: vantage.train("ppo", Bandit()), "Bandit.* is given by position; name it: env="),  # type: ignore[arg-type]
    (lambda: vantage.configure("ppo", Bandit()), "Bandit.* is given by position; name it: env="),  # type: ignore[arg-type]
    (lambda: vantage.configure("ppo"), "env is missing; give an environment"),
    (lambda: vantage.configure("ppo", env=[Bandit] * 2), "env is a list of 2; give one of them, .* num_envs=2"),
    (lambda: vantage.train("ppo", env=Bandit, network=torch.nn.Flatten, hidden=[32, 32]),
     r"hidden=32,32 has no effect with network=.*; leave it out"),
    (lambda: configure(network=torch.nn.Flatten, activation="relu"), "activation=relu has no effect with network="),
    (lambda: configure(hidden={"pi": [64], "vf": [64]}),
     "hidden is a mapping of pi, vf; .* the same sizes: give a list such as 64,64"),
    (lambda: configure(info_keywords=("is_success",)), "info_keywords is not needed: numbers in the last info"),
    (lambda: configure(callback=print), r"callback is the body of a loop over a `vantage\.Trainer`"),
    (lambda: configure(eval_env=Bandit), "eval_env is not needed: eval_every plays"),
    (lambda: configure(features_extractor_class=Bandit), "features_extractor_class is network: a class"),
    (lambda: configure(reset_num_timesteps=False), r"is `vantage\.resume` with the new total of steps"),
])
def test_calls_of_other_libraries_are_answered_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(vantage.ConfigError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("policy", "remedy"), [
    ("MlpPolicy", {"network": "mlp"}), ("CnnPolicy", {"network": "nature"}), ("MultiInputPolicy", {"network": "auto"}),
    ("MlpLstmPolicy", {"network": "mlp", "memory": "lstm"})])
def test_a_policy_of_stable_baselines_is_a_network_here(policy: str, remedy: dict[str, str]) -> None:
    with pytest.raises(vantage.ConfigError, match="is a policy of Stable-Baselines3; give ") as error:
        configure(network=policy)
    assert all(f"{key}={value!r}" in str(error.value) for key, value in remedy.items())
    configure(**remedy)


def test_a_config_says_where_a_key_is() -> None:
    config = configure()
    for name, message in (("lr", r"write config\.optimizer\.lr$"),
                          ("rollout_length", r"config\.runtime\.rollout_length"),
                          ("n_steps", "n_steps is rollout_length")):
        with pytest.raises(AttributeError, match=message):
            getattr(config, name)
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config


def test_an_algorithm_in_capitals_is_that_algorithm_and_says_how_it_is_trained() -> None:
    for name in ("A2C", "PPO", "ACER", "A3C"):
        assert vantage.configure(name, env=Bandit).algo == name.lower()
    with pytest.raises(AttributeError, match=r"PPO has no 'learn'; write agent = vantage\.train\(algorithm, env="):
        vantage.PPO().learn(1_000)  # type: ignore[attr-defined]
    assert not hasattr(vantage.A2C(), "estimate") and vantage.ACER().needs.replay is not None


class Misspelled(vantage.PPO):
    @property
    def needs(self) -> Any:
        return self.epocs  # type: ignore[attr-defined]


def test_an_error_within_a_property_of_ones_own_algorithm_is_its_own() -> None:
    with pytest.raises(AttributeError, match="'Misspelled' object has no attribute 'epocs'"):
        _ = Misspelled().needs


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
    with pytest.raises(vantage.ConfigError, match="no Gymnasium id") as error:
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


@pytest.mark.parametrize(("name", "answer"), [
    ("evaluate_policy", r"write vantage\.evaluate\(agent"), ("VecNormalize", "obs_norm=True, reward_norm=True"),
    ("make_vec_env", "env=lambda: MyEnv.., num_envs=8"), ("callbacks", r"a loop over a vantage\.Trainer"),
    ("PPOConfig", r"vantage\.configure"), ("Traner", "did you mean Trainer"), ("trian", "did you mean train")])
def test_the_module_answers_names_of_other_libraries_in_one_line(name: str, answer: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute {name!r}; .*{answer}") as error:
        getattr(vantage, name)
    assert "\n" not in str(error.value)
    assert not hasattr(vantage, name)
    with pytest.raises(ImportError, match=f"cannot import name {name!r} from 'vantage'; .*{answer}"):
        __import__("vantage", fromlist=[name])  # as `from vantage import NAME` does


@pytest.mark.parametrize(("args", "keys", "says"), [
    ((), {"n_eval_episodes": 5}, r"vantage\.evaluate has no argument 'n_eval_episodes'; give episodes$"),
    ((), {"episode": 5}, r"no argument 'episode'; did you mean episodes\?$"),
    ((), {"blorb": 5}, r"no argument 'blorb'; help\(vantage\.evaluate\) shows them$"),
    ((Bandit(),), {}, r"takes run by position and 2 values .*; name the others: episodes=\.\.\., .*, env=\.\.\.")])
def test_evaluate_names_its_arguments(args: tuple[Any, ...], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        vantage.evaluate("run", *args, **keys)


@pytest.mark.parametrize("kind", [vantage.PPO, vantage.A2C, vantage.ACER, Misspelled])
def test_the_class_of_an_algorithm_answers_methods_of_other_libraries(kind: Any) -> None:
    for owner in (kind, kind()):
        with pytest.raises(AttributeError, match=r"has no 'load'; write vantage\.load\(run\)"):
            _ = owner.load
    assert not hasattr(kind, "learn")


def test_a_zip_of_stable_baselines_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for member, words in (("policy.pth", "of Stable-Baselines3, whose weights docs/migrate-sb3.md shows how to load; "),
                          ("other", "is a zip file; give a run directory")):
        path = tmp_path / f"{member}.zip"
        with ZipFile(path, "w") as file:
            file.writestr(member, "")
        with pytest.raises(vantage.ConfigError, match=words):
            vantage.load(path)
        assert main(["evaluate", str(path)]) == 2 and words in capsys.readouterr().err
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 99  # the version that it takes to extract the file
    path.write_bytes(data)
    assert main(["evaluate", str(path)]) == 2 and "is a zip file; give a run" in capsys.readouterr().err


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
