"""What a search varies, how its trials are compared, and the config of each trial."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from optuna.trial import BaseTrial, FixedTrial

from vantage.config.config import Config
from vantage.config.configure import with_defaults
from vantage.config.unknown_keys import where_keys_are
from vantage.errors import ConfigError
from vantage.keys.fields import convert, read_json_object
from vantage.keys.schedules import Schedule
from vantage.keys.suggestions import suggestion
from vantage.keys.typed_values import in_text, kinds_of, plain
from vantage.runs.files import read_small
from vantage.runtimes.training import check
from vantage.tools.search.options import MOST, Options

Value = str | int | float | bool | None
Params = Mapping[str, Value]
Domain = list[Value] | Mapping[str, Any]
"""Choices, or a range as in the file: low, high (inclusive), and optionally log, step and as."""

UNSEARCHABLE = frozenset({
    "algo", "runtime", "env", "seed", "steps", "schedule_steps", "max_minutes", "eval_every",
    "eval_every_seconds", "eval_episodes", "eval_deterministic", "max_eval_share", "env_kwargs",
    "reset_options", "atari_protocol", "action_subset", "frame_skip", "max_frames", "noop_max",
    "random_start", "fire_on_reset", "max_episode_steps", "return_window"})
"""Keys that define how trials are compared."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One search. Equal definitions are one study."""

    algo: str
    env: str
    shared: Mapping[str, Any]
    """The config keys that all trials have in common."""
    base: Config
    domains: Mapping[str, Domain]
    points: list[Params] | None
    """The combinations of a grid, in order."""
    rungs: tuple[int, ...]
    """Agent steps at which trials are compared, multiples of `eval_every`; the last is all
    steps."""
    reduction: int
    seeds: tuple[int, ...]

    @property
    def metric(self) -> str:
        """The metric that trials are compared by."""
        return "eval/mean_reward" if self.base.run.eval_every > 0 else "rollout/ep_rew_mean"

    @property
    def objective(self) -> str:
        """The value of a trial, in words."""
        run = self.base.run
        games = f"the last {run.return_window} training games"
        if run.eval_every > 0:
            games = "the last evaluation"
        text = f"mean return of {games} ({self.metric})"
        if len(self.seeds) > 1:
            text += f", mean over {len(self.seeds)} seeds"
        return text

    def suggest(self, trial: BaseTrial) -> dict[str, Value]:
        """The config values of a trial; a FixedTrial repeats those of an earlier one."""
        return {name: _suggest(trial, name, domain, self.base)
                for name, domain in self.domains.items()}

    def config(self, values: Params, seed: int) -> Config:
        """The config of a trial with these values of the searched keys, for one of its seeds."""
        # Searched keys may bring other defaults, which must not change how trials are compared.
        fixed = {"steps": self.base.run.steps, "eval_every": self.base.run.eval_every,
                 "eval_every_seconds": 0, "seed": seed}
        return with_defaults(self.algo, env=self.env, **{**self.shared, **values, **fixed})

    def definition(self) -> dict[str, Any]:
        """What search.json holds; the same search has the same one."""
        definition = {
            "algo": self.algo,
            "env": self.base.env.id,
            "given": {name: plain(value) for name, value in sorted(self.shared.items())},
            "steps": self.base.run.steps,
            "eval_every": self.base.run.eval_every,
            "domains": self.domains,
            "points": self.points,
            "seeds": len(self.seeds),
            "rungs": self.rungs,
            "objective": self.objective,
        }
        return dict(json.loads(json.dumps(definition)))

    def representatives(self) -> Iterator[Params]:
        """Points that together have every choice and both ends of every range."""
        seen: set[tuple[str, Value]] = set()
        for point in self.points or self._ends():
            if not seen.issuperset(point.items()):
                seen.update(point.items())
                yield point

    def _ends(self) -> Iterator[Params]:
        """The first point of a space, and those that differ from it in one key."""
        ends: dict[str, list[Value]] = {}
        for name, domain in self.domains.items():
            if isinstance(domain, list):
                ends[name] = domain
            else:
                ends[name] = [_suggest(FixedTrial({name: domain[end]}), name, domain, self.base)
                              for end in ("low", "high")]
        first = {name: values[0] for name, values in ends.items()}
        for name, values in ends.items():
            for value in values:
                yield {**first, name: value}


def make_plan(algo: str, env: str, shared: Mapping[str, Any], options: Options) -> Plan:
    """The plan of a search; ConfigError for what would prevent one of its trials from starting."""
    for name in ("eval_every_seconds", "max_minutes"):
        if convert(name, shared.get(name) or 0, float) > 0:
            raise ConfigError("trials are compared at equal steps, without eval_every_seconds and "
                              "max_minutes; leave them out and give --eval-every and --steps")
    base = with_defaults(algo, env=env, **{**shared, "eval_every_seconds": 0})
    flat = base.flat()
    shared = {name: flat[name] for name in shared}
    check(base)
    reduction = options.reduction or 3
    rungs = _rungs(base, options, reduction)
    text = options.grid or options.space or ""
    is_inline = text.lstrip().startswith("{")
    source = str(Path(text))
    if is_inline:
        source = "grid" if options.grid else "space"
    try:
        if not is_inline:
            text = _read(Path(text))
        content = read_json_object(text, source="it" if is_inline else "the file")
        points = _grid(content, base) if options.grid is not None else None
        domains = _domains(content, points, base)
        both = domains.keys() & shared.keys()
        if both:
            raise ConfigError(f"{', '.join(both)}: both given and searched; leave it out of one")
        first_seed = base.run.seed
        seeds = tuple(range(first_seed, first_seed + options.seeds))
        plan = Plan(algo, env, shared, base, domains, points, rungs, reduction, seeds)
        for point in plan.representatives():
            check(plan.config(point, first_seed))
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}; give a JSON file") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return plan


