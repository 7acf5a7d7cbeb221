"""Where the time of training goes: the parts alone, the ceiling that they allow, and the whole loop against it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.learning.collect import collect, join_rollouts, obs_at
from vantage.runs.directory import RunDirectory
from vantage.runtimes.sync import SyncRun
from vantage.training import prepare


@dataclass(frozen=True, slots=True)
class Bench:
    """Agent steps per second, medians over rounds in which the parts and the whole took turns."""

    env: float
    act: float
    learn: float
    ceiling: float
    """1 / (1/env + 1/act + 1/learn + 1/sample): what the parts allow one after the other."""
    whole: float
    ratio: float
    """Median over the rounds of whole / ceiling of the same round."""
    env_share: float
    act_share: float
    learn_share: float
    sample_share: float
    """ACER: share of the training time that drawing from a full replay would take; else 0."""
    rounds: int

    def as_dict(self) -> dict[str, float]:
        """As a JSON object."""
        return asdict(self)

    def table(self) -> str:
        """For a person."""
        return "\n".join([
            "agent steps per second, medians over rounds in turn",
            f"  environments alone   {self.env:>10,.0f}",
            f"  acting alone         {self.act:>10,.0f}",
            f"  learning alone       {self.learn:>10,.0f}",
            f"  what they allow      {self.ceiling:>10,.0f}",
            f"  training             {self.whole:>10,.0f}   {self.ratio:.3f} of what the parts allow",
            f"time in training: env {self.env_share:.0%}, act {self.act_share:.0%}, learn {self.learn_share:.0%}"
            + (f", of which {self.sample_share:.1%} drawing from the replay" if self.sample_share else "")])


def bench(config: Config, *, seconds: float = 30.0, rounds: int = 5) -> Bench:
    """Measure `config` for about `seconds`, in `rounds` of env, act, learn and whole.

    Each part is measured alone with all threads: `env` steps the environments with the actions of a fixed rollout,
    `act` runs the policy and the sampling on its observations, `learn` is one update from it, optimiser included.
    Training may act while environments step, so that its ratio to the parts one after the other may exceed 1. ACER's
    `learn` has as many updates more as its replay ratio says, and its replay is full.
    """
    if config.runtime == "hogwild":
        raise ConfigError("bench measures the parts of one process, and this run has workers; measure a2c, or acer "
                          "under --runtime sync, or run benchmarks/throughput.py for workers together")
    config = replace(prepare(config), tensorboard=False, eval_every=0, eval_every_seconds=0,
                     save_every=10**12, replay_start=0)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(config, env_name=config.env, path=Path(folder) / "run", argv=())
        run = SyncRun(config, directory, None, lambda text: None)
        try:
            if run.actor_learner.spec.masked:
                raise ConfigError(f"bench repeats fixed actions, which the action masks of {config.env} may forbid")
            return _summarise(list(_rounds(run, seconds / rounds / 4, rounds)))
        finally:
            run.close("done")


def _rounds(run: SyncRun, seconds: float, rounds: int) -> Iterator[dict[str, float]]:
    one = run.actor_learner
    steps = run.config.num_envs * one.rollout_length
    for _ in range(3):
        run.advance()
    collected = collect(one.model, one.groups, one.position, length=one.rollout_length, generator=one.generator)
    one.position, rollout = collected.position, collected.rollout
    actions = rollout.actions.cpu().numpy()
    parts = run.config.rollouts_per_update
    batch, learnt = join_rollouts([rollout] * parts), parts * steps

    ratio = run.config.replay_ratio if one.replay is not None else 0.0
    while one.replay is not None and len(one.replay) < one.replay.capacity:
        one.replay.add(rollout)

    ends = np.cumsum([group.num_envs for group in one.groups])[:-1]

    def env() -> None:
        for row in actions:
            for group, part in zip(one.groups, np.split(row, ends), strict=True):
                group.send(part)
            for group in one.groups:
                group.receive()

    @torch.no_grad()
    def act() -> None:
        state = rollout.state
        for t in range(len(actions)):
            mask = None if rollout.action_mask is None else rollout.action_mask[t]
            params, state = one.model.step(obs_at(rollout.obs, t), rollout.is_first[t], state, mask)
            one.model.distribution.sample(params, one.generator)

    def sample() -> None:
        assert one.replay is not None
        join_rollouts([one.replay.sample(rollout, one.replay_generator) for _ in range(parts)])

    def learn() -> float:
        fresh = _rate(lambda: one.learner.update(batch, 0), seconds / 2 if ratio else seconds)
        again = _rate(lambda: one.learner.update(batch, 0, replayed=True), seconds / 2) if ratio else 1.0
        return 1 / (1 / fresh + ratio / again)

    for _ in range(rounds):
        yield {"env": steps * _rate(env, seconds), "act": steps * _rate(act, seconds),
               "learn": learnt * learn(),
               "sample": learnt * _rate(sample, seconds / 4) / ratio if ratio else float("inf"),
               "whole": learnt * _rate(run.advance, seconds)} | {
                   name: share for name, share in run.progress.metrics().items() if name.endswith("_share")}


def _rate(function: Callable[[], object], seconds: float) -> float:
    started, calls = perf_counter(), 0
    while perf_counter() - started < seconds or calls == 0:
        function()
        calls += 1
    return calls / (perf_counter() - started)


def _summarise(rounds: list[dict[str, float]]) -> Bench:
    ceilings = [1 / sum(1 / r[part] for part in ("env", "act", "learn", "sample")) for r in rounds]
    ratios = [r["whole"] / ceiling for r, ceiling in zip(rounds, ceilings, strict=True)]
    busy = {name: median(r[f"time/{name}_share"] for r in rounds) for name in ("env", "act", "learn")}
    total = sum(busy.values())
    middle = {name: median(r[name] for r in rounds) for name in ("env", "act", "learn", "whole")}
    return Bench(middle["env"], middle["act"], middle["learn"], median(ceilings), middle["whole"], median(ratios),
                 busy["env"] / total, busy["act"] / total, busy["learn"] / total,
                 median(r["whole"] / r["sample"] for r in rounds), len(rounds))
