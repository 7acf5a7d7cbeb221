"""The policy and its critic as one module: frame stack, normalisation, torsos, memory and heads. No sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vantage.algorithms.distributions import Distribution, make_distribution
from vantage.config_groups import PolicyConfig
from vantage.errors import ConfigError
from vantage.models.activation_cache import ActivationCache, flatten_steps
from vantage.models.heads import AdvantageHead, make_policy_head, make_value_head
from vantage.models.normalization import BatchNorm, ObsNormalizer, PixelNormalizer
from vantage.models.recurrent import Recurrent, push_frame, stack_frames
from vantage.models.running_stats import RunningStats
from vantage.models.torsos import ConvTorso, channels_last, make_torso, to_floats
from vantage.types import ArraySpec, EnvSpec, Obs, State


class Trunk(nn.Module):
    """Features of all parts of an observation: a torso for each, side by side, then the memory if there is one."""

    def __init__(self, policy: PolicyConfig, parts: tuple[ArraySpec, ...]) -> None:
        super().__init__()
        images = any(part.kind == "image" for part in parts)

        def network(part: ArraySpec) -> str:  # vectors beside images do not go through a network of the user's
            return "mlp" if images and part.kind == "vector" and ":" in policy.network else policy.network

        torsos = [make_torso(network(part), part, frame_stack=policy.frame_stack, hidden=policy.hidden_sizes,
                             activation=policy.activation, init=policy.init, norm=policy.norm) for part in parts]
        self.torsos = nn.ModuleList(torsos)
        self.out_features = sum(torso.out_features for torso in torsos)
        self.memory: Recurrent | None = None
        if policy.memory != "none":
            self.memory = Recurrent(policy.memory, self.out_features, policy.memory_size, bptt=policy.bptt,
                                    init=policy.init)
            self.out_features = policy.memory_size

    @property
    def num_states(self) -> int:
        return self.memory.num_states if self.memory is not None else 0

    def encode(self, inputs: list[Tensor], cache: ActivationCache | None = None) -> Tensor:
        """[N, F] from one [N, ...] per part, those in bfloat16 through their torsos in bfloat16.

        `cache` is for the layers of a single torso that supports it.
        """
        if cache is not None:
            (torso,), (part,) = self.torsos, inputs
            return cast(Tensor, torso(part, cache))
        features = []
        for torso, part in zip(self.torsos, inputs, strict=True):
            if part.dtype == torch.bfloat16:
                with torch.autocast(part.device.type, torch.bfloat16):
                    features.append(torso(part).to(torch.float32))
            else:
                features.append(torso(part))
        return features[0] if len(features) == 1 else torch.cat(features, -1)

    def step(self, inputs: list[Tensor], is_first: Tensor, state: State,
             cache: ActivationCache | None = None) -> tuple[Tensor, State]:
        features = self.encode(inputs, cache)
        return (features, ()) if self.memory is None else self.memory.step(features, is_first, state)

    def unroll(self, inputs: list[Tensor], last: list[Tensor], is_first: Tensor, state: State,
               cache: ActivationCache | None = None) -> Tensor:
        # The last row is only bootstrapped from, as a constant: backpropagating its zeros through the torso would cost
        # 1/(T+1) of the learning time.
        with torch.no_grad():
            features = self.encode(last)
        if len(is_first) > 1:
            features = torch.cat([self.encode(inputs, cache), features])
        features = torch.unflatten(features, 0, is_first.shape)
        return features if self.memory is None else self.memory.unroll(features, is_first, state)


class ActorCritic(nn.Module):
    """Distribution parameters and values of raw observations; `make_model` builds it.

    Its state, in this order, each [B, ...]: the last frame_stack - 1 observations of every part of the observation in
    their raw dtype, sorted by key (none if frame_stack is 1); the policy's (h, c) or (h,); with `separate`, the same of
    the critic. `is_first` clears it before the observation it belongs to, so any contents do before an episode's start.
    Observations lie on the model's device.
    """

    def __init__(self, policy: PolicyConfig, spec: EnvSpec, *, critic: Literal["state", "action"]) -> None:
        super().__init__()
        self.spec = spec
        self.distribution: Distribution = make_distribution(spec.action)
        self.keys = tuple(sorted(spec.obs)) if isinstance(spec.obs, Mapping) else ()
        parts = self.parts = spec.parts
        self.frame_stack, self.stack_pad = policy.frame_stack, policy.stack_pad
        self.image_dtype = torch.bfloat16 if policy.precision == "bfloat16" else None  # None: the weights'
        low, high = policy.pixel_range
        # What brings pixels to that range once the torsos have divided them by 255.
        self.pixel_factor, self.pixel_shift = high - low, 255 * low
        self.num_frame_states = len(parts) if policy.frame_stack > 1 else 0
        self.normalizers = nn.ModuleDict(
            {str(i): ObsNormalizer(part.shape[0]) if part.kind == "vector" else PixelNormalizer()
             for i, part in enumerate(parts) if (policy.obs_norm if part.kind == "vector" else policy.image_norm)})
        self.actor = Trunk(policy, parts)
        self.critic = Trunk(policy, parts) if policy.separate else None
        self.detach_critic = policy.detach_critic
        self.policy_head = make_policy_head(
            self.actor.out_features, spec.action, std=policy.std, log_std_init=policy.log_std_init,
            min_std=policy.min_std, squash_mean=policy.squash_mean, init=policy.init)
        critic_features = (self.critic or self.actor).out_features
        self.fixed_deviation = policy.std == "fixed"
        self.has_q = critic == "action" and spec.action.kind == "discrete"
        self.value_head = make_value_head(critic_features, spec.action.sizes[0] if self.has_q else 1, init=policy.init)
        self.advantage_head = (AdvantageHead(critic_features, spec.action.sizes[0], init=policy.init)
                               if critic == "action" and spec.action.kind == "box" else None)

    @property
    def can_cache(self) -> bool:
        """`step` and `unroll` accept an activation cache: one image part through plain convolutions in float32."""
        torso = self.actor.torsos[0]
        return len(self.parts) == 1 and isinstance(torso, ConvTorso) and torso.can_cache and self.image_dtype is None

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
             cache: ActivationCache | None = None) -> tuple[Float[Tensor, "B P"], State]:
        """Parameters of one observation [B, ...] of each environment, and the state after it.

        A separate critic runs only if it has a memory to advance: it is a third of acting for an mlp. An empty `cache`
        is filled with layer outputs that `unroll` may reuse (if `can_cache`).
        """
        params, _, state = self._step(obs, is_first, state, action_mask, values=False, cache=cache)
        return params, state

    def step_with_values(self, obs: Obs, is_first: Bool[Tensor, " B"], state: State,
                         action_mask: Bool[Tensor, "B A"] | None = None,
                         ) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"], State]:
        """`step`, and the values."""
        params, features, state = self._step(obs, is_first, state, action_mask, values=True)
        return params, self.state_values(features, params), state

    def _step(self, obs: Obs, is_first: Tensor, state: State, action_mask: Tensor | None, *,
              values: bool, cache: ActivationCache | None = None) -> tuple[Tensor, Tensor, State]:
        """Parameters, the critic's features (the actor's unless `values`), and the next state."""
        raw = self._split(obs)
        after: list[Tensor] = []
        if self.num_frame_states:
            pairs = [push_frame(part, is_first, frames, pad=self.stack_pad)
                     for part, frames in zip(raw, state[:len(raw)], strict=True)]
            raw = [stack for stack, _ in pairs]
            after = [frames for _, frames in pairs]
        if cache is not None:
            raw = [channels_last(part) for part in raw]
            cache["stack"] = raw[0]
        inputs = self._prepare(raw)
        actor_state, critic_state = self._memory_states(state)
        features, actor_state = self.actor.step(inputs, is_first, actor_state, cache)
        params = self.policy_head(features, action_mask)
        if self.critic is not None and (values or critic_state):
            features, critic_state = self.critic.step(inputs, is_first, critic_state)
        return params, features, (*after, *actor_state, *critic_state)

    def unroll(self, obs: Obs, is_first: Bool[Tensor, "T B"], state: State,
               action_mask: Bool[Tensor, "T B A"] | None = None, cache: ActivationCache | None = None,
               ) -> tuple[Float[Tensor, "T B P"], Float[Tensor, "T B"]]:
        """Parameters and values of observations [T, B, ...], from the state before obs[0]: what `step` gives, at once.

        Gradients flow back through the memory over all steps (with `bptt=False` over one), never into `state`'s past,
        and not from the last row into its torso: that row is only bootstrapped from. `cache` holds outputs of `step`
        for all rows but the last, [T-1, B, ...], images with channels last; ValueError if the weights have changed.
        """
        params, features = self.unroll_features(obs, is_first, state, action_mask, cache)
        return params, self.state_values(features, params)

    def unroll_features(self, obs: Obs, is_first: Bool[Tensor, "T B"], state: State,
                        action_mask: Bool[Tensor, "T B A"] | None = None, cache: ActivationCache | None = None,
                        ) -> tuple[Float[Tensor, "T B P"], Float[Tensor, "T B F"]]:
        """`unroll`, with the input features of the critic's heads instead of values."""
        if cache:
            cache = flatten_steps(cache)
        inputs = self._unrolled_inputs(obs, is_first, state, cache)
        actor_state, critic_state = self._memory_states(state)
        features = self.actor.unroll(*inputs, is_first, actor_state, cache)
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

    def constant_weights(self) -> AbstractContextManager[Any]:
        """Context in which weights do not change, so that their bfloat16 copies are made once instead of every step."""
        if self.image_dtype is None:
            return nullcontext()
        return torch.autocast(self.value_head.weight.device.type, torch.bfloat16, enabled=False)

    def running(self) -> Iterator[tuple[str, RunningStats]]:
        """All modules with running statistics, by name."""
        return ((name, module) for name, module in self.named_modules() if isinstance(module, RunningStats))

    def observe(self, obs: Obs) -> None:
        """Update all running statistics: from raw observations [T, B, ...], and from BatchNorm's last batch."""
        parts = self._split(obs)
        for i, normalizer in self.normalizers.items():
            cast(ObsNormalizer, normalizer).update(parts[int(i)])
        for _, module in self.running():
            if isinstance(module, BatchNorm):
                module.update()

    def _unrolled_inputs(self, obs: Obs, is_first: Tensor, state: State,
                         cache: ActivationCache | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs of all steps but the last, from the cache if there is one, and of the last."""
        raw = self._split(obs)
        if self.num_frame_states:
            raw = [stack_frames(part, is_first, frames, pad=self.stack_pad)[0]
                   for part, frames in zip(raw, state[:len(raw)], strict=True)]
        if cache:
            return self._prepare([cache["stack"]]), self._prepare([part[-1] for part in raw])
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


def make_model(policy: PolicyConfig, spec: EnvSpec, *, critic: Literal["state", "action"]) -> ActorCritic:
    """The model of `policy` for an environment `spec`; initial weights come from torch's default generator.

    `critic` is what it values: states, V(s), or actions, Q(s, a), as ACER needs.

    ConfigError for images too small for the network, squashed means without bounds, masks on actions without any,
    actions that ACER has no critic for, and options that would do nothing.
    """
    if critic == "action" and spec.action.kind not in ("discrete", "box"):
        raise ConfigError(f"acer is for Discrete and Box actions, not for {spec.action.kind}: its critic gives each "
                          "action a value, and a product space has too many; use a2c or a3c")
    check_inputs(policy, spec)
    if policy.detach_critic and policy.separate:
        raise ConfigError("detach_critic is for a trunk that policy and critic share; give --separate false with it")
    if spec.masked and spec.action.kind not in ("discrete", "multi_discrete"):
        raise ConfigError(f"action masks are for discrete and multi_discrete actions, not for {spec.action.kind}; "
                          "drop action_mask from the environment's info")
    return ActorCritic(policy, spec, critic=critic)


def check_inputs(policy: PolicyConfig, spec: EnvSpec) -> None:
    """ConfigError for keys of observations that would do nothing with those of `spec`."""
    kinds = {part.kind for part in spec.parts}
    shown = "vector" if policy.network == "conv1d" else "image"
    if policy.network not in ("auto", "mlp") and ":" not in policy.network and shown not in kinds:
        raise ConfigError(f"network={policy.network} is for {shown}s, and this environment shows none; use "
                          "network=auto")
    for key, asked in (("precision", policy.precision == "bfloat16"), ("obs_scale", policy.pixel_range != (0, 1)),
                       ("image_norm", policy.image_norm)):
        if asked and "image" not in kinds:
            raise ConfigError(f"{key}={getattr(policy, key)} is for images, and this environment shows none; leave it "
                              "out")
    if policy.image_norm and policy.pixel_range != (0, 1):
        raise ConfigError(f"obs_scale={policy.obs_scale} has no effect on images that image_norm normalises; give one "
                          "of them")
