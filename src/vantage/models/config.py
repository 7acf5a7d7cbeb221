"""The config keys of the policy and value network."""

from __future__ import annotations

from dataclasses import dataclass

from vantage.errors import ConfigError
from vantage.keys.fields import check_fields, key
from vantage.keys.given_fields import remembering_arguments
from vantage.keys.schedules import parse_number


@remembering_arguments
@dataclass(frozen=True)
class PolicyConfig:
    """The policy and value network."""

    network: str = key("auto", "torso, or module:Class; auto: a3c for images, minatar below 20 "
                               "pixels, mlp for vectors",
                       choices=("auto", "mlp", "a3c", "nature", "minatar", "universe", "impala",
                                "maxpool", "conv4",
                                "conv5", "conv1d"), open=True)
    hidden: tuple[int, ...] = key((64, 64), "layer widths of the mlp", low=1, high=65_536)
    activation: str = key("tanh", "activation of the mlp; leaky_relu has slope 0.25 below 0",
                          choices=("tanh", "relu", "elu", "silu", "leaky_relu"))
    torsos: str = key("joint", "joint: one mlp for all vectors of a Dict or Tuple; separate: one "
                               "mlp for each",
                             choices=("joint", "separate"))
    norm: str = key("none", "normalisation before each activation of the torso",
                    choices=("none", "layer", "batch"))
    memory: str = key("none", "memory after the torso: none, lstm, gru, gtrxl (a transformer), or "
                              "module:Class",
                      choices=("none", "lstm", "gru", "gtrxl"), open=True)
    memory_size: int = key(256, "units of the memory", low=1, high=65_536)
    memory_window: int = key(128, "past steps that a gtrxl attends to, across rollouts", low=1,
                             high=4096)
    memory_layers: int = key(2, "layers of a gtrxl", low=1, high=64)
    memory_heads: int = key(4, "attention heads of each layer of a gtrxl; they divide memory_size",
                            low=1, high=64)
    bptt: bool = key(True, "backpropagate through the whole rollout; off: one-step gradients from "
                           "the stored states")
    frame_stack: int = key(1, "stacked observations, including the newest", low=1, high=64)
    stack_pad: str = key("zeros", "padding of the stack at the start of an episode",
                         choices=("zeros", "repeat"))
    separate: bool = key(False, "separate networks for policy and critic")
    critic_obs: str = key("none", "parts of a Dict observation for the critic alone, such as "
                                  "state,map; needs --separate")
    detach_critic: bool = key(False, "stop the critic's gradient before the shared trunk")
    value_norm: str = key("none", "normalise values by the mean and deviation of their targets; "
                                  "popart: values are preserved where these change",
                          choices=("none", "popart"))
    init: str = key("orthogonal", "initial weights; orthogonal: gains sqrt 2, policy 0.01, value "
                    "1; columns: norm 1, policy 0.01",
                    choices=("orthogonal", "torch", "columns", "kaiming", "xavier"))
    distribution: str = key("gaussian", "distribution of Box actions; gaussian: clipped to the "
                            "bounds; squashed: a Gaussian through tanh; beta: Beta, both within "
                            "finite bounds", choices=("gaussian", "squashed", "beta"))
    std: str = key("free", "standard deviation of Gaussian actions: free parameters, fixed, or a "
                   "function of the state (squashed: variance in [0.06, 1.06])",
                   choices=("free", "state", "squashed", "fixed"))
    log_std_init: float = key(0.0, "initial log standard deviation of Gaussian actions, unless "
                                   "squashed")
    min_std: float = key(1e-3, "lower bound on the standard deviation of Gaussian actions", low=0)
    std_lr_scale: float = key(1.0, "factor on the learning rate of a free standard deviation",
                              low=1e-6, high=1e6)
    squash_mean: bool = key(False, "tanh on the mean of Gaussian actions, scaled to the action "
                                   "bounds")
    obs_norm: bool = key(False, "normalise vector observations by their running mean and deviation")
    one_hot: str = key("scaled", "Discrete and binary observations; scaled: one-hots of n values "
                       "times the root of n; vector: as other vectors",
                       choices=("scaled", "vector"))
    image_norm: str = key("none", "normalise images by the mean and deviation of all their pixels "
                          "together, or of each pixel", choices=("none", "global", "pixel"))
    image_norm_steps: int = key(0, "agent steps of random play before training that fix the "
                                "statistics of images; 0: they follow training", low=0,
                                high=10_000_000)
    obs_scale: str = key("0:1", "range LOW:HIGH for the pixels 0 to 255 of images")
    precision: str = key("float32", "precision of torsos for images; weights stay float32; auto: "
                         "bfloat16 on Atari where the CPU computes in it",
                         choices=("float32", "bfloat16", "auto"))
    init_from: str | None = key(None, "run, .safetensors file or zoo:NAME to start from; its "
                                      "weights and normalisers")
    init_checkpoint: str = key("auto", "checkpoint of --init-from: latest, best or a step; auto: "
                                       "best if there is one")

    def __post_init__(self) -> None:
        check_fields(self)
        self.pixel_range  # noqa: B018  raises where it is no range

    @property
    def critic_parts(self) -> tuple[str, ...]:
        """The names of the parts of an observation that only the critic sees."""
        names = () if self.critic_obs in ("none", "") else self.critic_obs.split(",")
        return tuple(name.strip() for name in names)

    @property
    def pixel_range(self) -> tuple[float, float]:
        """The values that the pixels 0 and 255 are mapped to."""
        try:
            low, high = (parse_number(part) for part in self.obs_scale.split(":"))
        except ValueError:
            low = high = 0.0
        if not -1e9 <= low < high <= 1e9:
            raise ConfigError(f"obs_scale={self.obs_scale!r} is not a range LOW:HIGH, such as 0:1, "
                              "0:255 or -1:1")
        return low, high
