"""`Environments` for a vector environment in tensors, which stay on its device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage._host.time_limit import TimeLimit
from vantage.envs.autoreset import Autoreset, mode_of
from vantage.envs.built import close_if_own
from vantage.envs.checks import CHECK_EVERY, Checks, bounds_of
from vantage.envs.config import EnvConfig
from vantage.envs.descriptions import shown
from vantage.envs.failures import named_errors
from vantage.envs.in_use import note_player
from vantage.envs.interface import MASK, Array, First, Seeds, Snapshot, Step
from vantage.envs.other_interfaces import own_time_limit
from vantage.envs.outcomes import OutcomeError, check_info, check_reset
from vantage.envs.replay import check_forms, obs_arrays
from vantage.envs.space_json import space_to_json
from vantage.envs.spaces import check_obs_size, describe, reasons
from vantage.envs.tensor_masks import allowed_actions
from vantage.envs.tensors import (
    TensorObs,
    column,
    device_of,
    five_results,
    infos_of,
    is_tensors,
    learnt_tensors,
    tensor_actor,
    tensor_observer,
)
from vantage.envs.vec_env import VecEnv
from vantage.errors import ConfigError
from vantage.specs import EnvSpec, Episode
from vantage.types import map_parts

SAVED = ("episode", "length", "score", "over")
"""Private tensors in a snapshot, one number per environment."""
_NO_SNAPSHOT = ("resumes are not exact, they begin new episodes: the environment has no snapshot() "
                "and restore(snapshot)")


class TensorEnvironments:
    """B environments of a `VecEnv`, with the interface of `Environments` in tensors."""

    takes_tensors = True

    def __init__(self, vector: VecEnv, config: EnvConfig, seeds: Seeds, *, evaluation: bool,
                 longest_game: int) -> None:
        self.num_envs = vector.num_envs
        self.draws = False
        self.frames_per_step = 1.0
        self.action_names = ()
        self._vector = vector
        self._config = config
        self._seeds = seeds
        self._evaluation = evaluation
        self._limit = TimeLimit(config.env_timeout, seeds.name)
        self._steps = 0
        self._closed = False
        self._autoreset = Autoreset(mode_of(vector))
        self.same_step = self._autoreset.same_step
        self._info: Mapping[str, Any] = {}
        self._allowed: Tensor | None = None
        """The action mask now, [B, A]."""
        if config.shifts:
            raise ConfigError(f"obs_shift has no effect here: {seeds.name} is an environment in "
                              "tensors; leave it out, and subtract the offsets in the environment")
        space = vector.single_observation_space
        kinds = config.kinds_of_parts
        self.is_endless = own_time_limit(vector) is None
        self.longest_game = float(longest_game) if self.is_endless else math.inf
        with named_errors(self._where), self._limit:
            obs, info = check_reset(vector.reset(seed=seeds.of(0, 0)))
            if not is_tensors(obs):
                raise OutcomeError(f"reset returned the observation {shown(obs)}; return tensors, "
                                   "or make the class a gymnasium.vector.VectorEnv if it computes "
                                   "in NumPy")
            self.device = device_of(obs)
            action, self._act = tensor_actor(vector.single_action_space, self.num_envs, self.device,
                                             scale=config.scale_actions)
            part, self._observe = tensor_observer(space, self.num_envs, self.device, kinds)
            self._obs = self._observe(obs)
        check_obs_size(part)
        self.spec = EnvSpec(part, action, MASK in info, space_to_json(space))
        self._check = Checks(bounds_of(space, part), self._place, warn=not evaluation, every=1)
        self._can_save = hasattr(vector, "snapshot") and hasattr(vector, "restore")
        self.notes = (*describe(self.spec, (), reasons(space, kinds)),
                      *([] if self._can_save else [_NO_SNAPSHOT]),
                      f"{self.num_envs} environments, in a vector of tensors on {self.device}")
        self._episode = torch.full((self.num_envs,), -1, device=self.device)
        self._length = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._score = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self._over = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        note_player(self)

    @property
    def episode(self) -> Array:
        """The number of each environment's episode [B], on the CPU."""
        return self._episode.cpu().numpy()

    def restart(self, seed: int, episodes: Array | int = 0) -> First:
        """Begin the episodes of `seed` with these numbers [B], like new environments at 0."""
        self._seeds.seed = seed
        self._episode[:] = torch.as_tensor(episodes, device=self.device) - 1
        return self.reset()

    def cut_games_after(self, steps: int) -> None:
        """Cut later games without a time limit after `steps`."""
        if self.is_endless:
            self.longest_game = float(steps)

    def reset(self, snapshot: Snapshot | None = None) -> First:
        """Begin the next episode of every environment, or continue from `snapshot`."""
        if snapshot is not None:
            return self._restore(snapshot)
        self._episode += 1
        self._length.zero_()
        self._score.zero_()
        self._over.zero_()
        seed = self._seeds.of(0, int(self._episode[0]))
        with named_errors(self._where), self._limit:
            obs, self._info = check_reset(self._vector.reset(seed=seed))
            self._obs = self._observe(obs)
            self._allowed = self._mask(self._info)
        self._look(self._score, self._score)
        return self._first()

    def step(self, actions: Any) -> Step:
        """Take one action [B, *action] in every environment; see `Environments.step`."""
        actions = torch.as_tensor(actions, device=self.device)
        resetting = self._over
        self._steps += 1
        with named_errors(self._where), self._limit:
            result = self._vector.step(self._act(actions))
            raw, terminated, over, time_outs, final_obs = self._read_step(result, resetting)
        self._length = torch.where(resetting, 0, self._length + 1)
        self._score = torch.where(resetting, 0.0, self._score) + raw
        self._episode = self._episode + resetting
        if self._steps % CHECK_EVERY == 1 or not self._is_finite(raw):
            self._look(raw, actions)
        learnt = raw.to(torch.float32)
        if not self._evaluation:
            learnt = learnt_tensors(learnt, self._config)
        episodes = self._finished(over)
        if self.same_step:
            assert time_outs is not None
            terminated = over & ~time_outs
            self._begin_same_step(over)
        if self._config.reward_terminates and not self._evaluation:
            terminated = terminated | (learnt != 0)
            if time_outs is not None:
                time_outs = time_outs & (learnt == 0)
        step: Any = (self._obs, learnt, terminated, over if self.same_step else resetting,
                     ~resetting, self._allowed, episodes, time_outs, final_obs)
        return Step(*step)

    def info(self) -> Mapping[str, Any]:
        """Numbers that the first environment reported at its last reset or step."""
        return infos_of(self._info, [0], self.num_envs)[0]

    def snapshot(self) -> dict[str, Array]:
        """Everything that `reset` needs to continue from here, on the CPU."""
        tensors = {name: getattr(self, f"_{name}") for name in SAVED}
        tensors |= obs_arrays(self._obs)
        if self._allowed is not None:
            tensors["mask"] = self._allowed
        if self._can_save:
            with named_errors(self._where), self._limit:
                tensors |= {f"env.{name}": tensor for name, tensor in self._own_snapshot().items()}
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}

    @property
    def fps(self) -> float:
        """Agent steps per second of real time."""
        raise ConfigError(f"{self._seeds.name} shows no single game")

    def render(self) -> Array:
        raise ConfigError(f"{self._seeds.name} shows no single game")

    def keys_to_action(self) -> Mapping[Any, Any] | None:
        return None

    def played(self) -> object:
        """The vector environment; None once this is closed."""
        return None if self._closed else self._vector

    def close(self) -> None:
        self._closed = True
        close_if_own(self._vector, self._config, evaluation=self._evaluation)

    def _where(self) -> str:
        return f"{self._seeds.name} (seed {self._seeds.seed}, step {self._steps})"

    def _place(self, env: int) -> str:
        return (f"environment {self._seeds.first_env + env} of {self._seeds.name} (seed "
                f"{self._seeds.seed}, episode {int(self._episode[env])}, step "
                f"{int(self._length[env])})")

    def _first(self, lost: tuple[int, ...] = ()) -> First:
        first: Any = (self._obs, self._length == 0, self._allowed, lost)
        return First(*first)

    def _read_step(self, result: Any, resetting: Tensor
                   ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, TensorObs | None]:
        """Raw rewards, terminated, over, time-outs and last observations; 0 and False for resets.

        Stores the observation, the mask and the info of `result`.
        """
        obs, rewards, terminated, truncated, info = five_results(result)
        self._obs = self._observe(obs)
        raw = column("rewards", rewards, resetting, flags=False)
        terminated = column("terminated", terminated, resetting, flags=True)
        over = terminated | column("truncated", truncated, resetting, flags=True)
        self._info = check_info(info)
        self._autoreset.check(self._info)
        if resetting.any():
            self._autoreset.check_reset_steps(resetting, raw, over)
            self._check.reset_steps(resetting, raw, over)
            raw = raw.masked_fill(resetting, 0)
            terminated = terminated & ~resetting
            over = over & ~resetting
        time_outs = self._autoreset.time_outs(self._info, over, terminated)
        final_obs = self._autoreset.final_obs(self._info, self._observe)
        self._over = torch.zeros_like(over) if self.same_step else over
        self._allowed = self._mask(self._info)
        return raw, terminated, over, time_outs, final_obs

    def _begin_same_step(self, over: Tensor) -> None:
        """Begin the next episodes where this step ended one (SAME_STEP)."""
        self._length = torch.where(over, 0, self._length)
        self._score = torch.where(over, 0.0, self._score)
        self._episode = self._episode + over

    def _mask(self, info: Mapping[str, Any]) -> Tensor | None:
        """[B, A] bool; all True where an episode is over and no action is allowed."""
        mask = info.get(MASK)
        if (mask is not None) != self.spec.masked:
            absent = "has no action_mask, unlike" if mask is None else "has an action_mask, unlike"
            raise OutcomeError(f"info {absent} that of the first reset; give one always or never")
        if mask is None:
            return None
        return allowed_actions(mask, self._vector.single_action_space, self.spec.action.sizes,
                               self._over)

    def _is_finite(self, raw: Tensor) -> bool:
        parts = [part for part in obs_arrays(self._obs).values() if part.is_floating_point()]
        # One sum each costs a third of isfinite; an overflow only leads to the closer look.
        return math.isfinite(sum((part.sum() for part in parts), raw.sum()))

    def _look(self, raw: Tensor, actions: Tensor) -> None:
        """Raise EnvError for non-finite numbers; warn as for other environments."""
        obs: Any = map_parts(lambda part: part.cpu().numpy(), self._obs)
        self._check(obs, raw.cpu().numpy(), actions.cpu().numpy(), self._length.cpu().numpy())

    def _finished(self, over: Tensor) -> tuple[Episode, ...]:
        envs = over.nonzero().squeeze(1)
        places = envs.tolist()
        if not places:
            return ()
        columns = (places, self._score[envs].tolist(), self._length[envs].tolist(),
                   infos_of(self._info, places, self.num_envs))
        return tuple(Episode(self._seeds.first_env + env, score, length, info)
                     for env, score, length, info in zip(*columns, strict=True))

    def _own_snapshot(self) -> dict[str, Tensor]:
        saved = self._vector.snapshot()  # type: ignore[attr-defined]
        is_mapping = isinstance(saved, Mapping)
        if not is_mapping or not all(isinstance(part, Tensor) for part in saved.values()):
            raise OutcomeError(f"snapshot() returned {shown(saved)}; return a dict of tensors")
        return dict(saved)

    def _restore(self, snapshot: Snapshot) -> First:
        check_forms(snapshot, self.snapshot())
        if not np.isfinite(snapshot["score"]).all():
            raise ValueError(f"the snapshot's score is {snapshot['score']!s:.80}")
        tensors = {name: torch.from_numpy(array.copy()).to(self.device)
                   for name, array in snapshot.items()}
        for name in SAVED:
            setattr(self, f"_{name}", tensors[name])
        if not self._can_save:
            self.reset()
            first_env = self._seeds.first_env
            return self._first(tuple(range(first_env, first_env + self.num_envs)))
        with named_errors(self._where), self._limit:
            self._vector.restore({  # type: ignore[attr-defined]
                name: tensors[f"env.{name}"].to(part.device)
                for name, part in self._own_snapshot().items()})
        self._allowed = tensors.get("mask")
        parts: TensorObs = {name.removeprefix("obs."): part for name, part in tensors.items()
                            if name.startswith("obs.")}
        self._obs = tensors.get("obs", parts)
        return self._first()
