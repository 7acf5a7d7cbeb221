"""Playing an environment with the keyboard, with an agent's steps, protocol and time limit."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.envs.options import subset_names
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.tools.frames import draw_frame, number
from vantage.tools.window import Window, key_name

STREAM = 3
"""Streams 0 to 2 belong to training and evaluations."""
Keys = dict[frozenset[str], Any]
"""Actions by the keys that are held down."""

# Keys in the order of the actions, - for no key. https://gymnasium.farama.org/environments
# (2026-11)
_BY_NUMBER = {2: "left right", 3: "left - right"}
_BY_NAME = {"LunarLander": "- left up right", "CarRacing": "- right left up down",
            "FrozenLake": "left down right up", "CliffWalking": "up right down left",
            "Taxi": "down up right left p d"}
_ATARI_KEYS = {"UP": "up", "DOWN": "down", "LEFT": "left", "RIGHT": "right", "FIRE": "space"}
# As SDL 1 numbered them: MountainCar's keys_to_action (gymnasium 1.4.0) still does.
_SDL1_ARROWS = {273: "up", 274: "down", 275: "right", 276: "left"}


def play(config: Config, *, say: Callable[[str], None]) -> None:
    """Show the environment and let the person act in it, game after game, until Esc or the window is closed.

    `say` prints the keys at the start and each game's score. ConfigError without a display, or for actions that keys
    cannot express.
    """
    in_env_units = replace(config.env, scale_actions=False)  # as keys are given
    with closing(make_single(in_env_units, seed=config.run.seed, stream=STREAM)) as envs:
        # The environment is built by its first reset and has no keys before.
        mask = envs.reset().action_mask
        keys, spec = choose_keys(envs, config), envs.spec.action
        with closing(Window(f"vantage play {config.env.id}", "vantage play needs one")) as window:
            say(", ".join(f"{key}: {action}" for held, action in keys.items() if len(held) == 1
                          for key in held) + "; Esc ends")
            action, score, length = None, 0.0, 0
            while True:
                window.show(draw_frame(envs.render(), f"score {number(score)}", f"step {length:,}",
                                       "Esc ends"))
                if not window.wait(envs.fps):
                    return
                action = action_of(keys, window.keys, action)
                if action is None or (mask is not None and spec.kind == "discrete"
                                      and not mask[0, action]):
                    continue
                dtype = np.float32 if spec.kind == "box" else np.int64
                step = envs.step(np.asarray(action, dtype).reshape(1, *spec.shape))
                mask, is_first = step.action_mask, step.is_first[0]
                score, length = (0.0, 0) if is_first else (score + float(step.rewards[0]), length + 1)
                for game in step.episodes:
                    say(f"score {number(game.score)} in {game.length:,} steps")


def action_of(keys: Keys, pressed: Set[str], before: Any) -> Any:
    """The action of most keys that are pressed; without one, the previous action of two, else None: wait for a key."""
    held = max((chord for chord in keys if chord <= pressed), key=len, default=None)
    return keys[held] if held is not None else before if len(keys) == 2 else None


def choose_keys(envs: Environments, config: Config) -> Keys:
    """Atari's by the actions' meanings, else the environment's own, else arrows or digits; ConfigError if none fits."""
    if envs.action_names:
        return {frozenset(key for part, key in _ATARI_KEYS.items() if part in name): action
                for action, name in enumerate(envs.action_names)}
    spec, own, name = envs.spec.action, envs.keys_to_action(), config.env.id
    subset = [int(action) for action in subset_names(config.env)]
    size = max(subset, default=spec.sizes[0] - 1) + 1
    actions: Keys
    if own is not None:
        actions = {frozenset(map(_own_key,
                                 keys if isinstance(keys, tuple | str) else (keys,))): action
                   for keys, action in own.items()}
    elif spec.kind == "discrete" and size <= 10:
        layout = next((keys for part, keys in _BY_NAME.items() if part in name),
                      _BY_NUMBER.get(size, "0123456789"))
        keys = layout.split() if " " in layout else list(layout[:size])
        actions = {frozenset({key} - {"-"}): action for action, key in enumerate(keys)}
    elif spec.kind == "box" and spec.sizes == (1,) and np.isfinite([*spec.low, *spec.high]).all():
        middle = (spec.low[0] + spec.high[0]) / 2
        actions = {frozenset({"left"}): spec.low, frozenset({"right"}): spec.high,
                   frozenset(): (middle,)}
    else:
        raise ConfigError(f"keys cannot express the {spec.kind} actions {list(spec.sizes)} of "
                          f"{name}: play is for up to ten Discrete actions, one bounded number, "
                          "and environments with a get_keys_to_action() "
                          "that returns {(key, ...): action}")
    if subset:
        actions = {chord: subset.index(action) for chord, action in actions.items()
                   if action in subset}
    return actions


def _own_key(key: Any) -> str:
    """The name of an environment's key: a letter, a name such as left, or a code, as in gymnasium.utils.play."""
    if isinstance(key, str):
        return key_name(ord(key)) if len(key) == 1 else key
    return _SDL1_ARROWS.get(key) or key_name(key)
