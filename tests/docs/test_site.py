"""The site of `make docs`: its links lead somewhere, it loads nothing from elsewhere, and it fits a telephone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import CHROMIUM, chromium

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
RANK = Path(__file__).with_name("rank.js")
FOUND = {
    "jupyter": "notebook", "notebook": "notebook", "wrapper": "wrappers", "callback": "callbacks",
    "custom network": "custom-network", "custom env": "custom-environment", "lambda": "objects",
    "success rate": "info", "info": "info", "tensorboard": "tracking", "checkpoint": "runs", "resume": "runs",
    "gpu": "gpu", "atari": "atari", "lstm": "memory", "mask": "action-masks",
    "hybrid action": "observations-and-actions", "pettingzoo": "pettingzoo", "onnx": "export", "wandb": "tracking"}
"""The page that a reader who searches for each word looks for."""
ABSENT = {"404.html"}
"""It is served for any address, so its links begin at the root of a server."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
                   cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return folder


class Links(HTMLParser):
    """The anchors of a page and the addresses that it links to or loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loads = {""}, set[str](), set[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the attributes name."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a":
            self.links |= {values["href"]} if "href" in values else set()
        else:
            self.loads |= {values[name] for name in ("src", "href") if name in values}


def pages(site: Path) -> dict[Path, Links]:
    """Every page with its links."""
    return {page: Links(page) for page in sorted(site.rglob("*.html")) if page.name not in ABSENT}


def broken(found: dict[Path, Links]) -> Iterator[str]:
    """The addresses that lead nowhere, and those that are loaded from elsewhere."""
    for page, links in found.items():
        for link in links.links | links.loads:
            address, _, anchor = link.partition("#")
            if link.startswith(("http://", "https://", "mailto:", "data:")):
                yield from [f"{page.name} loads {link}"] if link in links.loads else []
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            if not target.is_file():
                yield f"{page.name}: {link} is no file"
            elif target in found and unquote(anchor) not in found[target].anchors:
                yield f"{page.name}: {link} has no such place"


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = pages(site)
    assert len(found) > 30 and not list(broken(found))


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js")
def test_a_search_finds_its_page_first_or_second(site: Path) -> None:
    ranked = subprocess.run(["node", str(RANK), str(site), *FOUND], capture_output=True, text=True, check=True)
    ranks = json.loads(ranked.stdout)
    assert {word: ranks[word][:2] for word, page in FOUND.items() if f"{page}.html" not in ranks[word][:2]} == {}


def test_sources_are_not_searched(site: Path) -> None:
    docs = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    searched = " ".join(entry["text"] for entry in docs if entry["location"].startswith("reference.html"))
    shown = (site / "reference.html").read_text(encoding="utf-8")
    assert "Source code in" in shown and "Source code in" not in searched
    assert "Steps of a rollout for one gradient step" in searched  # a docstring


@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
def test_the_site_works_without_a_network_and_fits_a_telephone(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as tab:
        for width in (390, 1280):
            for page in pages(site):
                tab.open(page, width)
                assert tab.value("document.documentElement.scrollWidth") <= width, (page.name, width)
                assert tab.value("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0
                assert (tab.errors, tab.requests) == ([], []), page.name
        tab.open(site / "index.html", 1280)
        found = tab.value("""new Promise((resolve) => {
            const input = document.querySelector(".md-search__input")
            input.focus(); input.value = "data-parallel ranks"; input.dispatchEvent(new Event("keyup", {bubbles: true}))
            const look = () => {
                const items = document.querySelectorAll(".md-search-result__link")
                items.length ? resolve([...items].map((item) => item.href)) : setTimeout(look, 50)
            }
            look()
        })""")
        assert any("processes.html" in link for link in found), found
        assert (tab.errors, tab.requests) == ([], [])
