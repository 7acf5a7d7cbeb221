"""`Trainer`: single updates, coefficients, metrics and evaluations of a training that a program steps itself."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tiny import Bandit
from trainers import SMALL, parameters, start, weights

import vantage
from vantage.cli import main
from vantage.errors import ConfigError
from vantage.runs.metrics import read_metrics


class Walk(gym.Env[Any, Any]):
    """Episodes of three steps; each step's info has what programs put there."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        info = {"reached": self.steps, "text": "end", "share": np.float64(0.5), "place": np.array([1, 2]),
                "picture": np.zeros((64, 64)), "unlike": object(), "episode": {"l": 3, "deep": {"x": 1}}}
        return np.zeros(1, np.float32), 1.0, self.steps == 3, False, info


LAST_INFO = {"reached": 3, "text": "end", "share": 0.5, "place": [1, 2], "episode": {"l": 3}}


def test_an_update_is_one_rollout_and_writes_no_line_of_metrics() -> None:
    with start("ppo") as trainer:
        reports = [trainer.update() for _ in range(3)]
        assert [report.step for report in reports] == [16, 32, 48] and trainer.step == 48
        assert reports[0].metrics["train/approx_kl"] != reports[1].metrics["train/approx_kl"]
        assert reports[2].metrics["rollout/ep_rew_mean"] == pytest.approx(
            np.mean([episode.score for report in reports for episode in report.episodes]))
        assert read_metrics(Path("run")) == []
    assert [line["step"] for line in read_metrics(Path("run"))] == [48]


def test_updates_are_those_of_a_training_that_is_iterated() -> None:
    with start(steps=64, run="stepped") as trainer:
        while trainer.status == "running":
            last = trainer.update()
    *_, other = start(steps=64, run="iterated")
    assert (last.status, last.step) == (other.status, other.step) == ("done", 64)
    assert torch.equal(weights("stepped"), weights("iterated"))


@pytest.mark.parametrize("keys", [{}, {"vector": "async", "num_envs": 1}])
def test_an_episode_has_what_is_small_in_its_last_info(keys: dict[str, Any]) -> None:
    with start(env=Walk, **keys) as trainer:
        episodes = trainer.update().episodes
    assert episodes and all(episode.length == 3 for episode in episodes)
    for episode in episodes:
        info = dict(episode.info)
        assert info.pop("place").tolist() == LAST_INFO["place"]
        assert info == {name: value for name, value in LAST_INFO.items() if name != "place"}


def test_episodes_of_a_vector_environment_have_their_part_of_its_info() -> None:
    with start(env="test_trainer:make_walks", num_envs=2) as trainer:
        episodes = trainer.update().episodes
    assert episodes and {episode.info["reached"] for episode in episodes} == {3}


