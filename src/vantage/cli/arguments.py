"""From words to a call: tyro reads a command's own options and writes help; all else are config keys by name."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial, wraps
from inspect import signature
from itertools import dropwhile, takewhile
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import tyro
from typing_extensions import Doc
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vantage.config import GROUPS, Config, flatten
from vantage.consistency import check_flags
from vantage.errors import ConfigError
from vantage.keys import read_json_object, suggestion, typed
from vantage.presets import configure, defaults

Algo = Annotated[str | None, Doc("a2c, ppo, a3c, a3g, acer, a preset (`vantage list`) or module:Class"),
                 arg(metavar="ALGO")]
Env = Annotated[str | None, Doc("Gymnasium id, short Atari name (Pong), or module:Class"), arg(metavar="ENV")]
File = Annotated[str | None, Doc("JSON file of config keys; flags override it"), arg(metavar="FILE.json")]

_REGISTRY = ConstructorRegistry()


@dataclass(frozen=True)
class ByAlgorithm:
    """What a command takes whose first word is an algorithm, beside config keys and options of its own."""

    algo: Positional[Algo] = None
    env: Env = None
    runtime: Annotated[str | None, Doc("none: the algorithm's own"), arg(metavar="sync|hogwild")] = None
    config: File = None
    from_search: Annotated[str | None, Doc("start from the best trial of this search"), arg(metavar="DIR")] = None


@dataclass(frozen=True)
class ByEnvironment:
    """What a command takes whose first word is an environment."""

    env: Positional[Env] = None
    algo: Algo = "a2c"
    config: File = None


@dataclass(frozen=True)
class Settings:
    """What a command line chooses: an algorithm, an environment and values of config keys."""

    algo: str
    env: str
    values: Mapping[str, Any]
    note: str = ""
    """Where values come from that the command line does not contain."""
    flags: Collection[str] = ()
    """Keys that are flags of the command line."""

    def config(self) -> Config:
        """The defaults of the algorithm on the environment, overridden by the values."""
        config = configure(self.algo, env=self.env, **self.values)
        check_flags(config, self.flags)
        return config


def read(command: Callable[..., Any], argv: Sequence[str], prog: str) -> Callable[[], int | None]:
    """The call of `command` that `argv` stands for; ConfigError for bad input, SystemExit after --help."""
    text = (command.__doc__ or "").partition("\n")[0]
    if "settings" in signature(command).parameters:
        return _read_settings(command, argv, prog, text)
    (words, options), unknown = _parse(_arguments_of(command), argv, prog, text)
    for word in unknown:
        raise _unexpected(word, signature(command).parameters, prog)
    return partial(command, *words, **options)


def _read_settings(command: Callable[..., Any], argv: Sequence[str], prog: str, text: str) -> Callable[[], int | None]:
    """`read` for a command whose first parameter is its settings; all but its own options are config keys."""
    kind: type[ByAlgorithm | ByEnvironment] = ByEnvironment if command.__name__ in ("preview", "play") else ByAlgorithm
    own = _arguments_of(partial(command, None))
    options: dict[str, Any] = {}
    rest = [word for word in argv if word not in ("-h", "--help")]
    if not (wants_help := len(rest) < len(argv)):
        (_, options), rest = _parse(own, argv, prog, text)
    words, flags = _split(rest)
    first, *_ = choices = [f.name for f in fields(kind)]
    if words:
        flags[first] = words[0]
    settings = _settings(**{"algo": kind.algo or ""} | {name: flags.pop(name) for name in choices if name in flags})
    shown = configure(settings.algo or "a2c", env=settings.env or "CartPole-v1", **settings.values)
    if wants_help:
        groups = [(name, Annotated[_group(getattr(shown, name)), FlagConversionOff]) for name in GROUPS]
        others = [("choice", Annotated[object, arg(constructor=kind, name="")]),
                  ("own", Annotated[object, arg(constructor=own, name="")])]
        _parse(make_dataclass("Arguments", [*others, *groups]), ["--help"], prog,
               f"{text} Defaults are those of {shown.algo} on {shown.env.id}.")
    keys = shown.flat_keys()
    for word in [*(f"--{name}" for name in flags if name not in keys), *words[1:]]:
        if word[2:] in Config.every_key():
            raise ConfigError(shown.why_unknown(word[2:]))
        raise _unexpected(word, [*keys, *choices, *signature(own).parameters], prog)
    if not settings.algo:
        raise ConfigError("which algorithm? Give a2c, ppo, a3c, a3g, acer or a preset, or --from-search DIR")
    if not settings.env:
        example = "--env Pong" if kind is ByAlgorithm else f"{prog} Pong"
        raise ConfigError(f"which environment? Give a Gymnasium id or an Atari game, for example {example}")
    values = {**settings.values, **flags}
    resolved = configure(settings.algo, env=settings.env, **values).flat()
    values = {name: resolved[name] for name in values}
    note = settings.note or f"defaults: {defaults(settings.algo, settings.env, resolved['atari_protocol']).source}"
    return partial(command, Settings(settings.algo, settings.env, values, note, flags), **options)


def _settings(algo: str, env: str = "", runtime: str | None = None, config: str | None = None,
              from_search: str | None = None) -> Settings:
    """The settings without the flags that are config keys."""
    values: dict[str, Any] = {}
    note = ""
    if from_search is not None:
        from vantage.tools.search.command import read_best

        values, trial = read_best(Path(from_search))
        note = f"config: {trial}"
        for name, word in (("algo", algo), ("env", env)):
            if word not in ("", values[name]):
                raise ConfigError(f"--from-search {from_search} is of {name}={values[name]}, not {word}; leave one out")
        algo, env = values.pop("algo"), values.pop("env")
    if config is not None:
        try:
            keys = flatten(read_json_object(Path(config).read_text(encoding="utf-8-sig"), source=config))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {config}: {getattr(error, 'strerror', None) or error}; give a "
                              "JSON file") from None
        env_of_file = keys.pop("env", "")
        env = env or env_of_file
        keys.pop("algo", None)
        configure(algo or "a2c", env=env or "CartPole-v1").override(keys, source=config)
        values |= keys
    if runtime is not None:
        values["runtime"] = runtime
    return Settings(algo, env, values, note)


def _split(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Positional words, and flags by key with their values; "true" for a switch without one."""
    switches = {name: bool in (get_args(key.hint) or (key.hint,)) for name, key in Config.every_key().items()}
    flags: dict[str, str] = {}
    positional, words = [], deque(argv)
    while words:
        word = words.popleft()
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_")
        following = words[0] if words else "--"
        if not word.startswith("--"):
            positional.append(word)
        elif equals:
            flags[name] = value
        elif name.startswith("no_"):
            flags[name[3:]] = "false"
        elif following.lower() in ("true", "false", "none") if switches.get(name) else not following.startswith("--"):
            flags[name] = words.popleft()
        elif switches.get(name) is False:
            raise ConfigError(f"{flag} needs a value")
        else:
            flags[name] = "true"
    return positional, flags


