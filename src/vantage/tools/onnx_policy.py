"""One step of a policy as a function of named tensors, and as an ONNX model."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vantage._host.terminal import quiet
from vantage.algorithms.bounded_distributions import Beta
from vantage.algorithms.distributions import Categorical, Gaussian, MultiDiscrete
from vantage.algorithms.joint_distribution import Joint, make_distribution
from vantage.envs.tensors import BoxToEnv
from vantage.errors import VantageError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.policy_file import Description


class PolicyStep(nn.Module):
    """`ActorCritic.step_with_values` on positional tensors, named by `inputs` and `outputs`.

    Actions, means and deviations are in the environment's units; the parameters of bounded
    distributions have none. Parts of Dict and Tuple actions have own outputs, `action.NAME`.
    A policy without state has no input `is_first`, one without masks no `action_mask`. One with
    critic_obs has neither these parts nor a critic: no value, and no state of the critic.
    """

    def __init__(self, model: ActorCritic) -> None:
        super().__init__()
        self.model = model
        self.keys = model.acting_spec.keys
        self.obs = tuple(f"obs.{key}" for key in self.keys) or ("obs",)
        self.state = _state_names(model)
        inputs = [*self.obs]
        if self.state:
            inputs.append("is_first")
        if model.spec.masked:
            inputs.append("action_mask")
        self.inputs = (*inputs, *(f"state.{name}" for name in self.state))
        action = model.spec.action
        named = {f".{name}": part for name, part in action.parts.items()} or {"": action}
        self.parts: dict[str, Any] = {end: make_distribution(part, model.policy.distribution)
                                      for end, part in named.items()}
        """The distributions of the parts of an action, by the end of their outputs' names."""
        self.to_env = nn.ModuleList(BoxToEnv(part) if part.kind == "box" else nn.Identity()
                                    for part in named.values())
        parameters = [f"{name}{end}" for end, part in self.parts.items() for name in _names(part)]
        actions = [f"action{end}" for end in self.parts]
        next_state = (f"next_state.{name}" for name in self.state)
        value = () if model.policy.critic_parts else ("value",)
        self.outputs = (*parameters, *value, *actions, *next_state)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.inputs, inputs, strict=True))
        parts = [named[name] for name in self.obs]
        obs = dict(zip(self.keys, parts, strict=True)) if self.keys else parts[0]
        never = torch.zeros_like(parts[0].flatten(1)[:, 0], dtype=torch.bool)
        is_first = named.get("is_first", never)
        state = tuple(named[f"state.{name}"] for name in self.state)
        mask = named.get("action_mask")
        value: list[Tensor] = []
        if self.model.policy.critic_parts:
            params, state = self.model.step(obs, is_first, state, mask)
        else:
            params, *value, state = self.model.step_with_values(obs, is_first, state, mask)
        parameters: list[Tensor] = []
        actions: list[Tensor] = []
        pairs = Joint(tuple(self.parts.values())).split(params)
        for (part, own), to_env in zip(pairs, self.to_env, strict=True):
            mode = part.mode(own)
            if isinstance(to_env, BoxToEnv):
                mode, clipped = to_env(mode)
                first, second = own.chunk(2, -1)
                if isinstance(part, Gaussian):  # the others' parameters have no unit
                    first = mode
                    second = to_env.log_deviation(second)
                parameters += (first, second)
                actions.append(clipped)
            else:
                parameters.append(own)
                actions.append(mode)
        return *parameters, *value, *actions, *state

    def modes(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The most probable actions of the discrete parts, by the logits among `outputs`."""
        return {f"action{end}": part.mode(outputs[f"logits{end}"])
                for end, part in self.parts.items() if f"logits{end}" in outputs}

    @torch.no_grad()
    def call(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by name."""
        outputs = self(*(inputs[name] for name in self.inputs))
        return dict(zip(self.outputs, outputs, strict=True))

    def initial_state(self, batch: int) -> dict[str, Tensor]:
        """The `state` inputs before an episode."""
        values = self.model.initial_state(batch)
        return {f"state.{name}": value for name, value in zip(self.state, values, strict=False)}

    def next_state(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The `state` inputs of the step after the one with these outputs."""
        return {f"state.{name}": outputs[f"next_state.{name}"] for name in self.state}

    def example(self, batch: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random inputs without the state; vectors have the mean and variance of the normaliser."""
        inputs = {}
        for name, part in zip(self.obs, self.model.acting_spec.parts, strict=True):
            shape = (batch, *part.shape)
            if part.floats:
                inputs[name] = part.unit * torch.rand(shape, generator=generator)
            elif part.kind == "image":
                inputs[name] = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            elif part.kind == "one_hot":
                inputs[name] = torch.randint(0, 2, shape, generator=generator).float()
            else:
                place = self.model.keys.index(name.removeprefix("obs.")) if self.keys else 0
                mean, variance = self.model.preprocessor.statistics(place)
                numbers = torch.randn(*shape[:-1], len(mean), generator=generator)
                inputs[name] = numbers * variance.sqrt() + mean
                if part.kind == "set":
                    exists = torch.rand(*shape[:-1], 1, generator=generator) < 0.5
                    inputs[name] = torch.cat([inputs[name], exists.float()], -1)
        if "is_first" in self.inputs:
            inputs["is_first"] = torch.rand(batch, generator=generator) < 0.3
        if "action_mask" in self.inputs:
            sizes = self.model.spec.action.sizes
            mask = torch.rand(batch, sum(sizes), generator=generator) < 0.5
            first_choices = np.cumsum((0, *sizes))[:-1].tolist()
            mask[:, first_choices] = True  # each component needs a choice
            inputs["action_mask"] = mask
        return inputs


def _state_names(model: ActorCritic) -> tuple[str, ...]:
    names = []
    if model.num_frame_states:
        names += [f"frames.{key}" for key in model.keys] or ["frames"]
    critic = None if model.policy.critic_parts else model.critic
    for prefix, trunk in (("", model.actor), ("critic_", critic)):
        if trunk is not None and trunk.memory is not None:
            numbered = [f"memory_{i}" for i in range(trunk.num_states)]
            own = getattr(trunk.memory, "state_names", numbered)
            names += [f"{prefix}{name}" for name in own]
    return tuple(names)


def _names(part: Any) -> tuple[str, ...]:
    """The outputs that are parameters of a distribution."""
    if isinstance(part, Beta):
        return "alpha", "beta"
    return ("logits",) if isinstance(part, Categorical | MultiDiscrete) else ("mean", "log_std")


def write_onnx(path: Path, policy: PolicyStep, description: Description) -> None:
    """Write the policy as an ONNX model for any batch size, with its description as metadata."""
    import onnx

    example = {**policy.example(2, torch.Generator().manual_seed(0)), **policy.initial_state(2)}
    inputs = tuple(example[name] for name in policy.inputs)
    any_batch = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    try:
        # torch 2.13 warns of its own deprecated calls, and logs missing libraries, such as
        # torchvision, and failures (2026-11).
        with (torch.no_grad(), warnings.catch_warnings(action="ignore"),
              quiet("torch.onnx._internal.exporter._registration"),
              contextlib.redirect_stderr(io.StringIO())):
            program = torch.onnx.export(policy, inputs, dynamo=True, verbose=False,
                                        input_names=policy.inputs, output_names=policy.outputs,
                                        dynamic_shapes=(any_batch,))
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
