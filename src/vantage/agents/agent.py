"""A trained policy that acts, and the environment to act in: `load` and `Agent`. Training is in `training`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vantage._host.seeding import derive_seed
from vantage.agents.evaluation_settings import acts_most_probably
from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.envs.policy_env import PolicyEnv
from vantage.envs.reader import Reader
from vantage.errors import ConfigError
from vantage.learning.act_inputs import as_tensor, read_mask, to_numpy
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.runs.compatibility import fitting
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over
from vantage.runs.hub import local_path
from vantage.runs.policy_file import SUFFIX, Description, read_policy, write_weights
from vantage.types import State

log = logging.getLogger(__name__)

STREAM = 2
"""Of evaluations after training; streams 0 and 1 belong to training and to evaluations during training."""


@dataclass(frozen=True, slots=True, repr=False)
class Agent:
    """A trained policy that acts; frozen, on the CPU."""

    model: ActorCritic
    config: Config
    step: int
    checkpoint: str
    """The directory that it was read from, within the run."""
    scores: Mapping[str, float]
    """Raw returns when it was saved: `rollout/ep_rew_mean`, and of a best checkpoint `eval/mean_reward`; and
    `eval/deterministic`, 1 if the run's evaluations take the most probable actions, 0 if sampled ones."""
    deterministic: bool
    """Plays the most probable actions, else sampled ones: as the run's evaluations do, by `eval_deterministic`."""
    run: Path | None = None
    """The run directory or the file that it was read from."""

    read: Reader = field(init=False, repr=False, compare=False)
    """Reads observations in the policy's form and in its environment's."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", Reader(self.model.spec, self.config.env.kinds_of_parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles make a reader of their own, which consists of functions."""
        return type(self), (self.model, self.config, self.step, self.checkpoint, dict(self.scores),
                            self.deterministic)

    def __repr__(self) -> str:
        score = self.scores.get("eval/mean_reward", self.scores.get("rollout/ep_rew_mean"))
        words = "" if score is None else f", return {score:.4g}"
        return f"<Agent {self.config.algo} on {self.config.env.id}: step {self.step:,}, {self.checkpoint}{words}>"

    def save(self, path: str | Path) -> Path:
        """Write the policy to a file NAME.safetensors, which `vantage.load` reads; returns its path.

        An existing file is replaced. `vantage export --format safetensors` writes the same.
        """
        path = Path(path)
        if path.suffix.lower() != SUFFIX:
            raise ConfigError(f"{path} does not end in {SUFFIX}; name it {path.with_suffix(SUFFIX)}")
        model, description = self.described()
        tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}  # views of one vector
        with whole_file(path, SUFFIX) as temporary:
            write_weights(temporary, tensors, description)
        return path

    def described(self) -> tuple[ActorCritic, Description]:
        """The policy in float32, in which files compute, and its description."""
        config, model = self.config, self.model
        if config.policy.precision == "bfloat16":
            log.warning("the policy was trained with torsos in bfloat16; the file computes in float32, which rounds "
                        "less")
            config = config.change(precision="float32")
            model = make_model(config.policy, model.spec, critic=config.algorithm.needs.critic).eval()
            model.load_state_dict(self.model.state_dict())
        return model, Description(config, model.spec, self.step, self.checkpoint, self.scores)

    def initial_state(self, batch: int = 1) -> State:
        """The state before an episode's first observation."""
        return self.model.initial_state(batch)

    def make_env(self, *, seed: int = 0, render_mode: Literal["rgb_array"] | None = None) -> PolicyEnv:
        """One environment of the kind that the policy was trained on, with Gymnasium's interface.

        It converts observations to what `act` takes, takes the actions that `act` returns, applies the config's options
        (frames, images, time limit) and reports raw rewards. Its episodes are those that `vantage.evaluate` plays with
        the same seed and num_envs=1, on Atari the first alone:

            env = agent.make_env(seed=1)
            obs, info = env.reset()
            state, over = agent.initial_state(), False
            while not over:
                action, state = agent.act(obs, state)
                obs, reward, terminated, truncated, info = env.step(action)
                over = terminated or truncated

        Before the next episode the state begins anew. With masks, pass `action_mask=info["action_mask"]` to `act`.
        ConfigError if the environment cannot be built, or does not draw with `render_mode="rgb_array"`.
        """
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode={render_mode!r} is not rgb_array or None; `vantage watch` opens a window")

        def seed_of(seed: int) -> int:
            return derive_seed(seed, "evaluate")

        in_env_units = replace(self.config.env, scale_actions=False)  # as `act` returns them
        envs = make_single(in_env_units, seed=seed_of(seed), stream=STREAM, draws=render_mode is not None,
                           num_envs=self.config.envs_per_process)
        return PolicyEnv(envs, seed_of, render_mode=render_mode)

    @torch.no_grad()
    def act(self, obs: Any, state: State | None = None, *, is_first: Tensor | np.ndarray | None = None,
            deterministic: bool | None = None, generator: torch.Generator | None = None,
            action_mask: Tensor | np.ndarray | Sequence[Any] | None = None) -> tuple[np.ndarray, State]:
        """Actions [B, ...] for observations [B, ...], and the state to pass next time.

        Observations are as the environment returns them (images also [H, W, C], Discrete ones whole numbers, Dict and
        Tuple spaces nested), or as `make_env` returns them: images [C, H, W] in uint8 or float32, all else float32
        vectors, Discrete ones one-hot, Dict spaces as a mapping with keys joined by "/". Atari policies, and policies
        of earlier versions, take only the latter. Box actions are in the environment's units and not clipped.

        Without the batch's axis in `obs`, actions have none either; the state has one of 1. `state` may be left out if
        the policy has none. `action_mask` is an array [B, A], or a tuple of one array for each component of the action.
        `deterministic` None: as `self.deterministic` says, which is how `vantage.evaluate` plays.
        ValueError if a shape differs, a number is not finite, `state` is of another batch or missing, or the policy was
        trained with masks and none is given.

        `is_first` [B] is True where an observation starts an episode; `state` is cleared there. It may be left out with
        a new `initial_state`, unless stack_pad is repeat.
        """
        spec = self.model.spec
        arrays, single = self.read(to_numpy(obs))
        batch = len(next(iter(arrays.values())))
        parts = {key: as_tensor(part) for key, part in arrays.items()}
        for key, part in parts.items():
            if not torch.isfinite(part).all():
                raise ValueError(f"{key} has a number that is not finite: {part[~torch.isfinite(part)][0]}")
        tensors = parts if isinstance(spec.obs, Mapping) else next(iter(parts.values()))
        state = self._checked_state(state, batch)
        first = torch.zeros(batch) if is_first is None else torch.as_tensor(is_first).reshape(-1)
        if len(first) != batch:
            raise ValueError(f"is_first has {len(first)} flags, the observations are a batch of {batch}")
        mask = read_mask(action_mask, spec, batch)
        params, state = self.model.step(tensors, first.bool(), state, mask)
        most_probable = self.deterministic if deterministic is None else deterministic
        actions = (self.model.distribution.mode(params) if most_probable else
                   self.model.distribution.sample(params, generator or torch.default_generator)).numpy()
        actions = spec.action.to_env(actions)
        return actions[0] if single else actions, state

    def _checked_state(self, state: State | None, batch: int) -> State:
        """`state`, or () for None and a policy without state; ValueError if it is not one of `batch`."""
        own = self.initial_state(batch)
        if state is None:
            if own:
                raise ValueError(f"the policy has a state: give that of the previous step, at the first "
                                 f"initial_state({batch})")
            return own
        shapes, expected = [tuple(part.shape) for part in state], [tuple(part.shape) for part in own]
        if shapes != expected:
            raise ValueError(f"the state has shapes {shapes}, observations of a batch of {batch} need {expected}; "
                             f"begin with initial_state({batch})")
        return state


