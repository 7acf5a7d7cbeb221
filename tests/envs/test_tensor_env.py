"""Vector environments in tensors: their physics, their episodes, exact resumes, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import vantage
from vantage.envs.config import EnvConfig
from vantage.envs.make import make_environments
from vantage.errors import ConfigError, EnvError

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_vector_env.py"
SMALL: dict[str, Any] = {"num_envs": 4, "rollout_length": 8, "threads": 1, "tensorboard": False, "eval_every": 0,
                         "hidden": "8", "seed": 0, "log_every_seconds": 1000, "lr": "1e-3"}


class Count:
    """Shows (episodes begun, steps of this one); pays the steps; ends after `length`, a third by a time limit."""

    def __init__(self, num_envs: int, length: int = 3, fault: str = "", kind: str = "box",
                 masked: bool = False) -> None:
        self.num_envs, self.length, self.fault, self.kind, self.masked = num_envs, length, fault, kind, masked
        box = spaces.Box(-10, 1000, (2,))
        self.single_observation_space: Any = box if kind != "dict" else spaces.Dict({
            "count": box, "place": spaces.Discrete(4, start=1), "eye": spaces.Box(0, 255, (12, 12, 3), np.uint8)})
        self.single_action_space: Any = spaces.Box(np.float32([0, 2]), np.float32([4, 3])) if kind == "actions" else (
            spaces.Discrete(2, start=5))
        self.t, self.episode = torch.zeros(num_envs), torch.zeros(num_envs)
        self.over = torch.zeros(num_envs, dtype=torch.bool)
        self.actions: list[Tensor] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None) -> Any:
        self.seeds.append(seed)
        self.t, self.episode = torch.zeros(self.num_envs), torch.full((self.num_envs,), float(seed or 0) % 7)
        self.over = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.observe(), self.info()

    def step(self, actions: Tensor) -> Any:
        assert isinstance(actions, Tensor)
        self.actions.append(actions)
        resetting = self.over
        self.t = torch.where(resetting, 0.0, self.t + 1)
        self.episode = self.episode + resetting
        ends, by_time = self.t >= self.length, torch.arange(self.num_envs) % 3 == 2
        self.over = ends
        rewards = self.t.clone()
        now = int(self.t[0]) == 2
        if self.fault == "nan" and now:
            rewards[1] = torch.nan
        answers = {"flags": (self.observe(), ends, ends, ends, {}),
                   "complex": (self.observe(), rewards + 0j, ends, ends, {}),
                   "flat flags": (self.observe(), rewards, ends[:, None].int(), ends, {}),
                   "dtype": (self.observe(), rewards, ends.int(), ends & by_time, {}),
                   "column": (self.observe(), rewards[:, None], ends, ends, {}),
                   "rsl": (self.observe(), rewards, ends.long(), {"time_outs": ends}),
                   "shape": (self.observe(), rewards[:1], ends, ends, {}),
                   "array": (self.observe(), rewards.numpy(), ends, ends, {}),
                   "device": (self.observe(), rewards.to("meta"), ends, ends, {}),
                   "obs": (self.t[:, None], rewards, ends, ends, {}),
                   "final": (self.observe(), rewards, ends, ends, {"final_obs": self.observe()})}
        if self.fault in answers and now:
            return answers[self.fault]
        return self.observe(), rewards, ends & ~by_time, ends & by_time, self.info()

    def close(self) -> None:
        """Nothing is open."""

    def info(self) -> dict[str, Any]:
        return {"action_mask": torch.tensor([[True, False]]).repeat(self.num_envs, 1)} if self.masked else {}

    def observe(self) -> Any:
        count = torch.stack([self.episode, self.t], 1)
        if self.kind == "dict":
            eye = torch.zeros(self.num_envs, 12, 12, 3, dtype=torch.uint8)
            eye[..., 1] = self.t.byte()[:, None, None]
            return {"count": count, "place": (self.t + 1).long(), "eye": eye}
        return count


class Saving(Count):
    """Can be saved."""

    def snapshot(self) -> dict[str, Tensor]:
        return {"t": self.t, "episode": self.episode, "over": self.over, "total": self.t.sum()}

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        self.t = snapshot["t"]
        self.episode = snapshot["episode"]
        self.over = snapshot["over"]


class Learnt(Count):
    """Observations and rewards are computed by a network, as by a world model."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.weight = torch.ones(1, requires_grad=True)

    def step(self, actions: Tensor) -> Any:
        obs, rewards, *ends = super().step(actions)
        return obs * self.weight, rewards * self.weight, *ends


class Half(Count):
    single_action_space = property(lambda self: None, lambda self, value: None)  # type: ignore[assignment]


def lists(num_envs: int) -> Any:
    """Returns arrays, and derives from nothing."""
    env = Count(num_envs)
    env.observe = lambda: np.zeros((num_envs, 2), np.float32)  # type: ignore[method-assign]
    return env


