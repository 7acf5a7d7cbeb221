"""Exported policies: what onnxruntime computes from the file is what torch computes; a file that errs is refused."""

from __future__ import annotations

import copy
import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import vantage
from vantage.algorithms.distributions import MASKED
from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models import make_model
from vantage.models.torsos import Mlp
from vantage.runs import checkpoint
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import read_weights, write_weights
from vantage.tools import onnx_policy
from vantage.tools.export import Export, compare, export
from vantage.tools.onnx_policy import OnnxSession, PolicyStep, make_onnx
from vantage.training import Agent, load
from vantage.types import ActionSpec, ArraySpec, EnvSpec

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (1, 20, 21))
DISCRETE, BOX = ActionSpec("discrete", (4,)), ActionSpec("box", (2,), (-1.0, -0.5), (0.5, float("inf")))


def make_run(path: Path, spec: EnvSpec, **keys: Any) -> Path:
    """A run with one checkpoint of random weights; its environment exists nowhere."""
    config = Config().change(env="nowhere:Env", **{"hidden": "8", "memory_size": 5, "init": "torch", **keys})
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)
    parts = spec.obs if isinstance(spec.obs, Mapping) else {"": spec.obs}
    seen = {key: 5 + 3 * torch.randn(50, 1, *part.shape) for key, part in parts.items()}
    model.observe(seen if isinstance(spec.obs, Mapping) else seen[""])
    directory = RunDirectory.create(config, env_name=config.env.id, path=path, argv=())
    progress = {"recent": [[1.0, 5], [4.0, 5]], "best_return": 7.5}
    state = {"spec": spec.to_json(), "progress": progress}
    checkpoint.save(directory.path, 1000, tensors={"model": model.state_dict()}, state=state, keep=1)
    return path


POLICIES: dict[str, tuple[EnvSpec, dict[str, Any]]] = {
    "feed-forward": (EnvSpec(VECTOR, DISCRETE), {"obs_norm": True, "separate": True}),
    "frame-stack": (EnvSpec(IMAGE, DISCRETE), {"frame_stack": 3, "network": "universe", "stack_pad": "repeat"}),
    "lstm": (EnvSpec(VECTOR, DISCRETE), {"memory": "lstm", "algo": "acer"}),
    "gru": (EnvSpec(VECTOR, ActionSpec("multi_binary", (2, 2))), {"memory": "gru", "separate": True}),
    "continuous": (EnvSpec(VECTOR, BOX), {"std": "state", "min_std": 0.5}),
    "dictionary": (EnvSpec({"pos/x": VECTOR, "camera": IMAGE}, DISCRETE), {"obs_norm": True, "frame_stack": 2,
                                                                        "network": "mlp"}),
    "layer-norm": (EnvSpec(IMAGE, DISCRETE), {"norm": "layer", "memory": "lstm", "network": "universe"}),
    "masked": (EnvSpec(VECTOR, ActionSpec("multi_discrete", (3, 2)), masked=True), {}),
}


def random_inputs(session: onnxruntime.InferenceSession, batch: int, source: np.random.Generator) -> dict[str, Any]:
    """Of every input that is no state, by what the file itself says of its type and shape."""
    inputs: dict[str, Any] = {}
    for part in session.get_inputs():
        shape = (batch, *part.shape[1:])
        if part.name.startswith("state."):
            continue
        if part.type == "tensor(bool)":
            inputs[part.name] = source.random(shape) < 0.5
            if part.name == "action_mask":
                inputs[part.name][:, [0, 3]] = True  # one of each component
        elif part.type == "tensor(uint8)":
            inputs[part.name] = source.integers(0, 256, shape, dtype=np.uint8)
        else:
            inputs[part.name] = source.normal(5, 3, shape).astype(np.float32)
    return inputs


def torch_step(agent: Agent, inputs: Mapping[str, Any], state: Any) -> tuple[Any, Any, Any, Any]:
    """Parameters, values, most probable actions and the state after, by the model itself."""
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    obs = tensors["obs"] if "obs" in tensors else {key: tensors[f"obs.{key}"] for key in agent.model.keys}
    is_first = tensors.get("is_first", torch.zeros(len(next(iter(tensors.values()))), dtype=torch.bool))
    with torch.no_grad():
        params, values, after = agent.model.step_with_values(obs, is_first, state, tensors.get("action_mask"))
    return params, values, agent.model.distribution.mode(params), after


