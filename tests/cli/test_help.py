"""What a reader gets without a run: help, lists, completion, and answers to names of other libraries."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

import vantage
from vantage.cli import main
from vantage.cli.entry import COMMANDS
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.other_libraries import COMMANDS as OTHER_COMMANDS
from vantage.keys.other_libraries import KEYS, LIBRARIES
from vantage.keys.suggestions import suggestion
from vantage.keys.typed_values import in_text


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
    with pytest.raises(ConfigError) as error:
        vantage.configure("ppo", env="CartPole-v1", num_steps_per_env=24, lam=0.95, lr=1e-3, horizon_length=16)
    assert str(error.value) == (
        "unknown key 'num_steps_per_env'; rsl_rl's num_steps_per_env is rollout_length; unknown key 'lam'; rsl_rl's "
        "lam is gae_lambda; unknown key 'horizon_length'; rl_games' horizon_length is rollout_length")
    with pytest.raises(ConfigError, match=r"; and 3 more$"):
        vantage.configure("ppo", env="CartPole-v1", **{f"foreign_{i}": 1 for i in range(11)})
    with pytest.raises(ConfigError, match=r"^unknown key 'progress'; it is an argument of vantage\.train; a Trainer"):
        vantage.configure("ppo", env="CartPole-v1", progress=False)
    with pytest.raises(ConfigError, match=r"^unknown key 'learning'; print.vantage.configure.'ppo', env=....*shows"):
        vantage.configure("ppo", env="CartPole-v1", learning=1)


RSL_RL: dict[str, dict[str, Any]] = {
    "num_steps_per_env": {"rollout_length": 24}, "num_learning_epochs": {"epochs": 5},
    "num_mini_batches": {"minibatch_size": 24 * 64 // 4}, "lam": {"gae_lambda": 0.95},
    "init_noise_std": {"log_std_init": 0.0}, "desired_kl": {"lr": "kl:0.01"}, "schedule": {"lr": "kl:0.01"},
    "value_loss_coef": {"value_coef": 2.0}, "use_clipped_value_loss": {"value_clip": 0.2, "clip": 0.2},
    "max_iterations": {"steps": 300 * 24 * 64}, "actor_hidden_dims": {"hidden": "256,128"},
    "critic_hidden_dims": {"hidden": [256, 128]}, "rnn_type": {"memory": "lstm"},
    "rnn_hidden_size": {"memory_size": 64, "memory": "gru"}, "empirical_normalization": {"obs_norm": True},
    "num_privileged_obs": {"critic_obs": "state", "separate": True}, "privileged_obs": {"critic_obs": ["state"]},
    "asymmetric": {"critic_obs": ("state",), "separate": True}, "save_interval": {"save_every": 1000}}
RL_GAMES: dict[str, dict[str, Any]] = {
    "horizon_length": {"rollout_length": 16}, "mini_epochs": {"epochs": 8}, "e_clip": {"clip": 0.2},
    "critic_coef": {"value_coef": 4}, "clip_value": {"value_clip": 0.2, "clip": 0.2}, "bounds_loss_coef": {},
    "kl_threshold": {"lr": "kl:0.008"}, "lr_schedule": {"lr": "linear:3e-4:0"}, "grad_norm": {"max_grad_norm": 1.0},
    "truncate_grads": {"max_grad_norm": 1.0}, "normalize_input": {"obs_norm": True},
    "normalize_value": {"value_norm": "popart"}, "value_bootstrap": {}, "central_value_config": {"critic_obs": "state"},
    "num_actors": {"num_envs": 64}, "max_epochs": {"steps": 500 * 16 * 64}, "score_to_win": {"stop_at_return": 20},
    "games_to_track": {"return_window": 100}}


@pytest.mark.parametrize(("library", "remedies"), [("rsl_rl's", RSL_RL), ("rl_games'", RL_GAMES)])
def test_every_remedy_for_keys_of_robotics_libraries_works_when_followed(
        library: str, remedies: dict[str, dict[str, Any]]) -> None:
    assert {*remedies} | {"experiment_name"} >= {*LIBRARIES[library]}, "experiment_name is no key"
    for name, keys in remedies.items():
        with pytest.raises(ConfigError) as error:
            vantage.configure("ppo", env="Pendulum-v1", **{name: 1})
        assert f"{library} {name} " in str(error.value)
        assert all(key in str(error.value) for key in keys if key != "memory"), name
        vantage.configure("ppo", env="Pendulum-v1", **keys)


def test_a_command_names_all_keys_of_another_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "PPO", "--env", "CartPole-v1", "--n-steps", "5", "--foo", "--clip-range", "0.1"])
    assert capsys.readouterr().err.strip().endswith(
        "unknown argument '--n-steps'; Stable-Baselines3's n_steps is --rollout-length; unknown argument '--foo'; "
        "unknown argument '--clip-range'; Stable-Baselines3's clip_range is --clip; see vantage train --help")


@pytest.mark.parametrize("command", [
    "train a3c --env Pong", "train rl-a3c-pytorch", "preview CartPole-v1 -o x.png", "play Pong"])
def test_the_last_line_of_help_is_a_command_that_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    last = printed([*command.split(), "--help"], capsys).splitlines()[-1]
    words = last.removeprefix("vantage ").removesuffix(" explains every key.").split()
    assert words == [*command.split()[:2], "--help-all"]
    assert printed(words, capsys)
