"""The module of a user's algorithm: how it is built, and its buffers as one vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from vantage._host.seeding import derive_seed
from vantage.errors import ConfigError
from vantage.learning.config import LearningConfig
from vantage.models.actor_critic import ActorCritic


def copy_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the module's tensors by name."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def make_module(config: LearningConfig, model: ActorCritic) -> nn.Module | None:
    """The module that the algorithm's `build` returns, on the device of `model`; None without it.

    Its weights are the same in all processes. The state of torch's generator does not change.
    Raises ConfigError for a module that cannot be trained or saved.
    """
    build = getattr(config.algorithm, "build", None)
    if build is None:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, "module"))
        module = build(model.spec, model)
    if module is None:
        return None
    start = f"build of algorithm={config.algo} must return an nn.Module or None"
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{start}, not {type(module).__name__}")
    for name, tensor in module.state_dict().items():
        if not isinstance(tensor, Tensor) or nn.parameter.is_lazy(tensor):
            raise ConfigError(f"{start}, whose state is tensors of known shapes; {name} is "
                              f"{type(tensor).__name__}")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"{start} with weights of float32, as the policy has; {name} is "
                              f"{parameter.dtype}")
    return module.to(next(model.parameters()).device)


def module_in_words(module: nn.Module, algo: str) -> str:
    """The sizes of an algorithm's module, for the start of a run."""
    trained = sum(part.numel() for part in module.parameters() if part.requires_grad)
    fixed = sum(part.numel() for part in module.parameters() if not part.requires_grad)
    buffers = sum(part.numel() for part in module.buffers())
    return (f"module of {algo}: {trained:,} weights learned, {fixed:,} fixed, {buffers:,} numbers "
            "in buffers")


def critic_of(model: ActorCritic) -> Iterator[nn.Parameter]:
    """The parameters that only the critic uses: its network if it has one, and its heads."""
    for module in (model.critic, model.value_head, model.advantage_head):
        if module is not None:
            yield from module.parameters()


def load_module(module: nn.Module, tensors: Mapping[str, Tensor], algo: str) -> None:
    """Load `tensors` of a checkpoint. ConfigError if `build` returned another module then."""
    present = module.state_dict()
    for name in {**present, **tensors}:
        saved_shape = list(tensors[name].shape) if name in tensors else "nothing"
        shape = list(present[name].shape) if name in present else "nothing"
        if saved_shape != shape:
            raise ConfigError(
                f"build of algorithm={algo} returns another module than when the run was saved: "
                f"{name} was {saved_shape} and is {shape}; restore the class as it was")
    module.load_state_dict(tensors)


class Buffers:
    """The buffers of a module as one float64 vector [N], which holds float32 and integers exactly.

    Each process changes its own. Then all take the mean of the floating-point buffers, and the
    first process's other buffers.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    @classmethod
    def of(cls, module: nn.Module | None) -> Buffers | None:
        """The buffers of `module`; None if it has none."""
        has_any = module is not None and any(True for _ in module.buffers())
        return cls(module) if module is not None and has_any else None

    @torch.no_grad()
    def read(self) -> Tensor:
        """A copy of all numbers, [N]; empty without buffers."""
        parts = [buffer.double().flatten() for buffer in self._module.buffers()]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    @torch.no_grad()
    def merge(self, rows: Tensor) -> None:
        """Merge the rows [R, N] of all processes into the buffers; a single row is copied."""
        offset = 0
        for buffer in self._module.buffers():
            part = rows[:, offset:offset + buffer.numel()]
            merged = part.mean(0) if len(rows) > 1 and buffer.is_floating_point() else part[0]
            buffer.copy_(merged.view_as(buffer))
            offset += buffer.numel()


def parameters_of(*modules: nn.Module | None) -> list[nn.Parameter]:
    """The parameters of all modules in order, each once."""
    present = [module.parameters() for module in modules if module is not None]
    return list(dict.fromkeys(chain.from_iterable(present)))


@contextmanager
def restored_on_error(buffers: Buffers | None, averaged: Tensor | None) -> Iterator[None]:
    """After an exception, `buffers` and `averaged` weights are those before the context."""
    buffers_before = None if buffers is None else buffers.read()
    averaged_before = None if averaged is None else averaged.clone()
    try:
        yield
    except BaseException:
        if buffers is not None and buffers_before is not None:
            buffers.merge(buffers_before.unsqueeze(0))
        if averaged is not None and averaged_before is not None:
            averaged.copy_(averaged_before)
        raise
