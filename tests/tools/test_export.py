"""Exported policies: ONNX files and policy files compute what the model does, and a wrong file is refused."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

import vantage
from vantage._host import extras
from vantage.agents.agent import Agent, load
from vantage.algorithms.distributions import MASKED
from vantage.cli import main
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.models.build import make_model
from vantage.runs import checkpoint
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import read_weights, write_weights
from vantage.runs.spec_json import spec_from_json, spec_to_json
from vantage.runtimes.progress import Progress
from vantage.tools.export import Export, compare, export
from vantage.tools.onnx_policy import PolicyStep
from vantage.types import ActionSpec, ArraySpec, EnvSpec

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (1, 20, 21))
DISCRETE, BOX = ActionSpec("discrete", (4,)), ActionSpec("box", (2,), (-1.0, -0.5), (0.5, float("inf")))
SIMPLE = EnvSpec(VECTOR, DISCRETE)


def make_run(path: Path, spec: EnvSpec = SIMPLE, **keys: Any) -> Path:
    """A run with one checkpoint of random weights; its environment does not exist."""
    config = Config().change(env="nowhere:Env", **{"hidden": "8", "memory_size": 5, "init": "torch", **keys})
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)
    parts = spec.obs if isinstance(spec.obs, Mapping) else {"": spec.obs}
    seen = {key: 5 + 3 * torch.randn(50, 1, *part.shape) for key, part in parts.items()}
    model.observe(seen if isinstance(spec.obs, Mapping) else seen[""])
    directory = RunDirectory.create(config, path=path, argv=())
    state = {"spec": spec_to_json(spec), "progress": Progress(1.0).state() | {
        "step": 1000, "episodes": 2, "recent": [[1.0, 5], [4.0, 5]], "best_return": 7.5}}
    checkpoint.save(directory.path, 1000, tensors={"model": model.state_dict()}, state=state, keep=1)
    return path


@pytest.fixture(autouse=True)
def no_warning_of_foreign_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's module does not exist; the warning that names it is tested in test_trust.py."""
    monkeypatch.setattr(logging.getLogger("vantage.runs.trust"), "disabled", True)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


POLICIES: dict[str, tuple[EnvSpec, dict[str, Any]]] = {
    "frame-stack": (EnvSpec(IMAGE, DISCRETE), {"frame_stack": 3, "network": "universe", "stack_pad": "repeat",
                                              "norm": "layer"}),
    "lstm": (SIMPLE, {"memory": "lstm", "algo": "acer"}),
    "gtrxl": (SIMPLE, {"memory": "gtrxl", "memory_size": 8, "memory_window": 5, "memory_layers": 1}),
    "continuous": (EnvSpec(VECTOR, BOX), {"std": "state", "min_std": 0.5, "obs_norm": True, "separate": True}),
    "dictionary": (EnvSpec({"pos/x": VECTOR, "camera": IMAGE}, DISCRETE),
                   {"obs_norm": True, "frame_stack": 2, "network": "mlp"}),
    "beta": (EnvSpec(VECTOR, ActionSpec("box", (2,), (-1.0, -0.5), (0.5, 2.0))), {"distribution": "beta"}),
    "masked": (EnvSpec(VECTOR, ActionSpec("multi_discrete", (3, 2)), masked=True), {"memory": "gru", "separate": True}),
}


def torch_step(agent: Agent, inputs: Mapping[str, torch.Tensor], state: Any) -> tuple[Any, Any, Any, Any]:
    """Parameters, values, most probable actions and the next state, by the model itself."""
    obs = inputs["obs"] if "obs" in inputs else {key: inputs[f"obs.{key}"] for key in agent.model.keys}
    is_first = inputs.get("is_first", torch.zeros(len(next(iter(inputs.values()))), dtype=torch.bool))
    with torch.no_grad():
        params, values, after = agent.model.step_with_values(obs, is_first, state, inputs.get("action_mask"))
    actions = agent.model.distribution.mode(params)
    if agent.model.spec.action.kind == "box":
        actions = actions.clamp(torch.tensor(BOX.low), torch.tensor(BOX.high))
    return params, values, actions, after


