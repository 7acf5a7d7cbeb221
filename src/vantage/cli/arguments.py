"""From words to a call: tyro reads a command's own options and writes help; all else are config keys by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, get_args

from typing_extensions import Doc
from tyro.conf import Positional, arg

from vantage.cli.help import print_help
from vantage.cli.parsing import arguments_of, first_line, option_names, parse
from vantage.config.checks import check_flags
from vantage.config.config import Config, flatten, of_run
from vantage.config.configure import configure, defaults
from vantage.errors import ConfigError
from vantage.keys.fields import read_json_object, suggestion
from vantage.runs.directory import meta_of
from vantage.runs.files import read_small
from vantage.runs.trust import SIGNATURE, check_code, connections, foreign_code, is_own


def _choice(metavar: str, without: str = "") -> Any:
    """How help names an argument and, if it is None by default, what that means."""
    return arg(metavar=metavar, help_behavior_hint=lambda default: without if default == "none" else
               f"(default: {default})")


Algo = Annotated[str | None, Doc("a2c, ppo, a3c, a3g, acer, a preset (`vantage list`) or module:Class"),
                 _choice("ALGO", "(required)")]
Env = Annotated[str | None, Doc("Gymnasium id, short Atari name (Pong), or module:Class"),
                _choice("ENV", "(required)")]
File = Annotated[str | None, Doc("JSON file of config keys; flags override it"), _choice("FILE.json")]


@dataclass(frozen=True)
class ByAlgorithm:
    """What a command takes whose first word is an algorithm, beside config keys and options of its own."""

    algo: Positional[Algo] = None
    env: Env = None
    runtime: Annotated[str | None, Doc("which processes learn"),
                       _choice("sync|hogwild|ray", "(default: the algorithm's own)")] = None
    config: File = None
    from_search: Annotated[str | None, Doc("start from the best trial of this search"), _choice("DIR")] = None


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
    text = first_line(command)
    if (kind := chooser(command)) is not None:
        return _read_settings(command, kind, argv, prog, text)
    argv = ["--help" if word == "--help-all" else word for word in argv]
    (words, options), unknown = parse(arguments_of(command), argv, prog, text)
    for word in unknown:
        raise _unexpected(word, option_names(command), prog)
    return partial(command, *words, **options)


def chooser(command: Callable[..., Any]) -> type[ByAlgorithm | ByEnvironment] | None:
    """How a command chooses algorithm and environment; None for one without config keys."""
    if "settings" not in signature(command).parameters:
        return None
    return ByEnvironment if command.__name__ in ("preview", "play") else ByAlgorithm


def _read_settings(command: Callable[..., Any], kind: type[ByAlgorithm | ByEnvironment], argv: Sequence[str], prog: str,
                   text: str) -> Callable[[], int | None]:
    """`read` for a command whose first parameter is its settings; all but its own options are config keys."""
    own = arguments_of(partial(command, None))
    rest = [word for word in argv if word not in ("-h", "--help", "--help-all")]
    wants_help = len(rest) < len(argv)
    options: dict[str, Any] = {}
    try:
        (_, options), rest = parse(own, rest, prog, text)
    except ConfigError:
        if not wants_help:  # help may be asked for without a required option
            raise
    words, flags = _split(rest)
    first, *_ = choices = [f.name for f in fields(kind)]
    names = [*Config.every_key(), *choices, *option_names(command)]
    for word in words if not wants_help else ():
        if word.startswith("-"):
            raise _unexpected(word, names, prog)
    if words:
        if first in flags:
            raise ConfigError(f"{first} is given twice: {words[0]!r} and --{first} {flags[first]}; leave one out")
        flags[first] = words[0]
    chosen = {"algo": ""} | {name: flags.pop(name) for name in choices if name in flags}
    settings = _settings(frozenset(flags), **chosen)
    settings = replace(settings, algo=settings.algo or kind.algo or "")
    shown = configure(settings.algo or "a2c", env=settings.env or "CartPole-v1", **settings.values)
    if wants_help:
        print_help(shown, kind, own, prog, getattr(settings, first) or {"algo": shown.algo, "env": shown.env.id}[first],
                   text, everything="--help-all" in argv)
    if unknown := [name for name in flags if name not in shown.flat_keys()]:
        raise _unknown_key(unknown[0], shown, names, argv, prog)
    if len(words) > 1 and kind is ByAlgorithm and not settings.env:
        raise ConfigError(f"unexpected argument {words[1]!r}; if it is the environment, give --env {words[1]}")
    for word in words[1:]:
        raise _unexpected(word, (), prog)
    if not settings.algo:
        raise ConfigError("which algorithm? Give a2c, ppo, a3c, a3g, acer or a preset, --from-search DIR, or a "
                          "--config file that names it")
    if not settings.env:
        example = "--env Pong" if kind is ByAlgorithm else f"{prog} Pong"
        raise ConfigError(f"which environment? Give a Gymnasium id or an Atari game, for example {example}")
    values = {**settings.values, **flags}
    if str(values.get("eval_every")) == "-1":  # its default, on which max_eval_share depends
        del values["eval_every"]
    resolved = configure(settings.algo, env=settings.env, **values).flat()
    values = {name: resolved[name] for name in values}
    source = defaults(settings.algo, settings.env, resolved["atari_protocol"], resolved["runtime"]).source
    note = settings.note or f"defaults: {source}"
    return partial(command, Settings(settings.algo, settings.env, values, note, flags), **options)


def _settings(flags: Collection[str], algo: str, env: str = "", runtime: str | None = None, config: str | None = None,
              from_search: str | None = None) -> Settings:
    """The settings without the `flags` that are config keys, which override those of files."""
    values: dict[str, Any] = {}
    note = ""
    if from_search is not None:
        from vantage.tools.search.command import read_best

        values, trial, own = read_best(Path(from_search))
        named = {*flags, *(name for name, word in (("algo", algo), ("env", env)) if word == values[name])}
        _check_code(values, named, source=from_search, trusted=own)
        note = f"config: {trial}"
        for name, word in (("algo", algo), ("env", env)):
            if word not in ("", values[name]):
                raise ConfigError(f"--from-search {from_search} is of {name}={values[name]}, not {word}; leave one out")
        algo, env = values.pop("algo"), values.pop("env")
        if "steps" in flags and isinstance(steps := values.get("steps"), int):
            for name, parts in (("save_every", 10), ("eval_every", 20)):  # shares of the trial's steps become theirs
                if values.get(name) == max(1, steps // parts):
                    del values[name]
    if config is not None:
        try:
            with Path(config).open("rb") as file:
                text = read_small(file, f"--config {config}").decode("utf-8-sig")
            keys = of_run(flatten(read_json_object(text, source=config), source=config))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {config!r}: {getattr(error, 'strerror', None) or error}; give a "
                              "JSON file") from None
        named = {*flags, *(name for name, word in (("algo", algo), ("env", env)) if word)}
        _check_code(keys, named, source=config, trusted=is_own(text, meta_of(Path(config).parent).get(SIGNATURE)))
        of_file = {name: str(keys.pop(name, None) or "") for name in ("algo", "env")}
        algo, env = algo or of_file["algo"], env or of_file["env"]
        chosen: dict[str, Any] = {"runtime": runtime} if algo and runtime is not None else {}
        configure(algo or "a2c", env=env or "CartPole-v1", **chosen).override(keys, source=config)
        values |= keys
    if runtime is not None:
        values["runtime"] = runtime
    return Settings(algo, env, values, note)


def _check_code(values: Mapping[str, Any], named: Collection[str], *, source: str, trusted: bool) -> None:
    """ConfigError where a file of someone else names code, or a cluster, and the command line has not `named` that."""
    values = {name: value for name, value in values.items() if name not in named}
    connects = [each for each in connections(values) if each.startswith("ray_address")]
    check_code(foreign_code(values), source=source, trusted=trusted, connects=connects, remedy="name it on the command "
               "line too, as ALGO or by --env, --network or --ray-address")


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
            choices = ", ".join(Config.every_key()[name].rules["choices"])
            raise ConfigError(f"{flag} needs a value{': ' * bool(choices)}{choices}")
        else:
            flags[name] = "true"
    return positional, flags


def _unknown_key(name: str, shown: Config, names: Iterable[str], argv: Sequence[str], prog: str) -> ConfigError:
    """The error for a flag of `argv` that is no key of `shown`."""
    if name in Config.every_key():
        return ConfigError(shown.why_unknown(name))
    negative = any(word.replace("_", "-") == f"--no-{name.replace('_', '-')}" for word in argv)
    return _unexpected(f"--{'no-' * negative}{name}", [*names, *shown.flat_keys()], prog)


def _unexpected(word: str, names: Iterable[str], prog: str) -> ConfigError:
    """The error for a word that is no argument of the command, whose options have these `names`."""
    if not word.startswith("-"):
        return ConfigError(f"unexpected argument {word!r}; options begin with --; see {prog} --help")
    flag = word.partition("=")[0].replace("_", "-")
    hint = suggestion(flag.lstrip("-").replace("-", "_"), names, flags=True)
    return ConfigError(f"unknown argument {flag!r}{hint}; see {prog} --help")
