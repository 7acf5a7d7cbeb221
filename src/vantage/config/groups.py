"""The groups of config keys, except the algorithms': one frozen, validated dataclass each. Not how they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.fields import check_fields, documented, key, named_choices, read_json_object
from vantage.keys.schedules import Coefficient, parse_number

OBS_KINDS = ("auto", "image", "vector", "codes")
"""What `obs_as` may say of a part of the observation. "bytes", for all parts, is how older runs read theirs."""
OPTIMIZERS = ("rmsprop_tf", "rmsprop", "adam", "amsgrad")
"""Those that workers and ranks can share; others are classes of torch.optim."""


@documented
@dataclass(frozen=True)
class EnvConfig:
    """Environments, observations and rewards."""

    id: str = key("CartPole-v1", "Gymnasium id, short Atari name (Pong) or module:Class")
    num_envs: int = key(8, "number of environments; with hogwild and ray, of each worker", low=1, high=100_000)
    env_kwargs: str = key("{}", "JSON object of keyword arguments for the environment")
    vector: str = key("sync", "async: each environment in its own process (not Atari)", choices=("sync", "async"))
    env_timeout: float = key(120.0, "seconds without an answer after which an environment counts as hung (under "
                             "hogwild: without an update, a worker); 0: never", low=0, high=1e9)
    atari_protocol: str = key("auto", "auto: Pong and NoFrameskip-v4 are classic, ALE/...-v5 is v5",
                              choices=("auto", "classic", "v5", "machado"))
    action_subset: str = key("all", "actions to choose from: indices (0,2,3), on Atari also meanings (NOOP,LEFT)")
    frame_skip: str = key("auto", "frames per action, or a range such as 2-4 to sample from; auto: 4 on Atari")
    max_frames: int | None = key(None, "pixelwise maximum over this many frames; none: 2 on Atari", low=1, high=1000)
    crop: str = key("none", "pixels to crop: TOP,BOTTOM,LEFT,RIGHT, or a table by game (rl-a3c-pytorch)")
    screen_size: str = key("auto", "resize images to N pixels square or HEIGHTxWIDTH; auto: 84 on Atari")
    grayscale: bool | None = key(None, "convert images to gray; none: on Atari, elsewhere unchanged")
    obs_as: str = key("auto", "take observations for image, vector or codes, or by part: camera=image,map=codes; "
                      "bytes: as older runs")
    obs_shift: str = key("auto", "JSON object of numbers to subtract from each part; auto: large offsets; none: no")
    noop_max: int | None = key(None, "Atari: exclusive upper bound on random no-ops at reset", low=0, high=10_000)
    random_start: int = key(0, "upper bound on random one-frame actions at an episode's start", low=0, high=10_000)
    fire_on_reset: bool | None = key(None, "Atari: press FIRE after a reset and a lost life; none: as atari_protocol")
    scale_actions: bool = key(False, "act from -1 to 1 in the bounded dimensions of Box actions, scaled to their "
                              "bounds; off: in the environment's units")
    reward: str = key("raw", "rewards to learn from; clip: to [-1, 1]; scores are raw", choices=("raw", "sign", "clip"))
    reward_scale: float = key(1.0, "factor on rewards, applied after --reward")
    reward_floor: float | None = key(None, "lower bound on rewards, after --reward-scale; none: no bound")
    reward_norm: bool = key(False, "divide rewards by the running deviation of the discounted return")
    reward_terminates: bool = key(False, "a reward ends the return but not the game, as for single points of Pong")
    max_episode_steps: int = key(0, "time limit in agent steps; 0: the environment's own", low=0, high=10**12)
    short_episode_steps: int = key(0, "time limit of every short_episode_every-th environment in training, for more "
                                   "starts; their scores are not reported; 0: none", low=0, high=10**12)
    short_episode_every: int = key(8, "2: every second environment, 3: every third, ...", low=2, high=100_000)

    def __post_init__(self) -> None:
        check_fields(self)
        self.env_options  # noqa: B018  raises where it is no JSON object
        self.kinds_of_parts  # noqa: B018
        self.shifts  # noqa: B018

    @property
    def env_options(self) -> dict[str, Any]:
        """Keyword arguments of the environment."""
        try:
            return read_json_object(self.env_kwargs, source=f"env_kwargs={self.env_kwargs!r}")
        except ConfigError as error:
            raise ConfigError(f"{error}; write for example {{\"goal_velocity\": 0.1}}") from None


    @property
    def kinds_of_parts(self) -> dict[str, str]:
        """What `obs_as` says of each part of the observation by its name; "" stands for all that it does not name."""
        if self.obs_as == "bytes":
            return {"": "bytes"}
        return named_choices("obs_as", self.obs_as, OBS_KINDS, "camera=image,map=codes")

    @property
    def shifts(self) -> dict[str, tuple[float, ...]] | None:
        """The numbers that `obs_shift` subtracts from each part by its name; None: from the first observation."""
        if self.obs_shift in ("auto", "none"):
            return None if self.obs_shift == "auto" and self.obs_as != "bytes" else {}
        source = f"obs_shift={self.obs_shift!r:.80}"
        values = read_json_object(self.obs_shift, source=source)
        for numbers in values.values():
            if not (isinstance(numbers, list) and all(type(each) in (int, float) and abs(each) < 1e300
                                                      for each in numbers)):
                raise ConfigError(f"{source} is not a list of numbers for each part; give auto, none or for example "
                                  '{"clock": [1.7e9]}')
        return {name: tuple(numbers) for name, numbers in values.items()}


@documented
@dataclass(frozen=True)
class PolicyConfig:
    """The policy and value network."""

    network: str = key("auto", "torso, or module:Class; auto: a3c for images, minatar below 20 pixels, mlp for vectors",
                       choices=("auto", "mlp", "a3c", "nature", "minatar", "universe", "impala", "maxpool", "conv4",
                                "conv5", "conv1d"), open=True)
    hidden: tuple[int, ...] = key((64, 64), "layer widths of the mlp", low=1, high=65_536)
    activation: str = key("tanh", "activation of the mlp; leaky_relu has slope 0.25 below 0",
                          choices=("tanh", "relu", "elu", "silu", "leaky_relu"))
    torsos: str = key("joint", "joint: one mlp for all vectors of a Dict or Tuple; separate: one mlp for each",
                             choices=("joint", "separate"))
    norm: str = key("none", "normalisation before each activation of the torso", choices=("none", "layer", "batch"))
    memory: str = key("none", "memory after the torso: none, lstm, gru, or module:Class",
                      choices=("none", "lstm", "gru"), open=True)
    memory_size: int = key(256, "units of the memory", low=1, high=65_536)
    bptt: bool = key(True, "backpropagate through the whole rollout; off: one-step gradients from the stored states")
    frame_stack: int = key(1, "stacked observations, including the newest", low=1, high=64)
    stack_pad: str = key("zeros", "padding of the stack at the start of an episode", choices=("zeros", "repeat"))
    separate: bool = key(False, "separate networks for policy and critic")
    detach_critic: bool = key(False, "stop the critic's gradient before the shared trunk")
    init: str = key("orthogonal", "initial weights; orthogonal: gains sqrt 2, policy 0.01, value 1; columns: norm 1, "
                    "policy 0.01", choices=("orthogonal", "torch", "columns", "kaiming", "xavier"))
    std: str = key("free", "standard deviation of Gaussian actions: free parameters, fixed, or a function of the state "
                   "(squashed: variance in [0.06, 1.06])", choices=("free", "state", "squashed", "fixed"))
    log_std_init: float = key(0.0, "initial log standard deviation of Gaussian actions, unless squashed")
    min_std: float = key(1e-3, "lower bound on the standard deviation of Gaussian actions", low=0)
    std_lr_scale: float = key(1.0, "factor on the learning rate of a free standard deviation", low=1e-6, high=1e6)
    squash_mean: bool = key(False, "tanh on the mean of Gaussian actions, scaled to the action bounds")
    obs_norm: bool = key(False, "normalise vector observations by their running mean and deviation")
    one_hot: str = key("scaled", "Discrete and binary observations; scaled: one-hots of n values times the root of n; "
                       "vector: as other vectors", choices=("scaled", "vector"))
    image_norm: str = key("none", "normalise images by the mean and deviation of all their pixels together, or of "
                          "each pixel", choices=("none", "global", "pixel"))
    image_norm_steps: int = key(0, "agent steps of random play before training that fix the statistics of images; "
                                "0: they follow training", low=0, high=10_000_000)
    obs_scale: str = key("0:1", "range LOW:HIGH for the pixels 0 to 255 of images")
    precision: str = key("float32", "precision of torsos for images; weights stay float32; auto: bfloat16 on Atari "
                         "where the CPU computes in it", choices=("float32", "bfloat16", "auto"))
    init_from: str | None = key(None, "run or .safetensors file to start from; its weights and normalisers")
    init_checkpoint: str = key("auto", "checkpoint of --init-from: latest, best or a step; auto: best if there is one")

    def __post_init__(self) -> None:
        check_fields(self)
        self.pixel_range  # noqa: B018  raises where it is no range

    @property
    def pixel_range(self) -> tuple[float, float]:
        """The values that the pixels 0 and 255 are mapped to."""
        try:
            low, high = (parse_number(part) for part in self.obs_scale.split(":"))
        except ValueError:
            low = high = 0.0
        if not -1e9 <= low < high <= 1e9:
            raise ConfigError(f"obs_scale={self.obs_scale!r} is not a range LOW:HIGH, such as 0:1, 0:255 or -1:1")
        return low, high


@documented
@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rate."""

    optimizer: str = key("rmsprop_tf", "rmsprop_tf, rmsprop, adam, amsgrad or another; rmsprop_tf is TensorFlow's "
                         "form, and another is any class of torch.optim")
    lr: Coefficient = key(7e-4, "learning rate", low=0, high=1e6)
    optimizer_eps: float = key(1e-5, "epsilon of the denominator; inside the root for rmsprop_tf", low=0, high=1)
    optimizer_decay: float = key(0.99, "decay of rmsprop's mean square", low=0, high=1)
    max_grad_norm: Coefficient = key(0.5, "clip gradients to this global norm; 0: no clipping", low=0)

    def __post_init__(self) -> None:
        check_fields(self)


