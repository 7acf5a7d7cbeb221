"""The actors of the runtime `ray`: they collect rollouts or play evaluations. `ray` calls them.

Actors answer with values: also their errors, as VantageError with the traceback in the message.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from time import perf_counter
from typing import Any, cast

import numpy as np
import ray
import torch
from torch import Tensor

from vantage import __version__
from vantage._host.system import available_cores
from vantage._host.time_limit import TimeLimit
from vantage.config.config import Config
from vantage.keys.objects import pack, unpack
from vantage.learning.collect import join_rollouts
from vantage.learning.evaluation import result_of
from vantage.learning.gradients import clip_gradient
from vantage.learning.learner import Learner
from vantage.learning.own_state import own_state
from vantage.learning.running_statistics import observe, running_stats
from vantage.learning.step_metrics import Number
from vantage.learning.weights import GradientSink
from vantage.models.normalization import Stats
from vantage.runtimes.actor_learner import ActorLearner, replay_share
from vantage.runtimes.child_processes import portable_error, prepare_process
from vantage.runtimes.evaluator import EvaluationResult, Evaluator
from vantage.runtimes.progress import Advance
from vantage.runtimes.startup import new_model
from vantage.types import EnvSpec, Rollout, map_parts

Arrays = list[np.ndarray]

MESSAGE_BYTES = 90 * 1024
"""Largest weights that are sent within a request, in bytes.

Ray puts arguments above 100 KiB in the object store, again for every request
(max_direct_call_object_size).
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one request to a worker."""

    advance: Advance
    statistics: Arrays
    """Count, mean and variance of this rollout's observations for each normaliser, and of its
    returns."""
    payload: Mapping[str, Any]
    """The arrays of a rollout, or a gradient [P] with its loss and number of valid steps."""


def versions() -> str:
    """What must be the same on all machines."""
    return f"Vantage {__version__} on Python {platform.python_version()}"


def returning_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return errors of `method`, as VantageError, in place of its result."""
    @wraps(method)
    def answer(*args: Any) -> Any:
        try:
            return method(*args)
        except BaseException as error:
            return portable_error(error)
    return answer


