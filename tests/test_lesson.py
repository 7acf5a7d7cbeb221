"""The lesson in examples/ runs from top to bottom, and what it shows is what it computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

LESSON = Path(__file__).parent.parent / "examples" / "a2c_lesson.ipynb"


def cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_the_lesson_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.gcf().axes)))
    namespace: dict[str, Any] = {}
    for i, cell in enumerate(cells()):
        source = "".join(cell["source"])
        if i == 0:
            assert "2_000" in source
            source = source.replace("2_000", "30")
        exec(compile(source, f"{LESSON.name}, code cell {i}", "exec"), namespace)
    plt.close("all")
    assert shown == [9]
    assert len(namespace["history"]) == 30
    assert {"explained_variance", "entropy", "policy_loss", "value_loss", "total loss", "gradient norm",
            "value targets", "value predictions", "advantages, deviation"} <= namespace["history"][0].keys()
    assert "mean score of the last 50 games" in capsys.readouterr().out


def test_the_lesson_is_kept_with_its_outputs_and_learnt() -> None:
    text = ["".join(part) for cell in cells() for output in cell["outputs"] for part in [output.get("text", [])]]
    score, = (float(line.rpartition(" ")[2]) for line in "\n".join(text).splitlines() if "last 50 games" in line)
    assert score >= 475
    assert any("image/png" in output.get("data", {}) for cell in cells() for output in cell["outputs"])
