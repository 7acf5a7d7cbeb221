"""`vantage bench`: the speed of training, and of its parts while it trains."""

from __future__ import annotations

import math
import tempfile
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from vantage.config.config import Config
from vantage.runtimes.training import train_updates

_ROUND_SECONDS = 4.0


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
        lines = ["agent steps per second"]
        parts = {"environments": self.env, "acting": self.act, "learning": self.learn}
        for name, speed in parts.items():
            share = self.whole / speed
            lines.append(f"  {name:<14}{speed:>10,.0f}   {share:4.0%} of the time")
        lines.append(f"  {'training':<14}{self.whole:>10,.0f}")
        return "\n".join(lines)


def bench(config: Config, *, seconds: float = 30.0) -> Bench:
    """Train `config` for about `seconds`, in rounds of at most 4 s, after one to warm up."""
    rounds = max(5, math.ceil(seconds / _ROUND_SECONDS))
    config = config.change(
        steps=10**12,
        max_minutes=0,
        stop_at_return=None,
        stop_at_eval=None,
        tensorboard=False,
        log_weights=False,
        track="none",
        eval_every=0,
        eval_every_seconds=0,
        save_every=10**12,
        log_every_seconds=seconds / rounds,
    )
    if config.algorithm.needs.replay:
        config = config.change(replay_start=0)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with closing(train_updates(config, run=run, argv=())) as reports:
            timed = (report.metrics for report in reports
                     if report is not None and report.metrics.get("time/fps"))
            measured = list(islice(timed, 1, 1 + rounds))

    def speed(part: str) -> float:
        return median(metrics["time/fps"] / max(1e-9, metrics[f"time/{part}_share"])
                      for metrics in measured)

    env = speed("env")
    act = speed("act")
    learn = speed("learn")
    whole = median(metrics["time/fps"] for metrics in measured)
    return Bench(env, act, learn, whole, whole * (1 / env + 1 / act + 1 / learn), rounds)
