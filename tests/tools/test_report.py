"""A run as one HTML page: what is in it, that nothing is fetched, and how a browser shows it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vantage
from vantage.errors import ConfigError
from vantage.tools import report as module
from vantage.tools.record import record
from vantage.tools.report import report

QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 0, "hidden": "8"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = vantage.configure("a2c", env="CartPole-v1", steps=3_000, eval_every=1_000, eval_episodes=2, **QUIET)
    path = tmp_path_factory.mktemp("runs") / "cartpole <b>&amp;"
    *_, last = vantage.train(config, run=path)
    return Path(last.run)


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    return report(run, episodes=3)


class Page(HTMLParser):
    """Tags that are open at the end, addresses that a browser would load, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "poster", "srcset") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_holds_everything_and_fetches_nothing(run: Path, page: Path) -> None:
    assert page == run / "report.html"
    assert page.stat().st_size < 5_000_000
    text = page.read_text(encoding="utf-8")
    parsed = Page(text)
    assert not parsed.open
    assert all(address.startswith("data:") for address in parsed.loaded)
    assert not re.search(r"@import|url\(|<script|<link", text)
    kinds = [address.partition(";")[0] for address in parsed.loaded]
    assert kinds.count("data:video/mp4") == 1 and kinds.count("data:image/png") >= 8
    for address in parsed.loaded:
        data = base64.b64decode(address.partition(",")[2], validate=True)
        if "image" in address[:20]:
            assert np.asarray(Image.open(BytesIO(data)).convert("L")).std() > 1
        else:
            assert data[4:8] == b"ftyp"
    words = " ".join(parsed.words)
    assert "a2c on CartPole-v1" in words and "over 3 games" in words and "rollout_length" in words


def test_the_page_names_no_host(run: Path, page: Path) -> None:
    assert '"host"' in (run / "meta.json").read_text()
    assert "<td>host" not in page.read_text()


def test_what_the_run_says_is_text_and_no_html(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env="tiny:Bandit", steps=64, eval_every=0, **QUIET)
    *_, last = vantage.train(config, run=tmp_path / "run", argv=("vantage", "<script>alert(1)</script>"))
    heard: list[str] = []
    text = report(last.run, episodes=1, notify=heard.append).read_text()
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "No video" in text and any("no video in the page" in words for words in heard)


def test_a_recorded_video_of_the_run_is_taken_and_a_large_one_left_out(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    video = record(run, copy / "videos" / "game.mp4", seed=7).path.read_bytes()
    taken = Page(report(copy, episodes=1).read_text()).loaded
    assert any(base64.b64decode(address.partition(",")[2]) == video for address in taken)
    (copy / "videos" / "game.mp4").write_bytes(bytes(2_600_000))
    page = report(copy, episodes=1)
    assert "2.6 MB of video, too much" in page.read_text() and page.stat().st_size < 5_000_000


def test_what_cannot_be_reported_is_an_error_with_words(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        report(run, tmp_path / "page.pdf")
    with pytest.raises(ConfigError, match="episodes=0"):
        report(run, tmp_path / "page.html", episodes=0)
    with pytest.raises(ConfigError, match="no such run"):
        report(tmp_path / "nothing")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(ConfigError, match="choose another output"):
        report(run, tmp_path / "taken.html", episodes=1, video=False)


def test_a_damaged_run_is_an_error_before_the_games(
        run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "evaluate", lambda *_, **__: pytest.fail("played"))
    for name, content in (("summary.json", '{"steps": null}'), ("meta.json", "[]"), ("metrics.jsonl", "{}\n")):
        copy = tmp_path / name
        shutil.copytree(run, copy)
        (copy / name).write_text(content)
        with pytest.raises(ConfigError, match=f"{name}.*restore it"):
            report(copy)


def test_a_folder_among_the_videos_is_passed_over(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "videos" / "z.mp4").mkdir(parents=True)
    video = record(run, copy / "videos" / "game.mp4", seed=7).path.read_bytes()
    assert base64.b64encode(video).decode() in report(copy, episodes=1).read_text()


def test_a_video_that_does_not_play_is_named_and_the_next_one_taken(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    video = record(run, copy / "videos" / "game.mp4", seed=7).path.read_bytes()
    broken = {"cut.mp4": video[:len(video) // 2], "empty.mp4": b"", "noise.mp4": bytes(range(256)) * 8}
    for i, (name, content) in enumerate(broken.items(), 1):
        (copy / "videos" / name).write_bytes(content)
        newer = (copy / "videos" / "game.mp4").stat().st_mtime + i
        os.utime(copy / "videos" / name, (newer, newer))
    heard: list[str] = []
    text = report(copy, episodes=1, notify=heard.append).read_text()
    assert base64.b64encode(video).decode() in text and text.count("<video") == 1
    assert len(heard) == 3 and all(f"{name} is left out" in said for name, said in zip(
        reversed(broken), heard, strict=True))
    (copy / "videos" / "game.mp4").unlink()
    assert "data:video/mp4" in report(copy, episodes=1, notify=heard.append).read_text()  # recorded for the page


# What a browser has shown and fetched when the page is there: pictures and the video hold it up until they are.
PROBE = """<script>addEventListener("load", () => {
  const [video, ...others] = document.querySelectorAll("video")
  const shown = [...document.images].map(image => image.naturalWidth > 0 && image.clientWidth > 200)
  const fetched = performance.getEntriesByType("resource").map(entry => entry.name).filter(n => !n.startsWith("data:"))
  console.log("PROBE" + JSON.stringify({pictures: shown.length, hidden: shown.filter(x => !x).length,
    video: [video.videoWidth, video.readyState >= 2, video.clientWidth > 200], others: others.length, fetched}) + "END")
})</script></body>"""


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium here")
def test_a_browser_shows_it_without_complaint(page: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    shot, probed = tmp_path / "page.png", tmp_path / "page.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         "--proxy-server=127.0.0.1:9", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,2600",
         f"--screenshot={shot}", probed.as_uri()], capture_output=True, text=True, timeout=100, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(said) == 1 and "PROBE" in said[0], said
    found = json.loads(said[0].partition("PROBE")[2].partition("END")[0])
    assert found.pop("pictures") >= 8
    assert found == {"hidden": 0, "video": [600, True, True], "others": 0, "fetched": []}
    pixels = np.asarray(Image.open(shot).convert("RGB"))
    assert pixels.shape[:2] == (2600, 1100)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50
