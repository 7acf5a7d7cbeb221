"""A trained policy, ready to act: `load` and `Agent`. Evaluation is in `evaluate`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vantage._host.seeding import derive_seed
from vantage.agents.evaluation_settings import acts_most_probably
from vantage.config.config import Config
from vantage.envs.actions import make_writer
from vantage.envs.make import make_single
from vantage.envs.policy_env import PolicyEnv
from vantage.envs.reader import Reader
from vantage.errors import ConfigError
from vantage.keys.objects import is_object, shown_name, target_of
from vantage.keys.suggestions import method_elsewhere
from vantage.learning.act_inputs import (
    as_tensor,
    read_first,
    read_mask,
    read_state,
    to_numpy,
    without_mask,
)
from vantage.learning.evaluation import choose
from vantage.learning.finite import check_actions
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.runs.compatibility import fitting
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over, objects_of, run_of
from vantage.runs.hub import local_path
from vantage.runs.policy_file import SUFFIX, Description, read_policy, write_weights
from vantage.specs import is_part
from vantage.types import State

log = logging.getLogger(__name__)

STREAM = 2
"""Random stream of evaluations after training. Training has 0, evaluations during training have
1."""


@dataclass(frozen=True, slots=True, repr=False)
class Agent:
    """A trained policy, ready to act; frozen, on the CPU."""

    model: ActorCritic
    config: Config
    step: int
    """Agent steps that the policy was trained for."""
    checkpoint: str
    """Directory of the checkpoint within the run."""
    scores: Mapping[str, float]
    """Raw returns at the checkpoint: `rollout/ep_rew_mean`, and `eval/mean_reward` of a best one.
    `eval/deterministic` is 1 if the run's evaluations take the most probable actions, 0 if they
    sample."""
    deterministic: bool
    """By default, `act` takes the most probable actions instead of sampling, as the run's
    evaluations do (`eval_deterministic`)."""
    run: Path | None = None
    """The run directory or the file that it was read from."""

    read: Reader = field(init=False, repr=False, compare=False)
    """Converts observations in the policy's or the environment's form."""

    write: Callable[[np.ndarray, bool], Any] = field(init=False, repr=False, compare=False)
    """Converts a policy's actions to those that `act` returns."""

    def __post_init__(self) -> None:
        kinds = self.config.env.kinds_of_parts
        object.__setattr__(self, "read", Reader(self.model.acting_spec, kinds))
        object.__setattr__(self, "write", make_writer(self.model.spec.action))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles build their own reader and writer.

        They have no `run`: its directory may not exist where they are loaded.
        """
        return type(self), (self.model, self.config, self.step, self.checkpoint, dict(self.scores),
                            self.deterministic)

    def __repr__(self) -> str:
        score = self.scores.get("eval/mean_reward", self.scores.get("rollout/ep_rew_mean"))
        words = "" if score is None else f", return {score:.4g}"
        total = self.config.run.steps
        of_total = f" of {total:,}" if self.step < total else ""
        return (f"<Agent {self.config.setting}: step {self.step:,}{of_total}, "
                f"{shown_name(self.checkpoint)}{words}>")

    def __getattr__(self, name: str) -> Any:
        """AttributeError, which answers names of other libraries."""
        raise AttributeError(f"an agent has no {name!r}"
                             f"{method_elsewhere('an agent', name, dir(type(self)))}")

    def save(self, path: str | Path) -> Path:
        """Write the policy to NAME.safetensors, a file for `vantage.load`, and return its path.

        An existing file is replaced. `vantage export --format safetensors` writes the same.
        """
        path = Path(path)
        if path.suffix.lower() != SUFFIX:
            better = path.with_suffix(SUFFIX) if path.name else Path(f"policy{SUFFIX}")
            raise ConfigError(f"{path} does not end in {SUFFIX}; name it {better}")
        model, description = self.described()
        with whole_file(path, SUFFIX) as temporary:
            write_weights(temporary, model.state_dict(), description)
        return path

    def described(self) -> tuple[ActorCritic, Description]:
        """The policy in float32, as policy files store it, and its description."""
        config = self.config
        model = self.model
        if config.policy.precision == "bfloat16":
            log.warning("the policy was trained with torsos in bfloat16; the file computes in "
                        "float32, which rounds less")
            config = config.change(precision="float32")
            critic = config.algorithm.needs.critic
            model = make_model(config.policy, model.spec, critic=critic).eval()
            model.load_state_dict(self.model.state_dict())
        return model, Description(config, model.spec, self.step, self.checkpoint, self.scores)

    def initial_state(self, batch: int = 1) -> State:
        """The policy's state before an episode's first observation.

        With critic_obs, it has no state of the critic.
        """
        state = self.model.initial_state(batch)
        return state[:self.model.actor.num_states] if self.model.policy.critic_parts else state

    def make_env(self, *, seed: int = 0,
                 render_mode: Literal["rgb_array"] | None = None) -> PolicyEnv:
        """One environment of the kind that the policy was trained on, with Gymnasium's interface.

        It returns observations in the form that `act` accepts, accepts the actions that `act`
        returns, applies the config's options (frames, images, time limit) and reports raw rewards.
        `vantage.evaluate` with the same seed and num_envs=1 plays the same episodes; on Atari, only
        the first is the same.

            env = agent.make_env(seed=1)
            obs, info = env.reset()
            state, over = agent.initial_state(), False
            while not over:
                action, state = agent.act(obs, state)
                obs, reward, terminated, truncated, info = env.step(action)
                over = terminated or truncated

        Start each episode with a new `initial_state`. If the environment has masks, pass
        `action_mask=info["action_mask"]` to `act`. Raises ConfigError if the environment cannot be
        built, or cannot be rendered with `render_mode="rgb_array"`.
        """
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode={render_mode!r} is not rgb_array or None; `vantage "
                              "watch` opens a window")

        seed = self.config.change(seed=seed).run.seed  # checks it
        source = "its run" if self.run is None else repr(str(self.run))
        needed = "".join(f", {name}=..." for name in objects_of(self.config) if name != "env")
        check_has_env(self, f"vantage.load({source}{needed}, env=...)")

        def seed_of(seed: int) -> int:
            return derive_seed(seed, "evaluate")

        # `act` returns actions in the environment's units.
        unscaled = replace(self.config.env, scale_actions=False)
        envs = make_single(unscaled, seed=seed_of(seed), stream=STREAM,
                           draws=render_mode is not None, num_envs=self.config.envs_per_process)
        return PolicyEnv(envs, seed_of, render_mode=render_mode)

    @torch.no_grad()
    def act(self, obs: Any, state: State | None = None, *,
            is_first: Tensor | np.ndarray | None = None, deterministic: bool | None = None,
            generator: torch.Generator | None = None,
            action_mask: Tensor | np.ndarray | Sequence[Any] | Mapping[str, Any] | None = None
            ) -> tuple[Any, State]:
        """Actions [B, ...] for observations [B, ...], and the state to pass next time.

        Observations have the environment's form (images may be [H, W, C], Discrete observations
        are integers, Dict and Tuple spaces are nested) or the form of `make_env`: images [C, H, W]
        in uint8 or float32, float32 vectors, one-hots for Discrete spaces, and a mapping with keys
        joined by "/" for Dict spaces. Atari policies, and policies of earlier versions, accept only
        the second form. Box actions are in the environment's units and not clipped. Actions of Dict
        and Tuple spaces are those that the environment takes: nested as its space, with the types
        and numbers of its parts. A batch has one more axis in each part. Actions of other spaces
        are those that `make_env` takes: flat, and choices count from 0; the environment itself may
        need its space's shape, and its `start` added.

        Parts that only the critic saw (critic_obs) have no effect and may be left out; in a Tuple,
        None may stand for them.

        A single observation without the batch axis gives a single action; the state keeps a batch
        of 1. `state`, tensors or arrays, may be left out if the policy has none. `action_mask` is
        an array [B, A], a tuple with one array per component of the action, or nested as a Dict or
        Tuple space; a PettingZoo observation, {"observation": ..., "action_mask": ...}, has it in
        itself. `deterministic` defaults to `self.deterministic`, which is how `vantage.evaluate`
        plays.

        `is_first` [B] is True where an observation starts an episode; `state` is cleared there. It
        may be left out with a new `initial_state`, unless stack_pad is repeat.

        Raises ValueError if a shape is wrong, a number is not finite, `state` is missing or has
        another batch size, or the policy was trained with masks and none is given, and
        NonFiniteError if the network's action is not finite.
        """
        spec = self.model.spec
        obs, action_mask = without_mask(obs, action_mask, spec)
        if isinstance(obs, Mapping):
            unseen = self.config.policy.critic_parts
            obs = {key: part for key, part in obs.items() if not is_part(str(key), unseen)}
        arrays, single = self.read(to_numpy(obs))
        batch = len(next(iter(arrays.values())))
        parts = {key: as_tensor(part) for key, part in arrays.items()}
        for key, part in parts.items():
            finite = torch.isfinite(part)
            if not finite.all():
                raise ValueError(f"{key} has a number that is not finite: {part[~finite][0]}")
        tensors = parts if isinstance(spec.obs, Mapping) else next(iter(parts.values()))
        state = read_state(state, self.initial_state(batch), batch)
        first = read_first(is_first, batch)
        mask = read_mask(action_mask, spec, batch)
        params, state = self.model.step(tensors, first, state, mask)
        most_probable = self.deterministic if deterministic is None else deterministic
        if most_probable not in (True, False):
            raise ValueError(f"deterministic={deterministic!r:.80} is not True, False or None")
        chosen = choose(self.model, params, generator or torch.default_generator,
                        deterministic=most_probable)
        check_actions(chosen.numpy(), self.model, tensors)
        return self.write(chosen.numpy(), single), state


def check_has_env(agent: Agent, remedy: str) -> None:
    """ConfigError with the call `remedy` if the agent was loaded without its environment."""
    env = agent.config.env.id
    if is_object(env) and target_of(env) is None:
        raise ConfigError(f"{agent} was trained on env={env}, which a file cannot name, and was "
                          f"loaded without it; write {remedy}")


def load(run: str | Path, *, checkpoint: str | int = "auto", trust: bool = False, env: Any = None,
         network: Any = None, memory: Any = None, algorithm: Any = None) -> Agent:
    """The policy of a run.

        agent = vantage.load("runs/CartPole-v1/a2c-1")
        action, state = agent.act(obs, agent.initial_state())

    `checkpoint` is auto (the best one if there is one, else the latest), latest, best or a step.
    Damaged checkpoints are skipped with a warning. `run` may also be a file that `vantage export
    --format safetensors` wrote, zoo:NAME, a policy that comes with Vantage (`vantage list zoo`), or
    hf://OWNER/NAME[@REVISION], a repository on the Hugging Face hub that `vantage push` filled.

    The environment is not built and need not be installed; only `make_env` needs it. `trust` allows
    code from outside Vantage that the file, or the config of someone else's run, names. `env`,
    `network`, `memory` and `algorithm` replace the objects that the run names. Objects that a file
    cannot name, such as lambdas and classes from a notebook, have to be given again.
    """
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    return load_for("load", run, checkpoint=checkpoint, trust=trust, objects=objects)


def load_for(call: str, run: str | Path, *, checkpoint: str | int, trust: bool,
             objects: Mapping[str, Any]) -> Agent:
    """`load` with `handed_over` objects; messages name `call`, the function of the user."""
    path = local_path(run_of(run))
    policy = read_policy(path, checkpoint, trust=trust, objects=objects, call=call)
    description = policy.description
    config = description.config
    spec = description.spec
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)
    source = path
    config_source = "its header"
    if path.is_dir():
        source = path / description.checkpoint
        config_source = "config.json"
    with fitting(source, policy.tensors, model, config_source):
        model.load_state_dict(policy.tensors)
    saved = description.scores.get("eval/deterministic") if config.run.evaluates else None
    deterministic = acts_most_probably(config, spec) if saved is None else bool(saved)
    return Agent(model.eval(), config.with_shifts(spec.shifts), description.step,
                 description.checkpoint, description.scores, deterministic, path)
