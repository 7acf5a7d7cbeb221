"""Playing an environment with the keyboard, with an agent's steps, protocol and time limit."""

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
"""Streams 0 to 2 belong to training and evaluations."""

Chord = frozenset[int]

# Actions by key, the action without a key (None: none), and whether the game waits for a key.
_Layout = tuple[Mapping[str, int], int | None, bool]
# The usual order in a gym.Env with 2 or 3 actions: left before right, and doing nothing between them.
_BY_NUMBER: dict[int, _Layout] = {
    2: ({"left": 0, "right": 1}, None, False),
    3: ({"left": 0, "right": 2}, 1, False),
}
# Environments of Gymnasium with another order of actions; https://gymnasium.farama.org/environments (2026-11).
_BY_NAME: dict[str, _Layout] = {
    "LunarLander": ({"left": 1, "up": 2, "right": 3}, 0, False),
    "CarRacing": ({"right": 1, "left": 2, "up": 3, "down": 4}, 0, False),
    "FrozenLake": ({"left": 0, "down": 1, "right": 2, "up": 3}, None, True),
    "CliffWalking": ({"up": 0, "right": 1, "down": 2, "left": 3}, None, True),
    "Taxi": ({"down": 0, "up": 1, "right": 2, "left": 3, "p": 4, "d": 5}, None, True),
    "Blackjack": ({"left": 0, "right": 1}, None, True),
}
# Arrow keys as SDL 1 numbered them: MountainCar's keys_to_action (gymnasium 1.4.0) still does.
_SDL1_ARROWS = {273: "up", 274: "down", 275: "right", 276: "left"}


@dataclass(frozen=True, slots=True)
class Keys:
    """The actions of keys."""

    actions: Mapping[Chord, Any]
    idle: Any
    """The action without a key. None: the game waits for a key (`stepwise`) or repeats the previous action."""
    stepwise: bool = False

    def action(self, pressed: Set[int], before: Any) -> Any:
        """The action of the largest chord that is pressed; None: wait."""
        held = [chord for chord in self.actions if chord and chord <= pressed]
        if held:
            return self.actions[max(held, key=len)]
        return None if self.stepwise else before if self.idle is None else self.idle

    def describe(self) -> str:
        """One line for the person."""
        return ", ".join(f"{key_name(*chord)}: {action}" for chord, action in self.actions.items() if len(chord) == 1)


def play(config: Config, *, say: Callable[[str], None]) -> None:
    """Show the environment and let the person act in it, game after game, until Esc or the window is closed.

    `say` prints the keys at the start and each game's score. ConfigError without a display, or for actions that keys
    cannot express.
    """
    envs = make_rendered(config.env, seed=config.run.seed, stream=STREAM)
    try:
        mask = envs.reset().action_mask  # the environment is built by its first reset and has no keys before
        keys = choose_keys(envs, config)
        q_is_free = all(key_code("q") not in chord for chord in keys.actions)
        window = Window(f"vantage play {config.env.id}", remedy="vantage play needs one", q_closes=q_is_free)
        say(f"{keys.describe()}; Esc ends")
        try:
            _games(envs, keys, mask, window, say)
        finally:
            window.close()
    finally:
        envs.close()


def choose_keys(envs: Environments, config: Config) -> Keys:
    """The environment's own keys, else arrows and space by the kind of action; ConfigError if neither applies."""
    subset = EnvOptions.of(config.env).action_subset
    if not subset or envs.action_names:  # Atari's names are those of the subset already
        return _all_keys(envs, config.env.id, envs.spec.action.sizes[0])
    chosen = [int(action) for action in subset]
    keys = _all_keys(envs, config.env.id, max(chosen) + 1)
    actions = {chord: chosen.index(action) for chord, action in keys.actions.items() if action in chosen}
    return replace(keys, actions=actions, idle=chosen.index(keys.idle) if keys.idle in chosen else None)


def _all_keys(envs: Environments, name: str, number_of_actions: int) -> Keys:
    """Keys for all actions of the environment: `number_of_actions` if they are Discrete."""
    spec = envs.spec.action
    own = envs.keys_to_action()
    if own is not None:
        actions = {_own_chord(keys): action for keys, action in own.items()}
        return Keys(actions, actions.get(frozenset()))
    if envs.action_names:
        chords = {_atari_chord(meaning): action for action, meaning in enumerate(envs.action_names)}
        return Keys(chords, chords.get(frozenset()))
    if spec.kind == "box" and spec.sizes == (1,) and np.isfinite([*spec.low, *spec.high]).all():
        middle = (spec.low[0] + spec.high[0]) / 2
        return Keys({_chord("left"): [spec.low[0]], _chord("right"): [spec.high[0]]}, [middle])
    if spec.kind != "discrete":
        kind = f"{spec.sizes[0]} numbers" if spec.kind == "box" else f"{len(spec.sizes)} choices"
        remedy = "; with --env-kwargs '{\"continuous\": false}' it is one of five" if "CarRacing" in name else ""
        raise ConfigError(f"{name} takes {kind} at each step, which keys cannot "
                          f"express: play is for Discrete actions and for one bounded number{remedy}")
    return _discrete_keys(name, number_of_actions)


def _discrete_keys(name: str, number_of_actions: int) -> Keys:
    layout = next((layout for part, layout in _BY_NAME.items() if part in name), _BY_NUMBER.get(number_of_actions))
    if layout is None:
        if number_of_actions > 10:
            raise ConfigError(f"{name} has {number_of_actions} actions and names no keys for them; give the "
                              "environment a get_keys_to_action() that returns {(key, ...): action}")
        layout = ({str(action): action for action in range(number_of_actions)}, None, True)
    order, idle, stepwise = layout
    return Keys({_chord(key): action for key, action in order.items()}, idle, stepwise)


def _games(envs: Environments, keys: Keys, mask: Array | None, window: Window, say: Callable[[str], None]) -> None:
    """Step at the environment's speed until the person closes the window."""
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


def _chord(*names: str) -> Chord:
    return frozenset(map(key_code, names))


def _own_chord(keys: Any) -> Chord:
    """A chord of the environment: a tuple of keys, or text with a letter for each, as in gymnasium.utils.play."""
    return frozenset(map(_own_key, keys if isinstance(keys, tuple | str) else (keys,)))


def _own_key(key: Any) -> int:
    if isinstance(key, str):
        return ord(key) if len(key) == 1 else key_code(key)
    return key_code(_SDL1_ARROWS[key]) if key in _SDL1_ARROWS else int(key)


def _atari_chord(meaning: str) -> Chord:
    """Keys of an ALE action such as NOOP, FIRE or UPLEFTFIRE."""
    parts = (("UP", "up"), ("DOWN", "down"), ("LEFT", "left"), ("RIGHT", "right"), ("FIRE", "space"))
    return _chord(*(key for part, key in parts if part in meaning))
