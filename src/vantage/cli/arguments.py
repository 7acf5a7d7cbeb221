"""From the words of a command line to a call of the command's function. tyro reads all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import partial
from inspect import signature
from typing import Annotated, Any

from typing_extensions import Doc
from tyro.conf import Positional, arg

from vantage.cli.config_files import read_config, read_search
from vantage.cli.help import options, print_help
from vantage.cli.parsing import arguments_of, first_line, option_names, parse
from vantage.config.algorithms import ALGORITHMS, own_spelling
from vantage.config.config import Config, Key
from vantage.config.configure import defaults, with_defaults
from vantage.config.flag_checks import check_flags
from vantage.config.num_envs import merged
from vantage.config.presets.games import env_of_preset
from vantage.config.unknown_keys import check_known
from vantage.errors import ConfigError
from vantage.keys.objects import is_code
from vantage.keys.suggestions import MOST_UNKNOWN, listed, suggestion
from vantage.keys.typed_values import kinds_of

_NOT_GIVEN = "\0"
"""Stands for a flag that is absent; no argument of a process contains it."""


def _choice(metavar: str, without: str = "") -> Any:
    """How help names an argument, and `without`, what it prints for the default None."""
    def hint(default: str) -> str:
        return without if default == "none" else f"(default: {default})"

    return arg(metavar=metavar, help_behavior_hint=hint)


_ALGO = Doc(f"{', '.join(ALGORITHMS)}, a preset (`vantage list`) or module:Class")
Algo = Annotated[str | None, _ALGO, _choice("ALGO", "(required)")]
Env = Annotated[str | None, Doc("Gymnasium id, short Atari name (Pong), or module:Class"),
                _choice("ENV", "(required)")]
File = Annotated[str | None, Doc("JSON file of config keys; flags override it"),
                 _choice("FILE.json")]


@dataclass(frozen=True)
class ByAlgorithm:
    """Choices of a command whose first word is an algorithm, besides config keys and options."""

    algo: Positional[Algo] = None
    env: Env = None
    runtime: Annotated[str | None, Doc("which processes learn"),
                       _choice("sync|hogwild|ray", "(default: the algorithm's own)")] = None
    config: File = None
    from_search: Annotated[str | None, Doc("start from the best trial of this search"),
                           _choice("DIR")] = None


@dataclass(frozen=True)
class ByEnvironment:
    """Choices of a command whose first word is an environment."""

    env: Positional[Env] = None
    algo: Annotated[str | None, _ALGO, _choice("ALGO", "(default: a2c)")] = None
    config: File = None


@dataclass(frozen=True)
class Settings:
    """An algorithm, an environment and values of config keys, as a command line chooses them."""

    algo: str
    env: str
    values: Mapping[str, Any]
    note: str = ""
    """The source of values that the command line does not contain."""
    flags: Collection[str] = ()
    """Keys that are flags of the command line."""

    def config(self) -> Config:
        """The defaults of the algorithm on the environment, overridden by the values."""
        config = with_defaults(self.algo, env=self.env, **self.values)
        check_flags(config, self.flags)
        return config


@dataclass(frozen=True)
class _Line:
    """A command line by what its words are for."""

    choices: dict[str, str]
    """The fields of ByAlgorithm or ByEnvironment that were given."""
    keys: dict[str, str]
    """Config keys as text."""
    options: dict[str, Any]
    """Arguments of the command's function."""
    unknown: list[str]


def read(command: Callable[..., Any], argv: Sequence[str], prog: str) -> Callable[[], int | None]:
    """The call of `command` that `argv` describes.

    ConfigError for bad input, SystemExit after --help.
    """
    kind = chooser(command)
    if kind is not None:
        return _read_settings(command, kind, argv, prog)
    argv = ["--help" if word == "--help-all" else word for word in argv]
    (words, options), unknown = parse(arguments_of(command), argv, prog, first_line(command))
    for word in unknown:
        raise _unexpected(word, option_names(command), prog)
    return partial(command, *words, **options)