def load(run: str | Path, *, checkpoint: str = "auto", trust: bool = False, env: Any = None, network: Any = None,
         memory: Any = None, algorithm: Any = None) -> Agent:
    """The policy of a run: its best checkpoint if there is one, else the latest; or `latest`, `best`, or a step.

        agent = vantage.load("runs/CartPole-v1/a2c-1")
        action, state = agent.act(obs, agent.initial_state())

    `run` may also be a file written by `vantage export --format safetensors`, or hf://OWNER/NAME[@REVISION], a
    repository of the Hugging Face hub that `vantage push` has filled. The environment is not built and need
    not be installed. Damaged checkpoints that had to be skipped are logged as warnings. `trust` allows code from
    outside Vantage that the file, or the config of someone else's run, names. `env`, `network`, `memory` and
    `algorithm` take the place of those that the run names; a lambda, a class of a notebook and the like, which a file
    cannot name, have to be given again. Without `env` the agent acts, and only `make_env` needs it.
    """
    return load_for("load", run, checkpoint=checkpoint, trust=trust,
                    objects=handed_over(env=env, network=network, memory=memory, algorithm=algorithm))


def load_for(call: str, run: str | Path, *, checkpoint: str, trust: bool, objects: Mapping[str, Any]) -> Agent:
    """`load` with what was `handed_over`, for the function `call` of Vantage."""
    path = local_path(run)
    policy = read_policy(path, checkpoint, trust=trust, objects=objects, call=call)
    about = policy.description
    model = make_model(about.config.policy, about.spec, critic=about.config.algorithm.needs.critic)
    source, config = (path / about.checkpoint, "config.json") if path.is_dir() else (path, "its header")
    with fitting(source, policy.tensors, model, config):
        model.load_state_dict(policy.tensors)
    shown = about.scores.get("eval/deterministic") if about.config.run.evaluates else None
    deterministic = acts_most_probably(about.config, about.spec) if shown is None else bool(shown)
    pinned = about.config.with_shifts(about.spec.shifts)
    return Agent(model.eval(), pinned, about.step, about.checkpoint, about.scores, deterministic, path)
