"""Presets of public systems: their hyperparameters in Vantage's conventions, and what had to be converted.

Each is a function of the environment, so that what a system chose by game is chosen here too. A preset is nothing but
ordinary options: `vantage train NAME --env ENV --dry-run` prints them, and any of them can be given otherwise.

Losses that a system sums over a rollout are means in Vantage: Adam's and RMSProp's steps do not change with the scale
of a gradient, but their epsilon and the norm that gradients are clipped to are divided by the rollout's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vantage.envs import EnvId


@dataclass(frozen=True, slots=True)
class System:
    """A preset: what it is, its values, and what is other than in the system."""

    title: str
    values: Callable[[EnvId], Mapping[str, Any]]
    notes: tuple[str, ...]


def pytorch_a2c(env: EnvId) -> dict[str, Any]:
    """grantsrb/PyTorch-A2C 3d0cfaa, training_scripts/hyperparams.json."""
    game = env.atari.game if env.atari else ""
    values = {"algo": "a2c", "network": "mlp", "hidden": "256,256", "activation": "relu", "init": "torch",
              "num_envs": 9, "rollouts_per_update": 5, "rollout_length": 12, "frame_stack": 3, "steps": 40_000_000,
              "optimizer": "rmsprop", "optimizer_eps": 1e-8, "lr": 1e-4, "gamma": 0.99, "gae_lambda": 0.98,
              "entropy_coef": 0.005, "value_coef": 1.0, "max_grad_norm": 0.5, "advantage_norm": True,
              "value_target": "return", "bptt": False}
    if env.atari:
        values |= {"frame_skip": "2-4", "max_frames": 1, "noop_max": 0, "screen_size": 80, "crop": "35,15,0,0"}
    if game == "pong":
        values |= {"action_subset": "FIRE,RIGHT,LEFT", "reward_terminates": True}
    if game == "breakout":
        values |= {"crop": "35,15,8,8", "screen_size": "80x72"}
    if env.name == "vantage/Snake-v0":
        values |= {"env_kwargs": '{"grid_size": 15, "unit_size": 4, "num_foods": 2}'}
    return values


def rl_a3c_pytorch(env: EnvId) -> dict[str, Any]:
    """dgriff777/rl_a3c_pytorch 4170f7d, main.py."""
    values = {"algo": "a3c", "runtime": "hogwild", "num_envs": 1, "rollout_length": 20, "network": "maxpool",
              "memory": "lstm", "memory_size": 512, "steps": 40_000_000, "optimizer": "adam", "optimizer_eps": 5e-5,
              "lr": 1e-4, "gamma": 0.99, "gae_lambda": 1.0, "entropy_coef": 0.01, "value_coef": 0.5,
              "max_grad_norm": 0, "reward": "clip", "image_norm": "global", "max_episode_steps": 10_000,
              "init": "columns"}
    if env.atari:
        values |= {"crop": "rl-a3c-pytorch", "screen_size": 80, "max_frames": 3}
    return values


def a3c_continuous(env: EnvId) -> dict[str, Any]:
    """dgriff777/a3c_continuous ef12d86, main.py, with the 8 workers of its README's figures."""
    return {"algo": "a3c", "runtime": "hogwild", "num_workers": 8, "num_envs": 1, "rollout_length": 20,
            "network": "mlp", "hidden": "320,160", "activation": "leaky_relu", "memory": "lstm", "memory_size": 160,
            "init": "kaiming", "std": "squashed", "squash_mean": True, "obs_norm": True, "reward_scale": 1.5,
            "reward_floor": -20, "steps": 20_000_000, "optimizer": "adam", "optimizer_eps": 5e-10, "lr": 1e-4,
            "gamma": 0.98, "gae_lambda": 0.8, "entropy_coef": 0.01, "value_coef": 0.4, "max_grad_norm": 0,
            "eval_every_seconds": 60, "eval_episodes": 100, "stop_at_eval": 300 if "Bipedal" in env.name else None}


