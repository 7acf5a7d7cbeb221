"""Playing an environment with the keyboard, with an agent's steps, protocol and time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from vantage.config import Config
from vantage.envs import Environments, make_rendered
from vantage.envs.options import EnvOptions
from vantage.errors import ConfigError
from vantage.tools.frames import Canvas, number
from vantage.tools.window import Window, key_name

STREAM = 3
"""Streams 0 to 2 belong to training and evaluations."""

# Keys in the order of the actions, - for the action without a key.
_BY_NUMBER = {2: "left right", 3: "left - right"}
# https://gymnasium.farama.org/environments (2026-11)
_BY_NAME = {"LunarLander": "- left up right", "CarRacing": "- right left up down", "FrozenLake": "left down right up",
            "CliffWalking": "up right down left", "Taxi": "down up right left p d"}
# Arrows as SDL 1 numbered them: MountainCar's keys_to_action (gymnasium 1.4.0) still does.
_SDL1_ARROWS = {273: "up", 274: "down", 275: "right", 276: "left"}
_ATARI_KEYS = {"UP": "up", "DOWN": "down", "LEFT": "left", "RIGHT": "right", "FIRE": "space"}


@dataclass(frozen=True, slots=True)
class Keys:
    """Actions by the keys that are held down; no key is the idle action, if there is one."""

    actions: Mapping[frozenset[str], Any]
    stepwise: bool = False
    """Without a key and an idle action, the game waits; otherwise it repeats the previous action."""

    def action(self, pressed: Set[str], before: Any) -> Any:
        """The action of most keys that are pressed; None: wait."""
        held = [keys for keys in self.actions if keys and keys <= pressed]
        if held:
            return self.actions[max(held, key=len)]
        return self.actions.get(frozenset(), None if self.stepwise else before)


def play(config: Config, *, say: Callable[[str], None]) -> None:
    """Show the environment and let the person act in it, game after game, until Esc or the window is closed.

    `say` prints the keys at the start and each game's score. ConfigError without a display, or for actions that keys
    cannot express.
    """
    with closing(make_rendered(config.env, seed=config.run.seed, stream=STREAM)) as envs:
        mask = envs.reset().action_mask  # the environment is built by its first reset and has no keys before
        keys, spec = choose_keys(envs, config), envs.spec.action
        with closing(Window(f"vantage play {config.env.id}", "vantage play needs one")) as window:
            say(", ".join(f"{key}: {action}" for held, action in keys.actions.items() if len(held) == 1 for key in held)
                + "; Esc ends")
            canvas, action, score, length = Canvas(envs.render()), None, 0.0, 0
            while True:
                words = [f"score {number(score)}", f"step {length:,}", "Esc ends"]
                window.show(canvas.draw(envs.render(), words))
                if not window.wait(envs.fps):
                    return
                action = keys.action(window.keys, action)
                if action is None or (mask is not None and spec.kind == "discrete" and not mask[0, action]):
                    continue
                dtype = np.float32 if spec.kind == "box" else np.int64
                step = envs.step(np.asarray(action, dtype).reshape(1, *spec.shape))
                mask, is_first = step.action_mask, step.is_first[0]
                score, length = (0.0, 0) if is_first else (score + float(step.rewards[0]), length + 1)
                for game in step.episodes:
                    say(f"score {number(game.score)} in {game.length:,} steps")


def choose_keys(envs: Environments, config: Config) -> Keys:
    """Atari's by the actions' meanings, else the environment's own, else arrows or digits; ConfigError if none fits."""
    spec, own, stepwise = envs.spec.action, envs.keys_to_action(), False
    actions: dict[frozenset[str], Any]
    if envs.action_names:
        return Keys({frozenset(key for part, key in _ATARI_KEYS.items() if part in name): action
                     for action, name in enumerate(envs.action_names)})
    subset = [int(action) for action in EnvOptions.of(config.env).action_subset]
    size = max(subset, default=spec.sizes[0] - 1) + 1
    if own is not None:
        actions = {frozenset(map(_own_key, keys if isinstance(keys, tuple | str) else (keys,))): action
                   for keys, action in own.items()}
    elif spec.kind == "discrete" and size <= 10:
        digits = " ".join(map(str, range(size)))
        layout = next((keys for part, keys in _BY_NAME.items() if part in config.env.id),
                      _BY_NUMBER.get(size, digits)).split()
        actions = {frozenset({key} - {"-"}): action for action, key in enumerate(layout)}
        stepwise = size > 2
    elif spec.kind == "box" and spec.sizes == (1,) and np.isfinite([*spec.low, *spec.high]).all():
        actions = {frozenset({"left"}): spec.low, frozenset({"right"}): spec.high,
                   frozenset(): ((spec.low[0] + spec.high[0]) / 2,)}
    else:
        raise ConfigError(f"keys cannot express the {spec.kind} actions {list(spec.sizes)} of {config.env.id}: play is "
                          "for up to ten Discrete actions, one bounded number, and environments with a "
                          "get_keys_to_action() that returns {(key, ...): action}")
    if subset:
        actions = {keys: subset.index(action) for keys, action in actions.items() if action in subset}
    return Keys(actions, stepwise)


def _own_key(key: Any) -> str:
    """The name of an environment's key: a letter, a name such as left, or a code, as in gymnasium.utils.play."""
    if isinstance(key, str):
        return key_name(ord(key)) if len(key) == 1 else key
    return _SDL1_ARROWS.get(key) or key_name(key)