def made(name: str = "Count", num_envs: int = 3, *, evaluation: bool = False, **options: Any) -> Any:
    keys = {key: options.pop(key) for key in tuple(options) if key in EnvConfig.__dataclass_fields__}
    config = vantage.configure("a2c", env=f"{__name__}:{name}", env_kwargs=options, num_envs=num_envs, **keys).env
    return make_environments(config, seed=0, num_envs=num_envs, stream=0, evaluation=evaluation)


def test_the_examples_physics_are_those_of_gymnasiums_cart_pole_step_for_step(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    from torch_vector_env import TorchCartPole

    ours, theirs = TorchCartPole(3), [gym.make("CartPole-v1") for _ in range(3)]
    ours.reset(seed=0)
    for i, env in enumerate(theirs):
        env.reset(seed=i)
        env.unwrapped.state = ours.state[:, i].numpy().copy()
    generator, ends, over = np.random.default_rng(0), 0, [False] * 3
    for _ in range(1_010):
        # The third one is balanced by a rule, so that the limit of 500 steps ends its episodes.
        balance = int(3 * theirs[2].unwrapped.state[2] + theirs[2].unwrapped.state[3] > 0)
        actions = [*generator.integers(2, size=2).tolist(), balance]
        obs, rewards, terminated, truncated, _ = ours.step(torch.tensor(actions))
        for i, env in enumerate(theirs):
            if over[i]:
                env.reset()
                env.unwrapped.state = ours.state[:, i].numpy().copy()
                assert rewards[i] == 0 and not terminated[i] and not truncated[i]
                over[i] = False
                continue
            expected = env.step(actions[i])
            np.testing.assert_allclose(obs[i].numpy(), expected[0], rtol=1e-6, atol=1e-7)
            assert (float(rewards[i]), bool(terminated[i]), bool(truncated[i])) == expected[1:4]
            over[i] = bool(expected[2] or expected[3])
            ends += bool(expected[3])
    assert ends == 2, "episodes of 500 steps"


def test_the_example_trains_and_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    for name, steps in (("whole", 512), ("halves", 256)):
        config = vantage.configure("ppo", env=f"{EXAMPLE.stem}:TorchCartPole", steps=steps, **SMALL
                                   | {"minibatch_size": 16, "epochs": 2})
        *_, last = vantage.Trainer(config, run=tmp_path / name)
    assert last.metrics["rollout/ep_len_mean"] > 5
    *_, last = vantage.Trainer.resume(tmp_path / "halves", steps=512)
    whole, halves = (vantage.load(tmp_path / name, checkpoint="latest") for name in ("whole", "halves"))
    assert last.step == whole.step == 512
    assert all(torch.equal(part, halves.model.state_dict()[name]) for name, part in whole.model.state_dict().items())
    assert vantage.evaluate(tmp_path / "whole", episodes=4, checkpoint="latest").return_min >= 5
    env = whole.make_env()
    obs, _ = env.reset(seed=1)
    assert isinstance(obs, np.ndarray) and env.step(whole.act(obs)[0])[1] == 1.0


def test_observations_go_into_the_rollout_as_they_are_and_actions_arrive_as_tensors() -> None:
    envs = made(num_envs=3)
    seed = envs.restart(0).obs[0, 0].item()
    seen, terminated, is_first, lengths = [], [], [], []
    for _ in range(5):
        step = envs.step(torch.tensor([0, 1, 1]))
        assert all(isinstance(part, Tensor) for part in (step.obs, step.rewards, step.terminated, step.is_first))
        seen.append(step.obs[0].tolist())
        terminated.append(step.terminated.tolist())
        is_first.append(step.is_first[0].item())
        lengths += [(game.env, game.score, game.length) for game in step.episodes]
    assert seen == [[seed, 1], [seed, 2], [seed, 3], [seed + 1, 0], [seed + 1, 1]]
    assert terminated[2] == [True, True, False], "the third one reached a time limit"
    assert is_first == [False, False, False, True, False]
    assert lengths == [(env, 6.0, 3) for env in range(3)]
    assert envs._vector.actions[0].tolist() == [5, 6, 6]


def test_an_environment_that_computes_with_a_network_trains(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:Learnt", steps=60, **SMALL)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done"


def test_parts_images_masks_and_bounded_actions_are_converted() -> None:
    envs = made(kind="dict", masked=True)
    envs.restart(0)
    step = envs.step(torch.zeros(3, dtype=torch.int64))
    assert {name: (part.dtype, list(part.shape)) for name, part in step.obs.items()} == {
        "count": (torch.float32, [3, 2]), "place": (torch.float32, [3, 4]), "eye": (torch.uint8, [3, 3, 12, 12])}
    assert step.obs["place"][0].tolist() == [0, 1, 0, 0]
    assert (step.obs["eye"][:, 1] == 1).all() and not step.obs["eye"][:, 0].any()
    assert step.action_mask.tolist() == [[True, False]] * 3 and envs.spec.masked
    boxes = made(kind="actions", scale_actions=True)
    boxes.restart(0)
    boxes.step(torch.tensor([[0.0, 0.0], [-1.0, 1.0], [-9.0, 9.0]]))
    assert boxes._vector.actions[0].tolist() == [[2.0, 2.5], [0.0, 3.0], [0.0, 3.0]]


@pytest.mark.parametrize(("keys", "learnt"), [
    ({"reward": "clip"}, 1.0), ({"reward_scale": 0.5}, 1.5), ({"reward": "sign", "reward_scale": 4}, 4.0)])
def test_rewards_are_learnt_from_as_the_config_says_and_raw_in_evaluations(keys: Any, learnt: float) -> None:
    for evaluation in (False, True):
        envs = made(evaluation=evaluation, **keys)
        envs.restart(0)
        rewards = [envs.step(torch.zeros(3, dtype=torch.int64)).rewards[0].item() for _ in range(3)]
        assert rewards[2] == (3.0 if evaluation else learnt)


def test_a_snapshot_restores_what_can_be_saved_and_else_begins_anew() -> None:
    for name, is_exact in (("Saving", True), ("Count", False)):
        envs, other = made(name), made(name)
        envs.restart(0)
        for _ in range(5):
            step = envs.step(torch.zeros(3, dtype=torch.int64))
        first = other.reset(envs.snapshot())
        assert first.lost == (() if is_exact else (0, 1, 2))
        assert torch.equal(first.obs, step.obs) == is_exact
        assert is_exact != any("resumes are not exact" in note for note in envs.notes)
        if is_exact:
            following = [each.step(torch.zeros(3, dtype=torch.int64)) for each in (envs, other) for _ in range(3)]
            assert following[1].episodes == following[4].episodes != ()
            assert torch.equal(following[2].obs, following[5].obs)
    with pytest.raises(ConfigError, match="resume with the env and the num_envs"):
        made("Saving", num_envs=2).reset(envs.snapshot())


@pytest.mark.parametrize(("fault", "message"), [
    ("nan", r"environment 1 of .*episode 0, step 2\): reward nan is not finite after action 0"),
    ("dtype", r"terminated is torch.int32 of shape \(3,\); it must be torch.bool .*; return terminated\.bool\(\)$"),
    ("flags", r"rewards is torch\.bool of shape \(3,\); it must be real numbers .*\(3,\); return rewards\.float\(\)$"),
    ("complex", r"rewards is torch\.complex64 of shape \(3,\); it must be real numbers of shape \(3,\)$"),
    ("flat flags", r"terminated is torch\.int32 of .*; return terminated\.reshape\(3\)\.bool\(\)$"),
    ("column", r"rewards is .* of shape \(3, 1\); it must .*; return rewards\.reshape\(3\)$"),
    ("rsl", r"step\(\) returned \(observations, rewards, dones, extras\), as rsl_rl.* extras\['time_outs'\]"),
    ("shape", r"rewards is torch.float32 of shape \(1,\); it must be real numbers of shape \(3,\)"),
    ("array", r"rewards is .*; return a tensor of shape \(3,\)"),
    ("device", "rewards is on meta, the first observation was on cpu"),
    ("obs", r"the observation is torch.float32 of shape \(3, 1\); it must be real numbers of shape \(3, 2\)"),
    ("final", "info has final_obs.*SAME_STEP")])
def test_a_wrong_result_is_named_in_one_line(fault: str, message: str) -> None:
    envs = made(fault=fault)
    envs.restart(0)
    envs.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(EnvError, match=message) as error:
        envs.step(torch.zeros(3, dtype=torch.int64))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "keys", "message"), [
    ("lists", {}, "reset returned the observation .*return tensors, or make the class a gymnasium.vector.VectorEnv"),
    ("Half", {}, "single_action_space"), ("Count", {"frame_skip": 2}, "frame_skip has no effect"),
    ("Count", {"obs_shift": '{"": [1, 2]}'}, "obs_shift")])
def test_what_cannot_be_trained_on_is_refused(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, EnvError), match=message) as error:
        made(name, **keys)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("algo", "keys"), [
    ("acer", {"replay_start": 20, "replay_size": 500}), ("a2c", {"memory": "gru"})])
def test_replays_and_memories_train_on_it(algo: str, keys: dict[str, Any], tmp_path: Path) -> None:
    config = vantage.configure(algo, env=f"{__name__}:Saving", steps=160, **SMALL | keys)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done" and last.metrics["rollout/ep_rew_mean"] == 6.0
    with vantage.Trainer.resume(tmp_path / "run", steps=320, extend_schedule=True) as resumed:  # total has no axes
        assert resumed.step == last.step
