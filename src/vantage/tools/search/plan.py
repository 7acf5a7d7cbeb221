"""What a search varies, how its trials are compared, and the config of each trial. Optuna is not imported here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.presets import configure
from vantage.tools.search.space import Params, Space, names_key

Sampler = Literal["tpe", "random"]
Pruner = Literal["asha", "none"]

MAX_SEED = 2**63 - 1
_MEANING = {"eval/mean_reward": "mean return of the last evaluation",
            "rollout/ep_rew_mean": "mean return of the last 100 training games"}


@dataclass(frozen=True, slots=True)
class Plan:
    """One search. `shared` are the config keys that all trials have in common. Equal plans are one study."""

    algo: str
    env: str
    shared: Mapping[str, Any]
    space: Space
    seeds: int = 1
    sampler: Sampler = "tpe"
    pruner: Pruner = "asha"
    reduction: int = 3
    min_steps: int | None = None
    """Agent steps of the first comparison; None: steps / reduction^2."""
    base: Config = field(init=False)

    def __post_init__(self) -> None:
        if float(self.shared.get("eval_every_seconds", 0)) > 0:
            raise ConfigError("eval_every_seconds: trials are compared by evaluations at equal steps; leave it out and "
                              "give --eval-every")
        object.__setattr__(self, "base", configure(self.algo, env=self.env,
                                                   **{**self.shared, "eval_every_seconds": 0}))
        self._check_options()
        for name in self.space.domains:
            if name in self.shared:
                raise ConfigError(f"{name} is both given and searched; leave it out of one")
        for point in self.space.extremes():
            try:
                self.config(point, self.base.run.seed)
            except ConfigError as error:
                raise self.space.explain(point, error) from None

    def _check_options(self) -> None:
        run = self.base.run
        if run.max_minutes:
            raise ConfigError("max_minutes: trials are compared at equal steps; leave it out and give --steps")
        if run.eval_every > run.steps:
            raise ConfigError(f"eval_every={run.eval_every} is above steps={run.steps}, so that no trial would be "
                              "evaluated; give a smaller --eval-every, or 0 to compare by the training games")
        for name, value, low, high in (("--seeds", self.seeds, 1, 1_000), ("--reduction", self.reduction, 2, 1_000)):
            if not low <= value <= high:
                raise ConfigError(f"{name} {value} is " + (f"below {low}" if value < low else f"above {high:,}"))
        if self.min_steps is not None and not 1 <= self.min_steps < run.steps:
            raise ConfigError(f"--min-steps {self.min_steps} is not from 1 to below the {run.steps:,} steps of a trial")
        if run.seed + self.seeds - 1 > MAX_SEED:
            raise ConfigError(f"--seeds {self.seeds}: from --seed {run.seed} on they end above {MAX_SEED}; give a "
                              "smaller --seed")

    @property
    def metric(self) -> str:
        """The metric that trials are compared by."""
        return "eval/mean_reward" if self.base.run.eval_every > 0 else "rollout/ep_rew_mean"

    @property
    def objective(self) -> str:
        """The value of a trial, in words."""
        over = f", mean over {self.seeds} seeds" if self.seeds > 1 else ""
        return f"{_MEANING[self.metric]} ({self.metric}){over}"

    @property
    def rungs(self) -> tuple[int, ...]:
        """Agent steps at which trials are compared, multiples of `eval_every`; the last is all steps."""
        steps, unit = self.base.run.steps, max(1, self.base.run.eval_every)
        if self.pruner == "none":
            return (steps,)
        at = -(-(self.min_steps or max(1, steps // self.reduction**2)) // unit) * unit
        rungs: list[int] = []
        while at < steps and (not rungs or 2 * at <= steps):  # near the end pruning saves little
            rungs.append(at)
            at *= self.reduction
        return (*rungs, steps)

    @property
    def trial_seeds(self) -> tuple[int, ...]:
        """The seeds of each trial."""
        return tuple(self.base.run.seed + i for i in range(self.seeds))

    def config(self, values: Params, seed: int) -> Config:
        """The config of a trial's run."""
        # Searched keys may bring other defaults, which must not change how trials are compared.
        fixed = {"steps": self.base.run.steps, "eval_every": self.base.run.eval_every, "eval_every_seconds": 0,
                 "seed": seed}
        return configure(self.algo, env=self.env, **{**self.shared, **values, **fixed})

    def definition(self) -> dict[str, Any]:
        """The search as JSON; equal for equal searches."""
        definition = {"algo": self.algo, "env": self.base.env.id, "given": dict(sorted(self.shared.items())),
                      "steps": self.base.run.steps, "eval_every": self.base.run.eval_every,
                      "domains": {name: asdict(domain) for name, domain in self.space.domains.items()},
                      "points": self.space.points, "seeds": self.seeds,
                      "sampler": None if self.space.points else self.sampler, "rungs": self.rungs,
                      "objective": self.objective}
        normalized: dict[str, Any] = json.loads(json.dumps(definition))
        return normalized

    @property
    def name(self) -> str:
        """The study's name in its storage."""
        digest = hashlib.sha256(json.dumps(self.definition(), sort_keys=True).encode()).hexdigest()
        return f"vantage {self.algo} {self.base.env.id} {digest[:12]}"


def check_start(plan: Plan) -> None:
    """Raise what would prevent trials from their first step, before any file is written."""
    from vantage.training import check

    for point in plan.space.representatives():
        try:
            check(plan.config(point, plan.base.run.seed))
        except ConfigError as error:
            if not names_key(point, str(error)):
                check(plan.base)  # raises it without the point if the shared keys are wrong
            raise plan.space.explain(point, error) from None
