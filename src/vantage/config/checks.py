"""Checks of values in different config groups that exclude each other or have no effect together."""

from __future__ import annotations

from collections.abc import Collection

from vantage.config.config import Config
from vantage.config.num_envs import why_uneven
from vantage.config.runtimes import Sync
from vantage.config.sources import changed_modules
from vantage.envs.build import copying, is_built, num_built
from vantage.envs.ids import is_atari, registering_module
from vantage.errors import ConfigError
from vantage.keys.fields import in_text
from vantage.keys.objects import is_code, modules_of
from vantage.learning.config import OPTIMIZERS
from vantage.models.config import PolicyConfig


def check_flags(config: Config, flags: Collection[str]) -> None:
    """ConfigError for a flag that has no effect beside the others. Not for a search, which may vary those others."""
    policy = config.policy
    no_memory = policy.memory == "none" and "without a memory; give --memory lstm or gru, or leave it out"
    replaced = policy.init_from is not None and "beside init_from, whose weights the run begins with; leave it out"
    has_layers = is_code(policy.network) or policy.network == "conv1d"
    own = has_layers and f"with network={policy.network}, which has layers of its own; leave it out"
    atari = is_atari(config.env.id) and "on Atari, with its images and discrete actions; leave it out"
    layers = own or (policy.network != "mlp" and atari and f"{atari}, or give --network mlp")
    short = _why_no_short_episodes(config)
    optimizer, flat = config.optimizer.optimizer, config.flat()
    for key, why in {
            "hidden": layers, "activation": layers,
            "scale_actions": atari, "obs_norm": atari, "std": atari, "min_std": atari,
            "std_lr_scale": atari or (policy.std != "free" and f"with std={policy.std}; leave it out"),
            "squash_mean": atari,
            "optimizer_decay": not optimizer.startswith("rmsprop") and f"with optimizer={optimizer}; leave it out",
            "advantage_norm_over": not flat.get("advantage_norm", True) and "with advantage_norm off; leave it out",
            "bias_correction": flat.get("truncation", 0) is None and "without a truncation; leave it out, or give "
                               "--truncation",
            "short_episode_steps": config.env.short_episode_steps and short, "short_episode_every": short,
            "replay_start": flat.get("replay_ratio") == 0 and "without updates from the replay; leave it out",
            "memory_size": no_memory, "bptt": no_memory,
            "stack_pad": policy.frame_stack == 1 and "on single observations; give a --frame-stack above 1, or leave "
                         "it out",
            "init": policy.init != PolicyConfig.init and replaced,
            "log_std_init": atari or (policy.log_std_init != PolicyConfig.log_std_init and policy.std != "fixed"
                                      and replaced),
    }.items():
        if why and key in flags:
            value = flat[key] if isinstance(flat[key], bool) else in_text(flat[key])
            raise ConfigError(f"{key}={value} has no effect {why}")


def _why_no_short_episodes(config: Config) -> str | None:
    env = config.env
    num_envs = env.num_envs or config.envs_per_process * config.runtime.num_workers
    if not env.short_episode_steps:
        return "without short episodes; give --short-episode-steps, or leave it out"
    if env.short_episode_every > num_envs > 0:  # 0 workers: as many as fit
        return f"with {num_envs} environments; give a --short-episode-every of at most that"
    if 0 < env.max_episode_steps <= env.short_episode_steps:
        return f"with max_episode_steps={env.max_episode_steps}; give a smaller --short-episode-steps"
    return None


def why_not_parallel(config: Config) -> str | None:
    """Why `num_workers` data-parallel ranks cannot share the updates of `config`; None if they can."""
    workers, needs, policy = config.runtime.num_workers, config.algorithm.needs, config.policy
    if workers <= 1:
        return None
    if needs.replay is not None:
        return f"under runtime=sync {config.algo} has one process, because of its replay; leave it out"
    devices = config.runtime.device.split(",")
    gpus = 1 if devices[0].partition(":")[0] in ("cpu", "auto") else workers  # `prepare` resolves auto
    if uneven := why_uneven(config.env.num_envs, workers):
        return uneven
    return next((f"{problem}, or --num-workers 1" for problem, present in {
        "norm=batch needs the whole batch in one process; give --norm layer": policy.norm == "batch",
        "the environments of vector=async have processes of their own; give --vector sync":
            config.env.vector == "async",
        f"each process needs a GPU of its own, and device={config.runtime.device}; give a list such as cuda:0,cuda:1":
            len(devices) != gpus,
        f"optimizer={config.optimizer.optimizer} needs one process; give {', '.join(OPTIMIZERS)}":
            config.optimizer.optimizer not in OPTIMIZERS}.items() if present), None)