@pytest.mark.parametrize("name", POLICIES)
def test_onnx_is_torch(name: str, tmp_path: Path) -> None:
    spec, keys = POLICIES[name]
    run = make_run(tmp_path / "run", spec, **keys)
    made = export(run, format="onnx")
    assert made.path == run / "policy.onnx" and made.difference < 1e-5
    agent, session = load(run), onnxruntime.InferenceSession(made.path)
    outputs = [output.name for output in session.get_outputs()]
    states = [part for part in session.get_inputs() if part.name.startswith("state.")]
    assert [part.name.replace("state.", "next_state.", 1) for part in states] == outputs[len(outputs) - len(states):]
    low, high = (torch.tensor(side) if spec.action.kind == "box" else None for side in (spec.action.low,
                                                                                       spec.action.high))
    source = np.random.default_rng(1)
    for batch in (1, 4):
        types = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}
        given = {part.name: np.zeros((batch, *part.shape[1:]), types[part.type]) for part in states}
        state = agent.initial_state(batch)
        for _ in range(5):
            inputs = random_inputs(session, batch, source)
            answer = dict(zip(outputs, session.run(None, {**inputs, **given}), strict=True))
            params, values, actions, state = torch_step(agent, inputs, state)
            ours = np.concatenate([answer[key] for key in outputs[:outputs.index("value")]], -1)
            np.testing.assert_allclose(ours, params, atol=1e-5, rtol=0)
            np.testing.assert_allclose(answer["value"], values, atol=1e-5, rtol=0)
            if low is not None:
                actions = actions.clamp(low, high)
            np.testing.assert_allclose(answer["action"], actions, atol=1e-5, rtol=0)
            for part, after in zip(states, state, strict=True):
                given[part.name] = answer[f"next_{part.name}"]
                np.testing.assert_allclose(given[part.name], after, atol=1e-5, rtol=0)
    assert_described(made, agent)
    if name == "masked":
        assert (answer["logits"][~inputs["action_mask"]] == MASKED).all()


def assert_described(made: Export, agent: Agent) -> None:
    """The file says what it is and how to use it, and nothing of the machine that made it."""
    said = onnxruntime.InferenceSession(made.path).get_modelmeta().custom_metadata_map
    assert (said["env"], said["algo"], said["step"]) == ("nowhere:Env", agent.config.algo, "1000")
    assert json.loads(said["scores"]) == {"rollout/ep_rew_mean": 2.5}
    assert Config.from_json(said["config"], source="") == agent.config
    if made.inputs[-1].startswith("state."):
        assert list(json.loads(said["state"]).items())[-1] == (made.inputs[-1], made.outputs[-1])
    if agent.model.spec.action.kind == "box":
        assert "exp(log_std)" in said["sampling"] and json.loads(said["action_bounds"])["high"] == [0.5, None]
    content = made.path.read_bytes()
    assert b".py" not in content and str(Path(vantage.__file__).parent).encode() not in content


def test_every_input_and_output_has_a_name_that_says_what_it_is(tmp_path: Path) -> None:
    spec = EnvSpec({"pos": VECTOR, "camera": IMAGE}, BOX)
    run = make_run(tmp_path / "run", spec, memory="lstm", separate=True, frame_stack=2, network="mlp")
    policy = PolicyStep(load(run).model)
    state = ("frames.camera", "frames.pos", "lstm_h", "lstm_c", "critic_lstm_h", "critic_lstm_c")
    assert policy.inputs == ("obs.camera", "obs.pos", "is_first", *(f"state.{name}" for name in state))
    assert policy.outputs == ("mean", "log_std", "value", "action", *(f"next_state.{name}" for name in state))
    assert PolicyStep(load(make_run(tmp_path / "b", EnvSpec(VECTOR, DISCRETE, True))).model).inputs == (
        "obs", "action_mask")


