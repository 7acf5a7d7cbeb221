"""The counters of a run beside its weights: steps, time, recent games, best score. No learning, no files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from vantage.config.config import Config
from vantage.envs.interface import LONGEST_GAME
from vantage.runs.validation import COUNTERS, FLAGS
from vantage.types import Episode

_SAVED = (*COUNTERS, *FLAGS, "best_return")

SHORTEST_CUT = 1_000
"""Steps that a game of an evaluation beside training may always have."""


@dataclass(slots=True)
class Advance:
    """The result of one update, or the sum of several."""

    steps: int = 0
    updates: int = 0
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    """Sums over the updates that have logged them."""
    counts: dict[str, int] = field(default_factory=dict)
    """Updates that have logged a metric, where these are not all `updates`."""
    unsaved: frozenset[str] = frozenset()
    """State of the algorithm in this process that no checkpoint holds, in words."""
    env_seconds: float = 0.0
    act_seconds: float = 0.0
    learn_seconds: float = 0.0
    eval_seconds: float = 0.0
    """Seconds of the main process alone; other processes wait or continue."""

    def __iadd__(self, other: Advance) -> Advance:
        counts = {name: self.count(name) for name in self.metrics}
        for name, value in other.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + value
            counts[name] = counts.get(name, 0) + other.count(name)
        self.counts = counts
        self.unsaved = self.unsaved | other.unsaved
        for name in ("steps", "updates", "episodes", "env_seconds", "act_seconds", "learn_seconds", "eval_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def count(self, name: str) -> int:
        """The number of updates that have logged a metric."""
        return self.counts.get(name, self.updates)

    def means(self) -> dict[str, float]:
        """The mean of each metric over the updates that have logged it."""
        return {name: value / self.count(name) for name, value in self.metrics.items()}


def sum_of(advances: Iterable[Advance]) -> Advance:
    """All of them as one."""
    total = Advance()
    for advance in advances:
        total += advance
    return total


class Progress:
    """Counters of one run, saved in its checkpoints, and the metrics computed from them."""

    def __init__(self, frames_per_step: float, num_workers: int = 1, window: int = 100) -> None:
        self.frames_per_step, self.num_workers = frames_per_step, num_workers
        self.step = 0
        self.episodes = 0
        self.evaluation_due = False
        """An evaluation was due at this step and has not been made."""
        self.evaluated_step, self.evaluated_at = 0, 0.0
        """Step and seconds of the last evaluation, or of the start."""
        self.solved = False
        """The last evaluation reached the config's `stop_at_eval`."""
        self.recent: deque[tuple[float, int]] = deque(maxlen=window)
        """Score and length of the last games: rollout/ep_rew_mean, ep_rew_min, ep_rew_max, ep_len_mean."""
        self.best_return: float | None = None
        self.deterministic: bool | None = None
        """Evaluations take the most probable actions, not sampled ones; None before the first."""
        self.eval_steps = 0
        """Agent steps of the games of all evaluations."""
        self.last_eval_steps = 0
        """Those of the last evaluation."""
        self._started = self._logged_at = self._reported_at = perf_counter()
        self._logged_step = 0
        self._sum = Advance()
        """The updates that no metrics have yet."""
        self.unsaved: set[str] = set()
        """State of the algorithm in any process that no checkpoint holds, in words."""
        self.logged: set[str] = set()
        """The names of all metrics that updates have logged in this session."""
        self.extra: dict[str, float] = {}
        """Further metrics, of the runtime."""
        self._rates: dict[str, float] = {}
        """The losses and rates of the last metrics."""
        self.latest: list[Advance] | None = None
        """What has been added since a caller, who reads single updates, has put a list here."""
        self.ended: deque[Episode] | None = None
        """The newest episodes, for a caller who has put a deque here, reads it and empties it."""
        self._of_recent: dict[str, float] | None = None
        """The metrics of the recent games; None where another has ended since."""

    @property
    def seconds(self) -> float:
        """Wall time spent training, over all resumes."""
        return perf_counter() - self._started

    @property
    def window_is_full(self) -> bool:
        """There are as many recent games as the window covers."""
        return len(self.recent) == self.recent.maxlen

    @property
    def return_mean(self) -> float | None:
        """Mean raw score of the recent games; None before the first has ended."""
        return fmean(score for score, _ in self.recent) if self.recent else None

    def goal_reached(self, config: Config) -> str | None:
        """The goal of the config that ends the run here, in words; None if none does."""
        if config.run.stop_at_eval is not None and self.solved:
            return f"an evaluation reached stop_at_eval={config.run.stop_at_eval:g}, with the policy in best/"
        goal, mean = config.run.stop_at_return, self.return_mean
        if goal is not None and mean is not None and self.window_is_full and mean >= goal:
            return f"the mean of the last {self.recent.maxlen} games reached stop_at_return={goal:g}"
        return None

    def add(self, advance: Advance) -> None:
        """Count one or several updates."""
        self.step += advance.steps
        self.episodes += len(advance.episodes)
        if advance.episodes:
            self.recent.extend((episode.score, episode.length) for episode in advance.episodes)
            self._of_recent = None
            if self.ended is not None:
                self.ended.extend(advance.episodes)
        if self.latest is not None:
            self.latest.append(advance)
        self.unsaved |= advance.unsaved
        if advance.updates:
            self.logged |= advance.metrics.keys()
        self._sum += advance
        self._sum.episodes = ()

    def longest_game(self) -> int:
        """Steps after which evaluations cut a game without a time limit: ten times the longest of the recent ones.

        A policy that is stuck plays such games, up to the limit.
        """
        longest = max((length for _, length in self.recent), default=0)
        return min(LONGEST_GAME, max(SHORTEST_CUT, 10 * longest)) if longest else LONGEST_GAME

    def may_evaluate(self, games: int, share: float) -> bool:
        """An evaluation of `games` games and one of the final policy keep to `share` of the steps of training.

        Each is expected to be as long as the last one, or before the first, as `games` games of training. No clock is
        asked, so a run takes the same course under any load.
        """
        length = fmean(length for _, length in self.recent) if self.recent else LONGEST_GAME
        cost = self.last_eval_steps or games * length
        return share >= 1 or self.eval_steps + 2 * cost <= share * self.step

    def unevaluated_for(self, seconds: float) -> bool:
        """`seconds` have passed since the last evaluation, and steps too; False for 0."""
        return 0 < seconds <= self.seconds - self.evaluated_at and self.step > self.evaluated_step

    def evaluated(self) -> None:
        """Restart the clock of evaluations."""
        self.evaluated_step, self.evaluated_at = self.step, self.seconds

    def due(self, every_seconds: float) -> bool:
        """The next report is due; then restarts its clock."""
        now = perf_counter()
        if now - self._reported_at < every_seconds:
            return False
        self._reported_at = now
        return True

    def metrics(self) -> dict[str, float]:
        """Means of the losses and rates since the last call, or its own if no step was made since; recent games."""
        if self.step > self._logged_step:
            now, total = perf_counter(), self._sum
            elapsed = max(1e-9, now - self._logged_at)
            self._rates = total.means()
            self._rates["time/fps"] = (self.step - self._logged_step) / elapsed
            for name in ("env", "act", "learn"):
                self._rates[f"time/{name}_share"] = getattr(total, f"{name}_seconds") / self.num_workers / elapsed
            self._rates["time/eval_share"] = total.eval_seconds / elapsed
            self._logged_at, self._logged_step, self._sum = now, self.step, Advance()
        metrics = self._rates | self.extra
        metrics |= {"rollout/episodes": self.episodes, "time/frames": self.step * self.frames_per_step}
        return metrics | self.metrics_of_recent()

    def metrics_of_recent(self) -> dict[str, float]:
        """The metrics of the recent games; empty before the first has ended."""
        if self._of_recent is None and self.recent:
            scores, lengths = zip(*self.recent, strict=True)
            self._of_recent = {"rollout/ep_rew_mean": fmean(scores), "rollout/ep_rew_min": min(scores),
                               "rollout/ep_rew_max": max(scores), "rollout/ep_len_mean": fmean(lengths)}
        return self._of_recent or {}

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SAVED} | {"recent": [list(game) for game in self.recent]}

    def load(self, state: dict[str, Any]) -> None:
        self._started = perf_counter() - state["seconds"]
        for name in _SAVED:
            if name != "seconds" and name in state:  # runs of earlier versions lack the newest
                setattr(self, name, state[name])
        self._logged_step = self.step
        self._rates = {"time/fps": self.step / max(1e-9, self.seconds)} if self.step else {}
        self.recent.extend((score, length) for score, length in state["recent"])


def goal_reached(state: dict[str, Any], config: Config) -> str | None:
    """`Progress.goal_reached` of the saved `state`."""
    progress = Progress(1.0, window=config.run.return_window)
    progress.load(state)
    return progress.goal_reached(config)
