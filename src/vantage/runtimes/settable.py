"""The numbers of a training that may be set between its updates, as attributes of `Trainer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vantage.config.checks import check_together
from vantage.config.config import Config
from vantage.config.flag_checks import check_flags
from vantage.keys.fields import convert
from vantage.keys.schedules import KL, Schedule
from vantage.keys.suggestions import method_elsewhere


def value_now(config: Config, name: str, step: int, rate: float | None) -> Any:
    """The value of the key `name` at `step`: that of its schedule, or as it is.

    `rate` is the learning rate of the last update, which one that follows the divergence has.
    """
    value = config.flat()[name]
    if isinstance(value, Schedule) and value.kind == KL and rate is not None:
        return rate
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


def why_unknown(name: str, attributes: Iterable[str], config: Config | None) -> str:
    """Why a trainer with the public `attributes` has no `name`, and what it has instead.

    `config` is that of the training, if there is one in this process.
    """
    if config is not None and name in config.flat_keys():
        return (f"{name} is fixed for the run: read trainer.config; what may change is "
                f"{', '.join(config.settable())}")
    return f"a trainer has no {name!r}{method_elsewhere('a trainer', name, attributes)}"
