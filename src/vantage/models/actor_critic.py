"""The policy and its critic in one module: frame stack, normalisation, torsos, memory, heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vantage.algorithms.joint_distribution import Distribution, make_distribution
from vantage.models.activation_cache import ActivationCache
from vantage.models.config import PolicyConfig
from vantage.models.frame_stack import push_frame, stack_frames
from vantage.models.heads import AdvantageHead, linear_head, make_head
from vantage.models.images import channels_at_end, channels_first, channels_last, in_pieces, to_pixels
from vantage.models.inputs import Group, Preprocessor, side_by_side
from vantage.models.normalization import Batch, BatchNorm, ObsNormalizer, RunningStats
from vantage.models.torsos import ConvTorso
from vantage.models.trunk import Trunk
from vantage.models.value_norm import ValueNormalizer
from vantage.types import EnvSpec, Obs, State

IsFirst = Bool[Tensor, "*T B"]
Mask = Bool[Tensor, "*T B A"]
Params = Float[Tensor, "*T B P"]
Features = Float[Tensor, "*T B F"]
Values = Float[Tensor, "*T B"]



class ActorCritic(nn.Module):
    """Distribution parameters and values of raw observations on the model's device.

    The state is a tuple of tensors [B, ...], in this order:
    - the last frame_stack - 1 observations of each part, raw, sorted by key (none with 1);
    - the state of the policy's memory, (h, c) for an lstm;
    - with `separate`, the state of the critic's memory.
    Where `is_first` is True, the state is cleared before the observation is used. `step` also takes
    the parts of `acting_spec` alone, and a state without the critic's.
    """

    def __init__(self, policy: PolicyConfig, spec: EnvSpec, *,
                 critic: Literal["state", "action"]) -> None:
        super().__init__()
        self.policy = policy
        self.spec = spec
        self.parts = spec.parts
        self.keys = spec.keys
        self.acting_spec = spec.without(policy.critic_parts)
        self.distribution: Distribution = make_distribution(spec.action, policy.distribution)
        self.num_frame_states = len(self.parts) if policy.frame_stack > 1 else 0
        self.preprocessor = Preprocessor(policy, spec)
        self.image_dtype = self.preprocessor.image_dtype
        # The preprocessor is no module, so its modules are registered here.
        self.normalizers = self.preprocessor.normalizers
        self.scales = self.preprocessor.scales
        self.groups = self.preprocessor.groups
        inputs = tuple(group.spec for group in self.groups)
        titles = tuple(self.keys[group.places[0]] for group in self.groups if self.keys)
        shared = len(self.preprocessor.shared)
        self.actor = Trunk(policy, inputs[:shared], titles[:shared])
        self.critic = Trunk(policy, inputs, titles) if policy.separate else None
        actor_features = self.actor.out_features
        critic_features = (self.critic or self.actor).out_features
        self.policy_head = make_head(actor_features, spec.action, policy)
        self.fixed_deviation = policy.std == "fixed"
        self.has_q = critic == "action" and spec.action.kind == "discrete"
        num_values = spec.action.sizes[0] if self.has_q else 1
        self.value_head = linear_head(critic_features, num_values, init=policy.init)
        self.value_norm = ValueNormalizer() if policy.value_norm == "popart" else None
        self.advantage_head: AdvantageHead | None = None
        if critic == "action" and spec.action.kind == "box":
            self.advantage_head = AdvantageHead(critic_features, spec.action.sizes[0],
                                                init=policy.init)
        torso = self.actor.torsos[0]
        self.can_cache = (len(self.parts) == 1 and isinstance(torso, ConvTorso) and torso.can_cache
                          and self.image_dtype is None)
        """`step` and `unroll` accept an activation cache."""

    def initial_state(self, batch: int) -> State:
        """The state of `batch` environments before an episode, on the model's device."""
        weight = self.value_head.weight
        frames = [weight.new_zeros(batch, self.policy.frame_stack - 1, *part.shape,
                                   dtype=getattr(torch, part.dtype))
                  for part in self.parts[:self.num_frame_states]]
        cells = self.actor.initial_state(batch)
        if self.critic is not None:
            cells += self.critic.initial_state(batch)
        return *frames, *(part.detach().to(weight.device) for part in cells)

    def step(self, obs: Obs, is_first: IsFirst, state: State, action_mask: Mask | None = None,
             cache: ActivationCache | None = None) -> tuple[Params, State]:
        """Parameters of observations [B, ...] and the next state; fills an empty `cache`."""
        return self._step(obs, is_first, state, action_mask, cache, values=False)[1:]

    def step_with_values(self, obs: Obs, is_first: IsFirst, state: State,
                         action_mask: Mask | None = None,
                         stacks: tuple[Tensor, ...] | None = None) -> tuple[Params, Values, State]:
        """Parameters and values of observations [B, ...], and the next state.

        Writes what `stacks` returns for these observations to `stacks`, if given.
        """
        features, params, state = self._step(obs, is_first, state, action_mask, None, values=True,
                                             stacks=stacks)
        values = self.state_values(features, params)
        if self.value_norm is not None:
            values = values * self.value_norm.deviation
        return params, values, state

    # TensorBoard traces `forward` for its graph.
    forward = step_with_values

    def _step(self, obs: Obs, is_first: Tensor, state: State, action_mask: Tensor | None,
              cache: ActivationCache | None, *, values: bool,
              stacks: tuple[Tensor, ...] | None = None) -> tuple[Tensor, Tensor, State]:
        raw = self._split(obs)
        frames = []
        for i, past in enumerate(state[:self.num_frame_states]):
            raw[i], past = push_frame(raw[i], is_first, past, pad=self.policy.stack_pad)
            frames.append(past)
        if cache is not None or stacks is not None:
            raw = [channels_last(x) for x in raw]
        if cache is not None:
            cache["stack"] = raw[0].permute(0, 2, 3, 1)
        for out, x in zip(stacks or (), raw, strict=stacks is not None):
            out.copy_(channels_at_end(x))
        inputs = self._prepare(raw)
        actor_state, critic_state = self._memory_states(state)
        features, actor_state = self.actor.step(inputs, is_first, actor_state, cache)
        params = self.policy_head(features, action_mask)
        # A separate critic takes a third of acting with an mlp: skip it unless it is needed.
        critic = self.critic if len(inputs) == len(self.groups) else None
        if critic is not None and (values or critic_state):
            features, critic_state = critic.step(inputs, is_first, critic_state)
        return features, params, (*frames, *actor_state, *critic_state)

    def unroll(self, obs: Obs, is_first: IsFirst, state: State, action_mask: Mask | None = None,
               cache: ActivationCache | None = None) -> tuple[Params, Values]:
        """Parameters and values of observations [T, B, ...], equal to those of T calls of `step`.

        With value_norm, values are divided by the deviation of their targets, as losses take them.

        `state` is the state before obs[0]. The last row only bootstraps: no gradient flows from it
        into its torso. `cache` holds the outputs of `step` for the other rows, [T-1, B, ...],
        computed with the current weights.
        """
        params, features = self.unroll_features(obs, is_first, state, action_mask, cache)
        return params, self.state_values(features, params)

    def unroll_features(self, obs: Obs, is_first: IsFirst, state: State,
                        action_mask: Mask | None = None,
                        cache: ActivationCache | None = None, *,
                        critic: bool = True) -> tuple[Params, Features]:
        """`unroll` with the critic's features (without `critic`, the actor's) instead of values."""
        raw = self.stacks(obs, is_first, state)
        last = self._prepare([channels_first(part[-1]) for part in raw])
        cache = cache or None
        inputs: list[Tensor] | None = None
        if cache:
            cache = {name: part.flatten(0, 1) for name, part in cache.items()}
            inputs = self._prepare([cache["stack"].permute(0, 3, 1, 2)])
        elif len(is_first) > 1:
            inputs = self._prepare(self._flat(tuple(part[:-1] for part in raw)))
        return self._unroll(inputs, last, is_first, state, action_mask, cache, critic=critic)

    @torch.no_grad()
    def inputs(self, stacks: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs of the torsos for `stacks` [T, B, ...]: normalised, images with channels last.

        Compute them before `observe` changes the normalisers.
        """
        if all(group.kind != "image" for group in self.groups):
            return tuple(self._prepare(list(stacks)))
        return in_pieces(self._prepare, stacks)

    def unroll_inputs(self, inputs: tuple[Tensor, ...], is_first: IsFirst, state: State,
                      action_mask: Mask | None = None) -> tuple[Params, Values]:
        """`unroll` of `inputs` [T, B, ...]; gradients flow through every row."""
        params, features = self._unroll(self._flat(inputs), None, is_first, state, action_mask)
        return params, self.state_values(features, params)

    @property
    def num_features(self) -> int:
        return self.actor.out_features

    def features(self, inputs: tuple[Tensor, ...], is_first: IsFirst, state: State) -> Features:
        """Inputs of the policy's head [T, B, F]; gradients flow through every row."""
        actor_state, _ = self._memory_states(state)
        return self.actor.unroll(self._flat(inputs), None, is_first, actor_state)

    def _flat(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """`inputs` [T, B, ...] as the torsos take them, [T * B, ...]."""
        return [channels_first(x.flatten(0, 1)) for x in inputs]

    def stacks(self, obs: Obs, is_first: IsFirst, state: State) -> tuple[Tensor, ...]:
        """Each part of observations [T, B, ...] with the frames before it, raw.

        Images have their channels last.
        """
        raw = self._split(obs)
        for i, past in enumerate(state[:self.num_frame_states]):
            raw[i] = stack_frames(raw[i], is_first, past, pad=self.policy.stack_pad)
        for i, part in enumerate(self.parts):
            if part.kind == "image":
                image = channels_at_end(channels_last(raw[i].flatten(0, 1)))
                raw[i] = torch.unflatten(image, 0, is_first.shape)
        return tuple(raw)

    def _unroll(self, inputs: list[Tensor] | None, last: list[Tensor] | None, is_first: Tensor,
                state: State, action_mask: Tensor | None, cache: ActivationCache | None = None, *,
                critic: bool = True) -> tuple[Tensor, Tensor]:
        actor_state, critic_state = self._memory_states(state)
        features = self.actor.unroll(inputs, last, is_first, actor_state, cache)
        params = self.policy_head(features, action_mask)
        if critic and self.critic is not None:
            features = self.critic.unroll(inputs, last, is_first, critic_state)
        return params, features.detach() if self.policy.detach_critic else features

    def state_values(self, features: Features, params: Params) -> Values:
        """V(s) of the critic's features, or Σ_a π(a) Q(a); divided by σ with value_norm."""
        values: Tensor = self.value_head(features)
        if self.value_norm is not None:
            values = self.value_norm(values)
        return (params.softmax(-1) * values).sum(-1) if self.has_q else values.squeeze(-1)

    def action_values(self, features: Features) -> Float[Tensor, "*T B A"]:
        """Q of every discrete action; only with `has_q`."""
        return cast(Tensor, self.value_head(features))

    def action_advantages(self, features: Features, actions: Float[Tensor, "*T B D"]) -> Values:
        """A(x, a) of the stochastic dueling critic, before the policy's mean is subtracted."""
        assert self.advantage_head is not None
        return cast(Tensor, self.advantage_head(features, actions))

    def constant_weights(self) -> AbstractContextManager[Any]:
        """Context in which weights do not change: their bfloat16 copies are made only once."""
        if self.image_dtype is None:
            return nullcontext()
        return torch.autocast(self.value_head.weight.device.type, torch.bfloat16, enabled=False)

    def running_stats(self) -> Iterator[tuple[str, RunningStats]]:
        """All modules with running statistics, by name."""
        return ((name, module) for name, module in self.named_modules()
                if isinstance(module, RunningStats))

    def observe(self, obs: Obs, *kinds: str) -> None:
        """Update all running statistics; arguments as for `batches`."""
        for merge, stats in self.batches(obs, *kinds):
            merge(*stats)
        self.update_batch_norms()

    def batches(self, obs: Obs, *kinds: str) -> list[Batch]:
        """Statistics of raw observations [T, B, ...] for the normalisers of parts of these kinds.

        By default vectors, and images unless `image_norm_steps` fixes their statistics. Sets are
        vectors here, a sample for each entity that exists.
        """
        if not kinds:
            kinds = ("vector",) if self.policy.image_norm_steps else ("vector", "image")
        parts = self._split(obs)
        batches: list[Batch] = []
        for i, normalizer in cast(Mapping[str, ObsNormalizer], self.normalizers).items():
            group = self.groups[int(i)]
            if ("image" if group.kind == "image" else "vector") in kinds:
                samples = self._side_by_side(group, parts)
                batches.append((normalizer.merge, normalizer.batch(samples)))
        return batches

    def _side_by_side(self, group: Group, parts: list[Tensor]) -> Tensor:
        """The raw input of the normaliser of `group`."""
        if group.kind == "set":
            x = parts[group.vectors[0]]
            return x[x[..., -1] > 0.5][:, :-1]
        return side_by_side([to_pixels(self.parts[place], parts[place]) for place in group.vectors])

    def update_batch_norms(self) -> None:
        """Update the statistics of each BatchNorm with its last batch."""
        for _, module in self.running_stats():
            if isinstance(module, BatchNorm):
                module.update()

    @property
    def recurrent(self) -> bool:
        """Whether a memory carries a state, so that steps must be computed in order."""
        return self.actor.memory is not None

    def _split(self, obs: Obs) -> list[Any]:
        return [obs] if isinstance(obs, Tensor) else [*map(obs.get, self.keys)]

    def _memory_states(self, state: State) -> tuple[State, State]:
        end = self.num_frame_states + self.actor.num_states
        return state[self.num_frame_states:end], state[end:]

    def _prepare(self, raw: list[Tensor]) -> list[Tensor]:
        return self.preprocessor(raw, self.value_head.weight.dtype)
