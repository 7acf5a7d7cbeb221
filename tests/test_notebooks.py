"""The notebooks in examples/ run in a real kernel, and are kept with small outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from kernel import execute

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORTER = {"own_environment": {"10_000": "500", "2_000": "500", "episodes=50": "episodes=5"},
           "own_loss": {"20_000": "2_000"}}
PICTURES = {"own_environment": "image/gif", "own_loss": "image/png"}
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]  # jupyter_client warns


def read(name: str) -> Any:
    return nbformat.read(EXAMPLES / f"{name}.ipynb", 4)


@pytest.mark.parametrize("name", SHORTER)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND")  # pictures are inline, as by default
    notebook = read(name)
    for number, shorter in SHORTER[name].items():
        assert any(number in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(number, shorter)
    execute(notebook, tmp_path)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert kinds >= {"text/plain", "image/svg+xml", PICTURES[name]}


@pytest.mark.parametrize("name", SHORTER)
def test_a_notebook_is_kept_with_small_outputs_and_without_errors(name: str) -> None:
    outputs = [output for cell in read(name).cells for output in cell.get("outputs", [])]
    data = [data for output in outputs for kind, data in output.get("data", {}).items() if kind.startswith("image/")]
    assert len(data) >= 2 and max(len(each) for each in data) < 85_000  # base64 of 60 kB, or SVG
    assert not [output for output in outputs if output.output_type == "error"]
