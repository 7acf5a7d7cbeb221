"""From words to a call: tyro makes flags of a command's parameters and of the config classes in use."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import partial, wraps
from inspect import Parameter, signature
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
from vantage.keys import nearest, read_json_object, typed
from vantage.presets import configure, defaults

Algo = Annotated[str | None, Doc("a2c, ppo, a3c, a3g, acer, a preset (`vantage list`) or module:Class"),
                 arg(metavar="ALGO")]
Env = Annotated[str | None, Doc("Gymnasium id, short Atari name (Pong), or module:Class"), arg(metavar="ENV")]
File = Annotated[str | None, Doc("JSON file of config keys; flags override it"), arg(metavar="FILE.json")]
Runtime = Annotated[str | None, Doc("none: the algorithm's own"), arg(metavar="sync|hogwild")]
Search = Annotated[str | None, Doc("start from the best trial of this search"), arg(metavar="DIR")]

_REGISTRY = ConstructorRegistry()


@dataclass(frozen=True)
class Settings:
    """What a command line chooses: an algorithm, an environment and values of config keys."""

    algo: str
    env: str
    values: Mapping[str, Any]
    source: str = ""
    """The trial of a search that values come from."""
    flags: Collection[str] = ()
    """Keys that are flags of the command line."""

    def config(self) -> Config:
        """The defaults of the algorithm on the environment, overridden by the values."""
        config = configure(self.algo, env=self.env, **self.values)
        check_flags(config, self.flags)
        return config

    def note(self) -> str:
        """Where values come from that the command line does not contain."""
        if self.source:
            return f"config: {self.source}"
        return f"defaults: {defaults(self.algo, self.env, str(self.values.get('atari_protocol', 'auto'))).source}"


def by_algorithm(algo: Positional[Algo] = None, /, *, env: Env = None, runtime: Runtime = None, config: File = None,
                 from_search: Search = None) -> Settings:
    """The settings of a command whose first word is an algorithm, without its config keys."""
    values: dict[str, Any] = {}
    source = ""
    if from_search is not None:
        from vantage.tools.search.command import read_best

        values, source = read_best(Path(from_search))
        for name, word in (("algo", algo), ("env", env)):
            if word not in (None, values[name]):
                raise ConfigError(f"--from-search {from_search} is of {name}={values[name]}, not {word}; leave one out")
        algo, env = values.pop("algo"), values.pop("env")
    if config is not None:
        try:
            keys = flatten(read_json_object(Path(config).read_text(encoding="utf-8-sig"), source=config))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {config}: {getattr(error, 'strerror', None) or error}; give a "
                              "JSON file") from None
        env_of_file = keys.pop("env", None)
        env = env or env_of_file
        keys.pop("algo", None)
        typed_keys = configure(algo or "a2c", env=env or "CartPole-v1").override(keys, source=config).flat()
        values |= {name: typed_keys[name] for name in keys}
    if runtime is not None:
        values["runtime"] = runtime
    return Settings(algo or "", env or "", values, source)


def by_environment(env: Positional[Env] = None, /, *, algo: Algo = "a2c", config: File = None) -> Settings:
    """The settings of a command whose first word is an environment, without its config keys."""
    return by_algorithm(algo, env=env, config=config)


def read(command: Callable[..., Any], argv: Sequence[str], prog: str) -> Callable[[], int | None]:
    """The call of `command` that `argv` stands for; ConfigError for bad input, SystemExit after --help."""
    text = (command.__doc__ or "").partition("\n")[0]
    parameters = signature(command).parameters
    if "settings" not in parameters:
        words, options = _parse(argv, prog, text, command).command
        return partial(command, *words, **options)
    choose: Callable[..., Settings] = by_environment if command.__name__ in ("preview", "play") else by_algorithm
    plain = {"h", "help", *(name for name, parameter in parameters.items() if parameter.default is False)}
    words, flags, _ = _attach(argv, plain, "a2c")
    settings = choose(*words[:1], **{name: flags[name] for name, parameter in signature(choose).parameters.items()
                                     if name in flags and parameter.kind is Parameter.KEYWORD_ONLY})
    _, flags, argv = _attach(argv, plain, settings.algo if ":" in settings.algo else "a2c")
    shown = configure(settings.algo or "a2c", env=settings.env or "CartPole-v1", **settings.values)
    parsed = _parse(argv, prog, f"{text} Defaults are those of {shown.algo} on {shown.env.id}.",
                    partial(command, None), choose, shown)
    settings = parsed.settings
    if not settings.algo:
        raise ConfigError("which algorithm? Give a2c, ppo, a3c, a3g, acer or a preset, or --from-search DIR")
    if not settings.env:
        example = "--env Pong" if choose is by_algorithm else f"{prog} Pong"
        raise ConfigError(f"which environment? Give a Gymnasium id or an Atari game, for example {example}")
    keys = {key: value for group in GROUPS for key, value in vars(getattr(parsed, group)).items() if key in flags}
    return partial(command, replace(settings, values={**settings.values, **keys}, flags=keys), **parsed.command[1])


def _attach(argv: Sequence[str], plain: Collection[str], algo: str) -> tuple[list[str], dict[str, str], list[str]]:
    """Positional words, flags with their values, and both in order with `--flag value` as `--flag=value`.

    `plain` flags take no value. `--switch` is `--switch=true` for the keys that are true or false.
    """
    switches = {key for key, (hint, _) in Config.every_key(algo).items() if bool in (get_args(hint) or (hint,))}
    attached, words = [], deque(argv)
    while words:
        word = words.popleft()
        name = word.lstrip("-").replace("-", "_")
        value = words[0] if words else "-"
        if not word.startswith("-") or "=" in word or name in plain:
            pass
        elif name in switches:
            word += f"={words.popleft() if value.lower() in ('true', 'false', 'none') else 'true'}"
        elif name.startswith("no_") and name[3:] in switches:
            word = f"--{name[3:]}=false"
        elif not value.startswith("-") or re.match(r"-\.?\d", value):
            word += f"={words.popleft()}"
        attached.append(word)
    pairs = (word[2:].split("=", 1) for word in attached if word.startswith("--") and "=" in word)
    return ([word for word in attached if not word.startswith("-")],
            {name.replace("-", "_"): value for name, value in pairs}, attached)


def _group(part: Any) -> type:
    """The keys of one group of a config as a class without checks, whose defaults are their values in `part`."""
    hints = get_type_hints(type(part))
    kind = make_dataclass(type(part).__name__, [
        (f.name, Annotated[hints[f.name], arg(metavar="|".join(f.metadata.get("choices", ())) or None)],
         field(default=getattr(part, f.name), metadata=f.metadata)) for f in fields(part) if f.name != "id"])
    kind.__doc__ = (type(part).__doc__ or "").partition("\n")[0]
    return kind


def _parse(argv: Sequence[str], prog: str, description: str, command: Callable[..., Any],
           choose: Callable[..., Settings] | None = None, config: Config | None = None) -> Any:
    """The arguments of `command`, what `choose` returns, and the groups of `config` with their keys in `argv`."""
    functions: dict[str, Callable[..., Any]] = {"settings": choose} if choose is not None else {}
    functions["command"] = wraps(command)(lambda *words, **options: (words, options))
    groups: dict[str, Any] = {} if config is None else {name: _group(getattr(config, name)) for name in GROUPS}
    kind: Any = make_dataclass("Arguments", [
        *((name, Annotated[object, arg(constructor=function, name="")]) for name, function in functions.items()),
        *((name, Annotated[group, FlagConversionOff]) for name, group in groups.items())])
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            parsed, unknown = tyro.cli(
                kind, args=argv, prog=prog, description=description,
                return_unknown_args=True, config=(OmitArgPrefixes, FlagCreatePairsOff), registry=_REGISTRY)
    except SystemExit as exit:
        if not exit.code:
            raise
        raise ConfigError(f"{_message(errors.getvalue())}; see {prog} --help") from None
    if unknown:
        flag = unknown[0].partition("=")[0]
        name = flag.lstrip("-").replace("_", "-")
        if not flag.startswith("-"):
            example = ", for example --env Pong" if config is not None else ""
            raise ConfigError(f"unexpected argument {flag!r}; options begin with --{example}; see {prog} --help")
        if config is not None and flag.startswith("--") and (key := name.replace("-", "_")) in Config.every_key():
            raise ConfigError(config.why_unknown(key))
        names = [name for part in (*functions.values(), *groups.values()) for name in signature(part).parameters]
        hint = nearest(name, [name.replace("_", "-") for name in names]).replace("mean ", "mean --")
        raise ConfigError(f"unknown argument {flag!r}{hint}; see {prog} --help")
    return parsed


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
