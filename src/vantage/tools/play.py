"""Playing an environment with the keyboard, as an agent plays it: the same steps, protocol and time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vantage.config import Config
from vantage.envs import Environments, make_rendered
from vantage.envs.interface import Array
from vantage.envs.options import EnvOptions
from vantage.errors import ConfigError
from vantage.tools.frames import Canvas, game_words, number
from vantage.tools.window import Window, key_code, key_name

STREAM = 3
"""Streams 0 to 2 are training's and the evaluations'."""

Chord = frozenset[int]

# What is usual in a gym.Env with so many actions: left before right, and what lies between them is to do nothing.
_BY_NUMBER: dict[int, tuple[tuple[str, int], ...]] = {
    2: (("left", 0), ("right", 1)),
    3: (("left", 0), ("right", 2)),
}
# Gymnasium's own whose actions come in another order; https://gymnasium.farama.org/environments (2026-11).
_BY_NAME: dict[str, tuple[tuple[str, int], ...]] = {
    "LunarLander": (("left", 1), ("up", 2), ("right", 3)),
    "CarRacing": (("right", 1), ("left", 2), ("up", 3), ("down", 4)),
    "FrozenLake": (("left", 0), ("down", 1), ("right", 2), ("up", 3)),
    "CliffWalking": (("up", 0), ("right", 1), ("down", 2), ("left", 3)),
    "Taxi": (("down", 0), ("up", 1), ("right", 2), ("left", 3), ("p", 4), ("d", 5)),
    "Blackjack": (("left", 0), ("right", 1)),
}
_IDLE_BY_NAME = {"LunarLander": 0, "CarRacing": 0}
_STEPWISE = ("FrozenLake", "CliffWalking", "Taxi", "Blackjack")
# Arrow keys as SDL 1 numbered them: MountainCar's keys_to_action (gymnasium 1.4.0) still does.
_SDL1_ARROWS = {273: "up", 274: "down", 275: "right", 276: "left"}


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys do what."""

    actions: Mapping[Chord, Any]
    idle: Any
    """Without a key of these; None: the game waits for one (`stepwise`), or goes on with the action before."""
    stepwise: bool = False

    def action(self, pressed: Set[int], before: Any) -> Any:
        """That of the most keys that are all pressed; None: wait."""
        held = [chord for chord in self.actions if chord and chord <= pressed]
        if held:
            return self.actions[max(held, key=len)]
        return None if self.stepwise else before if self.idle is None else self.idle

    def describe(self) -> str:
        """One line for the person."""
        words = [f"{'+'.join(map(key_name, sorted(chord)))}: {action}" for chord, action in self.actions.items()
                 if len(chord) == 1]
        return ", ".join(words)


def play(config: Config, *, say: Callable[[str], None]) -> None:
    """Show the environment and let the person act in it, game after game, until Esc or the window's end.

    `say` gets the keys at the beginning and each game's score. ConfigError without a display, and where keys cannot
    stand for the actions.
    """
    envs = make_rendered(config.env, seed=config.run.seed, stream=STREAM)
    try:
        mask = envs.reset().action_mask  # before it an environment is not built, and has no keys
        keys = choose_keys(envs, config)
        q = key_code("q")
        window = Window(f"vantage play {config.env.id}", instead="vantage play needs one", q_closes=all(
            q not in chord for chord in keys.actions))
        say(f"{keys.describe()}; Esc ends")
        try:
            _games(envs, keys, mask, window, say)
        finally:
            window.close()
    finally:
        envs.close()


def choose_keys(envs: Environments, config: Config) -> Keys:
    """The environment's own keys, else arrows and space by what the actions are; ConfigError where neither is."""
    subset = EnvOptions.of(config.env).action_subset
    if not subset or envs.action_names:  # Atari's names are those of the subset already
        return _all_keys(envs, config.env.id, envs.spec.action.sizes[0])
    chosen = [int(action) for action in subset]
    keys = _all_keys(envs, config.env.id, max(chosen) + 1)
    actions = {chord: chosen.index(action) for chord, action in keys.actions.items() if action in chosen}
    return replace(keys, actions=actions, idle=chosen.index(keys.idle) if keys.idle in chosen else None)


