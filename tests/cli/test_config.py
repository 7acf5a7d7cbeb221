"""Numbers, schedules, the config and its defaults: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import json
import math
import os
import pickle
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiny import Bandit
from torch.nn import Identity

from vantage.algorithms.a2c import A2C
from vantage.algorithms.ppo import PPO
from vantage.config.config import Config
from vantage.config.configure import configure
from vantage.envs.make import make_environments
from vantage.errors import ConfigError
from vantage.keys.objects import ObjectName
from vantage.keys.schedules import Schedule, coefficient, parse_number
from vantage.keys.typed_values import plain
from vantage.models.config import PolicyConfig


def test_numbers_as_people_write_them() -> None:
    texts = ("1e6", "10M", "500k", "-2", "1_000", ".5", "2.5e-4", "1B")
    assert list(map(parse_number, texts)) == [1e6, 1e7, 5e5, -2, 1000, 0.5, 2.5e-4, 1e9]
    for text in ("", "ten", "1e", "10MM", "nan", "inf", "0x10", "1 000", "\u0661\u0660"):
        with pytest.raises(ValueError, match="not a number"):
            parse_number(text)


@pytest.mark.parametrize(("text", "at"), [
    ("linear:1:0", {0: 1.0, 25: 0.75, 100: 0.0, 200: 0.0}),
    ("cosine:2:1", {0: 2.0, 50: 1.5, 100: 1.0, 200: 1.0, 25: 1 + 0.5 * (1 + math.cos(math.pi / 4))}),
    ("piecewise:0=1,40=0.5,90%=0.1", {0: 1.0, 39: 1.0, 40: 0.5, 89: 0.5, 90: 0.1, 500: 0.1}),
    ("curve:0,1,0.5", {0: 0.0, 25: 0.5, 50: 1.0, 75: 0.75, 100: 0.5, 200: 0.5}),
    ("piecewise:0=1,60%=0.1,40=0.5", {39: 1.0, 40: 0.5, 59: 0.5, 60: 0.1, 100: 0.1}),
])
def test_schedules(text: str, at: dict[int, float]) -> None:
    assert {step: Schedule.parse(text)(step, 100) for step in at} == pytest.approx(at)


@pytest.mark.parametrize("text", ["linear:2:1", "cosine:1:0.5", "curve:1,2,4", "piecewise:0=1,10=3,50%=2"])
def test_a_schedule_times_a_number_has_each_value_times_that_number(text: str) -> None:
    doubled = 2 * Schedule.parse(text)
    assert doubled == Schedule.parse(text) * 2 == Schedule.parse(doubled.text)
    assert [doubled(step, 100) for step in (0, 30, 80)] == pytest.approx(
        [2 * Schedule.parse(text)(step, 100) for step in (0, 30, 80)])


@pytest.mark.parametrize("text", [
    "lin:1:0",
    "linear:1",
    "cosine:a:b",
    "curve:1",
    "curve:1,x",
    "piecewise:5=1",
    "piecewise:0=1,90=2,40=3",
    "piecewise:0=1,0=2",
    "piecewise:0=1,5%=2,5%=3",
])
def test_texts_that_are_no_schedule(text: str) -> None:
    with pytest.raises(ConfigError, match="schedule"):
        Schedule.parse(text)


def test_a_function_of_the_progress_is_a_curve_that_a_file_holds() -> None:
    config = configure("ppo", env="CartPole-v1", lr=lambda progress: 3e-4 * (1 - progress),
                       entropy_coef=lambda progress: 0.1 if progress < 0.3 else 0.01, steps=1000)
    assert [config.at("lr", step) for step in (0, 125, 1000, 2000)] == pytest.approx([3e-4, 2.625e-4, 0, 0])
    assert [config.at("entropy_coef", step) for step in (290, 300)] == pytest.approx([0.1, 0.01])
    saved = Config.from_json(config.to_json(), source="it")
    assert saved == config
    assert all(saved.at("lr", step) == config.at("lr", step) for step in range(1001)), "bit for bit"


@pytest.mark.parametrize(("value", "says"), [
    (lambda: 1.0, "lr=<lambda> raised TypeError at progress 0: .*; give a function such as lambda progress"),
    (lambda progress: progress < 0.5, "lr=<lambda> returned True at progress 0; return a finite number"),
    (lambda progress: math.log(1 - progress), "lr=<lambda> raised ValueError at progress 1"),
    (lambda progress: math.nan if progress > 0.5 else 1.0, "lr=<lambda> returned nan at progress 0.51"),
    (lambda progress: 0.5 - progress, "lr=curve from 0.5 to -0.5 is below 0, the smallest"),
    (lambda progress: "1e-3", "lr=<lambda> returned '1e-3' at progress 0"),
    (10**400, "lr=a number of about 400 digits is too large"), ([1e-3], r"lr=\[0.001\] is not a number")])
def test_what_is_no_coefficient_is_refused_in_one_line(value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}") as error:
        configure("ppo", env="CartPole-v1", lr=value)
    assert "\n" not in str(error.value)


def test_schedules_are_equal_by_value_and_print_as_they_were_written() -> None:
    schedule = coefficient("linear:1e-3:0")
    assert schedule == coefficient(" linear:0.001:0.0") and schedule != coefficient("cosine:1e-3:0")
    assert (str(schedule), repr(schedule)) == ("linear:1e-3:0", "Schedule.parse('linear:1e-3:0')")
    assert len({schedule, coefficient("linear:0.001:0")}) == 1


def test_numbers_of_a_config_are_numbers_also_in_json() -> None:
    config = configure("ppo", env="CartPole-v1", hidden=[8, "16"], clip="0.1")
    assert config.algorithm.gamma * 2 == 1.98  # type: ignore[operator]
    saved = json.loads(config.to_json())
    assert (saved["algorithm"]["gamma"], saved["algorithm"]["clip"]) == (0.99, 0.1)
    assert (saved["optimizer"]["lr"], saved["policy"]["hidden"]) == ("linear:1e-3:0", [8, 16])
    assert (config.runtime.rollout_length, saved["runtime"]["rollout_length"]) == (128, 128)


def test_a_config_of_texts_from_an_earlier_version_is_read() -> None:
    config = configure("a3c", env="CartPole-v1", rollout_length=[8, 16], hidden=(32,))
    texts = json.loads(config.to_json())
    assert (texts["runtime"]["rollout_length"], texts["policy"]["hidden"]) == ([8, 16], [32])
    texts["algorithm"] |= {"gamma": "0.99", "gae_lambda": "0.95", "entropy_coef": "0.0", "value_coef": "0.5"}
    texts["optimizer"]["max_grad_norm"] = "0.5"
    texts["policy"]["hidden"] = "32"
    texts["runtime"]["rollout_length"] = "8,16"
    assert Config.from_json(json.dumps(texts), source="it") == config


@pytest.mark.parametrize(("given", "taken"), [(8, (8,)), ("8,16", (8, 16)), ((8, 16.0), (8, 16)), ([], ()), ("", ())])
def test_a_list_is_a_tuple_however_it_is_given(given: Any, taken: tuple[int, ...]) -> None:
    assert configure("ppo", env="CartPole-v1", hidden=given).policy.hidden == taken == PolicyConfig(hidden=given).hidden


def test_lengths_of_workers_are_one_number_or_several() -> None:
    lengths = [configure("a3c", env="CartPole-v1", rollout_length=given).runtime.rollout_length
               for given in (8, "8", [8], "8,16")]
    assert lengths == [8, 8, 8, (8, 16)]
    with pytest.raises(ConfigError, match=r"^rollout_length=\[8, 16\] is not a whole number"):
        configure("a2c", env="CartPole-v1", rollout_length=[8, 16])


def test_an_algorithm_of_its_own_arguments_is_converted_and_checked() -> None:
    assert PPO(gamma="0.9", clip=lambda progress: 0.2).gamma == 0.9  # type: ignore[arg-type]
    for values in ({"gamma": 1.5}, {"gamma": "linear:0.9:1.5"}, {"epochs": 2.5}, {"clip": True}):
        with pytest.raises(ConfigError, match=f"^{min(values)}="):
            PPO(**values)


def test_coefficients_follow_the_schedules_own_span() -> None:
    config = Config().change(lr="linear:1:0", steps=200, schedule_steps=100)
    assert (config.at("lr", 50), config.at("lr", 150)) == (0.5, 0.0)


def test_a_config_survives_json_with_all_its_digits() -> None:
    values = {"lr": "linear:1e-3:0", "steps": "10M", "stop_at_return": "475", "bptt": "false", "hidden": [64, 32]}
    config = Config().override({**values, "seed": str(2**62 + 1), "env_kwargs": {"a": 1}}, source="x")
    assert (config.run.steps, config.run.seed, config.policy.hidden) == (10_000_000, 2**62 + 1, (64, 32))
    assert Config.from_json(config.to_json(), source="x") == config
    damaged = json.loads(config.to_json())
    del damaged["run"]["seed"]
    with pytest.raises(ConfigError, match=r"it is damaged: it lacks seed"):
        Config.from_json(json.dumps(damaged), source="it")
    for text in ("", "[]", "{", '{"lrr": 1}'):
        with pytest.raises(ConfigError, match=r"^it"):
            Config.from_json(text, source="it")


@pytest.mark.parametrize(("key", "value", "says"), [
    ("lr", True, "lr=True is not a number, a schedule .*, or a function"),
    ("lr", float("nan"), "lr=nan is not finite"), ("lr", None, "lr=None is not a number"),
    ("reward_scale", float("nan"), "not finite"), ("num_envs", None, "whole number"),
    ("env", 5, "env='5' is not a Gymnasium id")])
def test_values_of_a_wrong_type_are_named(key: str, value: object, says: str) -> None:
    """bad_inputs.toml has wrong text, as flags."""
    with pytest.raises(ConfigError, match=says):
        configure("a2c", **({"env": "CartPole-v1"} | {key: value}))  # type: ignore[arg-type]


def make_bandits(num_envs: int) -> SyncVectorEnv:
    """A factory of vector environments."""
    return SyncVectorEnv([Bandit] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def test_classes_and_factories_are_saved_by_their_import_path() -> None:
    config = configure(A2C, env=Bandit, network=Identity)
    assert (config.algo, config.env.id) == ("a2c", "tiny:Bandit")
    assert config.policy.network == "torch.nn.modules.linear:Identity"
    config = configure("a2c", env=make_bandits, num_envs=3, obs_norm=False)
    assert Config.from_json(config.to_json(), source="it").env.id == f"{__name__}:make_bandits"
    envs = make_environments(config.env, seed=0, num_envs=3, stream=0)
    assert envs.reset().obs.shape == (3, 1)  # type: ignore[union-attr]
    envs.close()


def test_objects_without_an_import_path_are_named_in_brackets_and_kept() -> None:
    class Local(Bandit):
        """Not at the top level."""

    class MyPPO(PPO):
        """With PPO's defaults."""

    size = 3
    hidden = type("Bandit", (Bandit,), {"__module__": "tiny"})
    for env, name in ((Local, "<Local>"), (hidden, "<Bandit>"), (lambda: Bandit(), "<lambda of Bandit>"),
                      (Bandit(), "<Bandit>"), (partial(Local), "<Local>"),
                      (lambda: Local() if size else None, "<lambda of Local>")):
        config = configure(MyPPO, env=env, network=Identity())
        assert (config.algo, config.env.id, config.policy.network) == ("<MyPPO>", name, "<Identity>")
        again = pickle.loads(pickle.dumps(config)) if env is not hidden else config
        for each in (config, config.change(seed=1), again):
            assert isinstance(each.env.id, ObjectName)
            assert type(each.algorithm).__name__ == "MyPPO"
        assert json.loads(config.to_json())["env"]["id"] == name
        assert config.env.id.target is env  # type: ignore[attr-defined]
    assert configure(MyPPO, env=Local).optimizer == configure("ppo", env=Local).optimizer


