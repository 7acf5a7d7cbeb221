"""The Atari fast path against Gymnasium's wrappers around one emulator, and what each protocol does."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from environments import make
from gymnasium.wrappers import AtariPreprocessing

from vantage.envs.atari import AtariGame, native_emulators
from vantage.envs.config import EnvConfig
from vantage.envs.ids import PROTOCOLS, resolve_env

PLAIN = dataclasses.replace(PROTOCOLS["classic"], noop_max=0, fire=False, life_signal=False)


def play(envs, steps: int, *, seed: int = 0):
    """`steps` steps of random actions."""
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(envs.spec.action.sizes[0], size=envs.num_envs)) for _ in range(steps)]


@pytest.mark.parametrize("name", ["Pong", "Breakout"])
def test_frames_rewards_lives_and_ends_are_those_of_gymnasiums_wrappers(name):
    envs = make(name, protocol=PLAIN)
    slow = AtariPreprocessing(gym.make(f"{name}NoFrameskip-v4"), noop_max=0, frame_skip=4)
    obs, _ = slow.reset()
    assert (envs.reset().obs[0, 0] == obs).all()
    rng, over, after = np.random.default_rng(0), False, 0
    for _ in range(1500):
        action = rng.integers(envs.spec.action.sizes[0])
        step, resetting = envs.step(np.array([action])), over
        if resetting:
            (obs, info), reward, terminated, truncated = slow.reset(), 0, False, False
        else:
            obs, reward, terminated, truncated, info = slow.step(action)
        assert (step.obs[0, 0] == obs).all()
        assert step.rewards[0] == reward
        assert envs.snapshot()["lives"][0] == info["lives"]
        assert step.terminated[0] == terminated
        assert step.is_first[0] == resetting
        assert bool(step.episodes) == (terminated or truncated)
        over = terminated or truncated
        after += over or after > 0
        if after == 60:
            break
    assert after == 60, "steps since the end of the first game"


def test_resets_draw_0_to_29_no_ops_under_classic_and_none_under_v5():
    def frames(name, resets):
        emulators = native_emulators(AtariGame.of(resolve_env(name).atari, EnvConfig()), 8, 1)
        return {frame for attempt in range(resets) for frame in emulators.reset(
            seed=None if attempt else np.arange(8), options={"reset_mask": np.ones(8, bool)}
        )[1]["episode_frame_number"].tolist()}

    drawn = frames("Pong", 8)
    assert drawn <= set(range(30)) and min(drawn) <= 1 and max(drawn) >= 28
    assert frames("ALE/Pong-v5", 2) == {0}


def test_fire_is_pressed_after_a_reset_and_a_lost_life_where_it_is_the_second_action():
    freeway = make("Freeway", max_episode_steps=20)
    freeway.reset()
    assert all(step.valid[0] != step.is_first[0] for step in play(freeway, 60))
    envs = make("Breakout")
    envs.reset()
    steps = [envs.step(np.zeros(1, int)) for _ in range(600)]
    lengths = [step.episodes[0].length for step in steps if step.episodes]
    assert len(lengths) >= 2 and max(lengths) < 250
    pressed = [t for t, step in enumerate(steps) if not step.valid[0] and not step.is_first[0]]
    before = [t for t, step in enumerate(steps) if step.is_first[0] or (step.terminated[0] and not step.episodes)]
    assert pressed == [0, *(t + 1 for t in before if t < 599)]


def test_a_lost_life_ends_the_bootstrap_in_training_and_nothing_in_evaluation():
    training, evaluation, v5 = make("Breakout"), make("Breakout", evaluation=True), make("ALE/Breakout-v5")
    for envs in (training, evaluation, v5):
        envs.reset()
    learnt, seen = play(training, 400), play(evaluation, 400)
    lost = [t for t, step in enumerate(learnt) if step.terminated[0] and not step.episodes]
    assert len(lost) >= 4
    assert not any(learnt[t + 1].is_first[0] for t in lost)
    assert not any(step.terminated[0] and not step.episodes for step in [*seen, *play(v5, 400)])
    # The games are the same: only what is called an end differs.
    assert all((a.obs == b.obs).all() and (a.valid == b.valid).all() for a, b in zip(learnt, seen, strict=True))


def test_the_score_is_raw_and_of_the_whole_game():
    clipped, raw = make("SpaceInvaders", 2, reward="sign"), make("SpaceInvaders", 2, reward="sign", evaluation=True)
    clipped.reset(), raw.reset()
    learnt, seen = play(clipped, 700), play(raw, 700)
    assert {float(r) for step in learnt for r in step.rewards} == {0.0, 1.0}
    end, episode = next((t, step.episodes[0]) for t, step in enumerate(learnt) if step.episodes)
    assert episode.score == sum(step.rewards[episode.env] for step in seen[:end + 1]) > 10
    assert episode.length == end + 1
    assert sum(step.terminated[episode.env] for step in learnt[:end + 1]) == 3  # lives


def test_protocols_differ_in_actions_and_notes_name_every_rule():
    machado, classic = make("Pong", protocol=PROTOCOLS["machado"]), make("Pong")
    assert (machado.spec.action.sizes, classic.spec.action.sizes) == ((18,), (6,))
    for envs, rules in ((machado, ("sticky actions 0.25", "no no-op", "all actions", "FIRE not pressed", "no life")),
                        (classic, ("no sticky", "0 to 29 no-ops", "minimal", "FIRE pressed", "lost life ends the"))):
        assert all(rule in envs.notes[2] for rule in rules)


def test_every_environment_seed_and_stream_plays_its_own_games():
    games = set()
    for keys in ({}, {"seed": 1}, {"stream": 1}):
        envs = make("ALE/Seaquest-v5", 2, **keys)
        envs.reset()
        obs = np.stack([step.obs for step in play(envs, 40)])
        games |= {obs[:, env].tobytes() for env in range(2)}
    assert len(games) == 6


def test_games_after_a_seeded_reset_are_seeded_by_their_number():
    envs = make("Pong", 1, max_episode_steps=20, reseed_steps=30)
    envs.reset()
    play(envs, 42)
    snapshot = envs.snapshot()
    assert snapshot["episode"][0] == snapshot["seeded_episode"][0] == 2  # not yet after 21 steps, but after 42
    assert snapshot["action_counts"].tolist() == [0]


def test_a_reset_with_fewer_lives_than_the_game_before_is_no_lost_life():
    envs = make("Breakout", max_episode_steps=10)
    envs.reset()
    play(envs, 10)
    envs._lives[:] = 9  # as after bonus lives, which no short random game wins
    step = envs.step(np.zeros(1, int))
    assert step.is_first[0]
    assert not step.terminated[0]
