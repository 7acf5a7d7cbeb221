"""Reports on networks of one's own: frozen, tied, lazy, strided, in half precision, without a copy.

Weight decay of frozen weights: github.com/pytorch/pytorch/issues/150610,
github.com/KellerJordan/Muon/issues/54, github.com/ahrefs/ocannl/issues/673.
Precision: github.com/DLR-RM/stable-baselines3/issues/344.
Tied weights in safetensors: github.com/safetensors/safetensors/issues/98 and 304.
Copies: github.com/eleurent/rl-agents/issues/74.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from environments import make
from torch import Tensor

import vantage
from vantage.config.config import Config
from vantage.learning.collect import Position, collect
from vantage.learning.learner import Learner
from vantage.models.build import make_model


def learn(
    network: str, updates: int = 3, algo: str = "a2c", **keys: object
) -> tuple[dict[str, Tensor], Learner]:
    """The weights of `network` before some updates, and the learner after them."""
    flat = {"env": "tiny:Bandit", "num_envs": 4, "network": f"public_envs:{network}", **keys}
    config = Config.of(algo).override(flat, source="test")
    envs, generator = make("tiny:Bandit", 4), torch.Generator().manual_seed(0)
    learner = Learner(
        make_model(config.policy, envs.spec, critic=config.algorithm.needs.critic), config
    )
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    position = Position.after(envs.reset(), learner.model.initial_state(4), torch.device("cpu"))
    for step in range(updates):
        collected = collect(learner.model, envs, position, length=8, generator=generator)
        position = collected.position
        assert all(
            torch.tensor(value).isfinite()
            for value in learner.update(collected.rollout, step).values()
        )
    return before, learner


def moved(before: dict[str, Tensor], learner: Learner, part: str) -> list[bool]:
    """Whether the weights whose names contain `part` have changed."""
    after = learner.model.state_dict()
    return [not torch.equal(before[name], after[name]) for name in before if part in name]


@pytest.mark.parametrize("optimizer", ["AdamW", "Adam", "SGD", "adam", "rmsprop_tf"])
def test_weights_without_a_gradient_stay_whatever_the_optimiser(optimizer: str) -> None:
    before, learner = learn("Frozen", optimizer=optimizer, lr="1e-2")
    assert moved(before, learner, "network.linear.") == [False, False]
    assert moved(before, learner, "network.last.") == [True, True]


@pytest.mark.parametrize("network", ["Half", "Double", "Strided", "Lazy", "Tied"])
@pytest.mark.parametrize("algo", ["a2c", "acer"])
def test_any_floats_in_any_order_of_memory_are_features(network: str, algo: str) -> None:
    before, learner = learn(network, algo=algo, lr="1e-2")
    assert any(moved(before, learner, ".network."))
    assert {parameter.dtype for parameter in learner.model.parameters()} == {torch.float32}


def test_tied_weights_are_still_one_after_an_update() -> None:
    _, learner = learn("Tied")
    (torso,) = (module for module in learner.model.modules() if type(module).__name__ == "Tied")
    assert torso.first.weight is torso.second.weight
    assert torch.equal(torso.first.weight, torso.second.weight)


def test_weights_in_half_precision_are_named_with_the_remedy() -> None:
    with pytest.raises(
        vantage.ConfigError, match=r"its weights are torch\.float16; keep them float32"
    ):
        learn("HalfWeights")


def test_a_network_that_cannot_be_copied_is_named_where_a_copy_is_needed() -> None:
    learn("Locked", updates=1)
    with pytest.raises(vantage.ConfigError, match="which cannot be copied: cannot pickle"):
        learn("Locked", algo="acer")


def test_a_network_and_an_algorithm_of_a_package_import_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "neighbours"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("WIDTH = 8\n")
    (package / "nets.py").write_text(
        "from torch import nn\nfrom .sizes import WIDTH\n\n\n"
        "class Net(nn.Sequential):\n    def __init__(self, shape):\n"
        "        super().__init__(nn.Linear(shape[0], WIDTH))\n"
    )
    (package / "losses.py").write_text(
        "from vantage import A2C\nfrom .sizes import WIDTH\n\n\n"
        "class Mine(A2C):\n    def loss(self, *args):\n        loss, terms = super().loss(*args)\n"
        '        return loss, {**terms, "train/width": loss.detach() * 0 + WIDTH}\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = vantage.configure(
        "neighbours.losses:Mine",
        env="tiny:Bandit",
        network="neighbours.nets:Net",
        steps=20,
        num_envs=2,
        eval_every=0,
        tensorboard=False,
        threads=1,
    )
    reports = [
        report.metrics for report in vantage.Trainer(config, run=tmp_path / "run") if report.metrics
    ]
    assert reports[-1]["train/width"] == 8
