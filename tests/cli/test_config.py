"""Numbers, schedules and the config: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import json
import math

import pytest

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.presets import configure, defaults
from vantage.schedules import Schedule, parse_number


@pytest.mark.parametrize(("text", "value"), [("1e6", 1e6), ("10M", 1e7), ("500k", 5e5), ("-2", -2), ("1_000", 1000),
                                             (".5", 0.5), ("2.5e-4", 2.5e-4), ("1B", 1e9)])
def test_numbers_as_people_write_them(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["", "ten", "1e", "10MM", "nan", "inf", "0x10", "1 000"])
def test_what_is_not_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_number(text)


@pytest.mark.parametrize(("text", "at"), [
    ("7e-4", {0: 7e-4, 50: 7e-4, 100: 7e-4}),
    ("linear:1:0", {0: 1.0, 25: 0.75, 100: 0.0, 200: 0.0}),
    ("cosine:2:1", {0: 2.0, 50: 1.5, 100: 1.0, 25: 1 + 0.5 * (1 + math.cos(math.pi / 4))}),
    ("piecewise:0=1,40=0.5,90%=0.1", {0: 1.0, 39: 1.0, 40: 0.5, 89: 0.5, 90: 0.1, 500: 0.1}),
])
def test_schedules(text: str, at: dict[int, float]) -> None:
    schedule = Schedule.parse(text)
    for step, value in at.items():
        assert schedule(step, 100) == pytest.approx(value)


@pytest.mark.parametrize("text", ["lin:1:0", "linear:1", "linear:1:2:3", "cosine:a:b", "piecewise:5=1",
                                  "piecewise:1,2", "piecewise:0=1,90=2,40=3", ""])
def test_what_is_not_a_schedule(text: str) -> None:
    with pytest.raises(ConfigError, match="schedule"):
        Schedule.parse(text)


def test_a_config_survives_json() -> None:
    values = {"lr": "linear:1e-3:0", "steps": "10M", "stop_at_return": "475", "bptt": "false"}
    config = Config().override(values, source="x")
    assert Config.from_json(config.to_json(), source="x") == config
    assert json.loads(config.to_json())["run"]["steps"] == 10_000_000


@pytest.mark.parametrize(("key", "value", "says"), [
    ("lrr", "1", "did you mean lr"), ("steps", "abc", "whole number"), ("steps", "1.5", "whole number"),
    ("steps", "0", "below 1"), ("memory", "lsm", "did you mean lstm"), ("gamma", "2", "above 1"),
    ("gamma", "linear:0.9:1.5", "above 1"), ("bptt", "maybe", "true or false"),
    ("hidden", "64,x", "list of whole numbers"), ("rollout_length", "16,32", "takes one length"),
    ("env_kwargs", "{", "not JSON"), ("env_kwargs", "[1]", "not a JSON object"), ("lr", True, "text"),
    ("lr", "1e38", "above 1e"),
    ("reward_scale", float("nan"), "not finite"), ("num_envs", None, "whole number"),
])
def test_bad_values_are_named(key: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config().override({key: value}, source="--flag")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"lrr": 1}'])
def test_an_unreadable_config_names_its_source(text: str) -> None:
    with pytest.raises(ConfigError, match=r"my\.json"):
        Config.from_json(text, source="my.json")


def test_coefficients_follow_the_schedules_own_span() -> None:
    config = Config().override({"lr": "linear:1:0", "steps": 200, "schedule_steps": 100}, source="x")
    assert config.at("lr", 50) == 0.5
    assert config.at("lr", 150) == 0.0


def test_whole_numbers_keep_all_their_digits() -> None:
    for seed in (2**53 + 1, 2**62 + 1):
        config = Config().change(seed=seed)
        assert Config.from_json(config.to_json(), source="it").run.seed == seed
        assert Config().override({"seed": str(seed)}, source="it").run.seed == seed


@pytest.mark.parametrize(("algo", "options", "says"), [
    ("a2c", {"replay_ratio": 2}, "replay_ratio has no effect with a2c under runtime=sync; acer use it"),
    ("acer", {"gae_lambda": 0.9}, "gae_lambda has no effect with acer under runtime=sync; a2c, a3c, a3g use it"),
    ("a2c", {"lock": True}, "lock has no effect with a2c under runtime=sync; a3c, a3g use it"),
    ("a3c", {"env": "Pong", "stop_at_eval": 18}, "stop_at_eval needs evaluations"),
])
def test_options_without_effect_are_refused(algo: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configure(algo, **({"env": "CartPole-v1"} | options))


def test_a_presets_goal_of_evaluations_needs_no_evaluations() -> None:
    walker = {"algo": "a3c-continuous", "env": "BipedalWalker-v3"}
    assert configure(**walker).run.stop_at_eval == 300
    assert configure(**walker, eval_every=0, eval_every_seconds=5).run.stop_at_eval == 300
    assert configure(**walker, stop_at_eval="none").run.stop_at_eval is None
    assert configure(**walker, eval_every=0, eval_every_seconds=0).run.stop_at_eval is None


def test_a_whole_config_can_be_given_again() -> None:
    for algo in ("a2c", "a3c", "acer"):
        config = configure(algo, env="CartPole-v1", **({"rollout_length": [8, 16]} if algo == "a3c" else {}))
        values = config.flat()
        del values["algo"], values["env"]
        assert configure(algo, env="CartPole-v1", **values) == config


@pytest.mark.parametrize(("algo", "options", "norm"), [
    ("a2c", {}, "layer"), ("a3c", {}, "layer"), ("acer", {}, "none"), ("a2c", {"norm": "batch"}, "batch"),
    ("a2c", {"network": "impala"}, "none"),
])
def test_torsos_on_atari_are_normalised_where_they_can_be(algo: str, options: dict[str, object], norm: str) -> None:
    assert configure(algo, env="Pong", **options).policy.norm == norm


@pytest.mark.parametrize(("algo", "env", "num_envs", "lr", "steps"), [
    ("a2c", "Pong", 16, "linear:5e-4:0", 10_000_000), ("a3c", "Pong", 8, "linear:4e-4:0", 10_000_000),
    ("a3g", "Breakout", 8, "linear:4e-4:0", 10_000_000), ("acer", "Pong", 4, "linear:2e-4:0", 3_000_000),
    ("acer", "LunarLander-v3", 8, "linear:1e-3:0", 300_000), ("a2c", "Pendulum-v1", 16, "linear:3e-3:0", 1_000_000),
])
def test_an_algorithms_own_values_go_over_its_environments(algo: str, env: str, num_envs: int, lr: str,
                                                           steps: int) -> None:
    chosen = defaults(algo, env).values
    assert (chosen["num_envs"], chosen["lr"], chosen["steps"]) == (num_envs, lr, steps)
    assert configure(algo, env=env, num_envs=3, device="cpu").env.num_envs == 3
