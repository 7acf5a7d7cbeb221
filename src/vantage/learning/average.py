"""The average policy of ACER, which the trust region is around. Nothing here says how far it may be left."""

from __future__ import annotations

import copy

from torch import Tensor

from vantage.learning.flat_parameters import FlatParameters
from vantage.models.actor_critic import ActorCritic


class AveragePolicy:
    """A model of its own whose weights follow those of another; it normalises as that one does.

    θ_a ← α θ_a + (1 - α) θ                                         Wang et al. 2017, arXiv:1611.01224, section 3.3
    """

    def __init__(self, model: ActorCritic) -> None:
        self.model = copy.deepcopy(model)
        for (_, own), (_, other) in zip(self.model.running(), model.running(), strict=True):
            own.share(other)
        self.flat = FlatParameters(self.model)
        self.model.requires_grad_(False)

    @property
    def vector(self) -> Tensor:
        """[P]: its weights, laid out as those of the other."""
        return self.flat.vector


def follow(average: Tensor, weights: Tensor, decay: float) -> None:
    """Move the vector `average` once towards `weights`, in place."""
    average.lerp_(weights, 1 - decay)
