"""Statistics of images from random play before training, for `image_norm_steps`. They are frozen afterwards."""

from __future__ import annotations

import logging

import torch

from vantage.config import Config
from vantage.envs import Environments
from vantage.learning.collect import Position, collect
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed

log = logging.getLogger(__name__)

ROLLOUT_LENGTH = 32


def measure_images(model: ActorCritic, config: Config, envs: Environments) -> None:
    """Play `image_norm_steps` with the untrained policy, which is nearly uniform, and update the image normalisers.

    The games are of a seed of their own; training restarts `envs` with its seed.
    """
    num_envs = envs.num_envs
    rollouts = -(-config.policy.image_norm_steps // (num_envs * ROLLOUT_LENGTH))
    if not rollouts:
        return
    log.info(f"image statistics from {rollouts * num_envs * ROLLOUT_LENGTH:,} steps of random play")
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "image statistics"))
    first = envs.restart(derive_seed(config.run.seed, "image statistics"))
    position = Position.after(first, model.initial_state(num_envs), device)
    for _ in range(rollouts):
        part = collect(model, envs, position, length=ROLLOUT_LENGTH, generator=generator)
        model.observe(part.rollout.obs, "image")
        position = part.position
