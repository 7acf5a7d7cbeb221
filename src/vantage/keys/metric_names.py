"""The names of the metrics that Vantage writes. docs/training.md explains the same ones."""

from __future__ import annotations

from collections.abc import Collection

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

OF_LOSSES: frozenset[str] = frozenset({
    "train/policy_loss", "train/value_loss", "train/entropy", "train/explained_variance",
    "train/approx_kl", "train/clip_fraction", "train/average_kl", "train/trust_region_share",
    "train/rho_mean", "train/intrinsic_value_loss", "train/predictor_loss"})
"""Those of METRICS that the loss of an algorithm may log."""


def is_metric(name: str) -> bool:
    """Vantage itself writes a metric of this name, in this run or another."""
    return name in METRICS or name.startswith((*NODE_PREFIXES, *INFO_PREFIXES))


def check_free(name: object, of_algorithm: Collection[str]) -> str:
    """`name`, if a metric of the user may have it; ConfigError if it is taken or is no name.

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


def check_of_loss(name: object) -> None:
    """ConfigError unless the loss of an algorithm may log a metric of this name."""
    if name not in OF_LOSSES:
        check_free(name, ())