def test_an_instance_of_an_algorithm_sets_the_fields_that_it_was_given() -> None:
    measured = configure("ppo", env="CartPole-v1")
    config = configure(PPO(minibatch_size=32, epochs=PPO.epochs), env="CartPole-v1")
    assert config.algorithm == replace(measured.algorithm, minibatch_size=32, epochs=3)  # type: ignore[type-var]
    assert measured.algorithm.epochs != PPO.epochs  # type: ignore[union-attr]
    assert config == configure(PPO, env="CartPole-v1", minibatch_size=32, epochs=3)
    with pytest.raises(ConfigError, match="epochs is given twice"):
        configure(PPO(epochs=5), env="CartPole-v1", epochs=6)


def test_one_built_environment_cannot_serve_as_several() -> None:
    built = Bandit()
    assert configure("ppo", env=built).env.num_envs == 1
    for options, says in (({"num_envs": 4}, "num_envs=4 asks for others.*lambda"), ({"vector": "async"}, "its own"),
                          ({"algorithm": "a3c"}, "its own")):
        with pytest.raises(ConfigError, match=f"^env=<Bandit> .*{says}"):
            configure(**{"algorithm": "ppo", "env": built} | options)
    built.lock = threading.Lock()  # type: ignore[attr-defined]
    assert not configure("ppo", env=built).run.evaluates
    with pytest.raises(ConfigError, match=r"cannot be copied for evaluations.*eval_every=0"):
        configure("ppo", env=built, eval_every=100)


