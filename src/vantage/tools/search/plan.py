"""What a search varies, how its trials are compared, and the config of each trial."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import BaseTrial, FixedTrial

from vantage.config.config import Config
from vantage.config.configure import configure
from vantage.errors import ConfigError
from vantage.keys.fields import convert, in_text, kinds_of, plain, read_json_object, suggestion
from vantage.keys.schedules import Schedule
from vantage.runs.files import read_small
from vantage.runtimes.training import check
from vantage.tools.search.options import MOST, Options

Value = str | int | float | bool | None
Params = Mapping[str, Value]
Domain = list[Value] | Mapping[str, Any]
"""Choices, or a range as in the file: low and high, both inclusive, and perhaps log, step and
as."""

UNSEARCHABLE = frozenset({
    "algo", "runtime", "env", "seed", "steps", "schedule_steps", "max_minutes", "eval_every", "eval_every_seconds",
    "eval_episodes", "eval_deterministic", "max_eval_share", "env_kwargs", "atari_protocol",
    "action_subset", "frame_skip", "max_frames", "noop_max",
    "random_start", "fire_on_reset", "max_episode_steps", "return_window"})
"""Keys that define how trials are compared."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One search. `shared` are the config keys that all trials have in common.

    Equal definitions are one study.
    """

    algo: str
    env: str
    shared: Mapping[str, Any]
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
        over = f", mean over {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        run = self.base.run
        games = "the last evaluation" if run.eval_every > 0 else f"the last {run.return_window} training games"
        return f"mean return of {games} ({self.metric}){over}"

    def suggest(self, trial: BaseTrial) -> dict[str, Value]:
        """The config values of a trial; a FixedTrial repeats those of an earlier one."""
        return {name: _suggest(trial, name, domain, self.base)
                for name, domain in self.domains.items()}

    def config(self, values: Params, seed: int) -> Config:
        # Searched keys may bring other defaults, which must not change how trials are compared.
        fixed = {"steps": self.base.run.steps, "eval_every": self.base.run.eval_every,
                 "eval_every_seconds": 0, "seed": seed}
        return configure(self.algo, env=self.env, **{**self.shared, **values, **fixed})

    def definition(self) -> dict[str, Any]:
        given = {name: plain(value) for name, value in sorted(self.shared.items())}
        definition = {"algo": self.algo, "env": self.base.env.id, "given": given,
                      "steps": self.base.run.steps, "eval_every": self.base.run.eval_every,
                      "domains": self.domains, "points": self.points, "seeds": len(self.seeds),
                      "rungs": self.rungs, "objective": self.objective}
        return dict(json.loads(json.dumps(definition)))

    def representatives(self) -> Iterator[Params]:
        """Points that together have every choice and both ends of every range."""
        ends = {name: domain if isinstance(domain, list)
                else [_suggest(FixedTrial({name: domain[end]}), name, domain, self.base)
                      for end in ("low", "high")] for name, domain in self.domains.items()}
        first = {name: values[0] for name, values in ends.items()}
        seen: set[tuple[str, Value]] = set()
        for point in self.points or [{**first, name: value} for name, values in ends.items()
                                     for value in values]:
            if not seen.issuperset(point.items()):
                seen.update(point.items())
                yield point


def make_plan(algo: str, env: str, shared: Mapping[str, Any], options: Options) -> Plan:
    """The plan of a search; ConfigError for what would keep it, or one of its trials, from the first step."""
    for name in ("eval_every_seconds", "max_minutes"):
        if convert(name, shared.get(name) or 0, float) > 0:
            raise ConfigError("trials are compared at equal steps, without eval_every_seconds and "
                              "max_minutes; leave them out and give --eval-every and --steps")
    base = configure(algo, env=env, **{**shared, "eval_every_seconds": 0})
    flat = base.flat()
    shared = {name: flat[name] for name in shared}
    check(base)
    text, reduction = options.grid or options.space or "", options.reduction or 3
    inline = text.lstrip().startswith("{")
    source = ("grid" if options.grid else "space") if inline else str(Path(text))
    rungs: tuple[int, ...] = (base.run.steps,)
    if (options.pruner or ("asha" if options.space else "none")) == "asha":
        rungs = _rungs(base.run.steps, max(1, base.run.eval_every), reduction)
    if len(rungs) == 1 and (options.pruner == "asha" or options.reduction):
        raise ConfigError(f"--pruner asha and --reduction have no effect: trials of {rungs[0]:,} "
                          "steps are first compared near their end; leave them out, or give "
                          "--pruner asha, a smaller --eval-every or more --steps")
    try:
        # Windows writes a byte-order mark.
        text = text if inline else _read(Path(text))
        content = read_json_object(text, source="it" if inline else "the file")
        points = _grid(content, base) if options.grid is not None else None
        domains = ({name: _domain(name, part, base) for name, part in content.items()}
                   if points is None
                   else {name: list(dict.fromkeys(point[name] for point in points))
                         for name in points[0]})
        if not domains:
            raise ConfigError('it names no key to search; write for example {"lr": [1e-3, 7e-4]}')
        if both := domains.keys() & shared.keys():
            raise ConfigError(f"{', '.join(both)}: both given and searched; leave it out of one")
        plan = Plan(algo, env, shared, base, domains, points, rungs, reduction,
                    tuple(range(base.run.seed, base.run.seed + options.seeds)))
        for point in plan.representatives():
            check(plan.config(point, base.run.seed))
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}; give a JSON file") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return plan


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return read_small(file, "the file").decode("utf-8-sig", errors="replace")


def _rungs(steps: int, unit: int, reduction: int) -> tuple[int, ...]:
    """`steps` / `reduction`² up to a multiple of `unit`, `reduction` times as many and so on, and the end."""
    first = math.ceil(max(1, steps // reduction**2) / unit) * unit
    rungs = (first * reduction**power for power in itertools.count())
    # Near the end pruning saves little.
    return (*itertools.takewhile(lambda rung: 2 * rung <= steps, rungs), steps)


def _grid(content: Mapping[str, Any], base: Config) -> list[Params]:
    """The points of a grid: the product of its lists; the lists in an object vary together."""
    axes = []
    for name, part in content.items():
        lists = part if isinstance(part, dict) else {name: part}
        columns = [_choices(key, values, base) for key, values in lists.items()]
        if len({len(column) for column in columns}) != 1:
            raise ConfigError(f"the lists in {name!r} differ in length; give each as many values")
        axes.append([dict(zip(lists, row, strict=True)) for row in zip(*columns, strict=True)])
    if (count := math.prod(map(len, axes))) > MOST:
        raise ConfigError(f"{count:,} points are more than {MOST:,}; use --space")
    return [{key: value for part in row for key, value in part.items()}
            for row in itertools.product(*axes)]


def _choices(key: str, values: Any, base: Config) -> list[Value]:
    hint = _searchable(key, base)
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{key} holds {json.dumps(values)}, which is no list of values")
    choices = [convert(key, value, hint, source=key) for value in values]
    # Optuna stores text, numbers and None alone.
    return [in_text(value) if isinstance(value, Schedule | tuple) else value for value in choices]


def _domain(key: str, part: Any, base: Config) -> Domain:
    if not isinstance(part, dict):
        return _choices(key, part, base)
    try:
        if "{}" not in part.get("as", "{}"):
            raise ValueError('"as" must hold {}')
        # A step that does not reach `high`.
        with warnings.catch_warnings(action="error", category=UserWarning):
            _suggest(FixedTrial({key: part.get("low")}), key, part, base)
    except (TypeError, ValueError, OverflowError, UserWarning) as error:
        raise ConfigError(f"{key} holds {json.dumps(part)}: {error}; write a list of choices, or a "
                          "range such as " '{"low": 1e-4, "high": 1e-2, "log": true}') from None
    return part


def _searchable(key: str, base: Config) -> Any:
    """The type of a key, also of a class of the user's own; ConfigError if it cannot be searched."""
    keys = Config.every_key() | base.flat_keys()
    if key in UNSEARCHABLE:
        raise ConfigError(f"{key} cannot be searched, because trials are compared by the same "
                          "games after the same steps; give it as the flag "
                          f"--{key.replace('_', '-')}")
    if key not in keys:
        near = suggestion(key, keys) or "; `vantage train ALGO --help` shows the keys"
        raise ConfigError(f"unknown key {key!r}{near}")
    return keys[key].hint


def _suggest(trial: BaseTrial, name: str, domain: Domain, base: Config) -> Value:
    """The value that Optuna chooses; one of a range is rounded to five digits so that people can type it."""
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
    return str(domain["as"]).replace("{}", repr(number)) if "as" in domain else number
