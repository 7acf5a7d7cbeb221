"""A learning rate that follows the KL divergence between the policies before and after updates."""

from __future__ import annotations

from collections.abc import Mapping

from vantage.errors import ConfigError
from vantage.keys.schedules import HIGHEST_RATE, KL, LOWEST_RATE, Coefficient, Schedule

APPROX_KL = "train/approx_kl"
"""The metric with the divergence."""
FACTOR = 1.5


class AdaptiveRate:
    """Divided by 1.5 after an update with more than twice the target, multiplied below half of it.

    As in rl_games and rsl_rl, between 1e-6 and 1e-2, but once an update, by the mean divergence
    over its minibatches, so that no minibatch waits for a number.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.target, self.rate = schedule.values

    @classmethod
    def of(cls, lr: Coefficient, former: AdaptiveRate | None = None) -> AdaptiveRate | None:
        """The rate of `lr`, which stays where it is if the schedule is the former; or None."""
        if not isinstance(lr, Schedule) or lr.kind != KL:
            return None
        return former if former is not None and former.schedule == lr else cls(lr)

    def follow(self, metrics: Mapping[str, float]) -> None:
        """Adapt to the metrics of an update. ConfigError if they have no divergence."""
        if APPROX_KL not in metrics:
            raise ConfigError(f"lr={self.schedule} follows {APPROX_KL}, which the algorithm does "
                              "not log; log it, or give lr a number")
        divergence = metrics[APPROX_KL]
        if divergence > 2 * self.target:
            self.rate = max(LOWEST_RATE, self.rate / FACTOR)
        elif divergence < self.target / 2:
            self.rate = min(HIGHEST_RATE, self.rate * FACTOR)
