"""Playing an environment with the keyboard, with an agent's steps, protocol and time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from vantage.config.config import Config
from vantage.envs.interface import First
from vantage.envs.make import make_single
from vantage.envs.options import subset_names
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.runs.demonstration_file import SUFFIX
from vantage.runs.files import check_name
from vantage.specs import ActionSpec
from vantage.tools.demonstrations import Games
from vantage.tools.frames import draw_frame, score_text
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
_DIGITS = "0 1 2 3 4 5 6 7 8 9"
_ATARI_KEYS = {"UP": "up", "DOWN": "down", "LEFT": "left", "RIGHT": "right", "FIRE": "space"}
# As SDL 1 numbered them: MountainCar's keys_to_action (gymnasium 1.4.0) still does.
_SDL1_ARROWS = {273: "up", 274: "down", 275: "right", 276: "left"}


def play(config: Config, *, say: Callable[[str], None]) -> None:
    """Let the user act in the environment, game after game, until Esc or the window is closed.

    `say` prints the keys at the start and each game's score. Complete games are written to the file
    `demonstrations` of `config`, if it names one. ConfigError without a display, or for actions
    that keys cannot express.
    """
    output = config.cloning.demonstrations
    if output is not None:
        check_name(output, SUFFIX)
    in_env_units = replace(config.env, scale_actions=False)  # as keys are given
    with closing(make_single(in_env_units, seed=config.run.seed, stream=STREAM)) as envs:
        # The environment is built by its first reset and has no keys before.
        if envs.spec.agents > 1:
            raise ConfigError(f"env={config.env.id!r} has {envs.spec.agents} agents, and keys are for "
                              "one; write a gymnasium.Env that plays the others")
        first = envs.reset()
        keys = choose_keys(envs, config)
        games = Games(envs.spec)
        with closing(Window(f"vantage play {config.env.id}", "vantage play needs one")) as window:
            single = [f"{key}: {action}" for held, action in keys.items() if len(held) == 1
                      for key in held]
            say(f"{', '.join(single)}; Esc ends")
            try:
                _play_games(envs, keys, first, window, games, say)
            except BaseException:  # Ctrl-C, or an error of the environment: ended games are kept
                if output is not None:
                    say(games.keep(output, config.env.id))
                raise
        if output is not None:
            say(f"{output}: {games.write(output, config.env.id)}")


def _play_games(envs: Environments, keys: Keys, first: First, window: Window, games: Games,
                say: Callable[[str], None]) -> None:
    """Step the environment with the user's actions until the window is closed."""
    spec = envs.spec.action
    dtype = np.dtype(spec.dtype)
    obs = first.obs
    mask = first.action_mask
    action = None
    score = 0.0
    length = 0
    while True:
        words = (f"score {score_text(score)}", f"step {length:,}", "Esc ends")
        window.show(draw_frame(envs.render(), *words))
        if not window.wait(envs.fps):
            return
        action = action_of(keys, window.keys, action)
        if action is None:
            continue
        if mask is not None and spec.kind == "discrete" and not mask[0, action]:
            continue
        row = np.asarray(action, dtype).reshape(1, *spec.shape)
        games.observe(obs, mask)
        step = envs.step(row)
        games.add(row[0], step)
        obs = step.obs
        mask = step.action_mask
        if step.is_first[0]:
            score = 0.0
            length = 0
        else:
            score += float(step.rewards[0])
            length += 1
        for game in step.episodes:
            say(f"score {score_text(game.score)} in {game.length:,} steps")


def action_of(keys: Keys, pressed: Set[str], before: Any) -> Any:
    """The action of the largest chord of `keys` that is pressed.

    Without one, the action `before` where there are only two, else None: wait for a key.
    """
    held = max((chord for chord in keys if chord <= pressed), key=len, default=None)
    if held is not None:
        return keys[held]
    return before if len(keys) == 2 else None


def choose_keys(envs: Environments, config: Config) -> Keys:
    """Keys by the meanings of Atari's actions, else the environment's own, else arrows or digits.

    ConfigError if none of these fits.
    """
    if envs.action_names:
        return {_atari_chord(name): action for action, name in enumerate(envs.action_names)}
    spec = envs.spec.action
    subset = [int(action) for action in subset_names(config.env)]
    own = None if spec.parts else envs.keys_to_action()
    if own is not None:
        keys = _own_keys(own)
    else:
        num_actions = max(subset, default=max(spec.sizes, default=0) - 1) + 1
        keys = _default_keys(spec, num_actions, config.env.id)
    if not subset:
        return keys
    return {chord: subset.index(action) for chord, action in keys.items() if action in subset}


def _atari_chord(name: str) -> frozenset[str]:
    """The keys of an action such as UPRIGHTFIRE."""
    return frozenset(key for part, key in _ATARI_KEYS.items() if part in name)


def _own_keys(own: Mapping[Any, Any]) -> Keys:
    """The keys of an environment's get_keys_to_action(): by tuples, text or one key."""
    actions: Keys = {}
    for chord, action in own.items():
        keys = chord if isinstance(chord, tuple | str) else (chord,)
        actions[frozenset(map(_own_key, keys))] = action
    return actions


def _own_key(key: Any) -> str:
    """The name of an environment's key: a letter, a name such as left, or a code of SDL."""
    if isinstance(key, str):
        return key_name(ord(key)) if len(key) == 1 else key
    return _SDL1_ARROWS.get(key) or key_name(key)


def _default_keys(spec: ActionSpec, num_actions: int, env: str) -> Keys:
    """Arrows or digits for a few discrete actions, left and right for one bounded number."""
    if spec.kind == "discrete" and num_actions <= 10:
        layout = _BY_NUMBER.get(num_actions, _DIGITS)
        for name, keys in _BY_NAME.items():
            if name in env:
                layout = keys
        return {frozenset({key} - {"-"}): action
                for action, key in enumerate(layout.split()[:num_actions])}
    is_bounded = np.isfinite([*spec.low, *spec.high]).all()
    if spec.kind == "box" and spec.sizes == (1,) and is_bounded:
        middle = (spec.low[0] + spec.high[0]) / 2
        return {frozenset({"left"}): spec.low, frozenset({"right"}): spec.high,
                frozenset(): (middle,)}
    raise ConfigError(f"keys cannot express the actions of {env}, {spec!s:.200}: "
                      "play is for up to ten Discrete actions, one bounded number, and "
                      "environments with a get_keys_to_action() that returns "
                      "{(key, ...): action}")
