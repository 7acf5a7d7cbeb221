"""The pages that people read: pictures that exist, are small, and say nothing of the machine that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {ROOT / "docs/keys.md"}  # by docs/site_pages.py
LINK = re.compile(r'\]\(([^)\s]+)\)|src="([^"]+)"')


def targets(page: Path) -> set[Path]:
    """The files that a page links to or shows."""
    links = ["".join(found).partition("#")[0] for found in LINK.findall(page.read_text(encoding="utf-8"))]
    return {(page.parent / link).resolve() for link in links if link and "://" not in link}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    assert not [path for path in targets(page) if not path.exists() and path not in GENERATED]


def test_the_tests_that_a_page_names_exist() -> None:
    names = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text(encoding="utf-8")))
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 40 and not [name for name in names if f"def {name}(" not in tests]


def test_every_picture_is_shown_and_small() -> None:
    pictures = {path for path in IMAGES.iterdir() if path.suffix in (".png", ".gif", ".svg")}
    assert pictures and pictures <= set().union(*map(targets, PAGES))
    assert max(path.stat().st_size for path in pictures) <= 150_000
    assert sum(path.stat().st_size for path in pictures) <= 1_500_000


@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_terminals_fetch_nothing_and_name_no_path_outside_the_run(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert "url(http" not in text and "@font-face" not in text
    shown = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", text)).replace("/dev/shm", "")
    assert "vantage" in shown and not re.search(r"(^|[\s&;'])/\w+/|\w@\w", shown)
