"""What an actor-learner saves and restores besides the weights: its position and its streams."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vantage._host.seeding import restore_generator
from vantage.envs.interface import First
from vantage.learning.collect import Position, empty_rollout
from vantage.learning.learner_state import tensors_of
from vantage.learning.running_statistics import discounted_sums
from vantage.runs.compatibility import check_policy_state, restoring
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.startup import lost_in_words, next_episodes
from vantage.types import State

Groups = dict[str, dict[str, Tensor]]


def all_tensors(one: ActorLearner) -> Groups:
    """The tensors of a checkpoint: those of the learner and `acting_tensors`."""
    return tensors_of(one.learner) | acting_tensors(one)


def acting_tensors(one: ActorLearner) -> Groups:
    """The policy's state, the random generators, and snapshots of the environments."""
    acting = {f"state_{i}": tensor for i, tensor in enumerate(one.position.state)}
    acting["generator"] = one.generator.get_state()
    acting["replay_generator"] = one.replay_generator.get_state()
    acting["learner_generator"] = one.learner.generator.get_state()
    acting["episode"] = torch.tensor(one.envs.episode)
    tensors = {"acting": acting | discounted_sums(one.learner)}
    if one.self_play is not None:
        tensors["self_play"] = one.self_play.tensors()
    if one.exact:
        if one.past is not None:
            tensors |= {f"past_{name}": group for name, group in one.past.tensors().items()}
        tensors["envs"] = {name: torch.from_numpy(np.asarray(array, order="C"))
                           for name, array in one.envs.snapshot().items()}
    return tensors


def restore_acting(one: ActorLearner, tensors: Mapping[str, Mapping[str, Tensor]],
                   episode: int = 0) -> list[str]:
    """Continue from where `acting_tensors` was called.

    With other environments than then, their episodes begin from number `episode` at least. Returns
    notes on what was not restored. CheckpointError for tensors of another form.
    """
    with restoring((LookupError, OverflowError, RuntimeError, TypeError, ValueError)):
        acting = tensors["acting"]
        notes = _restore_generators(one, acting)
        episodes = next_episodes(tensors, one.envs.num_envs, least=episode)
        saved = {key: x.numpy() for key, x in tensors.get("envs", {}).items()}
        if saved and len(saved["episode"]) != one.envs.num_envs:
            one.begin(episodes)
            return [*notes, "the checkpoint has other environments in each process: all begin a "
                    "new episode"]
        state = _policy_state(one, acting)
        if one.self_play is not None:
            one.self_play.load(tensors["self_play"])
        if not saved:
            first = one.envs.restart(one.config.run.seed, episodes)
            one.act_from(Position.after(first, state, one.device))
            return [*notes, "the checkpoint follows an error or interrupt, so every environment "
                    "begins a new episode"]
        first = _replay_episodes(one, saved)
        if first.lost:
            notes.append(lost_in_words(first.lost, one.envs))
        for name, sums in discounted_sums(one.learner).items():
            sums.copy_(acting[name])
        one.act_from(Position.after(first, state, one.device))
        return [*notes, *_restore_past(one, tensors)]


def _restore_generators(one: ActorLearner, acting: Mapping[str, Tensor]) -> list[str]:
    """Continue the random streams; returns a note if that of actions cannot continue."""
    restored = restore_generator(one.generator, acting["generator"])
    one.replay_generator.set_state(acting["replay_generator"])
    restore_generator(one.learner.generator, acting["learner_generator"])
    if restored:
        return []
    return [f"the checkpoint is not of a run on {one.device.type}: random draws begin anew, so "
            "this resume is not exact"]


def _replay_episodes(one: ActorLearner, saved: Mapping[str, np.ndarray]) -> First:
    """Bring the environments to where they were saved."""
    if one.self_play is None:
        return one.envs.reset(saved)
    one.self_play.replays = True
    first = one.envs.reset(saved)
    one.self_play.replays = False
    return first


def _policy_state(one: ActorLearner, acting: Mapping[str, Tensor]) -> State:
    """The policy's state in `acting`. ValueError if it does not fit the model."""
    numbers = sorted(int(name.removeprefix("state_")) for name in acting
                     if name.startswith("state_"))
    state = tuple(acting[f"state_{number}"].to(one.device) for number in numbers)
    check_policy_state(state, one.model.initial_state(one.envs.num_envs))
    return state


def _restore_past(one: ActorLearner, tensors: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
    """Restore the past rollouts; returns a note if they do not fit."""
    if one.past is None:
        return []
    groups = {name.removeprefix("past_"): group for name, group in tensors.items()
              if name.startswith("past_")}
    try:
        if not groups:
            raise ValueError("it has none")
        in_update = one.envs.num_envs * one.config.runtime.rollouts_per_update
        one.past.load(groups.items(), multiple=in_update)
        if one.past.rollouts:
            like = empty_rollout(one.model, one.position, one.rollout_length, values=True,
                                 same_step=one.envs.same_step)
            past = one.past.all(like)
            if past.stacks is not None:
                one.past.set_stacks(one.model.stacks(past.obs, past.is_first, past.state))
    except (KeyError, OverflowError, RuntimeError, ValueError) as error:
        one.forget_past()  # its rows may have been loaded without their stacks
        return ["the past rollouts of the checkpoint do not fit past_rollouts, so they are "
                f"collected again: {error}; this resume is not exact"]
    return []
