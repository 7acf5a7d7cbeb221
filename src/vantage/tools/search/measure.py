"""What a run has come to at a comparison, read from what it left wherever it was cut off. Nothing is trained here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import locked
from vantage.runs.metrics import MetricWriter, read_metrics

if TYPE_CHECKING:
    from vantage.runs.checkpoint import Checkpoint

Records = Sequence[Mapping[str, float | None]]


def steps_of(run: Path) -> int:
    """The agent steps that the run's summary tells of; 0 where it cannot be read, of which training it will tell."""
    try:
        return int(RunDirectory.open(run).read_summary().get("steps", 0))
    except ConfigError:
        return 0


def last_value(run: Path, metric: str) -> float | None:
    """The newest value of `metric` in the run's record."""
    return _newest(read_metrics(run), metric)


def reached(run: Path, target: int) -> Checkpoint | None:
    """The run's newest good checkpoint if it is at `target` steps or beyond; None if there is something left to do."""
    from vantage.runs.checkpoint import load_latest, newest_step

    if (newest_step(run) or 0) < target:
        return None
    checkpoint = load_latest(run)
    return checkpoint if checkpoint.step >= target else None


def value_at(run: Path, target: int, metric: str, checkpoint: Checkpoint, *, should_stop: Callable[[], bool],
             notify: Callable[[str], None]) -> float | None:
    """The metric when the run had trained to `target`; None if it had none. `checkpoint` is what it `reached`.

    Where a kill, or a stop during an evaluation, came between that checkpoint and the record of what it is worth, it is
    measured again and the record completed.
    """
    directory, records = RunDirectory.open(run), read_metrics(run)
    if directory.config.run.steps > target:  # it has been sent on since
        end = next((step for record in records if (step := record["step"] or 0) >= target), target)
        return _newest([record for record in records if (record["step"] or 0) <= end], metric)
    if _is_missing(records, metric, checkpoint):
        value = _measure(run, metric, checkpoint, should_stop, notify)
        if value is None:
            return None
        with locked(run):
            writer = MetricWriter(run, resume_step=checkpoint.step, tensorboard=False)
            writer.write(checkpoint.step, checkpoint.state["progress"]["seconds"], {metric: value})
            writer.close()
    summary = directory.read_summary()
    if summary.get("status") != "done":
        directory.write_summary({**summary, "status": "done", "steps": checkpoint.step})
    return last_value(run, metric)


def _newest(records: Records, metric: str) -> float | None:
    values = [value for record in records if (value := record.get(metric)) is not None]
    return values[-1] if values and math.isfinite(values[-1]) else None


def _is_missing(records: Records, metric: str, checkpoint: Checkpoint) -> bool:
    """The checkpoint is worth something that the record does not tell of."""
    progress: Mapping[str, Any] = checkpoint.state["progress"]
    if metric == "eval/mean_reward":
        since = progress.get("evaluated_step", 0)
        due, made = progress.get("evaluation_due", False), since > 0
    else:
        since, due, made = checkpoint.step, False, bool(progress["recent"])
    told = any(record.get(metric) is not None and (record["step"] or 0) >= since for record in records)
    return due or (made and not told)


def _measure(run: Path, metric: str, checkpoint: Checkpoint, should_stop: Callable[[], bool],
             notify: Callable[[str], None]) -> float | None:
    """The metric of the checkpoint's policy, as training would have had it; None if `should_stop` turned true."""
    from vantage.runtimes.evaluator import evaluate_policy
    from vantage.training import load, prepare

    if metric != "eval/mean_reward":
        return fmean(score for score, _ in checkpoint.state["progress"]["recent"])
    agent = load(run, checkpoint=str(checkpoint.step))
    evaluation = evaluate_policy(agent.model, prepare(agent.config), checkpoint.step)
    while not should_stop():
        try:
            next(evaluation)
        except StopIteration as end:
            return float(end.value[0][metric])
    evaluation.close()
    return None
