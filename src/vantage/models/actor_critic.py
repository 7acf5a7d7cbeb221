"""The policy and its critic as one module: stacks, normalises, encodes, remembers and answers. It does not sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vantage.algorithms.distributions import Distribution, make_distribution
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.models.activation_cache import Kept, flattened
from vantage.models.batch_norm import BatchNorm
from vantage.models.heads import AdvantageHead, make_policy_head, make_value_head
from vantage.models.normalize import ObsNormalizer, PixelNormalizer
from vantage.models.recurrent import Recurrent, push_frame, stack_frames
from vantage.models.running_stats import RunningMoments
from vantage.models.torsos import ConvTorso, channels_last, make_torso, to_floats
from vantage.types import ArraySpec, EnvSpec, Obs, State


class Trunk(nn.Module):
    """Features of all parts of an observation: a torso for each, side by side, then the memory if there is one."""

    def __init__(self, config: Config, parts: tuple[ArraySpec, ...]) -> None:
        super().__init__()
        torsos = [make_torso(config.policy.network, part, frame_stack=config.policy.frame_stack, hidden=config.policy.hidden_sizes,
                             activation=config.policy.activation, init=config.policy.init, norm=config.policy.norm)
                  for part in parts]
        self.torsos = nn.ModuleList(torsos)
        self.out_features = sum(torso.out_features for torso in torsos)
        self.memory: Recurrent | None = None
        if config.policy.memory != "none":
            self.memory = Recurrent(config.policy.memory, self.out_features, config.policy.memory_size, bptt=config.policy.bptt,
                                    init=config.policy.init)
            self.out_features = config.policy.memory_size

    @property
    def num_states(self) -> int:
        return self.memory.num_states if self.memory is not None else 0

    def encode(self, inputs: list[Tensor], kept: Kept | None = None) -> Tensor:
        """[N, F] from one [N, ...] per part, those in bfloat16 through their torsos in bfloat16.

        `kept` is for the layers of a single torso, where that `keeps`.
        """
        if kept is not None:
            (torso,), (part,) = self.torsos, inputs
            return cast(Tensor, torso(part, kept))
        features = []
        for torso, part in zip(self.torsos, inputs, strict=True):
            if part.dtype == torch.bfloat16:
                with torch.autocast(part.device.type, torch.bfloat16):
                    features.append(torso(part).to(torch.float32))
            else:
                features.append(torso(part))
        return features[0] if len(features) == 1 else torch.cat(features, -1)

    def step(self, inputs: list[Tensor], is_first: Tensor, state: State,
             kept: Kept | None = None) -> tuple[Tensor, State]:
        features = self.encode(inputs, kept)
        return (features, ()) if self.memory is None else self.memory.step(features, is_first, state)

    def unroll(self, inputs: list[Tensor], last: list[Tensor], is_first: Tensor, state: State,
               kept: Kept | None = None) -> Tensor:
        # The last row is only bootstrapped from, as a constant: backpropagating its zeros through the torso would cost
        # 1/(T+1) of the learning time.
        with torch.no_grad():
            features = self.encode(last)
        if len(is_first) > 1:
            features = torch.cat([self.encode(inputs, kept), features])
        features = torch.unflatten(features, 0, is_first.shape)
        return features if self.memory is None else self.memory.unroll(features, is_first, state)


class ActorCritic(nn.Module):
    """Distribution parameters and values of raw observations; `make_model` builds it.

    Its state, in this order, each [B, ...]: the last frame_stack - 1 observations of every part of the observation in
    their raw dtype, sorted by key (none if frame_stack is 1); the policy's (h, c) or (h,); with `separate`, the same of
    the critic. `is_first` clears it before the observation it belongs to, so any contents do before an episode's start.
    Observations lie on the model's device.
    """

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.distribution: Distribution = make_distribution(spec.action)
        self.keys = tuple(sorted(spec.obs)) if isinstance(spec.obs, Mapping) else ()
        parts = self.parts = spec.parts
        self.frame_stack, self.stack_pad = config.policy.frame_stack, config.policy.stack_pad
        self.image_dtype = torch.bfloat16 if config.policy.precision == "bfloat16" else None  # None: the weights'
        low, high = config.policy.pixel_range
        # What brings pixels to that range once the torsos have divided them by 255.
        self.pixel_factor, self.pixel_shift = high - low, 255 * low
        self.num_frame_states = len(parts) if config.policy.frame_stack > 1 else 0
        self.normalizers = nn.ModuleDict(
            {str(i): ObsNormalizer(part.shape[0]) if part.kind == "vector" else PixelNormalizer()
             for i, part in enumerate(parts) if (config.policy.obs_norm if part.kind == "vector" else config.policy.image_norm)})
        self.actor = Trunk(config, parts)
        self.critic = Trunk(config, parts) if config.policy.separate else None
        self.detach_critic = config.policy.detach_critic
        torso = self.actor.torsos[0]
        self.keeps_outputs = (len(parts) == 1 and isinstance(torso, ConvTorso) and torso.keeps
                              and self.image_dtype is None)
        """`step` may keep what its costly layers gave, and `unroll` take that. Of one rollout: more would take much."""
        self.policy_head = make_policy_head(
            self.actor.out_features, spec.action, std=config.policy.std, log_std_init=config.policy.log_std_init,
            min_std=config.policy.min_std, squash_mean=config.policy.squash_mean, init=config.policy.init)
        critic_features = (self.critic or self.actor).out_features
        self.fixed_deviation = config.policy.std == "fixed"
        self.has_q = config.algorithm.needs.critic == "action" and spec.action.kind == "discrete"
        self.value_head = make_value_head(critic_features, spec.action.sizes[0] if self.has_q else 1, init=config.policy.init)
        self.advantage_head = (AdvantageHead(critic_features, spec.action.sizes[0], init=config.policy.init)
                               if config.algorithm.needs.critic == "action" and spec.action.kind == "box" else None)

    def initial_state(self, batch: int) -> State:
        """The state before an episode of each of `batch` environments: zeros on the model's device."""
        weight, state = self.value_head.weight, []
        if self.num_frame_states:
            for part in self.parts:
                dtype = torch.uint8 if part.kind == "image" else torch.float32
                state.append(weight.new_zeros(batch, self.frame_stack - 1, *part.shape, dtype=dtype))
        for trunk in (self.actor, self.critic):
            if trunk is not None:
                state += [weight.new_zeros(batch, trunk.out_features) for _ in range(trunk.num_states)]
        return tuple(state)

    def step(self, obs: Obs, is_first: Bool[Tensor, " B"], state: State, action_mask: Bool[Tensor, "B A"] | None = None,
             kept: Kept | None = None) -> tuple[Float[Tensor, "B P"], State]:
        """Parameters of one observation [B, ...] of each environment, and the state after it.

        A critic of its own is asked only if it has a memory to keep up: a third of acting for an mlp. Where the model
        `keeps_outputs`, an empty `kept` is filled with what `unroll` may take.
        """
        params, _, state = self._step(obs, is_first, state, action_mask, values=False, kept=kept)
        return params, state

    def step_with_values(self, obs: Obs, is_first: Bool[Tensor, " B"], state: State,
                         action_mask: Bool[Tensor, "B A"] | None = None,
                         ) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"], State]:
        """`step`, and the values."""
        params, features, state = self._step(obs, is_first, state, action_mask, values=True)
        return params, self.state_values(features, params), state

    def _step(self, obs: Obs, is_first: Tensor, state: State, action_mask: Tensor | None, *,
              values: bool, kept: Kept | None = None) -> tuple[Tensor, Tensor, State]:
        """Parameters, the critic's features (the actor's, if nobody wants the values), and the state after."""
        raw = self._split(obs)
        after: list[Tensor] = []
        if self.num_frame_states:
            pairs = [push_frame(part, is_first, frames, pad=self.stack_pad)
                     for part, frames in zip(raw, state[:len(raw)], strict=True)]
            raw = [stack for stack, _ in pairs]
            after = [frames for _, frames in pairs]
        if kept is not None:
            raw = [channels_last(part) for part in raw]
            kept["stack"] = raw[0]
        inputs = self._prepare(raw)
        actor_state, critic_state = self._memory_states(state)
        features, actor_state = self.actor.step(inputs, is_first, actor_state, kept)
        params = self.policy_head(features, action_mask)
        if self.critic is not None and (values or critic_state):
            features, critic_state = self.critic.step(inputs, is_first, critic_state)
        return params, features, (*after, *actor_state, *critic_state)

    def unroll(self, obs: Obs, is_first: Bool[Tensor, "T B"], state: State,
               action_mask: Bool[Tensor, "T B A"] | None = None, kept: Kept | None = None,
               ) -> tuple[Float[Tensor, "T B P"], Float[Tensor, "T B"]]:
        """Parameters and values of observations [T, B, ...], from the state before obs[0]: what `step` gives, at once.

        Gradients flow back through the memory over all steps (with `bptt=False` over one), never into `state`'s past,
        and not from the last row into its torso: that row is only bootstrapped from. `kept` is what the same weights
        kept of each step but the last, [T-1, B, ...], images with their channels last.
        """
        params, features = self.unroll_features(obs, is_first, state, action_mask, kept)
        return params, self.state_values(features, params)

    def unroll_features(self, obs: Obs, is_first: Bool[Tensor, "T B"], state: State,
                        action_mask: Bool[Tensor, "T B A"] | None = None, kept: Kept | None = None,
                        ) -> tuple[Float[Tensor, "T B P"], Float[Tensor, "T B F"]]:
        """`unroll`, with the features that the critic's heads take in place of the values."""
        kept = kept and flattened(kept)
        inputs = self._unrolled_inputs(obs, is_first, state, kept)
        actor_state, critic_state = self._memory_states(state)
        features = self.actor.unroll(*inputs, is_first, actor_state, kept)
        params = self.policy_head(features, action_mask)
        if self.critic is not None:
            features = self.critic.unroll(*inputs, is_first, critic_state)
        return params, features.detach() if self.detach_critic else features

    def unroll_policy(self, obs: Obs, is_first: Bool[Tensor, "T B"], state: State,
                      action_mask: Bool[Tensor, "T B A"] | None = None) -> Float[Tensor, "T B P"]:
        """The parameters that `unroll` gives, without the critic."""
        inputs = self._unrolled_inputs(obs, is_first, state)
        features = self.actor.unroll(*inputs, is_first, self._memory_states(state)[0])
        params: Tensor = self.policy_head(features, action_mask)
        return params

    def state_values(self, features: Float[Tensor, "*batch F"],
                     params: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        """V of the critic's features. A critic of discrete action values has V = Σ_a π(a) Q(a)."""
        values: Tensor = self.value_head(features)
        return (params.softmax(-1) * values).sum(-1) if self.has_q else values.squeeze(-1)

    def action_values(self, features: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch A"]:
        """Q of every discrete action; of a critic that has them (`has_q`)."""
        q_values: Tensor = self.value_head(features)
        return q_values

    def action_advantages(self, features: Float[Tensor, "*batch F"],
                          actions: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch"]:
        """A(x, a) of the stochastic dueling critic, before its mean over the policy's actions is taken off."""
        assert self.advantage_head is not None
        advantages: Tensor = self.advantage_head(features, actions)
        return advantages

    def weights_kept(self) -> AbstractContextManager[Any]:
        """Within it the weights do not change: their copies in bfloat16 are made once, not at each step."""
        if self.image_dtype is None:
            return nullcontext()
        return torch.autocast(self.value_head.weight.device.type, torch.bfloat16, enabled=False)

    def running(self) -> Iterator[tuple[str, RunningMoments]]:
        """All that normalises by running moments, by name."""
        return ((name, module) for name, module in self.named_modules() if isinstance(module, RunningMoments))

    def observe(self, obs: Obs) -> None:
        """Let running normalisers learn: from the raw observations [T, B, ...], and from what was last learnt from."""
        parts = self._split(obs)
        for i, normalizer in self.normalizers.items():
            cast(ObsNormalizer, normalizer).update(parts[int(i)])
        for _, module in self.running():
            if isinstance(module, BatchNorm):
                module.update()

    def _unrolled_inputs(self, obs: Obs, is_first: Tensor, state: State,
                         kept: Kept | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """Of all steps but the last, which may be kept, and of the last."""
        raw = self._split(obs)
        if self.num_frame_states:
            raw = [stack_frames(part, is_first, frames, pad=self.stack_pad)[0]
                   for part, frames in zip(raw, state[:len(raw)], strict=True)]
        if kept:
            return self._prepare([kept["stack"]]), self._prepare([part[-1] for part in raw])
        inputs, learnt = self._prepare([part.flatten(0, 1) for part in raw]), is_first[:-1].numel()
        return [part[:learnt] for part in inputs], [part[learnt:] for part in inputs]

    def _split(self, obs: Obs) -> list[Tensor]:
        return [obs] if isinstance(obs, Tensor) else [obs[key] for key in self.keys]

    def _memory_states(self, state: State) -> tuple[State, State]:
        begin = self.num_frame_states
        end = begin + self.actor.num_states
        return state[begin:end], state[end:]

    def _prepare(self, raw: list[Tensor]) -> list[Tensor]:
        """Stacked observations [N, ...] as floats, vectors normalised, once for the policy and the critic."""
        dtype = self.value_head.weight.dtype
        inputs = []
        for i, (part, x) in enumerate(zip(self.parts, raw, strict=True)):
            if part.kind == "image":
                wanted = self.image_dtype or dtype
                x = to_floats(x, wanted).to(wanted)
                if str(i) in self.normalizers:
                    inputs.append((self.normalizers[str(i)](x) * 255).to(wanted))  # which torsos divide by
                    continue
                inputs.append(x if self.pixel_factor == 1 and not self.pixel_shift
                              else x * self.pixel_factor + self.pixel_shift)
                continue
            if str(i) in self.normalizers:
                x = self.normalizers[str(i)](torch.unflatten(x, -1, (self.frame_stack, -1))).flatten(-2)
            inputs.append(x.to(dtype))
        return inputs


def make_model(config: Config, spec: EnvSpec) -> ActorCritic:
    """The model that `config` asks for in an environment as `spec` says; weights from torch's default generator.

    ConfigError for images too small for the network, squashed means without bounds, masks on actions without any,
    actions that ACER has no critic for, and options that would do nothing.
    """
    if config.algorithm.needs.critic == "action" and spec.action.kind not in ("discrete", "box"):
        raise ConfigError(f"acer is for Discrete and Box actions, not for {spec.action.kind}: its critic gives each "
                          "action a value, and a product space has too many; use a2c or a3c")
    check_inputs(config, spec)
    if config.policy.detach_critic and config.policy.separate:
        raise ConfigError("detach_critic is for a trunk that policy and critic share; give --separate false with it")
    if spec.masked and spec.action.kind not in ("discrete", "multi_discrete"):
        raise ConfigError(f"action masks are for discrete and multi_discrete actions, not for {spec.action.kind}; "
                          "drop action_mask from the environment's info")
    return ActorCritic(config, spec)


def check_inputs(config: Config, spec: EnvSpec) -> None:
    """ConfigError for keys of observations that would do nothing with those of `spec`."""
    kinds = {part.kind for part in spec.parts}
    shown = "vector" if config.policy.network == "conv1d" else "image"
    if config.policy.network not in ("auto", "mlp") and shown not in kinds:
        raise ConfigError(f"network={config.policy.network} is for {shown}s, and this environment shows none; use "
                          "network=auto")
    for key, asked in (("precision", config.policy.precision == "bfloat16"), ("obs_scale", config.policy.pixel_range != (0, 1)),
                       ("image_norm", config.policy.image_norm)):
        if asked and "image" not in kinds:
            raise ConfigError(f"{key}={getattr(config.policy, key)} is for images, and this environment shows none; leave it "
                              "out")
    if config.policy.image_norm and config.policy.pixel_range != (0, 1):
        raise ConfigError(f"obs_scale={config.policy.obs_scale} has no effect on images that image_norm normalises; give one "
                          "of them")
