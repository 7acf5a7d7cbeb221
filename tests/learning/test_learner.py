"""One update: the host waits for the device once, and what is not finite is undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rollouts import begun
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vantage
from vantage.algorithms.ppo import PPO
from vantage.errors import NonFiniteError
from vantage.learning.learner import Learner
from vantage.learning.learner_state import tensors_of

SHORT: dict[str, Any] = {"env": "tiny:Bandit", "num_envs": 4, "rollout_length": 8, "hidden": "4", "threads": 1}
READS = ("item", "cpu", "numpy", "tolist", "__bool__", "__float__", "__int__", "__index__")


class HostReads(TorchDispatchMode):
    """Lists the operations for which a host waits on a GPU: conversions of tensors, and indexing by bools."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put_", "index_put") else []
        if name in ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal") or any(
                each is not None and each.dtype == torch.bool for each in indices):
            self.reads.append(name)
        return operation(*args, **(kwargs or {}))


@contextmanager
def host_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with monkeypatch.context() as patch, HostReads() as mode:
        for name in READS:
            patch.setattr(Tensor, name, noted(getattr(Tensor, name), name, mode.reads))
        yield mode.reads


def noted(method: Any, name: str, reads: list[str]) -> Any:
    def read(tensor: Tensor, *args: Any) -> Any:
        reads.append(name)
        return method(tensor, *args)

    return read


@pytest.mark.parametrize("options", [
    {"epochs": 3, "minibatch_size": 8, "activation": "elu"},
    {"epochs": 1, "minibatch_size": 8, "advantage_norm_over": "minibatch"},
    {"env": "tiny:ContinuousTarget", "epochs": 2, "value_clip": 0.2, "optimizer": "rmsprop_tf", "std": "state"},
    {"env": "tiny:Picture", "epochs": 2, "optimizer": "amsgrad", "minibatch_size": 16},
    {"env": "tiny:Picture", "epochs": 1, "minibatch_size": 4, "frame_stack": 2, "past_rollouts": 1,
     "image_norm": "pixel", "norm": "layer"}],
    ids=["epochs", "one-epoch", "box", "images", "past-images"])
def test_an_update_of_minibatches_is_read_once_at_its_end(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.models.normalization.PixelNormalizer._remembers", as_on_a_gpu)
    with begun(vantage.configure("ppo", **SHORT | {"max_grad_norm": 0.5} | options)) as one:
        one.advance(lambda: 0)  # makes what is made once
        (rollout,), _ = one.collect()
        if one.past is not None:
            one.past.add(rollout)
            rollout = one.past.all(rollout)
        with host_reads(monkeypatch) as reads:
            metrics = one.learner.update(rollout, 0)
    assert reads == ["tolist"] and metrics["train/grad_norm"] > 0


def as_on_a_gpu(normalizer: Any) -> bool:
    return False


# elu: a network that NumPy does not compute.
@pytest.mark.parametrize("options", [
    {"algorithm": "a2c", "activation": "elu"}, {"algorithm": "a2c", "env": "tiny:Picture", "frame_stack": 2},
    {"algorithm": "acer"}], ids=["a2c", "images", "acer"])
def test_an_update_of_one_step_reads_each_number_once(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(vantage.configure(**SHORT | options)) as one:
        one.advance(lambda: 0)
        (rollout,), _ = one.collect()
        with host_reads(monkeypatch) as reads:
            metrics = one.learner.update(rollout, 0)
    # The loss is read too, and the learning rate is a number.
    assert reads == ["__float__", "_local_scalar_dense"] * len(metrics)


def test_max_kl_is_read_in_each_minibatch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(vantage.configure("ppo", **SHORT, epochs=2, minibatch_size=8, max_kl=100.0, activation="elu")) as one:
        one.advance(lambda: 0)
        (rollout,), _ = one.collect()
        with host_reads(monkeypatch) as reads:
            one.learner.update(rollout, 0)
    assert reads.count("tolist") == 1 and reads.count("__float__") == reads.count("_local_scalar_dense") == 2 * 4
    assert len(reads) == 1 + 2 * 2 * 4


@dataclass(frozen=True)
class Spoiled(PPO):
    """PPO whose loss is not a number in its third minibatch, and raises where the weights are not."""

    def loss(self, model: Any, minibatch: Any, update: Any) -> Any:
        loss, metrics = super().loss(model, minibatch, update)
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise ValueError("the weights are not finite")
        update.average.add_(1)
        if update.average == 23:
            raise KeyboardInterrupt
        return torch.where(update.average == 3, torch.nan, 1.0) * loss, metrics


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop_tf", "AdamW"])
def test_an_update_that_fails_or_is_interrupted_in_a_minibatch_changes_nothing(
        optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure(f"{__name__}:Spoiled", **SHORT, epochs=2, minibatch_size=8, optimizer=optimizer,
                               eval_ema=0.9)
    with begun(config) as one:
        learner = one.learner
        coefficients = learner._coefficients
        for first in (10, 0):  # an update that learns, then one that fails
            calls = torch.tensor(first)
            monkeypatch.setattr(Learner, "_coefficients", lambda *_, calls=calls, **__: _with(coefficients(0), calls))
            (rollout,), _ = one.collect()
            before = {f"{group}/{name}": tensor.clone() for group, tensors in tensors_of(learner).items()
                      for name, tensor in tensors.items() if group != "minibatches"}
            if first:
                learner.update(rollout, 0)
                assert not torch.equal(before["model/value_head.weight"], learner.model.value_head.weight)
        with pytest.raises(NonFiniteError, match=r"loss nan, .*value targets of this process from .*"):
            learner.update(rollout, 0)
        monkeypatch.setattr(Learner, "_coefficients",
                            lambda *_, **__: _with(coefficients(0), torch.tensor(20)))
        with pytest.raises(KeyboardInterrupt):  # in the third minibatch, too
            learner.update(rollout, 0)
        after = {f"{group}/{name}": tensor for group, tensors in tensors_of(learner).items()
                 for name, tensor in tensors.items() if group != "minibatches"}
    assert before.keys() == after.keys()
    assert not [name for name in before if not torch.equal(before[name], after[name])]


def _with(update: Any, calls: Tensor) -> Any:
    object.__setattr__(update, "average", calls)
    return update
