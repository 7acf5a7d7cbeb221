"""The runtime of many machines: actors of Ray act, this process learns, watches them and writes.

With send=rollouts it is the central learner of IMPALA (Espeholt et al. 2018, arXiv:1802.01561),
with send=gradients a parameter server. What actors do is in `ray_worker`, how this process learns
from their replies in `ray_learner`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any

import ray
import torch

from vantage._host.system import use_threads
from vantage.config.config import Config
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError
from vantage.keys.objects import pack, unpack
from vantage.learning.learner import Learner
from vantage.learning.learner_state import policy_tensors, tensors_of
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import SavedPolicy
from vantage.runtimes.child_processes import ReceiveClock, Restarts
from vantage.runtimes.progress import Progress
from vantage.runtimes.ray_cluster import (
    RATE_SECONDS,
    Member,
    NodeRates,
    connect,
    disconnect,
    failure_of,
    resolve_num_workers,
)
from vantage.runtimes.ray_learner import RemoteEvaluator, ReplyLearner
from vantage.runtimes.ray_worker import RayWorker, Reply, versions
from vantage.runtimes.recorder import Recorder, Status
from vantage.runtimes.startup import (
    begin_workers,
    first_episode,
    load_learner,
    model_of_workers,
)
from vantage.runtimes.steps import is_due

log = logging.getLogger(__name__)

MOMENT = 0.1
"""Seconds that this process waits for replies before it looks after the workers again."""

IDLE_SECONDS = 30.0
"""Seconds without any worker before a warning.

