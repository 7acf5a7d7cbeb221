"""`Cloning`: supervised learning of a policy from demonstrations, before and during training.

    L(θ) = -mean log π_θ(a | s)  over the demonstrated pairs (s, a)

Pomerleau 1991, doi:10.1162/neco.1991.3.1.88; with a decaying weight beside the loss of an
algorithm, as in DAPG, Rajeswaran et al. 2018, arXiv:1709.10087. No files here.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from vantage._host.seeding import derive_seed
from vantage.algorithms.losses import masked_mean
from vantage.envs.reader import WHOLE
from vantage.errors import NonFiniteError
from vantage.learning.act_inputs import as_tensor
from vantage.learning.config import OptimizerConfig
from vantage.learning.demonstrations import Demonstrations
from vantage.learning.gradients import backward, clip_gradient
from vantage.learning.modules import copy_of
from vantage.learning.optimizers import make_optimizer
from vantage.learning.weights import FlatParameters
from vantage.models.actor_critic import ActorCritic
from vantage.types import Obs

log = logging.getLogger(__name__)

LEARNING_RATE = 1e-3
"""Learning rate of Adam in cloning before training."""
BATCH = 256
"""Demonstrated steps in each gradient step of cloning."""
SAMPLED = 64
"""Demonstrated steps added to each gradient step of training, over all ranks."""
HELD_OUT = 0.1
"""Share of the episodes that are held out for validation."""
PATIENCE = 3
"""Passes without a lower held-out loss after which cloning stops."""
_MAX_GRAD_NORM = 1.0
_OBSERVED_AT_ONCE = 1024


DEMONSTRATIONS = "demonstrations"
"""Group of a checkpoint with their digest."""


@dataclass(frozen=True, slots=True)
class DemoLoss:
    """A loss on demonstrations beside that of an algorithm, and its coefficient."""

    coef: float
    value: Tensor


class Cloning:
    """Demonstrations as tensors, and the loss of a policy on them.

    A policy without memory learns from single steps, with the frames before them; one with a memory
    from whole episodes.
    """

    def __init__(self, model: ActorCritic, demonstrations: Demonstrations, *, seed: int,
                 num_ranks: int = 1) -> None:
        self.demonstrations = demonstrations
        self.digest = torch.tensor([*demonstrations.digest], dtype=torch.uint8)
        self._model = model
        self._obs = {name: as_tensor(part) for name, part in demonstrations.obs.items()}
        self._actions = _in_policy_units(model, demonstrations)
        masks = demonstrations.masks
        self._masks = None if masks is None else torch.from_numpy(masks)
        self._lengths = torch.tensor(demonstrations.lengths)
        self._starts = self._lengths.cumsum(0) - self._lengths
        self._is_first = torch.zeros(len(self._actions), dtype=torch.bool)
        self._is_first[self._starts] = True
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "cloning"))
        num_episodes = len(self._lengths)
        self.num_held_out = max(1, int(HELD_OUT * num_episodes)) if num_episodes > 1 else 0
        order = torch.randperm(num_episodes, generator=self._generator)
        self._held_out = self._items(order[:self.num_held_out])
        self._learned = self._items(order[self.num_held_out:])
        mean_length = fmean(demonstrations.lengths) if model.recurrent else 1.0
        self._batch = max(1, round(BATCH / mean_length))
        self._share = max(1, round(SAMPLED / num_ranks / mean_length))

    def clone(self, weights: FlatParameters, passes: int) -> dict[str, float]:
        """Adapt the normalisers, then fit the policy in at most `passes` over the demonstrations.

        Stops when the held-out loss rises, and keeps the weights with the lowest. Returns the
        losses as metrics. NonFiniteError if a loss is not finite.
        """
        self._observe()
        optimizer = make_optimizer(OptimizerConfig(optimizer="adam"), weights.vector)
        best = self._losses()
        before = best
        best_state = copy_of(self._model)
        best_pass = 0
        number = 0
        for number in range(1, passes + 1):
            order = torch.randperm(len(self._learned), generator=self._generator)
            for chosen in torch.split(self._learned[order], self._batch):
                with torch.enable_grad():
                    backward(self.loss(chosen), weights.parameters)
                clip_gradient(weights.gradient, _MAX_GRAD_NORM)
                with weights.frozen_unmoved():
                    optimizer.step(weights.gradient, LEARNING_RATE)
                self._model.update_batch_norms()
            losses = self._losses()
            if losses[-1] < best[-1]:
                best = losses
                best_state = copy_of(self._model)
                best_pass = number
            elif number - best_pass >= PATIENCE:
                break
        self._model.load_state_dict(best_state)
        metrics = {"demo/loss": best[0]}
        words = f"loss {before[0]:.4g} to {best[0]:.4g}"
        if self.num_held_out:
            metrics["demo/held_out_loss"] = best[1]
            words += (f", held-out loss {before[1]:.4g} to {best[1]:.4g} on {self.num_held_out} "
                      "of the episodes")
        log.info(f"cloned {self.demonstrations}: {words}, the best of {number} passes")
        return metrics

    def loss(self, chosen: Tensor) -> Tensor:
        """The mean of -log π over the `chosen` steps, or episodes of a policy with a memory."""
        model = self._model
        device = model.value_head.weight.device
        steps, valid = self._steps(chosen)
        is_first = self._is_first[steps].to(device)
        state = model.initial_state(steps.shape[1])
        stacks = model.stacks(self._obs_at(steps), is_first, state)
        if not model.recurrent:
            stacks = tuple(part[-1:] for part in stacks)
            is_first = is_first[-1:]
            steps = steps[-1:]
            state = ()
        features = model.features(model.inputs(stacks), is_first, state)
        mask = None if self._masks is None else self._masks[steps].to(device)
        params = model.policy_head(features, mask)
        log_probs = model.distribution.log_prob(params, self._actions[steps].to(device))
        return -masked_mean(log_probs, valid.to(device))

    def sampled_loss(self, generator: torch.Generator) -> Tensor:
        """`loss` of a random batch; of data-parallel ranks, each draws its share."""
        drawn = torch.randint(len(self._learned), (self._share,), generator=generator,
                              device=generator.device)
        return self.loss(self._learned[drawn.cpu()])

    def _items(self, episodes: Tensor) -> Tensor:
        """What is drawn: these episodes, or their steps."""
        if self._model.recurrent:
            return episodes
        steps = [torch.arange(int(self._lengths[i])) + self._starts[i] for i in episodes.tolist()]
        return torch.cat(steps) if steps else episodes

    def _steps(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The steps [T, B] that `chosen` items need in order, and which ones count.

        Without memory these are the last frames, and only the last row counts, [1, B].
        """
        if not self._model.recurrent:
            ages = torch.arange(1 - self._model.policy.frame_stack, 1).unsqueeze(1)
            return (chosen + ages).clamp(min=0), torch.ones(1, len(chosen), dtype=torch.bool)
        lengths = self._lengths[chosen]
        times = torch.arange(int(lengths.max())).unsqueeze(1)
        return self._starts[chosen] + torch.minimum(times, lengths - 1), times < lengths

    def _obs_at(self, steps: Tensor) -> Obs:
        device = self._model.value_head.weight.device
        parts = {name: part[steps].to(device) for name, part in self._obs.items()}
        return parts if self._model.keys else parts[WHOLE]

    @torch.no_grad()
    def _observe(self) -> None:
        """Update the normalisers by all demonstrations, so that inputs fit from the start."""
        for rows in torch.split(torch.arange(len(self._actions)), _OBSERVED_AT_ONCE):
            self._model.observe(self._obs_at(rows.unsqueeze(1)))

    @torch.no_grad()
    def _losses(self) -> list[float]:
        """The loss on what is learned from and, if there is any, on what is held out."""
        losses = [self._mean_loss(items) for items in (self._learned, self._held_out) if len(items)]
        if not all(map(math.isfinite, losses)):
            raise NonFiniteError("the loss of cloning the demonstrations is not finite; try "
                                 "--obs-norm if their observations are large")
        return losses

    def _mean_loss(self, items: Tensor) -> float:
        batches = torch.split(items, self._batch)
        num_steps = [int(self._steps(chosen)[1].sum()) for chosen in batches]
        losses = [float(self.loss(chosen)) for chosen in batches]
        total = sum(loss * steps for loss, steps in zip(losses, num_steps, strict=True))
        return total / sum(num_steps)


def _in_policy_units(model: ActorCritic, demonstrations: Demonstrations) -> Tensor:
    """The actions as the policy chooses them: scaled as the run scales them."""
    action = model.spec.action
    actions = demonstrations.actions
    if action.dtype == "int64":
        return torch.from_numpy(np.require(actions, np.int64, ["C", "W"]))
    centre, half_width = action.scale
    return as_tensor((actions - centre) / half_width)
