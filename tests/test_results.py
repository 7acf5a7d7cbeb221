"""results/: its tables are those of its folders, and each command has the config of its runs today."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import experiments
import results
from PIL import Image

ROOT = Path(__file__).parents[1]


@cache
def every() -> list[experiments.Experiment]:
    """The folders of results/; reading them takes a second."""
    return list(experiments.experiments())


def test_each_command_has_the_config_of_its_runs() -> None:
    different = {each.folder: found for each in every() if (found := experiments.differences(each))}
    assert not different, "run python benchmarks/results.py --commands, or train them again"


def test_another_default_is_found_and_a_flag_of_the_command_makes_up_for_it() -> None:
    one = next(each for each in every() if each.folder == "ppo-Breakout-256")
    plain = "vantage train ppo --env Breakout --seed 1 --steps 2M --minibatch-size 64"
    changed = replace(one, protocol={**one.protocol, "command": plain})
    assert experiments.differences(changed)["minibatch_size"] == ("256", "64")
    mended = replace(one, protocol={**one.protocol, "command": experiments.todays_command(changed)})
    assert mended.command.count("--minibatch-size") == 1 and not experiments.differences(mended)
    longer = replace(one, protocol={**one.protocol, "command": f"{one.command} --schedule-steps 3M"})
    assert experiments.differences(longer) == {"schedule_steps": ("2000000", "3000000")}


def test_the_tables_are_those_of_the_folders() -> None:
    for path in results.pages():
        text = path.read_text(encoding="utf-8")
        assert results.page(text, every()) == text, f"{path}: run python benchmarks/results.py"
    shown = "".join(path.read_text(encoding="utf-8") for path in results.pages())
    assert not [each.folder for each in every() if f"({each.folder}/protocol.json)" not in shown]


def test_a_row_has_the_interval_of_three_seeds_and_the_scores_of_fewer() -> None:
    one = next(each for each in every() if each.folder == "ppo-Qbert")
    assert results.row(one)[:6] == ["Qbert", "ppo", "10M", "1", "15,662", "17,395 (T)"]
    three = replace(one, scores={0: 1.0, 1: 2.0, 2: 3.0}, steps=300_000)
    assert results.row(three)[2:6] == ["300k", "0–2", "2.00 (1.00 to 3.00)", ""], "early: nothing to compare with"
    five = replace(one, scores=dict(enumerate((0.0, 10.0, 20.0, 30.0, 100.0))))
    assert results.center(list(five.scores.values())) == 20, "without the lowest and the highest"


def test_pages_are_short_and_no_diary() -> None:
    pages = sorted((ROOT / "results").glob("*.md"))
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in pages}
    assert not {name: lines for name, lines in lengths.items() if lines > 60}
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 6_000


def test_each_picture_of_results_shows_its_numbers_and_its_environment() -> None:
    drawn = sorted((ROOT / "results").glob("*/curve.csv"))
    assert drawn and {csv.with_suffix(".png") for csv in drawn} == set((ROOT / "results").glob("*/curve.png"))
    for numbers in drawn:
        assert results.is_drawn(numbers), f"{numbers} changed: python benchmarks/results.py"
        with Image.open(numbers.with_suffix(".png")) as picture:
            assert picture.info["Title"] == results.env_of(numbers.parent)
