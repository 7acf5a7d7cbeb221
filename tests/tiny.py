"""Environments that each need exactly one property of the learner, and environments that misbehave in one way each."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Tiny(gym.Env[np.ndarray, Any]):
    """Shared by all below: a vector observation of `size`, `arms` actions."""

    size, arms = 1, 2

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-10, 10, (self.size,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(self.arms)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        return self.begin(), {}

    def begin(self) -> Any:
        return self.obs()

    def obs(self) -> Any:
        return np.zeros(self.size, np.float32)


class Bandit(Tiny):
    """Arm 1 pays 1, arm 0 nothing: needs the advantage."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        return self.obs(), float(action == 1), True, False, {}


class DelayedReward(Tiny):
    """The first action decides what the sixth step pays, longer than a rollout of 4: needs the bootstrap value."""

    size = 7

    def begin(self) -> Any:
        self.good = False
        return self.obs()

    def obs(self) -> Any:
        x = np.zeros(7, np.float32)
        x[self.t], x[6] = 1, self.t > 0 and self.good
        return x

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self.t == 0:
            self.good = bool(action == 1)
        self.t += 1
        if self.t == 6:
            self.t = 5
            return self.obs(), float(self.good), True, False, {}
        return self.obs(), 0.0, False, False, {}


class TimeLimitChain(Tiny):
    """Action 0 ends with 0.1. Action 1 walks right; 1 is paid at the sixth place, but two steps are the time limit.

    From place 0 nobody ever sees the reward: only the value at the time limit tells that walking is better.
    """

    size = 6

    def begin(self) -> Any:
        self.place = int(self.np_random.integers(6))
        return self.obs()

    def obs(self) -> Any:
        x = np.zeros(6, np.float32)
        if self.place < 6:
            x[self.place] = 1
        return x

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.t += 1
        if action == 0:
            return self.obs(), 0.1, True, False, {}
        self.place += 1
        if self.place == 6:
            return self.obs(), 1.0, True, False, {}
        return self.obs(), 0.0, False, self.t >= 2, {}


class Recall(Tiny):
    """The first observation shows which action the fourth step pays for: needs memory."""

    size = 2

    def begin(self) -> Any:
        self.cue = int(self.np_random.integers(2))
        return self.obs()

    def obs(self) -> Any:
        return np.array([2.0 * self.cue - 1 if self.t == 0 else 0.0, self.t == 3], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.t += 1
        if self.t == 4:
            return self.obs(), float(action == self.cue), True, False, {}
        return self.obs(), 0.0, False, False, {}


class ContinuousTarget(Tiny):
    """Pays minus the squared distance of the action to the observation: needs the Gaussian's mean."""

    def __init__(self, bound: float = 1) -> None:
        super().__init__()
        self.bound = bound
        self.action_space = spaces.Box(-bound, bound, (1,), np.float32)

    def begin(self) -> Any:
        self.target = self.np_random.uniform(-0.8, 0.8)
        return self.obs()

    def obs(self) -> Any:
        return np.array([self.target], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert abs(action[0]) <= self.bound, "clipped on the way"
        return self.obs(), -float((action[0] - self.target) ** 2), True, False, {}


class TwoSwitches(Tiny):
    """MultiDiscrete: pays a half for each of two switches that equals its part of the observation."""

    size = 2

    def __init__(self, binary: bool = False) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary(2) if binary else spaces.MultiDiscrete([2, 3])

    def begin(self) -> Any:
        self.want = self.np_random.integers(2, size=2)
        return self.want.astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        return self.want.astype(np.float32), float((action == self.want).mean()), True, False, {}


class MaskedBandit(Tiny):
    """Arm 2 pays most but is never allowed; of the allowed, arm 1 pays."""

    arms = 3

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        obs, _ = super().reset(seed=seed)
        return obs, {"action_mask": np.array([1, 1, 0], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert action != 2, "a forbidden action was taken"
        return self.obs(), float(action), True, False, {"action_mask": np.array([1, 1, 0], np.int8)}


class Picture(Tiny):
    """Dict observation of a small image and a vector: one switch follows the image, the other the number."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
                                              "sign": spaces.Box(-1, 1, (1,), np.float32)})
        self.action_space = spaces.MultiDiscrete([2, 2])

    def begin(self) -> Any:
        self.bright, self.sign = self.np_random.integers(2), self.np_random.integers(2)
        return self.obs()

    def obs(self) -> Any:
        return {"image": np.full((12, 12, 3), 255 * self.bright, np.uint8),
                "sign": np.array([2 * self.sign - 1], np.float32)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        return self.obs(), float((action == [self.bright, self.sign]).mean()), True, False, {}


class Misbehaving(Tiny):
    """Behaves for 40 steps, then does what `how` says; "slow start" and "close" misbehave there."""

    def __init__(self, how: str = "raise") -> None:
        super().__init__()
        self.how, self.age = how, 0
        if how == "refuse a child" and multiprocessing.parent_process():
            raise RuntimeError("no licence for two")
        if how == "slow start":
            time.sleep(3600)

    def close(self) -> None:
        if self.how == "close":
            raise RuntimeError("nothing left to close")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.age += 1
        self.t += 1
        obs, reward = self.obs(), 0.0
        if self.age > 40:
            if self.how == "raise" or (self.how == "raise in a child" and multiprocessing.parent_process()):
                raise RuntimeError("the simulator broke")
            match self.how:
                case "nan":
                    obs = np.full(1, np.nan, np.float32)
                case "shape":
                    obs = np.zeros(2, np.float32)
                case "reward":
                    reward = float("inf")
                case "exit":
                    sys.exit(0)
                case "hang":
                    time.sleep(3600)
        return obs, reward, False, self.t >= 25, {}


class Served(Bandit):
    """Has two processes beside it, and ends both by SIGTERM, which it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
        self.process.start()

    def close(self) -> None:
        for served in (self.program, self.process):
            served.terminate()
        self.program.wait()
        self.process.join()


class KilledInUpdate(Bandit):
    """Kills the first process of all that comes to its tenth step of the optimiser; creates the file `marker` then.

    It leaves a process that was forked from it, which holds its pipes open for ten seconds.
    """

    armed = False

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if not KilledInUpdate.armed:
            from vantage.learning.optimizers import FlatOptimizer

            KilledInUpdate.armed = True
            updates, move = itertools.count(1), FlatOptimizer.step

            def step(optimizer: FlatOptimizer, *args: Any) -> None:
                if next(updates) == 10:
                    self.die()
                move(optimizer, *args)

            FlatOptimizer.step = step  # type: ignore[method-assign]
        return super().step(action)

    def die(self) -> None:
        with contextlib.suppress(FileExistsError):
            open(self.marker, "x").close()
            if os.fork() == 0:
                time.sleep(10)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)


class TextObservation(Tiny):
    """Has an observation space that no network here takes."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(5)


class Signalling(DelayedReward):
    """At its 300th step takes one file of the working directory, if there is one, and sends the signal that it names.

    "worker" and "search" kill this process or its parent, "stop" interrupts both, as a terminal does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.count += 1
        signals = {"worker": (signal.SIGKILL, (os.getpid(),)), "search": (signal.SIGKILL, (os.getppid(),)),
                   "stop": (signal.SIGINT, (os.getpid(), os.getppid()))}
        for name, (number, processes) in signals.items() if self.count == 300 else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # so that each is sent once
                for process in processes:
                    os.kill(process, number)
                if number == signal.SIGKILL:
                    signal.pause()  # the death of the parent ends this process
                break
        return super().step(action)
