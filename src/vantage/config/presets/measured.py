"""Default values by algorithm and environment, with their sources: measured, or derived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Defaults(NamedTuple):
    """Values and their source."""

    values: Mapping[str, Any]
    source: str


_VECTOR = {"optimizer": "adam", "optimizer_eps": 1e-5, "gae_lambda": 0.95, "entropy_coef": 0.0,
           "separate": True, "max_grad_norm": 0.5, "obs_norm": True, "reward_norm": True,
           "num_envs": 8, "rollout_length": 16, "lr": "linear:7e-4:0", "steps": 1_000_000,
           "scale_actions": True}
_ACER_VECTOR = {"num_envs": 8, "rollout_length": 16, "lr": "linear:1e-3:0", "optimizer_eps": 1e-5,
                "value_coef": 0.5}
_ACER_MEASURED = ("measured on CartPole-v1, Acrobot-v1, Pendulum-v1 and LunarLander-v3, "
                  "results/acer-*")
_AS_CLASSIC = "the values of classic control; not yet measured on these environments"

_TOY = {**_VECTOR, "obs_norm": False, "rollout_length": 32, "lr": "linear:3e-3:0",
        "entropy_coef": "piecewise:0=0.03,85%=0", "steps": 500_000}
# Rewards have a fixed scale: a running deviation would keep the falls and fines of the first policy
# for the whole run, and the cost of a step would vanish beside them. The entropy bonus first weighs
# as much as 3 to 5 of a raw reward. It ends slowly, so that the best noisy policy turns into the
# best one without noise.
_CLIFF = {"reward_norm": False, "reward_scale": 0.1, "entropy_coef": "piecewise:0=0.3,85%=0",
          "lr": "linear:1e-3:0", "rollout_length": 16, "steps": 150_000}
_TAXI = {"reward_norm": False, "reward_scale": 0.1, "entropy_coef": "piecewise:0=0.5,85%=0",
         "rollout_length": 16, "steps": 400_000}
_LAKE = {"reward_norm": False, "reward_scale": 10.0}

_LANDER = {"num_envs": 8, "rollout_length": 64, "lr": "linear:7e-4:0", "value_coef": 2.0,
           "reward_norm": False, "reward_scale": 0.02,
           "gae_lambda": "piecewise:0=0.8,20%=0.85,35%=0.95,45%=1", "steps": 1_000_000}
_ACER_LANDER = {"steps": 600_000, "gamma": 0.995, "reward_norm": True, "reward_scale": 1.0,
                "lr": "linear:5e-4:0"}

_EVERY = {
    "classic": Defaults(
        {**_VECTOR, "lr": "linear:1e-3:0", "steps": 300_000},
        "measured on CartPole-v1, results/a2c-CartPole-v1 and results/a3c-CartPole-v1"),
    "box2d": Defaults(
        {**_VECTOR, "num_envs": 16, "rollout_length": 32, "lr": "linear:1e-3:0", "steps": 2_000_000,
         "gamma": 0.99},
        "the values of classic control with a larger batch; not yet measured on these "
        "environments"),
    "mujoco": Defaults({**_VECTOR, "rollout_length": 32}, _AS_CLASSIC),
    "atari": Defaults(
        {"num_envs": 16, "rollout_length": 10, "frame_stack": 4, "network": "a3c", "reward": "sign",
         "optimizer": "adam", "steps": 10_000_000, "lr": "linear:5e-4:0", "gae_lambda": 0.95,
         "entropy_coef": 0.01, "save_every": 100_000, "memory": "lstm", "norm": "layer",
         "image_norm": "pixel", "image_norm_steps": 10_000},
        "measured on Pong and Breakout, results/a2c-Pong-pixel. Without pixel statistics, the "
        "critic learns nothing on Breakout; without layer normalisation, the ReLUs of the torso "
        "may die early (results/log/pong.md)"),
    "toy_text": Defaults(_TOY, "the values of FrozenLake8x8-v1, with normalised rewards; not yet "
                               "measured on others"),
    "other": Defaults(
        {**_VECTOR, "save_every": 100_000, "std_lr_scale": 20.0},
        f"{_AS_CLASSIC}. The deviation of Box actions has a larger learning rate, because clipped "
        "samples of a wide deviation push the mean beyond the bounds"),
    "CliffWalking-v1": Defaults(
        _CLIFF, "measured, results/a2c-CliffWalking-v1. With a smaller entropy bonus, the policy "
                "stays on a longer path, of 15 or 17 steps"),
    "Taxi-v4": Defaults(
        _TAXI, "measured, results/a2c-Taxi-v4. With a smaller entropy bonus, the policy never "
               "learns to pick up a passenger"),
    "FrozenLake-v1": Defaults(
        {**_LAKE, "steps": 100_000},
        "measured with is_slippery=False, results/a2c-FrozenLake-v1"),
    "FrozenLake8x8-v1": Defaults(_LAKE, "measured, results/a2c-FrozenLake8x8-v1"),
    "Pendulum-v1": Defaults(
        {"num_envs": 16, "rollout_length": 32, "lr": "linear:3e-3:0", "gamma": 0.99,
         "log_std_init": 0.0, "steps": 1_000_000, "advantage_norm": True,
         "distribution": "squashed", "entropy_coef": "piecewise:0=0.01,80%=0"},
        "compared with a2c on seven seeds, results/log/control.md. With a Gaussian some seeds "
        "never swing it up: their means lie beyond the bounds, where all samples are clipped to "
        "the same torque. Without an entropy bonus the noise of one seed in ten ends before it "
        "swings up"),
    "MountainCarContinuous-v0": Defaults(
        {"distribution": "squashed", "entropy_coef": "piecewise:0=0.01,80%=0"},
        "measured with a2c, results/a2c-MountainCarContinuous-v0. With a Gaussian the means of "
        "most seeds end beyond the bounds, at full torque in every step"),
    "MountainCar-v0": Defaults(
        {"num_envs": 16, "gae_lambda": 0.98, "entropy_coef": 0.01, "steps": 1_000_000},
        "measured, results/a2c-MountainCar-v0, results/a3c-MountainCar-v0 and "
        "results/ppo-MountainCar-v0"),
    "LunarLander-v3": Defaults(
        _LANDER,
        "measured over 1M steps, results/a2c-LunarLander-v3 and results/a3c-LunarLander-v3. "
        "gae_lambda starts low, because with long returns the policy first learns to hover. It "
        "rises once the policy lands, because the critic's bias would make it forget landing"),
    "LunarLanderContinuous-v3": Defaults(
        {**_LANDER, "gamma": 0.999, "distribution": "squashed",
         "entropy_coef": "piecewise:0=0.01,80%=0"},
        "measured, results/a2c-LunarLanderContinuous-v3 and results/a3c-LunarLanderContinuous-v3. "
        "With a smaller entropy bonus or a constant gae_lambda the policy hovers"),
    "Acrobot-v1": Defaults({"steps": 500_000}, "measured with a2c, results/a2c-Acrobot-v1"),
    "BipedalWalker-v3": Defaults(
        {"memory": "lstm", "memory_size": 128, "norm": "layer", "num_envs": 16,
         "rollout_length": 16, "gae_lambda": 0.9, "log_std_init": -0.5, "steps": 5_000_000},
        "measured with one worker, results/a3c-BipedalWalker-v3, and two, "
        "results/a3c-BipedalWalker-v3-workers"),
    "CarRacing-v3": Defaults({"save_every": 5_000},
                             "the values of Box2D, not yet measured. It saves more often, "
                             "because its steps are slow"),
}

_PPO_VECTOR = {"num_envs": 8, "rollout_length": 128, "epochs": 10, "minibatch_size": 64,
               "lr": "linear:1e-3:0"}
_PPO_LANDER = {"num_envs": 16, "epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
               "entropy_coef": 0.01, "value_coef": 0.5}

_PPO = {
    "classic": Defaults(_PPO_VECTOR,
                        "measured on three seeds, results/ppo-CartPole-v1 and "
                        "results/ppo-Pendulum-v1"),
    "box2d": Defaults(_PPO_VECTOR, _AS_CLASSIC),
    "other": Defaults({**_PPO_VECTOR, "std_lr_scale": 1.0}, _AS_CLASSIC),
    "toy_text": Defaults({"rollout_length": 128, "epochs": 4, "minibatch_size": 256,
                          "advantage_norm": False, "steps": 400_000},
                          "measured on CliffWalking-v1, Taxi-v4 and FrozenLake8x8-v1"),
    "CliffWalking-v1": Defaults({"steps": 150_000}, "measured"),
    "Taxi-v4": Defaults(
        {"entropy_coef": "piecewise:0=0.5,60%=0", "minibatch_size": 128, "steps": 300_000},
        "measured"),
    "FrozenLake-v1": Defaults({"steps": 100_000}, "measured with is_slippery=False"),
    "FrozenLake8x8-v1": Defaults(
        {"rollout_length": 32, "epochs": 1, "lr": "linear:1e-3:0", "steps": 800_000},
        "measured, results/ppo-FrozenLake8x8-v1. With more epochs, a larger learning rate or fewer "
        "steps, the policies of some seeds reach the goal in only 20% to 50% of the games"),
    "mujoco": Defaults({**_PPO_VECTOR, "lr": "linear:3e-4:0", "log_std_init": -1.0},
                       "compared on one seed of HalfCheetah-v5, Hopper-v5, Walker2d-v5 and Ant-v5, "
                       "results/log/control.md. With a learning rate of 1e-3, the entropy of "
                       "Hopper-v5 collapses"),
    "atari": Defaults({"num_envs": 32, "rollout_length": 32, "epochs": 2, "minibatch_size": 128,
                       "lr": "linear:7e-4:0", "gae_lambda": 0.9, "advantage_norm": False,
                       "optimizer_eps": 1e-5, "max_grad_norm": 0.5},
                      "measured on Breakout, results/log/breakout.md: 64 pixels, normalised "
                      "advantages, frames instead of an LSTM and minibatches of 256 learn more "
                      "slowly"),
    "Pendulum-v1": Defaults(
        # A deviation of 1 in the environment's units, half of the bounds.
        {"distribution": "gaussian", "log_std_init": -0.693, "gamma": 0.97, "max_kl": 0.03,
         "entropy_coef": 0.0},
        "compared on four seeds, results/log/control.md. Without max_kl, late updates of a KL "
        "divergence above 0.2 ruin the policy for a while"),
    "MountainCarContinuous-v0": Defaults(
        {"distribution": "gaussian", "num_envs": 16, "gamma": 0.999,
         "entropy_coef": "linear:0.05:0"},
        "measured on ten seeds, results/ppo-MountainCarContinuous-v0. Without an entropy bonus the "
        "cost of the engine ends the noise before the car has reached the flag"),
    "Acrobot-v1": Defaults({"steps": 300_000}, "measured on ten seeds, results/ppo-Acrobot-v1"),
    "LunarLander-v3": Defaults(_PPO_LANDER, "measured on ten seeds, results/ppo-LunarLander-v3"),
    "LunarLanderContinuous-v3": Defaults(
        {**_PPO_LANDER, "distribution": "gaussian", "entropy_coef": 0.0},
        "measured on ten seeds, results/ppo-LunarLanderContinuous-v3. With an entropy_coef of "
        "0.01 the deviation grows beyond the bounds, where it costs nothing"),
    "BipedalWalker-v3": Defaults(
        {"memory": "none", "norm": "none", "num_envs": 16, "rollout_length": 256, "epochs": 8,
         "minibatch_size": 128, "gae_lambda": 0.95, "lr": "linear:5e-4:0", "log_std_init": 0.0,
         "steps": 3_000_000},
        "measured on three seeds, results/ppo-BipedalWalker-v3"),
}

_A3C = {
    "atari": Defaults({"num_envs": 8, "lr": "linear:4e-4:0"},
                      "measured on Pong, two workers, results/a3c-Pong"),
    "MountainCarContinuous-v0": Defaults(
        {"entropy_coef": "piecewise:0=0.003,80%=0"},
        "measured on ten seeds, results/a3c-MountainCarContinuous-v0. With a bonus of 0.01 the "
        "actions of some seeds stay nearly uniform"),
}

_ACER = {
    **dict.fromkeys(("classic", "box2d"), Defaults(_ACER_VECTOR, _ACER_MEASURED)),
    "mujoco": Defaults(_ACER_VECTOR, _AS_CLASSIC),
    "other": Defaults({**_ACER_VECTOR, "std_lr_scale": 10.0}, _AS_CLASSIC),
    "atari": Defaults({"screen_size": "64", "memory": "none", "frame_stack": 4,
                       "rollout_length": 20},
                      "the values of Pong. Frames are stacked, because replayed states of an LSTM "
                      "are outdated"),
    "toy_text": Defaults({**_ACER_VECTOR, "lr": "linear:2e-3:0", "replay_start": 2_000,
                          "steps": 150_000},
                         "measured on CliffWalking-v1, Taxi-v4 and FrozenLake8x8-v1"),
    "CliffWalking-v1": Defaults({"lr": "linear:1e-3:0", "steps": 60_000}, "measured"),
    "Taxi-v4": Defaults({"steps": 120_000}, "measured"),
    "FrozenLake-v1": Defaults({"steps": 40_000}, "measured with is_slippery=False"),
    "FrozenLake8x8-v1": Defaults(
        {"num_envs": 4, "lr": "linear:1e-3:0", "gamma": 0.995,
         "entropy_coef": "piecewise:0=0.03,80%=0", "steps": 400_000},
        "measured. With larger batches or fewer steps, the policy reaches the goal in only a "
        "quarter of the games"),
    "CartPole-v1": Defaults({"steps": 100_000, "gamma": 0.995, "replay_start": 2_000},
                            "measured, results/acer-CartPole-v1. With a gamma of 0.99 the cart of "
                            "some seeds drifts to the edge within 500 steps"),
    "Acrobot-v1": Defaults({"steps": 200_000}, "measured, results/acer-Acrobot-v1"),
    "Pendulum-v1": Defaults({"steps": 400_000, "gamma": 0.97, "log_std_init": 0.0,
                             "distribution": "gaussian", "scale_actions": False,
                             "entropy_coef": 0.0},
                            "measured, results/acer-Pendulum-v1"),
    "MountainCarContinuous-v0": Defaults({"distribution": "gaussian", "entropy_coef": 0.0},
                                         "measured, results/acer-MountainCarContinuous-v0"),
    "LunarLander-v3": Defaults(
        {**_ACER_LANDER, "critic_lr_scale": 3.0},
        "measured, results/acer-LunarLander-v3. With a learning rate of 1e-3, and with a critic "
        "that learns no faster than the policy, some seeds land beside the pad and tip over"),
    "LunarLanderContinuous-v3": Defaults(
        {**_ACER_LANDER, "distribution": "gaussian", "entropy_coef": 0.0},
        "compared on one seed, results/log/control.md"),
    "BipedalWalker-v3": Defaults({"memory": "none", "norm": "none", "log_std_init": 0.0},
                                 "measured, results/acer-BipedalWalker-v3"),
    "Pong": Defaults({"steps": 1_000_000, "frame_stack": 2,
                      "entropy_coef": "piecewise:0=0.01,30%=0.007,55%=0.001,100%=0"},
                     "measured on three seeds, results/acer-Pong. With an entropy_coef of 0.01 "
                     "throughout, two seeds stay at returns of 7 and 17"),
}

MEASURED: Mapping[str, Mapping[str, Defaults]] = {
    "": _EVERY,
    "ppo": _PPO,
    "a3c": _A3C,
    "a3g": _A3C,
    "acer": _ACER,
}
"""By algorithm ("" for all), then by family or environment. Values of an environment replace those
of its family, and values of an algorithm those for all. `num_envs` is of a process that learns:
under hogwild and ray, of each worker."""
