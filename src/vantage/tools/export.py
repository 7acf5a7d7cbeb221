"""`vantage export`: a policy as an ONNX or a safetensors file, read back and compared before it takes its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from vantage._host.extras import require
from vantage.agents.agent import load, load_for
from vantage.errors import ConfigError, VantageError
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over
from vantage.runs.hub import PREFIX
from vantage.runs.policy_file import write_weights
from vantage.tools.onnx_policy import PolicyStep, load_onnx, write_onnx

Format = Literal["onnx", "safetensors"]

TOLERANCE = 1e-4
"""Largest difference from torch, relative for numbers above 1.

Rounding moves a fresh impala's LSTM cells by 1e-5.
"""


@dataclass(frozen=True, slots=True)
class Export:
    """An exported file that computes what the policy of the run does."""

    path: Path
    """The file."""
    inputs: tuple[str, ...]
    """Names of what the policy takes: observations, state, starts of episodes, masks."""
    outputs: tuple[str, ...]
    """Names of what it returns: actions, parameters of their distribution, values, the next
    state."""
    difference: float
    """The largest difference from the run's policy in the comparison."""

    def sentence(self) -> str:
        """As text."""
        return (f"{self.path}: largest difference from the policy {self.difference:.1e}\n"
                f"  in   {', '.join(self.inputs)}\n  out  {', '.join(self.outputs)}")


def export(run: str | Path, *, format: Format, output: str | Path | None = None,
           checkpoint: str = "auto", trust: bool = False, network: Any = None, memory: Any = None,
           algorithm: Any = None) -> Export:
    """Write the policy of `run` to `output`, by default policy.onnx or policy.safetensors in the run's directory.

        file = vantage.export("runs/CartPole-v1/a2c-1", format="safetensors").path
        agent = vantage.load(file)

    safetensors is for `vantage.load`, onnx for programs without torch. An existing file is replaced only after the new
    one has been read back and computes the same; otherwise nothing changes and VantageError is raised. `checkpoint`,
    `trust`, `network`, `memory` and `algorithm` are those of `vantage.load`.
    """
    if format not in get_args(Format):
        raise ConfigError(f"format={format!r} is not onnx or safetensors")
    if output is None and str(run).startswith(PREFIX):
        raise ConfigError(f"{run} has no directory on this machine; name the output with -o")
    if output is not None:
        output = Path(output)
    else:
        output = (Path(run) if Path(run).is_dir() else Path(run).parent) / f"policy.{format}"
    if format == "onnx":
        try:
            require("export", "onnx", "onnxruntime", "onnxscript")
        except ConfigError as error:
            raise ConfigError(f"{error}, or use --format safetensors") from None
    objects = handed_over(network=network, memory=memory, algorithm=algorithm)
    agent = load_for("export", run, checkpoint=checkpoint, trust=trust, objects=objects)
    model, description = agent.described()
    policy = PolicyStep(model)
    with whole_file(output, f".{format}") as temporary:
        if format == "onnx":
            write_onnx(temporary, policy, description)
            difference = compare(load_onnx(temporary), policy)
        else:
            write_weights(temporary, model.state_dict(), description)
            again = load(temporary, trust=True, network=network, memory=memory, algorithm=algorithm)
            difference = compare(PolicyStep(again.model).call, policy)
    return Export(output, policy.inputs, policy.outputs, difference)


def compare(candidate: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
            policy: PolicyStep) -> float:
    """The largest difference between outputs of `candidate` and of the policy, each fed its own state for a few steps.

    Observations and starts of episodes are random. VantageError for a difference above `TOLERANCE`, and for another
    shape or type.
    """
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for batch in (1, 3):
        state = state_there = policy.initial_state(batch)
        for _ in range(8):
            inputs = policy.example(batch, generator)
            expected, actual = policy.call({**inputs, **state}), candidate({**inputs, **state_there})
            if "logits" in policy.outputs:
                # Rounding may decide between two equally probable actions: expect the mode of the
                # file's own logits.
                expected["action"] = policy.model.distribution.mode(actual["logits"])
            for name, value in expected.items():
                try:
                    torch.testing.assert_close(actual[name], value, atol=TOLERANCE, rtol=TOLERANCE)
                except AssertionError as error:
                    raise VantageError(f"the exported file is wrong and was removed: its {name} "
                                       f"differs from the policy's: {' '.join(str(error).split())} "
                                       "Please report it") from None
                largest = max(largest, float((actual[name].double() - value.double()).abs().max()))
            state, state_there = ({f"state.{name}": answer[f"next_state.{name}"]
                                   for name in policy.state} for answer in (expected, actual))
    return largest
