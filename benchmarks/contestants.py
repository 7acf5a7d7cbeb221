"""The libraries that vectors.py and time_to_score.py compare, and the threads of their processes."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

TITLES = {"vantage": "Vantage", "sb3": "Stable-Baselines3", "sbx": "SBX"}
_MODULES = {"sb3": "stable_baselines3"}


def installed(names: Iterable[str]) -> list[str]:
    """Those of the libraries that can be imported; Vantage always, or the import says why not."""
    return [name for name in names if name == "vantage" or find_spec(_MODULES.get(name, name))]


def thread_limits(cores: int = 1) -> dict[str, str]:
    """Environment variables by which a process computes with so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    limits = dict.fromkeys(names, str(cores))
    if cores == 1:
        limits["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return limits