def chooser(command: Callable[..., Any]) -> type[ByAlgorithm | ByEnvironment] | None:
    """The class of a command's choices; None for a command without config keys."""
    if "settings" not in signature(command).parameters:
        return None
    return ByEnvironment if command.__name__ in ("preview", "play") else ByAlgorithm


def _read_settings(command: Callable[..., Any], kind: type[ByAlgorithm | ByEnvironment],
                   argv: Sequence[str], prog: str) -> Callable[[], int | None]:
    """`read` for a command whose first parameter is its settings."""
    own = arguments_of(partial(command, None))
    words = [word for word in argv if word not in ("-h", "--help", "--help-all")]
    wants_help = len(words) < len(argv)
    keys = Config.every_key()
    try:
        line = _parse(kind, own, keys, words, prog)
    except ConfigError:
        if not wants_help:
            raise
        # For help, required options may be missing.
        line = _parse(kind, arguments_of(lambda: None), keys, words, prog)
    settings = _settings(line.keys, **({"algo": ""} | line.choices))
    if kind is ByEnvironment and not settings.algo:
        settings = replace(settings, algo="a2c")
    names = [*keys, *(f.name for f in fields(kind)), *option_names(command)]
    has_own_class = is_code(settings.algo)
    if not wants_help and not has_own_class:
        _check_flags(line.unknown, names, prog)
    config = with_defaults(settings.algo or "a2c", env=settings.env or "CartPole-v1",
                           **settings.values)
    if has_own_class:  # its fields are flags too
        line = _parse(kind, own, keys | config.flat_keys(), words, prog)
    if wants_help:
        word = settings.algo or config.algo
        if kind is ByEnvironment:
            word = settings.env or config.env.id
        print_help(config, kind, own, prog, word, first_line(command),
                   everything="--help-all" in argv)
    _check_flags(line.unknown, [*names, *config.flat_keys()], prog)
    check_known(config, line.keys)
    _check_choices(settings, line.unknown, kind, prog)
    return partial(command, _typed(settings, line.keys), **line.options)


def _check_choices(settings: Settings, unknown: Sequence[str],
                   kind: type[ByAlgorithm | ByEnvironment], prog: str) -> None:
    """ConfigError for a word too many, and for a missing algorithm or environment."""
    for word in unknown:
        if kind is ByAlgorithm and not settings.env:
            raise ConfigError(f"unexpected argument {word!r}; if it is the environment, give "
                              f"--env {word}")
        raise _unexpected(word, (), prog)
    if not settings.algo:
        raise ConfigError(f"which algorithm? Give {', '.join(ALGORITHMS)} or a preset, "
                          "--from-search DIR, or a --config file that names it")
    if not settings.env:
        example = "--env Pong" if kind is ByAlgorithm else f"{prog} Pong"
        raise ConfigError("which environment? Give a Gymnasium id or an Atari game, for example "
                          f"{example}")


def _parse(kind: type[ByAlgorithm | ByEnvironment], own: Callable[..., Any],
           keys: Mapping[str, Key], argv: Sequence[str], prog: str) -> _Line:
    """`argv` as tyro reads it: the choices of `kind`, the options of `own`, and `keys` as text."""
    choices = [f.name for f in fields(kind)]
    first = choices[0]
    # `--algo a2c` is another way to write the positional argument.
    flags = [first, *(name for name in keys if name not in choices)]
    texts = make_dataclass("Keys", [(name, str, field(default=_NOT_GIVEN)) for name in flags])
    arguments = make_dataclass("Arguments", [*options(kind, own), ("keys", texts)])
    parsed, unknown = parse(arguments, _with_values(argv, keys), prog, "")
    chosen = {name: value for name, value in vars(parsed.choice).items() if value is not None}
    given = {name: value for name, value in vars(parsed.keys).items() if value != _NOT_GIVEN}
    flag = given.pop(first, None)
    if flag is not None:
        if first in chosen:
            raise ConfigError(f"{first} is given twice: {chosen[first]!r} and --{first} {flag}; "
                              "leave one out")
        chosen[first] = flag
    return _Line(chosen, given, parsed.own[1], unknown)


