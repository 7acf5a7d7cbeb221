"""Writing metrics to metrics.jsonl, TensorBoard and a tracker, and reading them back.

Each step has one line, a JSON object: "step", "seconds", then the metrics, null if not finite.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vantage._host.extras import require
from vantage.errors import ConfigError
from vantage.keys.json_text import parse
from vantage.runs.files import open_file, read_small

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from vantage.runs.tracking import Tracker

log = logging.getLogger(__name__)

FILE_NAME = "metrics.jsonl"
LARGEST_FILE = 1 << 31
"""Bound of a metrics.jsonl that is read, in bytes."""
LARGEST = 1e100
"""Bound of values that are read back: sums, products and axes of larger ones overflow."""


class MetricWriter:
    """Writes metrics to a run.

    An error of the disk does not stop training: the first one is logged, and the recovery.
    """

    def __init__(self, run: Path, *, resume_step: int | None = None, tensorboard: bool = True,
                 tracker: Tracker | None = None) -> None:
        """Open the files; with `resume_step`, drop the lines after that step."""
        self._tensorboard = tensorboard
        self._tracker = tracker
        if tensorboard:
            try:
                require("tensorboard", "tensorboard")
            except ConfigError as error:
                log.info("no TensorBoard files, metrics.jsonl has all numbers: %s", error)
                self._tensorboard = False
        self._tracked_step = -1
        """Up to here the tracker has metrics: a killed session sent them after its last save."""
        self._purge_step: int | None = None
        self._file: int | None = None
        self._board: SummaryWriter | None = None
        self._last: tuple[int, int, bytes] | None = None
        """Step, offset and content of the last line, to which more of its step may be added."""
        self._failed = False
        self._path = run / FILE_NAME
        self._folder = run / "tensorboard"
        with self._reporting(self._path):
            self._file = open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if resume_step is not None:
                _, newest = _end_of(self._path, sys.maxsize)
                if newest is not None and newest[0] > resume_step:
                    self._tracked_step = newest[0]
                end, self._last = _end_of(self._path, resume_step)
                os.ftruncate(self._file, end)  # atomic, and needs no free space
        # TensorBoard hides events of earlier files from purge_step on.
        self._purge_step = None if resume_step is None else resume_step + 1
        self._open_board()

    def _open_board(self) -> None:
        """Begin a new file of events, unless one is open."""
        if not self._tensorboard or self._board is not None:
            return
        from torch.utils.tensorboard import SummaryWriter  # takes half a second

        _silence_writer_threads()
        with self._reporting(self._folder):
            # SummaryWriter would create missing parent folders, as those of a deleted run.
            self._folder.mkdir(exist_ok=True)
            self._board = SummaryWriter(str(self._folder), purge_step=self._purge_step)
            self._purge_step = None

    def write(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Append one line, or add to the last line if that has the same step.

        Readers see it when this returns.
        """
        values = {name: _rounded(value) for name, value in metrics.items()}
        written: dict[str, float | None] = {}
        start = None
        former = b""
        if self._last is not None and self._last[0] == step:
            _, start, former = self._last
            written = _parse(former) or {}
        new = {name: value for name, value in values.items() if name not in written}
        record = {"step": step, "seconds": 0.0, **written, **values}
        record["seconds"] = round(seconds, 3)
        if self._tracker is not None and step > self._tracked_step:
            self._tracker.log(step, {"seconds": record["seconds"], **new})
        line = json.dumps(record, allow_nan=False) + "\n"
        is_written = self._replace_line(step, start, former, line.encode())
        if is_written:  # there is space, also for a file of events
            self._open_board()

        def add(board: SummaryWriter) -> None:
            for name, value in new.items():
                if value is not None:
                    board.add_scalar(name, value, step)
            board.flush()

        self.show(add)
        if self._failed and is_written and (self._board is not None or not self._tensorboard):
            log.warning("metrics are written to %s again", self._path.parent)
            self._failed = False

    def _replace_line(self, step: int, start: int | None, former: bytes, line: bytes) -> bool:
        """Write `line` in place of `former` at `start`, or at the end; False if that fails."""
        if self._file is None:
            return False
        with self._reporting(self._path):
            if start is None:
                start = os.fstat(self._file).st_size
            os.ftruncate(self._file, start)
            try:
                if os.write(self._file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:  # a full disk: restore the former line, and leave no half line
                os.ftruncate(self._file, start)
                if os.write(self._file, former) < len(former):
                    os.ftruncate(self._file, start)
                raise
            self._last = (step, start, line)
            return True
        return False

    def close(self) -> None:
        """Close both files; further writes are ignored."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.show(lambda board: board.close())
        self._board = None

    def show(self, show: Callable[[SummaryWriter], object]) -> None:
        """Call `show` with the writer of TensorBoard's files, if there is one."""
        board = self._board
        self._board = None  # an error ends its writer thread
        if board is not None:
            with self._reporting(self._folder):
                show(board)
                self._board = board

    @contextlib.contextmanager
    def _reporting(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._failed:
                log.warning("cannot write %s: %s; training continues without these metrics",
                            path, error.strerror or error)
            self._failed = True


@cache
def _silence_writer_threads() -> None:
    """Suppress tracebacks of TensorBoard's writer threads: the writer raises the same error."""
    from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread

    former = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.thread, _AsyncWriterThread):
            former(args)

    threading.excepthook = hook


def read_metrics(run: Path) -> list[dict[str, float | None]]:
    """The lines of a run's metrics.jsonl, oldest first; empty if there are none.

    Values that are not finite, or larger than `LARGEST`, are None. A warning names damaged lines;
    ConfigError if no line is complete.
    """
    path = run / FILE_NAME
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            content = read_small(file, str(path), LARGEST_FILE)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; make it readable") from None
    parsed = [_parse(line) for line in content.splitlines()]
    records = [record for record in parsed if record is not None]
    # A first line may be incomplete because it is being written.
    if not records and (b"\n" in content or content[:1] not in (b"{", b"")):
        raise ConfigError(f"{path} is damaged: it has no complete line of metrics; restore it from "
                          "a copy, or remove it to go on without it")
    if not content.endswith(b"\n"):
        del parsed[-1:]  # it is being written
    damaged = [str(number) for number, record in enumerate(parsed, 1) if record is None]
    if damaged:
        log.warning("%s is damaged: lines %s are left out; restore it from a copy", path,
                    ", ".join(damaged))
    return records


def _parse(line: bytes) -> dict[str, float | None] | None:
    try:
        record = parse(line)
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    if type(step) is not int or not 0 <= step < 10**18:
        return None
    values: dict[str, float | None] = {}
    for name, value in record.items():
        if value is None:
            values[name] = None
        elif type(value) in (int, float):
            values[name] = value if abs(value) <= LARGEST else None
    return values


def _end_of(path: Path, step: int) -> tuple[int, tuple[int, int, bytes] | None]:
    """The offset after the last line up to `step`, and the step, offset and content of that line.

    Steps never decrease; a line without a newline is incomplete.
    """
    end = 0
    last = None
    with path.open("rb") as file:
        for line in file:
            record = _parse(line)
            if (record is not None and (record["step"] or 0) > step) or not line.endswith(b"\n"):
                break
            if record is not None:
                last = (int(record["step"] or 0), end, line)
            end += len(line)
    return end, last


def _rounded(value: float) -> float | None:
    """`value` to six significant digits, or exact if it is whole; None if it is not finite."""
    if not math.isfinite(value):
        return None
    return value if float(value).is_integer() else float(f"{value:.6g}")
