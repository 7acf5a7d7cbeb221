"""What reset and step of environments return: checked, taken where it is harmless, and otherwise refused in words.

Observations are converted in `spaces`; here only the errors of that are put into words.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vantage.envs.descriptions import cut, shown
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

RESET = "return (observation, info), with {} as info if there is none"
STEP = "return (observation, reward, terminated, truncated, info)"
_OLD = "as in the old gym library"
_SPLIT = "terminated is True where the task ended, truncated where only a time limit cut it"
_INFO = "a dict, {} if there is nothing to report"

MASK = "action_mask"
LAST_INFO = "last_info"
"""Key of a step's `info`: the items of `small_parts` for each environment whose episode has ended."""
SMALL_ARRAY = 64
"""Elements of the largest array that an episode keeps of its last `info`."""
SMALL_TEXT = 1_000
"""Characters of the longest text that it keeps."""

Info = dict[str, Any]
Result = tuple[Any, float, bool, bool, Info]


class OutcomeError(Exception):
    """An environment returned something outside Gymnasium's interface; the text says what, and what to return."""


def check_reset(result: Any) -> tuple[Any, Info]:
    """(observation, info) of a reset. OutcomeError for anything else, such as the observation alone."""
    if result.__class__ is tuple and len(result) == 2 and result[1].__class__ is dict:
        return result
    if isinstance(result, tuple | list) and len(result) == 2:
        obs, info = result
        if isinstance(info, Mapping):
            return obs, dict(info)
        if not isinstance(info, int | float | np.generic | np.ndarray):
            raise OutcomeError(f"reset() returned (observation, info) where info is {shown(info)}; return {_INFO}")
    raise OutcomeError(f"reset() returned {shown(result)}{_old_reset(result)}; {RESET}")


def check_step(result: Any) -> Result:
    """The five results of a step, the reward as a float, the flags as bools. OutcomeError if one is something else."""
    if result.__class__ is tuple and len(result) == 5:
        obs, reward, terminated, truncated, info = result
        if (reward.__class__ is float and terminated.__class__ is bool and truncated.__class__ is bool
                and info.__class__ is dict):
            return result  # as most do
    obs, reward, terminated, truncated, info = five(result)
    return (obs, number(reward), flag("terminated", terminated), flag("truncated", truncated), check_info(info))


def five(result: Any) -> Any:
    """`result` of a step, if it is a tuple of five."""
    if isinstance(result, tuple | list) and len(result) == 5:
        return result
    raise OutcomeError(f"step() returned {shown(result)}{_old_step(result)}; {STEP}")


def number(reward: Any) -> float:
    """A reward. Arrays and tensors of one number are taken, texts, complex numbers and longer arrays are not."""
    try:
        if isinstance(reward, np.ndarray | np.generic):
            single = reward.item()  # ValueError for several
            if reward.dtype.kind in "fiub" or (reward.dtype.kind == "O" and _is_number(single)):
                return float(single)
        elif _is_number(reward):
            return float(reward)
    except Exception:  # such as a tensor of several numbers, or a whole number of hundreds of digits
        pass
    raise OutcomeError(f"the reward is {shown(reward)}; return a single finite number as reward")


def flag(name: str, value: Any) -> bool:
    """`terminated` or `truncated`. 0, 1 and arrays of one flag are taken; None and texts are not."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    try:
        single = value.item() if getattr(value, "shape", None) is not None else value
        if isinstance(single, bool | int | float) and single in (0, 1):
            return bool(single)
    except Exception:
        pass
    raise OutcomeError(f"{name} is {shown(value)}; return True or False as {name}")


def check_info(info: Any) -> Info:
    """`info`, if it is a dict."""
    if isinstance(info, Mapping):
        return info if isinstance(info, dict) else dict(info)
    raise OutcomeError(f"info is {shown(info)}; return {_INFO}")


def small_parts(info: Mapping[Any, Any], *, nested: bool = True) -> Info:
    """Copies of the numbers, short texts and short arrays in `info`, and in the dicts within it."""
    parts: Info = {}
    for name, value in info.items():
        if not isinstance(name, str) or name == MASK:
            continue
        if value is None or isinstance(value, bool | int | float):
            parts[name] = value
        elif isinstance(value, str):
            if len(value) <= SMALL_TEXT:
                parts[name] = value
        elif isinstance(value, np.generic):
            parts[name] = value.item()
        elif isinstance(value, np.ndarray):
            if value.size <= SMALL_ARRAY and value.dtype.kind in "biuf":
                parts[name] = value.copy()
        elif nested and isinstance(value, Mapping):
            parts[name] = small_parts(value, nested=False)
    return parts


def info_of(info: Mapping[str, Any], env: int, num_envs: int) -> Info:
    """The part of one environment in the `info` of a vector environment, whose values are arrays over all."""
    parts: Info = {}
    for name, value in info.items():
        reported = info.get(f"_{name}")
        if name.startswith("_") or (reported is not None and not reported[env]):
            continue
        if isinstance(value, Mapping):
            parts[name] = info_of(value, env, num_envs)
        elif isinstance(value, np.ndarray | list | tuple):
            if len(value) == num_envs:
                parts[name] = value[env]
        else:
            parts[name] = value
    return parts


def observed(observe: Callable[[Any], Any], value: Any) -> Any:
    """`observe(value)`, with what the environment returned in the error if it does not fit its space."""
    try:
        return observe(value)
    except OutcomeError:
        raise
    except Exception as error:
        text = re.sub(r"setting an array element with a sequence\.?.*", "the elements differ in shape", str(error))
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
        returned = "" if is_array else f"; the environment returned {shown(value)}"
        raise OutcomeError(f"{cut(text, 400)}{returned}; correct the observation or observation_space") from None


def check_mask(mask: NDArray[Any]) -> None:
    """OutcomeError unless each number of an action mask is 0 or 1, or True or False."""
    if mask.dtype.kind != "b" and not (mask.dtype.kind in "iuf" and ((mask == 0) | (mask == 1)).all()):
        raise OutcomeError(f"action_mask is {shown(mask)}; make it 1 or True for allowed actions, 0 or False for "
                           "others")


def check_vector_step(result: Any, shape: tuple[int, ...]
                      ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
    """The results of a vector environment's step: rewards and flags as new arrays of `shape`, (B,)."""
    obs, rewards, terminated, truncated, info = five(result)
    return (obs, _column("rewards", rewards, shape).astype(np.float64), _flags("terminated", terminated, shape),
            _flags("truncated", truncated, shape), _vector_info(info))


