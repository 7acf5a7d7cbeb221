"""Defaults that work, by family of environment, each with its source; `configure` turns them into a config."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vantage.config import ALGORITHMS, Config
from vantage.config_groups import PolicyConfig
from vantage.consistency import check_together
from vantage.envs import check_options, known_names, resolve_env
from vantage.errors import ConfigError
from vantage.keys import nearest
from vantage.systems import SYSTEMS


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for one family of environments, and where they come from."""

    values: Mapping[str, Any]
    source: str


DESCRIPTIONS = {"a2c": "advantage actor-critic, one process that collects and learns in turn",
              "ppo": "the same with several epochs over each rollout and a clipped ratio (Schulman et al. 2017)",
              "a3c": "a2c asynchronously: worker processes on shared weights (Mnih et al. 2016)",
              "a3g": "a3c whose workers' networks are on GPUs",
              "acer": "off-policy from a replay: Retrace, truncated weights, trust region (Wang et al. 2017)"}

_VECTOR = {"optimizer": "adam", "optimizer_eps": 1e-5, "gae_lambda": "0.95", "entropy_coef": "0.0", "separate": True,
           "max_grad_norm": "0.5", "obs_norm": True, "reward_norm": True}

FAMILIES: dict[str, Defaults] = {
    "classic": Defaults(
        {**_VECTOR, "num_envs": 8, "rollout_length": 16, "lr": "linear:1e-3:0", "steps": 300_000},
        "measured on CartPole-v1, results/a2c-CartPole-v1 and results/a3c-CartPole-v1; advantage_norm or raw rewards: "
        "120-190 at the end"),
    "box2d": Defaults(
        {**_VECTOR, "num_envs": 16, "rollout_length": 32, "lr": "linear:1e-3:0", "steps": 2_000_000,
         "gamma": "0.99"},
        "as classic, with a larger batch; not yet measured"),
    "mujoco": Defaults(
        {**_VECTOR, "num_envs": 8, "rollout_length": 32, "lr": "linear:7e-4:0", "steps": 1_000_000},
        "as classic; not yet measured"),
    "atari": Defaults(
        {"num_envs": 16, "rollout_length": 10, "frame_stack": 4, "network": "a3c", "reward": "sign",
         "optimizer": "adam", "steps": 10_000_000, "lr": "linear:5e-4:0", "gae_lambda": "0.95", "entropy_coef": "0.01",
         "save_every": 100_000, "memory": "lstm", "norm": "layer"},
        "measured on Pong, results/a2c-Pong: an lstm on single frames needs fewer steps than stacks of 4 "
        "(a2c-Pong-frames), and without layer normalisation its torso may die early"),
    "other": Defaults(
        {**_VECTOR, "num_envs": 8, "rollout_length": 16, "lr": "linear:7e-4:0", "steps": 1_000_000,
         "save_every": 100_000},
        "as classic; not yet measured"),
}

ENVIRONMENTS: dict[str, Defaults] = {
    "Pendulum-v1": Defaults(
        {"num_envs": 16, "rollout_length": 8, "lr": "linear:3e-3:0", "gamma": "0.97", "steps": 1_000_000,
         "advantage_norm": True},
        "measured, results/a2c-Pendulum-v1 and results/a3c-Pendulum-v1; gamma 0.9, as elsewhere, stayed at -950 to "
        "-1,060 in 400k steps"),
    "MountainCar-v0": Defaults(
        {"num_envs": 16, "gae_lambda": "0.98", "entropy_coef": "0.01", "steps": 1_000_000},
        "measured with a2c, results/a2c-MountainCar-v0"),
    "LunarLander-v3": Defaults(
        {"num_envs": 8, "rollout_length": 64, "lr": "linear:7e-4:0", "value_coef": "2", "reward_norm": False,
         "reward_scale": 0.02, "gae_lambda": "piecewise:0=0.8,20%=0.85,35%=0.95,45%=1", "steps": 1_000_000},
        "measured, results/a2c-LunarLander-v3 and results/a3c-LunarLander-v3: short returns first, or it hovers; long "
        "ones once it lands, or a biased critic unlearns it; in shares of 1M steps"),
    "Acrobot-v1": Defaults({"steps": 500_000}, "measured with a2c, results/a2c-Acrobot-v1"),
    "BipedalWalker-v3": Defaults(
        {"memory": "lstm", "memory_size": 128, "norm": "layer", "num_envs": 16, "rollout_length": 16,
         "gae_lambda": "0.9", "log_std_init": -0.5, "steps": 5_000_000},
        "measured with one worker, results/a3c-BipedalWalker-v3, and two, results/a3c-BipedalWalker-v3-workers"),
    "CarRacing-v3": Defaults({"save_every": 5_000}, "family box2d, not yet measured; its steps are slow"),
}
"""Single environments whose family's values do not do: value by value on top of the family's."""


_A3C = {
    "atari": Defaults({"num_envs": 8, "lr": "linear:4e-4:0"},
                      "measured on Pong with two workers, results/a3c-Pong"),
}

