"""The main function of a Hogwild worker; `hogwild` starts and watches workers."""

from __future__ import annotations

from multiprocessing.connection import Connection
from time import monotonic

from vantage.config.config import Config
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.child_processes import prepare_process
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedWeights

REPORT_EVERY_SECONDS = 0.1
"""Seconds between two messages of a worker, short enough for the display."""


def worker_main(connection: Connection, config: Config, worker: int, index: int,
                shared: SharedWeights, replay_bytes: int) -> None:
    """Pull, collect and learn until all workers together reach `shared.limit`.

    Counts its steps in shared memory, and sends an `Advance` from time to time.
    """
    prepare_process(config)
    own = shared.workers[worker]
    own["heartbeat"] = monotonic()
    # The main process watches the heartbeat instead of env_timeout.
    actor_learner = ActorLearner(config.change(env_timeout=0), worker=worker, index=index,
                                 shared=shared, replay_bytes=replay_bytes)
    weights = actor_learner.hogwild
    assert weights is not None
    weights.pull()
    actor_learner.begin()
    unreported = Advance()
    reported_at = 0.0
    steps = shared.workers["steps"]
    while steps.sum() < shared.limit[0]:
        weights.pull()
        advance = actor_learner.advance(lambda: int(steps.sum()))
        own["steps"] += advance.steps
        own["updates"] += advance.updates
        unreported += advance
        now = monotonic()
        own["heartbeat"] = now
        if now - reported_at >= REPORT_EVERY_SECONDS:
            connection.send(unreported)
            unreported = Advance()
            reported_at = now
            while connection.poll():
                actor_learner.change(connection.recv())
    connection.send(unreported)
    actor_learner.close()
