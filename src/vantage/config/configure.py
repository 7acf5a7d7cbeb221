"""Defaults that work, by algorithm and environment; `configure` turns them into a config. The modules hold the data."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from vantage.algorithms.ppo import PPO
from vantage.config.algorithms import ALGORITHMS, base_of, defaults_of_body, name_and_values, runtimes_of
from vantage.config.checks import check_sources, check_together
from vantage.config.config import Config, Group, keys_of
from vantage.config.presets.measured import MEASURED, Defaults
from vantage.config.presets.systems import SYSTEMS
from vantage.config.runtimes import Hogwild, Ray
from vantage.envs.build import copying, is_built, num_built
from vantage.envs.ids import known_names, resolve_env
from vantage.envs.options import check_options
from vantage.errors import ConfigError
from vantage.keys.fields import convert, nearest
from vantage.keys.import_paths import colon_form
from vantage.keys.objects import is_code
from vantage.models.config import PolicyConfig

log = logging.getLogger(__name__)

__all__ = ["SYSTEMS", "Defaults", "catalogue", "configure", "defaults"]

Env = Any
"""A name, a class, a function that builds an environment, or an environment."""

MAX_EVAL_SHARE = 0.25
"""Default bound on the steps of evaluations for each step of training, if their interval is a default too.

