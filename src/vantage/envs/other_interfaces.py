"""Recognises environments of other libraries without importing them, and suggests wrappers.

They are recognised by the modules of their classes, or by methods if a class was copied or renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isroutine, signature
from typing import Any

from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

from vantage.envs.descriptions import a

_RETURNS = ("reset return (observation, info) and step (observation, reward, terminated, "
            "truncated, info)")
_AGENTS = ("write a class with the methods of PettingZoo's ParallelEnv around it, whose agents "
           "then share one policy")
IN_TURNS = ("give the parallel_env of its module, or pettingzoo.utils.conversions.aec_to_parallel("
            "env) where agents may act at once")
"""What to do with an AEC environment, of any number of players."""
_TWO_IN_TURNS = ("; a game for two trains by --self-play 20, given as a class or function and not "
                 "as an instance")
_PORT = ("derive the class from gymnasium.Env, set its spaces from gymnasium.spaces, and let "
         f"{_RETURNS}")
_BATCH = ("write a gymnasium.vector.VectorEnv around it, with num_envs, single_observation_space, "
          "single_action_space and metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}")
_WRAP = f"write a gymnasium.Env around it, and let its {_RETURNS}"


@dataclass(frozen=True, slots=True)
class Kind:
    """Environments of one library."""

    name: str
    remedy: str
    modules: tuple[str, ...]
    """Packages or classes that their classes derive from."""
    methods: tuple[str, ...]
    """Methods that all their classes have; () where methods do not identify them."""
    derives: bool = False
    """Their classes derive from gymnasium.Env."""


KINDS = (
    Kind("a PettingZoo environment whose agents take turns (AEC)",
         IN_TURNS,
         ("pettingzoo.utils.env.AECEnv",), ("agent_iter", "last", "observe")),
    Kind("a vector environment of SuperSuit", "give the parallel environment itself, as its class "
         "or a function that builds it, and the number of its copies as num_envs",
         ("supersuit.vector",), (), derives=True),
    Kind("an RLlib MultiAgentEnv", _AGENTS, ("ray.rllib.env.multi_agent_env",),
         ("get_action_space", "get_observation_space"), derives=True),
    Kind("a dm_env environment, as of dm_control", f"{_WRAP}: observation, reward and last() are "
         "in its time step, and terminated is last() with a discount of 0",
         ("dm_env", "dm_control"),
         ("observation_spec", "action_spec")),
    Kind("an EnvPool environment", f"{_BATCH}: EnvPool too resets in the step after an episode's "
                                   "end", ("envpool",),
         ("recv", "send", "async_reset"), derives=True),
    Kind("a vector environment of Stable-Baselines3", "give the class or the function that makes a "
         "single environment, and their number as num_envs", ("stable_baselines3.common.vec_env",),
         ("step_async", "step_wait", "env_method")),
    Kind("a Unity environment (ML-Agents)", _WRAP, ("mlagents_envs",),
         ("get_steps", "set_actions")),
    Kind("an Isaac environment, which simulates many at once", "write a class in tensors around "
         "it, with num_envs, single_observation_space, single_action_space and metadata = "
         "{'autoreset_mode': AutoresetMode.SAME_STEP}, as docs/vector-environments.md shows",
         ("isaacgym", "isaacgymenvs", "isaaclab", "omni.isaac"),
         ("allocate_buffers",), derives=True),
    Kind("an environment of the old gym library",
         f"import gymnasium as gym in place of gym, and let {_RETURNS}", ("gym",), ()),
)
"""In the order in which they are tried."""

# Methods are read from classes alone: an instance's __getattr__ may answer anything, or raise.


def refusal(env: Any) -> str:
    """Name and remedy of a class or instance that is no gymnasium.Env or VectorEnv, else ""."""
    cls = env if isinstance(env, type) else type(env)
    is_env = issubclass(cls, Env | VectorEnv)
    for kind in KINDS:
        if (kind.derives or not is_env) and _comes_from(cls, kind.modules):
            return _words(kind, env)
    if is_env:
        return ""
    for kind in KINDS:
        if kind.methods and _has(cls, kind.methods):
            return _words(kind, env)
    if _has(cls, ("reset", "step")):
        return "" if _is_vec_env(cls, env) else _lookalike(cls, env)
    return f"{a(cls.__name__)}, not a gymnasium.Env; {_PORT}"


def is_parallel(env: Any) -> bool:
    """Whether a class or instance is a PettingZoo ParallelEnv, or has its methods."""
    cls = env if isinstance(env, type) else type(env)
    has_spaces = any(callable(vars(base).get("action_space")) for base in cls.__mro__)
    return (has_spaces and not takes_turns(cls) and _has(cls, ("reset", "step"))
            and not issubclass(cls, Env | VectorEnv))


def takes_turns(env: Any) -> bool:
    """Whether a class or instance is a PettingZoo AECEnv, or has its methods."""
    cls = env if isinstance(env, type) else type(env)
    return _comes_from(cls, KINDS[0].modules) or _has(cls, KINDS[0].methods)


def instance_refusal(env: Any) -> str:
    """`refusal`, also for a gymnasium.Env that resets itself or holds several environments."""
    words = refusal(env)
    if words:
        return words
    if not isinstance(env, Env):
        return (f"{a(type(env).__name__)}, a vector environment; give its class, or a function "
                "with the parameter num_envs that returns it")
    mode = metadata_of(env).get("autoreset_mode")
    if mode not in (None, AutoresetMode.NEXT_STEP):
        return (f"{a(type(env).__name__)} that resets itself "
                f"(autoreset_mode={getattr(mode, 'name', mode)}), while Vantage resets "
                "environments after their episodes; leave autoreset_mode out of its metadata, and "
                "let reset begin the episodes")
    return ""


def not_built(factory: Any, built: Any, argument: str) -> str:
    """What the function `factory` returned in place of an environment, and what to write; or ''.

    `argument` is what a class is called with.
    """
    if built is None:
        return "None; is its return missing?"
    if not (isinstance(built, type) or isroutine(built)):
        return ""
    title = built.__name__
    start = "let it return "
    is_lambda = getattr(factory, "__name__", "") == "<lambda>"
    if is_lambda:
        start = f"write lambda {argument}: " if argument else "write lambda: "
    if isinstance(built, type):
        return f"the class {title}; {start}{title}({argument})"
    if is_lambda and title.isidentifier():
        return f"the function {title}; {start}{title}({argument})"
    return ("a function, which builds the environment; call it: give what this returns as env, or "
            "let this return the environment")


def metadata_of(env: Any) -> dict[str, Any]:
    """The metadata of an environment; {} unless it is a dict."""
    metadata = getattr(env, "metadata", None)
    return metadata if isinstance(metadata, dict) else {}


def own_time_limit(env: Any) -> int | None:
    """Time limit in steps of the environment's registration, if any. `spec` may be anything."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


