"""Checks of values in different config groups that exclude each other or have no effect together."""

from __future__ import annotations

from collections.abc import Collection

from vantage.config import Config
from vantage.config_groups import OPTIMIZERS, Hogwild, PolicyConfig, Sync
from vantage.errors import ConfigError


def check_flags(config: Config, flags: Collection[str]) -> None:
    """ConfigError for a flag that has no effect beside the others; a search may vary those others."""
    policy = config.policy
    idle: dict[str, str] = {}
    if policy.memory == "none":
        idle |= dict.fromkeys(("memory_size", "bptt"), "without a memory; give --memory lstm or gru, or leave it out")
    if policy.frame_stack == 1:
        idle["stack_pad"] = "on single observations; give a --frame-stack above 1, or leave it out"
    if policy.init_from is not None:
        first = ("init",) if policy.std == "fixed" else ("init", "log_std_init")
        idle |= {key: "beside init_from, whose weights the run begins with; leave it out" for key in first
                 if getattr(policy, key) != getattr(PolicyConfig, key)}
    for key in flags:
        if key in idle:
            raise ConfigError(f"{key}={getattr(policy, key)} has no effect {idle[key]}")


def why_not_parallel(config: Config) -> str | None:
    """Why `num_workers` data-parallel ranks cannot share the updates of `config`; None if they can."""
    workers = config.runtime.num_workers
    if workers <= 1:
        return None
    if config.algorithm.needs.replay is not None:
        return f"under runtime=sync {config.algo} has one process, because of its replay; leave it out"
    if config.algorithm.needs.reuse is not None:
        return f"{config.algo} draws its minibatches in one process; give --num-workers 1"
    policy = config.policy
    whole_batch = [name for name, on in (
        ("obs_norm", policy.obs_norm), ("image_norm", policy.image_norm != "none" and not policy.image_norm_steps),
        ("reward_norm", config.env.reward_norm), ("norm=batch", policy.norm == "batch"),
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
    burn_in, shortest = getattr(config.algorithm, "burn_in", 0), min(config.runtime.rollout_lengths)
    rows = shortest * config.env.num_envs * config.runtime.rollouts_per_update
    replay, hogwild = config.algorithm.needs.replay, isinstance(config.runtime, Hogwild)
    workers = why_not_parallel(config) if isinstance(config.runtime, Sync) else None
    problems = {
        f"burn_in={burn_in} warms up a memory, and memory=none; give --memory lstm or gru":
            burn_in and config.policy.memory == "none",
        f"burn_in={burn_in} leaves nothing of a rollout of {shortest} steps; give a smaller one": burn_in >= shortest,
        # The gradient through the batch's own mean and deviation is zero.
        f"norm=batch lets no gradient through a batch of {rows}; give a larger --rollout-length or --num-envs, or "
        "norm=layer": config.policy.norm == "batch" and rows < 3,
        "log_weights writes to TensorBoard, and tensorboard is off; leave one of them out":
            config.run.log_weights and not config.run.tensorboard,
        "reward_norm divides by the deviation of whole games' returns, and reward_terminates ends returns at each "
        "reward; leave one of them out": config.env.reward_terminates and config.env.reward_norm,
        f"num_workers={config.runtime.num_workers}: {workers}": workers is not None,
        f"optimizer={config.optimizer.optimizer!r} cannot be shared among workers; use one of {', '.join(OPTIMIZERS)}":
            hogwild and config.optimizer.optimizer not in OPTIMIZERS,
        "replay_save_every has no effect under runtime=hogwild, which does not save replays; give --runtime sync or "
        "leave it out": hogwild and replay is not None and replay.save_every,
        "stop_at_eval needs evaluations beside training; give --eval-every or --eval-every-seconds":
            config.run.stop_at_eval is not None and not config.run.evaluates,
        f"init_checkpoint={config.policy.init_checkpoint} chooses among a run's checkpoints; name the run with "
        "--init-from": config.policy.init_from is None and config.policy.init_checkpoint != "auto",
        "init_from='' names nothing; give a run or an exported .safetensors file": config.policy.init_from == ""}
    for problem, present in problems.items():
        if present:
            raise ConfigError(problem)
