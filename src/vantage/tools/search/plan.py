"""What a search is: the keys it varies, what its trials are compared by and when. Two equal plans are one study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.presets import configure
from vantage.tools.search.space import Choices, Params, Space, Value, extremes

Sampler = Literal["tpe", "random"]
Pruner = Literal["asha", "none"]

DEFAULT_SAMPLER: Sampler = "tpe"
DEFAULT_REDUCTION = 3
MOST_SEEDS = 1_000

_MEANING = {"eval/mean_reward": "mean return of the last evaluation",
            "rollout/ep_rew_mean": "mean return of the last 100 training games"}


@dataclass(frozen=True, slots=True)
class Plan:
    """One search. `given` are the config keys that all trials share."""

    algo: str
    env: str
    given: Mapping[str, Any]
    space: Space
    seeds: int = 1
    sampler: Sampler = DEFAULT_SAMPLER
    pruner: Pruner = "asha"
    reduction: int = DEFAULT_REDUCTION
    min_steps: int | None = None
    """Agent steps of the first comparison; None: steps / reduction^2."""
    base: Config = field(init=False)
    """The config that trials change."""

    def __post_init__(self) -> None:
        if float(self.given.get("eval_every_seconds", 0)) > 0:
            raise ConfigError(f"eval_every_seconds={self.given['eval_every_seconds']}: trials are compared by "
                              "evaluations at the same steps, and by the clock those differ; leave it out, and give "
                              "--eval-every")
        base = configure(self.algo, env=self.env, **{**self.given, "eval_every_seconds": 0})
        object.__setattr__(self, "base", base)
        self._check_options()
        for name in self.space.domains:
            if name in self.given:
                raise ConfigError(f"{name} is both given and searched; leave it out of one")
        for point in extremes(self.space):
            try:
                self.config(point, base.seed)
            except ConfigError as error:
                raise self.space.refusal(point, error) from None

    def _check_options(self) -> None:
        base = self.base
        if base.max_minutes:
            raise ConfigError("max_minutes: trials are compared at equal steps; leave it out and give --steps")
        if base.eval_every > base.steps:
            raise ConfigError(f"eval_every={base.eval_every} is above steps={base.steps}, so that no trial would be "
                              "evaluated; give a smaller --eval-every, or 0 to compare by the training games")
        for name, value, least in (("--seeds", self.seeds, 1), ("--reduction", self.reduction, 2)):
            if value < least:
                raise ConfigError(f"{name} {value} is below {least}")
        if self.seeds > MOST_SEEDS:
            raise ConfigError(f"--seeds {self.seeds} is above {MOST_SEEDS:,}")
        if self.min_steps is not None and not 1 <= self.min_steps < base.steps:
            raise ConfigError(f"--min-steps {self.min_steps} is not from 1 to below the {base.steps:,} steps of a "
                              "trial; give fewer")
        most = next(key.metadata["high"] for key in fields(Config) if key.name == "seed")
        if base.seed + self.seeds - 1 > most:
            raise ConfigError(f"--seeds {self.seeds}: from --seed {base.seed} on they end above {most}; give a smaller "
                              "--seed")

    @property
    def metric(self) -> str:
        """The metric that trials are compared by."""
        return "eval/mean_reward" if self.base.eval_every > 0 else "rollout/ep_rew_mean"

    @property
    def objective(self) -> str:
        """What a trial's value is, for a person."""
        over = f", mean over {self.seeds} seeds" if self.seeds > 1 else ""
        return f"{_MEANING[self.metric]} ({self.metric}){over}"

    @property
    def rungs(self) -> tuple[int, ...]:
        """Agent steps at which trials are compared, multiples of `eval_every`; the last is all of them."""
        steps, unit = self.base.steps, max(1, self.base.eval_every)
        if self.pruner == "none":
            return (steps,)
        at = -(-(self.min_steps or max(1, steps // self.reduction**2)) // unit) * unit
        rungs: list[int] = []
        while at < steps and (not rungs or 2 * at <= steps):  # so near the end there is little left to save
            rungs.append(at)
            at *= self.reduction
        return (*rungs, steps)

    def config(self, params: Params, seed: int) -> Config:
        """The config of the trial with `params`, for one of its seeds."""
        # Compared by the same evaluations, whatever defaults the searched keys would bring along.
        fixed = {"steps": self.base.steps, "eval_every": self.base.eval_every, "eval_every_seconds": 0, "seed": seed}
        return configure(self.algo, env=self.env, **{**self.given, **params, **fixed})

    def values(self, params: Mapping[str, Any]) -> dict[str, Value]:
        """What config keys get for the parameters of a trial as Optuna has them."""
        domains = self.space.domains
        return {name: value if isinstance(domain, Choices) else domain.value(value)
                for name, value in params.items() if (domain := domains.get(name)) is not None}

    def trial_seeds(self) -> tuple[int, ...]:
        """The seeds that each trial runs."""
        return tuple(self.base.seed + i for i in range(self.seeds))

    def definition(self) -> dict[str, Any]:
        """As JSON; equal for the same search."""
        domains = {name: ["choices", *domain.values] if isinstance(domain, Choices) else
                   [domain.low, domain.high, domain.whole, domain.log, domain.step, domain.text]
                   for name, domain in self.space.domains.items()}
        points = None if self.space.points is None else [dict(point) for point in self.space.points]
        return {"algo": self.algo, "env": self.base.env, "given": dict(sorted(self.given.items())),
                "steps": self.base.steps, "eval_every": self.base.eval_every, "domains": domains, "points": points,
                "seeds": self.seeds, "sampler": None if points else self.sampler, "rungs": list(self.rungs),
                "objective": self.objective}

    @property
    def name(self) -> str:
        """The study's name in its storage, the same wherever the same search runs."""
        digest = hashlib.sha256(json.dumps(self.definition(), sort_keys=True).encode()).hexdigest()
        return f"vantage {self.algo} {self.base.env} {digest[:12]}"