def test_a_file_that_computes_something_else_is_an_error_and_leaves_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    before = sorted(tmp_path.rglob("*"))

    def off(policy: PolicyStep, known: Any) -> onnx.ModelProto:
        model = make_onnx(policy, known)
        bias = next(part for part in model.graph.initializer if part.name.endswith("value_head.bias"))
        bias.raw_data = np.float32([1e-3]).tobytes()
        return model

    monkeypatch.setattr("vantage.tools.export.make_onnx", off)
    assert main(["export", str(run), "--format", "onnx"]) == 1
    err = capsys.readouterr().err
    assert "value differs" in err and len(err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_wrong_action_and_a_lost_state_are_differences(tmp_path: Path) -> None:
    policy = PolicyStep(load(make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE), memory="gru")).model)

    def altered(name: str, change: Any) -> Any:
        def call(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            with torch.no_grad():
                out = dict(zip(policy.outputs, policy(*(inputs[key] for key in policy.inputs)), strict=True))
            return {**out, name: change(out[name])}
        return call

    assert compare(altered("value", lambda x: x), policy) == 0
    for name, change in (("action", lambda x: (x + 1) % 4), ("action", lambda x: x.int()),
                         ("next_state.gru_h", torch.zeros_like), ("value", lambda x: x + float("nan"))):
        with pytest.raises(vantage.VantageError, match=f"its {name} differs"):
            compare(altered(name, change), policy)


def test_what_rounding_explains_is_no_difference(tmp_path: Path) -> None:
    policy = PolicyStep(load(make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))).model)
    model = policy.model
    with torch.no_grad():  # the value is a million times the difference of two nearly equal features
        for layer in (torso := model.actor.get_submodule("torsos.0.layers.0")).parameters():
            layer[1] = layer[0]
        torso.get_parameter("bias")[1] += 1e-5
        model.value_head.weight.zero_()[0, :2] = torch.tensor([1e6, -1e6])
    exact = copy.deepcopy(policy).double()

    def answer(inputs: Mapping[str, torch.Tensor], off: float) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            ours, theirs = (dict(zip(policy.outputs, net(inputs["obs"]), strict=True)) for net in (policy, exact))
        return {**ours, "value": theirs["value"].float() + off}

    assert compare(lambda inputs: answer(inputs, 0.0), policy) > 1e-3
    with pytest.raises(vantage.VantageError, match="value differs"):
        compare(lambda inputs: answer(inputs, 100.0), policy)


def test_a_network_that_onnx_cannot_express_is_an_error_that_names_the_other_format(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    plain = Mlp.forward
    monkeypatch.setattr(Mlp, "forward", lambda self, x: plain(self, x if x.sum() > 0 else -x))
    assert main(["export", str(run), "--format", "onnx"]) == 1
    err = capsys.readouterr().err
    assert "use --format safetensors" in err and "data-dependent" in err
    assert len(err.splitlines()) == 1 and not (run / "policy.onnx").exists()


def test_a_policy_in_bfloat16_is_exported_in_float32(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", EnvSpec(IMAGE, DISCRETE), network="mlp", precision="bfloat16")
    said: list[str] = []
    made = export(run, format="safetensors", notify=said.append)
    assert "float32" in said[0]
    loaded, original = load(made.path, trust=True), load(run)
    assert loaded.config.policy.precision == "float32"
    same = make_model(loaded.config.policy, loaded.model.spec, critic=loaded.config.algorithm.needs.critic)
    same.load_state_dict(original.model.state_dict())
    obs, first = torch.randint(0, 256, (2, 1, 20, 21), dtype=torch.uint8), torch.ones(2, dtype=torch.bool)
    assert torch.equal(loaded.model.step(obs, first, ())[0], same.step(obs, first, ())[0])


def test_safetensors_hold_the_whole_agent(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", EnvSpec({"pos": VECTOR, "camera": IMAGE}, BOX), memory="lstm", obs_norm=True,
                   network="mlp")
    made = export(run, format="safetensors", output=tmp_path / "p.safetensors")
    assert made.card == tmp_path / "p.card.md"
    ours, theirs = load(tmp_path / "p.safetensors", trust=True), load(run)
    assert (ours.config, ours.step, ours.checkpoint, ours.scores, ours.model.spec) == (
        theirs.config, 1000, "checkpoints/step-000000001000", {"rollout/ep_rew_mean": 2.5}, theirs.model.spec)
    obs = {"pos": np.ones((2, 3), np.float32), "camera": np.ones((2, 1, 20, 21), np.uint8)}
    (a, state_a), (b, state_b) = (agent.act(obs, agent.initial_state(2)) for agent in (ours, theirs))
    assert np.array_equal(a, b) and all(map(torch.equal, state_a, state_b))


def test_the_card_says_what_it_is_what_it_scored_and_how_to_load_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE, masked=True), eval_every=5)
    (run / "checkpoints" / "step-000000001000").rename(run / "best")
    made = export(run, format="safetensors", output=tmp_path / "p.safetensors")
    assert made.card is not None
    text = made.card.read_text()
    assert "a2c on nowhere:Env" in text and "| 2.50 |" in text and "| 7.50 |" in text
    assert json.loads(text.split("```json")[1].split("```")[0]) == json.loads(load(run).config.to_json())
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"obs": np.zeros((1, 3), np.float32), "mask": np.array([[True, False, True, True]])}
    exec(text.split("```python")[1].split("```")[0], scope)
    assert scope["action"].shape == (1,)