def _unexpected(word: str, names: Iterable[str], prog: str) -> ConfigError:
    """The error for a word that is no argument of the command, whose options have these `names`."""
    if not word.startswith("-"):
        return ConfigError(f"unexpected argument {word!r}; options begin with --; see {prog} --help")
    flag = word.partition("=")[0].replace("_", "-")
    hint = suggestion(flag.lstrip("-").replace("-", "_"), names, flags=True)
    return ConfigError(f"unknown argument {flag!r}{hint}; see {prog} --help")


def _group(part: Any) -> type:
    """The keys of one group of a config as a class without checks, whose defaults are their values in `part`."""
    hints = get_type_hints(type(part))
    kind = make_dataclass(type(part).__name__, [
        (f.name, Annotated[hints[f.name], arg(metavar="|".join(f.metadata.get("choices", ())) or None)],
         field(default=getattr(part, f.name), metadata=f.metadata)) for f in fields(part) if f.name != "id"])
    kind.__doc__ = (type(part).__doc__ or "").partition("\n")[0]
    return kind


def _arguments_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of `command` that returns its positional and keyword arguments."""
    return wraps(command)(lambda *words, **options: (words, options))


def _parse(kind: Any, argv: Sequence[str], prog: str, description: str) -> tuple[Any, list[str]]:
    """What tyro makes of `argv` for a function or class, and the words that it does not know."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            return tyro.cli(kind, args=argv, prog=prog, description=description, return_unknown_args=True,
                            config=(OmitArgPrefixes, FlagCreatePairsOff), registry=_REGISTRY)
    except SystemExit as exit:
        if not exit.code:
            raise
        raise ConfigError(f"{_message(errors.getvalue())}; see {prog} --help") from None


def _message(text: str) -> str:
    """The message in tyro's box, which has a title, the message, a rule and hints."""
    rows = [re.sub("[│╭╮╰╯─]|-{5,}", " ", row).strip() for row in text.splitlines()[1:]]
    message = " ".join(takewhile(bool, dropwhile(lambda row: not row, rows)))
    message = re.sub(r"Missing value for argument '(.*?)'.*", r"\1 needs a value", message)
    return message.removeprefix("Error parsing ").rstrip(".")


@_REGISTRY.primitive_rule
def _values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers as people write them, none, true and false."""
    kinds = [kind for kind in get_args(info.type) or (info.type,) if kind is not NoneType]
    if not kinds or info.type_origin is list or not set(kinds) <= {bool, int, float, str}:
        return None
    return PrimitiveConstructorSpec(
        nargs=1, metavar="true|false" if bool in kinds else kinds[0].__name__.upper(), is_instance=lambda _: True,
        instance_from_str=lambda words: typed(words[0], info.type),
        str_from_instance=lambda value: [str(value).lower() if isinstance(value, bool | None) else str(value)])
