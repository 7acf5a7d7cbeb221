"""Where the time of training goes: the parts alone, the ceiling that they allow, and the whole loop against it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runtimes.parts import Parts, rate
from vantage.runtimes.ranks import Command
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


def bench(config: Config, *, seconds: float = 30.0, rounds: int | None = None) -> Bench:
    """Measure `config` for about `seconds`, in `rounds` of env, act, learn and whole.

    The shorter a round, the less do other programs that come and go favour one side of it: without a number a part
    takes a second. Five rounds are the fewest, and ACER's, whose updates differ in how many replays follow them.

    Each part is measured alone, with all threads, by all processes, and done when all have done it: `env` steps the
    environments with the actions of a fixed rollout and stores what they give, `act` runs the policy and the sampling
    on its observations and keeps what learning takes, `learn` is one update from it, optimiser included. Training may
    act while environments step, so that its ratio to the parts one after the other may exceed 1. ACER's `learn` has as
    many updates more as its replay ratio says, and its replay is full.
    """
    if isinstance(config.runtime, Hogwild):
        raise ConfigError("bench measures parts that take turns, and those of workers do not; measure a2c, or acer "
                          "under --runtime sync, or run benchmarks/throughput.py for workers together")
    # Without a step size the weights stay those that acted, of which learning takes what they gave.
    config = prepare(config).change(lr="0", tensorboard=False, eval_every=0, eval_every_seconds=0,
                     save_every=10**12, **({"replay_start": 0} if config.algorithm.needs.replay else {}))
    if rounds is None:
        rounds = 5 if config.algorithm.needs.replay else max(5, int(seconds / 4))
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(config, env_name=config.env.id, path=Path(folder) / "run", argv=())
        run = SyncRun(config, directory, None)
        try:
            if run.actor_learner.spec.masked:
                raise ConfigError(f"bench repeats fixed actions, which the action masks of {config.env.id} may forbid")
            return _summarise(list(_rounds(run, seconds / rounds / 4, rounds)))
        finally:
            run.close("done")


def _rounds(run: SyncRun, seconds: float, rounds: int) -> Iterator[dict[str, float]]:
    one, ranks = run.actor_learner, run.ranks
    def advance() -> None:
        for _ in run.advance():
            pass

    for _ in range(3):
        advance()
    parts = Parts(one)
    parts.fill_replay()
    steps = run.config.env.num_envs * one.rollout_length
    learnt = steps * run.config.runtime.rollouts_per_update
    needs = run.config.algorithm.needs.replay
    ratio = 0.0 if needs is None else needs.ratio

    def by_all(order: Command, part: Callable[[], None], seconds: float = seconds) -> float:
        return rate(part if ranks is None else partial(ranks.time_part, order, part), seconds)

    def learn() -> float:
        fresh = by_all(Command.LEARN, parts.learn, seconds / 2 if ratio else seconds)
        again = rate(lambda: parts.learn(replayed=True), seconds / 2) if ratio else 1.0
        return 1 / (1 / fresh + ratio / again)

    by_all(Command.ENV, parts.env, 0.0)  # for which ranks collect their rollout
    for _ in range(rounds):
        yield {"env": steps * by_all(Command.ENV, parts.env), "act": steps * by_all(Command.ACT, parts.act),
               "learn": learnt * learn(),
               "sample": learnt * rate(parts.sample, seconds / 4) / ratio if ratio else float("inf"),
               "whole": learnt * rate(advance, seconds)} | {
                   name: share for name, share in run.progress.metrics().items() if name.endswith("_share")}


def _summarise(rounds: list[dict[str, float]]) -> Bench:
    ceilings = [1 / sum(1 / r[part] for part in ("env", "act", "learn", "sample")) for r in rounds]
    ratios = [r["whole"] / ceiling for r, ceiling in zip(rounds, ceilings, strict=True)]
    busy = {name: median(r[f"time/{name}_share"] for r in rounds) for name in ("env", "act", "learn")}
    total = sum(busy.values())
    middle = {name: median(r[name] for r in rounds) for name in ("env", "act", "learn", "whole")}
    return Bench(middle["env"], middle["act"], middle["learn"], median(ceilings), middle["whole"], median(ratios),
                 busy["env"] / total, busy["act"] / total, busy["learn"] / total,
                 median(r["whole"] / r["sample"] for r in rounds), len(rounds))
