"""Restores simulators from a snapshot, by replaying the actions since the last seeded reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vantage.envs.history import History
from vantage.envs.interface import IDLE, MASK, Array, Info, Obs, Simulators, Snapshot
from vantage.errors import ConfigError
from vantage.specs import ActionSpec


def check_snapshot(saved: Snapshot, own: Snapshot, spec: ActionSpec) -> None:
    """Raise an error unless environments like those of the snapshot `own` can have saved `saved`.

    ConfigError for other shapes, ValueError for impossible values.
    """
    shapes = _shapes(saved)
    expected = _shapes(own)
    if shapes != expected:
        raise ConfigError(f"the snapshot holds {shapes}, these environments {expected}; resume "
                          "with the env and the num_envs that the run began with")
    wrong = [name for name, array in own.items() if saved[name].dtype.kind != array.dtype.kind]
    for name in ("episode", "seeded_episode", "length"):
        if not ((saved[name] >= 0) & (saved[name] < 2**53)).all():
            wrong.append(name)
    if not np.isfinite(saved["score"]).all():
        wrong.append("score")
    if not _are_choices(saved["actions"], spec):
        wrong.append("actions")
    if wrong:
        raise ValueError(f"the snapshot's {wrong[0]} is {saved[wrong[0]]!s:.80}")


def check_forms(saved: Snapshot, own: Snapshot) -> None:
    """ConfigError unless arrays of a snapshot in tensors have the shapes and types of `own`."""
    forms = {name: (array.shape, array.dtype.kind) for name, array in saved.items()}
    expected = {name: (array.shape, array.dtype.kind) for name, array in own.items()}
    if forms != expected:
        differing = dict(forms.items() - expected.items())
        own_forms = dict(expected.items() - forms.items())
        raise ConfigError(f"the snapshot holds {differing!s:.300} where these environments have "
                          f"{own_forms!s:.300}; resume with the env and the num_envs that the "
                          "run began with")


def replay(simulators: Simulators, history: History, *, only_last: bool, episode: Array,
           seeded_episode: Array, length: Array) -> tuple[Obs, Array, Info]:
    """Step all simulators through `history`: the last observations, where episodes are over, info.

    All histories end together, so shorter ones start later. `episode`, `seeded_episode` and
    `length` [B] are the snapshot's numbers of the current and of the last seeded episode, and the
    steps of the current one. With `only_last`, resets stand for the games since the seeded reset,
    and only the current games are stepped.
    """
    actions = history.actions
    starts = history.starts
    skipped_games = np.zeros_like(episode)
    if only_last:
        starts = np.where(starts < 0, -1, len(actions) - length)
        skipped_games = episode - seeded_episode
    begin = int(starts[starts >= 0].min())
    over = np.zeros(len(episode), bool)
    info = Info()
    for t in range(begin, len(actions) + 1):
        starting = starts == t
        if t == begin or starting.any():
            which = np.ones(len(episode), bool) if t == begin else starting
            episodes = np.where(starting, seeded_episode, IDLE)
            obs, reset_info = simulators.reset(episodes, which)
            over = over & ~which
            info = merge(info, reset_info, which)
            for game in range(int(skipped_games[starting].max(initial=0))):
                following = starting & (skipped_games > game)
                obs, reset_info = simulators.reset(None, following)
                info = merge(info, reset_info, following)
        if t < len(actions):
            obs, _, terminated, truncated, info = simulators.step(actions[t])
            over = terminated | truncated
    return obs, over, info


def obs_arrays(obs: Any) -> dict[str, Any]:
    """The parts of an observation, in arrays or tensors, by their names in a snapshot."""
    if isinstance(obs, Mapping):
        return {f"obs.{key}": part for key, part in obs.items()}
    return {"obs": obs}


def merge(info: Info, other: Info, which: Array) -> Info:
    """The lives and masks of `other` where `which` is True, and of `info` elsewhere."""
    merged: Info = {}
    for key in ("lives", MASK):
        if key in other:
            where = which if other[key].ndim == 1 else which[:, None]
            merged[key] = np.where(where, other[key], info.get(key, other[key]))
    return merged


def _are_choices(actions: Array, spec: ActionSpec) -> bool:
    """Whether the discrete parts of `actions` [N, *action] are numbers of choices."""
    if spec.kind == "box":
        return True
    if spec.kind == "joint":
        actions = actions[:, spec.is_choice]
    return bool(((actions >= 0) & (actions < spec.sizes) & (actions % 1 == 0)).all())


def _shapes(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Shapes that do not depend on the length of the history."""
    return {name: array.shape for name, array in snapshot.items() if name != "actions"}
