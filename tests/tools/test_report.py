"""A run as one HTML page: what is in it, that it loads nothing, and what cannot be reported."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import train_shortly
from PIL import Image

import vantage
from vantage.errors import ConfigError
from vantage.tools import report as module
from vantage.tools.report import report


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = vantage.configure("a2c", env="CartPole-v1", steps=900, eval_every=300, eval_episodes=2, threads=1,
                               tensorboard=False, log_every_seconds=0, hidden="8")
    *_, last = vantage.Trainer(config, run=tmp_path_factory.mktemp("runs") / "cartpole <b>&amp;")
    return Path(last.run)


class Page(HTMLParser):
    """Tags that are open at the end, addresses that a browser would load, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "poster", "srcset") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_holds_everything_and_loads_nothing(run: Path) -> None:
    path = report(run, episodes=3)
    assert path == run / "report.html" and path.stat().st_size < 5_000_000
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open and not re.search(r"@import|url\(|<script|<link|<b>", html)
    kinds = [address.partition(";")[0] for address in page.addresses]
    assert kinds.count("data:video/mp4") == 1 and kinds.count("data:image/png") == len(kinds) - 1 >= 8
    for kind, address in zip(kinds, page.addresses, strict=True):
        data = base64.b64decode(address.partition(",")[2], validate=True)
        if kind == "data:image/png":
            assert np.asarray(Image.open(BytesIO(data)).convert("L")).std() > 1
        else:
            assert data[4:8] == b"ftyp"
    for shown in ("a2c on CartPole-v1", "of 3 games; checkpoint: best", '"rollout_length"'):
        assert shown in page.text
    for name in ("host", "config_hmac"):
        assert f'"{name}"' in (run / "meta.json").read_text() and f'"{name}"' not in page.text


@pytest.mark.usefixtures("one_curve")
def test_the_page_of_an_agent_shows_its_own_policy(run: Path, tmp_path: Path) -> None:
    agent = vantage.load(run, checkpoint=768)
    expected = vantage.evaluate(agent, episodes=3)
    text = report(agent, tmp_path / "page.html", episodes=3, video=False).read_text()
    assert f"{expected.return_mean:.2f}" in text and agent.checkpoint in text


@pytest.mark.usefixtures("one_curve")
def test_a_page_without_a_video_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    html = report(train_shortly(tmp_path / "run", "tiny:Bandit", steps=64), episodes=1).read_text()
    assert "No video" in html and any("no video in the page" in message for message in caplog.messages)


@pytest.mark.parametrize(("name", "content"), [
    ("summary.json", "[]"), ("meta.json", "[]"), ("metrics.jsonl", "{}\n")])
def test_a_damaged_run_is_an_error_before_any_game_is_played(
        name: str, content: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "evaluate", lambda *_, **__: pytest.fail("played"))
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / name).write_text(content)
    with pytest.raises(ConfigError, match=f"{name}.*restore it"):
        report(copy)


@pytest.mark.usefixtures("one_curve")
def test_the_page_names_what_is_missing(
        run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "summary.json").write_text('{"steps": 3000, "seconds": null, "episodes": 12.0, "status": "<b>"}')
    lines = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text("broken\n" + lines)
    meta = json.loads((copy / "meta.json").read_text())
    (copy / "meta.json").write_text(json.dumps(meta | {"mirror": "s3://private/run"}))
    page = Page(report(copy, episodes=1, video=False).read_text()).text
    assert "3,000 steps, 12 episodes" in page and "<b>" not in page and "s3://private" not in page
    assert len(caplog.messages) == 1 and "metrics.jsonl is damaged: lines 1 " in caplog.messages[0]
    (copy / "metrics.jsonl").unlink()
    (copy / "summary.json").unlink()
    monkeypatch.setattr(module, "_MAX_VIDEO", 100)
    page = report(copy, episodes=1).read_text()
    assert "metrics.jsonl is missing" in page and "MB of video are too much" in page
    assert any("summary.json is missing" in message for message in caplog.messages)


def test_the_table_has_the_means_of_the_infos_of_each_way_to_play() -> None:
    sampled = vantage.Evaluation("X-v0", 2, False, 1.0, 0.0, 1.0, 1.0, 5.0, [1.0, 1.0], 0, "best", 9,
                                 infos=[{"coins": 2, "is_success": True}, {"coins": 5, "is_success": False}])
    both = dataclasses.replace(sampled, deterministic=True, infos=[{}, {"is_success": True}], other=sampled)
    page = Page(module._evaluation(both))
    assert page.text.endswith("stepssuccess ratecoins" "most probable1.000.001151" "sampled1.000.001150.53.5")
