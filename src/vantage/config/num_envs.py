"""The number of environments: `num_envs` of the run, or `envs_per_worker` of each of its workers.

Runs under hogwild and ray have one of the two; the other is 0. Runs under sync have `num_envs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.envs.config import EnvConfig
from vantage.errors import ConfigError

_OTHER = {"num_envs": "envs_per_worker", "envs_per_worker": "num_envs"}


def with_one_number(env: EnvConfig, runtime: Sync | Hogwild | Ray, *, former: Sync | Hogwild | Ray,
                    given: set[str]) -> tuple[EnvConfig, Sync | Hogwild | Ray]:
    """`env` and `runtime` with the one of the two keys that is `given`, and the other at 0.

    Where neither is given and the runtime changes from `former`, the number of a process that
    learns stays: that of the run under sync is that of each worker under hogwild and ray.
    """
    if isinstance(runtime, Sync):
        if "num_envs" not in given and not isinstance(former, Sync):
            env = replace(env, num_envs=env.num_envs or former.envs_per_worker)
        if env.num_envs == 0:
            raise ConfigError("num_envs=0 is for runtimes with envs_per_worker, hogwild and ray; "
                              "give at least --num-envs 1")
        return env, runtime
    is_given = not given.isdisjoint(_OTHER)
    if not (is_given or env.num_envs or runtime.envs_per_worker or isinstance(former, Sync)):
        runtime = replace(runtime, envs_per_worker=former.envs_per_worker)  # of another algorithm
    if not is_given and isinstance(former, Sync):
        runtime = replace(runtime, envs_per_worker=env.num_envs)
        env = replace(env, num_envs=0)
    elif "num_envs" not in given and runtime.envs_per_worker:
        env = replace(env, num_envs=0)
    elif "envs_per_worker" not in given and env.num_envs:
        runtime = replace(runtime, envs_per_worker=0)
    if env.num_envs and runtime.envs_per_worker:
        raise ConfigError(f"num_envs={env.num_envs} is of the whole run and envs_per_worker="
                          f"{runtime.envs_per_worker} of each worker; give one of them")
    if not env.num_envs and not runtime.envs_per_worker:
        raise ConfigError("num_envs=0 and envs_per_worker=0 leave no environment; give --num-envs "
                          "8 for the whole run, or --envs-per-worker 8")
    return env, runtime


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, overridden by `over`; a number of environments replaces either key."""
    replaced = {other for name, other in _OTHER.items()
                if str(over.get(name, 0)) != "0" and other not in over}
    return {name: value for name, value in values.items() if name not in replaced} | dict(over)


def most_workers(num_envs: int, most: int) -> int:
    """The largest number of workers, up to `most`, that share `num_envs` evenly; `most` for 0."""
    return next(workers for workers in range(min(most, num_envs or most), 0, -1)
                if num_envs % workers == 0)


def why_uneven(num_envs: int, workers: int) -> str | None:
    """Why `workers` cannot share `num_envs` evenly; None if they can.

    It names the nearest numbers that are even.
    """
    if workers == 0 or num_envs % workers == 0:
        return None
    below = num_envs // workers * workers
    envs = [str(number) for number in (below, below + workers) if number]
    fewer = most_workers(num_envs, workers)
    more = [number for number in range(workers + 1, num_envs + 1) if num_envs % number == 0]
    processes = [str(number) for number in (fewer, *more[:1])]
    return (f"num_envs={num_envs} cannot be divided evenly among so many processes; give "
            f"--num-envs {' or '.join(envs)}, or --num-workers {' or '.join(processes)}")
