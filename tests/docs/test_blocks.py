"""The bash and python blocks of README and docs run, page by page, from an empty folder.

Blocks of a page share the folder, its python blocks their names too. A comment `<!-- not run: REASON -->` above a fence
leaves it out; other fences (text, json, yaml, math) are no code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRIVER = """
import json, subprocess, sys

if __name__ == "__main__":
    names = {"__name__": "__main__"}
    for language, code in json.loads(sys.stdin.read()):
        if language == "bash":
            subprocess.run(["bash", "-ec", code], check=True, stdin=subprocess.DEVNULL)
        else:
            exec(compile(code, "block", "exec"), names)
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the code of each block that runs."""
    return [(language, code) for skipped, language, code in BLOCK.findall(page.read_text("utf-8")) if not skipped]


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "empty").mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run([sys.executable, str(tmp_path / "driver.py")], cwd=tmp_path / "empty", text=True,
                           input=json.dumps(blocks(page)), capture_output=True,
                           env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"})
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
