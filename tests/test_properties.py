"""Laws that hold for any input: schedules, configs, damaged checkpoints and command lines. Hypothesis draws them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoints import assert_is, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vantage.cli import main
from vantage.config.algorithms import ALGORITHMS
from vantage.config.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.schedules import Schedule
from vantage.runs.checkpoint import load_latest

QUICK = settings(derandomize=True, max_examples=60, deadline=None, database=None,
                 suppress_health_check=list(HealthCheck))
WORDS = st.one_of(st.text(max_size=12), st.sampled_from([
    "linear:1:0", "piecewise:0=1,50%=2", "none", "true", "-1", "1e999", "nan", "0", "10M", "64,64", "{}", "lstm", "é"]))
JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
                    lambda part: st.lists(part, max_size=2) | st.dictionaries(WORDS, part, max_size=2), max_leaves=4)
KEYS = sorted(Config.every_key())


@QUICK
@given(st.text(max_size=20) | st.from_regex(r"(linear|cosine|piecewise|):[0-9eEkM.+%=,:_-]{0,16}", fullmatch=True))
def test_any_text_is_a_schedule_or_an_error_that_quotes_it(text: str) -> None:
    try:
        schedule = Schedule.parse(text)
    except ConfigError as error:
        assert repr(text) in str(error)
    else:
        assert all(isinstance(schedule(step, 100), float) for step in (0, 50, 1000))


@QUICK
@given(st.sampled_from(sorted(ALGORITHMS)), st.dictionaries(st.sampled_from(KEYS), WORDS | st.integers(0, 10**6)
                                                            | st.floats(0, 1), min_size=1, max_size=3))
def test_a_config_is_an_error_or_comes_back_equal_from_json(algo: str, values: dict[str, Any]) -> None:
    config = Config.of(algo)
    for name, value in values.items():
        try:
            config = config.change(**{name: value})
        except ConfigError as error:
            assert name in str(error)
    assert Config.from_json(config.to_json(), source="it") == config


@QUICK
@given(st.sampled_from(KEYS), JSON)
def test_a_config_with_any_value_is_read_or_refused_by_its_name(name: str, value: Any) -> None:
    values = json.loads(Config.of("a2c").to_json())
    group = Config.every_key()[name].group
    values[group][name] = value
    try:
        Config.from_json(json.dumps(values), source="config.json")
    except ConfigError as error:
        assert "config.json" in str(error)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints; to be left as it is."""
    run = tmp_path_factory.mktemp("runs") / "run"
    run.mkdir()
    save(run, 1)
    save(run, 2)
    return run


@QUICK
@given(st.sampled_from(["manifest.json", "state.json", "model.safetensors", "optimizer.safetensors"]),
       st.floats(0, 1, exclude_max=True), st.binary(max_size=4), st.integers(0, 4))
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
        saved: Path, name: str, place: float, data: bytes, removed: int) -> None:
    file = saved / "checkpoints/step-000000000002" / name
    whole = file.read_bytes()
    at = int(place * len(whole))
    file.write_bytes(whole[:at] + data + whole[at + removed:])
    try:
        checkpoint = load_latest(saved)
        assert_is(checkpoint, checkpoint.step)
        assert checkpoint.step == 1 or name == "manifest.json" or file.read_bytes() == whole
        alone = Path(shutil.copytree(saved, "alone", dirs_exist_ok=True))
        shutil.rmtree(alone / "checkpoints/step-000000000001")
        try:
            assert_is(load_latest(alone), 2)
        except CheckpointError as error:
            assert "step-000000000002" in str(error)
    finally:
        file.write_bytes(whole)


@QUICK
@given(st.lists(st.tuples(st.sampled_from(KEYS) | st.text("abcdefgh-_", min_size=1, max_size=8), WORDS), max_size=2))
def test_a_command_line_is_a_config_or_one_line_that_says_why_not(options: list[tuple[str, str]]) -> None:
    words = [word for name, value in options for word in (f"--{name.replace('_', '-')}", value)]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda *text, **_: lines.append(" ".join(map(str, text))))
        status = main(["train", "a2c", "--env", "CartPole-v1", *words, "--dry-run"])
    assert status in (0, 2)
    if status == 2:
        assert len(lines) == 1 and lines[0].startswith("vantage: ") and len(lines[0].splitlines()) == 1
    else:
        Config.from_json(lines[-1], source="it")
