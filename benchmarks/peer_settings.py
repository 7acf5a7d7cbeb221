"""PPO of Stable-Baselines3 and SBX with the settings of RL Baselines3 Zoo (hyperparams/ppo.yml at commit 00128b5).

Settings of older versions of an environment (LunarLander-v2, Hopper-v3, HalfCheetah-v3) hold for its newest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MUJOCO = {"n_envs": 1, "normalize": True, "steps": 1_000_000, "n_steps": 512, "wide": True}
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"n_envs": 8, "steps": 100_000, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8,
                    "gamma": 0.98, "n_epochs": 20, "learning_rate": "lin_0.001", "clip_range": "lin_0.2"},
    "Acrobot-v1": {"n_envs": 16, "normalize": True, "steps": 1_000_000, "n_steps": 256, "gae_lambda": 0.94,
                   "gamma": 0.99, "n_epochs": 4},
    "Pendulum-v1": {"n_envs": 4, "steps": 100_000, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9,
                    "n_epochs": 10, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True,
                    "sde_sample_freq": 4},
    "LunarLander-v3": {"n_envs": 16, "steps": 1_000_000, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98,
                       "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01},
    "Hopper-v5": {**_MUJOCO, "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-05,
                  "ent_coef": 0.00229519, "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99,
                  "max_grad_norm": 0.7, "vf_coef": 0.835671},
    "HalfCheetah-v5": {**_MUJOCO, "batch_size": 64, "gamma": 0.98, "learning_rate": 2.0633e-05,
                       "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92,
                       "max_grad_norm": 0.8, "vf_coef": 0.58096},
    "Pong": {"n_envs": 8, "steps": 10_000_000, "n_steps": 128, "n_epochs": 4, "batch_size": 256,
             "learning_rate": "lin_2.5e-4", "clip_range": "lin_0.1", "vf_coef": 0.5, "ent_coef": 0.01},
}
PEERS = {"sb3": tuple(ZOO), "sbx": tuple(name for name in ZOO if name != "Pong")}
"""The environments of each; SBX's PPO has no network for images."""


def peer_model(library: str, env: str, seed: int) -> tuple[Any, int, Callable[[int], Any]]:
    """A model that has learned nothing, the steps that it shall learn, and a maker of games to evaluate it."""
    from stable_baselines3.common.vec_env import VecNormalize

    settings = dict(ZOO[env])
    steps = settings.pop("steps")
    num_envs = settings.pop("n_envs")
    normalize = settings.pop("normalize", False)
    policy_options = _wide(library) if settings.pop("wide", False) else {}
    for name in ("learning_rate", "clip_range"):
        if isinstance(settings.get(name), str):
            settings[name] = _falling(float(settings[name].removeprefix("lin_")))
    if library == "sbx":
        import sbx

        settings.pop("use_sde", None)
        settings.pop("sde_sample_freq", None)
        ppo = sbx.PPO
    else:
        from stable_baselines3 import PPO as ppo
    envs = _environments(env, num_envs, seed)
    if normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    model = ppo("CnnPolicy" if env == "Pong" else "MlpPolicy", envs, seed=seed, device="cpu",
                policy_kwargs=policy_options, **settings)

    def make_evaluation(games: int) -> Any:
        evaluated = _environments(env, 4, games)
        if normalize:
            evaluated = VecNormalize(evaluated, training=False, norm_reward=False)
            evaluated.obs_rms = envs.obs_rms
        return evaluated

    return model, steps, make_evaluation


def _environments(env: str, num_envs: int, seed: int) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if env != "Pong":
        return make_vec_env(env, n_envs=num_envs, seed=seed)
    import ale_py  # registers the games  # noqa: F401

    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=num_envs, seed=seed), 4)


def _falling(start: float) -> Callable[[float], float]:
    """As the zoo's lin_: `start` times the share of steps that remain."""
    return lambda remaining: start * remaining


def _wide(library: str) -> dict[str, Any]:
    """The zoo's policy options for MuJoCo."""
    widths = {"pi": [256, 256], "vf": [256, 256]}
    if library == "sbx":
        import flax.linen

        return {"log_std_init": -2.0, "activation_fn": flax.linen.relu, "net_arch": widths}
    import torch

    return {"log_std_init": -2.0, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": widths}
