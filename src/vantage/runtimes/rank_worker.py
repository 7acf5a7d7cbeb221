"""A data-parallel rank above 0: it executes the commands of rank 0, see `ranks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from multiprocessing.connection import Connection
from pathlib import Path

from torch import Tensor

from vantage.learning.cloning import Cloning
from vantage.learning.learner import Learner
from vantage.learning.learner_state import load_tensors
from vantage.runs.info_numbers import numbers_of
from vantage.runtimes import collectives
from vantage.runtimes.acting_state import acting_tensors, restore_acting
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.child_processes import prepare_process
from vantage.runtimes.collectives import RankLostError, RankWeights, gather, torchrun_rank_and_size
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_gradients import RankMemory, SharedRankWeights


class Command(IntEnum):
    """The next action of every rank."""

    ADVANCE = 0
    SAVE = 1
    STOP = 2
    CHANGE = 3


def rank_main(connection: Connection, store: Path, rank: int, size: int,
              shared: RankMemory | None) -> None:
    """Main function of a rank that rank 0 has started."""
    connection.send(None)  # its imports are done
    collectives.join(store, rank, size)
    try:
        run_rank(rank, shared, connection.send)
    except RankLostError:
        connection.poll(None)  # wait: rank 0 finds out which rank has ended, and kills the others


@dataclass(frozen=True, slots=True)
class FollowedTraining:
    """The end of a training, as seen by a rank above 0."""

    actor_learner: ActorLearner | None
    """It has the final weights; None if rank 0 could not start."""
    step: int
    """Agent steps of all ranks."""


def follow_torchrun() -> FollowedTraining | None:
    """In a rank above 0 of torchrun, share the updates of rank 0 until it stops; else None."""
    launched = torchrun_rank_and_size()
    if launched is None or launched[0] == 0:
        return None
    collectives.join()
    return run_rank(launched[0])


def run_rank(rank: int, shared: RankMemory | None = None,
             report: Callable[[Advance], object] = gather) -> FollowedTraining:
    """Execute the commands of rank 0 until STOP; `report` sends it the result of each update."""
    followed = FollowedTraining(None, 0)
    run = collectives.broadcast()
    if run is not None:  # None: rank 0 called `dismiss`
        config, tensors, saved, episode, demonstrations = run
        prepare_process(config)
        actor_learner = ActorLearner(config, worker=rank, index=rank)
        learner = actor_learner.learner
        load_tensors(learner, tensors)
        if demonstrations is not None:
            learner.cloning = Cloning(learner.model, demonstrations, seed=config.run.seed,
                                      num_ranks=config.num_processes)
        weights = share_weights(learner, rank, shared)
        notes = _begin_acting(actor_learner, saved, rank, episode)
        gather((notes, actor_learner.num_past))
        if not collectives.broadcast():
            actor_learner.forget_past()
        followed = FollowedTraining(actor_learner, _serve(actor_learner, weights, report))
        actor_learner.close()
    collectives.leave()
    return followed


def _begin_acting(actor_learner: ActorLearner, saved: Mapping[str, Mapping[str, Tensor]],
                  rank: int, episode: int | None) -> list[str]:
    """Restore the acting tensors of `rank`, or begin episodes: those from number `episode` on in a
    resumed run.

    Returns notes on what was not restored.
    """
    prefix = f"partner_{rank}_"
    acting = {name.removeprefix(prefix): group for name, group in saved.items()
              if name.startswith(prefix)}
    if acting:
        return restore_acting(actor_learner, acting, episode or 0)
    actor_learner.begin(episode or 0)
    if episode is not None:
        return ["the checkpoint has no state of this process's environments, so they begin new "
                "episodes"]
    return []


def _serve(actor_learner: ActorLearner, weights: SharedRankWeights | RankWeights,
           report: Callable[[Advance], object]) -> int:
    """Execute commands until STOP; returns the agent steps after the last update."""
    done = 0
    while True:
        command, step = weights.share_command()
        if command == Command.STOP:
            return done
        if command == Command.ADVANCE:
            advance = actor_learner.advance(lambda: step)  # noqa: B023  called at once
            report(without_metrics(advance))
            done = step + advance.steps * actor_learner.config.num_processes
        elif command == Command.CHANGE:
            actor_learner.change(collectives.broadcast())
        else:
            gather(acting_tensors(actor_learner))


def share_weights(learner: Learner, rank: int, shared: RankMemory | None,
                  check: Callable[[bool], None] = lambda collecting: None,
                  ) -> SharedRankWeights | RankWeights:
    """Give `learner` the gradient sink of a rank: in `shared` memory, or by torch.distributed."""
    if shared is None:
        return RankWeights(learner)
    return SharedRankWeights(shared, learner, rank, check)


def without_metrics(advance: Advance) -> Advance:
    """`advance` without what rank 0 already counts: the metrics are the same in all ranks."""
    episodes = tuple(replace(episode, info=numbers_of(episode.info))
                     for episode in advance.episodes)
    return replace(advance, updates=0, episodes=episodes, metrics={}, counts={},
                   unsaved=frozenset())
