"""Checks of the results of `reset` and `step`, which accept harmless deviations from Gymnasium.

Observations are converted in `spaces`; here, errors of the conversion get their words.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vantage.envs.descriptions import cut, shown
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

RESET = "return (observation, info), with {} as info if there is none"
STEP = "return (observation, reward, terminated, truncated, info)"
_OLD = "as in the old gym library"
_OLD_STEP = (f", (observation, reward, done, info) {_OLD}: split done in two (terminated is True "
             "where the task ended, truncated where only a time limit cut it)")
_INFO = "a dict, {} if there is nothing to report"

MASK = "action_mask"
LAST_INFO = "last_info"
"""Key of a step's `info`: `small_parts`, or its items, for each environment whose episode ended."""
SMALL_ARRAY = 64
"""Largest number of elements of an array that an episode keeps from its last `info`."""
SMALL_TEXT = 1_000
"""Largest number of characters of a text that an episode keeps."""

Info = dict[str, Any]
Result = tuple[Any, float, bool, bool, Info]


class OutcomeError(Exception):
    """An environment broke Gymnasium's interface. The text says how, and what to return instead."""


def check_reset(result: Any) -> tuple[Any, Info]:
    """(observation, info) of a reset; OutcomeError for others, such as a bare observation."""
    if result.__class__ is tuple and len(result) == 2 and result[1].__class__ is dict:
        return result
    if isinstance(result, tuple | list) and len(result) == 2:
        obs, info = result
        if isinstance(info, Mapping):
            return obs, dict(info)
        if not isinstance(info, int | float | np.generic | np.ndarray):
            raise OutcomeError(f"reset() returned (observation, info) where info is {shown(info)}; "
                               f"return {_INFO}")
    raise OutcomeError(f"reset() returned {shown(result)}{_old_reset(result)}; {RESET}")


def check_step(result: Any) -> Result:
    """The five results of a step, with a float reward and bool flags; OutcomeError for others."""
    if result.__class__ is tuple and len(result) == 5:
        obs, reward, terminated, truncated, info = result
        # The fast path: most environments return these types.
        if (isinstance(reward, float) and terminated.__class__ is bool
                and truncated.__class__ is bool and info.__class__ is dict):
            return result
    obs, reward, terminated, truncated, info = five(result)
    if isinstance(truncated, Mapping) and _is_flag(info):
        raise OutcomeError(f"step() returned info before truncated; {STEP}")
    return (obs, number(reward), flag("terminated", terminated), flag("truncated", truncated),
            check_info(info))


def five(result: Any) -> Any:
    """`result` of a step; OutcomeError unless it is a tuple of five."""
    if isinstance(result, tuple | list) and len(result) == 5:
        return result
    remark = _remark_on_step(result) if type(result) in (tuple, list) else ""
    raise OutcomeError(f"step() returned {shown(result)}{remark}; {STEP}")


def _remark_on_step(values: Any) -> str:
    """What a step of three or four values probably lacks, in words; '' if it is unclear."""
    if len(values) == 4 and _is_flag(values[2]) and _is_flag(values[3]):
        return ", which lacks info: add {} as the last"
    if len(values) == 4:
        return _OLD_STEP
    if len(values) == 3 and _is_flag(values[2]):
        return ", which lacks truncated and info: add False and {}"
    return ""


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def number(reward: Any) -> float:
    """A reward as a float, also from an array or tensor of one number; OutcomeError for others."""
    # ValueError for several numbers, OverflowError for a whole number of hundreds of digits
    with suppress(Exception):
        single = reward.item() if isinstance(reward, np.ndarray | np.generic) else reward
        if _is_number(single):
            return float(single)
    raise OutcomeError(f"the reward is {shown(reward)}; return a single finite number as reward")


def flag(name: str, value: Any) -> bool:
    """`terminated` or `truncated` as a bool. 0, 1 and arrays of one flag are accepted."""
    if _is_flag(value):
        return bool(value)
    with suppress(Exception):
        single = value.item() if getattr(value, "shape", None) is not None else value
        if isinstance(single, bool | int | float) and single in (0, 1):
            return bool(single)
    raise OutcomeError(f"{name} is {shown(value)}; return True or False as {name}")


def check_info(info: Any) -> Info:
    """`info` as a dict; OutcomeError unless it is a mapping."""
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
        elif getattr(value, "shape", None) == () and hasattr(value, "item"):
            parts[name] = value.item()
        elif isinstance(value, np.ndarray):
            if value.size <= SMALL_ARRAY and value.dtype.kind in "biuf":
                parts[name] = value.copy()
        elif nested and isinstance(value, Mapping):
            parts[name] = small_parts(value, nested=False)
    return parts


def info_of(info: Mapping[str, Any], env: int, num_envs: int) -> Info:
    """The `info` of one environment, from that of a vector, whose values are arrays over all."""
    parts: Info = {}
    for name, value in info.items():
        is_present = info.get(f"_{name}")
        if str(name).startswith("_") or (is_present is not None and not is_present[env]):
            continue
        if isinstance(value, Mapping):
            parts[name] = info_of(value, env, num_envs)
        elif isinstance(value, np.ndarray | list | tuple) and getattr(value, "shape", None) != ():
            if len(value) == num_envs:
                parts[name] = value[env]
        else:
            parts[name] = value
    return parts


