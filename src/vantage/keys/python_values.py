"""Values of keys that Python users give as objects: torch's optimizers, activations, None, dicts.

Classes that run as code of the user's own, such as a network, are in `objects`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from numbers import Integral
from os import PathLike
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.objects import ObjectName
from vantage.keys.stages import text_of

_PLAIN = (str, Integral, PathLike, Mapping, list, tuple, Enum, type(None))


def config_value(name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    """The value of the key `name` for an object, such as "adamw" for `torch.optim.AdamW`.

    ConfigError for any other object, except for keys that take code. `rules` are those of `key`.
    """
    if name == "env_kwargs" and isinstance(value, Mapping):
        return _json_of(name, value)
    if name in ("env_kwargs", "reset_options") and value is None:
        return "{}"
    if name in ("device", "precision") and type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if name == "demonstrations" and isinstance(value, list | tuple):
        return ObjectName(f"<{len(value)} episodes>", value)
    if name == "reset_options" and not isinstance(value, str | None):
        return text_of(value, name=name)
    if name == "hidden" and isinstance(value, Mapping):
        raise ConfigError(f"hidden is a mapping of {', '.join(map(str, value))}; policy and critic "
                          "have layers of the same sizes: give a list such as 64,64, and "
                          "separate=True for a network each")
    if name == "network" and isinstance(value, Mapping):
        raise ConfigError(f"network is a mapping of {', '.join(map(str, value))}; one network "
                          "serves every image of a Dict, or every vector if it has no image: give "
                          "a class or a function, which is called with the shape of each")
    if name == "init_from" and hasattr(value, "run"):  # an agent, or a trainer and its agent
        agent = "agent" if hasattr(value, "act") else "trainer.agent"
        raise ConfigError(f"init_from is {value!r:.80}; write its weights to a file by "
                          f"{agent}.save(\"policy.safetensors\") and give the file, or give a run "
                          "directory")
    if value is None and "none" in rules.get("choices", ()):
        return "none"
    if isinstance(value, bool | None) and rules.get("choices"):
        return str(value)  # no choice has this name, so the error lists them
    if isinstance(value, _PLAIN) or hasattr(value, "__float__") or rules.get("open"):
        return value
    title = getattr(value, "__name__", type(value).__name__)
    if name == "optimizer":
        return _optimizer_name(value, title)
    if name == "activation":
        return _activation_name(value, title, rules["choices"])
    raise ConfigError(f"{name} is the {type(value).__name__} {title}, and a config holds text and "
                      "numbers; give a value as `vantage train ALGO --help-all` explains it")


def _optimizer_name(value: Any, title: str) -> str:
    if isinstance(value, type) and value.__module__.startswith("torch.optim"):
        return {"Adam": "adam", "RMSprop": "rmsprop"}.get(title, title)
    raise ConfigError(f"optimizer is a {title}; give a name such as adam, or a class of "
                      "torch.optim such as torch.optim.AdamW, without arguments")


def _activation_name(value: Any, title: str, choices: tuple[str, ...]) -> str:
    """A function or class of torch by its name; a module if its arguments are the defaults."""
    is_default = repr(value).startswith(("ReLU(", "Tanh(", "SiLU(", "ELU(alpha=1.0"))
    is_torchs = str(getattr(value, "__module__", None) or "torch").startswith("torch")
    if title.lower() in choices and is_torchs and (is_default or hasattr(value, "__name__")):
        return title.lower()
    slope = ""
    if title in ("LeakyReLU", "leaky_relu"):
        slope = "; leaky_relu has slope 0.25 below 0"
    raise ConfigError(f"activation is {title}; give {', '.join(choices)}{slope}; for another, give "
                      "a network of your own as network")


def _json_of(name: str, values: Mapping[Any, Any]) -> str:
    """The key `name` as JSON; ConfigError names the argument that JSON cannot hold."""
    for key, value in values.items():
        try:
            json.dumps({key: value}, default=_plain_number)
        except (TypeError, ValueError):
            remedy = "give numbers, texts, lists and mappings"
            if hasattr(value, "tolist"):
                remedy = "give a list, as its tolist() returns"
            raise ConfigError(
                f"{name}[{key!r}] has a {type(value).__name__}, which the JSON of a config "
                f"cannot hold; {remedy}, and convert it in the environment") from None
    return json.dumps(dict(values), default=_plain_number)


def _plain_number(value: Any) -> Any:
    """The Python number for one of numpy or torch."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError
