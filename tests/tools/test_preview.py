"""Pictures of what the network sees: each stage is what training gives, for every kind of environment."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vantage.cli import main
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.presets import configure
from vantage.tools import preview as module
from vantage.tools.preview import Panel, draw_panels, preview


def drawn_by(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[Panel]], str]:
    """The groups of panels that are drawn, and the caption."""
    calls: list[Any] = []
    draw = module.draw_panels
    monkeypatch.setattr(module, "draw_panels", lambda *of: draw(*(calls.append(of) or of)))
    with Image.open(preview(config, tmp_path / "x.png")) as image:
        assert image.format == "PNG" and len(np.unique(np.asarray(image.convert("L")))) > 2
    groups, _, caption = calls[0]
    return groups, caption


def panels_of(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """What is drawn, by the first lines of the titles."""
    groups, _ = drawn_by(config, tmp_path, monkeypatch)
    return {panel.title.split("\n")[0]: panel.picture for group in groups for panel in group}


def test_every_stage_of_ataris_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config().change(env="Pong", frame_stack=3), tmp_path, monkeypatch)
    assert list(panels) == ["rendered for people", "maximum of 2 frames", "observation",
                            "stack, 1 of 3", "stack, 2 of 3", "stack, 3 of 3"]
    assert panels["rendered for people"].shape == (210, 160, 3) and panels["maximum of 2 frames"].shape == (210, 160)
    assert panels["observation"].shape == (84, 84)
    np.testing.assert_array_equal(panels["observation"], panels["stack, 3 of 3"])
    assert (panels["stack, 1 of 3"] != panels["stack, 2 of 3"]).any()


def test_values_are_shown_raw_and_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config().change(env="CartPole-v1", obs_norm=True), tmp_path, monkeypatch)
    assert list(panels) == ["rendered for people", "observation, raw", "normalised"]
    raw, normalised = panels["observation, raw"], panels["normalised"]
    assert raw.shape == (4,) and np.sign(raw[1]) == np.sign(normalised[1]) and abs(normalised).max() < 5
    assert (abs(normalised[[0, 2]]) > 2 * abs(raw[[0, 2]])).all()  # place and angle are small numbers


def test_stacked_values_are_in_the_order_that_the_network_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config().change(env="drawn:Drawn", frame_stack=2), tmp_path, monkeypatch)
    assert panels["observation, raw"].tolist() == [5, 5, 5]  # the last before the game ended
    assert panels["stack of 2, raw"].tolist() == [4, 4, 4, 5, 5, 5]


def test_each_part_of_an_observation_has_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config().change(env="drawn:Parts"), tmp_path, monkeypatch)
    assert set(panels) == {"rendered for people", "eye: observation", "ear: observation, raw"}
    np.testing.assert_array_equal(panels["eye: observation"], panels["rendered for people"])


@pytest.mark.parametrize("env", ["tiny:MaskedBandit", "tiny:ContinuousTarget", "tiny:Picture"])
def test_an_environment_without_pictures_shows_its_observation(
        env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(panels_of(Config().change(env=env), tmp_path, monkeypatch)))
    assert first == ("image: observation" if env == "tiny:Picture" else "observation, raw")


def test_stages_of_an_image_are_no_picture_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, caption = drawn_by(Config().change(env="tiny:Square", crop="2,0,0,0"), tmp_path, monkeypatch)
    assert [panel.title.split("\n")[0] for panel in groups[0]] == ["image", "crop to 10x12", "observation"]
    assert caption.endswith("this environment draws no pictures for people")


def test_a_stack_has_a_row_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, _ = drawn_by(Config().change(env="Pong", frame_stack=3, image_norm="global"), tmp_path, monkeypatch)
    assert [len(group) for group in groups] == [3, 3, 3]


def test_images_are_shown_normalised_by_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = panels_of(Config().change(env="Breakout", image_norm="global"), tmp_path, monkeypatch)
    raw, normalised = (panels[name].astype(float) for name in ("observation", "normalised"))
    assert normalised.min() == 0 and normalised.max() >= 254
    np.testing.assert_allclose(normalised, (raw - raw.min()) * 255 / (raw.max() - raw.min()), atol=1.01)
    groups, caption = drawn_by(Config().change(env="Breakout", image_norm="global"), tmp_path, monkeypatch)
    low, high = (float(word.strip(",")) for word in groups[0][-1].title.split("\n")[1].split()[1::2])
    deviation = (raw.max() - raw.min()) / (high - low)
    assert -2 < low < 0 < high < 10 and 10 < deviation < 100
    assert caption.endswith("normalised by the statistics of this preview's own 200 random steps")


@pytest.mark.parametrize(("preset", "says", "last"), [
    ("rl-a3c-pytorch", ["lasts 4 frames", "frame_stack 1", "lstm of 512"], "normalised"),
    ("pytorch-a2c", ["lasts 2-4 frames", "actions FIRE, RIGHT, LEFT;", "frame_stack 3", "0 to 1"], "stack, 3 of 3"),
    ("universe-a3c", ["lasts 2-4 frames", "actions NOOP, RIGHT, LEFT;", "lstm of 256"], "observation")])
def test_presets_are_drawn_with_what_is_theirs(preset: str, says: list[str], last: str, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    groups, caption = drawn_by(configure(preset, env="Pong"), tmp_path, monkeypatch)
    assert all(words in caption for words in says)
    assert groups[-1][-1].title.split("\n")[0] == last


def test_colour_stays_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config().change(env="Breakout", grayscale=False, frame_stack=2, image_norm="global", crop="34,16,0,0")
    panels = panels_of(config, tmp_path, monkeypatch)
    assert "gray" not in panels and all(picture.shape[2] == 3 for picture in panels.values())
    for picture in panels.values():
        assert (picture.max(2) - picture.min(2)).max() > 50


def test_the_caption_says_what_pictures_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, caption = drawn_by(Config().change(env="CarRacing-v3", frame_skip="2", obs_scale="-1:1"), tmp_path, monkeypatch)
    assert caption == "an action lasts 2 frames; frame_stack 1; pixels 0 to 255 become -1 to 1"
    _, caption = drawn_by(Config().change(env="CartPole-v1", action_subset="1"), tmp_path, monkeypatch)
    assert caption == "actions 1 of the environment's; frame_stack 1"


def test_keys_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="image_norm=global is for images"):
        preview(Config().change(env="CartPole-v1", image_norm="global"), tmp_path / "x.png")


def test_captions_of_a_figure_do_not_overlap() -> None:
    values, picture = np.arange(40.0), np.zeros((210, 160), np.uint8)
    long = "crop to 160x144\noff: 35 top, 15 bottom, 18 left, 18 right"
    groups = [[Panel(long, picture)] * 7, [Panel("values\n40", values)] * 2, [Panel("a line\n90", np.arange(90.0))]]
    figure = draw_panels(groups, "env: what the network sees", "; ".join(["a fact of four words"] * 30))
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes] + [figure._suptitle.get_window_extent()]
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert not any(box.overlaps(axes.get_window_extent()) for box in boxes for axes in figure.axes)
    numbers = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    assert len(numbers) == 80 and not any(box.overlaps(other) for box, other in pairwise(numbers))


def test_the_command_takes_config_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "folder/x.png"
    assert main(["preview", "Breakout", "-o", str(output), "--frame-stack", "2", "--screen-size",
                 "42"]) == 0
    assert capsys.readouterr().out == f"{output}\n" and output.stat().st_size > 5_000


def test_a_video_driver_that_is_not_there_matters_to_no_picture(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vantage.cli", "preview", "CartPole-v1", "-o", "x.png"]
    done = subprocess.run(command, env={**os.environ, "SDL_VIDEODRIVER": "nonesuch"}, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x.png\n", "")


def test_a_full_disk_leaves_the_existing_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x.png").write_text("former")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(ConfigError, match="No space left"):
        preview(Config().change(env="CartPole-v1"), tmp_path / "x.png")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["former"]
