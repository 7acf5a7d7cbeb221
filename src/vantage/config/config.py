"""The configuration of a run as nested, frozen, checked dataclasses: the content of config.json.

No two groups share a key, so that flags and `override` name keys without their group. Keys that
the algorithm or runtime in use does not have are refused. No torch here, so that errors are quick.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Algorithm, MinibatchAlgorithm
from vantage.config.algorithms import (
    ALGORITHMS,
    RUNTIMES,
    check_kept,
    load_algorithm,
    without_loss,
)
from vantage.config.flat import CORE, FLAT_NAMES, GROUPS, flatten, of_run
from vantage.config.num_envs import with_one_number
from vantage.config.run import RunConfig
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.config.unknown_keys import check_known, why_no_attribute, without_former
from vantage.envs.config import EnvConfig
from vantage.errors import ConfigError
from vantage.keys.fields import check_fields, convert_object, read_json_object
from vantage.keys.given_fields import arguments_of, changed_fields
from vantage.keys.import_paths import load_class
from vantage.keys.objects import ObjectName, is_object, pack, shown_name, unpack
from vantage.keys.schedules import Schedule, value_at
from vantage.keys.type_hints import type_hints
from vantage.keys.typed_values import kinds_of, plain
from vantage.learning.config import CloningConfig, ExplorationConfig, OptimizerConfig
from vantage.models.config import PolicyConfig

AUTOMATIC: Mapping[str, Any] = {"device": "auto", "threads": 0, "num_workers": 0,
                                "precision": "auto"}
"""Keys that the machine may decide, with the value that leaves them to it."""


class Key(NamedTuple):
    """The place of a key in the config, its type, and its rules as `key` declares them."""

    group: str
    attribute: str
    hint: Any
    rules: Mapping[str, Any]

    def convert(self, name: str, value: Any) -> Any:
        """`value`, typed, in text or an object, as the config holds it; `name` is the flat key."""
        return convert_object(name, value, self.hint, self.rules)


@dataclass(frozen=True, repr=False)
class Config:
    """The configuration of one run."""

    algo: str = "a2c"
    """A name of `ALGORITHMS`, or the import path module:Class of an algorithm."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """Environments, observations and rewards."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The policy and value network."""
    algorithm: Algorithm | MinibatchAlgorithm = field(default_factory=A2C)
    """Hyperparameters and loss: A2C (also of a3c and a3g), PPO, ACER, or a user's own class."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer and its learning rate."""
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    """Intrinsic rewards."""
    cloning: CloningConfig = field(default_factory=CloningConfig)
    """Demonstrations that the policy learns from."""
    runtime: Sync | Hogwild | Ray = field(default_factory=Sync)
    """Which processes collect and learn, and on what devices."""
    run: RunConfig = field(default_factory=RunConfig)
    """Length, checkpoints, evaluations and logs."""

    def __post_init__(self) -> None:
        check_fields(self.algorithm)  # a user's own class may not do this itself

    def __repr__(self) -> str:
        return f"<Config {self.setting}: {self.run.steps:,} steps, seed {self.run.seed}>"

    @property
    def setting(self) -> str:
        """The algorithm and the environment, in one short line."""
        return f"{shown_name(self.algo)} on {shown_name(self.env.id)}"

    @classmethod
    def of(cls, algo: str) -> Config:
        """The config of an algorithm with plain defaults; ConfigError for an unknown algorithm."""
        if algo in ALGORITHMS:
            algorithm, runtime = ALGORITHMS[algo]
            return cls(algo=algo, algorithm=algorithm(), runtime=runtime())
        keys = Config.every_key()
        taken = {"algo", "runtime", *(name for name in keys if keys[name].group != "algorithm")}
        config = cls(algo=algo, algorithm=load_algorithm(algo, taken))
        check_kept(algo, config.algorithm)
        return config

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        """For worker processes, which cannot import every class that a config may hold."""
        return _in_worker, (self.algo, pack(vars(self), f"algorithm={self.algo}"))

    @property
    def runtime_name(self) -> str:
        """The name of the runtime in `RUNTIMES`."""
        return next(name for name, kind in RUNTIMES.items() if type(self.runtime) is kind)

    @property
    def hogwild(self) -> Hogwild:
        """The runtime, which must be Hogwild."""
        assert isinstance(self.runtime, Hogwild)
        return self.runtime

    @property
    def ray(self) -> Ray:
        """The runtime, which must be Ray."""
        assert isinstance(self.runtime, Ray)
        return self.runtime

    @property
    def num_processes(self) -> int:
        """Processes that learn at once; at least 1."""
        return max(1, self.runtime.num_workers)

    @property
    def envs_per_process(self) -> int:
        """Environments in each process that acts."""
        if self.env.num_envs or isinstance(self.runtime, Sync):
            return self.env.num_envs // self.num_processes
        return self.runtime.envs_per_worker

    @property
    def all_threads(self) -> int:
        """CPU threads of all processes that share an update; 0: all cores."""
        if isinstance(self.runtime, Sync):
            return self.runtime.threads * self.num_processes
        return self.runtime.threads

    def at(self, name: str, step: int) -> float:
        """The value of the scheduled coefficient `name` at `step`."""
        groups = (getattr(self, group) for group in GROUPS)
        value = next(getattr(group, name) for group in groups if hasattr(group, name))
        return value_at(value, step, self.schedule_steps)

    def settable(self) -> dict[str, Key]:
        """The numbers of losses and of the optimizer, which may change between updates."""
        groups = {"algorithm", "optimizer"}
        if self.exploration.curiosity != "none":
            groups.add("exploration")
        keys = {}
        for name, key in self.flat_keys().items():
            is_number = not {int, float, Schedule}.isdisjoint(kinds_of(key.hint))
            if key.group in groups and is_number and not key.rules.get("fixed"):
                keys[name] = key
        return keys

    @property
    def schedule_steps(self) -> int:
        """The length of schedules in agent steps."""
        return self.run.schedule_steps or self.run.steps

    def flat(self) -> dict[str, Any]:
        """The value of every key, by its flat name."""
        values = {"algo": self.algo, "runtime": self.runtime_name}
        return values | {name: getattr(getattr(self, key.group), key.attribute)
                         for name, key in self.flat_keys().items()}

    def to_json(self) -> str:
        """The text of config.json: the groups as objects, the runtime with its kind."""
        groups: dict[str, dict[str, Any]] = {}
        for group in GROUPS:
            part = getattr(self, group)
            groups[group] = {f.name: plain(getattr(part, f.name))
                             for f in arguments_of(type(part))}
        groups["runtime"] = {"kind": self.runtime_name, **groups["runtime"]}
        return json.dumps({"algo": self.algo, **groups}, indent=2)

    @classmethod
    def from_json(cls, text: str, *, source: str, objects: Mapping[str, Any] | None = None,
                  trains: bool = True) -> Config:
        """The config that `to_json` wrote; `source` names it in the message of a ConfigError.

        Imports the module that `algo` may name. `objects`, by flat key, replace names in the text.
        Unless it `trains`, a user's algorithm may have lost fields since.
        """
        groups = read_json_object(text, source=source)
        values = flatten(groups, source=source) | dict(objects or {})
        if missing := [name for name in CORE if name not in values]:
            raise ConfigError(f"{source} is damaged: it lacks {', '.join(missing)}")
        algo = str(values["algo"])
        if is_object(algo) and not isinstance(algo, ObjectName):
            config = cls(algo=algo, algorithm=without_loss(algo, groups.get("algorithm")))
        else:
            config = cls.of(algo)
        if not trains:
            values = without_former(config, values, groups.get("algorithm"))
        return config.override(of_run(values), source=source)

    def override(self, values: Mapping[str, Any], *, source: str = "") -> Config:
        """This config with `values` by flat key, typed or in text.

        ConfigError for a key that the config does not have; the message begins with `source`.
        """
        try:
            return self._with(dict(values))
        except ConfigError as error:
            message = f"{source}: {error.message}" if source else error.message
            raise ConfigError(message) from error.__cause__

    def _with(self, values: dict[str, Any]) -> Config:
        config = self
        algo = values.pop("algo", self.algo)
        if algo != self.algo:
            config = replace(Config.of(algo), env=self.env, policy=self.policy,
                             optimizer=self.optimizer, exploration=self.exploration,
                             cloning=self.cloning, run=self.run)
        runtime = values.pop("runtime", None)
        if runtime not in (None, config.runtime_name):
            config = config._with_runtime(runtime)
        keys = config.flat_keys()
        changes: dict[str, dict[str, Any]] = {}
        check_known(config, values)
        for name, value in values.items():
            key = keys[name]
            changes.setdefault(key.group, {})[key.attribute] = key.convert(name, value)
        groups: Any = {group: replace(getattr(config, group), **change)
                       for group, change in changes.items()}
        config = replace(config, **groups)
        if "algorithm" in groups:
            check_kept(config.algo, config.algorithm)
        env, runtime = with_one_number(config.env, config.runtime, former=self.runtime,
                                       given={*values})
        return replace(config, env=env, runtime=runtime)

    def _with_runtime(self, name: Any) -> Config:
        """This config under another runtime, with those changed values that both runtimes have."""
        if not isinstance(name, str) or name not in RUNTIMES:
            raise ConfigError(f"runtime={name!r} is not one of {', '.join(RUNTIMES)}")
        kind = RUNTIMES[name]
        changed = changed_fields(self.runtime)
        common = {f.name: changed[f.name] for f in fields(kind) if f.name in changed}
        return replace(self, runtime=kind(**common))

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            """AttributeError, which answers flat names of keys."""
            if name.startswith("_") or name in GROUPS:
                raise AttributeError(name)
            if hasattr(type(self), name):  # raises the error within a property
                return object.__getattribute__(self, name)
            raise AttributeError(why_no_attribute(self, name))

    def change(self, **values: Any) -> Config:
        """`override` by keyword."""
        return self.override(values)

    def with_shifts(self, shifts: Mapping[str, tuple[float, ...]]) -> Config:
        """This config with the `shifts` of a policy's observations, if it leaves them open.

        Left open, they follow the first observation, which may be another next time.
        """
        if shifts and self.env.shifts is None:
            return self.change(obs_shift=json.dumps(shifts))
        return self

    def automatic(self) -> dict[str, Any]:
        """The keys of `AUTOMATIC` that are left to the machine, with their values."""
        flat = self.flat()
        return {name: value for name, value in AUTOMATIC.items() if flat[name] == value}

    def flat_keys(self) -> dict[str, Key]:
        """Every key of this config, by its flat name."""
        keys = {}
        for group in GROUPS:
            part = getattr(self, group)
            hints = type_hints(part.__class__)
            for f in arguments_of(type(part)):
                name = FLAT_NAMES.get((group, f.name), f.name)
                keys[name] = Key(group, f.name, hints[f.name], f.metadata)
        return keys

    @staticmethod
    def every_key() -> dict[str, Key]:
        """The keys of all algorithms and runtimes of Vantage, by flat name."""
        keys = Config(runtime=Ray()).flat_keys()
        for algo in ALGORITHMS:
            keys |= Config.of(algo).flat_keys()
        return keys


def _in_worker(algo: str, packed: bytes) -> Config:
    """The config that another process of the run has packed."""
    if algo not in ALGORITHMS:
        load_class(algo, what="algorithm")  # unpickling a class needs its module
    return Config(**unpack(packed))
