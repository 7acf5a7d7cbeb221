"""One environment from the name and the options of a config, wrapped for the policy."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from vantage._host.extras import missing
from vantage.envs.built import Borrowed, is_built
from vantage.envs.config import EnvConfig
from vantage.envs.descriptions import shown
from vantage.envs.failures import close_quietly, named_errors
from vantage.envs.ids import EnvId, find_plugin
from vantage.envs.options import play_of
from vantage.envs.other_interfaces import (
    foreign_space,
    instance_refusal,
    is_parallel,
    metadata_of,
    not_built,
    refusal,
)
from vantage.envs.randomness import layers
from vantage.errors import ConfigError
from vantage.keys.import_paths import add_current_folder, load_class
from vantage.keys.objects import is_object

_OWN_REMEDY = {"max_episode_steps": "give --max-episode-steps",
               "disable_env_checker": "leave it out",
               "id": "give --env"}
"""Arguments of gymnasium.make that do not belong to the environment, and what to do instead."""
_OF_MAKE = {PassiveEnvChecker, OrderEnforcing, TimeLimit}
"""Wrappers that gymnasium.make adds by itself."""
RGB_ARRAY = "rgb_array"  # Gymnasium's render mode that returns arrays


def build(env: EnvId, config: EnvConfig, *, rendered: bool, created: Any = None,
          convert: Callable[[Any], Any] | None = None) -> gym.Env[Any, Any]:
    """One instance of `env` with the options of `config`: what `create_one` has `created`, or new.

    `convert` makes a single environment of one with another interface. Raises ConfigError if
    Vantage cannot run it, or if it cannot be rendered and `rendered` is True.
    """
    built = create_one(env, config, rendered=rendered) if created is None else created
    with named_errors(lambda: f"{env.name} cannot be built"):
        if convert is not None:
            built = convert(built)
        words = instance_refusal(built)
        if words:
            raise ConfigError(f"env={env.name!r} is {words}")
        for name in ("observation_space", "action_space"):
            check_space(env, name, getattr(built, name, None))
        if rendered:
            check_pictures(env, built)
        built = taking_options(Borrowed(built) if is_built(config) else built)
        if config.reset_stages.options and any(
                isinstance(layer, WithoutOptions) for layer in layers(built)):
            raise ConfigError(f"reset_options has no effect on {env.name}, whose reset takes no "
                              "options; declare it as reset(self, *, seed=None, options=None)")
        return play_of(config, built).wrap(built)


def check_space(env: EnvId, name: str, space: Any) -> None:
    """ConfigError unless `space`, the attribute `name` of `env`, is a Gymnasium space."""
    if isinstance(space, gym.Space):
        return
    if space is None:
        raise ConfigError(f"env={env.name!r} has no {name}; set it to one of gymnasium.spaces in "
                          "the class or its __init__")
    remedy = foreign_space(space) or ("not one of gymnasium.spaces; set it to such a space in the "
                                      "class or its __init__")
    raise ConfigError(f"env={env.name!r}: its {name} is {shown(space)}, {remedy}")


def check_pictures(env: EnvId, built: Any) -> None:
    """Close `built` and raise ConfigError unless it renders arrays, by its mode and metadata."""
    modes = metadata_of(built).get("render_modes")
    mode = getattr(built, "render_mode", None)
    if mode == RGB_ARRAY and isinstance(modes, Collection) and RGB_ARRAY in modes:
        return
    close_quietly(built)
    bare = getattr(built, "unwrapped", built)
    keeps = "render_mode" in getattr(bare, "__dict__", {}) and _takes(type(bare), "render_mode")
    if is_object(env.name) and keeps and isinstance(modes, Collection) and RGB_ARRAY in modes:
        factory = _drawing(built, bare)
        remedy = (f'to record, write vantage.record(agent, "game.mp4", env={factory})' if factory
                  else "to record, give vantage.record a lambda as env, and build it with "
                  f"render_mode={RGB_ARRAY!r} in the lambda")
        raise ConfigError(f"{env.name} draws no pictures: it is built without render_mode; "
                          f"{remedy}")
    raise ConfigError(f"{env.name} draws no pictures: it has to take render_mode={RGB_ARRAY!r}, "
                      "to keep it as self.render_mode and to list it in its metadata's "
                      "render_modes; a lambda may set it instead")


def _drawing(built: Any, bare: Any) -> str:
    """A lambda that builds `built`, which wraps `bare`, with pictures; "" if it is unknown."""
    spec = getattr(bare, "spec", None)
    if isinstance(spec, EnvSpec):
        is_plain = _is_plain(built, spec)
        return f'lambda: gymnasium.make("{spec.id}", render_mode="{RGB_ARRAY}")' if is_plain else ""
    with suppress(ValueError):  # of a class written in C
        if built is bare and [*signature(type(bare)).parameters] == ["render_mode"]:
            return f'lambda: {type(bare).__name__}(render_mode="{RGB_ARRAY}")'
    return ""


def _is_plain(built: Any, spec: EnvSpec) -> bool:
    """Whether gymnasium.make built it by its id alone: no wrappers, limits or arguments since."""
    registered = gym.registry.get(spec.id)
    wrappers = [type(layer) for layer in layers(built)][:-1]
    if registered is None or len({*wrappers}) < len(wrappers) or not {*wrappers} <= _OF_MAKE:
        return False
    given = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    with suppress(ValueError):  # of arrays
        limit = getattr(built.spec, "max_episode_steps", None)
        return given == registered.kwargs and limit == registered.max_episode_steps
    return False


class WithoutOptions(gym.Wrapper[Any, Any, Any, Any]):
    """Drops `options` for an environment whose reset does not accept them."""

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)


def taking_options(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """`env`, wrapped so that `reset` accepts `options`, which time limits and frame skips pass on.

    Raises ConfigError if it or an environment within it cannot be reset with a seed.
    """
    if isinstance(env, WithoutOptions):  # of an object that is wrapped for the second time
        return env
    if isinstance(env, gym.Wrapper):
        env.env = taking_options(env.env)
    try:
        parameters = tuple(signature(env.reset).parameters.values())
    except (TypeError, ValueError):  # of a function written in C
        return env
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return env
    names = {each.name for each in parameters}
    if "seed" not in names:
        raise ConfigError(f"{type(env).__name__}.reset takes no seed; declare it as reset(self, *, "
                          "seed=None, options=None), and begin it with super().reset(seed=seed)")
    return env if "options" in names else WithoutOptions(env)


def _call(factory: Any, env: EnvId, config: EnvConfig, more: dict[str, Any]) -> Any:
    """The result of calling `factory`; `factory` itself if it is an environment."""
    if is_built(config):
        if config.env_options:
            raise ConfigError(f"env_kwargs has no effect on env={env.name}, which is built "
                              "already; leave it out")
        return factory
    if isinstance(factory, type):
        words = refusal(factory)
        if words and not (is_parallel(factory) or config.self_play):
            raise ConfigError(f"env={env.name!r} is {words}")
    elif not _takes(factory, "render_mode"):  # it may set its own
        more = {name: value for name, value in more.items() if name != "render_mode"}
    built = factory(**config.env_options, **more)
    if words := not_built(factory, built, "num_envs" if "num_envs" in more else ""):
        raise ConfigError(f"env={env.name!r} returns {words}")
    return built


def _takes(function: Any, name: str) -> bool:
    """Whether a function accepts the argument `name`; True if its signature is unknown."""
    try:
        parameters = signature(function).parameters
    except ValueError:  # of a function written in C
        return True
    return name in parameters or any(each.kind is Parameter.VAR_KEYWORD
                                     for each in parameters.values())


def create_one(env: EnvId, config: EnvConfig, *, rendered: bool) -> Any:
    """`create` without arguments other than a render mode."""
    return create(env, config, {"render_mode": RGB_ARRAY} if rendered else {})


def create(env: EnvId, config: EnvConfig, more: dict[str, Any]) -> Any:
    """The environment of any type that `env` builds with env_kwargs and the arguments `more`."""
    options = {**config.env_options, **more}
    with named_errors(lambda: f"{env.name} cannot be built"):
        try:
            if env.is_path:
                return _call(load_class(env.name, what="env"), env, config, more)
            return _make(env, config, options)
        except (gym.error.Error, ImportError, TypeError) as error:
            raise _refusal(error, env, options) from error


def _make(env: EnvId, config: EnvConfig, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """The environment that is registered as `env`."""
    if ":" in env.name:
        add_current_folder(env.name.partition(":")[0])
    find_plugin(env.name)  # again in worker processes
    for name, remedy in _OWN_REMEDY.items():
        if name in options:
            raise ConfigError(f"env={env.name!r}: {name} in env_kwargs is an option of its own; "
                              f"{remedy}")
    with warnings.catch_warnings(), _quiet_mujoco(env):
        # about a render mode that is unknown, which `build` checks
        warnings.simplefilter("ignore", UserWarning)
        # -1 removes the registered time limit: `Episodes` has that of the config.
        return gym.make(env.name, max_episode_steps=-1 if config.max_episode_steps else None,
                        disable_env_checker=True, **options)


@contextmanager
def _quiet_mujoco(env: EnvId) -> Iterator[None]:
    """Suppress a warning of MuJoCo 4.0 about an attribute in Gymnasium 1.4's models (2026-11).

    MuJoCo would also write it to MUJOCO_LOG.TXT.
    """
    if env.family != "mujoco" or find_spec("mujoco") is None:
        yield
        return
    import mujoco

    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(handler)


def _refusal(error: Exception, env: EnvId, options: dict[str, Any]) -> ConfigError:
    """The ConfigError for an environment that cannot be built, with the remedy."""
    if isinstance(error, gym.error.DependencyNotInstalled) and env.family in ("box2d", "mujoco"):
        return missing(env.family, "Box2D" if env.family == "box2d" else env.family)
    if isinstance(error, gym.error.UnregisteredEnv) and multiprocessing.parent_process():
        return ConfigError(f"env={env.name!r} is not registered in the worker processes, which do "
                           "not run what is below if __name__ == '__main__'; register it where a "
                           f"module is imported, and give module:{env.name}")
    remedy = ""
    if "render_mode" in options:
        remedy = "; to be drawn, it has to take render_mode"
    if "max_episode_steps" in options and "max_episode_steps" in str(error):
        remedy += "; for a time limit give --max-episode-steps"
    return ConfigError(f"env={env.name!r} cannot be built with env_kwargs={json.dumps(options)}: "
                       f"{type(error).__name__}: {error}{remedy}")
