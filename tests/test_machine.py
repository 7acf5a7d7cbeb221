"""What this process knows of its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vantage.machine import used_memory

MIB = 2**20
HOLD = "import sys\nheld = b'x' * (64 << 20)\nprint(flush=True)\nsys.stdin.read()"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_used_memory_counts_what_children_hold_while_they_live() -> None:
    before = used_memory()
    assert before is not None and before > 20 * MIB
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = used_memory()
        child.communicate()
    after = used_memory()
    assert during is not None and after is not None
    assert 60 * MIB < during - before < 120 * MIB and abs(after - before) < 20 * MIB
