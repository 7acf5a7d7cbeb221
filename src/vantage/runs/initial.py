"""Whether a new run can begin from a saved policy; where it cannot, what differs and what to do. Nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.models.torsos import torso_name
from vantage.runs.policy import SavedPolicy
from vantage.types import ActionSpec, ArraySpec, EnvSpec

_SHAPES = ("network", "hidden", "norm", "memory", "memory_size", "frame_stack", "separate", "std", "obs_norm",
           "image_norm")
"""Config keys that decide which tensors a policy has."""

_MEANINGS = ("activation", "stack_pad", "std", "log_std_init", "min_std", "squash_mean", "obs_scale")
"""Config keys that decide what it computes with them."""


def check_fits(policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """ConfigError unless `model`, made for a new run of `config`, may take up the tensors of `policy`."""
    start = f"init_from={config.policy.init_from}: "
    there, here = policy.known.spec, model.spec
    if _action(there.action) != _action(here.action):
        subset = "; --action-subset chooses among this one's" if there.action.kind == here.action.kind == "discrete" \
            else ""
        raise ConfigError(f"{start}its policy head is for {_action(there.action)} actions, this environment has "
                          f"{_action(here.action)}; give weights from an environment with the same actions{subset}")
    squashed = policy.known.config.policy.squash_mean and config.policy.squash_mean
    if squashed and _bounds(there.action) != _bounds(here.action):
        raise ConfigError(f"{start}squash_mean scales its means to actions {_bounds(there.action)}, those of this "
                          f"environment are {_bounds(here.action)}; give weights from an environment with the same "
                          "bounds")
    if there.obs != here.obs:
        raise ConfigError(f"{start}it sees {_observation(there)}, this environment shows {_observation(here)}; give "
                          "weights from an environment with the same observations, or options such as --screen-size "
                          "and --grayscale that make them so")
    if policy.known.config.algorithm.needs.critic != config.algorithm.needs.critic:
        raise ConfigError(f"{start}it is of {policy.known.config.algo}, whose critic is not that of {config.algo}: "
                          "acer's values actions, that of a2c, a3c and a3g states; give weights of acer to acer alone")
    tensors = list(_differences(policy.tensors, model.state_dict()))
    keys = _other_options(policy.known.config, config, here, (*_SHAPES, *_MEANINGS) if tensors else _MEANINGS)
    if not tensors and not keys:
        return
    was, now = policy.known.config, config
    named = [f"{key}={_text(was, here, key)} there, {_text(now, here, key)} here" for key in keys]
    if tensors:
        named.append(f"of {len(tensors)} tensors that differ the first: {'; '.join(tensors[:3])}")
    flags = " ".join(f"--{key.replace('_', '-')} {_text(was, here, key)}" for key in keys)
    remedy = f"give {flags}" if keys else "give weights of the same network"
    raise ConfigError(f"{start}it is another network: {'; '.join(named)}; {remedy}")


def _other_options(there: Config, here: Config, spec: EnvSpec, keys: tuple[str, ...]) -> list[str]:
    """Those of `keys` that a policy of `there` for `spec` goes by and that `here` has otherwise."""
    idle = _idle(there, spec)
    return [key for key in dict.fromkeys(keys) if key not in idle and _text(there, spec, key) != _text(here, spec, key)]


def _idle(config: Config, spec: EnvSpec) -> set[str]:
    """Keys that a policy of `config` for `spec` does not go by."""
    kinds = {part.kind for part in spec.parts}
    idle = set() if "image" in kinds else {"obs_scale", "image_norm"}
    if "vector" not in kinds:
        idle.add("obs_norm")
    if "mlp" not in _torsos(config, spec):
        idle |= {"hidden", "activation"}
    if config.policy.memory == "none":
        idle.add("memory_size")
    if config.policy.frame_stack == 1:
        idle.add("stack_pad")
    if config.policy.std != "fixed":
        idle.add("log_std_init")  # the deviation is among the tensors
    return idle if spec.action.kind == "box" else idle | {"std", "log_std_init", "min_std", "squash_mean"}


def _text(config: Config, spec: EnvSpec, key: str) -> str:
    """The value of a key, as a policy for `spec` has it."""
    value = config.flat()[key]
    if key == "network" and value not in (torsos := _torsos(config, spec)):
        return torsos[0]  # auto, and whatever else means these torsos
    return str(value).lower() if isinstance(value, bool) else str(value)


def _torsos(config: Config, spec: EnvSpec) -> list[str]:
    """What each part of an observation goes through, images first."""
    return [torso_name(config.policy.network, kind) for kind in sorted({part.kind for part in spec.parts})]


def _differences(there: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> Iterator[str]:
    """Each tensor that is not of the same shape in both, in words."""
    for name, tensor in here.items():
        if name not in there:
            yield f"{name} only here"
        elif there[name].shape != tensor.shape:
            yield f"{name} is {list(there[name].shape)} there, {list(tensor.shape)} here"
    yield from (f"{name} only there" for name in there if name not in here)


def _action(action: ActionSpec) -> str:
    return f"{action.kind} {list(action.sizes)}"


def _bounds(action: ActionSpec) -> str:
    return f"from {list(action.low)} to {list(action.high)}"


def _observation(spec: EnvSpec) -> str:
    def one(part: ArraySpec) -> str:
        return f"{part.kind} {list(part.shape)}"

    if isinstance(spec.obs, Mapping):
        return ", ".join(f"{key}: {one(part)}" for key, part in spec.obs.items())
    return one(spec.obs)