Steps, not seconds: the machine's load then decides nothing. Evaluations act as training does, but learn nothing.
"""


_FAMILIES = {"classic": "classic control", "atari": "Atari", "box2d": "Box2D", "mujoco": "MuJoCo",
             "toy_text": "Gymnasium's toy texts", "other": "environments without defaults of their own"}
"""Families of environments, for a person."""


def defaults(algo: str, env: str, atari_protocol: str = "auto", runtime: str | None = None) -> Defaults:
    """The defaults of an algorithm or of a preset on `env`; ConfigError for an unknown one or environment.

    A subclass of A2C, PPO or ACER has those of that algorithm, except for the fields that its body sets. Under the
    `runtime` hogwild, a subclass of A2C has those of a3c.
    """
    names = [*ALGORITHMS, *SYSTEMS]
    if algo not in names and not is_code(algo):
        raise ConfigError(f"unknown algorithm or preset {algo!r}{colon_form(algo) or nearest(algo, names)}; known: "
                          f"{', '.join(names)}, or module:Class")
    env_id = resolve_env(env, atari_protocol)
    values: dict[str, Any] = {}
    source = ""
    atari = env_id.atari
    short = env_id.gym_id
    if atari:  # the measured ones are of the classic protocol
        short = resolve_env(atari.game).name if atari.protocol.name == "classic" else ""
    base = algo if algo in SYSTEMS else base_of(algo)
    if base == "a2c" and algo != "a2c" and runtime == "hogwild":
        base = "a3c"
    for owner in ("", base):
        for name in ("", env_id.family, short):
            if entry := MEASURED.get(owner, {}).get(name):
                values |= entry.values
                kind = _FAMILIES.get(name, name)
                source = f"{owner or 'all algorithms'} on {kind}: {entry.source}" if name else source
    always = {"env": env_id.name, **({"atari_protocol": atari.protocol.name} if atari else {})}
    if system := SYSTEMS.get(algo):
        saves = {key: value for key, value in values.items() if key == "save_every"}
        return Defaults({**always, **saves, **system.values(env_id)}, f"preset {algo}: {system.title}")
    keys = _keys_with_defaults(algo, base)
    if "envs_per_worker" in keys:  # of a3c and a3g
        values["envs_per_worker"] = values.pop("num_envs")
    return Defaults({"algo": algo, **always, **{key: value for key, value in values.items() if key in keys}}, source)


def _keys_with_defaults(algo: str, base: str) -> set[str]:
    """The keys of `algo` whose defaults `MEASURED` may set. An imported class declares those of its own fields."""
    plain = Config.of(algo)
    inherited = {name for name, key in Config.of(base).flat_keys().items() if key.group == "algorithm"} if base else {}
    body = defaults_of_body(type(plain.algorithm))
    return {name for name, key in plain.flat_keys().items()
            if key.group != "algorithm" or (name in inherited and name not in body)}


def configure(algorithm: Any, *groups: Group, env: Env, **overrides: Any) -> Config:
    """The config of a run: the defaults of `algorithm` on `env`, with `overrides`.

        config = vantage.configure("ppo", env="CartPole-v1", steps=100_000, lr="linear:1e-3:0", hidden=[64, 64])
        config = vantage.configure(vantage.PPO(epochs=4), env=lambda: Maze(size=9), network=MyTorso)
        config = vantage.configure("ppo", vantage.PolicyConfig(hidden=(64, 64)), vantage.RunConfig(seed=1), env="Pong")

    `algorithm` is a2c, ppo, a3c, a3g, acer, a preset (`vantage list presets`), a class, or an instance, whose fields
    are taken where they differ from the defaults of their class. `env` is a Gymnasium id, a short Atari name such as
    "Pong", a class, a function that returns a `gymnasium.Env`, or, if it takes `num_envs`, a
    `gymnasium.vector.VectorEnv`, or one such environment that is built already. `network` is a name, a class
    or a function that is called with the shape of its input, (C, H, W) or (N,), or an `nn.Module`, which is copied.

    Classes and functions may come from a notebook, the script that runs or another function: worker processes receive
    them. config.json holds the import path ("my_module:MyClass") of those that have one, and the names of others in
    angle brackets; a resume, and whatever else builds them, takes them as arguments again.

    The keys of `overrides` and their meanings are those of the command's flags: `vantage train ALGO --help-all`
    explains them, and `print(config.to_json())` shows their values. Numbers may be text as well, such as "10M". A
    coefficient may be a schedule in text, or a function of the progress from 0 to 1, such as
    `lambda progress: 1e-3 * (1 - progress)`.

    `groups` give the same keys in the classes that declare them, so that an editor completes them: `EnvConfig`,
    `PolicyConfig`, `OptimizerConfig`, `Sync`, `Hogwild`, `Ray` and `RunConfig`. Of an instance, the fields count that
    differ from the defaults of its class. A runtime is also the choice of that runtime.

    ConfigError for a key that the algorithm does not have, a value that does not fit, and an unknown environment.
    """
    algorithm, own = name_and_values(algorithm)
    for values in (own, *map(keys_of, groups)):
        if twice := sorted(values.keys() & overrides.keys()):
            raise ConfigError(f"{twice[0]} is given twice, in an object and as an argument; leave one out")
        overrides |= values
    name, env_name = convert("algorithm", algorithm, str), convert("env", env, str)
    if "algo" in overrides:
        raise ConfigError(f"algo={overrides['algo']} beside {name}; name the algorithm once, as the first argument")
    protocol, runtime = str(overrides.get("atari_protocol", "auto")), overrides.get("runtime")
    values = dict(defaults(name, env_name, protocol, runtime).values)
    config = Config.of(values.pop("algo")).override(values).override(overrides)
    if config.runtime_name not in runtimes_of(config.algo):
        other = {("a2c", "hogwild"): "use a3c", ("a3c", "sync"): "use a2c"}.get((config.algo, config.runtime_name))
        raise ConfigError(f"runtime={config.runtime_name} contradicts {config.algo}; {other or 'leave it out'}")
    env_id = resolve_env(config.env.id, config.env.atari_protocol)
    check_options(config.env, env_id)
    config = config.override(_following(config, overrides, env_id.family, preset=name in SYSTEMS))
    check_together(config)
    check_sources(config)
    return config


def _following(config: Config, overrides: Mapping[str, Any], family: str, *, preset: bool) -> dict[str, Any]:
    """Values that follow from others, where they are not among `overrides`."""
    values: dict[str, Any] = {}
    if config.policy.memory != "none" and not preset:
        values["frame_stack"] = 1  # memory keeps what the frames would show
    if config.policy.network == "impala" or is_code(config.policy.network):
        values["norm"] = "none"  # residual sums need none; a network of one's own has layers of its own
    if config.policy.image_norm == "none":
        values["image_norm_steps"] = 0
    if is_built(config.env):
        values["num_envs"] = num_built(config.env)
    values["save_every"] = min(config.run.save_every, max(1, config.run.steps // 10))
    if config.policy.init_from is not None:  # its weights replace the first ones
        values["init"] = PolicyConfig.init
        if config.policy.std != "fixed":
            values["log_std_init"] = PolicyConfig.log_std_init
    if isinstance(config.runtime, Ray):
        values |= _ray_values(config, overrides)
    values = {key: value for key, value in values.items() if key not in overrides or key == "send"}
    if config.run.eval_every == -1:
        never = config.run.eval_every_seconds > 0 or family == "atari" or not _can_copy(config)
        values["eval_every"] = 0 if never else max(1, config.run.steps // 20)
        if not never and "max_eval_share" not in overrides:
            values["max_eval_share"] = MAX_EVAL_SHARE
    if "stop_at_eval" not in overrides and not config.override(values).run.evaluates:
        values["stop_at_eval"] = None
    return values


def _can_copy(config: Config) -> bool:
    """Evaluations have environments of their own."""
    try:
        return copying(config.env) is not None
    except ConfigError as error:
        log.warning("no evaluations during training: %s", error)
        return False


def _ray_values(config: Config, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients for a3c and from a replay, and V-trace for rollouts.

    Rollouts are not kept: there are as many passes over each new one instead.
    """
    asynchronous = ALGORITHMS.get(config.algo, (None, None))[1] is Hogwild or config.algorithm.needs.replay is not None
    sent = {"auto": "gradients" if asynchronous else "rollouts"}.get(config.ray.send, config.ray.send)
    vtrace = {"vtrace": sent == "rollouts"} if hasattr(config.algorithm, "vtrace") else {}
    values = {"send": sent, **vtrace}
    if isinstance(ppo := config.algorithm, PPO) and "past_rollouts" not in overrides:
        values |= {"past_rollouts": 0, "epochs": ppo.epochs * (1 + ppo.past_rollouts)}
    return values


