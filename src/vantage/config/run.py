"""The config keys of a run: its length, checkpoints, evaluations and logs."""

from __future__ import annotations

from dataclasses import dataclass

from vantage.keys.fields import check_fields, key


@dataclass(frozen=True)
class RunConfig:
    """Length, checkpoints, evaluations and logs of a run."""

    steps: int = key(1_000_000, "agent steps, all environments together; after frame skip", low=1, high=10**15)
    schedule_steps: int = key(0, "length of schedules in agent steps; 0: --steps", low=0, high=10**15)
    seed: int = key(0, "seed of every random stream of the run; `vantage train` draws one if it is not given", low=0,
                    high=2**63 - 1)
    save_every: int = key(200_000, "agent steps between checkpoints", low=1, high=10**15)
    keep_checkpoints: int = key(3, "number of newest checkpoints to keep", low=1, high=10**6)
    eval_every: int = key(-1, "steps between evaluations; 0: never; -1: 20 a run, on Atari never", low=-1, high=10**15)
    eval_every_seconds: float = key(0.0, "seconds between evaluations, by the clock, so that no two runs evaluate at "
                                    "the same steps; 0: never", low=0, high=1e9)
    eval_episodes: int = key(20, "games per evaluation, new ones each time", low=1, high=10**6)
    eval_deterministic: bool | None = key(None, "evaluate by the most probable actions, off: by sampled ones; none: "
                                          "sampled where discrete actions follow images, else most probable")
    max_eval_share: float = key(1.0, "steps of evaluations for each step of training; due ones wait; 1: no bound",
                                low=0, high=1)
    log_every_seconds: float = key(2.0, "seconds between lines of metrics.jsonl", low=0, high=1e9)
    tensorboard: bool = key(True, "write TensorBoard event files")
    track: str = key("none", "also send metrics to wandb or mlflow", choices=("none", "wandb", "mlflow"))
    log_weights: bool = key(False, "TensorBoard: network graph, histograms at each save, and config")
    max_minutes: float = key(0.0, "stop after this wall time; 0: no limit", low=0, high=1e9)
    return_window: int = key(100, "training episodes that rollout/ep_rew_mean and stop_at_return cover", low=1,
                             high=10**6)
    stop_at_return: float | None = key(None, "stop when the mean of the last return_window training episodes reaches "
                                       "this")
    stop_at_eval: float | None = key(None, "stop when the mean of an evaluation and of its first 20 games reaches this")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def evaluates(self) -> bool:
        """Evaluations take place during training."""
        return self.eval_every > 0 or self.eval_every_seconds > 0
