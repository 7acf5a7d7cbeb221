"""`vantage export`: a policy as one file, ONNX or safetensors, read back and compared with the policy before it counts.

How a policy becomes an ONNX model is in `onnx_policy`.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vantage.errors import ConfigError, VantageError
from vantage.models.actor_critic import make_model
from vantage.runs.directory import check_utf8, write_atomically
from vantage.runs.policy_file import Description, write_weights
from vantage.tools.card import card
from vantage.tools.onnx_policy import OnnxSession, PolicyStep, check_libraries, make_onnx
from vantage.training import load

log = logging.getLogger(__name__)

FORMATS = ("onnx", "safetensors")

TOLERANCE = 1e-5
"""Largest allowed difference from torch, relative for numbers above 1."""
ROUNDING = 10
"""Or this multiple of what rounding to float32 changes in torch itself: a fresh impala's LSTM cells move by 1e-5."""

STEPS, BATCHES = 8, (1, 3)
"""Length and batch sizes of the comparison, on random observations with random starts of episodes."""

Tensors = Mapping[str, Tensor]
Call = Callable[[Tensors], Tensors]


@dataclass(frozen=True, slots=True)
class Export:
    """An exported file that computes what the policy of the run does."""

    path: Path
    description: Description
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float
    """The largest in the comparison."""
    card: Path | None
    """The model card of a safetensors file."""

    def sentence(self) -> str:
        """As text."""
        about, size = self.description, self.path.stat().st_size
        lines = [f"{self.path}: {about.config.algo} on {about.config.env.id}, step {about.step:,}, {about.checkpoint}, "
                 f"{size / 1e6:.2f} MB",
                 f"  checked    read back and compared with the policy over {STEPS} steps of random observations: "
                 f"largest difference {self.difference:.1e}"]
        if self.card is not None:
            return "\n".join([*lines, f"  card       {self.card}", f"  load       vantage.load({str(self.path)!r}"
                              f"{about.trust_argument})"])
        return "\n".join([*lines, f"  in         {', '.join(self.inputs)}", f"  out        {', '.join(self.outputs)}"])


def export(run: str | Path, *, format: str, output: Path | None = None, checkpoint: str = "auto",
           trust: bool = False) -> Export:
    """Write the policy of `run` to `output`, by default policy.onnx or policy.safetensors in the run's directory.

    An existing file is replaced only after the new one has been read back and computes the same; otherwise nothing
    changes and VantageError is raised. `checkpoint` and `trust` are those of `vantage.load`.
    """
    if format not in FORMATS:
        raise ConfigError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    output = _resolve(Path(run), output, f".{format}")
    card_path = output.with_name(f"{output.stem}.card.md") if format == "safetensors" else None
    for path in filter(None, (output, card_path)):
        _check_place(path)
    if format == "onnx":
        check_libraries()
    agent = load(run, checkpoint=checkpoint, trust=trust)
    config, model = agent.config, agent.model
    if config.policy.precision == "bfloat16":
        log.warning("the policy was trained with torsos in bfloat16; the file computes in float32, which rounds less")
        config = config.change(precision="float32")
        model = make_model(config.policy, model.spec, critic=config.algorithm.needs.critic).eval()
        model.load_state_dict(agent.model.state_dict())
    description = Description(config, model.spec, agent.step, agent.checkpoint, agent.scores)
    policy = PolicyStep(model)
    temporary, target = output.with_name(f".{output.stem}.{os.getpid()}{output.suffix}"), output
    try:
        difference = _write_and_compare(temporary, policy, description)
        os.replace(temporary, output)
        if card_path is not None:
            target = card_path
            write_atomically(card_path, card(description, output.name))
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror or error}; choose another place with -o") from None
    finally:
        with contextlib.suppress(OSError):  # on a read-only file system there is nothing to remove
            temporary.unlink()
    return Export(output, description, policy.inputs, policy.outputs, difference, card_path)


def _resolve(run: Path, output: Path | None, suffix: str) -> Path:
    if output is None:
        return (run if run.is_dir() else run.parent) / f"policy{suffix}"
    if output.suffix != suffix:
        raise ConfigError(f"{output}: the name must end in {suffix}, as --format {suffix[1:]} writes it")
    if not output.parent.is_dir():
        raise ConfigError(f"{output.parent}: no such directory; make it, or choose another place with -o")
    return output


def _check_place(path: Path) -> None:
    """ConfigError for a name that cannot be read back, a directory, and a file among the checkpoints of a run."""
    check_utf8(path, "choose another place with -o")
    if path.is_dir():
        raise ConfigError(f"{path} is a directory; move it, or name another file with -o")
    place = path.parent.resolve()
    for folder in (place, *place.parents):
        if folder.name in ("best", "checkpoints") and (folder.parent / "config.json").is_file():
            raise ConfigError(f"{path} is among the checkpoints of the run {folder.parent}, which must not change; "
                              "choose another place with -o")


def _write_and_compare(path: Path, policy: PolicyStep, description: Description) -> float:
    if path.suffix == ".onnx":
        import onnx

        proto = make_onnx(policy, description)
        onnx.checker.check_model(proto)
        path.write_bytes(proto.SerializeToString())
        return compare(OnnxSession(path), policy)
    write_weights(path, policy.model.state_dict(), description)
    return compare(_in_torch(PolicyStep(load(path, trust=True).model)), policy)


def _in_torch(policy: PolicyStep) -> Call:
    @torch.no_grad()
    def call(inputs: Tensors) -> dict[str, Tensor]:
        return dict(zip(policy.outputs, policy(*(inputs[name] for name in policy.inputs)), strict=True))

    return call


def compare(candidate: Call, policy: PolicyStep) -> float:
    """The largest difference between the outputs of `candidate` and of the policy, each fed its own state.

    VantageError for one above `TOLERANCE` that rounding, measured with the same policy in float64, does not explain.
    """
    exact = copy.deepcopy(policy).double()
    calls, generator, largest = (_in_torch(policy), candidate, _in_torch(exact)), torch.Generator().manual_seed(0), 0.0
    for batch in BATCHES:
        states = [policy.initial_state(batch), policy.initial_state(batch), exact.initial_state(batch)]
        for step in range(STEPS):
            inputs = policy.example(batch, generator)
            answers = [call({**inputs, **state}) for call, state in zip(calls, states, strict=True)]
            for name in policy.outputs:
                difference, rounding = _differences(name, policy, *answers)
                if not difference <= max(TOLERANCE, ROUNDING * rounding):
                    raise VantageError(
                        f"the exported file is wrong and was removed: at step {step} with a batch of {batch} its "
                        f"{name} differs from the policy's by {difference:.1e}, more than {TOLERANCE:g} and more than "
                        "rounding explains; please report it with the run's config.json")
                largest = max(largest, difference)
            states = [{f"state.{name}": answer[f"next_state.{name}"] for name in policy.state} for answer in answers]
    return largest


def _differences(name: str, policy: PolicyStep, expected: Tensors, actual: Tensors, exact: Tensors,
                 ) -> tuple[float, float]:
    """How far the output `name` is from the policy's, and the policy's from its own in float64."""
    if name == "action" and policy.model.spec.action.kind != "box":
        # Rounding may decide between two equally probable actions, so compare with the mode of the file's own logits.
        return _difference(actual[name], policy.model.distribution.mode(actual["logits"])), 0.0
    return _difference(actual[name], expected[name]), _difference(exact[name].to(expected[name].dtype), expected[name])


def _difference(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    a, b = actual.double(), expected.double()
    return float(((a - b).abs() / b.abs().clamp(min=1)).max())
