"""Checks of the keys that a user gave: those that have no effect beside the others are refused."""

from __future__ import annotations

from collections.abc import Collection

from vantage.config.config import Config
from vantage.envs.ids import is_atari
from vantage.errors import ConfigError
from vantage.keys.objects import is_code
from vantage.keys.typed_values import in_short
from vantage.models.config import PolicyConfig


def check_flags(config: Config, flags: Collection[str]) -> None:
    """ConfigError for a flag that has no effect beside the others.

    Not for searches, which may vary the others.
    """
    flat = config.flat()
    without_effect = {**_network_keys_without_effect(config), **_other_keys_without_effect(config)}
    for key, reason in without_effect.items():
        if key in flags:
            value = flat[key] if isinstance(flat[key], bool) else in_short(flat[key])
            raise ConfigError(f"{key}={value} has no effect {reason}")


def _network_keys_without_effect(config: Config) -> dict[str, str]:
    """Keys of the network that have no effect in `config`, and why."""
    policy = config.policy
    reasons: dict[str, str] = {}
    if policy.init_from is not None:
        replaced = "beside init_from, whose weights the run begins with; leave it out"
        if policy.init != PolicyConfig.init:
            reasons["init"] = replaced
        if policy.log_std_init != PolicyConfig.log_std_init and policy.std != "fixed":
            reasons["log_std_init"] = replaced
    if policy.std != "free":
        reasons["std_lr_scale"] = f"with std={policy.std}; leave it out"
    if policy.distribution == "beta":
        no_deviation = "with distribution=beta, which has no deviation; leave it out"
        reasons |= dict.fromkeys(("std", "min_std", "std_lr_scale", "log_std_init"), no_deviation)
    if policy.memory == "none":
        no_memory = "without a memory; give --memory lstm, gru or gtrxl, or leave it out"
        reasons |= dict.fromkeys(("memory_size", "bptt"), no_memory)
    if policy.memory != "gtrxl":
        no_window = f"with memory={policy.memory}; give --memory gtrxl, or leave it out"
        reasons |= dict.fromkeys(("memory_window", "memory_layers", "memory_heads"), no_window)
    if policy.frame_stack == 1:
        reasons["stack_pad"] = ("on single observations; give a --frame-stack above 1, or leave "
                                "it out")
    layers = ("hidden", "activation")
    if is_atari(config.env.id):
        atari = "on Atari, with its images and discrete actions; leave it out"
        box_keys = ("scale_actions", "obs_norm", "distribution", "std", "min_std", "std_lr_scale",
                    "squash_mean", "log_std_init", "bounds_coef", "critic_samples")
        reasons |= dict.fromkeys(box_keys, atari)
        if policy.network != "mlp":
            reasons |= dict.fromkeys(layers, f"{atari}, or give --network mlp")
    if is_code(policy.network) or policy.network == "conv1d":
        own = f"with network={policy.network}, which has layers of its own; leave it out"
        reasons |= dict.fromkeys(layers, own)
    return reasons


def _other_keys_without_effect(config: Config) -> dict[str, str]:
    """Keys of other groups that have no effect in `config`, and why."""
    optimizer = config.optimizer.optimizer
    flat = config.flat()
    reasons: dict[str, str] = {}
    if not optimizer.startswith("rmsprop"):
        reasons["optimizer_decay"] = f"with optimizer={optimizer}; leave it out"
    if not flat.get("advantage_norm", True):
        reasons["advantage_norm_over"] = "with advantage_norm off; leave it out"
    if flat.get("truncation", 0) is None:
        reasons["bias_correction"] = "without a truncation; leave it out, or give --truncation"
    if config.exploration.curiosity == "none":
        without = "without curiosity; give --curiosity rnd, or leave it out"
        reasons |= dict.fromkeys(("intrinsic_coef", "intrinsic_gamma", "predictor_lr"), without)
    if config.cloning.demonstrations is None:
        no_demonstrations = "without demonstrations; give --demonstrations, or leave it out"
        reasons |= dict.fromkeys(("demo_coef", "demo_passes"), no_demonstrations)
    if not config.run.evaluates:
        without = "without evaluations during training; give --eval-every, or leave it out"
        reasons |= dict.fromkeys(("eval_episodes", "max_eval_share"), without)
    if config.env.self_play == 0:
        reasons["self_play_every"] = "without self-play; give --self-play 20, or leave it out"
    if flat.get("replay_ratio") == 0:
        no_replay = "without updates from the replay; leave it out"
        reasons |= dict.fromkeys(("replay_start", "replay_size", "replay_save_every", "burn_in"),
                                 no_replay)
    if reason := _why_no_short_episodes(config):
        reasons["short_episode_every"] = reason
        if config.env.short_episode_steps:
            reasons["short_episode_steps"] = reason
    return reasons


def _why_no_short_episodes(config: Config) -> str | None:
    env = config.env
    num_envs = env.num_envs or config.envs_per_process * config.runtime.num_workers
    if not env.short_episode_steps:
        return "without short episodes; give --short-episode-steps, or leave it out"
    if env.short_episode_every > num_envs > 0:  # 0 workers: as many as fit
        return f"with {num_envs} environments; give a --short-episode-every of at most that"
    if 0 < env.max_episode_steps <= env.short_episode_steps:
        return (f"with max_episode_steps={env.max_episode_steps}; give a smaller "
                "--short-episode-steps")
    return None
