"""Builds one Gymnasium environment, or says in words why it cannot be built. Wrappers and vectors are elsewhere."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from vantage.envs.ids import EnvId, import_path_here, is_old_gym, load_entry, missing_library
from vantage.errors import ConfigError, EnvError, VantageError

PICTURES = "rgb_array"
"""Gymnasium's render mode that gives arrays."""


def build(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """One instance of `env`; ConfigError where Vantage cannot run it.

    A Gymnasium id comes with the time limit of its registration, unless not `limited`.
    """
    built = create(env, options, limited=limited)
    metadata = getattr(built, "metadata", None)
    mode = metadata.get("autoreset_mode") if isinstance(metadata, Mapping) else None
    if mode not in (None, AutoresetMode.NEXT_STEP):
        raise ConfigError(f"env={env.name!r} resets itself ({mode}); give an environment that leaves resets to its "
                          "caller, or a vector environment with NEXT_STEP autoreset")
    if not isinstance(built, gym.Env):
        old = " but of the old gym library: port it to gymnasium" if is_old_gym(type(built)) else ""
        raise ConfigError(f"env={env.name!r} is a {type(built).__name__}, not a gymnasium.Env{old}")
    return built


def create(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> Any:
    """The result of calling the class or function behind `env`, of whatever type."""
    import_path_here()
    try:
        if env.entry:
            return load_entry(env.entry)(**options)
        return gym.make(env.name, max_episode_steps=None if limited else -1, disable_env_checker=True, **options)
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env={env.name!r}: {missing_library(error)}") from None
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                          f"{type(error).__name__}: {error}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, VantageError):
            raise
        raise EnvError(f"{env.name} cannot be built: {type(error).__name__}: {error}") from error


def build_rendered(env: EnvId, options: dict[str, Any], *, limited: bool = True) -> gym.Env[Any, Any]:
    """As `build`, with pictures; ConfigError where the environment draws none."""
    refusal = ConfigError(f"{env.name} draws no pictures, so there is nothing to see: an environment that does takes "
                          f"render_mode={PICTURES!r} and has it in its metadata's render_modes")
    maker = load_entry(env.entry) if env.entry else gym.spec(env.name).entry_point
    if isinstance(maker, str):
        with contextlib.suppress(ConfigError):  # `build` raises it under the name of the environment
            maker = load_entry(maker)
    # Checked first: Gymnasium only warns of an unknown mode.
    metadata = getattr(maker, "metadata", None)
    if metadata is not None and PICTURES not in metadata.get("render_modes", ()):
        raise refusal
    try:
        built = build(env, {**options, "render_mode": PICTURES}, limited=limited)
    except ConfigError:
        close(build(env, options, limited=limited), env.name)  # raises what else is wrong with it
        raise refusal from None
    if built.render_mode != PICTURES:
        close(built, env.name)
        raise refusal
    return built


def close(env: Any, name: str) -> None:
    """Close `env`; an error in it loses nothing that was learnt, so it is a warning."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{name}: close() raised {type(error).__name__}: {error}; ignored", RuntimeWarning, stacklevel=2)
