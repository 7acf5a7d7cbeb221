"""Whether a new run can start from a saved policy; if not, what differs and what to do. Nothing is copied here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.models.torsos import torso_name
from vantage.runs.policy_file import SavedPolicy
from vantage.types import ActionSpec, ArraySpec, EnvSpec

_SHAPES = ("network", "hidden", "norm", "memory", "memory_size", "frame_stack", "separate", "std", "obs_norm",
           "image_norm")
"""Config keys that decide which tensors a policy has."""

_MEANINGS = ("activation", "stack_pad", "std", "log_std_init", "min_std", "squash_mean", "obs_scale")
"""Config keys that decide what it computes with them."""


def check_fits(policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """ConfigError unless `model`, made for a new run of `config`, can take the tensors of `policy`."""
    start = f"init_from={config.policy.init_from}: "
    source, there, here = policy.description.config, policy.description.spec, model.spec
    if _action(there.action) != _action(here.action):
        discrete = there.action.kind == here.action.kind == "discrete"
        raise ConfigError(f"{start}its policy head is for {_action(there.action)} actions, this environment has "
                          f"{_action(here.action)}; give weights from an environment with the same actions"
                          + ("; --action-subset chooses among this one's" if discrete else ""))
    squashed = source.policy.squash_mean and config.policy.squash_mean
    if squashed and _bounds(there.action) != _bounds(here.action):
        raise ConfigError(f"{start}squash_mean scales its means to actions {_bounds(there.action)}, those of this "
                          f"environment are {_bounds(here.action)}; give weights from an environment with the same "
                          "bounds")
    if there.obs != here.obs:
        raise ConfigError(f"{start}it sees {_observation(there)}, this environment shows {_observation(here)}; give "
                          "weights from an environment with the same observations, or options such as --screen-size "
                          "and --grayscale that make them so")
    if source.algorithm.needs.critic != config.algorithm.needs.critic:
        raise ConfigError(f"{start}the critic of {source.algo} is not that of {config.algo}: acer's values actions, "
                          "that of a2c, a3c and a3g states; give weights of acer to acer alone")
    _check_network(policy, model, config, start)


def _check_network(policy: SavedPolicy, model: ActorCritic, config: Config, start: str) -> None:
    """ConfigError names the first tensors of another shape and the keys that make the network another one."""
    source, spec = policy.description.config, model.spec
    tensors = list(_differences(policy.tensors, model.state_dict()))
    unused = _unused(source, spec)
    keys = [key for key in dict.fromkeys((*_SHAPES, *_MEANINGS) if tensors else _MEANINGS)
            if key not in unused and _text(source, spec, key) != _text(config, spec, key)]
    if not tensors and not keys:
        return
    differences = [f"{key}={_text(source, spec, key)} there, {_text(config, spec, key)} here" for key in keys]
    if tensors:
        differences.append(f"{len(tensors)} tensors differ, first: {'; '.join(tensors[:3])}")
    flags = " ".join(f"--{key.replace('_', '-')} {_text(source, spec, key)}" for key in keys)
    raise ConfigError(f"{start}it is another network: {'; '.join(differences)}; give "
                      f"{flags or 'weights of the same network'}")


def _unused(config: Config, spec: EnvSpec) -> set[str]:
    """Keys that have no effect on a policy of `config` for `spec`."""
    policy, kinds = config.policy, {part.kind for part in spec.parts}
    without = {
        "obs_scale image_norm": "image" in kinds,
        "obs_norm": "vector" in kinds,
        "hidden activation": "mlp" in _torsos(config, spec),
        "memory_size": policy.memory != "none",
        "stack_pad": policy.frame_stack > 1,
        "log_std_init": policy.std == "fixed",  # otherwise the deviation is among the tensors
        "std log_std_init min_std squash_mean": spec.action.kind == "box"}
    return {key for keys, used in without.items() if not used for key in keys.split()}


def _text(config: Config, spec: EnvSpec, key: str) -> str:
    """The value of a key as a policy for `spec` uses it."""
    value = config.flat()[key]
    if key == "network" and value not in (torsos := _torsos(config, spec)):
        return torsos[0]  # names such as auto that select these torsos
    return str(value).lower() if isinstance(value, bool) else str(value)


def _torsos(config: Config, spec: EnvSpec) -> list[str]:
    """The torso of each kind of observation, images first."""
    return [torso_name(config.policy.network, kind) for kind in sorted({part.kind for part in spec.parts})]


def _differences(there: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> Iterator[str]:
    """One phrase for each tensor whose shape is not the same in both."""
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
