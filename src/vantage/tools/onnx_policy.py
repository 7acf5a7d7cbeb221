"""One step of a policy as a function of named tensors, and as an ONNX model. `export` checks that both agree."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from vantage.errors import ConfigError, VantageError
from vantage.models.actor_critic import ActorCritic
from vantage.models.heads import GaussianHead
from vantage.runs.policy_file import Description

if TYPE_CHECKING:
    import onnx

LIBRARIES = ("onnx", "onnxruntime", "onnxscript")

SAMPLING = {
    "discrete": "draw the action from softmax(logits)",
    "multi_discrete": "split logits into parts of the sizes {sizes}; draw each choice from the softmax of its part",
    "multi_binary": "each of the {count} numbers is 1 with probability sigmoid(logits), else 0",
    "box": "draw from a normal distribution around mean with standard deviation exp(log_std), then clip to the bounds",
}
"""How to sample an action of each kind; the output `action` is the most probable one."""


class PolicyStep(nn.Module):
    """`ActorCritic.step_with_values` on positional tensors, named by `inputs` and `outputs`.

    A policy without state has no input `is_first`, one without masks no `action_mask`.
    """

    def __init__(self, model: ActorCritic) -> None:
        super().__init__()
        self.model = model
        self.obs = tuple(f"obs.{key}" for key in model.keys) or ("obs",)
        self.state = _state_names(model)
        self.inputs = (*self.obs, *("is_first",) * bool(self.state), *("action_mask",) * model.spec.masked,
                       *(f"state.{name}" for name in self.state))
        self.parameters_of = ("mean", "log_std") if model.spec.action.kind == "box" else ("logits",)
        self.outputs = (*self.parameters_of, "value", "action", *(f"next_state.{name}" for name in self.state))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.inputs, inputs, strict=True))
        parts = [named[name] for name in self.obs]
        obs = dict(zip(self.model.keys, parts, strict=True)) if self.model.keys else parts[0]
        is_first = named.get("is_first", torch.zeros_like(parts[0].flatten(1)[:, 0], dtype=torch.bool))
        state = tuple(named[f"state.{name}"] for name in self.state)
        params, value, state = self.model.step_with_values(obs, is_first, state, named.get("action_mask"))
        action = self.model.distribution.mode(params)
        head = self.model.policy_head
        if not isinstance(head, GaussianHead):
            return params, value, action, *state
        return *params.chunk(2, -1), value, torch.minimum(torch.maximum(action, head.low), head.high), *state

    def initial_state(self, batch: int) -> dict[str, Tensor]:
        """Zeros for every `state` input."""
        parts = self.model.initial_state(batch)
        return {f"state.{name}": part for name, part in zip(self.state, parts, strict=True)}

    def example(self, batch: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random inputs without the state; vectors have the mean and variance of the normaliser."""
        inputs = {}
        for i, (name, part) in enumerate(zip(self.obs, self.model.parts, strict=True)):
            if part.kind == "image":
                inputs[name] = torch.randint(0, 256, (batch, *part.shape), dtype=torch.uint8, generator=generator)
                continue
            inputs[name] = torch.randn(batch, *part.shape, generator=generator)
            if str(i) in self.model.normalizers:
                statistics = self.model.normalizers[str(i)]
                inputs[name] = inputs[name] * statistics.get_buffer("var").sqrt() + statistics.get_buffer("mean")
        if "is_first" in self.inputs:
            inputs["is_first"] = torch.rand(batch, generator=generator) < 0.3
        if "action_mask" in self.inputs:
            inputs["action_mask"] = _random_mask(self.model.spec.action.sizes, batch, generator)
        return inputs


def check_libraries() -> None:
    """ConfigError if a library for ONNX files is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(f"--format onnx needs {', '.join(LIBRARIES)}, and {' and '.join(missing)} {verb} missing: "
                          "pip install 'vantage-rl[export]', or use --format safetensors")


def make_onnx(policy: PolicyStep, description: Description) -> onnx.ModelProto:
    """The policy as an ONNX model for any batch size, with its description and usage as metadata."""
    batch = torch.export.Dim("batch")
    example = {**policy.example(2, torch.Generator().manual_seed(0)), **policy.initial_state(2)}
    inputs = tuple(example[name] for name in policy.inputs)
    policy.eval()
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(policy, inputs, dynamo=True, verbose=False, input_names=policy.inputs,
                                        output_names=policy.outputs,
                                        dynamic_shapes=(tuple({0: batch} for _ in inputs),))
    except torch.onnx.OnnxExporterError as error:
        why = str(error.__cause__ or error).strip().splitlines()[0]
        raise VantageError(f"torch cannot write network={description.config.policy.network} as ONNX: {why}; "
                           "use --format safetensors") from error
    assert program is not None
    model = program.model_proto
    _remove_sources(model)
    for key, value in {**description.to_header(), **_usage(policy)}.items():
        model.metadata_props.add(key=key, value=value)
    model.doc_string = f"{description.config.algo} on {description.config.env.id}, exported by vantage"
    return model


class OnnxSession:
    """An ONNX file loaded by onnxruntime, on the CPU."""

    def __init__(self, path: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes share no other base
            raise VantageError(f"onnxruntime cannot load {path}: {error}") from error
        self.outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by name."""
        arrays = self._session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(np.asarray(array)) for name, array in zip(self.outputs, arrays, strict=True)}


def _state_names(model: ActorCritic) -> tuple[str, ...]:
    """Names of the parts of the model's state, in order."""
    names = ([f"frames.{key}" for key in model.keys] or ["frames"]) if model.num_frame_states else []
    for prefix, trunk in (("", model.actor), ("critic_", model.critic)):
        if trunk is not None and trunk.memory is not None:
            names += [f"{prefix}{part}" for part in (("lstm_h", "lstm_c") if trunk.memory.is_lstm else ("gru_h",))]
    return tuple(names)


def _random_mask(sizes: tuple[int, ...], batch: int, generator: torch.Generator) -> Tensor:
    """[B, A] bool that allows at least one choice of each component."""
    masks = [torch.rand(batch, size, generator=generator) < 0.5 for size in sizes]
    allowed = [torch.randint(size, (batch, 1), generator=generator) for size in sizes]
    return torch.cat([mask.scatter(1, index, True) for mask, index in zip(masks, allowed, strict=True)], 1)


def _usage(policy: PolicyStep) -> dict[str, str]:
    """How to run the model, for its metadata."""
    action = policy.model.spec.action
    usage = {"sampling": SAMPLING[action.kind].format(sizes=list(action.sizes), count=len(action.sizes)),
             "action": "the most probable action"}
    if action.kind == "box":
        bounds = [[bound if np.isfinite(bound) else None for bound in side] for side in (action.low, action.high)]
        usage["action_bounds"] = json.dumps(dict(zip(("low", "high"), bounds, strict=True)))
    if policy.state:
        usage["state"] = json.dumps({f"state.{name}": f"next_state.{name}" for name in policy.state})
        usage["state_usage"] = ("begin with zeros for every state input; feed each next_state output back as the state "
                                "input of the same name; is_first is true for the first observation of an episode")
    return usage


def _remove_sources(model: onnx.ModelProto) -> None:
    """Remove the metadata of operations, which holds Python stacks with paths of this machine."""
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch 2.13's exporter, which warns of its own deprecated calls, logs missing libraries and prints its
    failures (2026-11)."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
