"""The defaults of an algorithm on an environment, and `configure`, which makes a config of them.

The data are in `presets`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from vantage.config.algorithms import (
    ALGORITHMS,
    base_of,
    defaults_of_body,
    name_and_values,
    runtimes_of,
)
from vantage.config.checks import check_sources, check_together
from vantage.config.config import Config
from vantage.config.flag_checks import check_flags
from vantage.config.flat import CORE
from vantage.config.groups import Group, keys_of
from vantage.config.presets.games import GAMES, GamePreset, env_of_preset
from vantage.config.presets.measured import MEASURED, Defaults
from vantage.config.presets.systems import SYSTEMS
from vantage.config.run import CHECKPOINTS_PER_RUN, EVALUATIONS_PER_RUN
from vantage.config.runtimes import Hogwild, Ray
from vantage.envs.built import copying, is_built, num_built
from vantage.envs.ids import EnvId, resolve_env
from vantage.envs.options import check_options
from vantage.errors import ConfigError
from vantage.keys.fields import convert
from vantage.keys.given_fields import given_names
from vantage.keys.import_paths import colon_form
from vantage.keys.objects import is_code
from vantage.keys.suggestions import nearest
from vantage.models.config import PolicyConfig

log = logging.getLogger(__name__)

Env = Any
"""A name, a class, a function that builds an environment, or an environment."""

MAX_EVAL_SHARE = 0.25
"""Default bound on evaluation steps per training step, if the interval is a default too.

In steps and not in seconds, so that the load of the machine does not change a run.
"""

_FAMILIES = {
    "classic": "classic control",
    "atari": "Atari",
    "box2d": "Box2D",
    "mujoco": "MuJoCo",
    "toy_text": "Gymnasium's toy texts",
    "other": "environments without defaults of their own",
}
"""Names of the families of environments in messages."""


def defaults(algo: str, env: str, atari_protocol: str, runtime: str | None) -> Defaults:
    """The defaults of an algorithm or a preset on `env`.

    A subclass of A2C, PPO or ACER has those of that algorithm, except for fields that its body
    sets; under the `runtime` hogwild, a subclass of A2C has those of a3c. ConfigError for an
    unknown algorithm, preset or environment.
    """
    names = [*ALGORITHMS, *GAMES, *SYSTEMS]
    if algo not in names and not is_code(algo):
        near = colon_form(algo) or nearest(algo, names)
        raise ConfigError(f"unknown algorithm or preset {algo!r}{near}; known: "
                          f"{', '.join(names)}, or module:Class")
    env_id = resolve_env(env, atari_protocol)
    if preset := GAMES.get(algo):
        return _of_game(algo, preset, env_id, atari_protocol, runtime)
    base = algo if algo in SYSTEMS else base_of(algo)
    if base == "a2c" and algo != "a2c" and runtime == "hogwild":
        base = "a3c"
    measured = _measured(base, env_id)
    values: dict[str, Any] = {"env": env_id.name}
    if env_id.atari:
        values["atari_protocol"] = env_id.atari.protocol.name
    if system := SYSTEMS.get(algo):
        if "save_every" in measured.values:
            values["save_every"] = measured.values["save_every"]
        return Defaults(values | system.values(env_id), f"preset {algo}: {system.title}")
    keys = _keys_with_defaults(algo, base)
    measured_values = dict(measured.values)
    if "envs_per_worker" in keys:  # of a3c and a3g
        measured_values["envs_per_worker"] = measured_values.pop("num_envs")
    values |= {key: value for key, value in measured_values.items() if key in keys}
    return Defaults({"algo": algo, **values}, measured.source)


def _of_game(name: str, preset: GamePreset, env: EnvId, atari_protocol: str,
             runtime: str | None) -> Defaults:
    """The defaults of the preset's algorithm with its values; ConfigError on another game."""
    own = resolve_env(preset.env)
    game = own.atari.game if own.atari else own.name
    if game != (env.atari.game if env.atari else env.name):
        raise ConfigError(f"{name} is a preset for {preset.env}, not {env.name}; leave --env out, "
                          f"or give {preset.algo} for another environment")
    under = defaults(preset.algo, env.name, atari_protocol, runtime)
    return Defaults({**under.values, **preset.values}, f"preset {name}: {preset.source}")


