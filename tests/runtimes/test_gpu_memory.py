"""Whether workers fit in the memory of GPUs: the arithmetic, and what it starts from. Needs no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import vantage
from vantage.learning.collect import Position
from vantage.learning.learner import Learner
from vantage.models.actor_critic import make_model
from vantage.runtimes.gpu_memory import CONTEXT_BYTES, estimate, fit, worker_bytes
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.system import free_gpu_memory

GIB = 2**30
IMAGE = EnvSpec(ArraySpec("image", (1, 84, 84)), ActionSpec("discrete", (6,)))


def needs(*, length: int = 4, num_envs: int = 2, spec: EnvSpec = IMAGE, **options: Any) -> int:
    """The estimate, beside what every process needs."""
    algo = options.pop("algo", "a3c")
    config = vantage.configure(algo, env="Pong", num_envs=num_envs, **options)
    torch.manual_seed(0)
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)
    obs = torch.zeros(num_envs, *spec.obs.shape, dtype=torch.uint8)  # type: ignore[union-attr]
    position = Position(obs, torch.ones(num_envs, dtype=torch.bool), None, model.initial_state(num_envs))
    return estimate(Learner(model, config), position, length=length, num_envs=num_envs) - CONTEXT_BYTES


def test_a_worker_needs_its_weights_two_rollouts_and_activations_with_their_gradients() -> None:
    assert worker_bytes(weights=5, rollout=10, activations=100) == CONTEXT_BYTES + 5 + 20 + 200


@pytest.mark.parametrize("options", [{}, {"memory": "lstm"}, {"algo": "acer", "runtime": "hogwild"}],
                         ids=["frames", "lstm", "acer"])
def test_the_estimate_grows_with_rollouts_and_environments(options: dict[str, Any]) -> None:
    once, longer, wider = needs(**options), needs(length=64, **options), needs(num_envs=32, **options)
    assert 1.5 * once < longer < 16 * once
    assert 1.5 * once < wider < 16 * once


def test_the_estimate_holds_the_frames_and_the_outputs_of_the_convolutions() -> None:
    options = {"network": "a3c", "memory": "none", "frame_stack": 4}
    floats = 4 * 84 * 84 + 16 * 20 * 20 + 32 * 9 * 9 + 256  # of each observation: stacked, and after each layer
    growth = needs(length=104, **options) - needs(length=4, **options)
    assert 2 * 4 * floats * 100 * 2 <= growth <= 2 * 2 * 4 * floats * 100 * 2


def test_what_fits_is_told() -> None:
    assert fit(GIB, 3, ["cuda:0", "cuda:1"], {"cuda:0": 2 * GIB, "cuda:1": 8 * GIB}) == (
        "GPU memory, as estimated, 1.0 GiB a worker; cuda:0: 2 workers, 2.0 GiB of 2.0 GiB free; "
        "cuda:1: 1 worker, 1.0 GiB of 8.0 GiB free")


def test_a_device_of_which_nothing_is_known_is_not_judged() -> None:
    assert fit(GIB, 100, ["cuda:0"], {}).endswith("cuda:0: 100 workers, 100.0 GiB")
    assert "cpu" not in fit(GIB, 4, ["cpu", "cuda:0"], {"cuda:0": 2 * GIB})


@pytest.mark.parametrize(("devices", "free", "remedy"), [
    (["cuda:0"], {"cuda:0": 8 * GIB - 1}, "give --num-workers 7,"),
    (["cuda:0", "cuda:1"], {"cuda:0": 2 * GIB, "cuda:1": 80 * GIB}, "give --num-workers 4,"),
    (["cuda:0", "cuda:1"], {"cuda:0": 80 * GIB, "cuda:1": 0}, "give --num-workers 1,"),
    (["cuda:0"], {"cuda:0": GIB - 1}, "or use a3c"),
])
def test_what_does_not_fit_is_refused_with_the_number_that_would(
        devices: list[str], free: dict[str, int], remedy: str) -> None:
    with pytest.raises(vantage.ConfigError, match=f"num_workers=8 do not fit.*{remedy}"):
        fit(GIB, 8, devices, free)


def test_free_memory_is_what_nvidia_smi_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert free_gpu_memory() == {}, "no such tool"
    tool = tmp_path / "nvidia-smi"
    for says, means in (("GPU-12ab-34, 79000\nGPU-5, [N/A]", {"GPU-12ab-34": 79000 * 2**20}), ("no devices", {})):
        tool.write_text(f"#!/bin/sh\necho '{says}'\n")
        os.chmod(tool, 0o755)
        assert free_gpu_memory() == means
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert free_gpu_memory() == {}, "no driver"
