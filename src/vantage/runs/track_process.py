"""The process that runs a tracker's client: reads lists of messages as JSON lines, and answers each list in one line.

It is a process of its own, and imports nothing of Vantage: a client may hang, print, take seconds to import or never
come to an end, and training goes on. `tracking` starts it and holds the other end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, TextIO

NAME = "vantage"
"""Of the project, or experiment, where the client's environment variable names none."""


class Wandb:
    """A run of Weights & Biases. Its files are in the run directory unless WANDB_DIR is set."""

    def __init__(self, run: str, name: str, id: str | None, config: Mapping[str, Any]) -> None:
        import wandb

        # A sweep's agent chooses the id.
        self._run = wandb.init(
            id=id or os.environ.get("WANDB_RUN_ID"), resume="allow", name=name, config=dict(config),
            project=os.environ.get("WANDB_PROJECT", NAME), dir=os.environ.get("WANDB_DIR", run),
            settings=wandb.Settings(silent=True, console="off"))
        self.id = str(self._run.id)
        self.place = self._run.url or f"offline; send it with: wandb sync {os.path.dirname(self._run.dir)}"

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, step: int, summary: Mapping[str, Any]) -> None:
        """Add the summary, and wait until all is sent."""
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code={"done": 0, "interrupted": 255}.get(summary["status"], 1))


class Mlflow:
    """A run of MLflow at MLFLOW_TRACKING_URI, or where the client keeps runs by default."""

    def __init__(self, run: str, name: str, id: str | None, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        import mlflow
        from mlflow.entities import Param

        self._client = mlflow.MlflowClient()
        if id is None:
            experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", NAME)).experiment_id
            self.id = self._client.create_run(experiment, run_name=name).info.run_id
            params = [Param(key, str(value)) for key, value in config.items()]
            for start in range(0, len(params), 100):  # the most that a request may have
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
        """Add the summary, numbers as metrics and texts as tags, and end the run."""
        for key, value in summary.items():
            if isinstance(value, int | float):
                self._client.log_metric(self.id, f"summary/{key}", value, step=step)
            elif value is not None:
                self._client.set_tag(self.id, f"summary.{key}", value)
        self._client.set_terminated(
            self.id, {"done": "FINISHED", "interrupted": "KILLED"}.get(summary["status"], "FAILED"))


TRACKERS: Mapping[str, type[Wandb] | type[Mlflow]] = {"wandb": Wandb, "mlflow": Mlflow}


def serve(messages: TextIO, replies: TextIO) -> None:
    """Answer messages until the run is closed, or until the training process has ended without closing it."""
    tracker: Wandb | Mlflow | None = None
    step, open_ = 0, True
    for line in messages:
        accepted, reply = 0, {}
        try:
            for message in json.loads(line):
                if "open" in message:
                    tracker = TRACKERS[message.pop("open")](**message)
                    reply = {"id": tracker.id, "place": tracker.place}
                elif "summary" in message and tracker is not None:
                    open_ = False
                    tracker.close(step, message["summary"])
                elif tracker is not None:
                    tracker.log(**message)
                    step = message["step"]
                accepted += 1
        except (Exception, SystemExit) as error:  # a client may raise anything
            reply["error"] = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
        print(json.dumps({**reply, "accepted": accepted}), file=replies, flush=True)
    if tracker is not None and open_:
        tracker.close(step, {"status": "killed"})


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGUSR1):  # schedulers send them to every process; the training ends this one
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)  # what a client prints is no reply
        serve(sys.stdin, replies)