class RayWorker:
    """Acts with the newest weights in its own environments; sends rollouts or gradients."""

    def __init__(self, config: bytes, worker: int, index: int, episode: int = 0) -> None:
        self._arguments = config, worker, index
        self._episode = episode
        self._updates: Iterator[dict[str, float]] = iter(())
        self._evaluator: Evaluator | None = None

    def place(self) -> tuple[str, str]:
        """The node, as address and start of its id, and the `versions` there.

        One machine may have several nodes.
        """
        node = ray.get_runtime_context().get_node_id()
        return f"{ray.util.get_node_ip_address()}-{node[:6]}", versions()

    @returning_errors
    def begin(self) -> None:
        packed, worker, index = self._arguments
        config: Config = unpack(packed)
        prepare_process(config)
        room = max(1, int(available_cores() / config.ray.worker_cpus))
        neighbours = min(room, config.runtime.num_workers)
        actor_learner = ActorLearner(config, worker=worker, index=index,
                                     replay_bytes=replay_share(neighbours))
        for _, normalizer in running_stats(actor_learner.learner):
            normalizer.local_stats = cast(Stats, tuple(map(torch.zeros_like, normalizer.stats)))
        self._actor_learner = actor_learner
        self._sink = GradientCopy()
        actor_learner.learner.sink = self._sink
        actor_learner.begin(self._episode)

    @returning_errors
    def change(self, values: Mapping[str, Any]) -> None:
        """Learn with other coefficients from the next request on."""
        packed, worker, index = self._arguments
        config = unpack(packed).change(**values)
        self._arguments = pack(config, "the config"), worker, index
        if hasattr(self, "_actor_learner"):  # it has begun
            self._actor_learner.change(values)

    @returning_errors
    def rollout(self, weights: Arrays, step: int) -> Reply:
        actor_learner = self._actor_learner
        load_weights(actor_learner.learner, weights)
        rollouts, advance = actor_learner.collect(learns=False)
        actor_learner.move_on()
        rollout = join_rollouts(rollouts)
        observe(actor_learner.learner, rollout, step)
        arrays = {field.name: map_parts(Tensor.numpy, getattr(rollout, field.name))
                  for field in fields(Rollout)}
        return Reply(advance, self._statistics(), arrays)

    @returning_errors
    def gradient(self, weights: Arrays, step: int) -> Reply:
        """The gradient of the next update: from the replay if one is due, else new rollouts."""
        actor_learner = self._actor_learner
        advance = Advance()
        load_weights(actor_learner.learner, weights)
        metrics = next(self._updates, None)
        started = perf_counter()
        if metrics is None:
            rollouts, advance = actor_learner.collect()
            started = perf_counter()
            self._updates = actor_learner.updates(rollouts, step)
            metrics = next(self._updates)
        unsaved = own_state(actor_learner.config.algorithm)
        advance += Advance(updates=1, metrics=metrics, unsaved=unsaved,
                           learn_seconds=perf_counter() - started)
        return Reply(advance, self._statistics(), self._sink.reply)

    @returning_errors
    def evaluate(self, spec: EnvSpec, weights: Arrays, step: int, longest_game: int,
                 best: float | None) -> tuple[EvaluationResult | None, float]:
        """Play the games of an evaluation; returns its result, and seconds."""
        started = perf_counter()
        config: Config = unpack(self._arguments[0])
        prepare_process(config)
        TimeLimit.ends_process = True  # where native code hangs
        learner = Learner(new_model(config, spec), config)
        load_weights(learner, weights)
        self._evaluator = self._evaluator or Evaluator(config)
        evaluated = result_of(self._evaluator.evaluate(learner.model, step,
                                                       longest_game=longest_game, best=best))
        return evaluated, perf_counter() - started

    def close_evaluator(self) -> None:
        """Close the environments of evaluations; this process is killed next."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _statistics(self) -> Arrays:
        parts = [part for _, normalizer in running_stats(self._actor_learner.learner)
                 for part in normalizer.local_stats or ()]
        arrays = [part.numpy().copy() for part in parts]
        for part in parts:
            part.zero_()
        return arrays


class GradientCopy(GradientSink):
    """The gradient sink of a worker: stores the clipped gradient for the reply."""

    reply: Mapping[str, Any]

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """Clip and store the gradient; the weights do not change."""
        norm = clip_gradient(gradient, max_grad_norm)
        self.reply = {"gradient": gradient.numpy(), "num_valid": float(num_valid),
                      "loss": float(loss)}
        return norm, float(loss)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return {}

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to restore."""


def weight_parts(learner: Learner) -> list[Tensor]:
    """The tensors that acting and losses depend on: weights, average policy and statistics."""
    parts = [learner.flat.vector]
    if learner.average is not None:
        parts.append(learner.average.vector)
    return parts + [part for _, normalizer in running_stats(learner) for part in normalizer.stats]


def weights_argument(learner: Learner) -> Any:
    """The `weight_parts` as an argument of requests.

    Large ones are a reference to the object store, small ones the arrays themselves, since fetching
    an object from another node needs a lookup first: 5.1 ms of CPU for a request and its reply
    instead of 1.6. The arrays are views, which Ray copies when the request is made.
    """
    arrays = [part.detach().cpu().numpy() for part in weight_parts(learner)]
    return arrays if sum(array.nbytes for array in arrays) <= MESSAGE_BYTES else ray.put(arrays)


@torch.no_grad()
def load_weights(learner: Learner, arrays: Arrays) -> None:
    """Copy the arrays of another learner's `weight_parts`."""
    for part, array in zip(weight_parts(learner), arrays, strict=True):
        part.copy_(tensor(array))


def merge_statistics(learner: Learner, arrays: Arrays) -> None:
    """Merge the statistics of a `Reply` into those in use."""
    rest = iter(arrays)
    for _, normalizer in running_stats(learner):
        count, mean, variance = (tensor(next(rest)) for _ in range(3))
        if count > 0:
            normalizer.merge(count, mean, variance)


def rollout_of(arrays: Mapping[str, Any], device: torch.device) -> Rollout:
    """The rollout of a `Reply`, a view of the object store if `device` is the CPU."""
    return Rollout(**{name: map_parts(lambda array: tensor(array).to(device), part)
                      for name, part in arrays.items()})


def tensor(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of `array`, which is read-only in the object store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)
