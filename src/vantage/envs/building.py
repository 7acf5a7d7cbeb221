"""Builds an environment by its name, or raises an error that names the remedy. Wrappers and vectors are elsewhere."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from vantage.config_groups import EnvConfig
from vantage.envs.ids import EnvId
from vantage.envs.options import apply_options
from vantage.errors import ConfigError, EnvError, VantageError
from vantage.importing import add_current_folder, load_class

RGB_ARRAY = "rgb_array"
"""Gymnasium's render mode that returns arrays."""


def build(env: EnvId, config: EnvConfig, *, rendered: bool) -> gym.Env[Any, Any]:
    """One instance of `env` with the options of `config`.

    ConfigError if Vantage cannot run it, or if it is to be `rendered` and draws no pictures.
    """
    built = create(env, config, {"render_mode": RGB_ARRAY} if rendered else {})
    if not isinstance(built, gym.Env) or built.metadata.get("autoreset_mode") not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env that its caller resets; "
                          "port it from the old gym library, or give a gymnasium.vector.VectorEnv with NEXT_STEP")
    if rendered and (built.render_mode != RGB_ARRAY or RGB_ARRAY not in built.metadata.get("render_modes", ())):
        built.close()
        raise ConfigError(f"{env.name} draws no pictures: it has to take render_mode={RGB_ARRAY!r} and to list it in "
                          "its metadata's render_modes")
    return apply_options(built, config)


def create(env: EnvId, config: EnvConfig, more: dict[str, Any]) -> Any:
    """The result of calling the class or function behind `env` with env_kwargs and `more`, of any type."""
    options = {**config.env_options, **more}
    try:
        if env.is_path:
            return load_class(env.name, what="env")(**options)
        add_current_folder()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a render mode that is unknown, which `build` checks
            return gym.make(env.name, max_episode_steps=-1 if config.max_episode_steps else None,
                            disable_env_checker=True, **options)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except VantageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error
