"""Sending the config, metrics and summary of a run to Weights & Biases or MLflow.

A thread takes them from a queue and calls the client, which therefore cannot delay training.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from time import time
from typing import Any

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.fields import plain, read_json_object
from vantage.runs.files import read_text, write_atomically
from vantage.runs.tracker_clients import CLIENTS, Client

log = logging.getLogger(__name__)

FILE_NAME = "tracker.json"
GRACE_SECONDS = 30.0
"""The longest that the end of a run waits for its tracker."""
MOST_WAITING = 10_000
"""Bound of rows that wait for a slow tracker: five hours at one every two seconds."""
_ID = re.compile(r"[\w-]{1,128}")


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