_ACER_VECTOR = {"num_envs": 8, "rollout_length": 16, "lr": "linear:1e-3:0", "optimizer_eps": 1e-5, "value_coef": "0.5"}
_ACER_MEASURED = "measured on CartPole-v1, Acrobot-v1, Pendulum-v1 and LunarLander-v3, results/acer-*"

_ACER = {
    "classic": Defaults(_ACER_VECTOR, _ACER_MEASURED),
    "box2d": Defaults(_ACER_VECTOR, _ACER_MEASURED),
    "mujoco": Defaults(_ACER_VECTOR, "as classic; not yet measured"),
    "atari": Defaults({"memory": "none", "frame_stack": 4, "norm": "none", "num_envs": 4, "rollout_length": 20,
                       "lr": "linear:2e-4:0"},
                      "as on Pong; stacked frames, since the state that a memory had grows stale"),
    "other": Defaults(_ACER_VECTOR, "as classic; not yet measured"),
    "CartPole-v1": Defaults({"steps": 50_000, "replay_start": 2_000}, "measured, results/acer-CartPole-v1"),
    "Acrobot-v1": Defaults({"steps": 200_000}, "measured, results/acer-Acrobot-v1"),
    "Pendulum-v1": Defaults({"steps": 400_000}, "measured, results/acer-Pendulum-v1"),
    "LunarLander-v3": Defaults({"steps": 300_000, "reward_norm": True, "reward_scale": 1.0},
                               "measured, results/acer-LunarLander-v3"),
    "BipedalWalker-v3": Defaults({"memory": "none", "norm": "none", "log_std_init": 0.0},
                                 "one seed of 300k steps, results/acer-BipedalWalker-v3"),
    "Pong": Defaults({"steps": 3_000_000}, "measured with two workers, results/acer-Pong"),
}

_PPO_VECTOR = {"num_envs": 8, "rollout_length": 128, "epochs": 10, "minibatch_size": 64, "lr": "linear:1e-3:0"}

_PPO = {
    "classic": Defaults(_PPO_VECTOR, "as Huang et al. 2022, the 37 details; not yet measured"),
    "atari": Defaults({"memory": "none", "frame_stack": 2, "num_envs": 32, "rollout_length": 128, "epochs": 3,
                       "minibatch_size": 256, "optimizer_eps": 1e-5, "max_grad_norm": "0.5",
                       "image_norm": "pixel", "image_norm_steps": 10_000}, "on trial"),
}

OWN: dict[str, dict[str, Defaults]] = {"ppo": _PPO, "a3c": _A3C, "a3g": _A3C, "acer": _ACER}
"""An algorithm's own values. Later wins: family, environment, the algorithm's own family, its own environment."""


def defaults(algo: str, env: str, atari_protocol: str = "auto") -> Defaults:
    """The defaults of an algorithm or of a preset on `env`; ConfigError for an unknown one or environment."""
    algorithms = [*ALGORITHMS, *SYSTEMS]
    if algo not in algorithms and ":" not in algo:
        raise ConfigError(f"unknown algorithm or preset {algo!r}{nearest(algo, algorithms)}; known: "
                          f"{', '.join(algorithms)}")
    if not isinstance(env, str):
        raise ConfigError(f"env is a {type(env).__name__}; give its name: a Gymnasium id, an Atari game or "
                          "module:Class")
    found = resolve_env(env, atari_protocol)
    family, special = FAMILIES[found.family], ENVIRONMENTS.get(found.name)
    protocol = {"atari_protocol": found.atari.protocol.name} if found.atari else {}
    if algo in SYSTEMS:
        system = SYSTEMS[algo]
        every = {key: value for source in (family, special) if source for key, value in source.values.items()
                 if key == "save_every"}
        return Defaults({"env": found.name, **protocol, **every, **system.values(found)},
                        f"preset {algo}: {system.title}")
    known = {"algo": algo, "env": found.name, **family.values, **protocol}
    if algo == "a3g":
        known["device"] = "auto"
    source = f"family {found.family}: {family.source}" if special is None else f"{found.name}: {special.source}"
    known |= special.values if special else {}
    for name in (found.family, found.name):
        if own := OWN.get(algo, {}).get(name):
            known |= own.values
            source = f"{algo} on {name}: {own.source}"
    own_keys = Config.of(algo).flat()
    return Defaults({key: value for key, value in known.items() if key in own_keys}, source)


def configure(algo: str, *, env: str, **overrides: Any) -> Config:
    """The config of `algo`, or of a preset of `SYSTEMS`, on `env`; `overrides` go by key, typed or in text.

    Raises ConfigError for unknown keys, values that do not fit, unknown environments.
    """
    chosen = defaults(algo, env, str(overrides.get("atari_protocol", "auto")))
    values = dict(chosen.values)
    config = Config.of(values.pop("algo")).override(values, source="defaults").override(overrides, source="configure")
    preset, algo, found = algo in SYSTEMS, config.algo, resolve_env(config.env.id, config.env.atari_protocol)
    if algo in ("a2c", "ppo", "a3c", "a3g") and type(config.runtime) is not ALGORITHMS[algo][1]:
        raise ConfigError(f"runtime={config.runtime_name} contradicts {algo}; leave it out")
    config = config.override(_following(config, overrides, family=found.family, preset=preset), source="configure")
    check_options(config.env, found)
    check_together(config)
    return _with_weights(config, overrides)


