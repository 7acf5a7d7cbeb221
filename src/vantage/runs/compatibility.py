"""Whether saved tensors fit a network; if not, how they differ and the remedy."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

from torch import Tensor

from vantage._host.system import shortage
from vantage.config.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.objects import is_code
from vantage.keys.typed_values import in_text
from vantage.models.actor_critic import ActorCritic
from vantage.models.config import PolicyConfig
from vantage.models.value_norm import with_value_norm
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.policy_file import SavedPolicy
from vantage.runs.validation import read_spec
from vantage.types import ActionSpec, EnvSpec, State

_TRAINING_ONLY = ("init", "init_from", "init_checkpoint", "bptt", "detach_critic", "precision",
                  "value_norm")
"""Keys of the policy that change no tensor's shape and nothing of what the network computes."""


def differences(saved: Mapping[str, Tensor], model: ActorCritic) -> list[str]:
    """The tensors whose names or shapes differ between `saved` and `model`."""
    theirs = _shapes(saved)
    ours = _shapes(model.state_dict())
    texts = []
    for name in ours | theirs:
        if name not in theirs:
            texts.append(f"{name} {ours[name]} is missing in the file")
        elif name not in ours:
            texts.append(f"{name} {theirs[name]} is missing in the network")
        elif theirs[name] != ours[name]:
            texts.append(f"{name} is {theirs[name]} in the file, {ours[name]} in the network")
    return texts


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


@contextlib.contextmanager
def fitting(path: Path, saved: Mapping[str, Tensor], model: ActorCritic,
            config: str = "config.json") -> Iterator[None]:
    """Turn errors of loading `saved` into a ConfigError that names the tensors that differ.

    The cause is `config`, or the user's own class of a network or memory.
    """
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:
        different = differences(saved, model)
        remedy = "restore it"
        for key, own in (("network", model.policy.network), ("memory", model.policy.memory)):
            if is_code(own) and any(f".{key}." in name for name in different):
                config = f"the class {key}={own}"
                remedy = f"give the {key} that it was trained with"
        reasons = different[:3]
        if len(different) > 3:
            reasons.append(f"and {len(different) - 3} more tensors")
        reason = ", ".join(reasons) or " ".join(str(error).split())
        raise ConfigError(f"{path} does not fit {config}, as if that had been edited since: "
                          f"{reason}; {remedy}") from None


def check_spaces(checkpoint: Checkpoint, spec: EnvSpec, env: str) -> None:
    """ConfigError if the spaces of the environment have changed since the checkpoint was saved."""
    saved = read_spec(checkpoint.state["spec"])
    changed = [f"its {what} were {theirs} and are {ours}"
               for what, theirs, ours in saved.differences(spec)]
    if changed:
        raise ConfigError(f"{checkpoint.path} is of another env={env}: {', '.join(changed)}; "
                          "restore the environment and the options in config.json that change its "
                          "spaces, or begin a new run")


