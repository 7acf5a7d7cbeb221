"""Evaluations: whole games in separate environments, in this process or in one beside Hogwild workers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from statistics import fmean
from time import monotonic

import torch
from torch import Tensor

from vantage.config import Config
from vantage.envs import make_environments, resolve_env
from vantage.learning.play import play_games
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.runtimes.shared_memory import SharedWeights
from vantage.runtimes.worker import Failure, Process, start
from vantage.seeding import derive_seed
from vantage.specs import EnvSpec
from vantage.system import deaf_to_signals
from vantage.types import Episode

STREAM = 1
"""Stream of the environments' seeds; training has 0."""

PRETEST = 20
"""Games that an evaluation plays first where it can end the run; the others only if these reach the goal."""

def evaluate_policy(model: ActorCritic, config: Config, step: int
                    ) -> Generator[None, None, tuple[dict[str, float], bool]]:
    """Play `config.run.eval_episodes` games; yields before each step, returns metrics and whether the task is solved.

    With `stop_at_eval`, the first games must reach it before the others are played.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "eval", step))
    deterministic = resolve_env(config.env.id, config.env.atari_protocol).family != "atari"
    envs = make_environments(config.env, seed=config.run.seed, num_envs=min(config.run.eval_episodes, 16),
                             stream=STREAM, evaluation=True, threads=config.all_threads)
    own_threads = torch.get_num_threads()
    torch.set_num_threads(config.all_threads)  # data-parallel ranks wait meanwhile
    goal, episodes = config.run.stop_at_eval, config.run.eval_episodes
    shares = [episodes] if goal is None or episodes <= PRETEST else [PRETEST, episodes - PRETEST]
    games: list[Episode] = []
    try:
        for share in shares:
            games += yield from play_games(model, envs, episodes=share, deterministic=deterministic,
                                           generator=generator)
            if goal is not None and fmean(game.score for game in games) < goal:
                break
    finally:
        torch.set_num_threads(own_threads)
        envs.close()
    mean = fmean(game.score for game in games)
    solved = goal is not None and mean >= goal and len(games) >= episodes
    return {"eval/mean_reward": mean, "eval/mean_ep_length": fmean(game.length for game in games)}, solved


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
    """The main process's side of the evaluator: at most one process, one policy at a time. Failures are returned."""

    def __init__(self, config: Config, spec: EnvSpec, shared: SharedWeights, context: SpawnContext) -> None:
        self._config, self._spec, self._shared, self._context = config.change(device="cpu"), spec, shared, context
        self._process: Process | None = None
        self._ready = False
        self._policy: Policy | None = None

    @property
    def connections(self) -> list[Connection]:
        """What to wait for; then call `receive`."""
        return [] if self._process is None else [self._process.connection]

    @property
    def busy(self) -> bool:
        """It starts or evaluates, so that an old `last_beat` means that it hangs."""
        return self._process is not None and not (self._ready and self._policy is None)

    @property
    def ended(self) -> bool:
        """Its process has ended; `receive` returns the Failure."""
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
        """Whether it waits for a policy; starts the process if there is none."""
        self.start()
        return not self.busy

    def send(self, step: int, policy: Policy) -> Failure | None:
        """Start evaluating a copy of `policy`, which the next call overwrites."""
        assert self._process is not None and self._policy is None
        # Not through the pipe, whose buffer is smaller than a model: sending to a stopped evaluator would block here.
        self._shared.freeze(policy["model"])
        self._policy = {group: {name: tensor.clone() for name, tensor in tensors.items()}
                        for group, tensors in policy.items() if group != "model"} | {"model": self._shared.frozen()}
        self._shared.beat(self._config.runtime.num_workers, monotonic())
        try:
            self._process.connection.send(step)
        except OSError:
            return self._end_of_process()
        return None

    def receive(self) -> Evaluated | Failure | None:
        """Its next message; None means that it is ready."""
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
    """The evaluator process: sends None when ready, then (step, metrics, solved) for each step that it receives."""
    torch.set_num_threads(config.runtime.threads)
    model = make_model(config.policy, spec, critic=config.algorithm.needs.critic)
    connection.send(None)
    while True:
        step = connection.recv()
        model.load_state_dict(shared.frozen())
        evaluation = evaluate_policy(model, config, step)
        while True:
            shared.beat(config.runtime.num_workers, monotonic())
            try:
                next(evaluation)
            except StopIteration as end:
                connection.send((step, *end.value))
                break
