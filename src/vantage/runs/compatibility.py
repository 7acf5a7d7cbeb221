"""Whether saved tensors fit a network; if not, the difference and what to do.

Nothing is copied here.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

from torch import Tensor

from vantage._host.system import shortage
from vantage.config.config import Config
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.fields import in_text
from vantage.keys.objects import is_code
from vantage.models.actor_critic import ActorCritic
from vantage.models.config import PolicyConfig
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.policy_file import SavedPolicy
from vantage.runs.validation import read_spec
from vantage.types import ActionSpec, EnvSpec, State

_NO_DIFFERENCE = ("init", "init_from", "init_checkpoint", "bptt", "detach_critic", "precision")


def differences(saved: Mapping[str, Tensor], model: ActorCritic) -> list[str]:
    """The tensors whose names or shapes are not those of `model`."""
    theirs, ours = ({name: list(tensor.shape) for name, tensor in tensors.items()}
                    for tensors in (saved, model.state_dict()))
    return [f"{name} is {theirs.get(name, 'nothing')} there, {ours.get(name, 'nothing')} here"
            for name in ours | theirs if theirs.get(name) != ours.get(name)]


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
        for key, own in (("network", model.policy.network), ("memory", model.policy.memory)):
            if is_code(own) and any(f".{key}." in name for name in different):
                config = f"the class {key}={own}"
        others = [f"and {len(different) - 3} more tensors"] if len(different) > 3 else []
        reason = ", ".join(different[:3] + others) or " ".join(str(error).split())
        raise ConfigError(f"{path} does not fit {config}, as if that had been edited since: "
                          f"{reason}; restore it") from None


def check_spaces(checkpoint: Checkpoint, spec: EnvSpec, env: str) -> None:
    """ConfigError where the environment has other spaces than when the checkpoint was saved."""
    before = read_spec(checkpoint.state["spec"])
    if changed := [f"its {what} were {theirs} and are {ours}"
                   for what, theirs, ours in before.differences(spec)]:
        raise ConfigError(f"{checkpoint.path} is of another env={env}: {', '.join(changed)}; "
                          "restore the environment and the options in config.json that change its "
                          "spaces, or begin a new run")


@contextlib.contextmanager
def continuing(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Turn errors of restoring a run into a CheckpointError that names the checkpoint."""
    try:
        with restoring((LookupError,
                        TypeError)) if checkpoint is not None else contextlib.nullcontext():
            yield
    except CheckpointError as error:
        if checkpoint is None:
            raise
        raise CheckpointError(f"{checkpoint.path} {error}") from error


@contextlib.contextmanager
def restoring(kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn errors of these kinds, which odd tensors cause, into a CheckpointError of one line."""
    try:
        yield
    except kinds as error:
        if shortage(error) is not None:
            raise
        reason = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise CheckpointError(f"cannot be continued: {reason:.400}; it is not what Vantage writes, "
                              "or code that config.json names has changed") from error


def check_policy_state(state: State, like: State) -> None:
    """ValueError unless the state has the shapes and types of `like`, and finite values."""
    theirs, ours = ([f"{x.dtype} {list(x.shape)}".removeprefix("torch.") for x in tensors]
                    for tensors in (state, like))
    if theirs != ours:
        raise ValueError(f"the state of the policy is {theirs}, this policy's {ours}")
    if not all(tensor.isfinite().all() for tensor in state):
        raise ValueError("the state of the policy has values that are not finite")


def check_fits(policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """Raises ConfigError unless `model`, of a new run of `config`, can load `policy`."""
    start, source = f"init_from={config.policy.init_from}: ", policy.description.config
    squash = source.policy.squash_mean and config.policy.squash_mean
    there, here = _interface(policy.description.spec, source, squash), _interface(model.spec, config, squash)
    # Though an older run may name them otherwise.
    if policy.description.spec.observes_as(model.spec):
        here["observations"] = there["observations"]
    elif shifts := _other_shifts(policy.description.spec, model.spec):
        raise ConfigError(f"{start}other numbers are subtracted from its observations; give "
                          f"--obs-shift {shlex.quote(json.dumps(shifts))}")
    for what, theirs in there.items():
        if theirs != here[what]:
            raise ConfigError(f"{start}its {what}: {theirs}, of this run: {here[what]}; give "
                              "weights with the same, or options such as --action-subset and "
                              "--screen-size that make them so")
    _check_scale(start, policy.description.spec.action, model.spec.action)
    different = differences(policy.tensors, model)
    used = _use(source, model.spec)
    keys = [f.name for f in fields(PolicyConfig)
            if f.name not in _NO_DIFFERENCE] if different else list(used)
    options = [f"--{key.replace('_', '-')} {in_text(getattr(source.policy, key))}" for key in keys
               if used.get(key, True)
               and getattr(source.policy, key) != getattr(config.policy, key)]
    if different or options:
        raise ConfigError(f"{start}it is another "
                          f"network{': ' * bool(different)}{''.join(different[:1])}; give "
                          f"{' '.join(options) or 'weights of the same network'}")


def _other_shifts(there: EnvSpec, here: EnvSpec) -> Mapping[str, tuple[float, ...]]:
    """What is subtracted from observations `there`, if only that differs."""
    parts = [replace(part, shift=()) for part in there.parts]
    alike = there.keys == here.keys and parts == [replace(part, shift=()) for part in here.parts]
    return there.shifts if alike else {}


def in_units_of(config: Config, policy: SavedPolicy) -> SavedPolicy:
    """`policy` with its free deviation as the std_lr_scale of `config` divides it."""
    source, name = policy.description.config.policy, "policy_head.log_std"
    if name not in policy.tensors or source.std_lr_scale == config.policy.std_lr_scale:
        return policy
    log_std = policy.tensors[name] * (source.std_lr_scale / config.policy.std_lr_scale)
    return replace(policy, tensors={**policy.tensors, name: log_std})


def _in_own_units(action: ActionSpec) -> list[bool]:
    """The dimensions in which a policy acts from -1 to 1."""
    low, high = action.policy_bounds
    return [bounds == (-1, 1) for bounds in zip(low, high, strict=True)]


def _check_scale(start: str, there: ActionSpec, here: ActionSpec) -> None:
    """Raises ConfigError if only one of the two policies scales its actions to their bounds."""
    units = [_in_own_units(action) for action in (there, here)]
    if units[0] == units[1] or not any((*there.scaled, *here.scaled)):
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
    return {"actions": (spec.action.kind, spec.action.sizes), "observations": spec.obs,
            "critic": config.algorithm.needs.critic,
            "action bounds, to which squash_mean scales": squash and (spec.action.low, spec.action.high)}


def _use(config: Config, spec: EnvSpec) -> dict[str, bool]:
    """Keys that change what a policy computes with the same tensors, and whether this one uses them."""
    box = spec.action.kind == "box"
    # Not std_lr_scale: `in_units_of` converts the tensor.
    return {"activation": True, "one_hot": any(part.kind == "one_hot" for part in spec.parts),
            "torsos": sum(part.kind != "image" for part in spec.parts) > 1,
            "obs_scale": any(part.kind == "image" for part in spec.parts),
            "stack_pad": config.policy.frame_stack > 1, "std": box, "min_std": box,
            "squash_mean": box, "log_std_init": box and config.policy.std == "fixed",
            "std_lr_scale": False}