@contextlib.contextmanager
def continuing(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Turn errors of restoring a run into a CheckpointError that names the checkpoint."""
    if checkpoint is None:
        yield
        return
    try:
        with restoring((LookupError, TypeError)):
            yield
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path} {error}") from error


@contextlib.contextmanager
def restoring(kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn errors of these kinds, which unfit tensors cause, into a CheckpointError of one line."""
    try:
        yield
    except kinds as error:
        if shortage(error) is not None:
            raise
        reason = " ".join(str(error).split())
        if isinstance(error, KeyError):
            reason = f"there is no {error}"
        raise CheckpointError(f"cannot be continued: {reason:.400}; it is not what Vantage writes, "
                              "or code that config.json names has changed") from error


def check_policy_state(state: State, like: State) -> None:
    """ValueError unless the state has the shapes and types of `like`, and finite values."""
    theirs = _types(state)
    ours = _types(like)
    if theirs != ours:
        raise ValueError(f"the state of the policy is {theirs}, this policy's {ours}")
    if not all(tensor.isfinite().all() for tensor in state):
        raise ValueError("the state of the policy has values that are not finite")


def _types(tensors: State) -> list[str]:
    return [f"{x.dtype} {list(x.shape)}".removeprefix("torch.") for x in tensors]


def check_fits(policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """ConfigError unless `model`, of a new run of `config`, can load `policy`, `in_units_of` it."""
    policy = in_units_of(config, policy)
    start = f"init_from={config.policy.init_from}: "
    source = policy.description.config
    spec = policy.description.spec
    squash = source.policy.squash_mean and config.policy.squash_mean
    there = _interface(spec, source, squash)
    here = _interface(model.spec, config, squash)
    if spec.observes_as(model.spec):  # an older run may name the same observations otherwise
        here["observations"] = there["observations"]
    elif spec.shifts and spec.unshifted.obs == model.spec.unshifted.obs:
        raise ConfigError(f"{start}other numbers are subtracted from its observations; give "
                          f"--obs-shift {shlex.quote(json.dumps(spec.shifts))}")
    if there.pop("critic") != here.pop("critic"):
        learns = source.algorithm.needs.critic
        raise ConfigError(f"{start}the critic of {source.algo} values {learns}s, that of "
                          f"{config.algo} does not; give weights of {config.algo}, or train an "
                          f"algorithm whose critic values {learns}s, such as {source.algo}")
    for what, theirs in there.items():
        if theirs != here[what]:
            raise ConfigError(f"{start}its {what}: {theirs}, of this run: {here[what]}; give "
                              "weights with the same, or options such as --action-subset and "
                              "--screen-size that make them so")
    _check_scale(start, spec.action, model.spec.action)
    _check_network(start, policy, model, config)


def _check_network(start: str, policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """ConfigError if the networks differ; it gives the options of the policy's network."""
    source = policy.description.config
    different = differences(policy.tensors, model)
    has_effect = _effects(source, model.spec)
    keys = list(has_effect)
    if different:
        keys = [f.name for f in fields(PolicyConfig) if f.name not in _TRAINING_ONLY]
    options = []
    for key in keys:
        value = getattr(source.policy, key)
        if value != getattr(config.policy, key) and has_effect.get(key, True):
            options.append(f"--{key.replace('_', '-')} {in_text(value)}")
    if different or options:
        first = f": {different[0]}" if different else ""
        raise ConfigError(f"{start}it is another network{first}; give "
                          f"{' '.join(options) or 'weights of the same network'}")


def in_units_of(config: Config, policy: SavedPolicy) -> SavedPolicy:
    """`policy` with its values and its free deviation in the units of `config`.

    value_norm changes those of values, std_lr_scale divides the deviation.
    """
    policy = replace(policy, tensors=with_value_norm(policy.tensors, config.policy))
    source = policy.description.config.policy
    if source.std_lr_scale == config.policy.std_lr_scale:
        return policy
    factor = source.std_lr_scale / config.policy.std_lr_scale
    changed = {name: tensor * factor for name, tensor in policy.tensors.items()
               if re.fullmatch(r"policy_head\.(heads\.\d+\.)?log_std", name)}
    return replace(policy, tensors={**policy.tensors, **changed})


def _scaled_dimensions(action: ActionSpec) -> list[bool]:
    """The dimensions in which a policy acts from -1 to 1."""
    low, high = action.policy_bounds
    return [bounds == (-1, 1) for bounds in zip(low, high, strict=True)]


def _check_scale(start: str, there: ActionSpec, here: ActionSpec) -> None:
    """ConfigError if only one of the two policies scales its actions to their bounds."""
    if _scaled_dimensions(there) == _scaled_dimensions(here):
        return
    if not any((*there.scaled, *here.scaled)):
        return
    remedy = "give weights for actions with bounds in the same places"
    if not there.scaled:
        remedy = "give --no-scale-actions"
    elif not here.scaled:
        remedy = "give --scale-actions"
    raise ConfigError(f"{start}the dimensions of its actions that are scaled to their bounds: "
                      f"{list(there.scaled) or 'none'}, of this run: "
                      f"{list(here.scaled) or 'none'}; {remedy}")


def _interface(spec: EnvSpec, config: Config, squash: bool) -> dict[str, object]:
    """What two policies must have in common, by its name in messages."""
    bounds = squash and (spec.action.low, spec.action.high)
    return {
        "actions": spec.action.form,
        "observations": spec.obs,
        "critic": config.algorithm.needs.critic,
        "action bounds, to which squash_mean scales": bounds,
    }


def _effects(config: Config, spec: EnvSpec) -> dict[str, bool]:
    """Whether keys that may change what the same tensors compute do so for this policy."""
    kinds = [part.kind for part in spec.parts]
    is_box = bool(spec.action.boxes)
    return {
        "activation": True,
        "one_hot": "one_hot" in kinds,
        "torsos": len(kinds) - kinds.count("image") > 1,
        "obs_scale": "image" in kinds,
        "stack_pad": config.policy.frame_stack > 1,
        "distribution": is_box,
        "std": is_box,
        "min_std": is_box,
        "squash_mean": is_box,
        "log_std_init": is_box and config.policy.std == "fixed",
        "std_lr_scale": False,  # `in_units_of` converts the tensor
    }
