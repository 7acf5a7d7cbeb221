"""How every runtime begins: it makes the model, loads its tensors and clones demonstrations.

No training here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import torch
from torch import Tensor

from vantage._host.seeding import derive_seed
from vantage.config.config import Config
from vantage.envs.interface import Array
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, for_reader
from vantage.keys.schedules import Schedule
from vantage.learning.cloning import DEMONSTRATIONS, Cloning
from vantage.learning.collect import Position, collect
from vantage.learning.demonstrations import Demonstrations
from vantage.learning.learner import Learner
from vantage.learning.learner_state import initialize_from, load_tensors
from vantage.learning.modules import module_in_words
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.checks import without_effect
from vantage.models.inputs import networks_in_words
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.compatibility import check_fits, check_spaces, fitting, in_units_of
from vantage.runs.demonstration_file import (
    FILE,
    read_demonstrations,
    read_source,
    write_demonstrations,
)
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.progress import Progress
from vantage.runtimes.recorder import Recorder
from vantage.types import EnvSpec, map_parts

log = logging.getLogger(__name__)

MAX_EPISODE = 2**53
"""Largest number of an episode in a checkpoint."""

STATISTICS_ROLLOUT = 32
"""Steps of each environment between two updates of the statistics of images."""


def new_model(config: Config, spec: EnvSpec) -> ActorCritic:
    """The model of a new run, with the same weights in all processes.

    The state of torch's generator does not change.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, "model"))
        return make_model(config.policy, spec, critic=config.algorithm.needs.critic)


def model_of_workers(config: Config, *, is_new: bool) -> tuple[ActorCritic, float]:
    """A model for the environments of a worker, and their frames per step.

    Builds such environments in this process, so that their errors are raised here. A new run
    measures the statistics of images in them.
    """
    envs = make_environments(config.env, seed=config.run.seed, num_envs=config.envs_per_process,
                             stream=0, threads=1)
    with closing(envs):
        model = new_model(config, envs.spec)
        log_setting(envs.notes[:-1], model)  # the last names the process of the environments
        if is_new:
            measure_images(model, config, envs)
    return model, envs.frames_per_step


