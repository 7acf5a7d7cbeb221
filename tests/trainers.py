"""Small trainings that tests step themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import vantage
from vantage.runs.checkpoint import load_latest

SMALL: dict[str, Any] = {"steps": 10**6, "num_envs": 2, "rollout_length": 8, "hidden": [8], "eval_every": 0,
                         "tensorboard": False, "threads": 1, "log_every_seconds": 1000}


def start(algo: str = "a2c", env: Any = "tiny:Bandit", run: str = "run", **keys: Any) -> vantage.Trainer:
    return vantage.Trainer(algo, env=env, run=run, **{**SMALL, **keys})


def parameters(agent: vantage.Agent) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in agent.model.parameters()])


def weights(run: str) -> torch.Tensor:
    return torch.cat([tensor.flatten().float() for tensor in load_latest(Path(run)).tensors["model"].values()])
