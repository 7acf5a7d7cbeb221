"""A3C of PFRL, from its package, on Pong: the classic form, one environment a process. A contestant of throughput.py.

Agent, optimiser and training loop are PFRL's own. Its Atari wrappers are not: they need a gym of before 2022, which
today's ale_py does not serve. The game comes through Gymnasium's wrappers and an adapter to the old interface instead.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep
from typing import Any


class OldInterface:
    """Gymnasium's Pong with the `reset` and the `step` that PFRL calls; preprocessed as Stable-Baselines3's is."""

    def __init__(self, seed: int) -> None:
        import ale_py
        import gymnasium
        import numpy as np
        from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        game = AtariPreprocessing(gymnasium.make("PongNoFrameskip-v4"), terminal_on_life_loss=True)
        self.env = FrameStackObservation(TransformReward(game, np.sign), 4)
        self.num_actions = int(self.env.action_space.n)
        self.env.reset(seed=seed)

    def reset(self) -> Any:
        return self.env.reset()[0]

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, bool]]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, float(reward), terminated, {"needs_reset": truncated}

    def close(self) -> None:
        self.env.close()


def make_agent(num_actions: int, rollout_length: int) -> Any:
    """PFRL's A3C with the Nature CNN and the coefficients of the other contestants, its losses as means over time."""
    import numpy as np
    from pfrl.agents.a3c import A3C
    from pfrl.nn import Branched
    from pfrl.optimizers import SharedRMSpropEpsInsideSqrt
    from pfrl.policies import SoftmaxCategoricalHead
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        Branched(nn.Sequential(nn.Linear(512, num_actions), SoftmaxCategoricalHead()), nn.Linear(512, 1)))
    optimizer = SharedRMSpropEpsInsideSqrt(model.parameters(), lr=7e-4, eps=1e-5, alpha=0.99)
    return A3C(model, optimizer, t_max=rollout_length, gamma=0.99, beta=0.01, v_loss_coef=0.5, max_grad_norm=0.5,
               normalize_grad_by_t_max=True, phi=lambda obs: np.asarray(obs, np.float32) / 255)


def train_pfrl(cores: int, folder: Path, *, rollout_length: int) -> Callable[[float], int]:
    """Training under way, a worker for each core: a function that lets it go on for so many seconds."""
    import torch
    from pfrl.experiments import train_agent_async

    logging.getLogger("pfrl").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    # PFRL hands closures to its processes, which only a fork takes; Python 3.14 no longer forks by default.
    torch.multiprocessing.set_start_method("fork", force=True)
    probe = OldInterface(0)
    agent = make_agent(probe.num_actions, rollout_length)
    probe.close()
    reached = multiprocessing.get_context("fork").RawValue("q", 0)

    def count(env: Any, agent: Any, step: int) -> None:
        reached.value = step

    training = Thread(target=train_agent_async, daemon=True, kwargs={
        "outdir": str(folder), "processes": cores, "make_env": lambda worker, test: OldInterface(worker),
        "agent": agent, "steps": 10**9, "eval_interval": None, "global_step_hooks": [count],
        "random_seeds": list(range(cores))})  # its own are of a type that random.seed no longer takes
    training.start()

    def segment(seconds: float) -> int:
        before, deadline = reached.value, perf_counter() + seconds
        while perf_counter() < deadline:
            if not training.is_alive():
                raise SystemExit("PFRL's workers have ended; their error is above")
            sleep(0.05)
        return reached.value - before

    return segment
