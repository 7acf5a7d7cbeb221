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
    squash = source.policy.squash_mean and config.policy.squash_mean
    there, here = _interface(policy.description.spec, source, squash), _interface(model.spec, config, squash)
    for what, theirs in there.items():
        if theirs != here[what]:
            raise ConfigError(f"{start}its {what}: {theirs}, of this run: {here[what]}; give weights with the same, or "
                              "options such as --action-subset and --screen-size that make them so")
    saved, new = ({name: list(tensor.shape) for name, tensor in tensors.items()}
                  for tensors in (policy.tensors, model.state_dict()))
    different = [f": {name} is {saved.get(name, 'nothing')} there, {new.get(name, 'nothing')} here"
                 for name in new | saved if saved.get(name) != new.get(name)]
    used = _use(source, model.spec)
    keys = [f.name for f in fields(PolicyConfig) if f.name not in _NO_DIFFERENCE] if different else list(used)
    options = [f"--{key.replace('_', '-')} {str(getattr(source.policy, key)).lower()}" for key in keys
               if used.get(key, True) and getattr(source.policy, key) != getattr(config.policy, key)]
    if different or options:
        raise ConfigError(f"{start}it is another network{''.join(different[:1])}; give "
                          f"{' '.join(options) or 'weights of the same network'}")


def _interface(spec: EnvSpec, config: Config, squash: bool) -> dict[str, object]:
    return {"actions": (spec.action.kind, spec.action.sizes), "observations": spec.obs,
            "critic": config.algorithm.needs.critic,
            "action bounds, to which squash_mean scales": squash and (spec.action.low, spec.action.high)}


def _use(config: Config, spec: EnvSpec) -> dict[str, bool]:
    """Config keys that change what a policy computes with the same tensors, and whether this one uses them."""
    box = spec.action.kind == "box"
    return {"activation": True, "obs_scale": any(part.kind == "image" for part in spec.parts),
            "stack_pad": config.policy.frame_stack > 1, "std": box, "min_std": box, "squash_mean": box,
            "log_std_init": box and config.policy.std == "fixed"}
