"""The config keys of a run: its length, checkpoints, evaluations and logs."""

from __future__ import annotations

from dataclasses import dataclass

from vantage.keys.fields import check_fields, key
from vantage.keys.given_fields import remembering_arguments

CHECKPOINTS_PER_RUN = 10
"""The default `save_every` is at most the steps of the run divided by this."""
EVALUATIONS_PER_RUN = 20
"""The default `eval_every` is the steps of the run divided by this."""


@remembering_arguments
@dataclass(frozen=True)
class RunConfig:
    """Length, checkpoints, evaluations and logs of a run."""

    steps: int = key(
        1_000_000, "length of the run in agent steps: after frame skip, summed over environments",
        low=1, high=10**15)
    schedule_steps: int = key(
        0, "length of schedules in agent steps; 0: --steps", low=0, high=10**15)
    seed: int = key(
        0, "random seed, drawn by `vantage train` if not given",
        low=0, high=2**63 - 1)
    save_every: int = key(200_000, "agent steps between checkpoints", low=1, high=10**15)
    keep_checkpoints: int = key(3, "number of newest checkpoints to keep", low=1, high=10**6)
    eval_every: int = key(
        -1, f"agent steps between evaluations; 0: none; -1: {EVALUATIONS_PER_RUN} evaluations a "
        "run, on Atari none", low=-1, high=10**15)
    eval_every_seconds: float = key(
        0.0, "seconds between evaluations, so that no two runs evaluate at the same steps; 0: none",
        low=0, high=1e9)
    eval_episodes: int = key(20, "new episodes of each evaluation", low=1, high=10**6)
    eval_deterministic: bool | None = key(
        None, "evaluate the most probable actions; off: sampled ones; none: sampled for discrete "
        "actions on images, else the most probable")
    eval_ema: float = key(
        0.0, "decay at each gradient step of averaged weights for evaluations and saved policies; "
        "0: the weights themselves", low=0, high=0.999999)
    max_eval_share: float = key(
        1.0, "limit of evaluation steps per training step; evaluations wait for it; 1: no limit",
        low=0, high=1)
    log_every_seconds: float = key(
        2.0, "seconds between lines of metrics.jsonl", low=0, high=1e9)
    tensorboard: bool = key(True, "write TensorBoard event files")
    track: str = key(
        "none", "also send metrics to Weights & Biases or MLflow",
        choices=("none", "wandb", "mlflow"))
    log_weights: bool = key(
        False, "log the network's graph, the config, and at each save histograms of weights and "
        "gradients to TensorBoard")
    max_minutes: float = key(
        0.0, "minutes after which the run stops; 0: no limit", low=0, high=1e9)
    return_window: int = key(
        100, "number of last training episodes in rollout/ep_rew_mean and --stop-at-return",
        low=1, high=10**6)
    stop_at_return: float | None = key(
        None, "stop when the mean return of the last --return-window episodes reaches this")
    stop_at_eval: float | None = key(
        None, "stop when the mean return of an evaluation reaches this, that of its first 20 "
        "episodes too, and then that of as many new ones")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def evaluates(self) -> bool:
        """Whether the run is evaluated during training."""
        return self.eval_every > 0 or self.eval_every_seconds > 0