def test_an_agent_needs_no_environment_and_takes_arrays(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE, masked=True), memory="gru")
    agent = vantage.load(run)
    obs, mask = np.ones((2, 3), np.float32), np.eye(4, dtype=np.int8)[[2, 1]]
    action, state = agent.act(obs, agent.initial_state(2), action_mask=mask)
    assert action.tolist() == [2, 1]
    _, fresh = agent.act(obs, state, is_first=np.array([True, False]), action_mask=mask)
    assert torch.equal(fresh[0][0], state[0][0]) and not torch.equal(fresh[0][1], state[0][1])
    with pytest.raises(ValueError, match=r"action_mask \[B, 4\]"):
        agent.act(obs, state)


@pytest.mark.parametrize(("arguments", "says"), [
    (["run"], "--format"),
    (["run", "--format", "onx"], "onnx"),
    (["nowhere", "--format", "onnx"], "no such run directory"),
    (["run", "--format", "onnx", "-o", "x.pt"], "end in .onnx"),
    (["run", "--format", "onnx", "-o", "missing/x.onnx"], "missing: no such directory"),
    (["run", "--format", "safetensors", "--checkpoint", "best"], "has no best checkpoint; it has 1000"),
    (["run", "--format", "safetensors", "-o", "/proc/x.safetensors"], "cannot write /proc/x.safetensors"),
    (["none.safetensors", "--format", "onnx"], "cannot read none.safetensors"),
    (["other.safetensors", "--format", "onnx"], "is not a policy"),
    (["run", "--format", "safetensors", "-o", "\udcff.safetensors"], "not valid UTF-8; choose another place with -o"),
])
def test_bad_input_is_one_line_with_the_remedy_and_status_2(
        arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    from safetensors.torch import save_file
    save_file({"w": torch.zeros(1)}, "other.safetensors")
    assert main(["export", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("place", ["best/model", "checkpoints/step-000000001000/model", "best/new"])
def test_an_export_leaves_the_checkpoints_of_a_run_alone(place: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    output = run / f"{place}.safetensors"
    output.parent.mkdir(exist_ok=True)
    before = output.read_bytes() if output.exists() else None
    with pytest.raises(ConfigError, match="among the checkpoints of the run"):
        export(run, format="safetensors", output=output)
    assert (output.read_bytes() if output.exists() else None) == before


@pytest.mark.parametrize("format", ["onnx", "safetensors"])
def test_a_disk_that_cannot_be_written_is_named(
        format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ConfigError, match="Read-only file system; choose another place"):
        export(run, format=format)


def test_nothing_is_written_where_the_card_has_no_place(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    (tmp_path / "q.card.md").mkdir()
    with pytest.raises(ConfigError, match=r"q\.card\.md is a directory"):
        export(run, format="safetensors", output=tmp_path / "q.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.card.md", "run"]
    assert export(run, format="onnx", output=tmp_path / "q.onnx").card is None


def test_a_policy_file_that_is_not_as_its_header_says_is_status_2(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = export(make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE)), format="safetensors").path
    tensors, known = read_weights(path, trust=True)
    write_weights(path, tensors, replace(known, config=known.config.change(hidden="9")))
    assert main(["evaluate", str(path), "--trust"]) == 2
    error = capsys.readouterr().err
    assert f"{path} does not fit its header" in error and error.count("\n") == 1


def test_a_torn_policy_file_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = export(make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE)), format="safetensors")
    made.path.write_bytes(made.path.read_bytes()[:-10])
    assert main(["evaluate", str(made.path)]) == 1
    assert "export the policy again" in capsys.readouterr().err


def test_without_onnx_the_command_names_what_to_install(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", EnvSpec(VECTOR, DISCRETE))
    monkeypatch.setattr(onnx_policy, "find_spec", lambda name: None if name == "onnxscript" else object())
    assert main(["export", str(run), "--format", "onnx"]) == 2
    err = capsys.readouterr().err
    assert "onnxscript is missing: pip install 'vantage-rl[export]'" in err and not (run / "policy.onnx").exists()


def test_a_file_that_is_no_model_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"no model")
    with pytest.raises(vantage.VantageError, match=r"cannot load .*x\.onnx"):
        OnnxSession(tmp_path / "x.onnx")
