"""The names of Vantage's metrics: the table has exactly what runs write, and users' metrics have other names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vantage
from vantage.errors import ConfigError
from vantage.keys.metric_names import INFO_PREFIXES, METRICS, NODE_PREFIXES, is_metric
from vantage.runs.metrics import read_metrics

SHORT: dict[str, Any] = {"env": "tiny:Bandit", "num_envs": 2, "rollout_length": 8, "hidden": [4], "steps": 96,
                         "threads": 1, "tensorboard": False}
EPISODES = [{"observations": np.zeros((5, 4)), "actions": np.zeros(4, int)}] * 2
CASES: dict[str, dict[str, Any]] = {
    "a2c": {"eval_every": 16, "max_eval_share": 1},
    "a2c with vtrace": {"vtrace": True, "eval_every": 0, "max_minutes": 9},
    "ppo": {"eval_every": 0, "env": "Pendulum-v1"},
    "acer": {"eval_every": 0, "replay_start": 0},
    "acer of a Box": {"eval_every": 0, "replay_start": 0, "env": "Pendulum-v1"},
    "a2c with a success": {"eval_every": 16, "max_eval_share": 1, "env": "tiny:Leveled"},
    "ppo with demonstrations": {"eval_every": 0, "env": "CartPole-v1", "demonstrations": EPISODES},
    "ppo with curiosity": {"eval_every": 0, "curiosity": "rnd"},
    "ppo with self-play": {"eval_every": 0, "env": "pettingzoo_envs:TicTacToe", "self_play": 2, "self_play_every": 1},
    "a3c": {"eval_every": 0, "num_workers": 1}}
DOCUMENTED = Path(__file__).parents[2] / "docs/training.md"


class Extra(vantage.A2C):
    """A2C that logs a metric of its own."""

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        loss, terms = super().loss(model, rollout, update)
        return loss, {**terms, "train/extra": torch.tensor(1.0)}


def test_the_table_has_the_metrics_of_all_algorithms_and_runtimes(tmp_path: Path) -> None:
    """Those of Ray: tests/runtimes/test_ray.py. Those of TensorBoard's hyperparameters have no line."""
    written: set[str] = set()
    for case, keys in CASES.items():
        run = tmp_path / case
        for report in vantage.Trainer(case.split()[0], run=run, **SHORT | keys):
            written |= report.metrics.keys()
        for line in read_metrics(run):
            written |= line.keys() - {"step", "seconds"}
    of_info = {name for name in written if name.startswith(INFO_PREFIXES)}
    assert of_info == {f"{prefix}level" for prefix in INFO_PREFIXES}
    written = {name for name in written if not name.startswith(INFO_PREFIXES)}
    assert written == {name for name in METRICS if not name.startswith(("ray/", "final/"))}


def test_the_documentation_lists_the_table() -> None:
    section = DOCUMENTED.read_text(encoding="utf-8").partition("## Metrics")[2].partition("\n## ")[0]
    names: set[str] = set()
    for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE):
        first, *others = re.findall("`([^`]+)`", row)
        group = first.partition("/")[0]
        names |= {first, *(f"{group}/{name}" for name in others)}
    of_nodes = {f"{prefix}NODE" for prefix in NODE_PREFIXES}
    assert names == METRICS | of_nodes | {f"{prefix}NAME" for prefix in INFO_PREFIXES}


def test_a_metric_of_the_user_has_any_name_but_that_of_another_metric() -> None:
    with vantage.Trainer(Extra, run="run", **SHORT) as trainer:
        trainer.update()
        for name in ("my/success_rate", "train/my_loss", "eval/mine", "ray/fps", "loss"):
            trainer.log(name, 1)
        assert trainer.update().metrics["train/my_loss"] == 1
        for name, owner in (("rollout/ep_rew_mean", "Vantage writes"), ("eval/second_mean_reward", "Vantage writes"),
                            ("ray/fps/10.0.0.1", "Vantage writes"), ("rollout/info/x", "Vantage writes"),
                            ("train/extra", "the algorithm logs")):
            own = f"my/{name.rpartition('/')[2]}"
            with pytest.raises(ConfigError, match=f"'{name}' is a metric that {owner} itself; .* such as '{own}'"):
                trainer.log(name, 1)
            assert not is_metric(own)
            trainer.log(own, 1)
