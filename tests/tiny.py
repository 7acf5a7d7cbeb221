"""Environments that each need exactly one property of the learner."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Tiny(gym.Env[np.ndarray, Any]):
    """Shared by all below: a vector observation of `size`, `arms` actions, a time limit; `play` does a step."""

    size, arms, limit = 1, 2, math.inf
    info: Info = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-10, 10, (self.size,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(self.arms)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return self.obs(), dict(self.info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.t += 1
        reward, terminated = self.play(action)
        return self.obs(), float(reward), terminated, not terminated and self.t >= self.limit, dict(self.info)

    def begin(self) -> None:
        """Draw what is new in an episode."""

    def obs(self) -> Any:
        return np.zeros(self.size, np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        """The reward, and whether the task has ended."""
        raise NotImplementedError


class Bandit(Tiny):
    """Arm 1 pays 1, arm 0 nothing: needs the advantage."""

    def play(self, action: Any) -> tuple[Any, bool]:
        return action == 1, True


class DelayedReward(Tiny):
    """The first action decides what the sixth step pays, longer than a rollout of 4: needs the bootstrap value."""

    size = 7

    def begin(self) -> None:
        self.good = False

    def obs(self) -> Any:
        x = np.zeros(7, np.float32)
        x[min(self.t, 5)], x[6] = 1, self.t > 0 and self.good
        return x

    def play(self, action: Any) -> tuple[Any, bool]:
        if self.t == 1:
            self.good = bool(action == 1)
        return self.t == 6 and self.good, self.t == 6


class TimeLimitChain(Tiny):
    """Action 0 ends with 0.1. Action 1 walks right; 1 is paid at the sixth place, but two steps are the time limit.

    From place 0 nobody ever sees the reward: only the value at the time limit tells that walking is better.
    """

    size, limit = 6, 2

    def begin(self) -> None:
        self.place = int(self.np_random.integers(6))

    def obs(self) -> Any:
        return np.eye(7, 6, dtype=np.float32)[self.place]  # zeros at the sixth place

    def play(self, action: Any) -> tuple[Any, bool]:
        self.place += int(action)
        return (self.place == 6, self.place == 6) if action else (0.1, True)


class Recall(Tiny):
    """The first observation shows which action the fourth step pays for: needs memory."""

    size = 2

    def begin(self) -> None:
        self.cue = int(self.np_random.integers(2))

    def obs(self) -> Any:
        return np.array([2.0 * self.cue - 1 if self.t == 0 else 0.0, self.t == 3], np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.t == 4 and action == self.cue, self.t == 4


class ContinuousTarget(Tiny):
    """Pays minus the squared distance of the action to the observation: needs the Gaussian's mean."""

    def __init__(self, bound: float = 1) -> None:
        super().__init__()
        self.bound = bound
        self.action_space = spaces.Box(-bound, bound, (1,), np.float32)

    def begin(self) -> None:
        self.target = self.np_random.uniform(-0.8, 0.8)

    def obs(self) -> Any:
        return np.array([self.target], np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        assert abs(action[0]) <= self.bound, "clipped on the way"
        return -(action[0] - self.target) ** 2, True


class TwoSwitches(Tiny):
    """MultiDiscrete: pays a half for each of two switches that equals its part of the observation."""

    size = 2

    def __init__(self, binary: bool = False) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary(2) if binary else spaces.MultiDiscrete([2, 3])

    def begin(self) -> None:
        self.want = self.np_random.integers(2, size=2)

    def obs(self) -> Any:
        return self.want.astype(np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return (action == self.want).mean(), True


class MaskedBandit(Tiny):
    """Arm 2 pays most but is never allowed; of the allowed, arm 1 pays."""

    arms, info = 3, {"action_mask": np.array([1, 1, 0], np.int8)}

    def play(self, action: Any) -> tuple[Any, bool]:
        assert action != 2, "a forbidden action was taken"
        return action, True


class Picture(TwoSwitches):
    """Dict observation of a small image and a vector: one switch follows the image, the other the number."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
                                              "sign": spaces.Box(-1, 1, (1,), np.float32)})
        self.action_space = spaces.MultiDiscrete([2, 2])

    def obs(self) -> Any:
        bright, sign = self.want
        return {"image": np.full((12, 12, 3), 255 * bright, np.uint8), "sign": np.array([2 * sign - 1], np.float32)}


class ManyParts(Bandit):
    """Shows eleven vectors, each of another size: a policy with frame stacks has a state of as many tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({f"{size:02}": spaces.Box(-1, 1, (size,), np.float32)
                                              for size in range(1, 12)})

    def obs(self) -> Any:
        return {f"{size:02}": np.full(size, self.t % 2, np.float32) for size in range(1, 12)}


class TextObservation(Tiny):
    """Has an observation space that no network here takes."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(5)


class Lock(Tiny):
    """Opens, and pays, after the right one of four actions eight times in a row: needs exploration."""

    arms, combination = 4, (2, 0, 3, 1, 1, 2, 0, 3)

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(len(self.combination) + 2)
        self.fell = False

    def begin(self) -> None:
        self.fell = False

    def obs(self) -> Any:
        return len(self.combination) + 1 if self.fell else self.t

    def play(self, action: Any) -> tuple[Any, bool]:
        self.fell = action != self.combination[self.t - 1]
        opens = not self.fell and self.t == len(self.combination)
        return opens, self.fell or opens


class Leveled(Tiny):
    """Two steps; the `level` of a reset's options is shown and reported, and the last action is the success."""

    size = 2

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        self.level = -1 if options is None else options.pop("level")
        self.info = {"level": self.level}
        return super().reset(seed=seed)

    def obs(self) -> Any:
        return np.array([self.level, self.t], np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        self.info = {"is_success": bool(action), "level": self.level, "name": "text", "nested": {"depth": 1},
                     "ratio": math.nan}
        return action, self.t == 2


class Hidden(Tiny):
    """The sixth step pays what only the part `state` shows, whatever the actions: needs a critic that sees it."""

    limit = 6

    def __init__(self) -> None:
        super().__init__()
        box = spaces.Box(-10, 10, (1,), np.float32)
        self.observation_space = spaces.Dict({"image": box, "state": box})

    def begin(self) -> None:
        self.pays = float(self.np_random.choice([-1, 1]))

    def obs(self) -> Any:
        return {"image": np.array([self.t / 6], np.float32), "state": np.array([self.pays], np.float32)}

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.pays * (self.t == self.limit), self.t == self.limit
