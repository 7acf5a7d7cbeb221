"""The configuration of a run as nested, frozen, validated dataclasses. Imports no torch, so that errors appear at once.

`Config` is the content of config.json. No two groups share a key, so that flags and `override` name keys without their
group. Keys that the algorithm or the runtime in use does not have are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, NamedTuple

from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Algorithm, MinibatchAlgorithm
from vantage.config.algorithms import ALGORITHMS, RUNTIMES, changed_fields, defaults_of_body, runtimes_of, without_loss
from vantage.config.flat import CORE, FLAT_NAMES, GROUPS, flatten, of_run
from vantage.config.num_envs import with_one_number
from vantage.config.run import RunConfig
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.envs.config import EnvConfig
from vantage.errors import ConfigError
from vantage.keys.fields import (
    check_fields,
    convert,
    in_words,
    kinds_of,
    plain,
    read_json_object,
    suggestion,
    type_hints,
)
from vantage.keys.import_paths import load_class
from vantage.keys.objects import ObjectName, is_object, pack, shown_name, unpack
from vantage.keys.schedules import Schedule, value_at
from vantage.learning.config import OptimizerConfig
from vantage.models.config import PolicyConfig

OF_MACHINE: Mapping[str, Any] = {"device": "auto", "threads": 0, "num_workers": 0, "precision": "auto"}
"""Keys that may be chosen for the machine, with the value that asks for it. meta.json records what was chosen."""

Group = EnvConfig | PolicyConfig | OptimizerConfig | Sync | Hogwild | Ray | RunConfig
"""Keys of one subject. `configure` takes instances, whose fields editors complete and check."""


class Key(NamedTuple):
    """Where a key is in the config, its type, and the rules that `vantage.keys.fields.key` declared."""

    group: str
    attribute: str
    hint: Any
    rules: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Config:
    """One run. Coefficients that may change during it are numbers or schedules (`vantage.keys.schedules`)."""

    algo: str = "a2c"
    """A name of `ALGORITHMS`, or the import path module:Class of an algorithm."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """Environments, observations and rewards."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The policy and value network."""
    algorithm: Algorithm | MinibatchAlgorithm = field(default_factory=A2C)
    """The hyperparameters and the loss: A2C (also of a3c and a3g), PPO, ACER, or a class of one's own."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer and its learning rate."""
    runtime: Sync | Hogwild | Ray = field(default_factory=Sync)
    """Which processes collect and learn, and on what devices."""
    run: RunConfig = field(default_factory=RunConfig)
    """Length, checkpoints, evaluations and logs."""

    def __post_init__(self) -> None:
        check_fields(self.algorithm)  # a class of one's own need not do it

    def __repr__(self) -> str:
        return f"<Config {self.setting}: {self.run.steps:,} steps, seed {self.run.seed}>"

    @classmethod
    def of(cls, algo: str) -> Config:
        """The config of an algorithm with every key at its plain default; ConfigError for an unknown name."""
        if algo in ALGORITHMS:
            algorithm, runtime = ALGORITHMS[algo]
            return cls(algo=algo, algorithm=algorithm(), runtime=runtime())
        kind = load_class(algo, what="algorithm")
        if missing := [name for name in ("loss", "needs", "gamma", "__dataclass_fields__") if not hasattr(kind, name)]:
            raise ConfigError(f"algorithm={algo} is not an algorithm: it lacks {', '.join(missing)}; write a frozen "
                              "dataclass with gamma, needs and loss, as vantage.algorithms.interface describes")
        own = {f.name for f in fields(kind)}
        if taken := own & {"algo", "runtime", *(name for name, key in Config.every_key().items()
                                                if key.group != "algorithm")}:
            raise ConfigError(f"algorithm={algo} has a field {min(taken)}, which is the name of another key; rename it")
        if required := [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]:
            raise ConfigError(f"algorithm={algo} has a field {required[0]} without a default; give it one")
        return cls(algo=algo, algorithm=kind(**defaults_of_body(kind)))

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        """For worker processes, which import the module of an algorithm that has one, and receive other objects."""
        return _in_worker, (self.algo, pack(vars(self), f"algorithm={self.algo}"))

    @property
    def setting(self) -> str:
        """The algorithm and the environment, in one short line."""
        return f"{shown_name(self.algo)} on {shown_name(self.env.id)}"

    @property
    def runtime_name(self) -> str:
        """The name of the runtime in `RUNTIMES`."""
        return next(name for name, kind in RUNTIMES.items() if type(self.runtime) is kind)

    @property
    def hogwild(self) -> Hogwild:
        """The runtime, where it is Hogwild."""
        assert isinstance(self.runtime, Hogwild)
        return self.runtime

    @property
    def ray(self) -> Ray:
        """The runtime, where it is Ray."""
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
        """CPU threads of all processes that make an update together; 0: all cores."""
        together = self.num_processes if isinstance(self.runtime, Sync) else 1
        return self.runtime.threads * together

    def at(self, name: str, step: int) -> float:
        """The value of the scheduled coefficient `name` at `step`."""
        part = next(part for part in (getattr(self, group) for group in GROUPS) if hasattr(part, name))
        return value_at(getattr(part, name), step, self.schedule_steps)

    def settable(self) -> dict[str, Key]:
        """The numbers of the algorithm and the optimizer that may change between updates."""
        return {name: key for name, key in self.flat_keys().items()
                if key.group in ("algorithm", "optimizer") and not key.rules.get("fixed")
                and not {int, float, Schedule}.isdisjoint(kinds_of(key.hint))}

    @property
    def schedule_steps(self) -> int:
        """Agent steps that schedules run over."""
        return self.run.schedule_steps or self.run.steps

    def flat(self) -> dict[str, Any]:
        """Every key of the config in force, by its flat name."""
        values = {name: getattr(getattr(self, key.group), key.attribute) for name, key in self.flat_keys().items()}
        return {"algo": self.algo, "runtime": self.runtime_name, **values}

    def to_json(self) -> str:
        """The text of config.json: the groups as objects, the runtime with its kind."""
        groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
        for group, values in groups.items():
            part = getattr(self, group)
            values |= {f.name: plain(getattr(part, f.name)) for f in fields(part)}
        groups["runtime"] = {"kind": self.runtime_name, **groups["runtime"]}
        return json.dumps({"algo": self.algo, **groups}, indent=2)

    @classmethod
    def from_json(cls, text: str, *, source: str, objects: Mapping[str, Any] | None = None) -> Config:
        """The config that `to_json` wrote; `source` names it in the message of a ConfigError.

        Where `algo` is an import path, its module is imported. `objects` by flat key replace what the text names.
        """
        groups = read_json_object(text, source=source)
        values = flatten(groups, source=source) | dict(objects or {})
        if missing := [name for name in CORE if name not in values]:
            raise ConfigError(f"{source} is damaged: it lacks {', '.join(missing)}")
        algo = values["algo"] if isinstance(values["algo"], str) else str(values["algo"])
        if is_object(algo) and not isinstance(algo, ObjectName):
            begin = cls(algo=algo, algorithm=without_loss(algo, groups.get("algorithm")))
        else:
            begin = cls.of(algo)
        return begin.override(of_run(values), source=source)

    def override(self, values: Mapping[str, Any], *, source: str = "") -> Config:
        """This config with `values` by flat key, typed or in text; ConfigError for a key that it does not have.

        Messages begin with `source`, such as the name of a file.
        """
        try:
            return self._with(dict(values))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}" if source else error.message) from error.__cause__

    def _with(self, values: dict[str, Any]) -> Config:
        config = self
        algo = values.pop("algo", self.algo)
        runtime = values.pop("runtime", None)
        if algo != self.algo:
            config = replace(Config.of(algo), env=self.env, policy=self.policy, optimizer=self.optimizer, run=self.run)
        if runtime not in (None, config.runtime_name):
            if runtime not in RUNTIMES:
                raise ConfigError(f"runtime={runtime!r} is not one of {', '.join(RUNTIMES)}")
            kind = RUNTIMES[runtime]
            chosen = changed_fields(config.runtime)
            common = {f.name: chosen[f.name] for f in fields(kind) if f.name in chosen}
            config = replace(config, runtime=kind(**common))
        keys = config.flat_keys()
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name not in keys:
                raise ConfigError(config.why_unknown(name))
            key = keys[name]
            if Schedule not in kinds_of(key.hint):  # a coefficient may be a function
                value = in_words(name, value, key.rules)
            changes.setdefault(key.group, {})[key.attribute] = convert(name, value, key.hint)
        parts: Any = {group: replace(getattr(config, group), **change) for group, change in changes.items()}
        config = replace(config, **parts)
        env, runtime = with_one_number(config.env, config.runtime, former=self.runtime, given={*values})
        return replace(config, env=env, runtime=runtime)

    def change(self, **values: Any) -> Config:
        """`override` by keyword."""
        return self.override(values)

    def with_shifts(self, shifts: Mapping[str, tuple[float, ...]]) -> Config:
        """This config with the `shifts` that a policy's observations have, if it leaves them to the first observation.

        The next first observation may be another, as that of a clock.
        """
        return self.change(obs_shift=json.dumps(shifts)) if shifts and self.env.shifts is None else self

    def automatic(self) -> dict[str, Any]:
        """The keys of `OF_MACHINE` that are left to the machine, with those values."""
        flat = self.flat()
        return {name: value for name, value in OF_MACHINE.items() if flat[name] == value}

    def flat_keys(self) -> dict[str, Key]:
        """Every key of this config, by its flat name."""
        keys = {}
        for group in GROUPS:
            part = getattr(self, group)
            hints = type_hints(part.__class__)
            for f in fields(part):
                name = FLAT_NAMES.get((group, f.name), f.name)
                keys[name] = Key(group, f.name, hints[f.name], f.metadata)
        return keys

    @staticmethod
    def every_key() -> dict[str, Key]:
        """The keys of all algorithms and runtimes of Vantage, by flat name."""
        configs = [Config(runtime=Ray()), *map(Config.of, ALGORITHMS)]
        return {name: key for config in configs for name, key in config.flat_keys().items()}

    def why_unknown(self, name: str) -> str:
        """The error for a key that this config does not have: unknown, or only for other algorithms or runtimes."""
        users = [algo for algo in ALGORITHMS if name in Config.of(algo).flat_keys()]
        runtimes = [each for each in runtimes_of(self.algo)
                    if name in replace(self, runtime=RUNTIMES[each]()).flat_keys()]
        if users or runtimes:
            fits = []
            if users:
                fits.append(", ".join(users))
            if runtimes:
                fits.append(f"--runtime {' or '.join(runtimes)}")
            return (f"{name} has no effect with {self.algo} under runtime={self.runtime_name}; it is for "
                    f"{', and for '.join(fits)}")
        kind = type(self.algorithm)
        if any(name in getattr(each, "__annotations__", ()) for each in kind.__mro__):
            return (f"{name} is an attribute of {kind.__name__} and not a field; put @dataclass(frozen=True) on the "
                    "class")
        near = suggestion(name, [*Config.every_key(), *self.flat_keys(), *GROUPS])
        return f"unknown key {name!r}{near or '; `vantage train ALGO --help` shows the keys'}"


def _in_worker(algo: str, packed: bytes) -> Config:
    """The config that another process of the run has packed."""
    if algo not in ALGORITHMS:
        load_class(algo, what="algorithm")
    return Config(**unpack(packed))


def keys_of(group: Group) -> dict[str, Any]:
    """The keys that differ from their defaults in a group such as `PolicyConfig`. A runtime also chooses itself.

    ConfigError for any other object.
    """
    if not isinstance(group, Group):
        raise ConfigError(f"{group!r:.80} is not a group of config keys; give for example vantage.PolicyConfig("
                          "frame_stack=4), or a key by name: frame_stack=4")
    values = changed_fields(group)
    if "id" in values:
        raise ConfigError(f"EnvConfig has id={values['id']!r}; give the environment as env={values['id']!r}, and leave "
                          "id out")
    for name, kind in RUNTIMES.items():
        if type(group) is kind:
            values["runtime"] = name
    return values
