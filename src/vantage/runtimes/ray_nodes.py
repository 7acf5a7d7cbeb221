"""Metrics of each node of a Ray cluster: speed, policy lag, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

RATE_SECONDS = 5.0
"""Seconds over which the speed of a node is measured."""


class NodeRates:
    """Sums what each node contributes, and turns the sums into metrics every `RATE_SECONDS`."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._sums: dict[str, Counter[str]] = {}
        self._restarts: Counter[str] = Counter()

    def count_reply(self, node: str, steps: int, lag: int) -> None:
        """Add a reply with so many `steps`, whose weights were `lag` updates old."""
        self._sums.setdefault(node, Counter()).update(steps=steps, lag=lag, replies=1)

    def count_restart(self, node: str) -> None:
        """Add a worker that was replaced."""
        self._restarts[node or "none"] += 1

    def due(self, now: float) -> bool:
        """The rates cover long enough."""
        return now - self._since > RATE_SECONDS

    def metrics(self, now: float, nodes: Sequence[str]) -> dict[str, float]:
        """Metrics since the last call. `nodes` has the node of each worker that runs."""
        metrics: dict[str, float] = {}
        for node, sums in self._sums.items():
            metrics[f"ray/fps/{node}"] = sums["steps"] / (now - self._since)
            metrics[f"ray/policy_lag/{node}"] = sums["lag"] / max(1, sums["replies"])
        for node, count in self._restarts.items():
            metrics[f"ray/restarts/{node}"] = float(count)
        self._since = now
        self._sums = {node: Counter() for node in nodes}
        return metrics
