"""Groups of config keys as instances for Python users, such as `vantage.PolicyConfig(...)`."""

from __future__ import annotations

from typing import Any

from vantage.config.algorithms import RUNTIMES
from vantage.config.run import RunConfig
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.envs.config import EnvConfig
from vantage.errors import ConfigError
from vantage.keys.given_fields import given_fields
from vantage.keys.other_libraries import POLICIES
from vantage.learning.config import CloningConfig, ExplorationConfig, OptimizerConfig
from vantage.models.config import PolicyConfig

Group = (EnvConfig | PolicyConfig | OptimizerConfig | ExplorationConfig | CloningConfig | Sync
         | Hogwild | Ray | RunConfig)


def keys_of(group: Group) -> dict[str, Any]:
    """The keys that were given to a group such as `PolicyConfig`.

    A runtime adds the key `runtime`. ConfigError for any other object.
    """
    if isinstance(group, str) and group in POLICIES:
        raise ConfigError(f"{group!r} is a policy of Stable-Baselines3; give {POLICIES[group]} "
                          "instead")
    if not isinstance(group, Group):
        raise ConfigError(f"{group!r:.80} is not a group of config keys; give for example "
                          "vantage.PolicyConfig(frame_stack=4), or a key by name: frame_stack=4")
    values = given_fields(group)
    if "id" in values:
        raise ConfigError(f"EnvConfig has id={values['id']!r}; give the environment as env, and "
                          "leave id out")
    for name, kind in RUNTIMES.items():
        if type(group) is kind:
            values["runtime"] = name
    return values
