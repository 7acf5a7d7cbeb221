"""Builds an environment by its name, or raises an error that names the remedy. Wrappers and vectors are elsewhere."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from vantage.envs.ids import EnvId
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.importing import add_current_folder, load_class

RGB_ARRAY = "rgb_array"
"""Gymnasium's render mode that returns arrays."""


def build(env: EnvId, options: dict[str, Any], *, limited: bool, rendered: bool) -> gym.Env[Any, Any]:
    """One instance of `env`; ConfigError if Vantage cannot run it, or if it is to be `rendered` and draws no pictures.

    A Gymnasium id comes with the time limit of its registration, unless not `limited`.
    """
    built = create(env, {**options, "render_mode": RGB_ARRAY} if rendered else options, limited=limited)
    if not isinstance(built, gym.Env) or built.metadata.get("autoreset_mode") not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env that its caller resets; "
                          "port it from the old gym library, or give a gymnasium.vector.VectorEnv with NEXT_STEP")
    if rendered and (built.render_mode != RGB_ARRAY or RGB_ARRAY not in built.metadata.get("render_modes", ())):
        built.close()
        raise ConfigError(f"{env.name} draws no pictures: it has to take render_mode={RGB_ARRAY!r} and to list it in "
                          "its metadata's render_modes")
    return built


def close(env: gym.Env[Any, Any]) -> None:
    """Close `env`. An error in its `close` is ignored: it would hide the one before, or end a run that is complete."""
    with suppress(Exception):
        env.close()


def create(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> Any:
    """The result of calling the class or function behind `env`, of any type."""
    try:
        if env.is_path:
            return load_class(env.name, what="env")(**options)
        add_current_folder()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a render mode that is unknown, which `build` checks
            return gym.make(env.name, max_episode_steps=None if limited else -1, disable_env_checker=True, **options)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error
