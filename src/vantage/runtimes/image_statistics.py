"""Statistics of images from random play before training, for `image_norm_steps`.

They are frozen afterwards.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing

import torch

from vantage._host.seeding import derive_seed
from vantage.config.config import Config
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.learning.collect import Position, collect
from vantage.models.actor_critic import ActorCritic

log = logging.getLogger(__name__)

ROLLOUT_LENGTH = 32


def measure_images(model: ActorCritic, config: Config, envs: Environments) -> None:
    """Update the image normalisers by `image_norm_steps` of the untrained, nearly uniform policy.

    The games have a seed of their own; training restarts `envs` with its seed. If `envs` are only a
    part of `num_envs`, all are built, so that the statistics do not depend on the number of ranks
    or workers.
    """
    num_envs = config.env.num_envs * envs.spec.agents or envs.num_envs
    rollouts = -(-config.policy.image_norm_steps // (num_envs * ROLLOUT_LENGTH))
    if not rollouts:
        return
    log.info(f"image statistics from {rollouts * num_envs * ROLLOUT_LENGTH:,} steps of random play")
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
            part = collect(model, envs, position, length=ROLLOUT_LENGTH, generator=generator)
            model.observe(part.rollout.obs, "image")
            position = part.position
