"""Networks named by an import path: the example trains, and what cannot be used is refused with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import vantage
from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.models.torsos import make_torso
from vantage.types import ArraySpec

EXAMPLE = Path(__file__).parents[2] / "examples" / "residual_attention_torso.py"
NETWORK = "residual_attention_torso:ResidualAttention"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(vantage.__file__).parents[1])}


class Plain(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Brightest(nn.Module):
    out_features = 1

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).amax(1, keepdim=True)


class Wrong(Brightest):
    out_features = 3


def torso(name: str, spec: ArraySpec, norm: str = "none") -> nn.Module:
    return make_torso(f"{__name__}:{name}", spec, PolicyConfig(frame_stack=2, norm=norm))


def test_out_features_are_inferred_and_images_are_scaled_to_one() -> None:
    assert torso("Plain", ArraySpec("vector", (3,))).out_features == 7
    images = torch.full((4, 2, 5, 5), 255, dtype=torch.uint8)
    network = torso("Brightest", ArraySpec("image", (1, 5, 5)))
    torch.testing.assert_close(network(images), torch.ones(4, 1))
    torch.testing.assert_close(network(images.float()), torch.ones(4, 1))


def test_a_class_that_cannot_be_used_is_refused_with_the_reason() -> None:
    image = ArraySpec("image", (1, 5, 5))
    with pytest.raises(ConfigError, match=r"Wrong.*output is \[2, 1\].*it must be an nn.Module class"):
        torso("Wrong", image)
    with pytest.raises(ConfigError, match="has no class 'Absent'"):
        torso("Absent", image)
    with pytest.raises(ConfigError, match="norm=layer is not for network"):
        torso("Plain", ArraySpec("vector", (3,)), norm="layer")


def test_the_example_trains_and_its_checkpoint_needs_the_module(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    command = [sys.executable, "-m", "vantage.cli", "train", "a2c", "--env", "vantage/Snake-v0", "--network", NETWORK,
               "--steps", "80", "--num-envs", "2", "--threads", "1", "--num-workers", "1", "--tensorboard", "false",
               "--eval-every", "0", "--run", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    load = [sys.executable, "-c", "import vantage; print(vantage.load('run').model.actor.torsos[0])"]
    loaded = subprocess.run(load, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0 and "ResidualAttention" in loaded.stdout, loaded.stderr
    (tmp_path / EXAMPLE.name).unlink()
    with pytest.raises(ConfigError, match=r"module 'residual_attention_torso' cannot be imported.*start in the folder"):
        vantage.load(tmp_path / "run")
