"""The torso of a network that the user wrote, tried once before it is used."""

from __future__ import annotations

import copy
import inspect
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from vantage.errors import ConfigError
from vantage.keys.import_paths import load_class
from vantage.keys.objects import line_of
from vantage.models.images import to_floats


class _Unfit(Exception):
    """What is wrong with a network, in words."""


class OpenTorso(nn.Module):
    """A user-defined network; it receives pixels as floats from 0 to 1.

    `path` names its class or a function, which is called with the shape alone, as a tuple, or a
    module, which is copied.
    """

    network: nn.Module
    draws_noise: bool
    """Whether it draws random numbers in training and evaluation alike, which no key controls."""

    def __init__(self, path: str, shape: tuple[int, ...], *, is_image: bool,
                 part: str = "") -> None:
        """`part` names the observation's part, for messages; '' for a whole observation."""
        super().__init__()
        self.is_image = is_image
        factory = load_class(path, what="network")
        try:
            built = factory if isinstance(factory, nn.Module) else factory(shape)
            # A function may return the same module again, for the critic and for evaluations.
            built = built if isinstance(factory, type) else copy.deepcopy(built)
            self.add_module("network", built)  # TypeError if it is no module
            with torch.no_grad():
                features = self.network(torch.zeros(2, *shape))
                _check_tensor(features)
            self.out_features = int(getattr(self.network, "out_features", features.shape[-1]))
            if features.shape != (2, self.out_features):
                raise ValueError(f"its output for 2 observations is {list(features.shape)}, not "
                                 f"[2, {self.out_features}]")
            other = {each.dtype for each in self.network.parameters()} - {torch.float32}
            if other:
                raise ValueError(f"its weights are {other.pop()}; keep them float32, and compute "
                                 "in another precision within torch.autocast")
        except Exception as error:
            seen = f"observations {list(shape)}"
            fault = str(error) if isinstance(error, _Unfit) else repr(error)
            hint = _hint(error, factory)
            if part:
                seen = f"the observation part {part!r} of shape {list(shape)}"
                hint += "; each part gets a network of its own"
            raise ConfigError(f"network={path!r} cannot be used for {seen}: "
                              f"{fault}{line_of(error, path)}{hint}; it must be an nn.Module, or "
                              "its class or a function that builds it from the shape, here "
                              f"{tuple(shape)}, and map [N, *shape] to [N, out_features]"
                              ) from error
        with torch.no_grad():
            self.draws_noise = _Trial(self.network, path, shape).draws_noise()

    def forward(self, x: Tensor) -> Tensor:
        inputs = to_floats(x, torch.get_default_dtype()) * (1 / 255) if self.is_image else x
        out: Tensor = self.network(inputs)
        return out.to(inputs.dtype)  # the layers that follow take no half or double precision


class _Trial:
    """Whether an output of a network is a function of its own observation, and of nothing else."""

    def __init__(self, network: nn.Module, path: str, shape: tuple[int, ...]) -> None:
        self._network = network
        self._name = f"network={path!r}"
        self._x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))

    def draws_noise(self) -> bool:
        """Whether it draws random numbers in both modes. ConfigError for another fault."""
        remedy = "use nn.LayerNorm or nn.GroupNorm"
        with torch.random.fork_rng(devices=[]):
            try:
                self._network.eval()(self._x.clone())
            except Exception:
                self._x.zero_()  # the numbers may be indices, which are not negative
            in_play = self._features(self._x)
            if not _alike(self._features(self._x, training=True), in_play):
                raise ConfigError(f"{self._name} gives other outputs in training than in "
                                  f"evaluation, as dropout and batch normalisation do; {remedy}")
            draws = not _alike(self._features(self._x, seed=1), in_play)
            alone = self._features(self._x[-1:])
            if alone.shape != in_play[-1:].shape:
                raise ConfigError(f"{self._name} gives {list(alone.shape)} for a single "
                                  f"observation, not {list(in_play[-1:].shape)}")
            if not draws and not _alike(alone, in_play[-1:]):
                raise ConfigError(f"{self._name} gives another output for a single observation "
                                  "than for the same in a batch, as a mean over the batch makes "
                                  f"it; {remedy}, and batch_first=True for a sequence")
        self._network.train()
        return draws

    def _features(self, x: Tensor, *, training: bool = False, seed: int = 0) -> Tensor:
        seen = x.clone()
        torch.manual_seed(seed)
        try:
            features: Tensor = self._network.train(training)(seen)
        except Exception as error:
            number = "a single observation" if len(x) == 1 else f"{len(x)} observations"
            raise ConfigError(f"{self._name} fails with {number}: {error}") from error
        if not torch.equal(seen, x):
            raise ConfigError(f"{self._name} modifies its input in place, but other code reads "
                              "that tensor; write x = x * 2 for x.mul_(2), and no inplace=True in "
                              "the first layer")
        return features.float()


def _alike(features: Tensor, others: Tensor) -> bool:
    """Whether the two are equal up to the rounding of batches of another size."""
    return torch.allclose(features, others, rtol=1e-2, atol=1e-3, equal_nan=True)


def _check_tensor(features: Any) -> None:
    if not isinstance(features, Tensor):
        kind = "None" if features is None else f"a {type(features).__name__}"
        raise _Unfit(f"forward returned {kind}; return one tensor")
    if features.ndim == 0:
        raise _Unfit("forward returned a single number for 2 observations; return a row for each")


def _hint(error: Exception, factory: Any) -> str:
    """What to write instead where a shape was taken for a space or a number."""
    if isinstance(error, _Unfit):
        return ""
    with suppress(ValueError, TypeError):  # of a class without a signature
        first = next(iter(inspect.signature(factory).parameters), "")
        if "space" in first and not isinstance(factory, nn.Module):
            return (f"; its parameter {first} receives the shape of the observation, a tuple, and "
                    "no space: write __init__(self, shape), without features_dim")
    text = str(error)
    if isinstance(error, TypeError) and "tuple" in text:
        return "; the shape is a tuple: write shape[0] for the number of a vector's elements"
    return ""