def a3c_acer_pytorch(env: EnvId) -> dict[str, Any]:
    """alirezakazemipour/A3C-ACER-PyTorch f1620d7: training_configs.yml of main, or main.py of ACER_Continuous."""
    values = {"algo": "acer", "runtime": "hogwild", "num_envs": 1, "lr": 1e-4, "optimizer": "adam",
              "optimizer_eps": 1e-8, "max_grad_norm": 40, "trust_region": 1, "replay_ratio": 4, "replay_start": 0,
              "steps": 10_000_000}
    if env.atari:
        return values | {"network": "nature", "frame_stack": 4, "stack_pad": "repeat", "reward": "sign",
                         "rollout_length": 20, "gamma": 0.99, "entropy_coef": 0.001, "value_coef": 1.0,
                         "truncation": 10, "average_decay": 0.99, "replay_size": 600_000, "init": "kaiming"}
    return values | {"hidden": "256", "activation": "relu", "separate": True, "rollout_length": 50, "gamma": 0.9,
                     "entropy_coef": 1e-4, "value_coef": 1.0, "truncation": 5, "average_decay": 0.995,
                     "critic_samples": 5, "std": "fixed", "log_std_init": -0.6, "replay_size": 250_000,
                     "reward_scale": 0.125}


def a3c_acer_pytorch_a3c(env: EnvId) -> dict[str, Any]:
    """alirezakazemipour/A3C-ACER-PyTorch, branches A3C_Atari and A3C_Continuous."""
    values = {"algo": "a3c", "runtime": "hogwild", "num_envs": 1, "lr": 1e-4, "optimizer": "adam",
              "optimizer_eps": 1e-8, "max_grad_norm": 40, "gae_lambda": 1.0, "steps": 10_000_000}
    if env.atari:
        return values | {"network": "a3c", "frame_stack": 4, "stack_pad": "repeat", "memory": "lstm", "bptt": False,
                         "reward": "sign", "rollout_length": 40, "gamma": 0.99, "entropy_coef": 0.01,
                         "value_coef": 1.0, "init": "xavier"}
    return values | {"num_workers": 2, "hidden": "256", "activation": "relu", "separate": True, "rollout_length": 200,
                     "gamma": 0.9, "entropy_coef": 1e-4, "value_coef": 1.0, "std": "state", "squash_mean": True}


def practical_rl_a2c(env: EnvId) -> dict[str, Any]:
    """yandexdataschool/Practical_RL 6f7fa8b, week06_policy_based/a2c-optional.ipynb."""
    values = {"algo": "a2c", "network": "nature", "num_envs": 8, "rollout_length": 5, "frame_stack": 4,
              "stack_pad": "repeat", "steps": 10_000_000, "optimizer": "rmsprop", "optimizer_eps": 1e-5,
              "lr": "linear:7e-4:0", "gamma": 0.99, "gae_lambda": 1.0, "entropy_coef": 0.01, "value_coef": 0.5,
              "max_grad_norm": 0.5, "init": "orthogonal"}
    if env.atari:
        values |= {"reward": "sign", "noop_max": 0, "random_start": 30}
    return values


def universe_a3c(env: EnvId) -> dict[str, Any]:
    """andreimuntean/A3C 50a71b0, thread.py."""
    values = {"algo": "a3c", "runtime": "hogwild", "num_envs": 1, "rollout_length": 20, "network": "universe",
              "memory": "lstm", "memory_size": 256, "steps": 50_000_000, "optimizer": "adam", "optimizer_eps": 5e-10,
              "lr": 1e-4, "gamma": 0.99, "gae_lambda": 1.0, "entropy_coef": 0.01, "value_coef": 0.5,
              "max_grad_norm": 2, "init": "xavier"}
    if env.atari:
        subsets = {"pong": "NOOP,RIGHT,LEFT", "breakout": "FIRE,RIGHT,LEFT"}
        values |= {"reward": "sign", "screen_size": 47, "frame_skip": "2-4", "max_frames": 1, "noop_max": 0,
                   "action_subset": subsets.get(env.atari.game, "all")}
    return values


