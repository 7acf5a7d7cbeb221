"""Pictures of what the network sees: the screen, the observation, and the input of the first layer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vantage.cli import main
from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.errors import ConfigError
from vantage.tools.preview import STREAM, look, preview


def last_rows(config: Config) -> list[dict[str, np.ndarray[Any, Any]]]:
    """What is drawn of the last step, by the titles' first lines."""
    with closing(make_single(config.env, seed=0, stream=STREAM, draws=None)) as envs:
        *_, (_, rows) = look(config, envs)
    return [{title.split("\n")[0]: values for title, values in row} for row in rows]


def test_the_stack_ends_with_the_observation_and_has_the_frames_before_it() -> None:
    row, = last_rows(Config().change(env="Pong", frame_stack=3))
    assert list(row) == ["screen", "observation", *(f"network input, {i} of 3" for i in (1, 2, 3))]
    assert row["screen"].shape == (210, 160, 3) and row["observation"].shape == (84, 84)
    np.testing.assert_allclose(row["network input, 3 of 3"] * 255, row["observation"], atol=1e-4)
    assert (row["network input, 1 of 3"] != row["network input, 2 of 3"]).any()


@pytest.mark.parametrize(("keys", "low"), [({"image_norm": "global"}, None), ({"obs_scale": "-1:1"}, -1.0)])
def test_images_are_shown_as_they_are_normalised(keys: dict[str, Any], low: float | None) -> None:
    config = Config().change(env="Breakout", grayscale=False, crop="34,16,0,0", **keys)
    with closing(make_single(config.env, seed=0, stream=STREAM)) as envs:
        *_, (_, [[_, (_, raw), (title, seen)]]) = look(config, envs)
    black, white = (float(word.strip(",")) for word in title.split("\n")[1].split()[1::2])
    values, raw = seen * (white - black) + black, raw.astype(float)
    slope, shift = np.polyfit(raw.ravel(), values.ravel(), 1)
    np.testing.assert_allclose(values, slope * raw + shift, atol=0.02)  # affine in the raw pixels, in colour
    assert raw.shape == (84, 84, 3) and seen.min() >= 0 and seen.max() <= 1
    assert (black, slope) == (low, pytest.approx(2 / 255)) if low else abs(values.mean()) < 0.2


def test_values_are_shown_raw_and_normalised_by_what_was_seen() -> None:
    config = Config().change(env="CartPole-v1", obs_norm=True)
    with closing(make_single(config.env, seed=0, stream=STREAM)) as envs:
        rows = [row for _, [row] in look(config, envs)]
    raw, (_, (title, _), (_, seen)) = np.stack([row[1][1] for row in rows]), rows[-1]
    assert title == "observation\n4"
    np.testing.assert_allclose(seen, (raw[-1] - raw.mean(0)) / raw.std(0), rtol=1e-3)
    config = Config().change(env="drawn:Drawn", frame_stack=2)
    with closing(make_single(config.env, seed=0, stream=STREAM)) as envs:
        assert [step for step, _ in look(config, envs)][:8] == [0, 1, 2, 3, 4, 5, 0, 1]
    row, = last_rows(config)
    assert row["network input, oldest first"].tolist() == [4, 4, 4, 5, 5, 5] and row["observation"].tolist() == [5] * 3


def test_each_part_of_an_observation_has_a_row() -> None:
    ear, eye = last_rows(Config().change(env="drawn:Parts"))
    assert list(ear) == ["screen", "ear", "network input"] and list(eye) == ["eye", "network input, 1 of 1"]
    np.testing.assert_array_equal(eye["eye"], ear["screen"])
    one, *others = last_rows(Config().change(env="tiny:ManyParts", torsos="joint"))
    assert list(one) == ["01", "network input of 11 parts"] and len(one["network input of 11 parts"]) == 66
    assert [list(row) for row in others] == [[f"{size:02}"] for size in range(2, 12)]
    # The untrained actor acts without what only the critic sees.
    rows = last_rows(Config().change(env="tiny:Hidden", separate=True, critic_obs="state"))
    assert [list(row) for row in rows] == [["image", "network input"], ["state"]]


def test_an_image_of_another_range_is_not_black() -> None:
    row, = last_rows(Config().change(env="drawn:Codes", network="mlp"))
    assert row["observation"].max() == 1.0


@pytest.mark.parametrize("env", ["tiny:MaskedBandit", "tiny:ContinuousTarget", "tiny:Picture"])
def test_an_environment_without_pictures_shows_its_observation(env: str, tmp_path: Path) -> None:
    config = Config().change(env=env, network="mlp")
    assert "screen" not in last_rows(config)[0]
    assert preview(config, tmp_path / "x.png").stat().st_size > 3_000


def test_the_command_draws_a_picture_and_refuses_keys_without_effect(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "folder/x.png"
    assert main(["preview", "Breakout", "-o", str(output), "--frame-stack", "2", "--screen-size", "42"]) == 0
    with Image.open(output) as image:
        assert capsys.readouterr().out == f"{output}\n" and len(np.unique(np.asarray(image.convert("L")))) > 20
    with pytest.raises(ConfigError, match="image_norm=global is for images"):
        preview(Config().change(env="CartPole-v1", image_norm="global"), tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
