"""The recipe of docs/migrate-sb3.md: a migrated policy computes what the original computes."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vantage

PAGE = Path(__file__).parents[2] / "docs/migrate-sb3.md"


class MlpPolicy(nn.Module):
    """The modules of Stable-Baselines3's ActorCriticPolicy, under its names."""

    def __init__(self, inputs: int, actions: int, *, box: bool) -> None:
        super().__init__()
        self.mlp_extractor = nn.ModuleDict({"policy_net": self.layers(inputs), "value_net": self.layers(inputs)})
        self.action_net = nn.Linear(64, actions)
        self.value_net = nn.Linear(64, 1)
        if box:
            self.log_std = nn.Parameter(torch.full((actions,), -0.3))

    @staticmethod
    def layers(inputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits or means, and values."""
        params = self.action_net(self.mlp_extractor["policy_net"](obs))
        return params, self.value_net(self.mlp_extractor["value_net"](obs)).squeeze(-1)


@pytest.mark.parametrize(("env", "inputs", "actions"), [("CartPole-v1", 4, 2), ("Pendulum-v1", 3, 1)])
def test_a_migrated_policy_computes_what_the_original_computes(env: str, inputs: int, actions: int,
                                                               tmp_path: Path) -> None:
    torch.manual_seed(0)
    box = env == "Pendulum-v1"
    original = MlpPolicy(inputs, actions, box=box)
    torch.save(original.state_dict(), tmp_path / "policy.pth")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        file.write(tmp_path / "policy.pth", "policy.pth")
    names: dict[str, Any] = {}
    exec(re.findall("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0], names)
    agent = names["migrate"](tmp_path / "model.zip", env)
    obs = torch.randn(5, inputs)
    params, values, _ = agent.model.step_with_values(obs, torch.ones(5, dtype=torch.bool), ())
    expected, expected_values = original(obs)
    torch.testing.assert_close(params[:, :actions], expected)
    torch.testing.assert_close(values, expected_values)
    if box:
        torch.testing.assert_close(params[0, 1:], original.log_std)
    agent.save(tmp_path / "policy.safetensors")
    further = vantage.train("ppo", env=env, init_from=str(tmp_path / "policy.safetensors"), steps=64, hidden=[64, 64],
                            activation="tanh", separate=True, obs_norm=False, scale_actions=False, num_envs=2,
                            rollout_length=16, minibatch_size=16, epochs=1, eval_every=0, threads=1, lr=1e-9)
    assert further.step == 64
    torch.testing.assert_close(further.model.state_dict()["value_head.weight"], original.value_net.weight)