def _with_values(argv: Sequence[str], keys: Mapping[str, Key]) -> list[str]:
    """`argv` with the values of switches: --lock is --lock=true, --no-lock is --lock=false."""
    switches = {name for name, key in keys.items() if bool in kinds_of(key.hint)}
    words = []
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name = word[2:].replace("-", "_") if word.startswith("--") else ""
        if name in switches and following.lower() not in ("true", "false", "none"):
            words.append(f"{word}=true")
        elif name.startswith("no_") and name[3:] in switches:
            words.append(f"--{name[3:]}=false")
        else:
            words.append(word)
    return words


def _check_flags(words: Iterable[str], names: Iterable[str], prog: str) -> None:
    """ConfigError for the flags among words, which the command does not know."""
    flags = [word for word in words if word.startswith("-")]
    if flags:
        known = [*names]
        hints = [_unknown_flag(flag, known) for flag in flags[:MOST_UNKNOWN]]
        raise ConfigError(f"{listed(hints, len(flags))}; see {prog} --help")


def _typed(settings: Settings, keys: Mapping[str, str]) -> Settings:
    """The settings with the `keys` of the command line, all values in the types of their keys."""
    values = merged(settings.values, keys)
    if str(values.get("eval_every")) == "-1":  # its default, on which max_eval_share depends
        del values["eval_every"]
    resolved = with_defaults(settings.algo, env=settings.env, **values).flat()
    typed = {name: resolved[name] for name in values}
    chosen = defaults(settings.algo, settings.env, resolved["atari_protocol"], resolved["runtime"])
    note = settings.note or f"defaults: {chosen.source}"
    return Settings(settings.algo, settings.env, typed, note, keys)


def _settings(flags: Collection[str], algo: str, env: str = "", runtime: str | None = None,
              config: str | None = None, from_search: str | None = None) -> Settings:
    """The settings of a command line and its files, without the `flags`, which override them."""
    values: dict[str, Any] = {}
    note = ""
    algo = own_spelling(algo)
    if from_search is not None:
        values, note = read_search(from_search, flags, algo, env)
        algo = values.pop("algo")
        env = values.pop("env")
    if config is not None:
        keys = read_config(config, flags, algo, env)
        algo_of_file = keys.pop("algo", None)
        env_of_file = keys.pop("env", None)
        algo = own_spelling(algo or str(algo_of_file or ""))
        env = env or str(env_of_file or "")
        chosen: dict[str, Any] = {"runtime": runtime} if algo and runtime is not None else {}
        shown = with_defaults(algo or "a2c", env=env or env_of_preset(algo) or "CartPole-v1",
                              **chosen)
        shown.override(keys, source=config)  # raises for a wrong key
        values |= keys
    if runtime is not None:
        values["runtime"] = runtime
    return Settings(algo, env or env_of_preset(algo), values, note)


def _unexpected(word: str, names: Iterable[str], prog: str) -> ConfigError:
    """The error for a word that is no argument of the command, whose options have these `names`."""
    if not word.startswith("-"):
        return ConfigError(f"unexpected argument {word!r}; options begin with --; see {prog} "
                           "--help")
    return ConfigError(f"{_unknown_flag(word, names)}; see {prog} --help")


def _unknown_flag(word: str, names: Iterable[str]) -> str:
    """Which flag a `word` is, and what it probably means."""
    flag = word.partition("=")[0].replace("_", "-")
    hint = suggestion(flag.lstrip("-").replace("-", "_"), names, flags=True)
    return f"unknown argument {flag!r}{hint}"
