"""Checks of values in different config groups that exclude each other or have no effect together."""

from __future__ import annotations

from collections.abc import Collection

from vantage.config import Config
from vantage.config_groups import OPTIMIZERS, Hogwild, Sync
from vantage.errors import ConfigError


def check_flags(config: Config, flags: Collection[str]) -> None:
    """ConfigError where a flag, by its key, has no effect beside the others; a sweep may vary those others."""
    idle = {} if config.policy.memory != "none" else dict.fromkeys(
        ("memory_size", "bptt"), "without a memory; give --memory lstm or gru")
    if config.policy.frame_stack == 1:
        idle["stack_pad"] = "on single observations; give a --frame-stack above 1"
    for key, lacks in idle.items():
        if key in flags:
            raise ConfigError(f"{key}={getattr(config.policy, key)} has no effect {lacks}, or leave it out")


def why_not_parallel(config: Config) -> str | None:
    """Why `num_workers` data-parallel ranks cannot share the updates of `config`; None if they can."""
    workers = config.runtime.num_workers
    if workers <= 1:
        return None
    if config.algorithm.needs.replay is not None:
        return f"under runtime=sync {config.algo} has one process, because of its replay; leave it out"
    whole_batch = [name for name, on in (
        ("obs_norm", config.policy.obs_norm), ("image_norm", config.policy.image_norm),
        ("reward_norm", config.env.reward_norm), ("norm=batch", config.policy.norm == "batch"),
        ("advantage_norm", getattr(config.algorithm, "advantage_norm", False))) if on]
    if whole_batch:
        return f"{whole_batch[0]} needs the whole batch in one process; give --num-workers 1"
    if config.env.num_envs % workers:
        return f"num_envs={config.env.num_envs} cannot be divided evenly among so many processes"
    if config.env.vector == "async":
        return "the environments of vector=async have processes of their own; give --vector sync or --num-workers 1"
    devices = config.runtime.device.split(",")
    if len(devices) != (1 if devices[0].partition(":")[0] in ("cpu", "auto") else workers):  # `prepare` resolves auto
        return (f"each process needs a GPU of its own, and device={config.runtime.device}; give a list such as "
                "cuda:0,cuda:1, or --num-workers 1")
    if config.optimizer.optimizer not in OPTIMIZERS:
        return (f"optimizer={config.optimizer.optimizer} needs one process; use {', '.join(OPTIMIZERS)}, or "
                "--num-workers 1")
    return None


def check_together(config: Config) -> None:
    """ConfigError where values of different groups exclude each other, or one needs another."""
    burn_in, lengths = getattr(config.algorithm, "burn_in", 0), config.runtime.rollout_lengths
    if burn_in and config.policy.memory == "none":
        raise ConfigError(f"burn_in={burn_in} warms up a memory, and memory=none; give --memory lstm or gru")
    if burn_in >= min(lengths):
        raise ConfigError(f"burn_in={burn_in} leaves nothing of a rollout of {min(lengths)} steps; give a smaller one")
    rows = min(lengths) * config.env.num_envs * config.runtime.rollouts_per_update
    if config.policy.norm == "batch" and rows < 3:
        # The gradient through the batch's own mean and deviation is zero.
        raise ConfigError(f"norm=batch lets no gradient through a batch of {rows}; give a larger --rollout-length or "
                          "--num-envs, or norm=layer")
    if config.run.log_weights and not config.run.tensorboard:
        raise ConfigError("log_weights writes to TensorBoard, and tensorboard is off; leave one of them out")
    if config.env.reward_terminates and config.env.reward_norm:
        raise ConfigError("reward_norm divides by the deviation of whole games' returns, and reward_terminates ends "
                          "returns at each reward; leave one of them out")
    if isinstance(config.runtime, Sync) and (why := why_not_parallel(config)) is not None:
        raise ConfigError(f"num_workers={config.runtime.num_workers}: {why}")
    if isinstance(config.runtime, Hogwild) and config.optimizer.optimizer not in OPTIMIZERS:
        raise ConfigError(f"optimizer={config.optimizer.optimizer!r} cannot be shared among workers; use one of "
                          f"{', '.join(OPTIMIZERS)}")
    replay = config.algorithm.needs.replay
    if isinstance(config.runtime, Hogwild) and replay is not None and replay.save_every:
        raise ConfigError("replay_save_every has no effect under runtime=hogwild, which does not save replays; give"
                          " --runtime sync or leave it out")
    if config.run.stop_at_eval is not None and not config.run.evaluates:
        raise ConfigError("stop_at_eval needs evaluations beside training; give --eval-every or --eval-every-seconds")
