"""Builds one Gymnasium environment, or raises an error that names the remedy. Wrappers and vectors are elsewhere."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from vantage.envs.ids import EnvId, missing_library
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.importing import add_current_folder, load_class

RGB_ARRAY = "rgb_array"
"""Gymnasium's render mode that returns arrays."""


def build(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """One instance of `env`; ConfigError if Vantage cannot run it.

    A Gymnasium id comes with the time limit of its registration, unless not `limited`.
    """
    built = create(env, options, limited=limited)
    if not isinstance(built, gym.Env):
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env; an environment of the "
                          "old gym library has to be ported to gymnasium")
    mode = built.metadata.get("autoreset_mode")
    if mode not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} resets itself ({mode}); use an environment that its caller resets, or a "
                          "vector environment with NEXT_STEP autoreset")
    return built


def create(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> Any:
    """The result of calling the class or function behind `env`, of any type."""
    try:
        if env.entry:
            return load_class(env.entry, what="env")(**options)
        add_current_folder()
        return gym.make(env.name, max_episode_steps=None if limited else -1, disable_env_checker=True, **options)
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env={env.name!r}: {missing_library(error)}") from None
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error


def build_rendered(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """As `build`, with pictures; ConfigError if the environment draws none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Gymnasium's about an unknown mode, which is checked below
            built = build(env, {**options, "render_mode": RGB_ARRAY}, limited=limited)
    except VantageError:
        built = build(env, options, limited=limited)  # raises if pictures are not the cause
    if built.render_mode != RGB_ARRAY or RGB_ARRAY not in built.metadata.get("render_modes", ()):
        close(built, env.name)
        raise ConfigError(f"{env.name} draws no pictures: it has to take render_mode={RGB_ARRAY!r} and to list it in "
                          "its metadata's render_modes")
    return built


def close(env: Any, name: str) -> None:
    """Close `env`; an error in it is a warning, because nothing that was learnt is lost."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{name}: close() raised {type(error).__name__}: {error}; ignored", RuntimeWarning, stacklevel=2)
