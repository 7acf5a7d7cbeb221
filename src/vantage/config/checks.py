"""Checks across config groups: values that exclude each other, or that need another one.

Flags that have no effect are in `flag_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from vantage.config.config import Config
from vantage.config.num_envs import why_uneven
from vantage.config.runtimes import Sync
from vantage.config.sources import changed_modules, outdated_class
from vantage.envs.built import copying, is_built, num_built
from vantage.envs.ids import registering_module
from vantage.errors import ConfigError
from vantage.keys.objects import modules_of, shown_name
from vantage.keys.schedules import KL, Schedule
from vantage.learning.config import OPTIMIZERS


def why_not_parallel(config: Config) -> str | None:
    """Why `num_workers` data-parallel ranks cannot share the updates of `config`, or None."""
    runtime = config.runtime
    workers = runtime.num_workers
    if workers <= 1:
        return None
    if config.env.self_play:
        return "self-play has one process; leave it out"
    if config.algorithm.needs.replay is not None:
        return (f"under runtime=sync {config.algo} has one process, because of its replay; leave "
                "it out")
    if uneven := why_uneven(config.env.num_envs, workers):
        return uneven
    problem = None
    devices = runtime.device.split(",")
    one_device = devices[0].partition(":")[0] in ("cpu", "auto")  # auto is resolved later
    if config.policy.norm == "batch":
        problem = "norm=batch needs the whole batch in one process; give --norm layer"
    elif config.env.vector == "async":
        problem = ("the environments of vector=async have processes of their own; give --vector "
                   "sync")
    elif len(devices) != (1 if one_device else workers):
        problem = (f"each process needs a GPU of its own, and device={runtime.device}; give a "
                   "list such as cuda:0,cuda:1")
    elif config.optimizer.optimizer not in OPTIMIZERS:
        problem = (f"optimizer={config.optimizer.optimizer} needs one process; give "
                   f"{', '.join(OPTIMIZERS)}")
    return f"{problem}, or --num-workers 1" if problem else None


def check_sources(config: Config) -> None:
    """ConfigError if the user's code was edited after this process imported it, as in a notebook.

    This process would use the old code, and its worker processes would import the new code.
    """
    names = set[str]()
    kinds: list[type] = []
    for code in (config.algo, config.policy.network, config.policy.memory, config.env.id):
        modules, classes = modules_of(code)
        names |= modules
        kinds += classes
    names.discard("__main__")  # a script may be edited while it runs
    if changed := changed_modules([*sorted(names), registering_module(config.env.id)]):
        raise ConfigError(
            f"{changed[0]} has changed since this process imported it, and still runs as it was; "
            "call importlib.reload(module) and run what imports from it again, or restart the "
            "program, in a notebook the kernel, to train and play with the new code")
    # A cell that is run again defines another class; the former one is what its agent was made of.
    if kind := outdated_class(each for each in kinds if each.__module__ != "__main__"):
        raise ConfigError(
            f"the class {kind.__qualname__} is from before {kind.__module__} was reloaded; run "
            "what imports it or derives from it again, to train and play with the new code")


def check_built(config: Config) -> None:
    """ConfigError if one built environment would have to serve as several."""
    if not is_built(config.env):
        return
    env = config.env
    runtime = config.runtime
    num_envs = num_built(env)
    remedy = "give its class, or a lambda that builds it"
    if not isinstance(runtime, Sync) or runtime.num_workers > 1 or env.vector == "async":
        raise ConfigError(f"env={env.id} is one environment, and each worker process needs its "
                          f"own; {remedy}")
    if env.num_envs != num_envs:
        raise ConfigError(f"env={env.id} is built already, and num_envs={env.num_envs} asks for "
                          f"others; {remedy}, or num_envs={num_envs}")
    if config.run.evaluates:
        copying(env)


def check_together(config: Config) -> None:
    """ConfigError if values of different groups exclude each other, or one needs another."""
    check_built(config)
    problems = chain(_network_problems(config), _rate_problems(config),
                     _on_policy_problems(config), _runtime_problems(config), _run_problems(config))
    if problem := next(problems, None):
        raise ConfigError(problem)


def _network_problems(config: Config) -> Iterator[str]:
    policy = config.policy
    runtime = config.runtime
    burn_in = getattr(config.algorithm, "burn_in", 0)
    shortest = min(runtime.rollout_lengths)
    if burn_in and policy.memory == "none":
        yield (f"burn_in={burn_in} warms up a memory, and memory=none; give --memory lstm, gru or "
               "gtrxl")
    if policy.memory == "gtrxl" and policy.memory_size % policy.memory_heads:
        yield (f"memory_size={policy.memory_size} cannot be split among "
               f"memory_heads={policy.memory_heads}; give a multiple of it")
    if burn_in >= shortest:
        yield (f"burn_in={burn_in} leaves nothing of a rollout of {shortest} steps; give a "
               "smaller one")
    rows = shortest * config.envs_per_process * runtime.rollouts_per_update
    larger = "--rollout-length or --num-envs"
    reuse = config.algorithm.needs.reuse
    if reuse is not None and policy.memory == "none" and reuse.minibatch_size < rows:
        rows = reuse.minibatch_size
        larger = "--minibatch-size"
    if policy.norm == "batch" and rows < 3:
        # The gradient through the batch's own mean and deviation is zero.
        yield (f"norm=batch lets no gradient through a batch of {rows}; give a larger "
               f"{larger}, or norm=layer")
    if policy.image_norm == "none" and policy.image_norm_steps:
        yield (f"image_norm_steps={policy.image_norm_steps} has no effect without image "
               "statistics; give --image-norm pixel, or leave it out")
    if policy.value_norm != "none":
        yield from _value_norm_problems(config)
    if policy.init_from is None and policy.init_checkpoint != "auto":
        yield (f"init_checkpoint={policy.init_checkpoint} chooses among a run's checkpoints; name "
               "the run with --init-from")
    if policy.init_from == "":
        yield "init_from='' names nothing; give a run or an exported .safetensors file"


def _value_norm_problems(config: Config) -> Iterator[str]:
    start = f"value_norm={config.policy.value_norm}"
    if config.algorithm.needs.critic == "action" or config.algorithm.needs.replay is not None:
        yield (f"{start} follows the targets of state values, and {config.algo} learns action "
               "values or from a replay; leave it out")
    if config.env.reward_norm:
        yield (f"{start} and reward_norm both scale what the critic learns; give "
               "--no-reward-norm, or leave value_norm out")
    if config.runtime_name == "ray":
        yield f"{start} is not supported under runtime=ray; leave it out"


def _rate_problems(config: Config) -> Iterator[str]:
    optimizer = config.optimizer.optimizer
    if config.optimizer.critic_lr_scale != 1 and optimizer not in OPTIMIZERS:
        yield (f"critic_lr_scale has no effect on optimizer={optimizer}, which moves all weights "
               f"alike; leave it out, or give {', '.join(OPTIMIZERS)}")
    for name, value in config.flat().items():
        if isinstance(value, Schedule) and value.kind == KL and name != "lr":
            yield (f"{name}={value}: only lr follows a KL divergence; give a number or another "
                   "schedule")
    lr = config.optimizer.lr
    if not isinstance(lr, Schedule) or lr.kind != KL:
        return
    reuse = config.algorithm.needs.reuse
    if reuse is None:
        yield (f"lr={lr} follows the divergence over passes of minibatches, which {config.algo} "
               "does not make; give a number or another schedule, or train ppo")
    elif reuse.epochs == 1 and not reuse.past_rollouts:
        rows = min(config.runtime.rollout_lengths) * config.env.num_envs
        if rows <= reuse.minibatch_size:
            yield (f"lr={lr} follows the divergence that the steps of an update make, and this one "
                   f"has a single step, of {rows} rows: give more --epochs or a smaller "
                   "--minibatch-size")
    if config.runtime_name == "hogwild":
        yield (f"lr={lr} follows one update after another, and the workers of runtime=hogwild "
               "update at the same time; give a number or another schedule")


def _on_policy_problems(config: Config) -> Iterator[str]:
    needs = config.algorithm.needs
    is_on_policy = isinstance(config.runtime, Sync) and needs.replay is None
    place = (f"for a2c and ppo under runtime=sync, not {config.algo} under "
             f"runtime={config.runtime_name}")
    source = config.cloning.demonstrations
    has_critic_of_states = needs.critic == "state"
    if source is not None and not (is_on_policy and has_critic_of_states):
        remedy = "clone with one of these, and give that run as init_from"
        if not has_critic_of_states:
            remedy = f"train one of these, since {config.algo} cannot start from their weights"
        yield f"demonstrations={shown_name(source)} are {place}; {remedy}"
    if source == "":
        yield "demonstrations='' names nothing; give a file or minari:ID"
    curiosity = config.exploration.curiosity
    if curiosity != "none" and not is_on_policy:
        yield f"curiosity={curiosity} is {place}; train one of these, or give --curiosity none"


def _runtime_problems(config: Config) -> Iterator[str]:
    if isinstance(config.runtime, Sync):
        if reason := why_not_parallel(config):
            yield f"num_workers={config.runtime.num_workers}: {reason}"
        return
    if config.env.self_play:
        yield (f"self_play={config.env.self_play} has one process, and "
               f"runtime={config.runtime_name} several; train a2c, ppo or acer under --runtime "
               "sync, or leave it out")
    if config.run.eval_ema:
        yield (f"eval_ema={config.run.eval_ema:g} averages the weights of one learner, and "
               f"runtime={config.runtime_name} has none of its own; leave it out")
    num_workers = config.runtime.num_workers
    if uneven := why_uneven(config.env.num_envs, num_workers):
        yield f"num_workers={num_workers}: {uneven}"
    runtime = config.runtime_name
    optimizer = config.optimizer.optimizer
    replay = config.algorithm.needs.replay
    if config.env.vector == "async":
        yield (f"vector='async': the workers of runtime={runtime} are processes already; leave it "
               "sync")
    if replay is not None and replay.save_every:
        yield (f"replay_save_every has no effect under runtime={runtime}, which does not save "
               "replays; leave it out")
    if runtime == "ray":
        yield from _ray_problems(config)
    elif optimizer not in OPTIMIZERS:
        yield (f"optimizer={optimizer!r} cannot be shared among workers; use one of "
               f"{', '.join(OPTIMIZERS)}")


def _ray_problems(config: Config) -> Iterator[str]:
    reuse = config.algorithm.needs.reuse
    sends_gradients = config.ray.send == "gradients"
    if sends_gradients and reuse is not None:
        yield ("send=gradients is for one gradient step a rollout, and this algorithm makes "
               "several; give --send rollouts")
    if not sends_gradients and config.algorithm.needs.replay is not None:
        yield "send=rollouts has no replay, which is with the workers; give --send gradients"
    if reuse is not None and reuse.past_rollouts > 0:
        yield "past_rollouts is not supported under runtime=ray; give --past-rollouts 0"
    if config.policy.norm == "batch":
        yield "norm=batch needs the whole batch in one process; give --norm layer"


def _run_problems(config: Config) -> Iterator[str]:
    run = config.run
    if run.log_weights and not run.tensorboard:
        yield "log_weights writes to TensorBoard, and tensorboard is off; leave one of them out"
    if config.env.reward_terminates and config.env.reward_norm:
        yield ("reward_norm divides by the deviation of whole games' returns, and "
               "reward_terminates ends returns at each reward; leave one of them out")
    if run.stop_at_eval is not None and not run.evaluates:
        yield ("stop_at_eval needs evaluations during training; give --eval-every or "
               "--eval-every-seconds")
