"""The options of environments: on both Atari paths, on any environment, and where they have no effect."""

from __future__ import annotations

import cv2
import environments
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from test_env_resume import check, moments, uninterrupted

from vantage.envs.atari import AtariGame, wrapped_emulator
from vantage.envs.config import EnvConfig
from vantage.envs.ids import PROTOCOLS, TWO_PLAYERS, AtariId, resolve_env
from vantage.envs.options import CROP_TABLES, margins_of
from vantage.errors import ConfigError
from vantage.specs import ArraySpec


class Frames(gym.Env):
    """Pays `pays` a frame and shows the number of frames so far: as a gray level, or by `vector` as a number.

    The class's `actions` lists the four actions as they arrive.
    """

    actions: list[int] = []  # noqa: RUF012
    metadata = {}  # noqa: RUF012

    def __init__(self, length: int = 10**6, colour: bool = False, vector: bool = False, masked: bool = False,
                 pays: float = 1.0, highest: int = 255, planes: int = 0) -> None:
        self.length, self.masked, self.pays = length, masked, pays
        planes = 3 if colour else planes
        image = (20, 16, planes) if planes else (20, 16)
        self.shape = (1,) if vector else image
        self.observation_space = spaces.Box(0, highest, self.shape, np.float32 if vector else np.uint8)
        self.action_space = spaces.Discrete(4, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.show()

    def step(self, action):
        assert not self.masked or action != 2
        type(self).actions.append(int(action))
        self.t += 1
        obs, info = self.show()
        return obs, self.pays, self.t >= self.length, False, info

    def show(self):
        obs = np.full(self.shape, self.t, self.observation_space.dtype)
        return obs, {"action_mask": np.array([0, 1, 1, 1], np.int8)} if self.masked else {}


def make(name: str = "test_env_options:Frames", num_envs: int = 1, **keys):
    return environments.make(name, num_envs, **keys)


def rewards_of(envs, steps: int) -> list[float]:
    envs.reset()
    return [float(envs.step(np.zeros(envs.num_envs, int)).rewards[0]) for _ in range(steps)]


@pytest.mark.parametrize(("name", "keys"), [
    ("Pong", {"screen_size": "60x47"}), ("Breakout", {"grayscale": False}),
    ("Breakout", {"crop": "30,0,0,0", "grayscale": False, "frame_skip": 3, "max_frames": 1}),
    ("SpaceInvaders", {"crop": "rl-a3c-pytorch", "screen_size": 80, "frame_skip": 1})])
def test_wrapped_emulators_equal_native_ones(name, keys):
    native = make(name, 2, max_episode_steps=60, noop_max=0, **keys)
    wrapped = make(name, 2, max_episode_steps=60, noop_max=0, rendered=True, **keys)
    assert (native.reset().obs == wrapped.reset().obs).all()
    rng, ends = np.random.default_rng(0), 0
    for _ in range(90):
        actions = rng.integers(native.spec.action.sizes[0], size=2)
        one, two = native.step(actions), wrapped.step(actions)
        assert all(np.array_equal(getattr(one, name), getattr(two, name))
                   for name in ("rewards", "terminated", "is_first", "valid", "episodes"))
        assert (native.snapshot()["lives"] == wrapped.snapshot()["lives"]).all()
        if not one.episodes:  # native emulators show the frames before the last one at an end
            assert (one.obs == two.obs).all()
        ends += len(one.episodes)
    assert ends >= 2 and native.spec == wrapped.spec


def test_wrapped_emulators_draw_no_ops_as_native_ones_do():
    for random_start, most in ((0, 4), (3, 7)):
        config = EnvConfig(noop_max=5, random_start=random_start)
        env = wrapped_emulator(AtariGame.of(AtariId("pong", PROTOCOLS["v5"]), config))
        env.reset(seed=0)
        frames = [env.reset() and env.unwrapped.ale.getEpisodeFrameNumber() for _ in range(60)]
        assert set(frames) == set(range(most + 1))


def test_more_frames_are_pooled_beyond_the_native_path():
    envs = make("Breakout", max_frames=3, crop="34,16,0,0", screen_size=80, noop_max=0, fire_on_reset=False)
    assert "leave ALE's native path" in " ".join(envs.notes)
    emulator = gym.make("BreakoutNoFrameskip-v4", obs_type="grayscale")
    emulator.reset()
    envs.reset()
    for t in range(120):
        frames = [emulator.step(1 + t % 3)[0] for _ in range(4)]
        cut = np.maximum.reduce(frames[1:])[34:194]
        expected = cv2.resize(cut, (80, 80), interpolation=cv2.INTER_AREA)
        assert (envs.step(np.array([1 + t % 3])).obs[0, 0] == expected).all()


@pytest.mark.parametrize(("name", "keys"), [
    ("Breakout", {"max_frames": 3, "random_start": 20, "action_subset": "NOOP,RIGHT,LEFT", "max_episode_steps": 70}),
    ("ALE/Seaquest-v5", {"frame_skip": "2-4", "max_frames": 1, "max_episode_steps": 60}),
    ("test_env_options:Frames", {"frame_skip": "1-3", "random_start": 9, "max_episode_steps": 40, "grayscale": None}),
    ("CartPole-v1", {"frame_skip": "2", "random_start": 5, "action_subset": "1"})])
def test_options_go_on_after_a_resume(name, keys):
    run = uninterrupted(name, 100, **keys)
    for stop in moments(run[2])[1:]:
        check(name, run, stop, 20, **keys)


def test_a_subset_of_actions_reaches_the_emulators_and_fire_is_pressed_all_the_same():
    for subset in ("0,3", "noop, LEFT"):
        envs = make("Breakout", action_subset=subset, noop_max=0)
        assert envs.spec.action.sizes == (2,)
        assert "actions: NOOP, LEFT" in envs.notes
        envs.reset()
        for _ in range(30):
            envs.step(np.ones(1, int))
        assert envs.snapshot()["actions"].tolist() == [1] + [3] * 29
    Frames.actions.clear()
    envs = make(action_subset="3,1", options={"masked": True})
    assert envs.reset().action_mask.tolist() == [[True, True]]
    envs.step(np.array([0])), envs.step(np.array([1]))
    assert Frames.actions == [5, 3]
    assert make(action_subset="0,2", options={"masked": True}).reset().action_mask.tolist() == [[False, True]]


def test_a_range_of_frame_skip_draws_all_its_numbers_by_the_seed():
    runs = [rewards_of(make(frame_skip="2-4", seed=seed), 60) for seed in (0, 0, 1)]
    assert set(runs[0]) == {2.0, 3.0, 4.0}
    assert runs[0] == runs[1] != runs[2]
    assert (make(frame_skip="4-2").frames_per_step, make("Pong", frame_skip=5).frames_per_step) == (3, 5)
    assert make("Pong", frame_skip="2-5", max_frames=1).frames_per_step == 3.5


def test_a_step_ends_with_the_episode_and_limits_count_steps():
    assert rewards_of(make(frame_skip=4, options={"length": 10}), 4) == [4, 4, 2, 0]
    envs = make(frame_skip=4, max_episode_steps=3)
    rewards_of(envs, 2)
    step = envs.step(np.zeros(1, int))
    assert step.episodes[0].length == 3 and step.episodes[0].score == 12 and not step.terminated[0]
    envs = make("CartPole-v1", frame_skip=5, max_episode_steps=2)
    envs.reset()
    assert [len(envs.step(np.array([t % 2])).episodes) for t in range(2)] == [0, 1]


def test_episodes_begin_with_random_actions_drawn_by_their_seed():
    def begins(**keys):
        envs = make(random_start=6, options={"vector": True, **keys.pop("options", {})}, max_episode_steps=1, **keys)
        first = [float(envs.reset().obs[0, 0])]
        steps = [envs.step(np.zeros(1, int)) for _ in range(120)]
        return first + [float(step.obs[0, 0]) for step in steps if step.is_first[0]]

    Frames.actions.clear()
    assert set(begins()) == set(range(7))
    assert set(Frames.actions) == {2, 3, 4, 5}
    assert begins() == begins() != begins(seed=1)
    assert set(begins(options={"length": 3})) == {0, 1, 2}, "an episode that ends in its start begins again without"
    with pytest.raises(ConfigError, match="ignores action masks"):
        make(random_start=3, options={"masked": True})


def test_images_of_any_environment_are_cropped_made_gray_and_resized():
    envs = make(crop="2,4,1,5", options={"colour": True})
    assert envs.spec.obs.shape == envs.reset().obs.shape[1:] == (3, 14, 10)
    envs = make(grayscale=True, screen_size="8x6", frame_skip=9, options={"colour": True})
    assert envs.spec.obs.shape == (1, 8, 6)
    envs.reset()
    assert set(envs.step(np.zeros(1, int)).obs.ravel()) == {9}
    car = make("CarRacing-v3", crop="0,12,0,0", grayscale=True, screen_size=42)
    rgb = make("CarRacing-v3").reset().obs[0].transpose(1, 2, 0)[:84]
    gray = cv2.resize(cv2.cvtColor(np.ascontiguousarray(rgb), cv2.COLOR_RGB2GRAY), (42, 42),
                      interpolation=cv2.INTER_AREA)
    assert (car.reset().obs[0, 0] == gray).all()
    assert make(crop="1,0,0,0", options={"highest": 10}).spec.obs == ArraySpec("image", (1, 19, 16), 10), "codes"


def test_a_crop_table_has_margins_by_game():
    games = {rom for rom in CROP_TABLES["rl-a3c-pytorch"] if rom}
    assert all(resolve_env(game).atari.game == game and game not in TWO_PLAYERS for game in games)
    for game, rows in (("pong", (34, 194)), ("ms_pacman", (2, 170)), ("space_invaders", (8, 196)),
                       ("video_pinball", (42, 210))):
        top, bottom, left, right = margins_of(EnvConfig(crop="rl-a3c-pytorch"), game, (210, 160))
        assert (top, 210 - bottom, left, right) == (*rows, 0, 0)


def test_rewards_are_scaled_after_the_clip_and_floored_last():
    def learnt(**keys):
        return rewards_of(make(frame_skip=3, **keys), 1)[0]

    assert learnt() == 3
    assert learnt(reward="sign") == learnt(reward="clip") == 1
    assert learnt(reward="sign", options={"pays": 0.25}) == 1 and learnt(reward="clip", options={"pays": 0.25}) == 0.75
    assert learnt(reward_scale=-5, reward_floor=-7) == -7
    assert learnt(reward="clip", reward_scale=0.5, reward_floor=0.75) == 0.75
    assert learnt(evaluation=True, reward="clip", reward_scale=-5, reward_floor=-7) == 3


@pytest.mark.parametrize(("env", "keys", "says"), [
    ("test_env_options:Frames", {"grayscale": True}, "the images are gray"),
    ("test_env_options:Frames", {"grayscale": True, "options": {"planes": 5}}, "these images have 5 planes"),
    ("test_env_options:Frames", {"crop": "10,10,0,0"}, "leaves nothing of images of 20x16"),
    ("test_env_options:Frames", {"max_frames": 2}, "more than the 1 frames of a step"),
    ("CartPole-v1", {"action_subset": "0,0"}, "twice"), ("Pong", {"action_subset": "NOOP,RIHGT"}, "0 NOOP, 1 FIRE"),
    ("Pong", {"frame_skip": "1-4", "max_frames": 2}, "more than the 1 frames"),
    ("Freeway", {"fire_on_reset": True}, "fire_on_reset has no effect on Freeway"),
    ("Pong", {"vector": "async"}, "no effect on Atari")])
def test_an_option_without_effect_is_refused(env, keys, says):
    """Further ones are in cli/bad_inputs.toml."""
    with pytest.raises(ConfigError, match=says):
        make(env, **keys)
