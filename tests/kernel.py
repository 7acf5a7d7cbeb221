"""Executes notebooks in a real kernel, in an empty folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def execute(notebook: Any, folder: Path) -> list[str]:
    """Execute all cells; the texts of their outputs. CellExecutionError for a cell that raises."""
    client = NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.get("text") or output["data"].get("text/plain", "") for output in outputs]


def notebook_of(*sources: str) -> Any:
    """A notebook with these cells of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
