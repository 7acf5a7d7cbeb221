"""Flat names of config keys, and what is read from files under them: groups as in config.json, and older runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vantage.errors import ConfigError

GROUPS = ("env", "policy", "algorithm", "optimizer", "runtime", "run")

FLAT_NAMES: Mapping[tuple[str, str], str] = {("env", "id"): "env", ("runtime", "kind"): "runtime"}
"""Flat names of keys, where they differ from those within their group."""

CORE = ("algo", "env", "steps", "seed", "num_envs", "network", "memory", "rollout_length", "lr")
"""Keys that the config.json of every run contains. Others may be newer than the run and then take defaults."""

_OLDER: Mapping[str, Any] = {"obs_as": "bytes", "one_hot": "vector", "torsos": "separate", "scale_actions": False,
                             "std_lr_scale": 1.0}
"""What runs did before these keys existed, where `configure` chooses something else: their config.json lacks them."""


def flatten(values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """Keys by flat name, from groups such as those of config.json or flat already. ConfigError for a key in two."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        part = {name: value}
        if name in GROUPS and isinstance(value, Mapping):
            part = {FLAT_NAMES.get((name, str(key)), str(key)): each for key, each in value.items()}
        if twice := [key for key in part if key in flat]:
            raise ConfigError(f"{source}: {twice[0]!r} is given twice; leave one out")
        flat |= part
    return flat


def of_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat `values` of a file; for a run's whole config.json, also what the run did where a key is newer than it."""
    if not all(name in values for name in CORE):
        return dict(values)
    whole = {**_OLDER, **values}
    if values.get("runtime") in ("hogwild", "ray") and "envs_per_worker" not in values:
        whole |= {"num_envs": 0, "envs_per_worker": values["num_envs"]}  # num_envs was of each worker
    return whole
