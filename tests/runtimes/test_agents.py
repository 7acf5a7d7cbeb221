"""Trainings with several agents that share one policy, under every runtime, and what follows them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pettingzoo_envs import Relay
from safetensors.torch import load_file

import vantage
from vantage.errors import ConfigError
from vantage.runtimes.acting_state import all_tensors
from vantage.runtimes.actor_learner import ActorLearner

RELAY = "pettingzoo_envs:Relay"
SMALL: dict[str, Any] = {"num_envs": 2, "hidden": "8", "rollout_length": 8, "threads": 1, "eval_every": 0}
QUICK: dict[str, Any] = {**SMALL, "steps": 240}  # five updates of 2 copies x 3 agents x 8 steps


def tensors_of(run: Path) -> dict[str, Any]:
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    return {f"{file.name}/{name}": tensor for file in sorted(newest.glob("*.safetensors"))
            for name, tensor in load_file(file).items()}


def test_agents_learn_one_policy_and_evaluations_count_each_of_them(tmp_path: Path) -> None:
    agent = vantage.train("ppo", env=lambda: Relay(), run=tmp_path / "run", num_envs=4, hidden="16", rollout_length=32,
                          minibatch_size=32, lr=5e-3, steps=5_000, threads=1, eval_every=0, progress=False)
    result = vantage.evaluate(agent, episodes=30)
    assert sorted({*result.returns}) == [2, 3, 4]
    assert result.return_mean == pytest.approx(3, abs=0.2)
    action, _ = agent.act(np.array([1, 0, 0], np.float32))
    assert action == 1
    loaded = vantage.load(tmp_path / "run", env=Relay)
    assert vantage.evaluate(loaded, episodes=30).returns == result.returns
    with pytest.raises(ConfigError, match="several agents is no gymnasium"):
        agent.make_env()


class Unequal(Relay):
    """Pays agent c alone: 9 in each of 4 steps."""

    def step(self, actions: Any) -> Any:
        infos = super().step(actions)[4]
        over = self.t >= 4
        self.agents = [] if over else self.possible_agents[:]
        everyone = dict.fromkeys(self.possible_agents, np.zeros(3, np.float32))
        return everyone, {"a": 0, "b": 0, "c": 9}, dict.fromkeys(everyone, over), dict.fromkeys(everyone, False), infos


def test_evaluations_play_as_many_games_of_each_agent(tmp_path: Path) -> None:
    with vantage.Trainer("a2c", env=Unequal, run=tmp_path / "run",
                         **{**QUICK, "eval_every": 96, "eval_episodes": 22, "stop_at_eval": 12}) as trainer:
        *_, report = trainer
    assert (report.step, report.metrics["eval/mean_reward"]) == (96, 12), "the goal is reached at once"
    agent = vantage.load(tmp_path / "run", env=Unequal)
    for episodes, games in {1: 3, 2: 3, 4: 6, 20: 21, 21: 21, 50: 51}.items():
        result = vantage.evaluate(agent, episodes=episodes)
        assert (result.episodes, result.return_mean) == (games, 12)


@pytest.mark.parametrize("env", [RELAY, Relay, Relay(), "lambda"])
def test_an_environment_may_be_an_id_a_class_an_object_or_a_callable(env: Any, tmp_path: Path) -> None:
    is_object = isinstance(env, Relay)
    trainer = vantage.Trainer("a2c", env=(lambda: Relay()) if env == "lambda" else env, run=tmp_path / "run",
                              **{**QUICK, "num_envs": 1 if is_object else 2, "norm": "none"})
    with trainer:
        report = trainer.update()
        assert report.step == 8 * 3 * (1 if is_object else 2)
        assert {episode.length for episode in report.episodes} == {2, 3, 4}


@pytest.mark.parametrize(("algo", "options"), [
    ("a2c", {}), ("ppo", {"memory": "gru"}), ("acer", {}), ("a2c", {"curiosity": "rnd"}),
    ("ppo", {"curiosity": "rnd"})])
def test_nothing_is_learned_from_the_rows_of_agents_that_have_left(algo: str, options: dict[str, Any]) -> None:
    """What stands in for their observations and actions could be anything: the update is the same bit for bit."""
    def updated(obs: float, action: int) -> dict[str, Any]:
        config = vantage.configure(algo, env=RELAY, seed=0, reward_norm=True, **SMALL, **options)
        with closing(ActorLearner(config)) as actor_learner:
            actor_learner.begin()
            (rollout,), _ = actor_learner.collect()
            left = rollout.is_first[:-1] & rollout.is_first[1:]
            assert left.sum() == 2 * (2 + 1)  # in each copy, a is away for two steps and b for one
            assert not (rollout.rewards[left].any() or rollout.valid[left].any())
            rollout.obs[:-1][left] = obs
            rollout.actions[left] = action
            for _ in actor_learner.updates([rollout], 0):
                pass
            groups = all_tensors(actor_learner)
            return {f"{group}/{name}": tensor for group in {"model", "optimizer", "curiosity"} & groups.keys()
                    for name, tensor in groups[group].items()}

    one, other = updated(7.0, 0), updated(-3.0, 1)
    assert len(one) > 4
    assert [name for name, tensor in one.items() if not tensor.equal(other[name])] == []


def test_curiosity_counts_the_observations_and_returns_of_agents_that_are_there() -> None:
    config = vantage.configure("ppo", env=RELAY, seed=0, curiosity="rnd", **SMALL)
    with closing(ActorLearner(config)) as actor_learner:
        actor_learner.begin()
        (rollout,), _ = actor_learner.collect()
        for _ in actor_learner.updates([rollout], 0):
            pass
        curiosity = actor_learner.learner.curiosity
    assert curiosity is not None
    # After the 8 steps of each copy, a is away three times, the last one in the second game, and b once.
    there = 2 * (3 * 8 - 3 - 1)
    counts = [round(float(stats.count)) for _, stats in curiosity.networks.critic.running_stats()]
    assert [*counts, round(float(curiosity.returns.count))] == [there] * 2


def test_a_resume_equals_never_having_stopped(tmp_path: Path) -> None:
    keys = {**QUICK, "reward_norm": True, "memory": "gru", "memory_size": 8, "progress": False}
    vantage.train("a2c", env=RELAY, run=tmp_path / "whole", **keys)
    vantage.train("a2c", env=RELAY, run=tmp_path / "parts", **{**keys, "steps": 96}, schedule_steps=240)
    vantage.resume(tmp_path / "parts", steps=240, progress=False)
    whole, parts = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert [name for name, tensor in whole.items() if not tensor.equal(parts[name])] == []


@pytest.mark.parametrize(("algo", "keys"), [
    ("ppo", {"num_workers": 2, "epochs": 1, "curiosity": "rnd"}), ("a3c", {"num_workers": 2}),
    ("acer", {"replay_start": 0}), ("ppo", {"env_kwargs": {"mask": "obs"}})])
def test_several_agents_train_under_other_runtimes_and_algorithms(algo: str, keys: dict[str, Any],
                                                                  tmp_path: Path) -> None:
    with vantage.Trainer(algo, env=RELAY, run=tmp_path / "run", **{**QUICK, **keys}) as trainer:
        *_, report = trainer
    assert report.status == "done"
    assert report.metrics["rollout/ep_len_mean"] == pytest.approx(3, abs=0.1)


def test_a_game_of_several_agents_is_recorded_and_its_score_is_their_mean(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    agent = vantage.train("ppo", env=RELAY, run=tmp_path / "run", progress=False, **{**QUICK, "steps": 48})
    recording = vantage.record(agent, tmp_path / "game.gif", episodes=2)
    assert (recording.frames, len(recording.scores)) == (10, 2)
    path = tmp_path / "games.safetensors"
    games = vantage.record_demonstrations(agent, path, episodes=3)
    assert games.lengths == (2, 2, 2)  # of the first agent
