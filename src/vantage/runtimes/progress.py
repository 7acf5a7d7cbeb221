"""What a run counts beside its weights: steps, time, the last games, the best score. No learning, no files."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from vantage.config import Config
from vantage.types import Episode

WINDOW = 100
"""Games that rollout/ep_rew_mean, ep_rew_min, ep_rew_max and ep_len_mean cover."""


@dataclass(slots=True)
class Advance:
    """What updates came to: one, or the sum of several."""

    steps: int = 0
    updates: int = 0
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    """Sums over the updates."""
    env_seconds: float = 0.0
    act_seconds: float = 0.0
    learn_seconds: float = 0.0

    def __iadd__(self, other: Advance) -> Advance:
        self.steps += other.steps
        self.updates += other.updates
        self.episodes += other.episodes
        for name, value in other.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + value
        self.env_seconds += other.env_seconds
        self.act_seconds += other.act_seconds
        self.learn_seconds += other.learn_seconds
        return self


class Progress:
    """Counters of one run, kept in its checkpoints, and the metrics that come of them."""

    def __init__(self, frames_per_step: float, num_workers: int = 1) -> None:
        self.frames_per_step, self.num_workers = frames_per_step, num_workers
        self.step = 0
        self.episodes = 0
        self.evaluation_due = False
        """An evaluation was due at this step and has not been made."""
        self.evaluated_step, self.evaluated_at = 0, 0.0
        """Where the clock of evaluations began to run: a step and the seconds of the run."""
        self.solved = False
        """The last evaluation reached the config's `stop_at_eval`."""
        self.recent: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self.best_return: float | None = None
        self._seconds_before = 0.0
        self._started = perf_counter()
        self._logged = self._asked = self._started
        self._logged_step = 0
        self._shares = {"env": 0.0, "act": 0.0, "learn": 0.0}
        self._sums: dict[str, float] = {}
        self._updates_logged = 0

    @property
    def seconds(self) -> float:
        """Wall time spent training, over all resumes."""
        return self._seconds_before + perf_counter() - self._started

    @property
    def return_mean(self) -> float | None:
        """Mean raw score of the last 100 games; None before the first has ended."""
        return fmean(score for score, _ in self.recent) if self.recent else None

    def goal_reached(self, config: Config) -> str | None:
        """Which goal of the config ends the run here, for a person; None if none does."""
        if config.run.stop_at_eval is not None and self.solved:
            return f"an evaluation reached stop_at_eval={config.run.stop_at_eval:g}, with the policy in best/"
        mean = self.return_mean
        if config.run.stop_at_return is not None and mean is not None and len(self.recent) == WINDOW \
                and mean >= config.run.stop_at_return:
            return f"the mean of the last games reached stop_at_return={config.run.stop_at_return:g}"
        return None

    def add(self, advance: Advance) -> None:
        """Count what one or several updates came to."""
        self.step += advance.steps
        for episode in advance.episodes:
            self.episodes += 1
            self.recent.append((episode.score, episode.length))
        for name, value in advance.metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._updates_logged += advance.updates
        for name, seconds in (("env", advance.env_seconds), ("act", advance.act_seconds),
                              ("learn", advance.learn_seconds)):
            self._shares[name] += seconds / self.num_workers

    def unevaluated_for(self, seconds: float) -> bool:
        """So many have passed since the last evaluation, and steps too; 0 seconds never have."""
        return 0 < seconds <= self.seconds - self.evaluated_at and self.step > self.evaluated_step

    def evaluated(self) -> None:
        """The clock of evaluations begins to run anew."""
        self.evaluated_step, self.evaluated_at = self.step, self.seconds

    def due(self, every_seconds: float) -> bool:
        """It is time for the next report; then the time until the one after begins."""
        now = perf_counter()
        if now - self._asked < every_seconds:
            return False
        self._asked = now
        return True

    def metrics(self) -> dict[str, float]:
        """Metrics since the last call: means of the losses, rates, and the window of games."""
        now = perf_counter()
        elapsed = max(1e-9, now - self._logged)
        found = {name: total / self._updates_logged for name, total in self._sums.items()}
        if self.recent:
            scores = [score for score, _ in self.recent]
            found["rollout/ep_rew_mean"] = fmean(scores)
            found["rollout/ep_rew_min"], found["rollout/ep_rew_max"] = min(scores), max(scores)
            found["rollout/ep_len_mean"] = fmean(length for _, length in self.recent)
        found["rollout/episodes"] = self.episodes
        found["time/fps"] = (self.step - self._logged_step) / elapsed
        found["time/frames"] = self.step * self.frames_per_step
        for name, seconds in self._shares.items():
            found[f"time/{name}_share"] = seconds / elapsed
        self._logged, self._logged_step, self._updates_logged, self._sums = now, self.step, 0, {}
        self._shares = dict.fromkeys(self._shares, 0.0)
        return found

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"step": self.step, "episodes": self.episodes, "seconds": self.seconds,
                "evaluation_due": self.evaluation_due, "evaluated_step": self.evaluated_step,
                "evaluated_at": self.evaluated_at, "recent": [list(game) for game in self.recent],
                "best_return": self.best_return, "solved": self.solved}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.step = self._logged_step = state["step"]
        self.episodes, self.evaluation_due = state["episodes"], state.get("evaluation_due", False)
        self.recent.extend((score, length) for score, length in state["recent"])
        self.best_return, self.solved = state["best_return"], state.get("solved", False)
        self._seconds_before = state["seconds"]
        self.evaluated_step = state.get("evaluated_step", self.step)
        self.evaluated_at = state.get("evaluated_at", self._seconds_before)


def goal_reached(state: dict[str, Any], config: Config) -> str | None:
    """`Progress.goal_reached` where a checkpoint's progress has this `state`."""
    progress = Progress(1.0)
    progress.load(state)
    return progress.goal_reached(config)
