"""A learning rate that follows the KL divergence between the policies before and after updates."""

from __future__ import annotations

from collections.abc import Mapping

from vantage.errors import ConfigError
from vantage.keys.schedules import HIGHEST_RATE, KL, LOWEST_RATE, Coefficient, Schedule

APPROX_KL = "train/approx_kl"
"""The metric with the divergence."""
FACTOR = 1.5


def adapted(rate: float, divergence: float, target: float) -> float:
    """The rate after an update with this mean `divergence`.

    Divided by 1.5 above twice the target, multiplied by 1.5 below half of it, between 1e-6 and
    1e-2.
    """
    if divergence > 2 * target:
        return max(LOWEST_RATE, rate / FACTOR)
    if divergence < target / 2:
        return min(HIGHEST_RATE, rate * FACTOR)
    return rate


class AdaptiveRate:
    """A rate that is `adapted` after each update.

    rl_games and rsl_rl have the same rule, after each pass or minibatch. Here it uses the mean
    divergence over an update's minibatches, so that no minibatch waits for a number.
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
        self.rate = adapted(self.rate, metrics[APPROX_KL], self.target)
