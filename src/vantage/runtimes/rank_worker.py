"""A data-parallel rank above 0: it executes the commands of rank 0, see `ranks`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from vantage.learning.cloning import Cloning
from vantage.learning.learner import Learner
from vantage.learning.learner_state import load_tensors
from vantage.runs.metric_names import numbers_of
from vantage.runtimes import collectives
from vantage.runtimes.actor_learner import ActorLearner, replay_share
from vantage.runtimes.child_processes import prepare_process
from vantage.runtimes.collectives import RankLostError, RankWeights, gather, torchrun_rank_and_size
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_gradients import RankMemory, SharedRankWeights
from vantage.runtimes.shared_metrics import gather_text
from vantage.types import Episode


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
        run_rank(rank, shared)
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


def run_rank(rank: int, shared: RankMemory | None = None) -> FollowedTraining:
    """Execute the commands of rank 0 until STOP."""
    followed = FollowedTraining(None, 0)
    run = collectives.broadcast()
    if run is not None:  # None: rank 0 called `dismiss`
        config, tensors, saved, resumed, demonstrations = run
        prepare_process(config)
        actor_learner = ActorLearner(config, worker=rank, index=rank,
                                     replay_bytes=replay_share(config.num_processes))
        learner = actor_learner.learner
        load_tensors(learner, tensors)
        if demonstrations is not None:
            learner.cloning = Cloning(learner.model, demonstrations, seed=config.run.seed,
                                      num_ranks=config.num_processes)
        weights = share_weights(learner, rank, shared)
        notes = _begin_acting(actor_learner, saved, rank, resumed=resumed)
        gather((notes, actor_learner.num_past))
        if not collectives.broadcast():
            actor_learner.forget_past()
        followed = FollowedTraining(actor_learner, _serve(actor_learner, weights))
        actor_learner.close()
    collectives.leave()
    return followed


def _begin_acting(actor_learner: ActorLearner, saved: Mapping[str, Mapping[str, Tensor]],
                  rank: int, *, resumed: bool) -> list[str]:
    """Restore the acting tensors of `rank`, or begin episodes.

    Returns notes on what was not restored.
    """
    prefix = f"partner_{rank}_"
    acting = {name.removeprefix(prefix): group for name, group in saved.items()
              if name.startswith(prefix)}
    if acting:
        return actor_learner.restore_acting(acting)
    actor_learner.begin()
    if resumed:
        return ["the checkpoint follows an error or interrupt, so its environments begin new episodes"]
    return []


def _serve(actor_learner: ActorLearner, weights: SharedRankWeights | RankWeights) -> int:
    """Execute commands until STOP; returns the agent steps after the last update."""
    done = 0
    while True:
        command, step = weights.share_command()
        if command == Command.STOP:
            return done
        if command == Command.ADVANCE:
            advance = actor_learner.advance(lambda: step)  # noqa: B023  called at once
            exchange(weights, advance)
            done = step + advance.steps * actor_learner.config.num_processes
        elif command == Command.CHANGE:
            actor_learner.change(collectives.broadcast())
        else:
            gather(actor_learner.acting_tensors())


def share_weights(learner: Learner, rank: int, shared: RankMemory | None,
                  check: Callable[[bool], None] = lambda collecting: None,
                  ) -> SharedRankWeights | RankWeights:
    """Give `learner` the gradient sink of a rank: in `shared` memory, or by torch.distributed."""
    if shared is None:
        return RankWeights(learner)
    return SharedRankWeights(shared, learner, rank, check)


def exchange(weights: SharedRankWeights | RankWeights, advance: Advance) -> list[Advance]:
    """The results of an update of all ranks, without their metrics.

    Numbers in the `info` of episodes are exchanged in updates where a rank has some.
    """
    numbers = [numbers_of(episode.info) for episode in advance.episodes]
    rows = weights.all_gather(_row_of(advance, has_numbers=any(numbers)))
    texts = ["[]"] * len(rows)
    if rows[:, 0].any():
        texts = gather_text(json.dumps(numbers), weights.all_gather, chunk=row_size(advance.steps))
    return [_advance_of(row, json.loads(text)) for row, text in zip(rows, texts, strict=True)]


def row_size(steps: int) -> int:
    """Numbers that `exchange` gathers: room for an episode at each of the `steps` of an update."""
    return 5 + 3 * steps


def _row_of(advance: Advance, *, has_numbers: bool) -> Tensor:
    """The result of an update without its metrics, padded with NaN to a fixed size."""
    numbers = [float(has_numbers), advance.steps, advance.env_seconds, advance.act_seconds,
               advance.learn_seconds]
    for episode in advance.episodes:
        numbers += [episode.env, episode.score, episode.length]
    return torch.tensor(numbers + [torch.nan] * (row_size(advance.steps) - len(numbers)),
                        dtype=torch.float64)


def _advance_of(row: Tensor, numbers: Sequence[Mapping[str, float]]) -> Advance:
    """The result of an update from its row, and the numbers of each episode, if there are any."""
    _, steps, env_seconds, act_seconds, learn_seconds, *values = row[~row.isnan()].tolist()
    triples = zip(values[::3], values[1::3], values[2::3], strict=True)
    infos: Iterable[Mapping[str, float]] = numbers or repeat({})
    episodes = [Episode(int(env), score, int(length), info)
                for (env, score, length), info in zip(triples, infos, strict=False)]
    return Advance(int(steps), episodes=tuple(episodes), env_seconds=env_seconds,
                   act_seconds=act_seconds, learn_seconds=learn_seconds)