Python may take a while to start on a busy machine.
"""


class RayRun:
    """A run whose workers are actors of a Ray cluster, and whose weights are in this process."""

    def __init__(self, config: Config, directory: RunDirectory, checkpoint: Checkpoint | None,
                 initial: SavedPolicy | None = None) -> None:
        self._requests: dict[Any, Member] = {}
        self._evaluator: RemoteEvaluator | None = None
        self._restarts = Restarts(config.ray.max_restarts)
        now = monotonic()
        self._clock = ReceiveClock(now)
        self._rates = NodeRates(now)
        self._worker_config = b""
        self._owns_cluster = connect(config)
        with ExitStack() as stack:  # undone where the run cannot start
            stack.callback(self._release)
            self.config = config = config.change(num_workers=resolve_num_workers(config))
            workers = config.runtime.num_workers
            if config.ray.ray_address == "local":
                own_threads = torch.get_num_threads() - workers * config.runtime.threads
                use_threads(max(1, own_threads))
            self.progress = Progress(self._prepare(checkpoint, initial), workers,
                                     config.run.return_window)
            self.recorder = Recorder(config, directory, checkpoint, self.progress,
                                     self._learner.model, partial(tensors_of, self._learner),
                                     partial(policy_tensors, self._learner))
            stack.callback(self.recorder.abandon)
            begin_workers(self.recorder, checkpoint)
            self._reply_learner = ReplyLearner(self._learner, self.config, self.progress)
            for worker in range(workers):
                self._start(worker)
            stack.pop_all()

    def advance(self) -> Generator[None]:
        """Handle a reply if one arrives in a moment; evaluate and save where due."""
        before = self.progress.step
        self._receive()
        self.recorder.note_due_evaluation(before)
        is_busy = self._evaluator is not None and self._evaluator.is_busy
        if is_busy or (self.recorder.evaluation_begins and not self.recorder.finished):
            self._evaluate(0.0)
        if is_due(self.config.run.save_every, before, self.progress.step):
            self.recorder.save()
        yield

    def policy(self) -> ActorCritic:
        return self._learner.model

    def save(self) -> None:
        self.recorder.save(final=True)

    def change(self, values: Mapping[str, Any]) -> None:
        """Continue with other coefficients; each worker takes them before its next request."""
        self.config = self.config.change(**values)
        self._learner.change(self.config)
        self.recorder.change(values)
        self._worker_config = pack(unpack(self._worker_config).change(**values), "the config")
        for member in self._requests.values():
            member.actor.change.remote(dict(values))

    def stop(self) -> None:
        """End the workers. Rollouts that they have not sent are lost."""
        for member in self._requests.values():
            ray.kill(member.actor)
        self._requests.clear()

    def evaluate(self) -> Generator[None]:
        """Complete the evaluation that is under way, and make the one that is due after it."""
        while self.recorder.last_evaluation_due:
            self._evaluate(MOMENT)
            yield

    def close(self, status: Status) -> None:
        try:
            self._release()
        finally:
            self.recorder.close(status)

    def _release(self) -> None:
        with suppress(ray.exceptions.RayError):
            self.stop()
            if self._evaluator is not None:
                self._evaluator.close()
        if self._owns_cluster:
            disconnect()

    def _prepare(self, checkpoint: Checkpoint | None, initial: SavedPolicy | None) -> float:
        """Make the learner; returns frames per step.

        Its weights are new, those of `initial`, or those of the checkpoint.
        """
        config = self.config
        model, frames_per_step = model_of_workers(config,
                                                  is_new=initial is None and checkpoint is None)
        self.config = config = config.with_shifts(model.spec.shifts)
        self._learner = Learner(model.to(config.runtime.device), config)
        sends_gradients = config.ray.send == "gradients"
        if sends_gradients and self._learner.buffers is not None:
            raise ConfigError("send=gradients does not return the buffers of the module of "
                              f"algorithm={config.algo} from its workers; give --send rollouts")
        load_learner(self._learner, config, checkpoint, initial)
        changes = {} if sends_gradients else {"rollouts_per_update": 1}
        # This process enforces env_timeout for workers; the evaluator, whose games may take long,
        # does so itself.
        self._worker_config = pack(config.change(device="cpu", env_timeout=0, **changes),
                                   "the config")
        self._evaluator = RemoteEvaluator(pack(config.change(device="cpu"), "the config"))
        log.info(f"{config.runtime.num_workers} workers, {config.envs_per_process} environments in "
                 f"each, send {config.ray.send}; the learner is on {config.runtime.device}")
        return frames_per_step

    def _learn(self, member: Member, reply: Reply) -> None:
        """Learn from a reply, and send its worker the newest weights.

        A worker gets its next request before this process learns from its rollout, so that both
        compute at the same time.
        """
        learner = self._reply_learner
        updates = member.updates
        self._rates.count_reply(member.node, reply.advance.steps, learner.updates - updates)
        accepted = learner.accepts(reply, updates)
        if accepted and learner.sends_gradients:
            learner.apply(reply, updates)
        self._request(member)
        if accepted and not learner.sends_gradients:
            learner.add(reply, updates)

    def _evaluate(self, seconds: float) -> None:
        """Begin an evaluation, or record the one under way if it ends within `seconds`."""
        assert self._evaluator is not None
        if not self._evaluator.is_busy:
            self.progress.restart_evaluation_clock()
            self._evaluator.begin(self._learner, self._reply_learner.weights, self.progress)
        try:
            self._evaluator.record(self.recorder, seconds)
        except ray.exceptions.RayError as error:
            self._restarts.add("the evaluator", failure_of(error))

    # Workers

    def _start(self, worker: int) -> None:
        actor = ray.remote(RayWorker).options(num_cpus=self.config.ray.worker_cpus).remote(
            self._worker_config, worker, self.recorder.workers_started,
            first_episode(self.progress, self.config))
        self.recorder.workers_started += 1
        self._send(Member(worker, actor), actor.place)

    def _request(self, member: Member) -> None:
        learner = self._reply_learner
        member.updates = learner.updates
        method = member.actor.gradient if learner.sends_gradients else member.actor.rollout
        self._send(member, method, learner.weights, self.progress.step)

    def _send(self, member: Member, method: Any, *arguments: Any) -> None:
        member.since = monotonic()
        self._requests[method.remote(*arguments)] = member

    def _receive(self) -> None:
        """Handle one answered request, if there is one within a moment, and late workers."""
        ready, _ = ray.wait(list(self._requests), num_returns=1, timeout=MOMENT)
        now = monotonic()
        self._clock.received(now, MOMENT)
        for request in ready:
            self._handle(request)
        self._lose_late_workers()
        if self._rates.due(now):
            self._report_nodes(now)

    def _report_nodes(self, now: float) -> None:
        """Put the metrics of every node into those of the run; warn if no worker runs."""
        nodes = [member.node for member in self._requests.values() if member.node]
        self.progress.extra = {
            "ray/workers": float(len(nodes)),
            "ray/restarts": float(self._restarts.count),
            "ray/dropped_steps": float(self._reply_learner.dropped_steps),
            **self._rates.metrics(now, nodes),
        }
        waited = now - max((member.since for member in self._requests.values()), default=now)
        if not nodes and IDLE_SECONDS <= waited < IDLE_SECONDS + 2 * RATE_SECONDS:
            log.warning("no worker runs: all wait for free CPUs or new nodes of the cluster")

    def _handle(self, request: Any) -> None:
        """Take the answer of a worker, and send its next request."""
        member = self._requests.pop(request)
        try:
            answer = ray.get(request)
        except ray.exceptions.RayError as error:
            self._lose(member, failure_of(error), gone=True)
            return
        if isinstance(answer, VantageError):
            self._lose(member, answer)
        elif not member.node:
            member.node, present = answer
            if present == versions():
                self._send(member, member.actor.begin)
            else:
                self._lose(member, VantageError(f"{member.node} has {present}, the machine that "
                                                f"trains {versions()}; install the same on all"))
        elif not member.begun:
            member.begun = True
            self._request(member)
        else:
            self._learn(member, answer)

    def _lose_late_workers(self) -> None:
        """Replace workers that have not answered within env_timeout."""
        limit = self.config.env.env_timeout
        if limit <= 0:
            return
        for request, member in list(self._requests.items()):
            late = member.node and self._clock.silence(member.since) > limit
            if late and not ray.wait([request], timeout=0)[0]:
                del self._requests[request]
                error = EnvError(f"no answer for {limit:g} s; if its environment is that slow, "
                                 "raise --env-timeout")
                self._lose(member, error, gone=True)

    def _lose(self, member: Member, error: VantageError, *, gone: bool = False) -> None:
        """Replace a worker; raises `error` if that cannot help or the budget is spent.

        `gone`: its process or node has ended.
        """
        ray.kill(member.actor)
        may_recover = gone or self._reply_learner.updates > 0
        if isinstance(error, NonFiniteError | ConfigError) or not may_recover:
            raise error
        self._rates.count_restart(member.node)
        place = f" on {member.node}" if member.node else ""
        self._restarts.add(f"worker {member.worker}{place}", error)
        self._start(member.worker)