def _following(config: Config, overrides: Mapping[str, Any], *, family: str, preset: bool) -> dict[str, Any]:
    """Values that follow from others, where they were not asked for."""
    values: dict[str, Any] = {}
    if config.policy.memory != "none" and "frame_stack" not in overrides and not preset:
        values["frame_stack"] = 1  # what the frames would tell, memory keeps
    if config.policy.network == "impala" and "norm" not in overrides:
        values["norm"] = "none"  # its residual sums need none
    if "save_every" not in overrides:
        values["save_every"] = min(config.run.save_every, max(1, config.run.steps // 10))
    if config.run.eval_every == -1:
        never = config.run.eval_every_seconds > 0 or family == "atari"
        values["eval_every"] = 0 if never else max(1, config.run.steps // 20)
    if "stop_at_eval" not in overrides and not config.override(values, source="configure").run.evaluates:
        values["stop_at_eval"] = None
    return values


def _with_weights(config: Config, overrides: Mapping[str, Any]) -> Config:
    """`config` without what given weights leave no effect; ConfigError if that was asked for."""
    if config.policy.init_from is None:
        if config.policy.init_checkpoint != "auto":
            raise ConfigError(f"init_checkpoint={config.policy.init_checkpoint} chooses among a run's checkpoints; "
                              "name the run with --init-from")
        return config
    if not config.policy.init_from:
        raise ConfigError("init_from='' names nothing; give a run or an exported .safetensors file, or leave it out")
    keys = ("init",) if config.policy.std == "fixed" else ("init", "log_std_init")
    idle = {key: getattr(PolicyConfig(), key) for key in keys}
    for key, default in idle.items():
        if key in overrides and getattr(config.policy, key) != default:
            raise ConfigError(f"{key}={getattr(config.policy, key)} has no effect beside init_from, whose weights the "
                              f"run begins with; leave it out or at {default}")
    return config.override(idle, source="configure")


FIRST_RISE = {"pong": (500_000, 1_500_000)}
"""Agent steps between which the return of A2C's default first clearly leaves the random score."""


def expectation(config: Config) -> str:
    """What to expect early of a run whose curve is flat at first; nothing where the curve moves at once."""
    found = resolve_env(config.env.id, config.env.atari_protocol)
    span = FIRST_RISE.get(found.atari.game) if found.atari and config.algo != "acer" else None
    if span is None:
        return ""
    return (f"{config.env.id} is a flat line at first, and that is normal: expect the first rise between "
            f"{span[0] / 1e6:g} and {span[1] / 1e6:g} million steps.")


def catalogue() -> str:
    """Algorithms, networks, and the defaults of each family, for a person."""
    lines = ["algorithms", *(f"  {name:<10} {text}" for name, text in DESCRIPTIONS.items()), "", "networks",
             "  mlp        widths by --hidden; every vector observation goes through it",
             "  a3c        2 convolutions of 16 and 32, 256 (Mnih et al. 2016)",
             "  nature     3 convolutions of 32, 64, 64, then 512 (Mnih et al. 2015)",
             "  universe   4 convolutions of 32, 3x3, stride 2",
             "  impala     residual, 16, 32, 32, then 256; takes small images too (Espeholt et al. 2018)",
             "  maxpool    4 convolutions of 32, 32, 64, 64, each with 2 x 2 maxima (rl_a3c_pytorch)",
             "  conv4      3x3 convolutions of 16, 24, 32, 64, then 2000 (PyTorch-A2C)",
             "  conv5      3x3 convolutions of 16, 24, 32, 48, 64, then 288 (PyTorch-A2C)",
             "  conv1d     for vectors: 4 convolutions of 32, 32, 64, 64 along them (a3c_continuous)",
             "  with --memory none, lstm or gru, and --frame-stack N", "",
             "presets (vantage train NAME --env ENV --dry-run prints the values)"]
    for name, system in SYSTEMS.items():
        lines += [f"  {name:<20} {system.title}",
                  *(textwrap.fill(note, 118, initial_indent=" " * 23 + "- ", subsequent_indent=" " * 25)
                    for note in system.notes)]
    lines.append("")
    for name, entry in [*FAMILIES.items(), *ENVIRONMENTS.items(),
                        *((f"{name}, {algo}", own) for algo, owns in OWN.items() if algo != "a3g"  # as a3c
                          for name, own in owns.items())]:
        lines += [f"defaults for {name}: {entry.source}",
                  *(f"  --{key.replace('_', '-'):<16} {value}" for key, value in entry.values.items()), ""]
    lines += ["environments", "  any Gymnasium id, module:Id-v0, module:Class, and the Atari games", "",
              *textwrap.wrap(", ".join(known_names()), 110, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join(lines)
