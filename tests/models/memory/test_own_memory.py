"""A memory of the user's own: trained, resumed, evaluated and exported as the built-in ones, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import own_memories
import pytest
import torch

import vantage
from vantage.models.config import PolicyConfig
from vantage.models.memory import make_memory, unroll
from vantage.models.memory.interface import Memory
from vantage.tools.export import export

FAST: dict[str, Any] = {"num_envs": 8, "rollout_length": 10, "lr": "5e-3", "gamma": "0.95", "entropy_coef": "0.01",
                        "optimizer": "adam", "separate": False, "obs_norm": False, "reward_norm": False,
                        "eval_every": 0, "threads": 1, "hidden": "32", "tensorboard": False, "seed": 0,
                        "log_every_seconds": 1000, "memory": own_memories.Average, "memory_size": 16}


def train(run: Path, algo: str = "a2c", steps: int = 320, **keys: Any) -> Any:
    """The last report of a training on the task that needs a memory."""
    *_, last = vantage.Trainer(vantage.configure(algo, env="tiny:Recall", steps=steps, **FAST | keys), run=run)
    assert last.status == "done"
    return last


def weights(run: Path) -> dict[str, torch.Tensor]:
    return vantage.load(run, checkpoint="latest").model.state_dict()


def memory(name: str, size: int = 4) -> Memory:
    torch.manual_seed(0)
    return make_memory(PolicyConfig(memory=f"own_memories:{name}", memory_size=size), 5)


def test_it_learns_what_needs_a_memory_and_is_evaluated(tmp_path: Path) -> None:
    last = train(tmp_path / "run", steps=40_000, stop_at_return=0.92)
    assert last.metrics["rollout/ep_rew_mean"] > 0.9, "0.5 without a memory"
    assert vantage.evaluate(tmp_path / "run", episodes=50, checkpoint="latest").return_mean > 0.9


@pytest.mark.parametrize(("algo", "keys"), [
    ("a2c", {"separate": True}), ("a2c", {"bptt": False}), ("ppo", {"minibatch_size": 20, "epochs": 2}),
    ("acer", {"replay_start": 80, "replay_size": 1_000, "lr": "1e-3"})])
def test_a_resumed_run_equals_one_that_never_stopped(algo: str, keys: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path / "whole", algo, **keys)
    train(tmp_path / "halves", algo, steps=160, **keys)
    for _ in vantage.Trainer.resume(tmp_path / "halves", steps=320):
        pass
    whole, halves = weights(tmp_path / "whole"), weights(tmp_path / "halves")
    assert "actor.memory.decay" in whole
    assert all(torch.equal(tensor, halves[name]) for name, tensor in whole.items())


def test_it_trains_in_worker_processes(tmp_path: Path) -> None:
    train(tmp_path / "run", "a3c", num_workers=2)
    assert "actor.memory.decay" in weights(tmp_path / "run")


def test_it_is_exported_to_onnx_under_numbered_names_or_refused_in_one_line(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=80)
    result = export(tmp_path / "run", format="onnx")
    assert result.difference < 1e-5
    assert result.inputs == ("obs", "is_first", "state.memory_0")
    train(tmp_path / "other", steps=80, memory=own_memories.ByHand)
    with pytest.raises(vantage.VantageError, match=r"memory=own_memories:ByHand as ONNX: .*use format=.safet") as error:
        export(tmp_path / "other", format="onnx")
    assert "\n" not in str(error.value)
    assert export(tmp_path / "other", format="safetensors").difference == 0


@pytest.mark.parametrize("name", ["Average", "Unrolled"])
def test_an_unroll_is_a_loop_of_steps_and_without_bptt_no_gradient_crosses_them(name: str) -> None:
    own = memory(name)
    assert own.out_features == 9, "read off the output where the class does not declare it"
    features, is_first = torch.randn(6, 3, 5), torch.zeros(6, 3, dtype=torch.bool)
    is_first[3, 1] = True
    through, cut = (features.clone().requires_grad_() for _ in range(2))
    outputs = [unroll(own, x, is_first, own.initial_state(3), bptt=bptt)
               for x, bptt in ((through, True), (cut, False))]
    torch.testing.assert_close(*outputs)
    for x, output in zip((through, cut), outputs, strict=True):
        output[-1].sum().backward()
        assert x.grad is not None
    assert through.grad[0, 0].any() and not through.grad[0, 1].any(), "environment 1 began anew at step 3"
    assert not cut.grad[:-1].any() and cut.grad[-1].all()


@pytest.mark.parametrize(("name", "message"), [
    ("SwappedUnroll", r"unroll returned float32 \[3, 4, 9\] for 4 steps of 3 environments, expected .*\[4, 3, 9\]"),
    ("NeverForgetting", "unroll differs by .* from as many calls of step"),
    ("Clinging", "where is_first is True, step does not begin from initial_state"),
    ("GrowingState", r"step returned the state \(float32 \[3, 8\]\), expected \(float32 \[3, 4\]\)"),
    ("OutputAlone", r"step returned float32 \[3, 9\], and has to return the pair"),
    ("Narrow", r"step returned outputs float32 \[3, 9\] for a batch of 3, expected \[3, 7\]"),
    ("NoBatch", r"initial_state\(3\) returned \(float32 \[4\]\), and the first axis"),
    ("ForgettingAll", "if is_first is True in one row of a batch, step changes the outputs of others"),
    ("Mixing", "step computes other outputs for a batch of one than for the same row"),
    ("Noisy", "step computes other outputs when it is called again with the same arguments"),
    ("OnSelf", "step computes other outputs when it is called again with the same arguments"),
    ("InPlace", "step changes the tensors of the state that it is given"),
    ("Double", r"step returned outputs of torch\.float64, expected torch\.float32"),
    ("NotANumber", "step returned outputs that are not finite"),
    ("Stateless", "it has no method initial_state"),
    ("BareState", r"step returned the state as float32 \[3, 4\], and has to return a tuple"),
    ("ListState", r"initial_state\(batch\) returned a list, and has to return a tuple"),
    ("Failing", r"mat1 and mat2 .*\(line \d+ of .*own_memories\.py\); it must be"),
    ("Dropping", "it has dropout or other randomness"),
    ("Positional", r"unexpected keyword argument 'input_size'.*called with input_size= and memory_size="),
    ("nothing", "it is a NoneType, not an nn.Module"), ("Absent", "has no class 'Absent'")])
def test_a_class_that_breaks_the_interface_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(vantage.ConfigError, match=message) as error:
        memory(name)
    assert "\n" not in str(error.value)


def test_a_run_of_someone_else_needs_trust_for_the_code_of_its_memory() -> None:
    from vantage.runs.trust import foreign_code

    assert foreign_code({"policy": {"memory": "own_memories:Average"}}) == ["own_memories:Average"]
    assert foreign_code({"policy": {"memory": "lstm"}}) == []


def test_a_memory_that_is_built_already_is_copied_for_actor_and_critic(tmp_path: Path) -> None:
    built = own_memories.Average(input_size=32, memory_size=16)
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    for i, given in enumerate((built, lambda **sizes: built)):
        run = tmp_path / str(i)
        train(run, steps=160, separate=True, memory=given)
        trained = vantage.load(run, memory=given).model.state_dict()
        assert not torch.equal(trained["actor.memory.decay"], trained["critic.memory.decay"])
        assert all(torch.equal(built.state_dict()[name], tensor) for name, tensor in before.items())


def test_none_is_no_memory_and_states_may_be_arrays(tmp_path: Path) -> None:
    assert vantage.configure("ppo", env="CartPole-v1", memory=None).policy.memory == "none"
    train(tmp_path / "run", steps=160)
    agent = vantage.load(tmp_path / "run", checkpoint="latest")
    obs = np.zeros(agent.model.spec.parts[0].shape, np.float32)
    action, state = agent.act(obs, agent.initial_state(), deterministic=True)
    arrays = tuple(part.numpy() for part in agent.initial_state())
    again, after = agent.act(obs, arrays, deterministic=True)
    assert action == again and torch.equal(state[0], after[0])
