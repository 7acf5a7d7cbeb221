"""What a search varies, how its trials are compared, and the config of each trial."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from optuna.trial import BaseTrial, FixedTrial

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import convert, nearest, read_json_object
from vantage.presets import configure
from vantage.tools.search.command import MOST, Options
from vantage.training import check

Value = str | int | float | bool | None
Params = Mapping[str, Value]
Choices = tuple[Value, ...]

UNSEARCHABLE = frozenset({
    "algo", "runtime", "env", "seed", "steps", "schedule_steps", "max_minutes", "eval_every", "eval_every_seconds",
    "eval_episodes", "env_kwargs", "atari_protocol", "action_subset", "frame_skip", "max_frames", "noop_max",
    "random_start", "fire_on_reset", "max_episode_steps"})
"""Keys that define how trials are compared."""

_MEANING = {"eval/mean_reward": "mean return of the last evaluation",
            "rollout/ep_rew_mean": "mean return of the last 100 training games"}


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both inclusive."""

    low: float
    high: float
    whole: bool
    log: bool = False
    step: float | None = None
    text: str = "{}"
    """Template of the config value; {} is the number: linear:{}:0 searches the start of a schedule."""

    def suggest(self, trial: BaseTrial, name: str) -> Value:
        """The value that Optuna chooses, rounded to five digits so that people can type it."""
        number: float
        if self.whole:
            number = trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        else:
            number = trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)
            number = min(self.high, max(self.low, float(f"{number:.5g}")))
        return number if self.text == "{}" else self.text.replace("{}", repr(number))


@dataclass(frozen=True, slots=True)
class Plan:
    """One search. `shared` are the config keys that all trials have in common. Equal definitions are one study."""

    algo: str
    env: str
    shared: Mapping[str, Any]
    base: Config
    domains: Mapping[str, Choices | Range]
    points: tuple[Params, ...] | None
    """The combinations of a grid, in order."""
    rungs: tuple[int, ...]
    """Agent steps at which trials are compared, multiples of `eval_every`; the last is all steps."""
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
        return f"{_MEANING[self.metric]} ({self.metric}){over}"

    def suggest(self, trial: BaseTrial) -> dict[str, Value]:
        """The config values of a trial; a FixedTrial repeats those of an earlier one."""
        return {name: domain.suggest(trial, name) if isinstance(domain, Range) else
                trial.suggest_categorical(name, domain) for name, domain in self.domains.items()}

    def config(self, values: Params, seed: int) -> Config:
        """The config of a trial's run."""
        # Searched keys may bring other defaults, which must not change how trials are compared.
        fixed = {"steps": self.base.run.steps, "eval_every": self.base.run.eval_every, "eval_every_seconds": 0,
                 "seed": seed}
        return configure(self.algo, env=self.env, **{**self.shared, **values, **fixed})

    def definition(self) -> dict[str, Any]:
        """The search as JSON."""
        domains = {name: asdict(domain) if isinstance(domain, Range) else {"values": domain}
                   for name, domain in self.domains.items()}
        definition = {"algo": self.algo, "env": self.base.env.id, "given": dict(sorted(self.shared.items())),
                      "steps": self.base.run.steps, "eval_every": self.base.run.eval_every,
                      "domains": domains, "points": self.points, "seeds": len(self.seeds), "rungs": self.rungs,
                      "sampler": None if self.points else "tpe", "objective": self.objective}
        return dict(json.loads(json.dumps(definition)))

    def representatives(self) -> Iterator[Params]:
        """Points that together have every choice and both ends of every range."""
        ends = {name: domain if isinstance(domain, tuple) else
                tuple(domain.suggest(FixedTrial({name: end}), name) for end in (domain.low, domain.high))
                for name, domain in self.domains.items()}
        first = {name: values[0] for name, values in ends.items()}
        varied = ({**first, name: value} for name, values in ends.items() for value in values)
        seen: set[tuple[str, Value]] = set()
        for point in varied if self.points is None else self.points:
            if not seen.issuperset(point.items()):
                seen.update(point.items())
                yield point