def measure_images(model: ActorCritic, config: Config, envs: Environments) -> None:
    """Update the image normalisers by `image_norm_steps` of the untrained, nearly uniform policy.

    Training leaves them as they are. The games have a seed of their own; training restarts `envs`
    with its seed. If `envs` are only a part of `num_envs`, all are built, so that the statistics do
    not depend on the number of ranks or workers.
    """
    num_envs = config.env.num_envs * envs.spec.agents or envs.num_envs
    rollouts = -(-config.policy.image_norm_steps // (num_envs * STATISTICS_ROLLOUT))
    if not rollouts:
        return
    steps = rollouts * num_envs * STATISTICS_ROLLOUT
    log.info(f"image statistics from {steps:,} steps of random play")
    device = next(model.parameters()).device
    seed = derive_seed(config.run.seed, "image statistics")
    generator = torch.Generator(device).manual_seed(seed)
    with ExitStack() as stack:
        if envs.num_envs != num_envs:
            envs = make_environments(config.env, seed=config.run.seed, stream=0,
                                     num_envs=config.env.num_envs,
                                     threads=torch.get_num_threads())
            stack.enter_context(closing(envs))
        first = envs.restart(seed)
        position = Position.after(first, model.initial_state(num_envs), device)
        for _ in range(rollouts):
            part = collect(model, envs, position, length=STATISTICS_ROLLOUT, generator=generator)
            model.observe(map_parts(lambda x: x[:-1], part.rollout.obs), "image")
            position = part.position


def log_setting(notes: Sequence[str], model: ActorCritic) -> None:
    """Log the `notes` on environments, and the network."""
    for note in notes:
        log.info(for_reader(note))
    if model.policy.critic_parts:
        seen = model.acting_spec.keys
        unseen = [key for key in model.spec.keys if key not in seen]
        log.info(f"policy sees: {', '.join(seen)}; critic alone: {', '.join(unseen)}")
    weights = sum(parameter.numel() for parameter in model.parameters())
    separate = ", once each for policy and critic" if model.policy.separate else ""
    log.info(f"network: {networks_in_words(model.policy, model.spec)}{separate}; {weights:,} "
             "weights")
    if warning := without_effect(model.policy, model.spec):
        log.warning(warning)
    if any(getattr(module, "draws_noise", False) for module in model.modules()):
        log.warning("the network draws random numbers, which the key seed does not control: "
                    "another run differs, a resume is not exact, and evaluations are noisy too")


def begin_workers(recorder: Recorder, checkpoint: Checkpoint | None) -> None:
    """Save a new run, or log that a resumed one is not exact because of its workers."""
    if checkpoint is None:
        recorder.save()
        return
    replays = "; their replays begin empty" if recorder.config.algorithm.needs.replay else ""
    log.info("workers begin new episodes, and the order of their updates never repeats: this "
             f"resume is not exact{replays}")


def first_episode(progress: Progress, config: Config) -> int:
    """The number of the first episode of a worker that begins now: the mean of all so far."""
    return progress.episodes // (config.num_processes * config.envs_per_process)


def next_episodes(tensors: Mapping[str, Mapping[str, Tensor]], num_envs: int,
                  least: int = 0) -> Array | int:
    """Number of the next episode of each environment [B] after a checkpoint, or one for all.

    Skips one episode, since the error may have come from its reset. Returns one number, at least
    `least` and above those of all processes, if the checkpoint has another number of environments
    or lacks theirs. ValueError for numbers that no run saves.
    """
    numbers_by_group = {name: group["episode"] for name, group in tensors.items()
             if name.endswith(("acting", "envs")) and "episode" in group}
    for numbers in numbers_by_group.values():
        if (numbers.dtype != torch.int64 or numbers.ndim != 1 or not len(numbers)
                or numbers.min() < 0 or numbers.max() > MAX_EPISODE):
            raise ValueError(f"the numbers of the episodes are {numbers!s:.80}")
    own = numbers_by_group.get("acting", numbers_by_group.get("envs"))
    if own is not None and len(own) == num_envs:
        following: Array = own.numpy() + 2
        return following
    return max([least, *(int(numbers.max()) + 2 for numbers in numbers_by_group.values())])


def lost_in_words(lost: Sequence[int], envs: Environments) -> str:
    """The environments whose states no replay restored, for the log."""
    which = ", ".join(map(str, lost))
    if len(lost) == envs.num_envs // envs.spec.agents > 8:
        which = "all"
    return (f"environments {which} could not be restored by a replay and begin a new episode: this "
            "resume is not exact")


def load_learner(learner: Learner, config: Config, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None) -> None:
    """Load the checkpoint or the policy `initial`, if there is one, into `learner`.

    Raises ConfigError if the policy does not fit, or the checkpoint has another policy or
    optimiser.
    """
    if learner.module is not None:
        log.info(module_in_words(learner.module, config.algo))
    if initial is not None:
        check_fits(initial, learner.model, config)
        source = initial.description
        log.info(f"weights and normalisers of {source.config.algo} on {source.config.env.id}, step "
                 f"{source.step:,}, from {config.policy.init_from}")
        if config.env.reward_norm and initial.rewards is None:
            log.info("the deviation of returns is not among them: reward_norm begins anew")
        initial = in_units_of(config, initial)
        with fitting(Path(str(config.policy.init_from)), initial.tensors, learner.model,
                     "its config"):
            initialize_from(learner, initial.tensors, initial.rewards)
    if checkpoint is None:
        return
    optimizer = config.optimizer.optimizer
    check_spaces(checkpoint, learner.model.spec, config.env.id)
    with fitting(checkpoint.path, checkpoint.tensors["model"], learner.model):
        if checkpoint.state.get("optimizer", optimizer) != optimizer:
            raise ValueError(f"it is of optimizer={checkpoint.state['optimizer']!s:.80}, not "
                             f"{optimizer}")
        load_tensors(learner, checkpoint.tensors)


def add_demonstrations(learner: Learner, config: Config, run: Path,
                       checkpoint: Checkpoint | None) -> dict[str, float]:
    """Let `learner` learn from the demonstrations of `config`, if it names some.

    A new run clones them, and keeps a copy in its directory `run`, from which it is resumed.
    Returns the metrics of cloning. ConfigError if the copy is needed and is not what it was.
    """
    if config.cloning.demonstrations is None:
        return {}
    copy = run / FILE
    if checkpoint is None:
        return _clone(learner, config, copy)
    learner.demo_digest = checkpoint.tensors.get(DEMONSTRATIONS, {}).get("digest")
    if not _is_over(config, checkpoint.step):
        _learn_on(learner, config, copy)
    return {}


def _clone(learner: Learner, config: Config, copy: Path) -> dict[str, float]:
    spec = learner.model.spec
    demonstrations = read_source(config, spec)
    write_demonstrations(copy, demonstrations, env=config.env.id, spec=spec)
    cloning = _cloning(learner, config, demonstrations)
    learner.demo_digest = cloning.digest
    log.info(f"cloning {demonstrations}")
    metrics = cloning.clone(learner.flat, config.cloning.demo_passes)
    learner.restart_averages()
    return metrics


def _learn_on(learner: Learner, config: Config, copy: Path) -> None:
    if not copy.is_file():
        raise ConfigError(f"{copy} is missing, and demo_coef={config.cloning.demo_coef} still "
                          "needs it; put it back")
    cloning = _cloning(learner, config, read_demonstrations(copy, learner.model.spec))
    learned_from = learner.demo_digest
    if learned_from is not None and not torch.equal(learned_from, cloning.digest):
        raise ConfigError(f"{copy} is not the file that this run has learned from; put that back")
    learner.demo_digest = cloning.digest


def _cloning(learner: Learner, config: Config, demonstrations: Demonstrations) -> Cloning:
    learner.cloning = Cloning(learner.model, demonstrations, seed=config.run.seed,
                              num_ranks=config.num_processes)
    return learner.cloning


def _is_over(config: Config, step: int) -> bool:
    """Whether demonstrations have no weight from `step` on."""
    coef = config.cloning.demo_coef
    if not isinstance(coef, Schedule):
        return coef == 0
    return coef.is_zero(step, config.run.steps, config.schedule_steps)