_CATALOGUE = """algorithms
  a2c        advantage actor-critic, which collects and learns in turn
  ppo        several epochs over each rollout with a clipped ratio (Schulman et al. 2017)
  a3c        a2c asynchronously: worker processes on shared weights (Mnih et al. 2016)
  a3g        a3c whose workers' networks are on GPUs
  acer       off-policy from a replay: Retrace, truncated weights, trust region (Wang et al. 2017)

networks, with --memory none, lstm or gru, and --frame-stack N
  mlp        for vectors: widths by --hidden
  a3c        2 convolutions of 16 and 32, 256 (Mnih et al. 2016)
  nature     3 convolutions of 32, 64, 64, then 512 (Mnih et al. 2015)
  minatar    1 convolution of 16, 128; for small images (Young and Tian 2019)
  universe   4 convolutions of 32, 3x3, stride 2
  impala     residual, 16, 32, 32, then 256; takes small images too (Espeholt et al. 2018)
  maxpool    4 convolutions of 32, 32, 64, 64, each with 2 x 2 maxima (rl_a3c_pytorch)
  conv4      3x3 convolutions of 16, 24, 32, 64, then 2000 (PyTorch-A2C)
  conv5      3x3 convolutions of 16, 24, 32, 48, 64, then 288 (PyTorch-A2C)
  conv1d     for vectors: 4 convolutions of 32, 32, 64, 64 along them (a3c_continuous)
"""


def catalogue() -> dict[str, str]:
    """Algorithms, networks, presets, where defaults come from, and environments, for a person, by these names."""
    algorithms, networks = _CATALOGUE.rstrip().split("\n\n")
    presets = ["presets", *(f"  {name:<20} {system.title}" for name, system in SYSTEMS.items())]
    lines = ["defaults, whose values `vantage train ALGO --env ENV --help` shows"]
    for owner, entries in MEASURED.items():
        for name, entry in entries.items():
            if entry.source:
                title = f"{name}, {owner}" if owner else name
                lines.append(fill(f"{title}: {entry.source}", 118, initial_indent="  ", subsequent_indent="      "))
    envs = ["environments: any Gymnasium id, module:Id-v0, module:Class, and the Atari games", "",
            fill(", ".join(known_names()), 118, initial_indent="  ", subsequent_indent="  ")]
    return {"algorithms": algorithms, "networks": networks, "presets": "\n".join(presets),
            "defaults": "\n".join(lines), "environments": "\n".join(envs)}