def test_what_cannot_be_sent_to_a_process_is_named() -> None:
    lock, file = threading.Lock(), open(os.devnull, "w")  # noqa: SIM115

    class Logging(Bandit):
        def play(self, action: Any) -> tuple[Any, bool]:
            file.write("x")
            return super().play(action)

    with file:
        for env, variable, kind in ((lambda: Bandit() if lock else None, "lock", "lock"),
                                    (Logging, "file", "TextIOWrapper"),
                                    (partial(Logging, writer=file), "func.file|writer", "TextIOWrapper")):
            with pytest.raises(ConfigError, match=f"^<.*> cannot be sent .* variable .*({variable}) is of type {kind}"):
                pickle.dumps(configure("ppo", env=env))


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
    ("a3c", "Pong", {"norm": "batch"}, {"num_envs": 0, "envs_per_worker": 8, "lr": "linear:4e-4:0", "norm": "batch"}),
    ("a3g", "Breakout", {}, {"device": "auto", "envs_per_worker": 8, "lr": "linear:4e-4:0"}),
    ("acer", "Pong", {}, {"num_envs": 16, "steps": 1_000_000, "norm": "layer", "frame_stack": 2}),
    ("acer", "LunarLander-v3", {"num_envs": 3}, {"num_envs": 3, "lr": "linear:5e-4:0", "steps": 600_000}),
    ("ppo", "Breakout", {}, {"num_envs": 32, "minibatch_size": 128, "memory": "lstm"}),
    ("ppo", "Pong", {"runtime": "ray"}, {"epochs": 2, "num_envs": 0, "envs_per_worker": 32}),
    ("ppo", "Pong", {"runtime": "ray", "epochs": 3}, {"epochs": 3}),
    ("a2c", "Pendulum-v1", {"eval_every": 7}, {"num_envs": 16, "lr": "linear:3e-3:0", "eval_every": 7}),
])
def test_defaults_are_the_familys_then_the_environments_then_the_algorithms_own(
        algo: str, env: str, options: dict[str, object], expected: dict[str, object]) -> None:
    values = configure(algo, env=env, **options).flat()
    assert {key: plain(values[key]) for key in expected} == expected


def test_a_game_has_the_same_defaults_by_each_of_its_classic_names() -> None:
    short, long = (configure("acer", env=env).flat() for env in ("Pong", "PongNoFrameskip-v4"))
    assert short | {"env": long["env"]} == long and short["steps"] == 1_000_000
    assert configure("acer", env="Pong", atari_protocol="machado").run.steps > 1_000_000, "measured on classic Pong"


def test_an_algorithm_is_named_once() -> None:
    with pytest.raises(ConfigError, match="algo=ppo beside a2c; name the algorithm once, as the first argument"):
        configure("a2c", env="CartPole-v1", algo="ppo")
    config = configure("a2c", env="CartPole-v1", steps=1_000)
    assert configure("a2c", **config.flat()) == config
