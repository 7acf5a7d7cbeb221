"""Defaults that work, by algorithm and environment; `configure` turns them into a config. The modules hold the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import fill
from typing import Any

from vantage.config import ALGORITHMS, Config
from vantage.config_groups import PolicyConfig
from vantage.consistency import check_together
from vantage.envs import check_options, known_names, resolve_env
from vantage.errors import ConfigError
from vantage.importing import colon_form
from vantage.keys import convert, nearest
from vantage.presets.measured import MEASURED, Defaults
from vantage.presets.systems import SYSTEMS

__all__ = ["SYSTEMS", "Defaults", "catalogue", "configure", "defaults", "expectation"]

MAX_EVAL_SHARE = 0.1
"""Of evaluations whose interval is not given."""


def defaults(algo: str, env: str, atari_protocol: str = "auto") -> Defaults:
    """The defaults of an algorithm or of a preset on `env`; ConfigError for an unknown one or environment."""
    names = [*ALGORITHMS, *SYSTEMS]
    if algo not in names and ":" not in algo:
        raise ConfigError(f"unknown algorithm or preset {algo!r}{colon_form(algo) or nearest(algo, names)}; known: "
                          f"{', '.join(names)}, or module:Class")
    found = resolve_env(env, atari_protocol)
    values: dict[str, Any] = {}
    source = ""
    for owner in ("", algo):
        for name in ("", found.family, found.name):
            if entry := MEASURED.get(owner, {}).get(name):
                values |= entry.values
                source = f"{owner or 'all algorithms'} on {name}: {entry.source}" if name else source
    always = {"env": found.name, **({"atari_protocol": found.atari.protocol.name} if found.atari else {})}
    if system := SYSTEMS.get(algo):
        saves = {key: value for key, value in values.items() if key == "save_every"}
        return Defaults({**always, **saves, **system.values(found)}, f"preset {algo}: {system.title}")
    plain = Config.of(algo)
    # An imported algorithm declares the defaults of its own keys.
    own = {name for name, key in plain.flat_keys().items() if ":" not in algo or key.group != "algorithm"}
    return Defaults({"algo": algo, **always, **{key: value for key, value in values.items() if key in own}}, source)


def configure(algo: str | type, *, env: str | Callable[..., Any], **overrides: Any) -> Config:
    """The config of `algo`, or of a preset of `SYSTEMS`, on `env`; `overrides` go by key, typed or in text.

    Algorithm, environment and network may also be classes that can be imported by name. Raises ConfigError for unknown
    keys, values that do not fit, unknown environments.
    """
    name, env_name = convert("algo", algo, str), convert("env", env, str)
    values = dict(defaults(name, env_name, str(overrides.get("atari_protocol", "auto"))).values)
    config = Config.of(values.pop("algo")).override(values).override(overrides)
    if config.algo in ("a2c", "ppo", "a3c", "a3g") and type(config.runtime) is not ALGORITHMS[config.algo][1]:
        raise ConfigError(f"runtime={config.runtime_name} contradicts {config.algo}; leave it out")
    found = resolve_env(config.env.id, config.env.atari_protocol)
    check_options(config.env, found)
    config = config.override(_following(config, overrides, found.family, preset=name in SYSTEMS))
    check_together(config)
    return config


def _following(config: Config, overrides: Mapping[str, Any], family: str, *, preset: bool) -> dict[str, Any]:
    """Values that follow from others, where they are not among `overrides`."""
    values: dict[str, Any] = {}
    if config.policy.memory != "none" and not preset:
        values["frame_stack"] = 1  # memory keeps what the frames would show
    if config.policy.network == "impala" or ":" in config.policy.network:
        values["norm"] = "none"  # residual sums need none; a network of one's own has layers of its own
    values["save_every"] = min(config.run.save_every, max(1, config.run.steps // 10))
    if config.policy.init_from is not None:  # its weights replace the first ones
        values["init"] = PolicyConfig.init
        if config.policy.std != "fixed":
            values["log_std_init"] = PolicyConfig.log_std_init
    values = {key: value for key, value in values.items() if key not in overrides}
    if config.run.eval_every == -1:
        never = config.run.eval_every_seconds > 0 or family == "atari"
        values["eval_every"] = 0 if never else max(1, config.run.steps // 20)
        if not never and "max_eval_share" not in overrides:
            values["max_eval_share"] = MAX_EVAL_SHARE
    if "stop_at_eval" not in overrides and not config.override(values).run.evaluates:
        values["stop_at_eval"] = None
    return values


def expectation(config: Config) -> str:
    """What to expect early of a run whose curve is flat at first; nothing where the curve moves at once."""
    found = resolve_env(config.env.id, config.env.atari_protocol)
    needs = config.algorithm.needs
    if found.atari is None or found.atari.game != "pong" or needs.replay is not None or needs.reuse is not None:
        return ""
    return (f"{config.env.id} is a flat line at first, and that is normal: expect the first rise between 0.5 and 1.5 "
            "million steps.")


_CATALOGUE = """algorithms
  a2c        advantage actor-critic, one process that collects and learns in turn
  ppo        several epochs over each rollout with a clipped ratio (Schulman et al. 2017)
  a3c        a2c asynchronously: worker processes on shared weights (Mnih et al. 2016)
  a3g        a3c whose workers' networks are on GPUs
  acer       off-policy from a replay: Retrace, truncated weights, trust region (Wang et al. 2017)

networks, with --memory none, lstm or gru, and --frame-stack N
  mlp        widths by --hidden; every vector observation goes through it
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


def catalogue() -> str:
    """Algorithms, networks, presets, environments, and where their defaults come from, for a person."""
    lines = [_CATALOGUE, "presets", *(f"  {name:<20} {system.title}" for name, system in SYSTEMS.items()), "",
             "defaults, whose values `vantage train ALGO --env ENV --help` shows"]
    for owner, entries in MEASURED.items():
        for name, entry in entries.items():
            lines += [fill(f"{name}{f', {owner}' * bool(owner)}: {entry.source}", 118, initial_indent="  ",
                           subsequent_indent="      ")] * bool(entry.source)
    return "\n".join([*lines, "", "environments: any Gymnasium id, module:Id-v0, module:Class, and the Atari games", "",
                      fill(", ".join(known_names()), 118, initial_indent="  ", subsequent_indent="  ")])
