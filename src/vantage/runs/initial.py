"""Whether a new run can start from a saved policy; if not, the difference and what to do. Nothing is copied here."""

from __future__ import annotations

from dataclasses import fields

from vantage.config import Config
from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.policy_file import SavedPolicy
from vantage.types import EnvSpec

_NO_DIFFERENCE = ("init", "init_from", "init_checkpoint", "bptt", "detach_critic", "precision")


def check_fits(policy: SavedPolicy, model: ActorCritic, config: Config) -> None:
    """ConfigError unless `model`, made for a new run of `config`, can take the tensors of `policy`."""
    start, source = f"init_from={config.policy.init_from}: ", policy.description.config
    there, here = _interface(policy.description.spec, source), _interface(model.spec, config)
    for what, theirs in there.items():
        if theirs != here[what]:
            raise ConfigError(f"{start}its {what}: {theirs}, of this run: {here[what]}; give weights with the same, or "
                              "options such as --action-subset and --screen-size that make them so")
    saved, new = ({name: list(tensor.shape) for name, tensor in tensors.items()}
                  for tensors in (policy.tensors, model.state_dict()))
    different = [f"{name} is {saved.get(name, 'nothing')} there, {new.get(name, 'nothing')} here"
                 for name in new | saved if saved.get(name) != new.get(name)]
    keys = [f.name for f in fields(PolicyConfig)] if different else _beside_shapes(source, model.spec)
    options = [f"--{key.replace('_', '-')} {str(getattr(source.policy, key)).lower()}" for key in keys
               if key not in _NO_DIFFERENCE and getattr(source.policy, key) != getattr(config.policy, key)]
    if different or options:
        raise ConfigError(f"{start}it is another network{': ' * bool(different)}{'; '.join(different[:1])}; give "
                          f"{' '.join(options) or 'weights of the same network'}")


def _interface(spec: EnvSpec, config: Config) -> dict[str, object]:
    bounds = (spec.action.low, spec.action.high) if config.policy.squash_mean else None
    return {"actions": (spec.action.kind, spec.action.sizes), "action bounds, to which squash_mean scales": bounds,
            "observations": spec.obs, "critic": config.algorithm.needs.critic}


def _beside_shapes(config: Config, spec: EnvSpec) -> list[str]:
    """Config keys that change what a policy computes with the same tensors."""
    conditions = {"activation": True, "obs_scale": any(part.kind == "image" for part in spec.parts),
                  "stack_pad": config.policy.frame_stack > 1, "log_std_init": config.policy.std == "fixed"}
    gaussian = dict.fromkeys(("std", "min_std", "squash_mean"), spec.action.kind == "box")
    return [name for name, holds in (conditions | gaussian).items() if holds]