@pytest.mark.parametrize("name", POLICIES)
def test_onnx_computes_what_torch_does(name: str, tmp_path: Path) -> None:
    spec, keys = POLICIES[name]
    run = make_run(tmp_path / "run", spec, **keys)
    result = export(run, format="onnx")
    assert result.path == run / "policy.onnx" and result.difference < 1e-5
    agent, session = load(run), onnxruntime.InferenceSession(result.path)
    inputs, outputs = ([part.name for part in parts] for parts in (session.get_inputs(), session.get_outputs()))
    assert (tuple(inputs), tuple(outputs)) == (result.inputs, result.outputs)
    states = [name for name in inputs if name.startswith("state.")]
    assert [f"next_{name}" for name in states] == outputs[len(outputs) - len(states):]
    generator = torch.Generator().manual_seed(1)
    for batch in (1, 4):
        state = agent.initial_state(batch)
        fed = {name: part.numpy() for name, part in zip(states, state, strict=True)}
        for _ in range(5):
            example = PolicyStep(agent.model).example(batch, generator)
            arrays = {name: part.numpy() for name, part in example.items()}
            answer = dict(zip(outputs, session.run(None, {**arrays, **fed}), strict=True))
            params, values, actions, state = torch_step(agent, example, state)
            given = np.concatenate([answer[key] for key in outputs[:outputs.index("value")]], -1)
            fed = {name: answer[f"next_{name}"] for name in states}
            for ours, theirs in ((given, params), (answer["value"], values), (answer["action"], actions),
                                 *zip(fed.values(), state, strict=True)):
                np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    assert_described(result, agent)
    if name == "masked":
        assert (answer["logits"][~arrays["action_mask"]] == MASKED).all()


def assert_described(result: Export, agent: Agent) -> None:
    """The file describes itself and contains no path of this machine."""
    description = onnxruntime.InferenceSession(result.path).get_modelmeta().custom_metadata_map
    assert (description["env"], description["algo"], description["step"]) == ("nowhere:Env", agent.config.algo, "1000")
    assert json.loads(description["scores"]) == {"rollout/ep_rew_mean": 2.5}
    assert Config.from_json(description["config"], source="") == agent.config
    assert spec_from_json(json.loads(description["spec"])) == agent.model.spec
    content = result.path.read_bytes()
    assert b".py" not in content and str(Path(vantage.__file__).parent).encode() not in content