def _all_keys(envs: Environments, name: str, number_of_actions: int) -> Keys:
    """Keys for the environment's own actions, of which there are `number_of_actions` if they are Discrete."""
    spec = envs.spec.action
    own = envs.keys_to_action()
    if own is not None:
        actions = {frozenset(_own_key(key) for key in _chord(chord)): action for chord, action in own.items()}
        return Keys(actions, actions.get(frozenset()))
    if envs.action_names:
        chords = {frozenset(_atari_keys(meaning)): action for action, meaning in enumerate(envs.action_names)}
        return Keys(chords, chords.get(frozenset()))
    if spec.kind == "box" and spec.sizes == (1,) and np.isfinite([*spec.low, *spec.high]).all():
        middle = (spec.low[0] + spec.high[0]) / 2
        return Keys({_arrow("left"): [spec.low[0]], _arrow("right"): [spec.high[0]]}, [middle])
    if spec.kind != "discrete":
        remedy = "; with --env-kwargs '{\"continuous\": false}' it is one of five" if "CarRacing" in name else ""
        raise ConfigError(f"{name} takes {_describe_action(spec.kind, spec.sizes)} at each step, which keys cannot "
                          f"give: play is for Discrete actions and for one bounded number{remedy}")
    return _discrete_keys(name, number_of_actions)


def _discrete_keys(name: str, number_of_actions: int) -> Keys:
    known = next((part for part in _BY_NAME if part in name), None)
    if known is not None:
        return Keys({_arrow(key): action for key, action in _BY_NAME[known]}, _IDLE_BY_NAME.get(known),
                    known in _STEPWISE)
    if number_of_actions in _BY_NUMBER:
        return Keys({_arrow(key): action for key, action in _BY_NUMBER[number_of_actions]},
                    1 if number_of_actions == 3 else None)
    if number_of_actions > 10:
        raise ConfigError(f"{name} has {number_of_actions} actions and names no keys for them; give the environment a "
                          "get_keys_to_action() that returns {(key, ...): action}")
    return Keys({_arrow(str(action)): action for action in range(number_of_actions)}, None, stepwise=True)


def _games(envs: Environments, keys: Keys, mask: Array | None, window: Window, say: Callable[[str], None]) -> None:
    """Steps at the environment's speed, until the person is done."""
    canvas = Canvas(envs.render())
    score, length, action = 0.0, 0, None
    while True:
        window.show(canvas.draw(envs.render(), game_words(score, None, f"step {length:,}", "Esc ends")))
        if not window.wait(envs.fps):
            return
        action = keys.action(window.keys, action)
        if action is None and not keys.stepwise:
            action = next(iter(keys.actions.values()))
        if action is None or (mask is not None and envs.spec.action.kind == "discrete" and not mask[0, action]):
            continue
        step = envs.step(_batch(action, envs))
        mask = step.action_mask
        if step.is_first[0]:
            score, length = 0.0, 0
        else:
            score, length = score + float(step.rewards[0]), length + 1
        for game in step.episodes:
            say(f"score {number(game.score)} in {game.length:,} steps")


def _batch(action: Any, envs: Environments) -> Array:
    spec = envs.spec.action
    return np.asarray(action, np.float32 if spec.kind == "box" else np.int64).reshape(1, *spec.shape)


def _arrow(key: str) -> Chord:
    return frozenset([key_code(key)])


def _chord(keys: Any) -> tuple[Any, ...]:
    """A tuple of keys, or text of one letter each, as gymnasium.utils.play takes them."""
    return tuple(keys) if isinstance(keys, tuple | str) else (keys,)


def _own_key(key: Any) -> int:
    if isinstance(key, str):
        return ord(key) if len(key) == 1 else key_code(key)
    return key_code(_SDL1_ARROWS[key]) if key in _SDL1_ARROWS else int(key)


def _atari_keys(meaning: str) -> list[int]:
    """Keys of an ALE action such as NOOP, FIRE or UPLEFTFIRE."""
    parts = (("UP", "up"), ("DOWN", "down"), ("LEFT", "left"), ("RIGHT", "right"), ("FIRE", "space"))
    return [key_code(key) for part, key in parts if part in meaning]


def _describe_action(kind: str, sizes: tuple[int, ...]) -> str:
    return f"{sizes[0]} numbers" if kind == "box" else f"{len(sizes)} choices"