def make_plan(algo: str, env: str, shared: Mapping[str, Any], options: Options) -> Plan:
    """The plan of a search; ConfigError for what would keep it, or one of its trials, from the first step."""
    if any(float(shared.get(key) or 0) > 0 for key in ("eval_every_seconds", "max_minutes")):
        raise ConfigError("trials are compared at equal steps, without eval_every_seconds and max_minutes; leave them "
                          "out and give --eval-every and --steps")
    base = configure(algo, env=env, **{**shared, "eval_every_seconds": 0})
    check(base)
    path, pruner = options.grid or options.space or "", options.pruner or ("asha" if options.space else "none")
    steps, unit, reduction = base.run.steps, max(1, base.run.eval_every), options.reduction or 3
    rungs, rung = list[int](), math.ceil(max(1, steps // reduction**2) / unit) * unit
    while pruner == "asha" and rung < steps and (not rungs or 2 * rung <= steps):  # near the end pruning saves little
        rungs.append(rung)
        rung *= reduction
    if not rungs and (options.pruner == "asha" or options.reduction):
        raise ConfigError(f"--pruner asha and --reduction have no effect: trials of {steps:,} steps are first compared "
                          "at their end; leave them out, or give --pruner asha, a smaller --eval-every or more --steps")
    try:
        domains, points = _read(Path(path), is_grid=options.grid is not None)
        if both := domains.keys() & shared.keys():
            raise ConfigError(f"{', '.join(both)}: both given and searched; leave it out of one")
        plan = Plan(algo, env, shared, base, domains, points, (*rungs, steps), reduction,
                    tuple(range(base.run.seed, base.run.seed + options.seeds)))
        for point in plan.representatives():
            check(plan.config(point, base.run.seed))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {str(error).removeprefix('configure: ')}") from None
    return plan


def _read(path: Path, *, is_grid: bool) -> tuple[Mapping[str, Choices | Range], tuple[Params, ...] | None]:
    """The domains in a file and the points of a grid: the product of its lists; an object's lists vary together."""
    # Windows writes a byte-order mark.
    parts = read_json_object(path.read_text(encoding="utf-8-sig", errors="replace"), source="the file")
    if not parts:
        raise ConfigError('it names no key to search; write for example {"lr": [1e-3, 7e-4]}')
    keys = Config.every_key()
    groups = (part if is_grid and isinstance(part, dict) else (name,) for name, part in parts.items())
    for key in itertools.chain.from_iterable(groups):
        if key in UNSEARCHABLE:
            raise ConfigError(f"{key} cannot be searched, because trials are compared by the same games after the same "
                              f"steps; give it as the flag --{key.replace('_', '-')}")
        if key not in keys:
            raise ConfigError(f"unknown key {key!r}{nearest(key, keys)}")
    if not is_grid:
        return {key: _range(key, part) if isinstance(part, dict) else _choices(key, part)
                for key, part in parts.items()}, None
    axes = []
    for name, part in parts.items():
        lists = part if isinstance(part, dict) else {name: part}
        columns = [_choices(key, values) for key, values in lists.items()]
        if len({len(column) for column in columns}) != 1:
            raise ConfigError(f"the lists in {name!r} differ in length; give each as many values")
        axes.append([dict(zip(lists, row, strict=True)) for row in zip(*columns, strict=True)])
    if (count := math.prod(map(len, axes))) > MOST:
        raise ConfigError(f"{count:,} points are more than {MOST:,}; use --space")
    points = tuple({key: value for part in row for key, value in part.items()} for row in itertools.product(*axes))
    return {key: tuple(dict.fromkeys(point[key] for point in points)) for key in points[0]}, points


def _choices(key: str, values: Any) -> Choices:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{key} holds {json.dumps(values)}, which is no list of values")
    hint = Config.every_key()[key].hint
    return tuple(convert(key, value, hint, source=key) for value in values)


def _range(key: str, part: Mapping[str, Any]) -> Range:
    _, _, hint, rules = Config.every_key()[key]
    types = get_args(hint) or (hint,)
    try:
        numbers: dict[str, Any] = {name: float(part[name]) for name in ("low", "high", "step") if name in part}
        integers = all(number.is_integer() for number in numbers.values())
        whole = int in types or (str in types and not rules.get("schedule") and integers)
        words = {"text" if name == "as" else name: value for name, value in part.items() if name not in numbers}
        domain = Range(**numbers, **words, whole=whole)
        if not math.isfinite(domain.high - domain.low) or "{}" not in domain.text or (whole and not integers):
            raise ValueError('low and high must be finite, whole for a key that counts; "as" must hold {}')
        with warnings.catch_warnings(action="error", category=UserWarning):  # a step that does not reach `high`
            domain.suggest(FixedTrial({key: domain.low}), key)
    except (TypeError, ValueError, OverflowError, UserWarning) as error:
        raise ConfigError(f"{key} holds {json.dumps(part)}: {error}; write a list of choices, or a range such as "
                          '{"low": 1e-4, "high": 1e-2, "log": true}') from None
    return domain
