"""The numbers of a training that may be set between its updates: their values now, and what they may be set to."""

from __future__ import annotations

from typing import Any

from vantage.config.checks import check_flags, check_together
from vantage.config.config import Config
from vantage.keys.fields import convert
from vantage.keys.schedules import Schedule


def value_now(config: Config, name: str, step: int) -> Any:
    """The value of the key `name` at `step`: that of its schedule, or as it is."""
    value = config.flat()[name]
    return config.at(name, step) if isinstance(value, Schedule | str) else value


def checked_values(config: Config, name: str, value: Any) -> dict[str, Any]:
    """`value` for the key `name`, converted to its type, as `Run.change` takes it.

    ConfigError for a value that is not allowed, alone or beside the others, or has no effect.
    """
    values = {name: convert(name, value, config.settable()[name].hint)}
    changed = config.change(**values)
    check_flags(changed, values)
    check_together(changed)
    return values
