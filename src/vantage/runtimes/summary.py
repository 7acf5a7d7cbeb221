"""summary.json: how a run stands or ended."""

from __future__ import annotations

from typing import Any

from vantage.config.config import Config
from vantage.runs.directory import RunDirectory
from vantage.runtimes.progress import Progress
from vantage.runtimes.save_failures import SaveFailures


def write_summary(directory: RunDirectory, config: Config, progress: Progress, status: str,
                  failures: SaveFailures) -> dict[str, Any]:
    """Write summary.json and return its content. A failure to write is logged."""
    summary = {
        "status": status,
        "steps": progress.step,
        "frames": round(progress.step * progress.frames_per_step),
        "seconds": progress.seconds,
        "fps": progress.step / max(1e-9, progress.seconds),
        "episodes": progress.episodes,
        "return_mean": progress.return_mean,
        "best_return": progress.best_return,
        "env": config.env.id,
        "algo": config.algo,
        "seed": config.run.seed,
    }
    if directory.is_gone:  # the last save has raised an error about it
        return summary
    with failures.logged(directory.path / "summary.json"):
        directory.write_summary(summary)
    return summary
