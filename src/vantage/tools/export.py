"""`vantage export`: a policy as an ONNX or a safetensors file, checked before it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from vantage._host.extras import require
from vantage.agents.agent import Agent, load, load_for
from vantage.errors import ConfigError, VantageError
from vantage.runs import zoo
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over, run_of, with_code_of
from vantage.runs.hub import PREFIX
from vantage.runs.policy_file import write_weights
from vantage.tools.onnx_policy import PolicyStep, load_onnx, write_onnx

Format = Literal["onnx", "safetensors"]
"""Kind of a policy file."""
Tensors = Mapping[str, Tensor]

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


def export(run: str | Path | Agent, *, format: Format, output: str | Path | None = None,
           checkpoint: str | int = "auto", trust: bool = False, network: Any = None,
           memory: Any = None, algorithm: Any = None) -> Export:
    """Write the policy of `run`, or an agent, to `output`, by default policy.onnx or .safetensors in the run.

        file = vantage.export("runs/CartPole-v1/a2c-1", format="safetensors").path
        agent = vantage.load(file)

    safetensors is for `vantage.load`, onnx for programs without torch. The new file is read back
    and compared with the policy before it replaces an existing one; VantageError if they differ.
    `checkpoint`, `trust`, `network`, `memory` and `algorithm` are those of `vantage.load`.
    """
    if format not in get_args(Format):
        raise ConfigError(f"format={format!r} is not onnx or safetensors")
    given = with_code_of(run, {"network": network, "memory": memory, "algorithm": algorithm})
    output = _default_path(run, format) if output is None else Path(output)
    if format == "onnx":
        try:
            require("export", "onnx", "onnxruntime", "onnxscript")
        except ConfigError as error:
            raise ConfigError(f"{error}, or use --format safetensors") from None
    if isinstance(run, Agent) and checkpoint == "auto":
        agent = run
    else:
        agent = load_for("export", run_of(run), checkpoint=checkpoint, trust=trust,
                         objects=handed_over(**given))
    model, description = agent.described()
    policy = PolicyStep(model)
    with whole_file(output, f".{format}") as temporary:
        if format == "onnx":
            write_onnx(temporary, policy, description)
            difference = compare(load_onnx(temporary), policy)
        else:
            write_weights(temporary, model.state_dict(), description)
            again = load(temporary, trust=True, **given)
            difference = compare(PolicyStep(again.model).call, policy)
    return Export(output, policy.inputs, policy.outputs, difference)


def _default_path(run: str | Path | Agent, format: Format) -> Path:
    source = str(run_of(run))
    path = Path(source)
    # The file of an agent may lie in the package or in a cache.
    is_elsewhere = source.startswith((PREFIX, zoo.PREFIX)) or isinstance(run, Agent)
    if is_elsewhere and not path.is_dir():
        raise ConfigError(f"{run} has no run directory on this machine; name the file: --output "
                          f"policy.{format}")
    folder = path if path.is_dir() else path.parent
    return folder / f"policy.{format}"


def compare(exported: Callable[[Tensors], Tensors], policy: PolicyStep) -> float:
    """The largest difference between the outputs of both, each fed its own state for a few steps.

    Observations and starts of episodes are random. VantageError for a difference above `TOLERANCE`,
    and for another shape or type.
    """
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for batch in (1, 3):
        state = policy.initial_state(batch)
        exported_state = state
        for _ in range(8):
            inputs = policy.example(batch, generator)
            expected = policy.call({**inputs, **state})
            actual = exported({**inputs, **exported_state})
            # Rounding may decide between two equally probable actions: expect the mode of the
            # file's own logits.
            expected |= policy.modes(actual)
            for name, value in expected.items():
                largest = max(largest, _difference(name, actual[name], value))
            state = policy.next_state(expected)
            exported_state = policy.next_state(actual)
    return largest


def _difference(name: str, actual: Tensor, expected: Tensor) -> float:
    try:
        torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=TOLERANCE)
    except AssertionError as error:
        why = " ".join(str(error).split())
        raise VantageError(f"the exported file is wrong and was removed: its {name} differs from "
                           f"the policy's: {why} Please report it") from None
    return float((actual.double() - expected.double()).abs().max())
