"""Self-play: past policies as opponents in two-player games, and the learner's rating."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage._host.seeding import derive_seed, restore_generator
from vantage.envs.config import EnvConfig
from vantage.envs.space_json import space_from_json
from vantage.envs.spaces import make_observer
from vantage.learning.learner import Learner
from vantage.models.actor_critic import ActorCritic
from vantage.models.mlp_arrays import MlpArrays, fits
from vantage.types import map_parts

CURRENT = -1
"""In place of a past policy's number: the current policy."""
RANDOM = -2
"""In place of a past policy's number: random moves."""
CURRENT_SHARE = 0.5
RANDOM_SHARE = 0.1
"""Shares of the games against the current policy and against random moves.

The others are against past policies, drawn at random. Games between equals become alike; random
moves keep the policy answering mistakes that equals no longer make.
"""
ELO_STEP = 16.0
"""Largest change of a rating by one game, the K of Elo's formula."""


@dataclass(slots=True)
class PastPolicy:
    """A past policy, and its rating when it was added."""

    policy: ActorCritic
    arrays: MlpArrays | None
    """Its NumPy version, if it has one."""
    rating: float


class SelfPlay:
    """The opponent of every game: the current policy, one of its last versions, or random moves.

    A policy joins the past ones with the learner's rating R at that time, which it keeps. After a
    game against one with rating R_o, whose result S is 1, 0.5 or 0:

    R ← R + K (S - 1 / (1 + 10^((R_o - R) / 400)))          Elo 1978, The Rating of Chessplayers

    The first policy, untrained, has R = 0. Games against the current policy and against random
    moves are not rated. The moves of the games in progress are recorded, since a resume replays
    them.
    """

    def __init__(self, learner: Learner, config: EnvConfig, num_envs: int, seed: int) -> None:
        self._learner = learner
        self._size = config.self_play
        self._every = config.self_play_every
        spec = learner.model.spec
        assert spec.space is not None
        self._num_actions = spec.action.sizes[0]
        self._observe: Any = make_observer(space_from_json(spec.space), (), config.kinds_of_parts,
                                           spec.shifts)[1]
        self._device = learner.flat.vector.device
        self.generator = torch.Generator(self._device)
        self.generator.manual_seed(derive_seed(seed, "self-play"))
        self.past: list[PastPolicy] = []
        """Past policies; once there are `self_play`, a new one takes the place of the oldest."""
        self.rating = 0.0
        self.updates = 0
        self.replays = False
        """Games repeat the recorded moves, and nothing is drawn or rated."""
        self._results: list[float] = []
        """Of the games against past policies since the last update."""
        self.opponents = [CURRENT] * num_envs
        """The number of the policy that each game is against."""
        self._moves: list[list[int]] = [[] for _ in range(num_envs)]
        self._played = [0] * num_envs
        self._state = learner.model.initial_state(num_envs)

    def begin(self, row: int) -> None:
        self._played[row] = 0
        if self.replays:
            return
        draw = float(torch.rand(1, generator=self.generator, device=self._device))
        share = (draw - RANDOM_SHARE - CURRENT_SHARE) / (1 - RANDOM_SHARE - CURRENT_SHARE)
        if draw < RANDOM_SHARE:
            self.opponents[row] = RANDOM
        elif share >= 0 and self.past:
            self.opponents[row] = int(share * len(self.past))
        else:
            self.opponents[row] = CURRENT

    def act(self, row: int, obs: Any, mask: np.ndarray | None) -> int:
        """A sampled move, or the recorded one in a replay."""
        moves = self._moves[row]
        number = self._played[row]
        self._played[row] += 1
        # A game that does not repeat itself goes on with other moves.
        if not (self.replays and number < len(moves) and (mask is None or mask[moves[number]])):
            moves[number:] = [self._sample(row, obs, mask, is_first=number == 0)]
        return moves[number]

    @torch.no_grad()
    def _sample(self, row: int, obs: Any, mask: np.ndarray | None, *, is_first: bool) -> int:
        if self.opponents[row] == RANDOM:
            allowed = np.ones(self._num_actions) if mask is None else np.array(mask, bool)
            weights = torch.as_tensor(allowed, dtype=torch.float32, device=self._device)
            return int(weights.multinomial(1, generator=self.generator))
        policy = self._learner.model
        arrays = self._learner.arrays.mlp
        if self.opponents[row] != CURRENT:
            past = self.past[self.opponents[row]]
            policy = past.policy
            arrays = past.arrays
        batch = map_parts(lambda part: part[None], self._observe(obs))
        masks: Any = None if mask is None else np.asarray(mask, bool)[None]
        if arrays is not None and not self._state:
            logits, _ = arrays.forward(arrays.inputs(batch), masks, critic=False)
            return int(arrays.sample(logits, self.generator)[0])
        batch = map_parts(lambda part: torch.as_tensor(part, device=self._device), batch)
        if masks is not None:
            masks = torch.as_tensor(masks, device=self._device)
        state = tuple(part[row:row + 1] for part in self._state)
        first = torch.tensor([is_first], device=self._device)
        params, after = policy.step(batch, first, state, masks)
        for part, new in zip(state, after, strict=True):
            part.copy_(new)
        return int(policy.distribution.sample(params, self.generator))

    def end(self, row: int, score: float) -> None:
        if self.replays or self.opponents[row] < 0:
            return
        result = 0.5 + 0.5 * float(np.sign(score))
        self._results.append(result)
        rating = self.past[self.opponents[row]].rating
        self.rating += ELO_STEP * (result - 1 / (1 + 10 ** ((rating - self.rating) / 400)))

    def follow(self) -> dict[str, float]:
        """Count an update, after which the policy may join the past ones; returns metrics."""
        self.updates += 1
        if self.updates % self._every == 0:
            self.join()
        metrics = {"self_play/elo": self.rating}
        if self._results:
            metrics["self_play/win_rate"] = float(np.mean(self._results))
        self._results.clear()
        return metrics

    def join(self) -> None:
        """Add a copy of the current policy to the past ones."""
        policy = copy.deepcopy(self._learner.model)
        new = PastPolicy(policy, MlpArrays(policy) if fits(policy) else None, self.rating)
        oldest = self.updates // self._every % self._size
        self.past[oldest:oldest + 1] = [new]
        # Games against the policy that was there go on against the current one.
        self.opponents = [CURRENT if each == oldest else each for each in self.opponents]

    def tensors(self) -> dict[str, Tensor]:
        """The past policies and the games in progress as a group of a checkpoint."""
        tensors = {f"{i}.{name}": tensor for i, past in enumerate(self.past)
                   for name, tensor in past.policy.state_dict().items()}
        ratings = [past.rating for past in self.past]
        tensors["ratings"] = torch.tensor([*ratings, self.rating], dtype=torch.float64)
        tensors["updates"] = torch.tensor(self.updates)
        tensors["generator"] = self.generator.get_state()
        tensors["opponents"] = torch.tensor(self.opponents)
        tensors["num_moves"] = torch.tensor([len(moves) for moves in self._moves])
        tensors["moves"] = torch.tensor([*chain(*self._moves)], dtype=torch.int64)
        return tensors | {f"state_{i}": part for i, part in enumerate(self._state)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned. ValueError or RuntimeError for what does not fit."""
        *ratings, rating = tensors["ratings"].tolist()
        opponents, moves, num_moves = (tensors[name].tolist()
                                       for name in ("opponents", "moves", "num_moves"))
        fit = (np.isfinite([*ratings, rating]).all() and 0 < len(ratings) <= self._size
               and len(opponents) == len(num_moves) == len(self._moves)
               and all(RANDOM <= number < len(ratings) for number in opponents)
               and min(num_moves) >= 0 and sum(num_moves) == len(moves)
               and set(moves) <= set(range(self._num_actions)))
        if not fit:
            raise ValueError(f"the ratings {ratings!s:.80}, opponents {opponents!s:.80} or moves "
                             f"{moves!s:.80} do not fit self_play={self._size}")
        self.updates = 0
        self.past = []
        for i, self.rating in enumerate(ratings):
            self.updates = i * self._every
            self.join()
            prefix = f"{i}."
            self.past[i].policy.load_state_dict({
                name.removeprefix(prefix): tensor for name, tensor in tensors.items()
                if name.startswith(prefix)})
        self.rating = rating
        self.updates = int(tensors["updates"])
        restore_generator(self.generator, tensors["generator"])
        self.opponents = opponents
        rest = iter(moves)
        self._moves = [[next(rest) for _ in range(number)] for number in num_moves]
        for i, part in enumerate(self._state):
            part.copy_(tensors[f"state_{i}"])