def _read(path: Path) -> str:
    with path.open("rb") as file:  # Windows writes a byte-order mark
        return read_small(file, "the file").decode("utf-8-sig", errors="replace")


def _rungs(base: Config, options: Options, reduction: int) -> tuple[int, ...]:
    """Steps at which trials are compared; ConfigError for options of pruning without effect."""
    steps = base.run.steps
    default = "asha" if options.space else "none"
    if (options.pruner or default) == "none":
        rungs: tuple[int, ...] = (steps,)
    else:
        rungs = _halving_rungs(steps, max(1, base.run.eval_every), reduction)
    if len(rungs) == 1 and (options.pruner == "asha" or options.reduction):
        raise ConfigError(f"--pruner asha and --reduction have no effect: trials of {steps:,} "
                          "steps are first compared near their end; leave them out, or give "
                          "--pruner asha, a smaller --eval-every or more --steps")
    return rungs


def _halving_rungs(steps: int, unit: int, reduction: int) -> tuple[int, ...]:
    """`steps` / `reduction`² up to a multiple of `unit`, times `reduction` each, and `steps`."""
    rungs = []
    rung = math.ceil(max(1, steps // reduction**2) / unit) * unit
    while 2 * rung <= steps:  # near the end pruning saves little
        rungs.append(rung)
        rung *= reduction
    return (*rungs, steps)


def _domains(content: Mapping[str, Any], points: Sequence[Params] | None,
             base: Config) -> dict[str, Domain]:
    """The values of each searched key: those of the file, or of the `points` of a grid."""
    domains: dict[str, Domain] = {}
    if points is None:
        for name, part in content.items():
            domains[name] = _domain(name, part, base)
    else:
        for name in points[0]:
            domains[name] = list(dict.fromkeys(point[name] for point in points))
    if not domains:
        raise ConfigError('it names no key to search; write for example {"lr": [1e-3, 7e-4]}')
    return domains


def _grid(content: Mapping[str, Any], base: Config) -> list[Params]:
    """The points of a grid: the product of its lists; the lists in an object vary together."""
    axes: list[list[dict[str, Value]]] = []
    for name, part in content.items():
        lists = part if isinstance(part, dict) else {name: part}
        columns = [_choices(key, values, base) for key, values in lists.items()]
        if len({len(column) for column in columns}) != 1:
            raise ConfigError(f"the lists in {name!r} differ in length; give each as many values")
        axes.append([dict(zip(lists, row, strict=True)) for row in zip(*columns, strict=True)])
    count = math.prod(map(len, axes))
    if count > MOST:
        raise ConfigError(f"{count:,} points are more than {MOST:,}; use --space")
    points: list[Params] = []
    for parts in itertools.product(*axes):
        point: dict[str, Value] = {}
        for part in parts:
            point |= part
        points.append(point)
    return points


def _choices(key: str, values: Any, base: Config) -> list[Value]:
    """The list `values` in the type of the key."""
    hint = _searchable(key, base)
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{key} must be a list of values, not {json.dumps(values)}")
    choices = [convert(key, value, hint, source=key) for value in values]
    # Optuna stores text, numbers and None alone.
    texts = (Schedule, tuple, list, dict, Enum)
    return [in_text(value) if isinstance(value, texts) else value for value in choices]


def _domain(key: str, part: Any, base: Config) -> Domain:
    """The list or the range `part` of a space; ConfigError where Optuna cannot draw from it."""
    if not isinstance(part, dict):
        return _choices(key, part, base)
    try:
        if "{}" not in part.get("as", "{}"):
            raise ValueError('"as" must hold {}')
        # Optuna warns of a step that does not reach `high`.
        with warnings.catch_warnings(action="error", category=UserWarning):
            _suggest(FixedTrial({key: part.get("low")}), key, part, base)
    except (TypeError, ValueError, OverflowError, UserWarning) as error:
        raise ConfigError(f"{key} holds {json.dumps(part)}: {error}; write a list of choices, or a "
                          'range such as {"low": 1e-4, "high": 1e-2, "log": true}') from None
    return part


def _searchable(key: str, base: Config) -> Any:
    """The type of a key, also of a user's class; ConfigError if it cannot be searched."""
    keys = Config.every_key() | base.flat_keys()
    if key in UNSEARCHABLE:
        raise ConfigError(f"{key} cannot be searched, because trials are compared by the same "
                          "games after the same steps; give it as the flag "
                          f"--{key.replace('_', '-')}")
    if key not in keys:
        near = suggestion(key, keys) or where_keys_are(base)
        raise ConfigError(f"unknown key {key!r}{near}")
    return keys[key].hint


def _suggest(trial: BaseTrial, name: str, domain: Domain, base: Config) -> Value:
    """The value that Optuna chooses; numbers are rounded to five digits."""
    if isinstance(domain, list):
        return trial.suggest_categorical(name, domain)
    hint = _searchable(name, base)
    bounds = {key: value for key, value in domain.items() if key != "as"}
    number: float
    if float in kinds_of(hint):
        number = trial.suggest_float(name, **bounds)
        number = min(domain["high"], max(domain["low"], float(f"{number:.5g}")))
    else:
        number = trial.suggest_int(name, **bounds)
    if "as" not in domain:
        return number
    return str(domain["as"]).replace("{}", repr(number))