def check_sources(config: Config) -> None:
    """ConfigError where code of the user's own was edited since this process imported it, as in a notebook.

    This process would go on with the old code, and its worker processes would import the new one.
    """
    paths = (config.algo, config.policy.network, config.policy.memory, config.env.id)
    names = sorted(set[str]().union(*map(modules_of, paths)))
    if changed := changed_modules([*names, registering_module(config.env.id)]):
        raise ConfigError(f"{changed[0]} has changed since this process imported it, and still runs as it was; restart "
                          "the program, in a notebook the kernel, to train and play with the new code")


def check_built(config: Config) -> None:
    """ConfigError where an environment that is built already would have to serve as several."""
    if not is_built(config.env):
        return
    name = config.env.id
    runtime = config.runtime
    num_envs = num_built(config.env)
    remedy = "give its class, or a lambda that builds it"
    if not isinstance(runtime, Sync) or runtime.num_workers > 1 or config.env.vector == "async":
        raise ConfigError(f"env={name} is one environment, and each worker process needs its own; {remedy}")
    if config.env.num_envs != num_envs:
        raise ConfigError(f"env={name} is built already, and num_envs={config.env.num_envs} asks for others; {remedy}, "
                          f"or num_envs={num_envs}")
    if config.run.evaluates:
        copying(config.env)


def check_together(config: Config) -> None:
    """ConfigError where values of different groups exclude each other, or one needs another."""
    check_built(config)
    env, policy, run, runtime = config.env, config.policy, config.run, config.runtime_name
    hogwild, ray = runtime == "hogwild", runtime == "ray"
    gradients, reuse = ray and config.ray.send == "gradients", config.algorithm.needs.reuse
    burn_in, shortest = getattr(config.algorithm, "burn_in", 0), min(config.runtime.rollout_lengths)
    rows = shortest * config.envs_per_process * config.runtime.rollouts_per_update
    replay = config.algorithm.needs.replay
    num_workers = config.runtime.num_workers
    workers = why_not_parallel(config) if runtime == "sync" else why_uneven(env.num_envs, num_workers)
    for problem, present in {
        f"burn_in={burn_in} warms up a memory, and memory=none; give --memory lstm or gru":
            burn_in and policy.memory == "none",
        f"burn_in={burn_in} leaves nothing of a rollout of {shortest} steps; give a smaller one": burn_in >= shortest,
        # The gradient through the batch's own mean and deviation is zero.
        f"norm=batch lets no gradient through a batch of {rows}; give a larger --rollout-length or --num-envs, or "
        "norm=layer": policy.norm == "batch" and rows < 3,
        "log_weights writes to TensorBoard, and tensorboard is off; leave one of them out":
            run.log_weights and not run.tensorboard,
        "reward_norm divides by the deviation of whole games' returns, and reward_terminates ends returns at each "
        "reward; leave one of them out": env.reward_terminates and env.reward_norm,
        f"num_workers={num_workers}: {workers}": workers is not None,
        f"optimizer={config.optimizer.optimizer!r} cannot be shared among workers; use one of {', '.join(OPTIMIZERS)}":
            hogwild and config.optimizer.optimizer not in OPTIMIZERS,
        f"vector='async': the workers of runtime={runtime} are processes already; leave it sync":
            (hogwild or ray) and env.vector == "async",
        f"replay_save_every has no effect under runtime={runtime}, which does not save replays; leave it out":
            (hogwild or ray) and replay is not None and replay.save_every,
        "send=gradients is for one gradient step a rollout, and this algorithm makes several; give --send rollouts":
            gradients and reuse is not None,
        "send=rollouts has no replay, which is with the workers; give --send gradients":
            ray and not gradients and replay is not None,
        "past_rollouts is not supported under runtime=ray; give --past-rollouts 0":
            ray and reuse is not None and reuse.past_rollouts > 0,
        "norm=batch needs the whole batch in one process; give --norm layer": ray and policy.norm == "batch",
        "stop_at_eval needs evaluations during training; give --eval-every or --eval-every-seconds":
            run.stop_at_eval is not None and not run.evaluates,
        f"init_checkpoint={policy.init_checkpoint} chooses among a run's checkpoints; name the run with --init-from":
            policy.init_from is None and policy.init_checkpoint != "auto",
        f"image_norm_steps={policy.image_norm_steps} has no effect without image statistics; give --image-norm pixel, "
        "or leave it out": policy.image_norm == "none" and policy.image_norm_steps,
        "init_from='' names nothing; give a run or an exported .safetensors file": policy.init_from == "",
    }.items():
        if present:
            raise ConfigError(problem)
