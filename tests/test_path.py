"""The page on the architecture names the files that an update of PPO on Pong passes: few enough to read at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import walk

ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_an_update_of_ppo_passes_the_files_of_the_architecture_page(tmp_path: Path) -> None:
    output = subprocess.run([sys.executable, walk.__file__, str(tmp_path / "run")], check=True, capture_output=True,
                            text=True, timeout=100).stdout
    called = json.loads(output.splitlines()[-1])
    files = list(dict.fromkeys(file for file, _, _ in called))
    page = ARCHITECTURE.read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w/]+\.py)` \| (.*?) \|", page, re.MULTILINE)
    assert files == list(dict.fromkeys(file for file, _ in table)) and len(files) <= 10
    shown = {name.rpartition(".")[2] for _, words in table for name in re.findall("`(.+?)`", words)}
    assert {name for _, name, _ in called} >= shown - {"step"}
    assert sum(lines for _, _, lines in called) <= 700
