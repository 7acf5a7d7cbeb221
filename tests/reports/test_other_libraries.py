"""Calls of other libraries, answered with what they are called here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from tiny import Bandit

import vantage
from vantage.cli import main


def configure(**values: Any) -> vantage.Config:
    return vantage.configure("ppo", env="CartPole-v1", **values)


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
