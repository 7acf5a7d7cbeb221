"""Environments whose reset or step returns something outside Gymnasium's interface: one line says what and where."""

from __future__ import annotations

import json
import re
import signal

import malformed
import numpy as np
import pytest

from vantage.envs.config import EnvConfig
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, EnvError

PLACE = r"^environment 0 of malformed:Malformed \(seed \d+, episode 0, step {}\): "
RESET = r"; return \(observation, info\), with {} as info if there is none$"
STEP = r"; return \(observation, reward, terminated, truncated, info\)$"


def make(env: str, num_envs: int = 1, options: dict[str, object] | None = None, **keys: object) -> Environments:
    config = EnvConfig(id=f"malformed:{env}", env_kwargs=json.dumps(options or {}), **keys)  # type: ignore[arg-type]
    return make_environments(config, seed=0, num_envs=num_envs, stream=0)


def play(envs: Environments) -> tuple[list[float], list[bool]]:
    """The rewards and flags of the third step, the first that is malformed."""
    envs.reset()
    try:
        steps = [envs.step(np.zeros(envs.num_envs, np.int64)) for _ in range(3)]
    finally:
        envs.close()
    return steps[-1].rewards.tolist(), steps[-1].terminated.tolist()


def message(*, vector: str = "sync", **options: object) -> str:
    """The error of a malformed environment, on one line and without a traceback."""
    with pytest.raises(EnvError) as caught:
        play(make("Malformed", options=options, vector=vector))
    assert caught.value.__cause__ is None and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("reset", "says"), [
    ("array", r"an array of float32 of shape \(2,\): \[0.0, 0.0\], which looks like the observation alone, as in the "
              "old gym library"),
    ("dict", r"a dict with the keys 'x', 'y', which looks like the observation alone"),
    ("None", "None"),
    ("generator", "a generator .*`yield`"),
    ("three", r"a tuple of 3 \(ndarray, dict, dict\)"),
    ("parts", r"a tuple of 2 \(ndarray, ndarray\), which looks like the observation alone"),
    ("three parts", r"a tuple of 3 \(ndarray, ndarray, ndarray\), which looks like the observation alone"),
])
def test_an_old_or_malformed_reset_is_named_with_what_it_returned(reset: str, says: str) -> None:
    assert re.search(PLACE.format(0) + r"reset\(\) returned " + says + ".*" + RESET, text := message(reset=reset)), text


@pytest.mark.parametrize(("step", "says"), [
    ("four", r"a tuple of 4 \(ndarray, float, bool, dict\), \(observation, reward, done, info\) as in the old gym "
             r"library: split done in two .*"),
    ("no info", r"a tuple of 4 \(ndarray, float, bool, bool\), which lacks info: add {} as the last"),
    ("numpy flags", r"a tuple of 4 .*, which lacks info: add {} as the last"),
    ("three", r"a tuple of 3 \(ndarray, float, bool\), which lacks truncated and info: add False and {}"),
    ("info first", "info before truncated"),
    ("None", "None"), ("six", r"a tuple of 6 .*"), ("array", r"an array of float64 of shape \(5,\)"),
    ("dict", "a dict with the keys 'a', 'b', 'c', 'd', ..."), ("generator", "a generator .*")])
@pytest.mark.parametrize("keys", [{}, {"max_episode_steps": 9}])
def test_an_old_or_malformed_step_is_named_also_below_a_time_limit(step: str, says: str, keys: dict[str, int]) -> None:
    with pytest.raises(EnvError, match=PLACE.format(3) + r"step\(\) returned " + says + STEP):
        play(make("Malformed", options={"step": step}, **keys))


def test_an_old_step_is_named_below_a_frame_skip_and_below_wrappers_of_gymnasium() -> None:
    with pytest.raises(EnvError, match=PLACE.format(2) + r"step\(\) returned a tuple of 4 .*as in the old gym library"):
        play(make("Malformed", options={"step": "four"}, frame_skip="2"))
    old = r"step 3\): step\(\) did not return five values .*as in the old gym library.*"
    with pytest.raises(EnvError, match=old + STEP):
        play(make("limited", options={"step": "four"}))


def test_an_old_reset_is_named_in_a_process_of_its_own_and_an_old_step_too() -> None:
    assert "reset() returned an array of float32" in message(reset="array", vector="async")
    assert "step() returned a tuple of 4" in message(step="four", vector="async")


@pytest.mark.parametrize(("error", "says"), [
    ("StopIteration", "StopIteration: 3"), ("GeneratorExit", "GeneratorExit"), ("SystemExit", "SystemExit: 0"),
    ("Stop", "Stop: enough"), ("untold", "Untold")])
