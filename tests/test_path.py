"""The page on the architecture names the files that an update of PPO on Pong passes: few enough to read at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import walk
from zygote import call

ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_an_update_of_ppo_passes_the_files_of_the_architecture_page(tmp_path: Path) -> None:
    output = call([walk.__file__, tmp_path / "run"]).stdout
    called = json.loads(output.splitlines()[-1])
    files = list(dict.fromkeys(file for file, _, _ in called))
    page = ARCHITECTURE.read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w/]+\.py)` \| (.*?) \|", page, re.MULTILINE)
    assert files == list(dict.fromkeys(file for file, _ in table)) and len(files) <= 10
    shown = {name.rpartition(".")[2] for _, words in table for name in re.findall("`(.+?)`", words)}
    assert {name for _, name, _ in called} >= shown - {"step"}
    assert sum(lines for _, _, lines in called) <= 700
