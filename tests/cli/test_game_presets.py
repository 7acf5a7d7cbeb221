"""Presets for one game: they imply it, keep to it, and yield to flags."""

from __future__ import annotations

import pytest

import vantage
from vantage.cli.arguments import read
from vantage.cli.entry import COMMANDS
from vantage.config.catalogue import catalogue
from vantage.config.presets.games import GAMES
from vantage.errors import ConfigError


def on_the_command_line(*words: str) -> vantage.Config:
    return read(COMMANDS["train"], words, "vantage train").args[0].config()  # type: ignore[attr-defined]


def test_pong_fast_is_ppo_on_pong_with_values_that_other_games_do_not_have() -> None:
    fast = vantage.configure("pong-fast")
    assert (fast.algo, fast.env.id, fast.env.screen_size, fast.env.short_episode_steps) == ("ppo", "Pong", "64", 100)
    assert fast.algorithm.epochs == 3 and fast.algorithm.minibatch_size == 256
    breakout = vantage.configure("ppo", env="Breakout").flat()
    different = {name for name, value in fast.flat().items() if breakout.get(name) != value}
    assert different >= set(GAMES["pong-fast"].values)
    assert "pong-fast" in catalogue()["presets"]


def test_ppo_has_one_set_of_defaults_for_all_atari_games() -> None:
    pong = vantage.configure("ppo", env="Pong").flat()
    for game in ("Breakout", "SpaceInvaders", "Qbert", "BeamRider", "Seaquest", "MsPacman", "Asteroids"):
        other = vantage.configure("ppo", env=game).flat()
        assert pong | {"env": other["env"]} == other


def test_the_command_and_python_read_a_preset_alike_and_other_values_override_it() -> None:
    fast = vantage.configure("pong-fast")
    assert on_the_command_line("pong-fast") == fast == vantage.configure("pong-fast", env="Pong")
    assert on_the_command_line("pong-fast", "--epochs", "3").algorithm.epochs == 3
    assert vantage.configure("pong-fast", env="ALE/Pong-v5").env.screen_size == "64"


@pytest.mark.parametrize("words", [("pong-fast", "--env", "Breakout"), ("pong-fast", "--env", "CartPole-v1")])
def test_a_preset_refuses_other_environments_and_names_the_algorithm(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"pong-fast is a preset for Pong, not {words[2]}; leave env out"):
        on_the_command_line(*words)
