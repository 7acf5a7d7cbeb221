"""`vantage export`: a policy as one file for use elsewhere, read back and compared before it is called good."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vantage.errors import ConfigError, VantageError
from vantage.models.actor_critic import make_model
from vantage.runs.directory import check_utf8, write_atomically
from vantage.runs.weights import Description, write_weights
from vantage.tools.card import card
from vantage.tools.onnx_policy import OnnxSession, PolicyStep, check_libraries, make_onnx
from vantage.training import load

FORMATS = ("onnx", "safetensors")

TOLERANCE = 1e-5
"""Largest difference from torch, absolute or, for numbers above 1, relative."""

ROUNDING = 10
"""Or so many times what rounding to float32 changes in torch itself: a fresh impala's LSTM cells move by 1e-5."""

STEPS = 8
BATCHES = (1, 3)
"""What the comparison plays: random observations, with episodes that open in between."""

Tensors = Mapping[str, Tensor]
Call = Callable[[Tensors], Tensors]


@dataclass(frozen=True, slots=True)
class Export:
    """A file that computes what the policy of the run does."""

    path: Path
    description: Description
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float
    """The largest that the comparison met."""
    card: Path | None
    """The model card beside it."""

    def sentence(self) -> str:
        """For a person."""
        known, size = self.description, self.path.stat().st_size
        lines = [f"{self.path}: {known.config.algo} on {known.config.env.id}, step {known.step:,}, {known.checkpoint}, "
                 f"{size / 1e6:.2f} MB",
                 f"  checked    read back and compared with the policy over {STEPS} steps of random observations: "
                 f"largest difference {self.difference:.1e}",
                 f"  in         {', '.join(self.inputs)}",
                 f"  out        {', '.join(self.outputs)}"]
        if self.card is not None:
            lines[2:] = [f"  card       {self.card}", f"  load       vantage.load({str(self.path)!r})"]
        return "\n".join(lines)


def export(run: str | Path, *, format: str, output: Path | None = None, checkpoint: str = "auto",
           notify: Callable[[str], None] = warnings.warn) -> Export:
    """Write the policy of `run` to `output`, by default policy.onnx or policy.safetensors in the run's directory.

    A file that is there is replaced once the new one has been read back and computes the same; VantageError if it does
    not, and then nothing has changed. `checkpoint` and `notify` are as for `vantage.load`.
    """
    if format not in FORMATS:
        raise ConfigError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    output = _output(Path(run), output, f".{format}")
    text = output.with_name(f"{output.stem}.card.md") if format == "safetensors" else None
    for path in filter(None, (output, text)):
        _check_free(path)
    if format == "onnx":
        check_libraries()
    agent = load(run, checkpoint=checkpoint)
    config, model = agent.config, agent.model
    if config.policy.precision == "bfloat16":
        notify("the policy was trained with torsos in bfloat16; the file computes in float32, which rounds less")
        config = config.change(precision="float32")
        model = make_model(config.policy, model.spec, critic=config.algorithm.needs.critic).eval()
        model.load_state_dict(agent.model.state_dict())
    known = Description(config, model.spec, agent.step, agent.checkpoint, agent.scores)
    policy = PolicyStep(model)
    new = output.with_name(f".{output.stem}.{os.getpid()}{output.suffix}")
    writing = output
    try:
        difference = _write_and_compare(new, policy, known)
        os.replace(new, output)
        if text is not None:
            writing = text
            write_atomically(text, card(known, output.name))
    except OSError as error:
        raise ConfigError(f"cannot write {writing}: {error.strerror or error}; choose another place with -o") from None
    finally:
        with contextlib.suppress(OSError):  # where nothing can be written there is nothing to remove
            new.unlink()
    return Export(output, known, policy.inputs, policy.outputs, difference, text)


def _output(run: Path, output: Path | None, suffix: str) -> Path:
    if output is None:
        return (run if run.is_dir() else run.parent) / f"policy{suffix}"
    if output.suffix != suffix:
        raise ConfigError(f"{output}: the name must end in {suffix}, as --format {suffix[1:]} writes it")
    if not output.parent.is_dir():
        raise ConfigError(f"{output.parent}: no such directory; make it, or choose another place with -o")
    return output


def _check_free(path: Path) -> None:
    """ConfigError where no file of that name can be read back, or where a run keeps its own checkpoints."""
    check_utf8(path, "choose another place with -o")
    if path.is_dir():
        raise ConfigError(f"{path} is a directory; move it, or name another file with -o")
    place = path.parent.resolve()
    for folder in (place, *place.parents):
        if folder.name in ("best", "checkpoints") and (folder.parent / "config.json").is_file():
            raise ConfigError(f"{path} is among the checkpoints of the run {folder.parent}, which must stay as they "
                              "are; choose another place with -o")


def _write_and_compare(path: Path, policy: PolicyStep, known: Description) -> float:
    if path.suffix == ".onnx":
        import onnx

        proto = make_onnx(policy, known)
        onnx.checker.check_model(proto)
        path.write_bytes(proto.SerializeToString())
        return compare(OnnxSession(path), policy)
    write_weights(path, policy.model.state_dict(), known)
    return compare(_in_torch(PolicyStep(load(path).model)), policy)


def _in_torch(policy: PolicyStep) -> Call:
    @torch.no_grad()
    def call(inputs: Tensors) -> dict[str, Tensor]:
        return dict(zip(policy.outputs, policy(*(inputs[name] for name in policy.inputs)), strict=True))

    return call


def compare(candidate: Call, policy: PolicyStep) -> float:
    """The largest difference between what `candidate` and the policy answer, each going on from its own state.

    VantageError where one is above `TOLERANCE` and no rounding, which the same policy in float64 tells.
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


def _differences(name: str, policy: PolicyStep, expected: Tensors, given: Tensors, exact: Tensors,
                 ) -> tuple[float, float]:
    """How far the output `name` is from what the policy says, and the policy from what it would say in float64."""
    if name == "action" and policy.model.spec.action.kind != "box":
        # Of two actions that are equally probable but for rounding, each may take its own.
        return _difference(given[name], policy.model.distribution.mode(given["logits"])), 0.0
    return _difference(given[name], expected[name]), _difference(exact[name].to(expected[name].dtype), expected[name])


def _difference(given: Tensor, expected: Tensor) -> float:
    if given.shape != expected.shape or given.dtype != expected.dtype:
        return float("inf")
    a, b = given.double(), expected.double()
    return float(((a - b).abs() / b.abs().clamp(min=1)).max())
