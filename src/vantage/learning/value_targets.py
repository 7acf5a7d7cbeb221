"""The value targets of updates, for the statistics of a model with `value_norm`."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from vantage.errors import ConfigError
from vantage.learning.weights import GradientSink
from vantage.models.actor_critic import ActorCritic
from vantage.models.normalization import Stats, merge_batches, stats_of
from vantage.models.value_norm import ValueNormalizer
from vantage.types import Rollout


class ValueTargets:
    """Records the targets of each update, and makes the value normaliser follow them after it.

    `models` are the learned one and copies with averaged weights, which share its statistics.
    """

    def __init__(self, norm: ValueNormalizer, models: list[ActorCritic]) -> None:
        self.norm = norm
        self._models = models
        self._stats: Stats | None = None
        self._begun = False

    def begins(self) -> bool:
        """Whether no targets have been seen, so that those of the first update come before it."""
        begins = not self._begun and float(self.norm.count) < 1
        self._begun = True
        return begins

    def scaled(self, rollout: Rollout) -> Rollout:
        """`rollout` with rewards and values divided by the deviation, as losses take them."""
        deviation = self.norm.deviation
        values = rollout.values
        if values is not None:
            values = values / deviation
        return replace(rollout, rewards=rollout.rewards / deviation, values=values)

    def record(self, targets: Tensor, valid: Tensor) -> None:
        """Take note of targets [T, B], divided by the deviation."""
        valid_targets = (targets.detach() * self.norm.deviation)[valid]
        self._stats = stats_of(valid_targets.double().unsqueeze(-1))

    def follow(self, sink: GradientSink, algo: str) -> None:
        """Merge the targets that all processes have recorded. ConfigError if there are none."""
        if self._stats is None:
            raise ConfigError(f"value_norm=popart needs the value targets of algorithm={algo}; "
                              "call update.record_targets(targets, valid) in its loss, or give "
                              "--value-norm none")
        merge_batches([(lambda *stats: self._merge(sink, stats), self._stats)], sink.all_gather)
        self._stats = None

    def _merge(self, sink: GradientSink, stats: Stats) -> None:
        if not stats[0] > 0:
            return
        with sink.exclusive() as writes_shared:
            heads = [model.value_head for model in self._models[0 if writes_shared else 1:]]
            self.norm.follow(stats, heads)
