"""Numbers, schedules, the config and its defaults: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiny import Bandit
from torch.nn import Identity

from vantage.algorithms.a2c import A2C
from vantage.config import Config
from vantage.envs import make_environments
from vantage.errors import ConfigError
from vantage.presets import configure
from vantage.schedules import Schedule, parse_number


def test_numbers_as_people_write_them() -> None:
    texts = ("1e6", "10M", "500k", "-2", "1_000", ".5", "2.5e-4", "1B")
    assert list(map(parse_number, texts)) == [1e6, 1e7, 5e5, -2, 1000, 0.5, 2.5e-4, 1e9]
    for text in ("", "ten", "1e", "10MM", "nan", "inf", "0x10", "1 000", "\u0661\u0660"):
        with pytest.raises(ValueError, match="not a number"):
            parse_number(text)


@pytest.mark.parametrize(("text", "at"), [
    ("7e-4", {0: 7e-4, 50: 7e-4, 100: 7e-4}),
    ("linear:1:0", {0: 1.0, 25: 0.75, 100: 0.0, 200: 0.0}),
    ("cosine:2:1", {0: 2.0, 50: 1.5, 100: 1.0, 200: 1.0, 25: 1 + 0.5 * (1 + math.cos(math.pi / 4))}),
    ("piecewise:0=1,40=0.5,90%=0.1", {0: 1.0, 39: 1.0, 40: 0.5, 89: 0.5, 90: 0.1, 500: 0.1}),
    ("piecewise:0=1,60%=0.1,40=0.5", {39: 1.0, 40: 0.5, 59: 0.5, 60: 0.1, 100: 0.1}),
])
def test_schedules(text: str, at: dict[int, float]) -> None:
    assert {step: Schedule.parse(text)(step, 100) for step in at} == pytest.approx(at)


@pytest.mark.parametrize("text", [
    "lin:1:0",
    "linear:1",
    "cosine:a:b",
    "piecewise:5=1",
    "piecewise:0=1,90=2,40=3",
    "piecewise:0=1,0=2",
    "piecewise:0=1,5%=2,5%=3",
])
def test_texts_that_are_no_schedule(text: str) -> None:
    with pytest.raises(ConfigError, match="schedule"):
        Schedule.parse(text)


def test_coefficients_follow_the_schedules_own_span() -> None:
    config = Config().change(lr="linear:1:0", steps=200, schedule_steps=100)
    assert (config.at("lr", 50), config.at("lr", 150)) == (0.5, 0.0)


def test_a_config_survives_json_with_all_its_digits() -> None:
    values = {"lr": "linear:1e-3:0", "steps": "10M", "stop_at_return": "475", "bptt": "false", "hidden": [64, 32]}
    config = Config().override({**values, "seed": str(2**62 + 1), "env_kwargs": {"a": 1}}, source="x")
    assert (config.run.steps, config.run.seed, config.policy.hidden) == (10_000_000, 2**62 + 1, "64,32")
    assert Config.from_json(config.to_json(), source="x") == config
    damaged = json.loads(config.to_json())
    del damaged["run"]["seed"]
    with pytest.raises(ConfigError, match=r"it is damaged: it lacks seed"):
        Config.from_json(json.dumps(damaged), source="it")
    for text in ("", "[]", "{", '{"lrr": 1}'):
        with pytest.raises(ConfigError, match=r"^it"):
            Config.from_json(text, source="it")


@pytest.mark.parametrize(("key", "value", "says"), [
    ("lr", True, "text"), ("reward_scale", float("nan"), "not finite"), ("num_envs", None, "whole number"),
    ("env", 5, "env='5' is no Gymnasium id")])
def test_values_of_a_wrong_type_are_named(key: str, value: object, says: str) -> None:
    """bad_inputs.toml has wrong text, as flags."""
    with pytest.raises(ConfigError, match=says):
        configure("a2c", **({"env": "CartPole-v1"} | {key: value}))  # type: ignore[arg-type]


def make_bandits(num_envs: int) -> SyncVectorEnv:
    """A factory of vector environments."""
    return SyncVectorEnv([Bandit] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def test_classes_and_factories_are_saved_by_their_import_path() -> None:
    config = configure(A2C, env=Bandit, network=Identity)
    assert (config.algo, config.env.id) == ("vantage.algorithms.a2c:A2C", "tiny:Bandit")
    assert config.policy.network == "torch.nn.modules.linear:Identity"
    config = configure("a2c", env=make_bandits, num_envs=3, obs_norm=False)
    assert Config.from_json(config.to_json(), source="it").env.id == f"{__name__}:make_bandits"
    envs = make_environments(config.env, seed=0, num_envs=3, stream=0)
    assert envs.reset().obs.shape == (3, 1)  # type: ignore[union-attr]
    envs.close()


def test_what_processes_cannot_import_is_refused_with_its_key_the_reason_and_the_remedy() -> None:
    class Local(Bandit):
        """Not at the top level."""

    notebook = type("Typed", (Bandit,), {"__module__": "__main__"})
    hidden = type("Bandit", (Bandit,), {"__module__": "tiny"})
    for unreachable, name, why in ((Local, r"test_.*\.Local", "inside a function"),
                                   (hidden, "Bandit", "something else"),
                                   (notebook, "Typed", "a notebook or in the script"),
                                   (lambda: Bandit(), "test_.*<lambda>", "a lambda")):
        with pytest.raises(ConfigError, match=f"^env={name} cannot be imported by name.*{why}.* move it to the top"):
            configure("a2c", env=unreachable)
    for key, value in (("network", Identity()), ("env", Bandit()), ("env", partial(make_bandits))):
        with pytest.raises(ConfigError, match=f"^{key}=.* object, .* give the class or function that builds it"):
            configure("a2c", **{"env": "CartPole-v1", key: value})
    with pytest.raises(ConfigError, match=r"^algorithm=.*a lambda"):
        configure(lambda: A2C(), env=Bandit)  # type: ignore[arg-type]


def test_a_presets_goal_of_evaluations_needs_no_evaluations() -> None:
    walker = {"algorithm": "a3c-continuous", "env": "BipedalWalker-v3"}
    assert configure(**walker, eval_every=0, eval_every_seconds=5).run.stop_at_eval == 300
    assert configure(**walker, stop_at_eval="none").run.stop_at_eval is None
    assert configure(**walker, eval_every=0, eval_every_seconds=0).run.stop_at_eval is None


def test_a_whole_config_can_be_given_again() -> None:
    for algo in ("a2c", "a3c", "acer"):
        config = configure(algo, env="CartPole-v1", **({"rollout_length": [8, 16]} if algo == "a3c" else {}))
        values = config.flat()
        del values["algo"], values["env"]
        assert configure(algo, env="CartPole-v1", **values) == config


@pytest.mark.parametrize(("algo", "env", "options", "expected"), [
    ("a2c", "Pong", {}, {"num_envs": 16, "lr": "linear:5e-4:0", "norm": "layer", "frame_stack": 1}),
    ("a2c", "Pong", {"network": "impala"}, {"norm": "none"}),
    ("a2c", "Pong", {"memory": "none"}, {"frame_stack": 4}),
    ("a2c", "Pong", {"image_norm": "none"}, {"image_norm_steps": 0}),
    ("a2c", "Pong", {"steps": 1000}, {"save_every": 100, "eval_every": 0}),
    ("a3c", "Pong", {"norm": "batch"}, {"num_envs": 8, "lr": "linear:4e-4:0", "norm": "batch"}),
    ("a3g", "Breakout", {}, {"device": "auto", "num_envs": 8, "lr": "linear:4e-4:0"}),
    ("acer", "Pong", {}, {"num_envs": 16, "steps": 1_000_000, "norm": "layer", "frame_stack": 2}),
    ("acer", "LunarLander-v3", {"num_envs": 3}, {"num_envs": 3, "lr": "linear:1e-3:0", "steps": 300_000}),
    ("ppo", "Breakout", {}, {"num_envs": 32, "minibatch_size": 128, "memory": "lstm"}),
    ("ppo", "Pong", {}, {"num_envs": 32, "minibatch_size": 512, "memory": "none", "epochs": 1, "past_rollouts": 4,
                         "short_episode_steps": 100}),
    ("ppo", "Pong", {"runtime": "ray"}, {"epochs": 5, "past_rollouts": 0}),
    ("ppo", "Pong", {"runtime": "ray", "epochs": 2}, {"epochs": 2, "past_rollouts": 0}),
    ("ppo", "Pong", {"runtime": "ray", "past_rollouts": 0}, {"epochs": 1, "past_rollouts": 0}),
    ("a2c", "Pendulum-v1", {"eval_every": 7}, {"num_envs": 16, "lr": "linear:3e-3:0", "eval_every": 7}),
])
def test_defaults_are_the_familys_then_the_environments_then_the_algorithms_own(
        algo: str, env: str, options: dict[str, object], expected: dict[str, object]) -> None:
    values = configure(algo, env=env, **options).flat()
    assert {key: values[key] for key in expected} == expected


def test_a_game_has_the_same_defaults_by_each_of_its_classic_names() -> None:
    short, long = (configure("ppo", env=env).flat() for env in ("Pong", "PongNoFrameskip-v4"))
    assert short | {"env": long["env"]} == long and short["steps"] == 800_000
    assert configure("ppo", env="Pong", atari_protocol="machado").run.steps > 800_000, "measured on classic Pong"


def test_an_algorithm_is_named_once() -> None:
    with pytest.raises(ConfigError, match="algo=ppo beside a2c; name the algorithm once, as the first argument"):
        configure("a2c", env="CartPole-v1", algo="ppo")