@documented
@dataclass(frozen=True)
class Sync:
    """Collect and learn by turns, in one process or in ranks."""

    rollout_length: int = key(5, "steps of each environment in a rollout", low=1, high=1_000_000)
    rollouts_per_update: int = key(1, "consecutive rollouts of each environment in one update", low=1, high=10_000)
    num_workers: int = key(0, "data-parallel ranks, which split the environments; 0: on Atari one per core while each "
                           "has eight environments, else 1", low=0, high=1024)
    device: str = key("cpu", "cpu, cuda, cuda:0, or auto; a list such as cuda:0,cuda:1 gives each rank a GPU")
    threads: int = key(0, "CPU threads of each process; 0: one, or all cores for images and large networks",
                       low=0, high=4096)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def rollout_lengths(self) -> tuple[int, ...]:
        """The length, as a tuple of one."""
        return (self.rollout_length,)


@documented
@dataclass(frozen=True)
class Hogwild:
    """Workers that act and learn on shared weights without a lock (Niu et al. 2011, arXiv:1106.5730)."""

    rollout_length: tuple[int, ...] | int = key(5, "steps of each environment in a rollout; of a list 16,32 worker i "
                                                "takes element i", low=1, high=1_000_000)
    rollouts_per_update: int = key(1, "consecutive rollouts of each environment in one update", low=1, high=10_000)
    num_workers: int = key(0, "worker processes; 0: one per core", low=0, high=1024)
    device: str = key("cpu", "cpu, cuda, cuda:0, or auto; of a list such as cuda:0,cuda:1 workers take turns")
    threads: int = key(0, "CPU threads of each worker; 0: one", low=0, high=4096)
    shared_statistics: bool = key(True, "share the optimiser's statistics among workers; off: each has its own")
    lock: bool = key(False, "one worker at a time steps the optimiser, for comparison; off: no lock")
    max_restarts: int = key(10, "workers that are replaced before the run gives up", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rollout_lengths:
            raise ConfigError("rollout_length is empty; write for example 20 or 16,32,64")

    @property
    def rollout_lengths(self) -> tuple[int, ...]:
        """Worker i takes element i, cyclically."""
        return self.rollout_length if isinstance(self.rollout_length, tuple) else (self.rollout_length,)


@documented
@dataclass(frozen=True)
class Ray:
    """Workers on the machines of a Ray cluster; this process learns from their rollouts or applies their gradients."""

    rollout_length: int = key(5, "steps of each environment in a rollout", low=1, high=1_000_000)
    rollouts_per_update: int = key(1, "rollouts in one update: of any workers, or with send=gradients of one", low=1,
                                   high=10_000)
    num_workers: int = key(0, "worker processes; 0: as many as have room when the run starts, beside the learner's "
                           "core", low=0, high=100_000)
    device: str = key("auto", "device of the learner: cpu, cuda, cuda:0, or auto; workers act on CPUs")
    threads: int = key(0, "CPU threads of each worker; 0: worker_cpus", low=0, high=4096)
    ray_address: str = key("local", "local: this machine alone; auto: the cluster that this machine is part of; or "
                           "HOST:PORT of its head")
    worker_cpus: float = key(1.0, "CPUs that each worker reserves", low=0.001, high=4096)
    send: str = key("auto", "what workers send: rollouts, to a central learner (V-trace), or gradients, to a parameter "
                    "server; auto: gradients with a3c and with a replay", choices=("auto", "rollouts", "gradients"))
    max_policy_lag: int = key(0, "rollouts and gradients whose weights are more updates old are dropped; 0: 8 rounds "
                              "of all workers", low=0, high=10**9)
    max_restarts: int = key(10, "workers that are replaced before the run gives up", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ray_address not in ("local", "auto") and not re.fullmatch(r"[^:/\s]+:\d{1,5}", self.ray_address):
            raise ConfigError(f"ray_address={self.ray_address!r} is not an address; give local, auto or HOST:PORT")

    @property
    def rollout_lengths(self) -> tuple[int, ...]:
        """The length, as a tuple of one."""
        return (self.rollout_length,)


@documented
@dataclass(frozen=True)
class RunConfig:
    """Length, checkpoints, evaluations and logs of a run."""

    steps: int = key(1_000_000, "agent steps, all environments together; after frame skip", low=1, high=10**15)
    schedule_steps: int = key(0, "length of schedules in agent steps; 0: --steps", low=0, high=10**15)
    seed: int = key(0, "seed of every random stream of the run", low=0, high=2**63 - 1)
    save_every: int = key(200_000, "agent steps between checkpoints", low=1, high=10**15)
    keep_checkpoints: int = key(3, "number of newest checkpoints to keep", low=1, high=10**6)
    eval_every: int = key(-1, "steps between evaluations; 0: never; -1: 20 a run, on Atari never", low=-1, high=10**15)
    eval_every_seconds: float = key(0.0, "seconds between evaluations, by the clock, so that no two runs evaluate at "
                                    "the same steps; 0: never", low=0, high=1e9)
    eval_episodes: int = key(20, "games per evaluation, new ones each time", low=1, high=10**6)
    eval_deterministic: bool | None = key(None, "evaluate by the most probable actions, off: by sampled ones; none: "
                                          "sampled where discrete actions follow images, else most probable")
    max_eval_share: float = key(1.0, "steps of evaluations for each step of training; due ones wait; 1: no bound",
                                low=0, high=1)
    log_every_seconds: float = key(2.0, "seconds between lines of metrics.jsonl", low=0, high=1e9)
    tensorboard: bool = key(True, "write TensorBoard event files")
    track: str = key("none", "also send metrics to wandb or mlflow", choices=("none", "wandb", "mlflow"))
    log_weights: bool = key(False, "TensorBoard: network graph, histograms at each save, and config")
    max_minutes: float = key(0.0, "stop after this wall time; 0: no limit", low=0, high=1e9)
    return_window: int = key(100, "training episodes that rollout/ep_rew_mean and stop_at_return cover", low=1,
                             high=10**6)
    stop_at_return: float | None = key(None, "stop when the mean of the last return_window training episodes reaches "
                                       "this")
    stop_at_eval: float | None = key(None, "stop when the mean of an evaluation and of its first 20 games reaches this")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def evaluates(self) -> bool:
        """Evaluations take place during training."""
        return self.eval_every > 0 or self.eval_every_seconds > 0
