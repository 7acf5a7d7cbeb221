"""Environments that go on from a snapshot do exactly what they would have done without the stop."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

import environments
import numpy as np
import pytest
from ale_py import AtariVectorEnv

from vantage.envs.atari import forgets_games
from vantage.errors import ConfigError

pytestmark = pytest.mark.integration

with warnings.catch_warnings():  # Box2D's SWIG types warn at import (2.3.10); as an error that kills the interpreter
    warnings.simplefilter("ignore")
    import Box2D  # noqa: F401


def make(name: str, num_envs: int = 2, **keys):
    return environments.make(name, num_envs, **keys)


def random_actions(envs, steps: int):
    spec, rng = envs.spec.action, np.random.default_rng(3)
    if spec.kind == "box":
        return rng.normal(size=(steps, envs.num_envs, *spec.shape)).astype(np.float32)
    return rng.integers(spec.sizes[0], size=(steps, envs.num_envs, *spec.shape))


def bits(value):
    """The arrays of a First or Step as bytes, for comparison."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, Mapping):
        return {key: bits(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value):
        return [bits(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


def uninterrupted(name: str, steps: int, **keys):
    """Actions, what each step gave, and the snapshot at each point: snapshots[t] is before step t."""
    envs = make(name, **keys)
    first = envs.reset()
    actions = random_actions(envs, steps)
    outcomes, snapshots = [], [envs.snapshot()]
    for action in actions:
        outcomes.append(envs.step(action))
        snapshots.append(envs.snapshot())
    envs.close()
    return actions, first, outcomes, snapshots


def check(name: str, run, stop: int, after: int, **keys):
    """Going on at `stop` gives the same `after` steps as never having stopped, and the same snapshot then."""
    actions, first, outcomes, snapshots = run
    envs = make(name, **keys)
    restored = envs.reset(snapshots[stop])
    before = outcomes[stop - 1] if stop else first
    assert restored.lost == ()
    assert bits(restored.obs) == bits(before.obs)
    assert bits(restored.is_first) == bits(before.is_first)
    assert bits(restored.action_mask) == bits(before.action_mask)
    end = min(stop + after, len(actions))
    for t in range(stop, end):
        assert bits(envs.step(actions[t])) == bits(outcomes[t]), f"step {t} after a stop at {stop}"
    again = envs.snapshot()
    assert bits({key: again[key] for key in snapshots[end]}) == bits(snapshots[end])
    envs.close()


def moments(outcomes) -> list[int]:
    """Stops after the first step, after the first game's last step, after its reset step, and late."""
    end = next(t for t, step in enumerate(outcomes) if step.episodes)
    return [1, end + 1, end + 2, len(outcomes) - 20]


def test_cartpole_goes_on_from_every_step():
    run = uninterrupted("CartPole-v1", 60)
    assert sum(len(step.episodes) for step in run[2]) >= 3
    for stop in range(60):
        check("CartPole-v1", run, stop, 25)


@pytest.mark.parametrize(("name", "steps", "keys"), [
    ("Pendulum-v1", 150, {"max_episode_steps": 40}), ("LunarLander-v3", 300, {}),
    ("BipedalWalker-v3", 300, {"max_episode_steps": 90}), ("vantage/SnakePlural-v0", 60, {}),
    ("CarRacing-v3", 36, {"max_episode_steps": 10, "num_envs": 1}),
    ("FrozenLake-v1", 60, {}), ("CartPole-v1", 60, {"vector": "async"}),
    ("CartPole-v1", 100, {"vector": "async", "short_episode_steps": 7, "short_episode_every": 2}),
    ("faulty_envs:Echo", 60, {"options": {"kind": "many"}, "action_subset": "0,150,299", "max_episode_steps": 9})])
def test_simulators_go_on(name, steps, keys):
    run = uninterrupted(name, steps, **keys)
    for stop in moments(run[2]):
        check(name, run, stop, 100, **keys)


@pytest.mark.parametrize(("name", "steps", "keys", "seeded"), [
    ("Breakout", 500, {"reseed_steps": 250}, True), ("ALE/Seaquest-v5", 500, {"reseed_steps": 250}, True),
    ("ALE/Seaquest-v5", 120, {"reseed_steps": 10_000, "max_episode_steps": 30}, False),
    ("ALE/Seaquest-v5", 120, {"max_episode_steps": 70, "short_episode_steps": 25, "short_episode_every": 2}, False)])
def test_emulators_go_on_through_seeded_and_bare_resets(name, steps, keys, seeded):
    run = uninterrupted(name, steps, **keys)
    last = run[3][-1]
    assert last["episode"].max() > 0 and (last["seeded_episode"].max() > 0) == seeded
    for stop in moments(run[2]):
        check(name, run, stop, 60, **keys)


def test_emulators_step_through_the_current_games_alone(monkeypatch):
    """A resume of Pong with 32 environments stepped each of them through up to 20,000 steps: two minutes."""
    steps = []
    send = AtariVectorEnv.send
    keys = {"max_episode_steps": 30, "reseed_steps": 10_000}
    run = uninterrupted("Breakout", 100, **keys)
    assert run[3][80]["episode"].min() >= 2 and run[3][80]["seeded_episode"].max() == 0
    monkeypatch.setattr(AtariVectorEnv, "send", lambda self, actions: steps.append(1) or send(self, actions))
    check("Breakout", run, 80, 0, **keys)
    assert len(steps) == run[3][80]["length"].max() < 31


def test_a_game_that_bare_resets_do_not_reproduce_is_replayed_from_its_seeded_reset(monkeypatch):
    keys = {"max_episode_steps": 30, "reseed_steps": 10_000}
    run = uninterrupted("ALE/Seaquest-v5", 100, **keys)  # its sticky actions are drawn at every frame
    atari_environments = environments.atari_environments
    monkeypatch.setattr(environments, "atari_environments", lambda *args, **options: dataclasses.replace(
        atari_environments(*args, **options), forgets_games=lambda: True))
    check("ALE/Seaquest-v5", run, 80, 20, **keys)


def test_a_console_that_keeps_its_memory_over_a_reset_is_noticed():
    """ALE clears none of it; most games do when they start."""
    assert [forgets_games(game) for game in ("pong", "breakout", "ice_hockey")] == [True, True, False]


def test_a_game_that_a_replay_cannot_reproduce_begins_anew():
    envs = make("faulty_envs:Drifting")
    envs.reset()
    for _ in range(2):
        envs.step(np.zeros(2, int))
    snapshot = envs.snapshot()
    envs = make("faulty_envs:Drifting")
    restored = envs.reset(snapshot)
    assert restored.lost == (0, 1) and restored.is_first.all() and restored.obs[:, 0].tolist() == [0, 0]
    assert envs.snapshot()["episode"].tolist() == [1, 1]
    step = envs.step(np.zeros(2, int))
    assert not step.is_first.any() and step.rewards.tolist() == [1, 1]


def test_one_lost_environment_does_not_disturb_the_others():
    for name, keys in (("CartPole-v1", {}), ("Breakout", {"reseed_steps": 500})):
        actions, _, outcomes, snapshots = uninterrupted(name, 40, **keys)
        snapshot = {key: array.copy() for key, array in snapshots[30].items()}
        snapshot["obs"][1] = 1
        envs = make(name, **keys)
        restored = envs.reset(snapshot)
        assert restored.lost == (1,)
        assert restored.is_first.tolist() == [bool(outcomes[29].is_first[0]), True]
        assert envs.snapshot()["episode"][1] == snapshots[30]["episode"][1] + 1
        for t in range(30, 40):
            step = envs.step(actions[t])
            assert step.obs[0].tobytes() == outcomes[t].obs[0].tobytes()
        assert envs.snapshot()["length"][1] == 10


def test_a_snapshot_is_a_copy_in_arrays():
    for name in ("CartPole-v1", "Pendulum-v1", "Pong", "faulty_envs:Odd"):
        envs = make(name)
        envs.reset()
        snapshot = envs.snapshot()
        assert all(type(array) is np.ndarray and array.dtype.kind in "bfiu" for array in snapshot.values())
        before = bits(snapshot)
        envs.step(random_actions(envs, 1)[0])
        assert bits(snapshot) == before, "a snapshot does not change afterwards"


def test_a_snapshot_of_other_environments_is_refused():
    envs = make("CartPole-v1")
    envs.reset()
    for other in (make("CartPole-v1", num_envs=3), make("Pong")):
        with pytest.raises(ConfigError, match="resume with the env and the num_envs"):
            other.reset(envs.snapshot())


@pytest.mark.parametrize(("name", "steps"), [("Pendulum-v1", 7), ("Pong", 10)])
def test_a_reset_at_any_moment_begins_the_next_episode_by_its_number(name, steps):
    played, idle = make(name, max_episode_steps=10), make(name, max_episode_steps=10)
    played.reset(), idle.reset()
    actions = random_actions(played, steps)
    for action in actions:
        played.step(action)
    assert bits(played.reset()) == bits(idle.reset())
    for action in actions[:5]:
        assert bits(played.step(action)) == bits(idle.step(action))
