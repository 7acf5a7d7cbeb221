"""One step of a policy as a function of named tensors, and as an ONNX model.

`export` checks that both agree.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vantage.errors import VantageError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.policy_file import Description
from vantage.types import ActionSpec


class PolicyStep(nn.Module):
    """`ActorCritic.step_with_values` on positional tensors, named by `inputs` and `outputs`.

    Actions, means and deviations are in the environment's units.
    A policy without state has no input `is_first`, one without masks no `action_mask`.
    """

    def __init__(self, model: ActorCritic) -> None:
        super().__init__()
        self.model = model
        self.obs = tuple(f"obs.{key}" for key in model.keys) or ("obs",)
        self.state = _state_names(model)
        self.inputs = (*self.obs, *("is_first",) * bool(self.state),
                       *("action_mask",) * model.spec.masked,
                       *(f"state.{name}" for name in self.state))
        parameters = ("mean", "log_std") if model.spec.action.kind == "box" else ("logits",)
        self.from_policy = ToEnv(model.spec.action) if model.spec.action.kind == "box" else None
        self.outputs = (*parameters, "value", "action",
                        *(f"next_state.{name}" for name in self.state))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.inputs, inputs, strict=True))
        parts = [named[name] for name in self.obs]
        obs = dict(zip(self.model.keys, parts, strict=True)) if self.model.keys else parts[0]
        is_first = named.get("is_first",
                             torch.zeros_like(parts[0].flatten(1)[:, 0], dtype=torch.bool))
        state = tuple(named[f"state.{name}"] for name in self.state)
        params, value, state = self.model.step_with_values(obs, is_first, state, named.get("action_mask"))
        if self.from_policy is None:
            return params, value, self.model.distribution.mode(params), *state
        mean, log_std, action = self.from_policy(*params.chunk(2, -1))
        return mean, log_std, value, action, *state

    @torch.no_grad()
    def call(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.outputs, self(*(inputs[name] for name in self.inputs)), strict=True))

    def initial_state(self, batch: int) -> dict[str, Tensor]:
        """The value before an episode of every `state` input."""
        return dict(zip((f"state.{name}" for name in self.state), self.model.initial_state(batch),
                        strict=True))

    def example(self, batch: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random inputs without the state; vectors have the mean and variance of the normaliser."""
        inputs = {}
        for i, (name, part) in enumerate(zip(self.obs, self.model.parts, strict=True)):
            if part.floats:
                inputs[name] = part.unit * torch.rand(batch, *part.shape, generator=generator)
            elif part.kind == "image":
                inputs[name] = torch.randint(0, 256, (batch, *part.shape), dtype=torch.uint8,
                                             generator=generator)
            elif part.kind == "one_hot":
                inputs[name] = torch.randint(0, 2, (batch, *part.shape),
                                             generator=generator).float()
            else:
                mean, variance = self.model.preprocessor.statistics(i)
                inputs[name] = torch.randn(batch, *part.shape,
                                           generator=generator) * variance.sqrt() + mean
        if "is_first" in self.inputs:
            inputs["is_first"] = torch.rand(batch, generator=generator) < 0.3
        if "action_mask" in self.inputs:
            sizes = self.model.spec.action.sizes
            mask = torch.rand(batch, sum(sizes), generator=generator) < 0.5
            mask[:, np.cumsum((0, *sizes))[:-1].tolist()] = True  # each component needs a choice
            inputs["action_mask"] = mask
        return inputs


class ToEnv(nn.Module):
    """The mean, the log of the deviation and the clipped mean of a Gaussian policy in the environment's units."""

    low: Tensor
    high: Tensor
    centre: Tensor
    half_width: Tensor

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.is_scaled = any(action.scaled)
        self.dtype = torch.from_numpy(np.empty(0, action.env_dtype)).dtype
        numbers = {"low": action.low, "high": action.high}
        if self.is_scaled:
            numbers["centre"], numbers["half_width"] = (tuple(part.tolist()) for part in action.scale)
        for name, values in numbers.items():
            dtype = torch.float64 if name in ("centre", "half_width") else self.dtype
            self.register_buffer(name, torch.tensor(values, dtype=dtype), persistent=False)

    def forward(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.is_scaled:  # in float64, as `ActionSpec.to_env` rounds
            mean = (self.centre + self.half_width * mean.double()).to(self.dtype)
            log_std = log_std + self.half_width.log().to(log_std.dtype)
        return mean, log_std, torch.minimum(torch.maximum(mean, self.low), self.high)


def write_onnx(path: Path, policy: PolicyStep, description: Description) -> None:
    """Write the policy as an ONNX model for any batch size, with its description as metadata."""
    import onnx

    example = {**policy.example(2, torch.Generator().manual_seed(0)), **policy.initial_state(2)}
    inputs = tuple(example[name] for name in policy.inputs)
    try:
        # torch 2.13 warns of its own deprecated calls, and logs missing libraries and failures
        # (2026-11).
        with (torch.no_grad(), warnings.catch_warnings(action="ignore"),
              without_torchvision_lines(), contextlib.redirect_stderr(io.StringIO())):
            program = torch.onnx.export(policy, inputs, dynamo=True, verbose=False, input_names=policy.inputs,
                                        output_names=policy.outputs,
                                        dynamic_shapes=(tuple({0: torch.export.Dim("batch")} for _ in inputs),))
    except torch.onnx.OnnxExporterError as error:
        why = str(error.__cause__ or error).strip().splitlines()[0]
        chosen = description.config.policy
        raise VantageError(f"torch cannot write network={chosen.network}, memory={chosen.memory} "
                           f"as ONNX: {why}; use --format safetensors") from error
    assert program is not None
    model = program.model_proto
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info,
                 *graph.initializer):
        del part.metadata_props[:]  # Python stacks with paths of this machine
    for key, value in description.to_header().items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


@contextlib.contextmanager
def without_torchvision_lines() -> Iterator[None]:
    """Leave out the four lines that torch 2.13 logs about operators of torchvision, which no policy has (2026-11)."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(_is_about_policies)
    try:
        yield
    finally:
        logger.removeFilter(_is_about_policies)


def _is_about_policies(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("torchvision is not installed")


def load_onnx(path: Path) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """An ONNX file in onnxruntime on the CPU, as a function of named tensors."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def call(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        arrays = session.run(outputs, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(np.asarray(array))
                for name, array in zip(outputs, arrays, strict=True)}

    return call


def _state_names(model: ActorCritic) -> tuple[str, ...]:
    names = ([f"frames.{key}" for key in model.keys]
             or ["frames"]) if model.num_frame_states else []
    for prefix, trunk in (("", model.actor), ("critic_", model.critic)):
        if trunk is not None and trunk.memory is not None:
            numbered = tuple(f"memory_{i}" for i in range(trunk.num_states))
            names += [f"{prefix}{name}" for name in getattr(trunk.memory, "state_names", numbered)]
    return tuple(names)
