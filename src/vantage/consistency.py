"""Which values of a config go together, and which would have no effect: said before anything is built."""

from __future__ import annotations

from collections.abc import Collection

from vantage.config import OPTIMIZERS, Config
from vantage.errors import ConfigError

_REPLAY = ("replay_size", "replay_start", "replay_ratio", "replay_save_every", "truncation", "bias_correction",
           "trust_region", "average_decay", "critic_samples", "burn_in")


def without_effect(algo: str, runtime: str) -> dict[str, str]:
    """Keys that nothing would come of, and what they are for."""
    keys = {} if algo == "acer" else dict.fromkeys(_REPLAY, "acer")
    if algo == "acer":
        keys |= dict.fromkeys(("gae_lambda", "value_target", "advantage_norm", "vtrace"), "a2c, a3c and a3g")
    if runtime == "hogwild":
        keys["replay_save_every"] = "acer under runtime=sync"
    else:
        keys |= dict.fromkeys(("shared_statistics", "lock", "env_timeout", "max_restarts"), "runtime=hogwild")
        if algo == "acer":
            keys["num_workers"] = "a2c, and runtime=hogwild"
    return keys


def check_effect(config: Config, given: Collection[str]) -> None:
    """ConfigError where a key that was `given` would do nothing."""
    for key, meant_for in without_effect(config.algo, config.runtime).items():
        if key in given and getattr(config, key) != getattr(Config(), key):
            raise ConfigError(f"{key} has no effect on {config.algo} under runtime={config.runtime}: it is for "
                              f"{meant_for}")


def check_flags(config: Config, flags: Collection[str]) -> None:
    """ConfigError where a flag, by its key, does nothing beside the others. In a sweep of those it may in some runs."""
    idle = {} if config.memory != "none" else dict.fromkeys(("memory_size", "bptt"),
                                                            "without a memory; give --memory lstm or gru")
    if config.frame_stack == 1:
        idle["stack_pad"] = "on single observations; give a --frame-stack above 1"
    for key, lacks in idle.items():
        if key in flags:
            raise ConfigError(f"{key}={getattr(config, key)} has no effect {lacks}, or leave it out")


def why_not_joint(config: Config) -> str | None:
    """Why its `num_workers` processes cannot make one update together, for a person; None if they can."""
    workers = config.num_workers
    if workers <= 1:
        return None
    of_batch = [key for key in ("obs_norm", "image_norm", "reward_norm", "advantage_norm") if getattr(config, key)]
    if config.norm == "batch":
        of_batch.append("norm=batch")
    if of_batch:
        return f"{of_batch[0]} needs the whole batch in one process; give --num-workers 1"
    if config.algo != "a2c":
        return f"under runtime=sync it is for a2c, not for {config.algo}; leave it out"
    if config.num_envs % workers:
        return f"num_envs={config.num_envs} cannot be dealt out evenly to so many processes"
    if config.vector == "async":
        return "the environments of vector=async have processes of their own; give --vector sync or --num-workers 1"
    if config.device.partition(":")[0] not in ("cpu", "auto"):  # prepare has found out what auto is
        return f"the processes of a2c share a CPU, and device={config.device}; give --num-workers 1"
    if config.optimizer not in OPTIMIZERS:
        return f"optimizer={config.optimizer} has one process; use {', '.join(OPTIMIZERS)}, or --num-workers 1"
    return None


def check_together(config: Config) -> None:
    """ConfigError where values exclude each other, or one needs another."""
    _check_replay(config)
    _check_batch(config)
    _check_pairs(config)


def _check_replay(config: Config) -> None:
    """Whether ACER's values go together."""
    if config.algo != "acer":
        return
    if config.replay_ratio > 0 and config.replay_size < config.replay_start:
        raise ConfigError(f"replay_start={config.replay_start} steps never fit in replay_size={config.replay_size}; "
                          "give a smaller --replay-start or a larger --replay-size")
    if config.burn_in and config.memory == "none":
        raise ConfigError(f"burn_in={config.burn_in} warms up a memory, and memory=none; give --memory lstm or gru")
    if config.burn_in >= min(config.rollout_lengths):
        raise ConfigError(f"burn_in={config.burn_in} leaves nothing of a rollout of {min(config.rollout_lengths)} "
                          "steps; give a smaller one")


def _check_pairs(config: Config) -> None:
    """Whether switches that need or exclude each other go together."""
    if config.log_weights and not config.tensorboard:
        raise ConfigError("log_weights shows the network in TensorBoard, and tensorboard is off; leave one of them out")
    if config.reward_terminates and config.reward_norm:
        raise ConfigError("reward_norm divides by the deviation of whole games' returns, and reward_terminates ends "
                          "returns at each reward; leave one of them out")
    if config.runtime == "sync" and (why := why_not_joint(config)) is not None:
        raise ConfigError(f"num_workers={config.num_workers}: {why}")
    if config.stop_at_eval is not None and not config.evaluates:
        raise ConfigError("stop_at_eval needs evaluations beside training; give --eval-every or --eval-every-seconds")


def _check_batch(config: Config) -> None:
    """Whether batch normalisation leaves a gradient: none of what moves the batch's mean or deviation has one."""
    rows = min(config.rollout_lengths) * config.num_envs * config.rollouts_per_update
    if config.norm == "batch" and rows < 3:
        raise ConfigError(f"norm=batch lets no gradient through a batch of {rows}; give a larger --rollout-length or "
                          "--num-envs, or norm=layer")
