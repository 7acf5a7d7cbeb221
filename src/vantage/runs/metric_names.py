"""The names of the metrics that Vantage writes. docs/training.md explains the same ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from statistics import fmean
from typing import Any

from vantage.envs.descriptions import shown
from vantage.errors import ConfigError

STEP = "step"
SECONDS = "seconds"
"""The first two fields of each line of metrics.jsonl."""

METRICS: frozenset[str] = frozenset({
    # The last `return_window` training games
    "rollout/ep_rew_mean", "rollout/ep_rew_min", "rollout/ep_rew_max", "rollout/ep_len_mean",
    "rollout/episodes", "rollout/success_rate",
    # Evaluations
    "eval/mean_reward", "eval/mean_ep_length", "eval/cut_games", "eval/deterministic", "eval/step",
    "eval/mean_reward_deterministic", "eval/mean_reward_sampled", "eval/second_mean_reward",
    "eval/success_rate",
    # Updates of any algorithm
    "train/learning_rate", "train/grad_norm", "train/policy_loss", "train/value_loss",
    "train/entropy", "train/explained_variance", "train/policy_lag",
    # Of one algorithm: PPO's, ACER's, and V-trace's
    "train/approx_kl", "train/clip_fraction",
    "train/average_kl", "train/trust_region_share",
    "train/rho_mean",
    # Demonstrations: of cloning before the first update, and of updates
    "demo/loss", "demo/held_out_loss", "train/demo_loss",
    # Self-play: the rate of wins against past policies, and the policy's rating
    "self_play/win_rate", "self_play/elo",
    # Curiosity
    "rollout/intrinsic_reward", "train/intrinsic_value_loss", "train/predictor_loss",
    # Speed and memory
    "time/fps", "time/frames", "time/env_share", "time/act_share", "time/learn_share",
    "time/eval_share", "time/memory_mib", "time/save_age", "time/minutes_share",
    # A cluster of Ray
    "ray/workers", "ray/restarts", "ray/dropped_steps",
    # TensorBoard's page of hyperparameters
    "final/return_mean", "final/best_return"})
"""Every name that a run may write, also those that few runs have."""

NODE_PREFIXES: tuple[str, ...] = ("ray/fps/", "ray/policy_lag/", "ray/restarts/")
"""Prefixes of the metrics of a node of Ray; its address follows."""

INFO_PREFIXES: tuple[str, ...] = ("rollout/info/", "eval/info/")
"""Prefixes of the metrics of the numbers in an episode's last `info`; their names follow."""


SUCCESS = "is_success"
"""Key of `info` whose mean is a success rate, as elsewhere."""
LOG = "log"
"""Key of `info` for a dict of further numbers, as Isaac Lab's environments have."""
_NO_METRICS = ("time_outs",)
_MOST_NUMBERS = 32
_LONGEST_NAME = 64
_LARGEST_NUMBER = 1e100  # metrics.jsonl is read up to it


def numbers_of(info: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers and bools of `info` as metrics hold them: `is_success`, then by name.

    Those of a dict `log` in it count too, and arrays of one number. At most 32, with names of up to
    64 characters.
    """
    log = info.get(LOG)
    more = log if isinstance(log, Mapping) else {}
    numbers = {}
    for name, value in {**more, **info}.items():
        single = value.item() if getattr(value, "size", 0) == 1 else value
        if (isinstance(name, str) and name not in _NO_METRICS
                and isinstance(single, bool | int | float) and abs(single) <= _LARGEST_NUMBER
                and name.isprintable() and 0 < len(name) <= _LONGEST_NAME):
            numbers[name] = float(single)
    return {name: numbers[name] for name in _first_names(numbers)}


class SuccessNote:
    """Finds an `is_success` that counts for no success rate: misspelt, or no number."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, info: Mapping[str, Any]) -> str:
        """What is wrong in the `info` of an episode's last step, once; '' otherwise."""
        new = {name for name in info if isinstance(name, str)} - self._seen
        if not new or len(self._seen) > _MOST_NUMBERS:
            return ""
        self._seen |= new
        if SUCCESS in info:
            if SUCCESS not in new or SUCCESS in numbers_of(info):
                return ""
            return (f"info[{SUCCESS!r}] is {shown(info[SUCCESS])}, which counts for no success "
                    "rate; give True or False")
        plain = SUCCESS.replace("_", "")
        folded = {name.replace("_", "").lower(): name for name in new}
        close = difflib.get_close_matches(plain, folded, n=1, cutoff=0.85)
        if not close:
            return ""
        return (f"info has {folded[close[0]]!r}, and the success rate is the mean of "
                f"{SUCCESS!r}; rename it")


def _first_names(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != SUCCESS, name))[:_MOST_NUMBERS]


def info_means(numbers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the episodes that have it, `is_success` first, then by name."""
    values: dict[str, list[float]] = {}
    for each in numbers:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(values[name]) for name in _first_names(values)}


def info_metrics(group: str, numbers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """`info_means` as metrics of `group`: GROUP/success_rate of `is_success`, GROUP/info/NAME."""
    means = info_means(numbers)
    return {f"{group}/success_rate" if name == SUCCESS else f"{group}/info/{name}": value
            for name, value in means.items()}


def is_metric(name: str) -> bool:
    """Vantage itself writes a metric of this name, in this run or another."""
    return name in METRICS or name.startswith((*NODE_PREFIXES, *INFO_PREFIXES))


def check_free(name: object, of_algorithm: Collection[str]) -> str:
    """The `name` for a metric of the user; ConfigError for no name, and for that of another metric.

    `of_algorithm` are the names that the run's algorithm has logged.
    """
    if not (isinstance(name, str) and name and name.isprintable()) or name in (STEP, SECONDS):
        raise ConfigError(
            f"{name!r:.100} cannot name a metric; give a text such as 'my/metric'")
    if is_metric(name):
        owner = "Vantage writes"
    elif name in of_algorithm:
        owner = "the algorithm logs"
    else:
        return name
    own = f"my/{name.rpartition('/')[2]}"
    raise ConfigError(f"{name!r:.100} is a metric that {owner} itself; log yours under another "
                      f"name, such as {own!r:.100}")
