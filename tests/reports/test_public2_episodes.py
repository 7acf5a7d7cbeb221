"""Reports on episodes that end early: within skipped frames, and at a time limit of one step.

Frames after the end, rewards of skipped frames: github.com/Unity-Technologies/ml-agents/issues/46,
github.com/Farama-Foundation/Arcade-Learning-Environment/issues/18; pooled frames of an early end:
github.com/Farama-Foundation/Gymnasium/pull/1692. Videos: github.com/isaac-sim/IsaacLab/pull/894.
Time limits: github.com/Toni-SM/skrl/issues/449 and 224, github.com/DLR-RM/stable-baselines3/issues/1864.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from environments import make

import vantage
from vantage.algorithms.interface import Update
from vantage.config.config import Config
from vantage.learning.collect import Position, collect
from vantage.models.build import make_model


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize(
    ("length", "rewards"),
    [(1, [1, 0, 1, 0]), (4, [10, 0, 10, 0]), (5, [10, 5, 0, 10]), (8, [10, 26, 0, 10])],
)
def test_skipped_frames_end_with_the_episode_and_keep_its_rewards(
    length: int, rewards: list[float], truncates: bool
) -> None:
    envs = make(
        "public_envs:Counted", options={"length": length, "truncates": truncates}, frame_skip="4"
    )
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(4)]
    assert [float(step.rewards[0]) for step in steps] == rewards
    assert [bool(step.terminated[0]) for step in steps if step.episodes] == [not truncates] * sum(
        bool(step.episodes) for step in steps
    )
    (episode, *_) = (each for step in steps for each in step.episodes)
    assert (episode.score, episode.length) == (length * (length + 1) / 2, -(-length // 4))


@pytest.mark.parametrize(
    ("length", "shown"), [(1, [190, 200]), (5, [170, 150, 200]), (6, [170, 150, 200])]
)
def test_pooled_frames_are_those_of_the_last_step_alone(length: int, shown: list[int]) -> None:
    envs = make("public_envs:Fading", options={"length": length}, frame_skip="4", max_frames=2)
    envs.reset()
    images = [envs.step(np.zeros(1, np.int64)).obs for _ in shown]
    assert [(int(image.min()), int(image.max())) for image in images] == [
        (value, value) for value in shown
    ]


@pytest.mark.parametrize(("skip", "frames", "fps"), [(1, 26, 60), (5, 8, 12)])
def test_a_video_plays_in_real_time_whatever_the_frames_of_a_step(
    skip: int, frames: int, fps: float, tmp_path: Path
) -> None:
    """12 frames a game, of which the first and the last of each step are seen; two games."""
    config = vantage.configure(
        "a2c",
        env="public_envs:Counted",
        env_kwargs={"length": 12},
        frame_skip=str(skip),
        steps=10,
        num_envs=1,
        eval_every=0,
        tensorboard=False,
        threads=1,
    )
    list(vantage.Trainer(config, run=tmp_path / "run"))
    video = vantage.record(tmp_path / "run", tmp_path / "game.mp4", episodes=2)
    assert (video.scores, video.frames, video.fps) == ([78, 78], frames, fps)


@pytest.mark.parametrize("gae_lambda", ["0", "0.95", "1"])
def test_the_target_at_a_time_limit_of_one_step_is_the_reward_and_the_value_that_follows(
    gae_lambda: str,
) -> None:
    keys = {"gamma": "0.5", "gae_lambda": gae_lambda, "advantage_norm": False}
    config = Config.of("ppo").override(keys, source="test")
    envs = make("public_envs:OneStep", 2)
    model = make_model(config.policy, envs.spec, critic="state")
    position = Position.after(envs.reset(), model.initial_state(2), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    rollout = collect(model, envs, position, length=6, generator=generator, values=True).rollout
    assert rollout.valid[:, 0].tolist() == [True, False] * 3, "every second step resets"
    advantages, targets = config.algorithm.estimate(rollout, Update(0, 1, None, None, False))
    values = rollout.values
    expected = 1 + 0.5 * values[1:] - values[:-1]
    torch.testing.assert_close(advantages[rollout.valid], expected[rollout.valid])
    torch.testing.assert_close(targets[rollout.valid], (1 + 0.5 * values[1:])[rollout.valid])
