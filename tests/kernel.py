"""Executes notebooks in a real kernel, which is a fork of a process that has imported torch, in an empty folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient
from processes import wait_for
from zygote import Command


def fork(words: Sequence[str], **options: Any) -> Command:
    """What jupyter_client starts as a new interpreter, once it has the process group that is killed in the end."""
    kernel = Command(words[1:], **options)
    wait_for(lambda: os.getpgid(kernel.pid) == kernel.pid, kernel)
    return kernel


def execute(notebook: Any, folder: Path) -> list[str]:
    """Execute all cells; the texts of their outputs. CellExecutionError for a cell that raises."""
    client = NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with patch("jupyter_client.launcher.Popen", fork):
        client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.get("text") or output["data"].get("text/plain", "") for output in outputs]


def notebook_of(*sources: str) -> Any:
    """A notebook with these cells of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