def unpacking(error: BaseException) -> str:
    """What an environment returned that a wrapper of Gymnasium could not unpack, in words; "" for other errors."""
    *_, (frame, _) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    name = "" if frame is None else frame.f_code.co_name
    if name not in ("reset", "step") or not str(frame and frame.f_globals.get("__name__")).startswith("gymnasium."):
        return ""
    text = str(error)
    if match := re.search(r"cannot unpack non-iterable (\w+) object", text):
        returned, number_of_values = match[1].removesuffix("Type"), 0
    elif match := re.search(r"values to unpack \(expected (\d)(?:, got (\d))?\)", text):
        returned = f"{match[2]} values" if match[2] else f"more than {match[1]} values"
        number_of_values = int(match[2] or 0)
    else:
        return ""
    old = _old_step((None,) * number_of_values) if name == "step" else ""
    return f"{name}() returned {returned}{old}; {STEP if name == 'step' else RESET}"


class Checked(gym.Wrapper[Any, Any, Any, Any]):
    """Results in Gymnasium's form, for wrappers around it that would unpack or add up something else."""

    def reset(self, **options: Any) -> tuple[Any, Any]:
        return check_reset(self.env.reset(**options))

    def step(self, action: Any) -> Any:
        return check_step(self.env.step(action))


def _is_number(value: Any) -> bool:
    """A real number or what converts to one, such as a Fraction or a tensor; no text and no complex number."""
    return hasattr(type(value), "__float__") and not isinstance(value, complex | np.complexfloating)


def _old_reset(result: Any) -> str:
    """A remark where `result` is likely an observation without info."""
    if result is None or isinstance(result, str | bytes) or hasattr(type(result), "__next__") or (
            isinstance(result, tuple) and len(result) == 3):
        return ""
    return f", which looks like the observation alone, {_OLD}"


def _old_step(result: Any) -> str:
    """A remark where `result` looks like (observation, reward, done, info)."""
    if isinstance(result, tuple | list) and len(result) == 4 and type(result) in (tuple, list):
        return f", (observation, reward, done, info) {_OLD}: split done in two ({_SPLIT})"
    return ""


def _column(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Numbers of `shape`, also from a list and from [B, 1]."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise OutcomeError(f"{name} cannot be read as an array of shape {shape}: {cut(str(error), 200)}") from None
    if array.shape == (*shape, 1):
        array = array[:, 0]
    if array.shape != shape:
        raise OutcomeError(f"{name} is {shown(value)}; each must have the shape {shape}, one number for "
                           "each environment")
    if array.dtype.kind in "fiub":
        return array
    numbers = []
    for i, one in enumerate(array.tolist()):
        try:
            numbers.append(number(one))
        except OutcomeError:
            raise OutcomeError(f"{name}[{i}] is {shown(one)}; return an array of numbers of shape "
                               f"{shape}") from None
    return np.array(numbers)


def _flags(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    array = _column(name, value, shape)
    if array.dtype.kind != "b" and not (wrong := (array == 0) | (array == 1)).all():
        i = int(np.argmin(wrong))
        raise OutcomeError(f"{name}[{i}] is {shown(array[i].item())}; return True or False for each environment")
    return array.astype(bool)


def _vector_info(info: Any) -> Info:
    if isinstance(info, list | tuple):
        raise OutcomeError(f"info is {shown(info)}; return one dict for all environments, whose values are arrays, as "
                           "Gymnasium's vector environments do")
    return check_info(info)


def check_same_spaces(first: EnvSpec, obs: ArraySpec | Mapping[str, ArraySpec], action: ActionSpec) -> None:
    """OutcomeError if an instance has other spaces than the first one, from which the policy is made."""
    for name, there, here in (("observation_space", _form(first.obs), _form(obs)),
                              ("action_space", _form(first.action), _form(action))):
        if there != here:
            raise OutcomeError(f"{name} differs from one instance to the next: {there}, then {here}; make it the same "
                               "in each, for the largest case")


def _form(part: ActionSpec | ArraySpec | Mapping[str, ArraySpec]) -> str:
    """The kind and size of an action or an observation, in words."""
    if isinstance(part, Mapping):
        return ", ".join(f"{name}: {_form(each)}" for name, each in sorted(part.items()))
    return f"{part.kind} {list(part.sizes if isinstance(part, ActionSpec) else part.shape)}"
