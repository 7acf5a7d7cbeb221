"""The clients of Weights & Biases and MLflow behind one interface.

`tracking` calls them, in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

NAME = "vantage"
"""The project, or experiment, unless the client's environment variable names one."""


class Client(Protocol):
    """One run of a tracking service."""

    id: str
    place: str
    """The address of the run, for a message."""

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """Send the metrics of a step."""

    def close(self, step: int, summary: Mapping[str, Any]) -> None:
        """Add the summary, end the run, and wait until all is sent."""


class Wandb:
    """A run of Weights & Biases, with files in the run directory unless WANDB_DIR is set."""

    def __init__(self, run: str, name: str, id: str | None, config: Mapping[str, Any]) -> None:
        import wandb

        # The first run in a process starts a process of the client, which later runs share.
        self._starts_service = "WANDB_SERVICE" not in os.environ
        self._teardown = wandb.teardown
        # A sweep's agent chooses the id.
        self._run = wandb.init(
            id=id or os.environ.get("WANDB_RUN_ID"), resume="allow", name=name, config=dict(config),
            project=os.environ.get("WANDB_PROJECT", NAME), dir=os.environ.get("WANDB_DIR", run),
            settings=wandb.Settings(silent=True, console="off"))
        self.id = str(self._run.id)
        self.place = str(self._run.url)
        if self._run.offline:
            folder = os.path.dirname(self._run.dir)
            self.place = f"offline; send it with: wandb sync {folder}"

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, step: int, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code={"done": 0, "interrupted": 255}.get(summary["status"], 1))
        # Not at interpreter exit: the command has ended the client's process by then.
        if self._starts_service:
            self._teardown()


class Mlflow:
    """A run of MLflow at MLFLOW_TRACKING_URI, or where the client keeps runs by default."""

    def __init__(self, run: str, name: str, id: str | None, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        import mlflow
        from mlflow.entities import Param

        self._client = mlflow.MlflowClient()
        if id is None:
            experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", NAME))
            self.id = self._client.create_run(experiment.experiment_id, run_name=name).info.run_id
            params = [Param(key, str(value)) for key, value in config.items()]
            for start in range(0, len(params), 100):  # a request may have 100 parameters
                self._client.log_batch(self.id, params=params[start:start + 100])
        else:
            self.id = id
            self._client.update_run(id, status="RUNNING")
        self.place = f"run {self.id} at {mlflow.get_tracking_uri()}"

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(key, value, int(1000 * time), step) for key, value in values.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, step: int, summary: Mapping[str, Any]) -> None:
        """End the run; numbers of the summary become metrics, and texts become tags."""
        for key, value in summary.items():
            if isinstance(value, int | float):
                self._client.log_metric(self.id, f"summary/{key}", value, step=step)
            elif value is not None:
                self._client.set_tag(self.id, f"summary.{key}", value)
        statuses = {"done": "FINISHED", "interrupted": "KILLED"}
        self._client.set_terminated(self.id, statuses.get(summary["status"], "FAILED"))


CLIENTS: Mapping[str, Callable[..., Client]] = {"wandb": Wandb, "mlflow": Mlflow}
