"""From a parsed command line to a config."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vantage.config import FLAT_NAMES, Config
from vantage.consistency import check_flags
from vantage.errors import ConfigError
from vantage.keys import convert, nearest, read_json_object


def resolve(arguments: argparse.Namespace) -> tuple[Config, str]:
    """The config of the command line: defaults of the environment, then the config file, then flags; and its source."""
    from vantage.presets import configure, defaults

    algo, env, values = given(arguments)
    config = configure(algo, env=env, **values)
    check_flags(config, _flags(arguments))
    return config, defaults(algo, env, config.env.atari_protocol).source


def given(arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """Algorithm, environment, and the keys that the config file and flags name."""
    values: dict[str, Any] = {}
    if arguments.config:
        try:
            text = Path(arguments.config).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {arguments.config}: {error}") from None
        values = read_json_object(text, source=arguments.config)
    own = arguments.algo if ":" in (arguments.algo or "") else "a2c"
    hints = {key: hint for key, (hint, _) in Config.every_key(own).items()} | {"algo": str, "runtime": str}
    values = _flat(values)
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"{arguments.config}: unknown key {key!r}{nearest(key, hints)}")
        values[key] = convert(key, value, hints[key], source=arguments.config)
    for key, value in _flags(arguments).items():
        values[key] = convert(key, value, hints[key], source="--" + key.replace("_", "-"))
    values.pop("algo", None)
    env = arguments.env or convert("env", values.get("env", ""), str, source=str(arguments.config))
    if not env:
        raise ConfigError("which environment? Give --env, for example --env CartPole-v1 or --env Pong")
    values.pop("env", None)
    return arguments.algo, env, values


def resolve_search(arguments: argparse.Namespace) -> tuple[Config, str]:
    """The config of a search's best trial, which the config file and flags override; and its source."""
    from vantage.presets import configure
    from vantage.tools.search.command import read_best

    best, source = read_best(Path(arguments.from_search))
    for name, asked in (("algo", arguments.algo), ("env", arguments.env)):
        if asked not in (None, best[name]):
            raise ConfigError(f"--from-search {arguments.from_search} is of {name}={best[name]}, not {asked}; leave "
                              "one of them out")
    arguments.algo, arguments.env = best.pop("algo"), best.pop("env")
    algo, env, values = given(arguments)
    config = configure(algo, env=env, **{**best, **values})
    check_flags(config, _flags(arguments))
    return config, source


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """What flags give to keys, as typed."""
    return {name.removeprefix("key_"): value for name, value in vars(arguments).items() if name.startswith("key_")}


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Keys of a config file, which may be nested in groups as config.json is."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key in ("env", "policy", "algorithm", "optimizer", "runtime", "run"):
            flat |= {FLAT_NAMES.get((key, str(name)), str(name)): part for name, part in value.items()}
        else:
            flat[key] = value
    return flat
