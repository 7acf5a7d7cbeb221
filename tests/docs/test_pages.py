"""The pages that people read: pictures that exist, are small, and say nothing of the machine that made them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import vantage

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DIAGRAMS = {"layers", "rollout", "runtimes", "step"}
"""Drawn by hand; the other .svg are terminals."""
EXPECTED = {
    "install with `pip`", "Docker image", "documentation site", "API reference", "shell completion",
    "custom environment", "custom vector environment", "custom network", "custom loss or algorithm", "callbacks",
    "exact resume, bit for bit", "hyperparameter tuning", "tracking: Weights & Biases, MLflow", "Hugging Face hub",
    "multi-GPU", "multi-node"}
"""What users of other libraries look for in docs/compare.md."""
LINK = re.compile(r'\]\(([^)\s]+)\)|src="([^"]+)"')


def targets(page: Path) -> set[Path]:
    """The files that a page links to or shows."""
    links = ["".join(found).partition("#")[0] for found in LINK.findall(page.read_text(encoding="utf-8"))]
    return {(page.parent / link).resolve() for link in links if link and "://" not in link}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    assert not [path for path in targets(page) if not path.exists()]


def test_the_page_of_faults_names_every_file_of_reports() -> None:
    page = (ROOT / "docs/fault-tests.md").read_text(encoding="utf-8").partition("## Reported bugs")[2]
    names = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| .* \| (.*) \|$", page, re.MULTILINE)))
    files = (ROOT / "tests/reports").glob("test_*.py")
    assert {*names} - {"test_"} == {path.stem.removeprefix("test_") for path in files}


def test_the_tests_that_a_page_names_exist() -> None:
    names = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text(encoding="utf-8")))
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 40 and not [name for name in names if f"def {name}(" not in tests]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs" and page.stem != "reference"],
                         ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 1_200


def test_pages_name_one_way_to_install() -> None:
    names = ("README.md", "docs/quickstart.md", "docs/install.md")
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in names]
    block = re.findall(r"```bash\n(git clone .*?)```", pages[0], re.DOTALL)
    assert len(block) == 1 and "--torch-backend cpu" in block[0] and "pip install -e '.[all]'" in block[0]
    assert all(page.count("git clone") == page.count(block[0]) == 1 for page in pages)


def test_every_picture_is_shown_and_small() -> None:
    pictures = {path for path in IMAGES.iterdir() if path.suffix in (".png", ".gif", ".svg")}
    assert pictures and pictures <= set().union(*map(targets, PAGES))
    assert max(path.stat().st_size for path in pictures) <= 150_000
    assert sum(path.stat().st_size for path in pictures) <= 1_500_000


@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_pictures_fetch_nothing_and_terminals_name_no_path_outside_the_run(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert "url(http" not in text and "@font-face" not in text
    if picture.stem in DIAGRAMS:
        return
    shown = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", text)).replace("/dev/shm", "")
    assert "vantage" in shown and not re.search(r"(^|[\s&;'])/\w+/|\w@\w", shown)


def test_every_feature_is_a_yes_with_a_link_or_a_no() -> None:
    text = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| ?.*\|$", text, re.MULTILINE)
    answers = {feature: answer for feature, answer in rows if feature != "feature"}
    assert answers.keys() >= EXPECTED
    assert not [answer for answer in answers.values() if not re.match(r"\[yes\]\([^)]+\)|no\b", answer)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_in_the_text_fit_the_functions(page: Path) -> None:
    for code in re.findall(r"`((?:vantage|agent)\.\w+\([^`]*\))`", page.read_text(encoding="utf-8")):
        call = ast.parse(code, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        of_agent = code.startswith("agent.")
        function = getattr(vantage.Agent if of_agent else vantage, call.func.attr)
        keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
        inspect.signature(function).bind(*[None] * (len(call.args) + of_agent), **keywords)


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = {name for name in vantage.__all__ if not name.endswith(("Error", "__"))}  # errors: by their module
    assert "::: vantage.errors" in text and not [name for name in names if f"heading: vantage.{name}}}" not in text]


def test_every_page_of_an_algorithm_has_all_its_parts() -> None:
    for algo in ("a2c", "ppo", "a3c", "a3g", "acer"):
        text = (ROOT / f"docs/{algo}.md").read_text(encoding="utf-8")
        parts = ["## Equations", "## Pseudocode", "## Keys and defaults", "## Measured", "## What it is good for",
                 "## Code"]
        assert [part for part in parts if f"\n{part}\n" not in text] == [], algo
