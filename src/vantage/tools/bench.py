"""`vantage bench`: the speed of training, and of its parts while it trains."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from vantage.config.config import Config
from vantage.runtimes.training import train_updates


@dataclass(frozen=True, slots=True)
class Bench:
    """Agent steps per second, medians over rounds of training."""

    env: float
    """Per second of waiting for the environments."""
    act: float
    learn: float
    whole: float
    ratio: float
    """Share of the time that these three parts take."""
    rounds: int

    def table(self) -> str:
        parts = {"environments": self.env, "acting": self.act, "learning": self.learn}
        return "\n".join([
            "agent steps per second",
            *(f"  {name:<14}{speed:>10,.0f}   {self.whole / speed:4.0%} of the time" for name, speed in parts.items()),
            f"  {'training':<14}{self.whole:>10,.0f}"])


def bench(config: Config, *, seconds: float = 30.0, rounds: int | None = None) -> Bench:
    """Train `config` for about `seconds` after a round that warms up, in `rounds`, by default of four seconds."""
    rounds = rounds or max(5, int(seconds / 4))
    config = config.change(steps=10**12, max_minutes=0, stop_at_return=None, stop_at_eval=None,
                           tensorboard=False, track="none", eval_every=0, eval_every_seconds=0,
                           save_every=10**12, log_every_seconds=seconds / rounds,
                           **({"replay_start": 0} if config.algorithm.needs.replay else {}))
    with tempfile.TemporaryDirectory() as folder, \
            closing(train_updates(config, run=Path(folder) / "run", argv=())) as reports:
        trained = (report.metrics for report in reports if report is not None
                   and report.metrics.get("time/fps"))
        measured = list(islice(trained, 1, 1 + rounds))
    speeds = [[metrics["time/fps"] / max(1e-9, metrics[f"time/{part}_share"])
               for part in ("env", "act", "learn")] + [metrics["time/fps"]] for metrics in measured]
    env, act, learn, whole = map(float, np.median(speeds, axis=0))
    return Bench(env, act, learn, whole, whole * (1 / env + 1 / act + 1 / learn), rounds)