def make_walks(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Environments in a vector of Gymnasium."""
    return gym.vector.SyncVectorEnv([Walk] * num_envs)


def update_until(trainer: vantage.Trainer, name: str, value: float) -> vantage.Report:
    """Update until all processes have logged `value`; the last report."""
    while True:
        report = trainer.update()
        if report.metrics[name] == pytest.approx(value, rel=1e-6, abs=1e-12):
            return report


@pytest.mark.parametrize("keys", [
    {}, {"num_workers": 2}, {"algo": "a3c", "num_workers": 2}, {"algo": "acer", "replay_start": 0}])
def test_a_coefficient_that_is_set_replaces_its_schedule_in_every_process_and_at_a_resume(
        keys: dict[str, Any]) -> None:
    with start(env=Walk, lr="linear:0.01:0", **keys) as trainer:
        trainer.update()
        assert 0 < trainer.lr <= 0.01
        trainer.lr = trainer.lr / 2
        update_until(trainer, "train/learning_rate", trainer.lr)
        trainer.lr = 0
        trainer.entropy_coef = np.float32(0.5)
        trainer.value_coef = lambda progress: 0.25  # type: ignore[assignment]
        report = update_until(trainer, "train/learning_rate", 0)
        assert report.episodes[0].info.get("reached") == 3
        before = parameters(trainer.agent)
        trainer.update()
        if keys.get("algo") != "a3c":  # the other worker may make an update more
            assert torch.equal(parameters(trainer.agent), before)
    config = json.loads(Path("run/config.json").read_text())
    assert float(config["optimizer"]["lr"]) == 0 and float(config["algorithm"]["entropy_coef"]) == 0.5
    if keys == {}:
        with vantage.Trainer.resume("run", steps=2 * 10**6) as trainer:
            assert (trainer.lr, trainer.entropy_coef, trainer.value_coef) == (0, 0.5, 0.25)
            assert trainer.update().metrics["train/learning_rate"] == 0
            trainer.gamma = 0.5
        config = json.loads(Path("run/config.json").read_text())
        assert (config["run"]["steps"], float(config["algorithm"]["gamma"])) == (2 * 10**6, 0.5)


OF_OPTIMIZER = {"lr": 2e-3, "max_grad_norm": 0.3, "optimizer_eps": 1e-3, "optimizer_decay": 0.9, "critic_lr_scale": 0.5}
OTHER_NUMBERS: dict[str, dict[str, float]] = {
    "a2c": {"gamma": 0.9, "gae_lambda": 0.8, "entropy_coef": 0.1, "value_coef": 0.7},
    "ppo": {"gamma": 0.9, "gae_lambda": 0.8, "entropy_coef": 0.1, "value_coef": 0.7, "epochs": 5, "minibatch_size": 4,
            "clip": 0.1, "value_clip": 0.01, "max_kl": 0.001},
    "acer": {"gamma": 0.9, "entropy_coef": 0.1, "value_coef": 0.7, "truncation": 1.5, "trust_region": 0.01,
             "average_decay": 0.5, "critic_samples": 2, "bounds_coef": 0.1, "burn_in": 0}}


@pytest.mark.parametrize(("algo", "workers"), [("a2c", 1), ("ppo", 2), ("acer", 1)])
def test_numbers_that_are_set_before_the_first_update_train_as_those_of_a_config(algo: str, workers: int) -> None:
    numbers = OTHER_NUMBERS[algo] | OF_OPTIMIZER
    own = {"env": "Pendulum-v1", "replay_start": 0} if algo == "acer" else {"env": Walk}
    keys = {"optimizer": "rmsprop", "obs_norm": False, "reward_norm": False, "init": "torch", **own}
    with start(algo, run="set", num_workers=workers, **keys) as trainer:
        assert trainer.config.settable().keys() == numbers.keys()
        for name, value in numbers.items():
            setattr(trainer, name, value)
        trainer.update()
        trainer.update()
    for run, others in (("configured", numbers), ("plain", {}))[:3 - workers]:
        with start(algo, run=run, num_workers=workers, **keys | others) as trainer:
            trainer.update()
            trainer.update()
    assert torch.equal(weights("set"), weights("configured"))
    if workers == 1:
        assert (weights("set") - weights("plain")).abs().max() > 1e-3
        with vantage.Trainer.resume("set") as trainer:
            assert {name: getattr(trainer, name) for name in numbers} == numbers


def test_a_change_that_no_checkpoint_has_is_not_in_the_config_either() -> None:
    trainer = start()
    trainer.lr = 0.5
    assert json.loads(Path("run/config.json").read_text())["optimizer"]["lr"] != "0.5"
    trainer.close()
    assert float(json.loads(Path("run/config.json").read_text())["optimizer"]["lr"]) == 0.5


def test_attributes_that_cannot_be_set_say_why() -> None:
    with start(optimizer="adam") as trainer:
        with pytest.raises(AttributeError, match="no 'entropy_coeff'; RLlib's entropy_coeff is entropy_coef"):
            trainer.entropy_coeff  # noqa: B018
        with pytest.raises(AttributeError, match="a trainer has no 'lrr'; did you mean lr"):
            trainer.lrr = 1
        with pytest.raises(AttributeError, match="num_envs is fixed for the run"):
            trainer.num_envs = 3
        with pytest.raises(AttributeError, match="step of a trainer cannot be set"):
            trainer.step = 3  # type: ignore[misc]
        with pytest.raises(ConfigError, match=r"gamma=2.* is above 1"):
            trainer.gamma = 2
        with pytest.raises(ConfigError, match=r"^gamma=.* is not a number, a schedule"):
            trainer.gamma = np.array([0.5, 0.5])  # type: ignore[assignment]
        with pytest.raises(ConfigError, match=r"optimizer_decay=.* has no effect with optimizer=adam"):
            trainer.optimizer_decay = 0.5
        assert trainer.gamma == 0.99
    with start("acer", run="acer") as trainer, pytest.raises(AttributeError, match="replay_size is fixed for the run"):
        trainer.replay_size = 3
    with start("ppo", run="ppo") as trainer:
        assert trainer.max_kl is None
        with pytest.raises(ConfigError, match=r"epochs=2\.5 is not a whole number"):
            trainer.epochs = 2.5


def test_an_agent_can_be_pickled_and_copied_and_a_trainer_says_why_it_cannot() -> None:
    with start() as trainer:
        trainer.update()
        agent = trainer.agent
        for other in (pickle.loads(pickle.dumps(agent)), copy.deepcopy(agent)):
            assert torch.equal(parameters(other), parameters(agent))
            assert str(other) == str(agent)
            assert other.act(np.zeros(1, np.float32), deterministic=True)[0] in (0, 1)
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="a Trainer cannot be copied or pickled"):
                copying(trainer)


def test_a_logged_value_is_in_the_next_report_and_in_the_next_line() -> None:
    with start() as trainer:
        trainer.log("my/metric", 1)
        trainer.log("my/metric", np.float32(2))
        assert trainer.update().metrics["my/metric"] == 1.5
        assert "my/metric" not in trainer.update().metrics
        trainer.log("my/metric", 6)
        with pytest.raises(ConfigError, match="the value of my/metric is 'x'"):
            trainer.log("my/metric", "x")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="'step' cannot name a metric"):
            trainer.log("step", 1)
        trainer.log("my/success_rate", 0.5)
    assert [line["my/metric"] for line in read_metrics(Path("run"))] == [3]
    assert [line["my/success_rate"] for line in read_metrics(Path("run"))] == [0.5]


def test_a_value_logged_while_iterating_joins_the_next_report() -> None:
    trainer = start(steps=48, log_every_seconds=0)
    values = []
    for report in trainer:
        values.append(report.metrics.get("my/step"))
        trainer.log("my/step", report.step)  # without effect after the last report
    assert trainer.status == "done"
    assert values == [None, 16, 32]


def test_evaluations_agents_and_saves_do_not_disturb_the_training() -> None:
    with start(steps=64, run="disturbed", memory="gru", memory_size=4) as trainer:
        trainer.update()
        result = trainer.evaluate(episodes=3)
        assert result.episodes == 3 and result.step == 16
        path = trainer.save()
        assert path == Path("disturbed/checkpoints/step-000000000016") and path.is_dir()
        agent = trainer.agent
        first = parameters(agent)
        list(trainer)
        assert torch.equal(first, parameters(agent))
    list(start(steps=64, run="alone", memory="gru", memory_size=4))
    assert torch.equal(weights("disturbed"), weights("alone"))


def test_an_evaluation_takes_no_text_for_a_flag() -> None:
    with start(steps=32, run="flag") as trainer:
        trainer.update()
        with pytest.raises(vantage.ConfigError, match="deterministic='no' is not True, False or None"):
            trainer.evaluate(episodes=1, deterministic="no")  # type: ignore[arg-type]


def test_the_agent_of_a_trainer_is_saved_and_loaded() -> None:
    with start("ppo", env="CartPole-v1") as trainer:
        trainer.update()
        agent = trainer.agent
    with pytest.raises(ConfigError, match=r"not end in \.safetensors; name it policy\.safetensors"):
        agent.save("policy.pt")
    same = vantage.load(agent.save("policy.safetensors"))
    obs = np.ones(4, np.float32)
    assert torch.equal(*(each.model.step(torch.ones(1, 4), torch.zeros(1, dtype=torch.bool), ())[0]
                         for each in (agent, same)))
    assert same.act(obs)[0] == agent.act(obs)[0]
    assert same.step == 16


@pytest.mark.parametrize(("name", "remedy"), [
    ("learning_rate", "Stable-Baselines3's learning_rate is lr"), ("ent_coef", "is entropy_coef"),
    ("learn", "write `for report in trainer`"), ("predict", r"write trainer\.agent\.act")])
def test_names_of_other_libraries_are_answered(name: str, remedy: str) -> None:
    with vantage.Trainer("a2c", env=Bandit, run="run", **SMALL) as trainer:
        with pytest.raises(AttributeError, match=remedy):
            getattr(trainer, name)
        with pytest.raises(AttributeError, match=remedy):
            setattr(trainer, name, 1e-3)
        agent = trainer.agent
    with pytest.raises(AttributeError, match=r"an agent has no 'predict'; write agent\.act\(obs\)"):
        _ = agent.predict
    with pytest.raises(AttributeError, match=r"an agent has no 'learn'; write vantage\.resume\(agent, steps=\.\.\."):
        _ = agent.learn


class Succeeding(Bandit):
    def step(self, action: Any) -> Any:
        *outcome, _ = super().step(action)
        return *outcome, {"is_success": bool(action), "place": np.zeros(2)}


def test_an_evaluation_has_the_infos_of_the_last_steps(capsys: pytest.CaptureFixture[str]) -> None:
    agent = vantage.train("a2c", env=Succeeding, run="run", **{**SMALL, "steps": 32})
    result = vantage.evaluate(agent, episodes=8, deterministic=False)
    successes = [info["is_success"] for info in result.infos]
    assert len(successes) == 8 and all(info["place"].shape == (2,) for info in result.infos)
    assert result.success_rate == np.mean(successes) and list(result.info_means) == ["is_success"]
    assert f", success rate {np.mean(successes):.3g}>" in repr(result)
    assert f"), success rate {np.mean(successes):.3g} over 8 games" in result.sentence()
    assert main(["evaluate", "run", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["infos"][0]["place"] == [0, 0]
