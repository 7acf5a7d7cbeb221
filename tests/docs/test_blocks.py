"""The bash and python blocks of README and docs run, page by page, from a folder that holds only the examples.

Blocks of a page share the folder, its python blocks their names too. A comment `<!-- not run: REASON -->` above a fence
leaves it out. A block with a title is also saved as the file that it names. Evaluations of python blocks have a tenth
of the episodes on the page, and `vantage` is a program that appends the flags `SHORTER`. Trainings end by themselves
after `forks.STEPS` steps, and evaluate a single game.
Commands that no block runs are at least parsed, with their real flags.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest

from vantage.cli.arguments import read
from vantage.cli.entry import COMMANDS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r'(<!-- not run: [^>]+ -->\n+)?^( *)```(\w*)(?: title="([\w./]+)")?\n(.*?)^\2```$',
                   re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(vantage [^`]+)`")
CODE, OUTPUT = {"bash", "python"}, {"text", "console", "json", "yaml", "math"}
COLUMNS = 88
"""What a browser of 1280 pixels shows of a line of code; a longer one is cut."""
WIDE = {"networks.md", "pettingzoo.md"}
"""Pages with longer lines."""
COMMAND = re.compile(r"(\$ )?(vantage|pip|make|git|python3?|ray|torchrun|uv|conda|docker|sbatch) ")
NAMED = re.compile(r"vantage \w+($| -)|vantage train \w+$|\b(ALGO|ENV|ID|FILE|DIR|N)\b|\.\.\.|--from-search")
"""A command that is only named, has words for the reader to replace, or reads a file."""
SHORTER = {"evaluate": "--episodes 2", "report": "--episodes 1",
           "search": "--trials 2 --seeds 1 --jobs 1 --steps 600 --eval-every 300 --eval-episodes 1"}
COUNT = re.compile(r"\b(eval_every=|episodes=|eval_episodes=|trainer\.step < )(\d[\d_]*)")
"""A number of python blocks that is cut to a tenth."""
SHORT_SEEDS = "--seeds 2"
FOLDERS = dict.fromkeys(("auxiliary-losses.md", "custom-loss.md", "custom-network.md", "networks.md",
                         "vector-environments.md"), "examples")
"""Where the reader of a page is, if not in the clone."""

MY_PACKAGE = """
from gymnasium.envs.classic_control import CartPoleEnv


class MyEnv(CartPoleEnv):
    def __init__(self, size=9, render_mode=None):
        super().__init__(render_mode=render_mode)


Maze = MyEnv
"""


def tenth(count: re.Match[str]) -> str:
    """The text with a tenth of its number; 0 and 1 stay."""
    number = int(count[2])
    return f"{count[1]}{min(number, max(1, number // 10))}"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the code of each block that runs. A python block with a title is saved under it first."""
    found = []
    for skipped, _, language, title, code in FENCE.findall(page.read_text("utf-8")):
        if title:
            found.append(("bash", f"cat > {title} <<'END'\n{code}END\n"))
        if language == "python":
            code = COUNT.sub(tenth, code)
        if language in CODE and not skipped:
            found.append((language, code))
    return found


def commands(page: Path) -> list[str]:
    """The commands `vantage ...` in the text and in the fences that do not run."""
    text = page.read_text("utf-8").replace(r"\|", "|")
    code = "".join(code for skipped, _, language, _, code in FENCE.findall(text)
                   if language == "console" or (language == "bash" and skipped)).replace("\\\n", " ")
    code = re.sub(r"^\$ .*\nvantage: .*\n", "", code, flags=re.MULTILINE)  # shown for its error
    fenced = [line.strip().removeprefix("$ ").removesuffix(" &") for line in code.splitlines()]
    inline = INLINE.findall(FENCE.sub("", text).replace("\n", " "))
    return [line for line in [*fenced, *inline] if re.match(r"vantage [a-z]+( |$)", line)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the program that stands for `vantage`."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "vantage"
    program.write_text(forks.CLIENT.format(python=sys.executable, address=str(folder / "socket")))
    program.chmod(0o755)
    words = [sys.executable, forks.__file__, str(folder / "socket"), json.dumps(SHORTER), SHORT_SEEDS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        yield folder
        server.kill()


@pytest.mark.timeout(300)  # a page has up to seven commands
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, client: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "clone/examples", ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join([str(client), str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run([str(client / "vantage"), forks.BLOCKS], text=True, capture_output=True,
                           cwd=tmp_path / "clone" / FOLDERS.get(page.name, ""), input=json.dumps(blocks(page)),
                           env=os.environ | {"PATH": path, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1",
                                             "MPLBACKEND": "Agg"})
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_is_run_or_marked_as_output(page: Path) -> None:
    for _, _, language, _, code in FENCE.findall(page.read_text("utf-8")):
        assert language in CODE | OUTPUT, f"a fence without a language: {code}"
        if language == "text":
            assert not COMMAND.match(code), f"a command in a fence of text: {code}"
        if language == "console":
            assert any(not line.startswith("$ ") for line in code.splitlines()), f"commands without output: {code}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in WIDE], ids=lambda page: page.name)
def test_code_fits_the_width_of_a_page(page: Path) -> None:
    fences = [code for _, _, language, _, code in FENCE.findall(page.read_text("utf-8")) if language != "math"]
    assert [line for code in fences for line in code.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_in_a_page_can_be_parsed(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_package").mkdir()
    for module in ("my_package", "my_package.envs"):  # of another page
        monkeypatch.delitem(sys.modules, module, raising=False)
    for name in ("__init__", "envs"):
        (tmp_path / f"my_package/{name}.py").write_text(MY_PACKAGE)
    for folder in (tmp_path, ROOT / "examples"):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(ROOT)
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        assert words[0] in COMMANDS
        if not NAMED.search(line):
            read(COMMANDS[words[0]], words[1:], f"vantage {words[0]}")
