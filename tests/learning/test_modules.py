"""Algorithms that own modules: they learn, are saved and resumed, and stay out of policies, in every runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from curious import Distilled
from rollouts import begun
from safetensors.torch import load_file
from stopping import saved_tensors, stop_after, tensors_of_an_exact_resume
from torch import nn

import vantage
from vantage.algorithms.a2c import A2C
from vantage.errors import ConfigError
from vantage.learning.minibatches import Pieces, minibatches
from vantage.learning.modules import Buffers
from vantage.tools.export import export

SHORT: dict[str, Any] = {"env": "CartPole-v1", "num_envs": 4, "rollout_length": 16, "steps": 512, "hidden": "8",
                         "threads": 1, "tensorboard": False, "eval_every": 0, "log_every_seconds": 1000}
REUSE = {"epochs": 2, "minibatch_size": 32}
CASES: dict[str, dict[str, Any]] = {
    "rnd": {"algo": "rnd:RND", **REUSE},
    "auxiliary-loss-with-gru": {"algo": "auxiliary_loss:PredictingPPO", "memory": "gru", "memory_size": 4, **REUSE},
    "a2c": {"algo": "curious:CuriousA2C", "optimizer": "AdamW"},
    "acer": {"algo": "curious:CuriousACER", "replay_start": 64, "replay_size": 512},
    "rnd-in-two-processes": {"algo": "rnd:RND", "num_workers": 2, **REUSE},
}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")


def configure(algo: str, **options: Any) -> vantage.Config:
    return vantage.configure(algo, **SHORT | options)


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_and_resumed_run_has_the_module_of_the_uninterrupted_bit_for_bit(case: str, tmp_path: Path) -> None:
    whole = tensors_of_an_exact_resume(configure(**CASES[case]), tmp_path)
    assert any(name.startswith("module/") for name in whole)


@pytest.mark.parametrize("algo", ["rnd:RND", "auxiliary_loss:PredictingPPO"])
def test_the_predictors_of_the_examples_learn_what_they_see(algo: str) -> None:
    with begun(configure(algo, seed=3)) as one:
        errors = [one.advance(lambda: 0).metrics["train/prediction_loss"] for _ in range(12)]
    assert sum(errors[-3:]) < 0.5 * sum(errors[:3])


def test_a_frozen_network_stays_while_the_rest_of_the_module_learns() -> None:
    with begun(configure("curious:CuriousA2C", optimizer="AdamW")) as one:
        module = one.learner.module
        assert isinstance(module, Distilled)
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        for _ in range(3):
            one.advance(lambda: 0)
        moved = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"predictor.weight", "predictor.bias", "mean", "count"} and module.count == 3


def test_a_module_is_made_by_the_runs_seed_alone() -> None:
    weights = []
    for seed, stream in ((0, 0), (0, 1), (1, 0)):
        torch.manual_seed(stream)
        with begun(configure("curious:CuriousA2C", seed=seed), index=stream) as one:
            assert isinstance(one.learner.module, Distilled)
            weights.append(one.learner.module.target.weight.clone())
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_policies_and_the_average_leave_the_module_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with begun(configure("curious:CuriousACER", replay_start=64, replay_size=512)) as one:
        learner = one.learner
        assert learner.average is not None and len(learner.average.vector) < len(learner.flat.vector)
    list(vantage.Trainer(configure("rnd:RND", **REUSE, eval_every=256, eval_episodes=1), run=run))
    assert {path.stem for path in (run / "best").glob("*.safetensors")} <= {"model", "rewards"}
    policy = {name.removeprefix("model/") for name in saved_tensors(run) if name.startswith("model/")}
    file = export(run, format="safetensors", trust=True).path
    assert {name.removeprefix("model.") for name in load_file(file)} <= policy | {"rewards.mean"}
    graph = onnx.load(export(run, format="onnx", trust=True).path).graph
    assert graph.initializer and not [each.name for each in graph.initializer if "predictor" in each.name]


def test_minibatches_have_the_next_inputs_and_what_estimate_adds_of_the_same_steps() -> None:
    with begun(configure("rnd:RND", rollout_length=40)) as one:
        (rollout,), _ = one.collect()
        rollout = one.learner._prepared(rollout, 0)
        model = one.model
        expected = model.inputs(model.stacks(rollout.obs, rollout.is_first, rollout.state))[0]
        index = torch.arange(rollout.rewards.numel()).view_as(rollout.rewards)
        pieces = Pieces(32, 1, torch.Generator().manual_seed(0))
        for minibatch in minibatches(rollout, rollout.rewards, rollout.rewards, model, pieces, {"index": index}):
            t, env = minibatch.extra["index"] // 4, minibatch.extra["index"] % 4
            assert minibatch.next_inputs is not None
            assert torch.equal(minibatch.inputs[0], expected[t, env])
            assert torch.equal(minibatch.next_inputs[0], expected[t + 1, env])
    assert rollout.is_first[1:].any(), "an episode has ended"


def test_processes_take_the_mean_of_buffers_and_the_firsts_whole_numbers() -> None:
    module = Distilled(1)
    rows = torch.tensor([[1.0, 2.0, 7.0], [3.0, 5.0, 9.0]], dtype=torch.float64)
    Buffers(module).merge(rows)
    assert module.mean.tolist() == [2.0, 3.5] and module.count == 7
    assert Buffers(module).read().tolist() == [2.0, 3.5, 7.0]


@dataclass(frozen=True)
class Odd(A2C):
    """Builds what cannot be trained."""

    result: str = "text"

    def build(self, spec: Any, model: Any) -> Any:
        results = {"text": "text", "double": nn.Linear(1, 1).double(), "lazy": nn.LazyLinear(3)}
        return results[self.result]


@pytest.mark.parametrize(("result", "says"), [
    ("text", "must return an nn.Module or None, not str"), ("double", "weight is torch.float64"),
    ("lazy", "weight is UninitializedParameter")])
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_build_that_returns_anything_else_is_named(result: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        list(vantage.Trainer(configure(f"{__name__}:Odd", result=result), run=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_without_the_module_is_refused_in_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(2, run, configure("a2c"))
    config = json.loads((run / "config.json").read_text())
    config["algo"] = "curious:CuriousA2C"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="it has no module of algorithm=curious:CuriousA2C"):
        list(vantage.Trainer.resume(run, trust=True))


@dataclass(frozen=True)
class Wide(A2C):
    """An algorithm whose module has another size in each instance of the class."""

    width: int = 2

    def build(self, spec: Any, model: Any) -> nn.Module:
        return nn.Linear(1, self.width + Wide.more)

    more = 0


def test_a_module_of_another_size_at_a_resume_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    stop_after(2, run, configure(f"{__name__}:Wide"))
    monkeypatch.setattr(Wide, "more", 1)
    with pytest.raises(ConfigError, match=r"returns another module than when.*weight was \[2, 1\] and is \[3, 1\]"):
        list(vantage.Trainer.resume(run))


def test_another_algorithm_at_a_resume_is_the_fault_and_not_the_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(2, run, configure(f"{__name__}:Wide"))
    with pytest.raises(ConfigError, match=r"width.*hand over the algorithm that the run was trained with"):
        vantage.resume(run, algorithm=vantage.A2C)


def test_the_start_names_the_modules_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        stop_after(1, tmp_path / "run", configure("curious:CuriousA2C"))
    assert "module of curious:CuriousA2C: 15 weights learned, 15 fixed, 3 numbers in buffers" in caplog.text
