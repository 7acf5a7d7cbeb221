"""Sends config, metrics and summary of a run to Weights & Biases or MLflow, beside the run's own files.

The service's client runs in a process of its own, `track_process`. Nothing that it does stops or delays training.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from time import time
from typing import Any

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import read_json_object
from vantage.runs import track_process
from vantage.runs.files import read_text, write_atomically

log = logging.getLogger(__name__)

FILE_NAME = "tracker.json"
GRACE_SECONDS = 30.0
"""How long the end of a run waits for its tracker."""
MOST_WAITING = 10_000
"""Rows that wait for a slow tracker; at one every two seconds, those of five hours."""
_ID = re.compile(r"[\w-]{1,128}")


class Tracker:
    """The tracker of one run, which goes on where an earlier session stopped. Its first failure is logged."""

    def __init__(self, run: Path, config: Config) -> None:
        self._run, self._config, self._name = run, config, config.run.track
        self._messages: Queue[dict[str, Any]] = Queue(MOST_WAITING)
        self._thread: Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._failed = self._over = False

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Send the metrics of a step, without those that are None. Returns at once."""
        if self._thread is None:
            self._thread = Thread(target=self._serve, daemon=True, name="tracker")
            self._thread.start()
        present = {name: value for name, value in values.items() if value is not None}
        if not self._over:
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
            if self._process is not None:
                self._process.kill()
            self._thread.join(1)

    def _serve(self) -> None:
        """Send messages until the summary has been sent or the client cannot be used."""
        # -P: neither its own folder nor the working directory, which may have a folder wandb/, shadows the client.
        command = [sys.executable, "-P", track_process.__file__]
        try:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, start_new_session=True) as self._process:  # Ctrl-C is for training alone
                try:
                    self._open()
                    self._send_all()
                except BaseException:
                    self._process.kill()
                    raise
        except (OSError, ValueError) as error:
            self._warn(str(error), "the run is not tracked any further")
        self._over = True

    def _open(self) -> None:
        """Open the tracker's run, the former one after a resume, whose id is in the run directory."""
        path, ids = self._run / FILE_NAME, {}
        with contextlib.suppress(OSError, ConfigError):
            ids = read_json_object(read_text(path), source=str(path))
        former = ids.get(self._name)
        if not isinstance(former, str) or not _ID.fullmatch(former):
            former = None
        reply = self._ask([{"open": self._name, "run": str(self._run), "id": former, "config": self._config.flat(),
                            "name": "/".join(self._run.resolve().parts[-2:])}])
        if "id" not in reply:
            raise ValueError(reply["error"])
        log.info(f"tracked by {self._name}: {reply['place']}")
        if reply["id"] != former:
            write_atomically(path, json.dumps(ids | {self._name: reply["id"]}))

    def _send_all(self) -> None:
        """Send messages; those that the client did not take are sent again with the next ones."""
        waiting: list[dict[str, Any]] = []
        closing = False
        while not closing:
            waiting = [*waiting[-MOST_WAITING:], self._messages.get()]
            closing = "summary" in waiting[-1]
            reply = self._ask(waiting)
            del waiting[:reply["accepted"]]
            if "error" in reply:
                self._warn(reply["error"], "training goes on")

    def _ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The client's answer; ValueError if its process has ended."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(messages) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError("its process has ended")
        return dict(json.loads(answer))

    def _warn(self, what: str, effect: str) -> None:
        if not self._failed:
            log.warning(f"{self._name}: {what}; {effect}")
        self._failed = True
