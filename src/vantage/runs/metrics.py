"""metrics.jsonl, the record of a run, and its view in TensorBoard. What the metrics mean is their producer's affair.

A line is one JSON object: "step", "seconds", then the metrics; null where a value was not finite.
"""

from __future__ import annotations

import contextlib
import json
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

FILE_NAME = "metrics.jsonl"
_LARGEST = 1e300
"""A value beyond counts as not finite: sums and differences of such leave the range of a float."""


class MetricWriter:
    """Appends metrics to a run. A disk that fails never stops training: `problem` then says what went wrong first."""

    def __init__(self, run: Path, *, resume_step: int | None = None, tensorboard: bool = True) -> None:
        """Open the run's record; with `resume_step`, forget what was recorded after that step."""
        self.problem: str | None = None
        self._path = run / FILE_NAME
        self._file: int | None = None
        self._tensorboard: SummaryWriter | None = None
        try:
            if resume_step is not None and self._path.exists():
                # One system call that needs no free space, and whole or not at all.
                os.truncate(self._path, _end_of(self._path, resume_step))
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._report(self._path, error)
        if tensorboard:
            self._open_tensorboard(run / "tensorboard", resume_step)

    def write(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Append one line, there for any reader when this returns."""
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
        """A histogram for TensorBoard, which is flushed with the next line."""
        self._show(lambda board: board.add_histogram(name, values, step))

    def write_graph(self, graph: GraphDef) -> None:
        """The network for TensorBoard."""
        from tensorboard.compat.proto.config_pb2 import RunMetadata

        self._show(lambda board: _file_writer(board).add_graph((graph, RunMetadata())))

    def write_hyperparameters(self, values: Mapping[str, bool | float | str], scores: Mapping[str, float]) -> None:
        """The config of the run and its scores, for TensorBoard's page of hyperparameters."""
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
        except OSError as error:  # its thread is gone and will not come back
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
        """All of `data` or nothing: a later line must not be glued to half of this one."""
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
        from torch.utils.tensorboard import SummaryWriter  # takes half a second, and not everyone wants it

        # TensorBoard hides all events from purge_step on that earlier files hold.
        purge_step = None if resume_step is None else resume_step + 1
        try:
            self._tensorboard = SummaryWriter(str(folder), purge_step=purge_step)
        except OSError as error:
            self._report(folder, error)

    def _report(self, path: Path, error: OSError) -> None:
        if self.problem is None:
            self.problem = f"cannot write {path}: {error.strerror or error}; training goes on without these metrics"


def _file_writer(board: SummaryWriter) -> Any:
    return board._get_file_writer()  # type: ignore[no-untyped-call]


def read_metrics(run: Path) -> list[dict[str, float | None]]:
    """The lines of a run's record, oldest first; empty before the first. Torn lines are passed over.

    A value that is not finite is None, also where the file says NaN or Infinity. ConfigError where no line is whole.
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
        raise ConfigError(f"{path} is damaged: no line of it is a record of metrics; restore it from a copy, or remove "
                          "it to go on without what it said")
    return records


def _parse(line: bytes) -> dict[str, float | None] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(record, dict) and type(record.get("step")) is int and abs(record["step"]) <= _LARGEST):
        return None
    # Not above: nan too.
    return {name: None if value is None or not abs(value) <= _LARGEST else value
            for name, value in record.items() if value is None or type(value) in (int, float)}


def _end_of(path: Path, step: int) -> int:
    """Where in the file the lines up to `step` end; steps never fall, and a last line without its newline is torn."""
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
    """Six significant digits; whole numbers, such as counts of frames, stay exact; None if it is not finite."""
    if isinstance(value, int):
        return value
    value = float(value)
    if not math.isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.6g}")
