"""Writing metrics to metrics.jsonl and TensorBoard, and reading them back. What they mean is decided elsewhere.

A line is one JSON object: "step", "seconds", then the metrics; null where a value is not finite.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vantage.errors import ConfigError

if TYPE_CHECKING:
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from torch import Tensor
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)

FILE_NAME = "metrics.jsonl"
_LARGEST = 1e300
"""Larger values count as not finite: their sums and differences overflow a float."""


class MetricWriter:
    """Appends metrics to a run. A failing disk does not stop training: the first error is logged, once."""

    def __init__(self, run: Path, *, resume_step: int | None = None, tensorboard: bool = True) -> None:
        """Open the files; with `resume_step`, drop the lines after that step."""
        self._failed = False
        self._path = run / FILE_NAME
        self._file: int | None = None
        self._tensorboard: SummaryWriter | None = None
        try:
            if resume_step is not None and self._path.exists():
                # One system call, which is atomic and needs no free space.
                os.truncate(self._path, _end_of(self._path, resume_step))
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._report(self._path, error)
        if tensorboard:
            self._open_tensorboard(run / "tensorboard", resume_step)

    def write(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Append one line, which readers see when this returns."""
        values = {name: _rounded(value) for name, value in metrics.items()}
        line = json.dumps({"step": step, "seconds": round(seconds, 3), **values}, allow_nan=False) + "\n"
        if self._file is not None:
            self._append(self._file, line.encode())

        def show(board: SummaryWriter) -> None:
            for name, value in values.items():
                if value is not None:
                    board.add_scalar(name, value, step)
            board.flush()

        self._show(show)

    def write_histogram(self, name: str, values: Tensor, step: int) -> None:
        """Write a histogram to TensorBoard, flushed with the next line."""
        self._show(lambda board: board.add_histogram(name, values, step))

    def write_graph(self, graph: GraphDef) -> None:
        """Write the network's graph to TensorBoard."""
        from tensorboard.compat.proto.config_pb2 import RunMetadata

        self._show(lambda board: _file_writer(board).add_graph((graph, RunMetadata())))

    def write_hyperparameters(self, values: Mapping[str, bool | float | str], scores: Mapping[str, float]) -> None:
        """Write the run's config and scores to TensorBoard's page of hyperparameters."""
        from torch.utils.tensorboard.summary import hparams

        def show(board: SummaryWriter) -> None:
            for summary in hparams(dict(values), dict(scores)):  # type: ignore[no-untyped-call]
                _file_writer(board).add_summary(summary)
            for name, score in scores.items():
                board.add_scalar(name, score)

        self._show(show)

    def _show(self, show: Callable[[SummaryWriter], object]) -> None:
        if self._tensorboard is None:
            return
        try:
            show(self._tensorboard)
        except OSError as error:  # its writer thread has ended
            self._report(Path(self._tensorboard.log_dir), error)
            self._tensorboard = None

    def close(self) -> None:
        """Close both files; further writes are ignored."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._tensorboard is not None:
            try:
                self._tensorboard.close()
            except OSError as error:
                self._report(Path(self._tensorboard.log_dir), error)
            self._tensorboard = None

    def _append(self, file: int, data: bytes) -> None:
        """Append all of `data` or nothing, so that the next line does not continue half of this one."""
        before: int | None = None
        try:
            before = os.fstat(file).st_size
            while data:
                data = data[os.write(file, data):]
        except OSError as error:
            self._report(self._path, error)
            if before is not None:
                with contextlib.suppress(OSError):
                    os.truncate(file, before)

    def _open_tensorboard(self, folder: Path, resume_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # half a second, only if it is used

        # TensorBoard hides events of earlier files from purge_step on.
        purge_step = None if resume_step is None else resume_step + 1
        try:
            self._tensorboard = SummaryWriter(str(folder), purge_step=purge_step)
        except OSError as error:
            self._report(folder, error)

    def _report(self, path: Path, error: OSError) -> None:
        if not self._failed:
            log.warning("cannot write %s: %s; training continues without these metrics", path, error.strerror or error)
        self._failed = True


def _file_writer(board: SummaryWriter) -> Any:
    return board._get_file_writer()  # type: ignore[no-untyped-call]


def read_metrics(run: Path) -> list[dict[str, float | None]]:
    """The lines of a run's metrics.jsonl, oldest first; empty if there are none. Incomplete lines are skipped.

    Values that are not finite are None, also where the file has NaN or Infinity. ConfigError if no line is complete.
    """
    path = run / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; make it readable") from None
    records = [record for line in content.splitlines() if (record := _parse(line)) is not None]
    being_written = content.startswith(b"{") and b"\n" not in content
    if content and not records and not being_written:
        raise ConfigError(f"{path} is damaged: it has no complete line of metrics; restore it from a copy, or remove "
                          "it to go on without it")
    return records


def _parse(line: bytes) -> dict[str, float | None] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(record, dict) and type(record.get("step")) is int and abs(record["step"]) <= _LARGEST):
        return None
    # `not <=` rather than `>`: true for NaN too.
    return {name: None if value is None or not abs(value) <= _LARGEST else value
            for name, value in record.items() if value is None or type(value) in (int, float)}


def _end_of(path: Path, step: int) -> int:
    """The offset after the last line up to `step`. Steps never decrease; a line without a newline is incomplete."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            record = _parse(line)
            later = record is not None and (record["step"] or 0) > step
            if later or not line.endswith(b"\n"):
                break
            end += len(line)
    return end


def _rounded(value: float) -> float | None:
    """`value` to six significant digits; whole numbers, such as frame counts, stay exact; None if it is not finite."""
    if isinstance(value, int):
        return value
    value = float(value)
    if not math.isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.6g}")
