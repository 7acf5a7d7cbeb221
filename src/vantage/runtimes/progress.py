"""`Progress`: the counters of a run, such as steps, time, recent games and best score.

No learning or files here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from vantage.config.config import Config
from vantage.envs.interface import LONGEST_GAME
from vantage.learning.adaptive_rate import APPROX_KL
from vantage.runs.info_numbers import SuccessNote, info_metrics, numbers_of
from vantage.runs.validation import COUNTERS, FLAGS
from vantage.runtimes.steps import no_end_in_training
from vantage.types import Episode

log = logging.getLogger(__name__)

_LATEST = ("self_play/elo",)  # metrics whose last value counts, not the mean over updates
_SAVED = (*COUNTERS, *FLAGS, "best_return", "learning_rate", "divergence")

SHORTEST_CUT = 1_000
"""Least step limit of games in an evaluation during training."""


@dataclass(slots=True)
class Advance:
    """The result of one update, or the sum of several."""

    steps: int = 0
    updates: int = 0
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    """Sums over the updates that have logged each metric."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of updates that have logged a metric, if not all `updates` have."""
    unsaved: frozenset[str] = frozenset()
    """Names of state of the algorithm in this process that checkpoints do not hold."""
    env_seconds: float = 0.0
    act_seconds: float = 0.0
    learn_seconds: float = 0.0
    eval_seconds: float = 0.0
    """Seconds of the main process alone; other processes wait or continue."""

    def __iadd__(self, other: Advance) -> Advance:
        counts = {name: self.count(name) for name in self.metrics}
        for name, value in other.metrics.items():
            if name in _LATEST:
                self.metrics[name] = value / other.count(name)
                counts[name] = 1
            else:
                self.metrics[name] = self.metrics.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + other.count(name)
        self.counts = counts
        self.unsaved = self.unsaved | other.unsaved
        for name in ("steps", "updates", "episodes", "env_seconds", "act_seconds", "learn_seconds",
                     "eval_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def count(self, name: str) -> int:
        """The number of updates that have logged a metric."""
        return self.counts.get(name, self.updates)

    def means(self) -> dict[str, float]:
        """The mean of each metric over the updates that have logged it."""
        return {name: value / self.count(name) for name, value in self.metrics.items()}


class Progress:
    """Counters of one run, saved in its checkpoints, and the metrics computed from them."""

    def __init__(self, frames_per_step: float, num_workers: int = 1, window: int = 100) -> None:
        self.frames_per_step = frames_per_step
        self.num_workers = num_workers
        self.step = 0
        self.episodes = 0
        self.evaluation_due = False
        """An evaluation was due at this step and has not been made."""
        self.evaluated_step = 0
        self.evaluated_at = 0.0
        """Step and seconds of the last evaluation; 0 before the first."""
        self.solved = False
        """The last evaluation reached the config's `stop_at_eval`."""
        self.recent: deque[tuple[float, int]] = deque(maxlen=window)
        """Score and length of the last games, for rollout/ep_rew_mean and the like."""
        self.recent_numbers: deque[Mapping[str, float]] = deque(maxlen=window)
        """Numbers in the last `info` of these games, for rollout/success_rate and rollout/info."""
        self.best_return: float | None = None
        self.deterministic: bool | None = None
        """Evaluations take the most probable actions, not sampled ones; None before the start."""
        self.eval_steps = 0
        """Agent steps of the games of all evaluations."""
        self.last_eval_steps = 0
        """Agent steps of the games of the last evaluation."""
        now = perf_counter()
        self._started = now
        self._logged_at = now
        self._reported_at = now
        self._logged_step = 0
        self._sum = Advance()
        """Updates since the last call of `metrics`."""
        self.unsaved: set[str] = set()
        """Names of state of the algorithm, in any process, that checkpoints do not hold."""
        self.logged: set[str] = set()
        """The names of all metrics that updates have logged in this session."""
        self.extra: dict[str, float] = {}
        """Further metrics, of the runtime."""
        self._rates: dict[str, float] = {}
        """The losses and rates of the last metrics."""
        self._noted_endless = False
        self._success_note = SuccessNote()
        self.learning_rate: float | None = None
        """The mean learning rate of the last update; None before the first."""
        self.divergence: float | None = None
        """The mean KL divergence of the last update; None if it is unknown."""
        self.total: Advance | None = None
        """If a caller sets an `Advance`, `add` also adds each update to it."""
        self.new_episodes: deque[Episode] | None = None
        """If a caller sets a deque, `add` appends every episode to it."""
        self._recent_metrics: dict[str, float] | None = None
        """Cached metrics of the recent games; None after another game has ended."""

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
            return (f"an evaluation reached stop_at_eval={config.run.stop_at_eval:g}, with the "
                    "policy in best/")
        goal = config.run.stop_at_return
        mean = self.return_mean
        if goal is not None and mean is not None and self.window_is_full and mean >= goal:
            return (f"the mean of the last {self.recent.maxlen} games reached "
                    f"stop_at_return={goal:g}")
        return None

    def add(self, advance: Advance) -> None:
        """Count one or several updates."""
        self.step += advance.steps
        self.episodes += len(advance.episodes)
        if advance.episodes:
            self.recent.extend((episode.score, episode.length) for episode in advance.episodes)
            self.recent_numbers.extend(numbers_of(each.info) for each in advance.episodes)
            for words in filter(None, (self._success_note(each.info) for each in advance.episodes)):
                log.warning(words)
            self._recent_metrics = None
            if self.new_episodes is not None:
                self.new_episodes.extend(advance.episodes)
        if self.total is not None:
            self.total += advance
        self.unsaved |= advance.unsaved
        if advance.updates:
            self.logged |= advance.metrics.keys()
            means = advance.means()
            self.learning_rate = means.get("train/learning_rate", self.learning_rate)
            self.divergence = means.get(APPROX_KL)
        self._sum += advance
        self._sum.episodes = ()

    def longest_game(self) -> int:
        """Step limit of evaluation games: ten times the longest recent game; 0 before the first.

        It bounds the games of a policy that is stuck in an environment without a time limit.
        """
        longest = max((length for _, length in self.recent), default=0)
        if longest == 0:
            return 0
        return min(LONGEST_GAME, max(SHORTEST_CUT, 10 * longest))

    def note_endless(self, step: int, *, is_last: bool) -> None:
        """Cancel the due evaluation; warn once, unless the end of training gives the warning."""
        self.evaluation_due = False
        if not (self._noted_endless or is_last):
            log.warning(no_end_in_training(step, evaluates=True))
        self._noted_endless = True

    def may_evaluate(self, games: int, share: float) -> bool:
        """Another evaluation, and that of the final policy, keep to `share` of the training steps.

        Each is expected to take as many steps as the last one; before the first, as many as `games`
        training games. It does not depend on the clock, so that a run takes the same course under
        any load.
        """
        length = fmean(length for _, length in self.recent) if self.recent else LONGEST_GAME
        cost = self.last_eval_steps or games * length
        return share >= 1 or self.eval_steps + 2 * cost <= share * self.step

    def unevaluated_for(self, seconds: float) -> bool:
        """No evaluation for `seconds` (0: never) although steps were made."""
        return 0 < seconds <= self.seconds - self.evaluated_at and self.step > self.evaluated_step

    def restart_evaluation_clock(self) -> None:
        """Restart the clock of evaluations."""
        self.evaluated_step = self.step
        self.evaluated_at = self.seconds

    def due(self, every_seconds: float) -> bool:
        """The next report is due. If so, restarts its clock."""
        now = perf_counter()
        if now - self._reported_at < every_seconds:
            return False
        self._reported_at = now
        return True

    def metrics(self) -> dict[str, float]:
        """Mean losses and rates since the last call, and the metrics of recent games.

        Without a new step since then, the losses and rates of the last call.
        """
        if self.step > self._logged_step:
            now = perf_counter()
            total = self._sum
            elapsed = max(1e-9, now - self._logged_at)
            self._rates = total.means()
            self._rates["time/fps"] = (self.step - self._logged_step) / elapsed
            for name in ("env", "act", "learn"):
                seconds = getattr(total, f"{name}_seconds")
                self._rates[f"time/{name}_share"] = seconds / self.num_workers / elapsed
            self._rates["time/eval_share"] = total.eval_seconds / elapsed
            self._logged_at = now
            self._logged_step = self.step
            self._sum = Advance()
        metrics = self._rates | self.extra
        metrics |= {"rollout/episodes": self.episodes,
                    "time/frames": self.step * self.frames_per_step}
        return metrics | self.metrics_of_recent()

    def metrics_of_recent(self) -> dict[str, float]:
        """The metrics of the recent games; empty before the first has ended."""
        if self._recent_metrics is None and self.recent:
            scores = [score for score, _ in self.recent]
            lengths = [length for _, length in self.recent]
            self._recent_metrics = {
                "rollout/ep_rew_mean": fmean(scores),
                "rollout/ep_rew_min": min(scores),
                "rollout/ep_rew_max": max(scores),
                "rollout/ep_len_mean": fmean(lengths),
                **info_metrics("rollout", self.recent_numbers),
            }
        return self._recent_metrics or {}

    def summary(self, config: Config, status: str) -> dict[str, Any]:
        """The content of summary.json: how a run stands or ended."""
        return {
            "status": status,
            "steps": self.step,
            "frames": round(self.step * self.frames_per_step),
            "seconds": self.seconds,
            "fps": self.step / max(1e-9, self.seconds),
            "episodes": self.episodes,
            "return_mean": self.return_mean,
            "best_return": self.best_return,
            "env": config.env.id,
            "algo": config.algo,
            "seed": config.run.seed,
        }

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: getattr(self, name) for name in _SAVED}
        state["recent"] = [list(game) for game in self.recent]
        state["recent_numbers"] = [dict(numbers) for numbers in self.recent_numbers]
        return state

    def load(self, state: dict[str, Any]) -> None:
        self._started = perf_counter() - state["seconds"]
        for name in _SAVED:
            if name != "seconds" and name in state:  # runs of earlier versions lack the newest
                setattr(self, name, state[name])
        self._logged_step = self.step
        self._rates = {"time/fps": self.step / max(1e-9, self.seconds)} if self.step else {}
        self.recent.extend((score, length) for score, length in state["recent"])
        self.recent_numbers.extend(state.get("recent_numbers", ()))


def goal_reached(state: dict[str, Any], config: Config) -> str | None:
    """`Progress.goal_reached` of the saved `state`."""
    progress = Progress(1.0, window=config.run.return_window)
    progress.load(state)
    return progress.goal_reached(config)
