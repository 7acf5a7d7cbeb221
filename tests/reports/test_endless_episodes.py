"""Episodes that never end: what is kept of them for a resume has a limit, which is named."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import make
from gymnasium import spaces
from tiny import Tiny

import vantage
from vantage.envs import history
from vantage.envs.history import MAX_REPLAY_BYTES, History
from vantage.runs.checkpoint import load_latest
from vantage.specs import ActionSpec

ROBOT = ActionSpec("box", (17,), (-1.0,) * 17, (1.0,) * 17)


class Endless(Tiny):
    """An action of 17 floats; the second environment of any two, if `ends`, has episodes of 7 steps."""

    made = 0

    def __init__(self, ends: bool = False) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1, 1, (17,), np.float32)
        self.ends = ends and Endless.made % 2 == 1
        Endless.made += 1

    def obs(self) -> Any:
        return np.full(1, self.t % 5, np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1.0, self.ends and self.t == 7


def test_the_actions_of_64_robots_take_at_most_100_megabytes() -> None:
    kept, actions, most = History(64, ROBOT), np.ones((64, 17), np.float32), 0
    while not kept.passed:
        kept.append(actions)
        most = max(most, len(kept._rows) * actions.nbytes)
    assert 0.95 * MAX_REPLAY_BYTES < most <= MAX_REPLAY_BYTES == 10**8
    assert kept.passed == "100 MB of actions" and not kept._rows
    for _ in range(10):
        kept.append(actions)
    assert not kept._rows and (kept.snapshot()["action_counts"] == -1).all() and not len(kept.snapshot()["actions"])
    kept.restart(np.arange(64) == 3)
    kept.append(np.ones((64, 17), np.float32))
    assert kept.snapshot()["action_counts"].tolist() == [-1, -1, -1, 1, *[-1] * 60]


def test_environments_with_ends_are_kept_beside_one_without() -> None:
    kept = History(2, ROBOT, max_bytes=20 * (2 * 17 * 4 + 41))
    rows = np.arange(100 * 2 * 17, dtype=np.float32).reshape(100, 2, 17)
    for step, row in enumerate(rows):
        kept.append(row)
        if step % 10 == 5:
            kept.restart(np.array([False, True]))
    snapshot = kept.snapshot()
    assert snapshot["action_counts"].tolist() == [-1, 4]
    np.testing.assert_array_equal(snapshot["actions"], rows[96:, 1])
    assert len(kept._rows) == 4


def test_a_replay_takes_a_minute_at_most_or_ten_thousand_steps() -> None:
    slow, fast = History(1, ActionSpec("discrete", (2,))), History(1, ActionSpec("discrete", (2,)))
    for _ in range(20_000):
        slow.append(np.zeros(1, np.int64), 0.005)
        fast.append(np.zeros(1, np.int64), 0.001)
    assert slow.passed == "60 s of steps" and not fast.passed  # 12,000 steps
    slower = History(1, ActionSpec("discrete", (2,)))
    for _ in range(10_000):
        slower.append(np.zeros(1, np.int64), 1.0)
    assert not slower.passed and len(slower._rows) == 10_000


def test_a_checkpoint_of_an_earlier_version_with_a_longer_history_is_loaded_without_it() -> None:
    counts = np.array([30_000, 3])
    actions = np.ones((30_003, 17), np.float32)
    kept = History(2, ROBOT, max_bytes=10**6)
    kept.restore({"action_counts": counts, "actions": actions})
    assert (kept.starts < 0).tolist() == [True, False] and len(kept._rows) == 3
    assert kept.snapshot()["action_counts"].tolist() == [-1, 3]


def test_a_resume_beyond_the_limit_begins_a_new_episode_and_says_so(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.History.__init__, "__kwdefaults__",
                        history.History.__init__.__kwdefaults__ | {"max_bytes": 150 * (2 * 17 * 4 + 41)})
    monkeypatch.setattr(Endless, "made", 0)
    config = vantage.configure("a2c", env=f"{__name__}:Endless", env_kwargs={"ends": True}, num_envs=2,
                               rollout_length=10, steps=1000, hidden="4", threads=1, tensorboard=False, eval_every=0)
    with caplog.at_level(logging.WARNING, "vantage"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    line, = (record.getMessage() for record in caplog.records)
    assert "the episode is longer than 0 MB of actions, so that a resume begins a new one; set max_episode" in line
    counts = load_latest(tmp_path / "run").tensors["envs"]["action_counts"].tolist()
    assert -1 in counts and max(counts) <= 7
    caplog.clear()
    with caplog.at_level(logging.WARNING, "vantage"):
        next(vantage.Trainer.resume(tmp_path / "run", steps=2000, extend_schedule=True))
    assert f"environments {counts.index(-1)} could not be restored by a replay and begin a new episode" in caplog.text


def test_an_environment_without_end_is_restored_below_the_limit() -> None:
    envs = make(f"{__name__}:Endless", 1)
    envs.reset()
    for _ in range(300):
        envs.step(np.zeros((1, 17), np.float32))
    first = make(f"{__name__}:Endless", 1).reset(envs.snapshot())
    assert not first.lost and not first.is_first[0]
