"""Writing metrics to metrics.jsonl, TensorBoard and a tracker, and reading them back.

A line is one JSON object: "step", "seconds", then the metrics; null where a value is not finite.
Each step has one.
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
_LARGEST_FILE = 1 << 31
# That is read back: where larger values are added, multiplied or drawn, they overflow.
LARGEST = 1e100


class MetricWriter:
    """Writes metrics to a run.

    A failing disk does not stop training: its first error is logged, and its recovery.
    """

    def __init__(self, run: Path, *, resume_step: int | None = None, tensorboard: bool = True,
                 tracker: Tracker | None = None) -> None:
        """Open the files; with `resume_step`, drop the lines after that step."""
        self._tensorboard, self._tracker = tensorboard, tracker
        if tensorboard:
            try:
                require("tensorboard", "tensorboard")
            except ConfigError as error:
                log.info("no TensorBoard files, metrics.jsonl has all numbers: %s", error)
                self._tensorboard = False
        self._tracked_step = -1
        """Up to here the tracker has the metrics of a session that was killed after its last
        checkpoint."""
        self._purge_step: int | None = None
        self._file: int | None = None
        self._board: SummaryWriter | None = None
        self._last: tuple[int, int, bytes] | None = None
        """Step, offset and content of the last line, if another of its step may come."""
        self._failed = False
        self._path = run / FILE_NAME
        self._folder = run / "tensorboard"
        with self._reporting(self._path):
            self._file = open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if resume_step is not None:
                _, newest = _end_of(self._path, sys.maxsize)
                if newest is not None and newest[0] > resume_step:
                    self._tracked_step = newest[0]
                # One system call, which is atomic and needs no free space.
                end, self._last = _end_of(self._path, resume_step)
                os.ftruncate(self._file, end)
        # TensorBoard hides events of earlier files from purge_step on.
        self._purge_step = None if resume_step is None else resume_step + 1
        self._open_board()

    def _open_board(self) -> None:
        """Begin a new file of events, unless one is open."""
        if self._tensorboard and self._board is None:
            from torch.utils.tensorboard import SummaryWriter  # half a second, only if it is used

            _silence_writer_threads()
            with self._reporting(self._folder):
                # SummaryWriter would make the folders above it again.
                self._folder.mkdir(exist_ok=True)
                self._board = SummaryWriter(str(self._folder), purge_step=self._purge_step)
                self._purge_step = None

    def write(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Append one line; joins it to the last one if that has the same step.

        Readers see it when this returns.
        """
        values = new = {name: _rounded(value) for name, value in metrics.items()}
        start, former = None, b""
        if self._last is not None and self._last[0] == step:
            _, start, former = self._last
            known = {name: value for name, value in (_parse(former) or {}).items()
                     if name not in ("step", "seconds")}
            values, new = known | new, {name: value for name, value in new.items()
                                        if name not in known}
        line = (json.dumps({"step": step, "seconds": round(seconds, 3), **values},
                           allow_nan=False) + "\n").encode()
        if self._tracker is not None and step > self._tracked_step:
            self._tracker.log(step, {"seconds": round(seconds, 3), **new})
        complete = False
        if self._file is not None:
            with self._reporting(self._path):
                if start is None:
                    start = os.fstat(self._file).st_size
                os.ftruncate(self._file, start)
                try:
                    if os.write(self._file, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:  # a full disk: restore the former line; the next line would continue a half one
                    os.ftruncate(self._file, start)
                    if os.write(self._file, former) < len(former):
                        os.ftruncate(self._file, start)
                    raise
                self._last, complete = (step, start, line), True
        if complete:  # there is space, for another file of events too
            self._open_board()

        def add(board: SummaryWriter) -> None:
            for name, value in new.items():
                if value is not None:
                    board.add_scalar(name, value, step)
            board.flush()

        self.show(add)
        if self._failed and complete and (self._board is not None or not self._tensorboard):
            log.warning("metrics are written to %s again", self._path.parent)
            self._failed = False

    def close(self) -> None:
        """Close both files; further writes are ignored."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.show(lambda board: board.close())
        self._board = None

    def show(self, show: Callable[[SummaryWriter], object]) -> None:
        """Call `show` with the writer of TensorBoard's files, if there is one."""
        board, self._board = self._board, None  # gone where its writer thread has ended by an error
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
                log.warning("cannot write %s: %s; training continues without these metrics", path,
                            error.strerror or error)
            self._failed = True


@cache
def _silence_writer_threads() -> None:
    """Suppress tracebacks of TensorBoard's writer threads: their writer raises the same error."""
    from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread

    former = threading.excepthook
    threading.excepthook = lambda args: None if isinstance(args.thread, _AsyncWriterThread) else former(args)


def read_metrics(run: Path) -> list[dict[str, float | None]]:
    """The lines of a run's metrics.jsonl, oldest first; empty if there are none.

    A warning names damaged lines.

    Values that are not finite, or larger than `LARGEST`, are None. ConfigError if no line is complete.
    """
    path = run / FILE_NAME
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            content = read_small(file, str(path), _LARGEST_FILE)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; make it readable") from None
    parsed = [_parse(line) for line in content.splitlines()]
    records = [record for record in parsed if record is not None]
    # Not a first line that is being written.
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
    if not isinstance(record, dict) or type(record.get("step")) is not int or not 0 <= record["step"] < 10**18:
        return None
    return {name: value if value is not None and abs(value) <= LARGEST else None
            for name, value in record.items() if value is None or type(value) in (int, float)}


def _end_of(path: Path, step: int) -> tuple[int, tuple[int, int, bytes] | None]:
    """The offset after the last line up to `step`, and that line's step, offset and content if it has one.

    Steps never decrease; a line without a newline is incomplete.
    """
    end, last = 0, None
    with path.open("rb") as file:
        for line in file:
            record = _parse(line)
            if (record is not None and (record["step"] or 0) > step) or not line.endswith(b"\n"):
                break
            if record is not None:
                last = int(record["step"] or 0), end, line
            end += len(line)
    return end, last


def _rounded(value: float) -> float | None:
    """`value` to six significant digits; whole numbers, such as frame counts, stay exact; None if it is not finite."""
    if not math.isfinite(value):
        return None
    return value if float(value).is_integer() else float(f"{value:.6g}")