def test_a_file_that_computes_something_else_is_removed(
        run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def write_wrong(path: Path, tensors: Mapping[str, torch.Tensor], description: Any) -> None:
        write_weights(path, {**tensors, "value_head.bias": tensors["value_head.bias"] + 1e-3}, description)

    before = sorted(run.parent.rglob("*"))
    monkeypatch.setattr("vantage.tools.export.write_weights", write_wrong)
    assert main(["export", str(run), "--format", "safetensors", "--trust"]) == 1
    err = capsys.readouterr().err
    assert "value differs" in err and len(err.splitlines()) == 1
    assert sorted(run.parent.rglob("*")) == before


@pytest.mark.parametrize(("name", "change"), [
    ("action", lambda x: (x + 1) % 4), ("action", lambda x: x.int()), ("next_state.gru_h", torch.zeros_like),
    ("value", lambda x: x + float("nan"))], ids=["action", "dtype", "state", "nan"])
def test_a_wrong_output_is_a_difference(name: str, change: Callable[[torch.Tensor], torch.Tensor],
                                        tmp_path: Path) -> None:
    policy = PolicyStep(load(make_run(tmp_path / "run", memory="gru")).model)
    assert compare(policy.call, policy) == 0
    with pytest.raises(vantage.VantageError, match=f"its {name} differs"):
        compare(lambda inputs: {**(out := policy.call(inputs)), name: change(out[name])}, policy)


def test_a_policy_in_bfloat16_is_exported_in_float32(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(tmp_path / "run", EnvSpec(IMAGE, DISCRETE), network="mlp", precision="bfloat16")
    loaded, original = load(export(run, format="safetensors").path, trust=True), load(run)
    assert any("float32" in message for message in caplog.messages) and loaded.config.policy.precision == "float32"
    same = make_model(loaded.config.policy, loaded.model.spec, critic=loaded.config.algorithm.needs.critic)
    same.load_state_dict(original.model.state_dict())
    obs, is_first = torch.randint(0, 256, (2, 1, 20, 21), dtype=torch.uint8), torch.ones(2, dtype=torch.bool)
    assert torch.equal(loaded.model.step(obs, is_first, ())[0], same.step(obs, is_first, ())[0])


def test_safetensors_hold_the_whole_agent_whose_inputs_and_outputs_have_stable_names(tmp_path: Path) -> None:
    spec = EnvSpec({"pos": VECTOR, "camera": IMAGE}, BOX)
    run = make_run(tmp_path / "run", spec, memory="lstm", separate=True, obs_norm=True, frame_stack=2, network="mlp")
    file = export(run, format="safetensors", output=tmp_path / "p.safetensors").path
    ours, theirs = load(file, trust=True), load(run)
    assert (ours.config, ours.step, ours.checkpoint, ours.scores, ours.model.spec) == (
        theirs.config, 1000, "checkpoints/step-000000001000", {"rollout/ep_rew_mean": 2.5}, theirs.model.spec)
    obs = {"pos": np.ones((2, 3), np.float32), "camera": np.ones((2, 1, 20, 21), np.uint8)}
    (a, state_a), (b, state_b) = (agent.act(obs, agent.initial_state(2)) for agent in (ours, theirs))
    assert np.array_equal(a, b) and all(map(torch.equal, state_a, state_b))
    policy = PolicyStep(theirs.model)
    state = ("frames.camera", "frames.pos", "lstm_h", "lstm_c", "critic_lstm_h", "critic_lstm_c")
    assert policy.inputs == ("obs.camera", "obs.pos", "is_first", *(f"state.{name}" for name in state))
    assert policy.outputs == ("mean", "log_std", "value", "action", *(f"next_state.{name}" for name in state))


def test_a_policy_file_holds_layers_that_share_their_weights(tmp_path: Path) -> None:
    _, about = load(make_run(tmp_path / "run")).described()
    shared = torch.arange(3.0)
    write_weights(tmp_path / "p.safetensors", {"a": shared, "b": shared}, about)
    assert all(torch.equal(each, shared) for each in read_weights(tmp_path / "p.safetensors", trust=True)[0].values())


def test_an_agent_acts_on_arrays_without_its_environment(tmp_path: Path) -> None:
    agent = load(make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE, masked=True), memory="gru"))
    obs, mask = np.ones((2, 3), np.float32), np.eye(4, dtype=np.int8)[[2, 1]]
    action, state = agent.act(obs, agent.initial_state(2), action_mask=mask)
    assert action.tolist() == [2, 1]
    _, fresh = agent.act(obs, state, is_first=np.array([True, False]), action_mask=mask)
    assert torch.equal(fresh[0][0], state[0][0]) and not torch.equal(fresh[0][1], state[0][1])
    with pytest.raises(ValueError, match=r"action_mask \[B, 4\]"):
        agent.act(obs, state)