def _measured(base: str, env: EnvId) -> Defaults:
    """What `MEASURED` holds for an algorithm on `env`, with the most specific source."""
    gym_id = env.gym_id
    if env.atari:  # the defaults of a game were measured under the classic protocol
        is_classic = env.atari.protocol.name == "classic"
        gym_id = resolve_env(env.atari.game).name if is_classic else ""
    values: dict[str, Any] = {}
    source = ""
    for algo in ("", base):
        for name in ("", env.family, gym_id):
            entry = MEASURED.get(algo, {}).get(name)
            if entry is None:
                continue
            values |= entry.values
            if name:
                place = _FAMILIES.get(name, name)
                source = f"{algo or 'all algorithms'} on {place}: {entry.source}"
    return Defaults(values, source)


def _keys_with_defaults(algo: str, base: str) -> set[str]:
    """The keys of `algo` that `MEASURED` may set: not those that a user's own class declares."""
    config = Config.of(algo)
    inherited = Config.of(base).flat_keys() if base else {}
    body = defaults_of_body(type(config.algorithm))
    return {name for name, key in config.flat_keys().items()
            if key.group != "algorithm" or (name in inherited and name not in body)}


def configure(algorithm: Any, *groups: Group, env: Env | None = None, **overrides: Any) -> Config:
    """The config of a run: the defaults of `algorithm` on `env`, with `overrides`.

        vantage.configure("ppo", env="CartPole-v1", steps=100_000, lr="linear:1e-3:0")
        vantage.configure(vantage.PPO(epochs=4), env=lambda: Maze(size=9), network=MyTorso)
        vantage.configure("ppo", vantage.PolicyConfig(hidden=(64, 64)), env="CartPole-v1")

    `algorithm` is a2c, ppo, a3c, a3g, acer, a preset (`vantage list presets`), a class or an
    instance. `env` is a Gymnasium id, a short Atari name such as "Pong", a class, a function, or an
    environment that is built already; the preset pong-fast implies it. A class or function returns
    a `gymnasium.Env` or, if it takes `num_envs`, a `gymnasium.vector.VectorEnv`. `network` is a
    name, a class or a function that is called with the shape of its input, (C, H, W) or (N,), or an
    `nn.Module`, which is copied.

    Classes and functions may be defined anywhere, also in a notebook or another function: worker
    processes receive them. config.json holds their import paths ("my_module:MyClass"); of those
    without one it holds a name in angle brackets, and a resume takes them as arguments again.

    The keys of `overrides` are the command's flags, which `vantage train ALGO --help-all` explains;
    `print(config.to_json())` shows their values. Numbers may be text, such as "10M". A coefficient
    may be a schedule in text, or a function of the progress from 0 to 1, such as
    `lambda progress: 1e-3 * (1 - progress)`.

    `groups` hold the same keys in the classes that declare them, so that an editor completes them:
    `EnvConfig`, `PolicyConfig`, `OptimizerConfig`, `RunConfig`, and `Sync`, `Hogwild` or `Ray`,
    which also choose the runtime. The fields that an instance was given count; after
    dataclasses.replace, of a group of another config, and of a dataclass of your own that inherits
    from an algorithm, those that differ from the defaults of the class.

    ConfigError for a key that the algorithm does not have, a value that does not fit, an unknown
    environment, and a key without effect beside the others, such as `memory_size` without a memory,
    unless all keys of a config are given again.
    """
    config = with_defaults(algorithm, *groups, env=env, **overrides)
    if not {"algo", "env", *overrides}.issuperset(CORE):  # not a whole config
        check_flags(config, {*overrides}.union(*map(given_names, (algorithm, *groups))))
    return config


def with_defaults(algorithm: Any, *groups: Group, env: Env | None = None,
                  **overrides: Any) -> Config:
    """As `configure`, but keys without effect are accepted: some may come from a file."""
    if env is None and isinstance(algorithm, str):
        env = env_of_preset(algorithm) or None
    env_name = _name_of_env(env, groups)
    algorithm, own = name_and_values(algorithm)
    overrides = joined(overrides, own, *map(keys_of, groups))
    name = convert("algorithm", algorithm, str)
    again = overrides.pop("algo", name)
    if again != name:
        raise ConfigError(f"algo={again} beside {name}; name the algorithm once, as the first "
                          "argument")
    protocol = str(overrides.get("atari_protocol", "auto"))
    values = dict(defaults(name, env_name, protocol, overrides.get("runtime")).values)
    config = Config.of(values.pop("algo")).override(values).override(overrides)
    if config.runtime_name not in runtimes_of(config.algo):
        remedies = {("a2c", "hogwild"): "use a3c", ("a3c", "sync"): "use a2c"}
        remedy = remedies.get((config.algo, config.runtime_name), "leave it out")
        raise ConfigError(f"runtime={config.runtime_name} contradicts {config.algo}; {remedy}")
    env_id = resolve_env(config.env.id, config.env.atari_protocol)
    check_options(config.env, env_id)
    config = config.override(
        _dependent_values(config, overrides, env_id.family, preset=name in SYSTEMS))
    check_together(config)
    check_sources(config)
    return config


