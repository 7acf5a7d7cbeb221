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
from vantage.learning.adaptive_rate import adapted
from vantage.runtimes.progress import Progress


def value_now(config: Config, name: str, progress: Progress) -> Any:
    """The value of the key `name` for the next update: that of its schedule, or as it is."""
    value = config.flat()[name]
    step = progress.step
    rate = progress.learning_rate
    if isinstance(value, Schedule) and value.kind == KL and rate is not None:
        divergence = progress.divergence
        return rate if divergence is None else adapted(rate, divergence, value.values[0])
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
    keys = () if config is None else config.flat_keys()
    near = method_elsewhere("a trainer", name, [*attributes, *keys])
    return f"a trainer has no {name!r}{near}"
