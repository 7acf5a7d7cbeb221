"""Sending the config, metrics and summary of a run to Weights & Biases or MLflow.

A thread takes them from a queue and calls the client, which therefore cannot delay training.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from time import time
from typing import Any, Protocol

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.fields import read_json_object
from vantage.keys.typed_values import plain
from vantage.runs.files import read_text, write_atomically

log = logging.getLogger(__name__)

FILE_NAME = "tracker.json"
GRACE_SECONDS = 30.0
"""The longest that the end of a run waits for its tracker."""
MOST_WAITING = 10_000
"""Bound of rows that wait for a slow tracker: five hours at one every two seconds."""
_ID = re.compile(r"[\w-]{1,128}")

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

        milliseconds = int(1000 * time)
        metrics = [Metric(mlflow_name(name), value, milliseconds, step)
                   for name, value in values.items()]
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


def mlflow_name(name: str) -> str:
    """`name` in characters that MLflow accepts: a single other name makes a whole batch fail."""
    parts = [re.sub(r"[^\w.\-: ]", "_", part) for part in name.split("/")]
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)


CLIENTS: Mapping[str, Callable[..., Client]] = {"wandb": Wandb, "mlflow": Mlflow}


class Tracker:
    """The tracker of one run, which continues that of an earlier session.

    Only the first failure is logged.
    """

    def __init__(self, run: Path, config: Config) -> None:
        self._run = run
        self._config = config
        self._name = config.run.track
        self._messages: Queue[dict[str, Any]] = Queue(MOST_WAITING)
        self._rows: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        """Rows that the client has not accepted yet."""
        self._client: Client
        self._thread: Thread | None = None
        self._failed = False

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Send the metrics of a step, without those that are None. Returns at once."""
        if self._thread is None:
            self._thread = Thread(target=self._send, daemon=True, name="tracker")
            self._thread.start()
        present = {name: value for name, value in values.items() if value is not None}
        if self._thread.is_alive():
            try:
                self._messages.put_nowait({"step": step, "time": time(), "values": present})
            except Full:
                self._warn("it does not answer", "further metrics are not sent")

    def close(self, summary: Mapping[str, Any]) -> None:
        """Send the summary and wait until all has arrived, at most `GRACE_SECONDS`."""
        if self._thread is None:
            return
        with contextlib.suppress(Full):
            self._messages.put_nowait({"summary": dict(summary)})
        self._thread.join(GRACE_SECONDS)
        if self._thread.is_alive():
            self._warn(f"it has not taken all metrics within {GRACE_SECONDS:g} s of the end",
                       f"those of the run are in {self._run / 'metrics.jsonl'}")
            # Exit functions run in reverse order, so before the client's, whose processes the
            # command has ended.
            atexit.register(setattr, sys, "unraisablehook", lambda error: None)

    def _send(self) -> None:
        """Send messages up to the summary; rows that fail are sent again with the next ones."""
        if not self._attempt("the run is not tracked any further", self._open):
            return
        step = 0
        message = self._messages.get()
        while "summary" not in message:
            self._rows.append(message)
            step = message["step"]
            self._attempt("training goes on", self._send_rows)
            message = self._messages.get()
        self._attempt("metrics are missing there", self._send_rows)
        self._attempt("the run is not closed there", self._client.close, step, message["summary"])

    def _open(self) -> None:
        """Open the tracker's run; after a resume, the one whose id the run directory holds."""
        path = self._run / FILE_NAME
        ids = {}
        with contextlib.suppress(OSError, ConfigError):
            ids = read_json_object(read_text(path), source=str(path))
        former = ids.get(self._name)
        if not isinstance(former, str) or not _ID.fullmatch(former):
            former = None
        config = {key: plain(value) for key, value in self._config.flat().items()}
        name = "/".join(self._run.resolve().parts[-2:])
        self._client = CLIENTS[self._name](str(self._run), name, former, config)
        log.info(f"tracked by {self._name}: {self._client.place}")
        if self._client.id != former:
            write_atomically(path, json.dumps(ids | {self._name: self._client.id}))

    def _send_rows(self) -> None:
        while self._rows:
            self._client.log(**self._rows[0])
            self._rows.popleft()

    def _attempt(self, effect: str, call: Callable[..., None], *arguments: Any) -> bool:
        """Whether a call of the client succeeds. It may raise anything; logs the first error."""
        try:
            call(*arguments)
        except (Exception, SystemExit) as error:
            self._warn(f"{type(error).__name__}: {' '.join(str(error).split()):.300}", effect)
            return False
        return True

    def _warn(self, what: str, effect: str) -> None:
        if not self._failed:
            log.warning(f"{self._name}: {what}; {effect}")
        self._failed = True
