"""Pictures of what the network sees: each stage is what training gives, for every kind of environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.tools import preview as module
from vantage.tools.preview import preview


def panels_of(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """What is drawn, by the first lines of the titles."""
    drawn: list[Any] = []
    draw = module._draw
    monkeypatch.setattr(module, "_draw", lambda panels, title: draw(drawn.append(panels) or panels, title))
    with Image.open(preview(config, tmp_path / "x.png")) as image:
        assert image.format == "PNG" and len(np.unique(np.asarray(image.convert("L")))) > 2
    return {panel.title.split("\n")[0]: panel.picture for panel in drawn[0]}


def test_every_stage_of_ataris_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config(env="Pong", frame_stack=3), tmp_path, monkeypatch)
    assert list(panels) == ["screen, frame 3 of 4", "screen, frame 4 of 4", "gray", "maximum of frames", "observation",
                            "stack, 1 of 3", "stack, 2 of 3", "stack, 3 of 3"]
    assert panels["screen, frame 4 of 4"].shape == (210, 160, 3) and panels["gray"].shape == (210, 160)
    assert (panels["maximum of frames"] >= panels["gray"]).all()
    assert panels["observation"].shape == (84, 84)
    np.testing.assert_array_equal(panels["observation"], panels["stack, 3 of 3"])
    assert (panels["stack, 1 of 3"] != panels["stack, 2 of 3"]).any()


def test_values_are_shown_raw_and_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config(env="CartPole-v1", obs_norm=True), tmp_path, monkeypatch)
    assert list(panels) == ["rendered for people", "observation, raw", "normalised"]
    raw, normalised = panels["observation, raw"], panels["normalised"]
    assert raw.shape == (4,) and np.sign(raw[1]) == np.sign(normalised[1]) and abs(normalised).max() < 5
    assert (abs(normalised[[0, 2]]) > 2 * abs(raw[[0, 2]])).all()  # place and angle are small numbers


def test_stacked_values_are_in_the_order_that_the_network_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config(env="drawn:Drawn", frame_stack=2), tmp_path, monkeypatch)
    assert panels["observation, raw"].tolist() == [5, 5, 5]  # the last before the game ended
    assert panels["stack of 2, raw"].tolist() == [4, 4, 4, 5, 5, 5]


def test_each_part_of_an_observation_has_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config(env="drawn:Parts"), tmp_path, monkeypatch)
    assert set(panels) == {"rendered for people", "eye: observation", "ear: observation, raw"}
    np.testing.assert_array_equal(panels["eye: observation"], panels["rendered for people"])


@pytest.mark.parametrize("env", ["tiny:Bandit", "tiny:MaskedBandit", "tiny:ContinuousTarget", "tiny:TwoSwitches",
                                 "tiny:Picture"])
def test_an_environment_without_pictures_shows_its_observation(
        env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(panels_of(Config(env=env), tmp_path, monkeypatch)))
    assert first == ("image: observation" if env == "tiny:Picture" else "observation, raw")


def test_the_command_takes_config_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "folder/x.png"
    assert main(["preview", "Breakout", "-o", str(output), "--frame-stack", "2", "--screen-size",
                 "42"]) == 0
    assert capsys.readouterr().out == f"{output}\n" and output.stat().st_size > 5_000


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/x\.png"):
        preview(Config(env="CartPole-v1"), tmp_path / "file/x.png")