SYSTEMS: Mapping[str, System] = {
    "pytorch-a2c": System("grantsrb/PyTorch-A2C: synchronous, many rollouts an update", pytorch_a2c, (
        "45 rollouts an update from 11 processes are 5 from each of 9 environments here: which one fills which slot "
        "does not depend on timing",
        "its value error has no factor of one half: value_coef 1 is its 0.5",
        "its models: fc is this, with a ReLU after its last layer too; conv --network conv4; a3c --network a3c "
        "--detach-critic; gru --network conv5 --memory gru; gru-fc --memory gru; all with its h_size of 256, but for "
        "conv5's layer of 288; --bptt is its use_bptt",
        "its decays, which did nothing there: --lr linear:1e-4:1e-12 --entropy-coef linear:0.005:0.001 --gamma "
        "linear:0.99:0.995",
        "images are gray, Snake's in colour; it kept Pong's red channel as 0 and 1, and a number for each of Snake's "
        "colours; its grid_size, unit_size and n_foods, which did nothing there, are --env-kwargs",
        "FIRE is pressed and a lost life ends the return; --atari-protocol v5 does neither, and repeats one action in "
        "four by chance, as Pong-v0 did")),
    "rl-a3c-pytorch": System("dgriff777/rl_a3c_pytorch: A3C with an LSTM on single frames", rl_a3c_pytorch, (
        "losses are means, not sums over 20 steps: Adam's epsilon of 1e-3 is 5e-5",
        "the value loss has its 0.25 of the squared error, whatever its --value-coef said",
        "frames are normalised by what has been seen since the start, merged among workers and saved with the policy, "
        "not by each environment's last ten thousand",
        "every layer has normalised columns, as its heads: torch's own weights times √2, which its convolutions had, "
        "have a norm of 0.8 instead of 1",
        "the LSTM's state is kept when a life is lost; 0 to 29 no-ops instead of 1 to 30",
        "its options: --workers is --num-workers, --tau --gae-lambda, --amsgrad --optimizer amsgrad, "
        "--distributed-step-size --rollout-length 16,32,64, --shared-optimizer false --shared-statistics false, "
        "--gpu-ids 0 1 --device cuda:0,cuda:1")),
    "a3c-continuous": System("dgriff777/a3c_continuous: A3C with an LSTM for BipedalWalker", a3c_continuous, (
        "losses are means, not sums over 20 steps: Adam's epsilon of 1e-8 is 5e-10",
        "a time limit bootstraps, and a fall pays what the environment says, at least -20; there both paid -20",
        "all layers begin as Kaiming's over fan_in; the second had fan_out there, and the policy was orthogonal",
        "normalisers of all workers are merged and frozen in evaluation, not swapped through a file",
        "workers share the optimiser's statistics, as with --shared-optimizer in its README; without that, "
        "--shared-statistics false; --amsgrad is --optimizer amsgrad",
        "the value head has no hidden layer",
        "its CONV model is --network conv1d; its 20 and 100 games are --stop-at-eval 300 --eval-episodes 100")),
    "a3c-acer-pytorch": System("alirezakazemipour/A3C-ACER-PyTorch: ACER, discrete and continuous", a3c_acer_pytorch, (
        "its critic error has no factor of one half: value_coef 1 is its 0.5",
        "on images weights are Kaiming's, uniform instead of normal, and the heads' too, which were Xavier's; "
        "elsewhere they are orthogonal",
        "the average policy moves once an update, not once for each worker at each of them",
        "600,000 steps of replay are single frames here, 5 GB instead of 16; --replay-size makes it less",
        "the continuous critic's layers are 256 wide for the value and 64 for the advantage; there 128",
        "continuous actions keep their fractions, workers learn from fresh rollouts too, and rewards are divided by 8 "
        "without the 1 added")),
    "a3c-acer-pytorch-a3c": System("the same system's recurrent A3C, and its continuous one", a3c_acer_pytorch_a3c, (
        "rollouts are 80 over the number of workers there, 40 here as with two",
        "a layer of 256 stands between the convolutions and the LSTM; the continuous critic is 256 wide, there 128",
        "on images weights are Xavier's, as those of its LSTM and heads, and of the convolutions too, which were "
        "Kaiming's; the LSTM's forget gate begins at a bias of 1 instead of 0; elsewhere weights are orthogonal, where "
        "it had Kaiming's and in the heads Xavier's",
        "it learns single steps from stored states: --bptt backpropagates through the rollout")),
    "practical-rl-a2c": System("Practical_RL's A2C lesson: Nature network, 8 environments, 5 steps", practical_rl_a2c, (
        "its value error has no factor of one half: value_coef 0.5 is its 0.25",
        "random starts are those of its older version, 0 to 30, after a game's end alone")),
    "universe-a3c": System("andreimuntean/A3C: the universe starter agent's network", universe_a3c, (
        "losses are means, not sums over 20 steps: a gradient norm of 40 is 2 here",
        "the LSTM's state is carried from rollout to rollout, and a lost life goes on in the same game",
        "weights are Xavier's, those of the heads too, as there; of the LSTM each gate's by itself, there all as one "
        "matrix, so that they are larger here",
        "its convolutions have no padding and ReLU; the network here is universe-starter-agent's own, with padding and "
        "ELU", "FIRE is pressed, and no action is repeated by chance; Pong-v0 repeated one in four",
        "workers share memory instead of a parameter server")),
}
