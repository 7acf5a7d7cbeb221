"""The evaluator of `hogwild`: a process that plays with a frozen copy of the weights while the workers go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from time import monotonic

import torch
from torch import Tensor

from vantage.config import Config
from vantage.models.actor_critic import make_model
from vantage.runtimes.evaluation import evaluate_policy
from vantage.runtimes.shared_memory import SharedWeights
from vantage.runtimes.worker import Failure, Process, start
from vantage.specs import EnvSpec
from vantage.system import deaf_to_signals

Policy = Mapping[str, Mapping[str, Tensor]]
"""A model's tensors and those of its reward normaliser, by group, as a checkpoint has them."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The evaluation of the policy that was sent at `step`; `policy` is that until another is sent."""

    step: int
    metrics: Mapping[str, float]
    solved: bool
    policy: Policy


class Evaluator:
    """This end of the evaluator: at most one process, and one policy at a time. What fails is returned as a Failure."""

    def __init__(self, config: Config, spec: EnvSpec, shared: SharedWeights, context: SpawnContext) -> None:
        self._config, self._spec, self._shared, self._context = config.change(device="cpu"), spec, shared, context
        self._process: Process | None = None
        self._ready = False
        self._policy: Policy | None = None

    @property
    def connections(self) -> list[Connection]:
        """What to wait for; then call `hear`."""
        return [] if self._process is None else [self._process.connection]

    @property
    def busy(self) -> bool:
        """It starts or evaluates, so that `last_beat` tells whether it hangs."""
        return self._process is not None and not (self._ready and self._policy is None)

    @property
    def ended(self) -> bool:
        """Its process is no more, which `hear` tells of."""
        return self._process is not None and not self._process.process.is_alive()

    @property
    def last_beat(self) -> float:
        """When it last took a step, by `monotonic`."""
        return self._shared.last_beat(self._config.runtime.num_workers)

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is None:
            self._shared.beat(self._config.runtime.num_workers, monotonic())
            with deaf_to_signals():
                self._process = start(self._context, "vantage-evaluator", evaluate_each, self._config, self._spec,
                                      self._shared)
            self._ready = False

    def idle(self) -> bool:
        """It waits for a policy; else it is started, or at work."""
        self.start()
        return not self.busy

    def send(self, step: int, policy: Policy) -> Failure | None:
        """Let it evaluate a copy of `policy`, which the next one overwrites."""
        assert self._process is not None and self._policy is None
        # Not through the pipe, in which a model has no room: an evaluator that is stopped would stop this process too.
        self._shared.freeze(policy["model"])
        self._policy = {group: {name: tensor.clone() for name, tensor in tensors.items()}
                        for group, tensors in policy.items() if group != "model"} | {"model": self._shared.frozen()}
        self._shared.beat(self._config.runtime.num_workers, monotonic())
        try:
            self._process.connection.send(step)
        except OSError:
            return self._end_of_process()
        return None

    def hear(self) -> Evaluated | Failure | None:
        """What it has said; None for that it is ready."""
        assert self._process is not None
        if self.ended and not self._process.connection.poll():
            return self._end_of_process()
        try:
            message = self._process.connection.recv()
        except (EOFError, OSError):
            return self._end_of_process()
        if isinstance(message, Failure):
            return message
        if message is None:
            self._ready = True
            return None
        policy, self._policy = self._policy, None
        assert policy is not None
        step, metrics, solved = message
        return Evaluated(step, metrics, solved, policy)

    def end(self) -> None:
        """Kill the process, if there is one; `start` makes another."""
        if self._process is not None:
            self._process.end()
        self._process = self._policy = None

    def _end_of_process(self) -> Failure:
        assert self._process is not None
        return Failure.of_end(self._process.process)


def evaluate_each(connection: Connection, config: Config, spec: EnvSpec, shared: SharedWeights) -> None:
    """Evaluate the frozen policy of each step that comes; sends None when ready, then (step, metrics, solved)."""
    torch.set_num_threads(config.runtime.threads)
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)

    def alive() -> bool:
        shared.beat(config.runtime.num_workers, monotonic())
        return False

    connection.send(None)
    while True:
        step = connection.recv()
        model.load_state_dict(shared.frozen())
        played = evaluate_policy(model, config, step, should_stop=alive)
        assert played is not None
        connection.send((step, *played))