def foreign_space(space: Any) -> str:
    """The remedy for a space of the old gym library; "" for any other object."""
    if _comes_from(type(space), ("gym",)):
        return "a space of the old gym library; make it from gymnasium.spaces"
    return ""


def _words(kind: Kind, env: Any) -> str:
    words = f"{kind.name}; {kind.remedy}"
    if kind.remedy == IN_TURNS and _num_players(env) == 2:
        words += _TWO_IN_TURNS
    return words


def _num_players(env: Any) -> int:
    """The number of an instance's possible_agents; 2 if it is unknown."""
    try:
        return len(env.possible_agents)
    except Exception:  # a class, or what a __getattr__ of the environment raises
        return 2


def _lookalike(cls: type, env: Any) -> str:
    """`refusal` for a class with reset and step that derives from no known class."""
    attributes = {} if isinstance(env, type) else getattr(env, "__dict__", {})
    if _has(cls, ("num_envs",)) or "num_envs" in attributes:
        return (f"{a(cls.__name__)}, which has num_envs but is no gymnasium.vector.VectorEnv; "
                f"{_BATCH}")
    return f"{a(cls.__name__)}, which has reset and step but is no gymnasium.Env; {_PORT}"


def _is_vec_env(cls: type, env: Any) -> bool:
    """Whether an instance has the attributes of a `VecEnv`, or a class may build one."""
    if isinstance(env, type):
        try:
            return "num_envs" in signature(cls).parameters
        except (TypeError, ValueError):  # of a class written in C
            return False
    names = {*getattr(env, "__dict__", {})}.union(*(vars(base) for base in cls.__mro__))
    return names >= {"num_envs", "single_observation_space", "single_action_space"}


def _comes_from(cls: type, modules: tuple[str, ...]) -> bool:
    """Whether a base of `cls` is in one of `modules`, or is one of them itself."""
    names = [f"{base.__module__}.{base.__qualname__}." for base in cls.__mro__]
    return any(name.startswith(f"{module}.") for module in modules for name in names)


def _has(cls: type, methods: tuple[str, ...]) -> bool:
    defined = {name for base in cls.__mro__ for name in vars(base)}
    return defined.issuperset(methods)
