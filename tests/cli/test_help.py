"""What a reader gets without a run: help, lists, completion, and answers to names of other libraries."""

from __future__ import annotations

import re
import subprocess

import pytest

import vantage
from vantage.cli import main
from vantage.cli.entry import COMMANDS
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.fields import in_text
from vantage.keys.other_libraries import COMMANDS as OTHER_COMMANDS
from vantage.keys.other_libraries import KEYS, LIBRARIES
from vantage.keys.suggestions import suggestion


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints."""
    try:
        assert main(arguments) == 0
    except SystemExit as exit:  # --help
        assert not exit.code
    return capsys.readouterr().out


def test_help_shows_the_algorithms_own_keys_in_groups_with_the_defaults_in_force(
        capsys: pytest.CaptureFixture[str]) -> None:
    def words(*arguments: str) -> str:
        return " ".join(printed([*arguments, "--help-all"], capsys).replace("│", "").split())

    acer, a3c = words("train", "acer"), words("train", "a3c", "--env", "Pong")
    groups = ("env", "policy", "algorithm", "optimizer", "exploration", "cloning", "runtime", "run")
    assert all(f" {group} options " in acer for group in groups)
    assert "--replay-start INT" in acer and "(default: 2000)" in acer and "--gae-lambda" not in acer
    assert "acer on CartPole-v1" in acer and "a3c on Pong" in a3c
    assert "--lock" in a3c and "(default: linear:4e-4:0)" in a3c and "--replay-start" not in a3c
    assert "--lock" in words("train", "acer", "--runtime", "hogwild")
    assert "none|lstm|gru|gtrxl" in a3c and "(default: lstm)" in a3c
    assert "--trials INT" in words("search", "a2c") and "(default: auto)" in words("evaluate")


@pytest.mark.parametrize("command", [
    *COMMANDS, "train ppo --env Pong", "train acer", "train a3c --env Pong", "search acer --env LunarLander-v3"])
def test_help_is_at_most_105_lines_of_eighty_columns(
        command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed([*command.split(), "--help"], capsys)
    assert len(text.splitlines()) <= 105
    assert "…" not in text and not re.search(r"(module:Class|algorithm's own)[│\s]*\(default: none", text)


def test_help_has_each_key_once_with_its_default(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(["train", "ppo", "--env", "Pong", "--help"], capsys)
    values = vantage.configure("ppo", env="Pong").flat()
    shown = dict(re.findall(r"(?<=  )--([a-z-]+) (\S+)", text.partition("\nenv: ")[2]))
    assert shown == {name.replace("_", "-"): in_text(value)
                     for name, value in values.items() if name not in ("algo", "env", "runtime")}
    assert all(len(re.findall(rf"  --{name} ", text)) == 1 for name in shown)


def test_help_ends_in_the_narrowest_terminal(monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    assert "--episodes" in "".join(printed(["evaluate", "--help"], capsys).split())


def test_a_list_can_be_had_alone(capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(["list"], capsys)
    for what in ("algorithms", "networks", "presets", "defaults", "environments"):
        part = printed(["list", what], capsys)
        assert part.startswith(what) and part.strip() in whole and "\npresets\n" not in part
    assert "Breakout" in part


def test_bash_completes_commands_flags_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    script = printed(["--tyro-print-completion", "bash"], capsys)

    def complete(*words: str) -> set[str]:
        line = f'COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _tyro_vantage; echo "${{COMPREPLY[*]}}"'
        done = subprocess.run(["bash"], input=f"{script}\n{line}", capture_output=True, text=True, check=False)
        return set(done.stdout.split())

    assert complete("vantage", "ev") == {"evaluate"}
    assert complete("vantage", "train", "--num-") == {"--num-envs", "--num-workers"}
    assert complete("vantage", "train", "a2c", "--norm", "''") == {"none", "layer", "batch"}
    assert complete("vantage", "plot", "--x", "m") == {"minutes"}


def test_the_table_of_other_libraries_names_what_exists() -> None:
    own = {*Config.every_key(), "algo", "config", "run", "runtime"}
    assert sum(map(len, LIBRARIES.values())) == len(KEYS), "none twice"
    assert not own.intersection(KEYS)
    for name, (_, text) in KEYS.items():
        assert set(re.findall(r"{(\w+)}", text)) <= own, name
        assert f" {name} " in suggestion(name, own)
    assert {*OTHER_COMMANDS.values()} <= {*COMMANDS, "--help"} and not OTHER_COMMANDS.keys() & COMMANDS.keys()


@pytest.mark.parametrize(("name", "says"), [
    *((name, "") for name in ("foo", "frame", "checkpoints", "loss", "project", "level")),
    ("lerning_rate", "; Stable-Baselines3's learning_rate is lr"),
    ("epchs", "; did you mean epochs?"), ("totl_timesteps", "; Stable-Baselines3's total_timesteps is steps")])
def test_a_misspelled_name_is_answered_with_vantages_and_one_that_is_not_near_with_no_guess(
        name: str, says: str) -> None:
    assert suggestion(name, Config.every_key()) == says


def test_python_gets_the_key_of_another_library_too() -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'n_steps'; Stable-Baselines3's n_steps is rollout_length$"):
        vantage.configure("ppo", env="CartPole-v1", n_steps=5)
    with pytest.raises(ConfigError, match="CleanRL's num_minibatches is minibatch_size, in steps"):
        vantage.configure("ppo", env="CartPole-v1", num_minibatches=4)
    with pytest.raises(ConfigError, match=r"^unknown key 'learning'; `vantage train ALGO --help` shows"):
        vantage.configure("ppo", env="CartPole-v1", learning=1)


@pytest.mark.parametrize("command", [
    "train a3c --env Pong", "train rl-a3c-pytorch", "preview CartPole-v1 -o x.png", "play Pong"])
def test_the_last_line_of_help_is_a_command_that_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    last = printed([*command.split(), "--help"], capsys).splitlines()[-1]
    words = last.removeprefix("vantage ").removesuffix(" explains every key.").split()
    assert words == [*command.split()[:2], "--help-all"]
    assert printed(words, capsys)
