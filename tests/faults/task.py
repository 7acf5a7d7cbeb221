"""CartPole that misbehaves once: in the process that takes the file which $VANTAGE_FAULT names."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

FAULT: dict[str, Any] = json.loads(os.environ.get("VANTAGE_FAULT", "{}"))


class Faulty(CartPoleEnv):  # type: ignore[misc]
    """Does what `how` of the fault says from its step `at` on, once for each file `once`."""

    def __init__(self) -> None:
        super().__init__()
        self.how, self.at, self.age = FAULT.get("how", ""), FAULT.get("at", 0), 0
        if self._due("raise at start"):
            raise RuntimeError("no simulator here")

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        if self.age >= self.at and self._due("raise at reset"):
            raise RuntimeError("the simulator cannot be reset")
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.age += 1
        if self.age < self.at or "at" in self.how.split() or not self._due(self.how):
            return obs, reward, terminated, truncated, info
        match self.how:
            case "raise":
                raise RuntimeError("the simulator broke")
            case "exit":
                sys.exit(0)
            case "die":
                os._exit(7)
            case "hang":
                time.sleep(3600)
            case "slow":
                time.sleep(1)
        obs = {"nan": obs * np.nan, "shape": np.zeros(9, np.float32)}.get(self.how, obs)
        return obs, float("inf") if self.how == "reward" else reward, terminated, truncated, info

    def close(self) -> None:
        if self._due("raise at close"):
            raise RuntimeError("nothing left to close")
        if self._due("hang at close"):
            time.sleep(3600)
        super().close()

    def _due(self, how: str) -> bool:
        if not self.how or how != self.how:
            return False
        try:
            os.unlink(FAULT["once"])
        except FileNotFoundError:
            return False
        return True
