"""Flat names of config keys, and values by flat name from files, also of older versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vantage.errors import ConfigError

GROUPS = ("env", "policy", "algorithm", "optimizer", "exploration", "cloning", "runtime", "run")

FLAT_NAMES: Mapping[tuple[str, str], str] = {
    ("env", "id"): "env",
    ("runtime", "kind"): "runtime",
}
"""Flat names that differ from the key's name in its group."""

CORE = ("algo", "env", "steps", "seed", "num_envs", "network", "memory", "rollout_length", "lr")
"""Keys in the config.json of every run. Newer keys, which an older run lacks, take defaults."""

_OLDER: Mapping[str, Any] = {
    "obs_as": "bytes",
    "obs_sets": False,
    "one_hot": "vector",
    "torsos": "separate",
    "scale_actions": False,
    "std_lr_scale": 1.0,
}
"""The behaviour of runs before these keys existed, where the default is now another."""

_OF_ACER = {"trust_region", "bias_correction", "average_decay", "critic_samples", "burn_in"}
"""Keys of every run of ACER, or of an algorithm derived from it."""


def flatten(values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """Keys by flat name, from groups such as those of config.json, or flat already.

    ConfigError for a key that is given twice.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        part = {name: value}
        if name in GROUPS and isinstance(value, Mapping):
            part = {FLAT_NAMES.get((name, str(key)), str(key)): each
                    for key, each in value.items()}
        for key in part:
            if key in flat:
                raise ConfigError(f"{source}: {key!r} is given twice; leave one out")
        flat |= part
    return flat


def of_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flat `values` of a file; for the whole config of a run, with those that it lacks."""
    if not all(name in values for name in CORE):
        return dict(values)
    whole = {**_OLDER, **values}
    if values.keys() >= _OF_ACER:
        whole.setdefault("bounds_coef", 0.0)
    if values.get("runtime") in ("hogwild", "ray") and "envs_per_worker" not in values:
        # `num_envs` was of each worker.
        whole |= {"num_envs": 0, "envs_per_worker": values["num_envs"]}
    return whole
