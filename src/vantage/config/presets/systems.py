"""Presets of public systems: their hyperparameters in Vantage's conventions (docs/systems.md).

Losses that a system sums over a rollout are means in Vantage. The steps of Adam and RMSProp do not
depend on the scale of gradients, but epsilon and the clipping norm do: they are divided by the
rollout's length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vantage.envs.ids import EnvId


@dataclass(frozen=True, slots=True)
class System:
    """A preset: its title, and its values for all environments (""), Atari or others, and one."""

    title: str
    layers: Mapping[str, Mapping[str, Any]]

    def values(self, env: EnvId) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in ("", "atari", env.atari.game) if env.atari else ("", "others", env.gym_id):
            values |= self.layers.get(name, {})
        return values


_A3C = {"algo": "a3c", "runtime": "hogwild", "envs_per_worker": 1, "rollout_length": 20,
        "memory": "lstm", "optimizer": "adam", "lr": 1e-4, "gamma": 0.99, "gae_lambda": 1.0,
        "entropy_coef": 0.01, "value_coef": 0.5}
_GOAL = {"stop_at_eval": 300}

SYSTEMS: Mapping[str, System] = {
    # grantsrb/PyTorch-A2C 3d0cfaa, training_scripts/hyperparams.json.
    "pytorch-a2c": System("grantsrb/PyTorch-A2C: synchronous, many rollouts an update", {
        "": {"algo": "a2c", "network": "mlp", "hidden": (256, 256), "activation": "relu",
             "init": "torch", "num_envs": 9, "rollouts_per_update": 5, "rollout_length": 12,
             "frame_stack": 3, "steps": 40_000_000, "optimizer": "rmsprop", "optimizer_eps": 1e-8,
             "lr": 1e-4, "gamma": 0.99, "gae_lambda": 0.98, "entropy_coef": 0.005,
             "value_coef": 1.0, "max_grad_norm": 0.5, "advantage_norm": True,
             "value_target": "return", "bptt": False},
        "atari": {"frame_skip": "2-4", "max_frames": 1, "noop_max": 0, "screen_size": 80,
                  "crop": "35,15,0,0"},
        "pong": {"action_subset": "FIRE,RIGHT,LEFT", "reward_terminates": True},
        "breakout": {"crop": "35,15,8,8", "screen_size": "80x72"},
        "vantage/Snake-v0": {"env_kwargs": '{"grid_size": 15, "unit_size": 4, "num_foods": 2}'}}),
    # dgriff777/rl_a3c_pytorch 4170f7d, main.py.
    "rl-a3c-pytorch": System("dgriff777/rl_a3c_pytorch: A3C with an LSTM on single frames", {
        "": {**_A3C, "network": "maxpool", "memory_size": 512, "steps": 40_000_000,
             "optimizer_eps": 5e-5, "max_grad_norm": 0, "reward": "clip", "image_norm": "global",
             "max_episode_steps": 10_000, "init": "columns"},
        "atari": {"crop": "rl-a3c-pytorch", "screen_size": 80, "max_frames": 3}}),
    # dgriff777/a3c_continuous ef12d86, main.py, with the 8 workers of its README's figures.
    "a3c-continuous": System("dgriff777/a3c_continuous: A3C with an LSTM for BipedalWalker", {
        "": {**_A3C, "num_workers": 8, "network": "mlp", "hidden": (320, 160),
             "activation": "leaky_relu", "memory_size": 160, "init": "kaiming", "std": "squashed",
             "squash_mean": True, "obs_norm": True, "reward_scale": 1.5, "reward_floor": -20,
             "steps": 20_000_000, "optimizer_eps": 5e-10, "gamma": 0.98, "gae_lambda": 0.8,
             "value_coef": 0.4, "max_grad_norm": 0, "eval_every_seconds": 60, "eval_episodes": 100},
        "BipedalWalker-v3": _GOAL, "BipedalWalkerHardcore-v3": _GOAL}),
    # alirezakazemipour/A3C-ACER-PyTorch f1620d7: training_configs.yml of main, and main.py of
    # ACER_Continuous.
    "a3c-acer-pytorch": System(
        "alirezakazemipour/A3C-ACER-PyTorch: ACER, discrete and continuous", {
        "": {"algo": "acer", "runtime": "hogwild", "envs_per_worker": 1, "lr": 1e-4,
             "optimizer": "adam", "optimizer_eps": 1e-8, "max_grad_norm": 40, "value_coef": 1.0,
             "trust_region": 1, "replay_ratio": 4, "replay_start": 0, "steps": 10_000_000},
        "atari": {"network": "nature", "frame_stack": 4, "stack_pad": "repeat", "reward": "sign",
                  "rollout_length": 20, "gamma": 0.99, "entropy_coef": 0.001, "truncation": 10,
                  "average_decay": 0.99, "replay_size": 600_000, "init": "kaiming"},
        "others": {"hidden": (256,), "activation": "relu", "separate": True, "rollout_length": 50,
                   "gamma": 0.9, "entropy_coef": 1e-4, "truncation": 5, "average_decay": 0.995,
                   "critic_samples": 5, "bounds_coef": 0, "std": "fixed", "log_std_init": -0.6,
                   "replay_size": 250_000, "reward_scale": 0.125}}),
    # The same, branches A3C_Atari and A3C_Continuous.
    "a3c-acer-pytorch-a3c": System("the same system's recurrent A3C, and its continuous one", {
        "": {"algo": "a3c", "runtime": "hogwild", "envs_per_worker": 1, "lr": 1e-4,
             "optimizer": "adam", "optimizer_eps": 1e-8, "max_grad_norm": 40, "gae_lambda": 1.0,
             "value_coef": 1.0, "steps": 10_000_000},
        "atari": {"network": "a3c", "frame_stack": 4, "stack_pad": "repeat", "memory": "lstm",
                  "bptt": False, "reward": "sign", "rollout_length": 40, "gamma": 0.99,
                  "entropy_coef": 0.01, "init": "xavier"},
        "others": {"num_workers": 2, "hidden": (256,), "activation": "relu", "separate": True,
                   "rollout_length": 200, "gamma": 0.9, "entropy_coef": 1e-4, "std": "state",
                   "squash_mean": True}}),
    # yandexdataschool/Practical_RL 6f7fa8b, week06_policy_based/a2c-optional.ipynb.
    "practical-rl-a2c": System(
        "Practical_RL's A2C lesson: Nature network, 8 environments, 5 steps", {
        "": {"algo": "a2c", "network": "nature", "num_envs": 8, "rollout_length": 5,
             "frame_stack": 4, "stack_pad": "repeat", "steps": 10_000_000, "optimizer": "rmsprop",
             "optimizer_eps": 1e-5, "lr": "linear:7e-4:0", "gamma": 0.99, "gae_lambda": 1.0,
             "entropy_coef": 0.01, "value_coef": 0.5, "max_grad_norm": 0.5, "init": "orthogonal"},
        "atari": {"reward": "sign", "noop_max": 0, "random_start": 30}}),
    # andreimuntean/A3C 50a71b0, thread.py.
    "universe-a3c": System("andreimuntean/A3C: the universe starter agent's network", {
        "": {**_A3C, "network": "universe", "memory_size": 256, "steps": 50_000_000,
             "optimizer_eps": 5e-10, "max_grad_norm": 2, "init": "xavier"},
        "atari": {"reward": "sign", "screen_size": 47, "frame_skip": "2-4", "max_frames": 1,
                  "noop_max": 0},
        "pong": {"action_subset": "NOOP,RIGHT,LEFT"},
        "breakout": {"action_subset": "FIRE,RIGHT,LEFT"}}),
}
