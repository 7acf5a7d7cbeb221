"""How every runtime begins: the model of a new run, its tensors, and the words about both. Nothing is trained here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

from vantage._host.seeding import derive_seed
from vantage.config.config import Config
from vantage.envs.make import make_environments
from vantage.learning.learner import Learner
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.models.inputs import networks_in_words
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.compatibility import check_fits, check_spaces, fitting, in_units_of
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.image_statistics import measure_images
from vantage.types import EnvSpec

log = logging.getLogger(__name__)


def new_model(config: Config, spec: EnvSpec) -> ActorCritic:
    """The model of a new run, with the same weights in all processes; leaves torch's generator as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, "model"))
        return make_model(config.policy, spec, critic=config.algorithm.needs.critic)


def model_of_workers(config: Config, *, is_new: bool) -> tuple[ActorCritic, float]:
    """A model for environments like those of a worker, and their frames per step; a new run measures their images.

    Builds such environments first, and only one where images are not measured, so that errors are raised here.
    """
    envs = make_environments(config.env, seed=config.run.seed, num_envs=config.env.num_envs, stream=0, threads=1)
    with closing(envs):
        model = new_model(config, envs.spec)
        log_setting(envs.notes[:-1], model)  # the last says where they are
        if is_new:
            measure_images(model, config, envs)
    return model, envs.frames_per_step


def log_setting(notes: Sequence[str], model: ActorCritic) -> None:
    """Log the `notes` on environments, and which networks play them."""
    for note in notes:
        log.info(note)
    weights = sum(parameter.numel() for parameter in model.parameters())
    separate = ", once each for policy and critic" * model.policy.separate
    log.info(f"network: {networks_in_words(model.policy, model.spec)}{separate}; {weights:,} weights")


def load_learner(learner: Learner, config: Config, checkpoint: Checkpoint | None, initial: SavedPolicy | None) -> None:
    """Give `learner` the tensors of the checkpoint or of the policy, if there is one.

    ConfigError where the policy does not fit, or a checkpoint is of another policy or optimiser.
    """
    if initial is not None:
        check_fits(initial, learner.model, config)
        source = initial.description
        log.info(f"weights and normalisers of {source.config.algo} on {source.config.env.id}, step {source.step:,}, "
                 f"from {config.policy.init_from}")
        if config.env.reward_norm and initial.rewards is None:
            log.info("the deviation of returns is not among them: reward_norm begins anew")
        initial = in_units_of(config, initial)
        with fitting(Path(str(config.policy.init_from)), initial.tensors, learner.model, "its config"):
            learner.initialize_from(initial.tensors, initial.rewards)
    if checkpoint is None:
        return
    optimizer = config.optimizer.optimizer
    check_spaces(checkpoint, learner.model.spec, config.env.id)
    with fitting(checkpoint.path, checkpoint.tensors["model"], learner.model):
        if checkpoint.state.get("optimizer", optimizer) != optimizer:
            raise ValueError(f"it is of optimizer={checkpoint.state['optimizer']!s:.80}, not {optimizer}")
        learner.load(checkpoint.tensors)