def test_an_agent_acts_on_one_observation_and_refuses_nan_and_states_of_another_batch(tmp_path: Path) -> None:
    agent = load(make_run(tmp_path / "run", EnvSpec(VECTOR, BOX), memory="gru"))
    obs = np.array([0.1, -0.2, 0.3], np.float32)
    action, state = agent.act(obs, agent.initial_state())
    actions, states = agent.act(obs[None], agent.initial_state())
    assert action.shape == actions.shape[1:] and np.array_equal(action, actions[0]) and torch.equal(state[0], states[0])
    sampled = agent.act(obs, agent.initial_state(), deterministic=False, generator=torch.Generator().manual_seed(1))[0]
    torch.manual_seed(1)
    own_way = replace(agent, deterministic=False)
    assert np.array_equal(own_way.act(obs, agent.initial_state())[0], sampled) and not np.array_equal(sampled, action)
    with pytest.raises(ValueError, match=r"shape \(2,\).* takes float32 of shape \(3,\), .*make_env\(\) gives them so"):
        agent.act(obs[:2], agent.initial_state())
    with pytest.raises(ValueError, match="not finite: nan"):
        agent.act(np.array([[0.1, np.nan, 0.3]], np.float32), agent.initial_state())
    with pytest.raises(ValueError, match=r"a batch of 2 need .*begin with initial_state\(2\)"):
        agent.act(np.stack([obs, obs]), agent.initial_state(3))
    for name, wrong in {"state": 3, "is_first": "x", "deterministic": "False"}.items():
        with pytest.raises(ValueError, match=name):
            agent.act(obs, **{"state": agent.initial_state(), name: wrong})
    rounded, _ = agent.act(torch.tensor(obs).bfloat16(), agent.initial_state())
    assert np.allclose(rounded, action, atol=0.02)
    masked = load(make_run(tmp_path / "masked", EnvSpec(VECTOR, ActionSpec("discrete", (3,)), masked=True)))
    with pytest.raises(ValueError, match=r"action_mask has shape \(1, 1\), the policy has 3 actions"):
        masked.act(obs[None], masked.initial_state(), action_mask=np.ones((1, 1), bool))


def test_the_file_of_an_agent_from_elsewhere_is_named_by_the_caller() -> None:
    agent = load("zoo:frozenlake8x8")
    with pytest.raises(ConfigError, match=r"no run directory on this machine; name the file: output='policy.onnx'"):
        export(agent, format="onnx")
    assert export(agent, format="safetensors", output="own.safetensors").path == Path("own.safetensors")


@pytest.mark.parametrize(("arguments", "text"), [
    ("run --format safetensors --checkpoint best", "has no best checkpoint; it has 1000"),
    ("run --format safetensors -o q.safetensors", "q.safetensors is a directory; choose another output"),
    ("none.safetensors --format onnx", "cannot read none.safetensors"),
    ("other.safetensors --format onnx", "is not a policy"),
])
def test_bad_input_is_one_line_with_the_remedy_and_status_2(
        arguments: str, text: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"w": torch.zeros(1)}, "other.safetensors")
    (tmp_path / "q.safetensors").mkdir()
    before = sorted((path, path.stat().st_mtime_ns) for path in (*tmp_path.rglob("*.safetensors"), *run.rglob("*")))
    assert main(["export", *arguments.split(), "--trust"]) == 2
    err = capsys.readouterr().err
    assert text in err and len(err.strip().splitlines()) == 1
    assert before == sorted((path, path.stat().st_mtime_ns)
                            for path in (*tmp_path.rglob("*.safetensors"), *run.rglob("*")))


def test_a_disk_that_cannot_be_written_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(ConfigError, match="Read-only file system; choose another output"):
        export(run, format="safetensors")


def test_a_policy_file_that_is_damaged_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = export(run, format="safetensors").path
    tensors, description = read_weights(path, trust=True)
    content = path.read_bytes()
    write_weights(path, tensors, replace(description, config=description.config.change(hidden="9")))
    assert main(["evaluate", str(path), "--trust"]) == 2
    error = capsys.readouterr().err
    assert f"{path} does not fit its header" in error and error.count("\n") == 1
    path.write_bytes(content[:-10])
    assert main(["evaluate", str(path)]) == 1
    assert "export the policy again" in capsys.readouterr().err


def test_a_network_that_onnx_cannot_express_is_an_error_that_names_the_other_format(
        run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = PolicyStep.forward
    monkeypatch.setattr(PolicyStep, "forward", lambda self, *x: forward(self, *(x if x[0].sum() > 0 else [-x[0]])))
    with pytest.raises(vantage.VantageError, match=r"data-dependent.*use format=.safetensors"):
        export(run, format="onnx")
    assert not (run / "policy.onnx").exists()


def test_without_onnx_the_error_names_what_to_install(
        run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "onnxscript" else
                        ModuleSpec(name, None, origin="there"))
    assert main(["export", str(run), "--format", "onnx"]) == 2
    err = capsys.readouterr().err
    assert "onnxscript is not installed: pip install " in err and "or use --format safetensors" in err
    assert not (run / "policy.onnx").exists()
