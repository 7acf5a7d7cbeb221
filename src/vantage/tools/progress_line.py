"""Progress of a training run as one line of text. The panel of a terminal is in `display`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from vantage.config.config import Config

if TYPE_CHECKING:
    from vantage.types import Report

LINE_EVERY_SECONDS = 10.0
_SHOWN = {"steps/s": "time/fps", "return": "rollout/ep_rew_mean", "entropy": "train/entropy",
          "value loss": "train/value_loss"}


def progress_line(config: Config, report: Report, evaluation: Mapping[str, float]) -> str:
    """Steps, share, time, the most important metrics, and the score of the newest `evaluation` if there is one."""
    done, left = progress(config, report)
    of_time = " of the time" * (done > report.step / config.run.steps)
    values = "  ".join(f"{name} {number(report.metrics.get(key))}" for name, key in _SHOWN.items())
    evaluated = f"  evaluation {number(evaluation['eval/mean_reward'])}" if evaluation else ""
    return f"{report.step:>12,} steps {done:4.0%}{of_time}  {clock(report.seconds)} (left {left})  {values}{evaluated}"


def progress(config: Config, report: Report) -> tuple[float, str]:
    """The completed share of the run, by steps or minutes, whichever is larger, and about how much time is left."""
    share, fps = report.metrics.get("time/minutes_share", 0.0), report.metrics.get("time/fps")
    done = min(1.0, max(report.step / config.run.steps, share))
    if not fps:  # no update yet
        return done, "–"
    left = (config.run.steps - report.step) / fps
    if config.run.max_minutes:
        left = min(left, config.run.max_minutes * 60 * (1 - share))
    return done, clock(max(0.0, left))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, such as 1:02:03."""
    return str(timedelta(seconds=int(seconds))) if seconds < 1e9 else "over 30 years"


def number(value: float | None) -> str:
    """Four digits, or a dash without a value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e9 else f"{value:,.4g}"
