"""Early stops and searches, which choose by evaluations: by the way of acting that was fixed."""

from __future__ import annotations

from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Tiny

import vantage
from vantage.runs.metrics import read_metrics
from vantage.tools.search.options import Options
from vantage.tools.search.plan import make_plan
from vantage.tools.search.study import enqueue, load_study, open_storage
from vantage.tools.search.worker import Worker

QUIET: dict[str, Any] = {
    "threads": 1,
    "hidden": "8",
    "tensorboard": False,
    "num_envs": 4,
    "rollout_length": 8,
    "lr": 0,
    "steps": 192,
    "eval_every": 64,
    "eval_episodes": 20,
    "max_eval_share": 1,
}


class Alternating(Tiny):
    """Pays for each of seven steps whose action is not that of the step before.

    The observation is always the same: a policy that does not learn earns nothing by its most
    probable action, and half of the steps by sampled ones.
    """

    def begin(self) -> None:
        self.before: Any = None

    def play(self, action: Any) -> tuple[Any, bool]:
        changed = self.before is not None and action != self.before
        self.before = action
        return changed, self.t == 8


def test_a_run_does_not_stop_early_by_the_way_of_acting_that_is_not_its_own(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env=Alternating, stop_at_eval=2.0, **QUIET)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.step == 192 and last.metrics["eval/mean_reward"] == 0
    lines = [line for line in read_metrics(tmp_path / "run") if "eval/step" in line]
    sampled = [line["eval/mean_reward_sampled"] for line in lines]
    assert len(sampled) == 3 and np.mean(sampled) == pytest.approx(3.5, abs=1)


def test_a_search_compares_trials_by_the_same_way_of_acting(tmp_path: Path) -> None:
    plan = make_plan("a2c", f"{__name__}:Alternating", QUIET, Options(grid='{"gamma": [0.9]}'))
    study = load_study(plan, open_storage(None, tmp_path))
    enqueue(study, plan, 1)
    stop, other_end = Pipe()
    study.optimize(Worker(plan, None, tmp_path, 1, stop), n_trials=1)
    other_end.close()
    assert study.best_value == 0