def joined(overrides: Mapping[str, Any], *parts: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a call and of the objects in it; ConfigError for one that is given twice."""
    values = dict(overrides)
    for part in parts:
        if twice := sorted(part.keys() & values.keys()):
            raise ConfigError(f"{twice[0]} is given twice, in an object and as an argument; leave "
                              "one out")
        values |= part
    return values


def _name_of_env(env: Env | None, groups: Sequence[object]) -> str:
    """The name of `env`; ConfigError if it is missing, or a list."""
    if env is None:
        if groups and not isinstance(groups[0], Group):
            raise ConfigError(f"{groups[0]!r:.80} is given by position; name it: env=...")
        raise ConfigError("env is missing; give an environment, such as env='CartPole-v1'")
    if isinstance(env, list | tuple):
        raise ConfigError(f"env is a {type(env).__name__} of {len(env)}; give one of them, which "
                          f"builds an environment, and num_envs={max(1, len(env))}")
    return str(convert("env", env, str))


def _dependent_values(config: Config, overrides: Mapping[str, Any], family: str, *,
                      preset: bool) -> dict[str, Any]:
    """Values that depend on other keys, unless they are among `overrides`."""
    values: dict[str, Any] = {}
    if config.policy.memory != "none" and not preset:
        values["frame_stack"] = 1  # the memory replaces earlier frames
    if config.policy.network == "impala" or is_code(config.policy.network):
        values["norm"] = "none"  # residual sums need none, and a user's network has its own layers
    if config.policy.image_norm == "none":
        values["image_norm_steps"] = 0
    if config.policy.value_norm != "none" or config.exploration.curiosity != "none":
        # Where nothing else is paid yet, normalised costs would be larger than intrinsic rewards.
        values["reward_norm"] = False
    if config.exploration.curiosity != "none" and hasattr(config.algorithm, "advantage_norm"):
        values["advantage_norm"] = False  # normalised, advantages of vanishing rewards are noise
    if is_built(config.env):
        values["num_envs"] = num_built(config.env)
    values["save_every"] = min(config.run.save_every,
                               max(1, config.run.steps // CHECKPOINTS_PER_RUN))
    if config.policy.init_from is not None:  # those weights replace the initial ones
        values["init"] = PolicyConfig.init
        if config.policy.std != "fixed":
            values["log_std_init"] = PolicyConfig.log_std_init
    if isinstance(config.runtime, Ray):
        values |= _ray_values(config)
    values = {key: value for key, value in values.items() if key not in overrides or key == "send"}
    if config.run.eval_every == -1:
        never = (config.run.eval_every_seconds > 0 or family == "atari"
                 or not _can_build_eval_envs(config))
        values["eval_every"] = (
            0 if never else max(1, config.run.steps // EVALUATIONS_PER_RUN))
        if not never and "max_eval_share" not in overrides:
            values["max_eval_share"] = MAX_EVAL_SHARE
    if "stop_at_eval" not in overrides and not config.override(values).run.evaluates:
        values["stop_at_eval"] = None
    return values


def _can_build_eval_envs(config: Config) -> bool:
    """Whether evaluations can have environments of their own; logs why not."""
    try:
        return copying(config.env) is not None
    except ConfigError as error:
        log.warning("no evaluations during training: %s", error)
        return False


def _ray_values(config: Config) -> dict[str, Any]:
    """Values under Ray: gradients for a3c and from a replay, and V-trace for rollouts."""
    algorithm = config.algorithm
    send = config.ray.send
    if send == "auto":
        is_a3c = config.algo in ALGORITHMS and ALGORITHMS[config.algo][1] is Hogwild
        send = "gradients" if is_a3c or algorithm.needs.replay is not None else "rollouts"
    values: dict[str, Any] = {"send": send}
    if hasattr(algorithm, "vtrace"):
        values["vtrace"] = send == "rollouts"
    return values