def test_an_environment_that_raises_what_ends_loops_and_programs_is_named(error: str, says: str) -> None:
    with pytest.raises(EnvError, match=PLACE.format(3) + says + "$"):
        play(make("Malformed", options={"step": error}))


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_an_environment_that_raises_keyboardinterrupt_itself_has_failed(vector: str) -> None:
    """As in the command, where no handler of a signal raises it during training."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(EnvError, match=PLACE.format(3) + "KeyboardInterrupt"):
            play(make("Malformed", options={"step": "KeyboardInterrupt"}, vector=vector))
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_keyboardinterrupt_by_a_signal_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        play(make("Malformed", options={"step": "KeyboardInterrupt"}))


@pytest.mark.parametrize(("reward", "value"), [
    ("zero axes", 0.5),
    ("tensor", 0.5),
    ("Decimal", 0.5),
    ("object", 0.5),
])
def test_a_reward_of_one_number_is_taken_in_any_type(reward: str, value: float) -> None:
    assert play(make("Malformed", options={"reward": reward})) == ([value], [False])


@pytest.mark.parametrize(("reward", "says"), [
    ("three", r"an array of float64 of shape \(3,\): \[0.0, 0.0, 0.0\]"),
    ("None", "None"),
    ("dict", "a dict with the keys 'a'"),
    ("complex", r"\(1\+2j\)"),
    ("tensors", r"a Tensor of torch.float32 of shape \(3,\)"
     r": \[0.0, 0.0, 0.0\]"),
    ("huge", r"10{50,60}\.\.\."),
    ("list", r"a list of 1 .*"),
])
def test_another_reward_is_named_with_its_value(reward: str, says: str) -> None:
    expected = f"{PLACE.format(3)}the reward is {says}; return a single finite number as reward$"
    assert re.search(expected, text := message(reward=reward)), text


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_are_taken_as_numbers_0_and_1_and_arrays_of_one(name: str) -> None:
    for flag in ("numpy", "array", "one"):
        envs = make("Malformed", options={name: flag})
        assert play(envs)[1] == [name == "terminated"]


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize(("flag", "says"), [
    ("None", "None"),
    ("two", "2"),
    ("nan", "nan"),
    ("flags", r"an array of bool of shape \(2,\): \[True, False\]"),
])
def test_another_flag_is_named_with_its_value(name: str, flag: str, says: str) -> None:
    text = message(**{name: flag})
    assert re.search(f"{PLACE.format(3)}{name} is {says}; return True or False as {name}$", text), text


@pytest.mark.parametrize(("info", "says"), [("None", "None"), ("list", r"a list of 1 \(int\)"), ("text", "'info'")])
def test_info_that_is_no_dict_is_named(info: str, says: str) -> None:
    expected = f"{PLACE.format(3)}info is {says}; return a dict, {{}} if there is nothing to report$"
    assert re.search(expected, text := message(info=info)), text


def test_info_none_is_named_at_the_reset_and_other_mappings_are_taken() -> None:
    says = "step 0): reset() returned (observation, info) where info is None; return a dict"
    assert says in message(reset="info None")
    for info in ("mapping", "huge"):
        assert play(make("Malformed", options={"info": info})) == ([0.0], [False])


@pytest.mark.parametrize(("obs", "says"), [
    ("None", "returned None"),
    ("dates", r"returned an array of datetime64\[Y\]"),
    ("objects", r"returned an array of object .*\[None, 1\]"),
    ("ragged", r"the elements differ in shape; the environment returned a list of 2 \(list, list\)"),
    ("shape", r"float64 of shape \(3,\); it must be shape \(2,\)"),
])
def test_an_observation_that_fits_no_space_is_named_with_what_it_is(obs: str, says: str) -> None:
    text = message(obs=obs)
    assert re.search(PLACE.format(3) + f".*{says}.*; correct the observation or observation_space$", text), text


VECTOR = r"^malformed:MalformedVector \(seed 0, step {}\): "


def test_a_vector_environments_rewards_are_taken_from_lists_and_columns_and_its_flags_from_numbers() -> None:
    for fault in ("list", "column", "fractions"):
        assert play(make("MalformedVector", 2, {"fault": fault}))[0] == [0.5, 1.0]
    assert play(make("MalformedVector", 2, {"fault": "ints"}))[1] == [False, False]


@pytest.mark.parametrize(("fault", "says"), [
    ("four", r"step\(\) returned a tuple of 4 .*as in the old gym library"),
    ("None", "rewards is None"),
    ("with None", r"rewards\[1\] is None"),
    ("complex", r"rewards\[0\] is 0j"),
    ("huge", r"rewards\[0\] is 1000+.*; return an array of numbers"),
    ("short", r"rewards is an array of float64 of shape \(1,\): \[0.0\]; .*\(2,\)"),
    ("flags", r"terminated\[1\] is 2; return True or False"),
    ("info", r"info is a list of 2 \(dict, dict\); return one dict"),
    ("obs", r"the observation is float64 of shape \(2, 3\); it must be shape \(2, 2\)"),
])
def test_a_vector_environments_malformed_step_is_named(fault: str, says: str) -> None:
    with pytest.raises(EnvError, match=VECTOR.format(2) + says):
        play(make("MalformedVector", 2, {"fault": fault}))


def test_a_reset_without_a_seed_is_refused_with_the_signature_to_write() -> None:
    with pytest.raises(ConfigError, match=r"reset takes no seed; declare it as reset\(self, \*, seed=None, "):
        make("WithoutSeed")


def test_a_vector_environments_old_reset_is_named() -> None:
    with pytest.raises(EnvError, match=VECTOR.format(0) + r"reset\(\) returned an array .* the observation alone"):
        make("MalformedVector", 2, {"fault": "old reset"})


@pytest.mark.parametrize("mask", [[1.0, np.nan], [0.0, -np.inf], [2, 1]])
def test_an_action_mask_of_other_numbers_than_0_and_1_is_named(mask: list[float]) -> None:
    malformed.MASK[:] = mask
    with pytest.raises(EnvError, match=r"action_mask is an array .*; make it 1 or True for allowed actions"):
        make("BadMask").reset()