def observed(observe: Callable[[Any], Any], value: Any) -> Any:
    """`observe(value)`; its errors become an OutcomeError that shows `value`."""
    try:
        return observe(value)
    except OutcomeError:
        raise
    except Exception as error:
        text = re.sub(r"setting an array element with a sequence\.?.*",
                      "the elements differ in shape", str(error))
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
        returned = "" if is_array else f"; the environment returned {shown(value)}"
        raise OutcomeError(f"{cut(text, 400)}{returned}; correct the observation or "
                           "observation_space") from None


def check_mask(mask: NDArray[Any]) -> None:
    """OutcomeError unless each element of an action mask is 0 or 1, or True or False."""
    if mask.dtype.kind == "b":
        return
    if mask.dtype.kind not in "iuf" or not ((mask == 0) | (mask == 1)).all():
        raise OutcomeError(f"action_mask is {shown(mask)}; make it 1 or True for allowed actions, "
                           "0 or False for others")


def check_vector_step(result: Any, shape: tuple[int, ...]
                      ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_],
                                 Info]:
    """The results of a vector environment's step, with rewards and flags as new arrays [B]."""
    obs, rewards, terminated, truncated, info = five(result)
    return (obs, _column("rewards", rewards, shape).astype(np.float64),
            _flags("terminated", terminated, shape), _flags("truncated", truncated, shape),
            _vector_info(info))


def unpacking(error: BaseException) -> str:
    """Message for a result that one of Gymnasium's wrappers cannot unpack; "" for other errors."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or not isinstance(error, TypeError | ValueError):
        return ""
    function = frames[-1].f_code.co_name
    module = str(frames[-1].f_globals.get("__name__"))
    if function not in ("reset", "step") or not module.startswith("gymnasium."):
        return ""
    if "unpack" not in str(error):
        return ""
    if function == "reset":
        return f"reset() did not return two values ({error}); {RESET}"
    remark = ""
    if "got 4" in str(error):
        remark = (f": if these are (observation, reward, done, info) {_OLD}, split done into "
                  "terminated and truncated, otherwise add info")
    return f"step() did not return five values ({error}){remark}; {STEP}"


class Checked(gym.Wrapper[Any, Any, Any, Any]):
    """Converts results to Gymnasium's types, for outer wrappers that unpack or add them up."""

    def reset(self, **options: Any) -> tuple[Any, Any]:
        return check_reset(self.env.reset(**options))

    def step(self, action: Any) -> Any:
        return check_step(self.env.step(action))


def _is_number(value: Any) -> bool:
    """Whether `value` is a real number, a Fraction, a tensor or the like; not text or complex."""
    return hasattr(type(value), "__float__") and not isinstance(value, complex | np.complexfloating)


def _old_reset(result: Any) -> str:
    """A remark if `result` is likely an observation without info."""
    if result is None or isinstance(result, str | bytes) or hasattr(type(result), "__next__"):
        return ""
    if isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], Mapping):
        return ""
    return f", which looks like the observation alone, {_OLD}"


def _column(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """`value` as numbers [B]. Lists and arrays [B, 1] are accepted."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise OutcomeError(f"{name} cannot be read as an array of shape {shape}: "
                           f"{cut(str(error), 200)}") from None
    if array.shape == (*shape, 1):
        array = array[:, 0]
    if array.shape != shape:
        raise OutcomeError(f"{name} is {shown(value)}; each must have the shape {shape}, one "
                           "number for each environment")
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
    if array.dtype.kind == "b":
        return array.astype(bool)
    is_flag = (array == 0) | (array == 1)
    if not is_flag.all():
        i = int(np.argmin(is_flag))
        raise OutcomeError(f"{name}[{i}] is {shown(array[i].item())}; return True or False for "
                           "each environment")
    return array.astype(bool)


def _vector_info(info: Any) -> Info:
    if isinstance(info, list | tuple):
        raise OutcomeError(f"info is {shown(info)}; return one dict for all environments, whose "
                           "values are arrays, as Gymnasium's vector environments do")
    return check_info(info)


def check_same_spaces(first: EnvSpec, obs: ArraySpec | Mapping[str, ArraySpec],
                      action: ActionSpec) -> None:
    """OutcomeError if an instance has other spaces than the first, for which the policy is made."""
    for name, expected, actual in (("observation_space", _form(first.obs), _form(obs)),
                                   ("action_space", _form(first.action), _form(action))):
        if expected != actual:
            raise OutcomeError(f"{name} differs from one instance to the next: {expected}, then "
                               f"{actual}; make it the same in each, for the largest case")


def _form(part: ActionSpec | ArraySpec | Mapping[str, ArraySpec]) -> str:
    """The kind and size of an action or an observation, in words."""
    if isinstance(part, Mapping):
        return ", ".join(f"{name}: {_form(each)}" for name, each in sorted(part.items()))
    if isinstance(part, ActionSpec):
        return str(part) if part.parts else f"{part.kind} {list(part.sizes)}"
    return f"{part.kind} {list(part.shape)}"
