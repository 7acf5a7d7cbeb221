"""`vantage bench`: the speed of each part of training alone, the ceiling that they allow, and the speed of training."""

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
    """Agent steps per second, medians over rounds that measure the parts and the whole in turn."""

    env: float
    act: float
    learn: float
    ceiling: float
    """1 / (1/env + 1/act + 1/learn + 1/sample): the speed of the parts one after the other."""
    whole: float
    ratio: float
    """Median over the rounds of whole / ceiling of the same round."""
    env_share: float
    act_share: float
    learn_share: float
    sample_share: float
    """ACER: share of the training time that sampling from a full replay would take; else 0."""
    rounds: int

    def as_dict(self) -> dict[str, float]:
        """As a JSON object."""
        return asdict(self)

    def table(self) -> str:
        """As text."""
        return "\n".join([
            "agent steps per second, medians over rounds in turn",
            f"  environments alone   {self.env:>10,.0f}",
            f"  acting alone         {self.act:>10,.0f}",
            f"  learning alone       {self.learn:>10,.0f}",
            f"  what they allow      {self.ceiling:>10,.0f}",
            f"  training             {self.whole:>10,.0f}   {self.ratio:.3f} of what the parts allow",
            f"time in training: env {self.env_share:.0%}, act {self.act_share:.0%}, learn {self.learn_share:.0%}"
            + (f"; sampling from the replay takes {self.sample_share:.1%}" if self.sample_share else "")])


def bench(config: Config, *, seconds: float = 30.0, rounds: int | None = None) -> Bench:
    """Measure `config` for about `seconds`, in `rounds` of env, act, learn and whole.

    Short rounds spread the load of other programs evenly over the parts; by default a part takes a second of a round.
    Five rounds are the minimum, and the default for ACER, whose updates differ in the number of replays that follow.

    Each part runs alone with all threads and all ranks: `env` steps the environments with the actions of a fixed
    rollout and stores the results, `act` runs the policy and the sampling on its observations and fills the activation
    cache, `learn` is one update from it, optimiser included. Training may act while environments step, so its ratio to
    the sequential parts may exceed 1. For ACER `learn` includes the updates of the replay ratio, from a full replay.
    """
    if isinstance(config.runtime, Hogwild):
        raise ConfigError("bench measures parts that take turns, which those of workers do not; measure a2c, or acer "
                          "under --runtime sync, or run benchmarks/throughput.py for workers together")
    # lr=0: the weights stay those that acted, so the activation cache stays valid.
    replay = config.algorithm.needs.replay is not None
    config = prepare(config).change(lr="0", tensorboard=False, eval_every=0, eval_every_seconds=0, save_every=10**12,
                                    **({"replay_start": 0} if replay else {}))
    if rounds is None:
        rounds = 5 if replay else max(5, int(seconds / 4))
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(config, env_name=config.env.id, path=Path(folder) / "run", argv=())
        run = SyncRun(config, directory, None)
        try:
            if run.actor_learner.spec.masked:
                raise ConfigError(f"bench repeats fixed actions, which the action masks of {config.env.id} may forbid")
            return _medians(list(_rounds(run, seconds / rounds / 4, rounds)))
        finally:
            run.close("done")


def _rounds(run: SyncRun, seconds: float, rounds: int) -> Iterator[dict[str, float]]:
    actor_learner, ranks = run.actor_learner, run.ranks

    def advance() -> None:
        for _ in run.advance():
            pass

    for _ in range(3):
        advance()
    parts = Parts(actor_learner)
    parts.fill_replay()
    steps = run.config.env.num_envs * actor_learner.rollout_length
    update = steps * run.config.runtime.rollouts_per_update
    needs = run.config.algorithm.needs.replay
    ratio = 0.0 if needs is None else needs.ratio

    def on_all_ranks(command: Command, part: Callable[[], None], seconds: float = seconds) -> float:
        return rate(part if ranks is None else partial(ranks.time_part, command, part), seconds)

    def learn() -> float:
        fresh = on_all_ranks(Command.LEARN, parts.learn, seconds / 2 if ratio else seconds)
        again = rate(lambda: parts.learn(replayed=True), seconds / 2) if ratio else 1.0
        return 1 / (1 / fresh + ratio / again)

    on_all_ranks(Command.ENV, parts.env, 0.0)  # makes the other ranks collect their rollout
    for _ in range(rounds):
        yield {"env": steps * on_all_ranks(Command.ENV, parts.env), "act": steps * on_all_ranks(Command.ACT, parts.act),
               "learn": update * learn(),
               "sample": update * rate(parts.sample, seconds / 4) / ratio if ratio else float("inf"),
               "whole": update * rate(advance, seconds)} | {
                   name: share for name, share in run.progress.metrics().items() if name.endswith("_share")}


def _medians(rounds: list[dict[str, float]]) -> Bench:
    ceilings = [1 / sum(1 / r[part] for part in ("env", "act", "learn", "sample")) for r in rounds]
    ratios = [r["whole"] / ceiling for r, ceiling in zip(rounds, ceilings, strict=True)]
    busy = {name: median(r[f"time/{name}_share"] for r in rounds) for name in ("env", "act", "learn")}
    total = sum(busy.values())
    middle = {name: median(r[name] for r in rounds) for name in ("env", "act", "learn", "whole")}
    return Bench(middle["env"], middle["act"], middle["learn"], median(ceilings), middle["whole"], median(ratios),
                 busy["env"] / total, busy["act"] / total, busy["learn"] / total,
                 median(r["whole"] / r["sample"] for r in rounds), len(rounds))
