"""Checks of what a user's algorithm returns, where it is called: its loss and its estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.keys.metric_names import check_of_loss


def check_loss(result: Any, algo: str) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss [] and its metrics [] by name; numbers among the metrics become tensors.

    Raises ConfigError for anything else, and for the name of a metric that Vantage writes itself.
    """
    start = (f"the loss of algorithm={algo} must return a scalar tensor and a mapping of names to "
             "scalar tensors to log")
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise ConfigError(f"{start}, not {_in_words(result)}")
    loss, metrics = result
    if not isinstance(loss, Tensor) or loss.dim():
        raise ConfigError(f"{start}; the first of its results is {_in_words(loss)}")
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"{start}; the second of its results is {_in_words(metrics)}")
    checked = {}
    for name, value in metrics.items():
        try:
            check_of_loss(name)
        except ConfigError as error:
            raise ConfigError(f"the loss of algorithm={algo}: {error}") from None
        if isinstance(value, int | float | np.number):
            value = torch.tensor(float(value))
        if not isinstance(value, Tensor) or value.dim():
            remedy = ": log its mean" if isinstance(value, Tensor) else ""
            raise ConfigError(f"{start}; {name!r} is {_in_words(value)}{remedy}")
        checked[name] = value
    return loss, checked


def check_estimate(result: Any, algo: str, *,
                   length: int, num_envs: int) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
    """Advantages and targets [T, B], and further tensors [T, B, ...] by name.

    Raises ConfigError for anything else.
    """
    start = (f"estimate of algorithm={algo} must return advantages and targets [T, B], here "
             f"{[length, num_envs]}, and may add a mapping of tensors [T, B, ...]")
    if not (isinstance(result, tuple | list) and len(result) in (2, 3)):
        raise ConfigError(f"{start}; it returns {_in_words(result)}")
    for name, value in zip(("advantages", "targets"), result, strict=False):
        if not isinstance(value, Tensor) or value.shape != (length, num_envs):
            raise ConfigError(f"{start}; its {name} are {_in_words(value)}")
    extra = result[2] if len(result) == 3 else {}
    if not isinstance(extra, Mapping):
        raise ConfigError(f"{start}; the third of its results is {_in_words(extra)}")
    for name, value in extra.items():
        if not isinstance(value, Tensor) or value.shape[:2] != (length, num_envs):
            raise ConfigError(f"{start}; {name!r} is {_in_words(value)}")
    return result[0], result[1], extra


def _in_words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"{len(value)} results"
    return f"{value!r:.40}"
