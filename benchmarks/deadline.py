"""A callback that ends the training of Stable-Baselines3, and of SBX, at a time. Imports Stable-Baselines3."""

from __future__ import annotations

from time import perf_counter

from stable_baselines3.common.callbacks import BaseCallback


class StopAfter(BaseCallback):
    """Ends `learn` with the first vector step past the deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.deadline = perf_counter() + seconds

    def _on_step(self) -> bool:
        return perf_counter() < self.deadline
