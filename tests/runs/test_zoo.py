"""The zoo: its policies play as their cards say, and a damaged or unknown one is refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import zoo as script

import vantage
from vantage.cli import main
from vantage.errors import ConfigError
from vantage.runs.zoo import FOLDER, listing, names, policy_path, score_card

SMALL = {"acrobot": -100, "cartpole": 475, "frozenlake8x8": 0.7}
"""Policies whose games are short, and a score that a bad policy does not reach."""


@pytest.mark.parametrize(("name", "games"), [("acrobot", 100), ("cartpole", 10), ("frozenlake8x8", 100)])
def test_a_policy_scores_within_the_interval_of_its_card(name: str, games: int) -> None:
    card = score_card(name)
    result = vantage.evaluate(f"zoo:{name}", episodes=games, deterministic=card.deterministic)
    assert (result.env, result.step) == (card.environment, card.steps)
    assert card.return_low <= result.return_mean <= card.return_high
    assert card.return_low > SMALL[name]


def test_the_zoo_is_small_listed_and_each_policy_is_the_file_of_its_card() -> None:
    assert SMALL.keys() <= set(names())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < script.MOST_MB * 1e6
    for name in names():
        assert policy_path(f"zoo:{name}") == FOLDER / f"{name}.safetensors"
        assert f"zoo:{name} " in listing()
        assert len(score_card(name).commit) == 40


def test_a_new_run_and_the_commands_take_a_policy_by_its_name(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = vantage.train("ppo", env="CartPole-v1", init_from="zoo:cartpole", steps=1_024, eval_every=0, threads=1,
                          lr=1e-12, num_envs=8, rollout_length=128, epochs=1, run=tmp_path / "run", tensorboard=False)
    assert vantage.evaluate(agent, episodes=4, deterministic=True).return_mean == 500
    assert main(["evaluate", "zoo:cartpole", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == [500, 500]
    assert main(["evaluate", "zoo:cartpoel"]) == 2
    assert "the zoo has no 'cartpoel'; did you mean cartpole?; it has acrobot, bipedal" in capsys.readouterr().err


def test_a_policy_that_is_not_the_one_of_its_card_is_refused(tmp_path: Path) -> None:
    for suffix in (".json", ".safetensors"):
        shutil.copy(FOLDER / f"cartpole{suffix}", tmp_path)
    file = tmp_path / "cartpole.safetensors"
    assert policy_path("zoo:cartpole", tmp_path) == file
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"is damaged: its sha256 is .*; install Vantage again$"):
        policy_path("zoo:cartpole", tmp_path)
    file.unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*; install Vantage again"):
        policy_path("zoo:cartpole", tmp_path)
    card = tmp_path / "cartpole.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"episodes": "100", "more": 1}))
    with pytest.raises(ConfigError, match="is damaged: episodes, more; install"):
        score_card("cartpole", tmp_path)


def test_the_policy_of_a_run_is_added_with_its_command_and_the_page_lists_all(tmp_path: Path) -> None:
    vantage.train("a2c", env="tiny:Bandit", steps=64, eval_every=32, eval_episodes=2, threads=1, run=tmp_path / "run",
                  argv=["/bin/vantage", "train", "a2c", "--env", "tiny:Bandit", "--run", "x"], tensorboard=False)
    card = script.add(tmp_path / "run", "bandit", tmp_path, episodes=5)
    assert score_card("bandit", tmp_path) == card
    assert (card.command, card.episodes, card.steps) == ("vantage train a2c --env tiny:Bandit", 5, 128)
    assert card.return_low <= card.return_mean <= card.return_high
    assert policy_path("zoo:bandit", tmp_path).exists()
    with pytest.raises(ConfigError, match="'a/b' is no name for the zoo"):
        script.add(tmp_path / "run", "a/b", tmp_path)
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page(text) == text, "run python benchmarks/zoo.py page"
