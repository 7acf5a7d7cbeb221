"""The types of the keywords of `vantage.configure`, so that editors complete and explain them.

Written by tests/config_keys.py from the config dataclasses, which have the defaults and the bounds. Do not edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from vantage.keys.schedules import Schedule

Number = float | str
"""A number, also as people write it: 1e6, "10M"."""

CoefficientLike = float | str | Schedule | Callable[[float], float]
"""A number, a schedule such as "linear:1e-3:0", or a function of the progress from 0 to 1."""

Numbers = int | str | Sequence[int]
"""Whole numbers, such as [64, 64] or "64,64"; one may stand alone."""

Text = str | float | PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""Text; a sequence stands for its elements with commas between them, a mapping for its JSON."""


class CommonKeys(TypedDict, total=False):
    """Keys of every algorithm."""

    num_envs: Number
    """number of environments; with hogwild and ray, of each worker"""
    env_kwargs: Text
    """JSON object of keyword arguments for the environment"""
    vector: Literal["sync", "async"]
    """async: each environment in its own process (not Atari)"""
    env_timeout: Number
    """seconds without an answer after which an environment counts as hung (under hogwild: without an update, a worker);
    0: never"""
    atari_protocol: Literal["auto", "classic", "v5", "machado"]
    """auto: Pong and NoFrameskip-v4 are classic, ALE/...-v5 is v5"""
    action_subset: Text
    """actions to choose from: indices (0,2,3), on Atari also meanings (NOOP,LEFT)"""
    frame_skip: Text
    """frames per action, or a range such as 2-4 to sample from; auto: 4 on Atari"""
    max_frames: Number | None
    """pixelwise maximum over this many frames; none: 2 on Atari"""
    crop: Text
    """pixels to crop: TOP,BOTTOM,LEFT,RIGHT, or a table by game (rl-a3c-pytorch)"""
    screen_size: Text
    """resize images to N pixels square or HEIGHTxWIDTH; auto: 84 on Atari"""
    grayscale: bool | None
    """convert images to gray; none: on Atari, elsewhere unchanged"""
    obs_as: Text
    """take observations for image, vector or codes, or by part: camera=image,map=codes; bytes: as older runs"""
    obs_shift: Text
    """JSON object of numbers to subtract from each part; auto: large offsets; none: no"""
    noop_max: Number | None
    """Atari: exclusive upper bound on random no-ops at reset"""
    random_start: Number
    """upper bound on random one-frame actions at an episode's start"""
    fire_on_reset: bool | None
    """Atari: press FIRE after a reset and a lost life; none: as atari_protocol"""
    scale_actions: bool
    """act from -1 to 1 in the bounded dimensions of Box actions, scaled to their bounds; off: in the environment's
    units"""
    reward: Literal["raw", "sign", "clip"]
    """rewards to learn from; clip: to [-1, 1]; scores are raw"""
    reward_scale: Number
    """factor on rewards, applied after --reward"""
    reward_floor: Number | None
    """lower bound on rewards, after --reward-scale; none: no bound"""
    reward_norm: bool
    """divide rewards by the running deviation of the discounted return"""
    reward_terminates: bool
    """a reward ends the return but not the game, as for single points of Pong"""
    max_episode_steps: Number
    """time limit in agent steps; 0: the environment's own"""
    short_episode_steps: Number
    """time limit of every short_episode_every-th environment in training, for more starts; their scores are not
    reported; 0: none"""
    short_episode_every: Number
    """2: every second environment, 3: every third, ..."""
    network: str | Callable[..., Any]
    """torso, or module:Class; auto: a3c for images, minatar below 20 pixels, mlp for vectors"""
    hidden: Numbers
    """layer widths of the mlp"""
    activation: Literal["tanh", "relu", "elu", "silu", "leaky_relu"]
    """activation of the mlp; leaky_relu has slope 0.25 below 0"""
    torsos: Literal["joint", "separate"]
    """joint: one mlp for all vectors of a Dict or Tuple; separate: one mlp for each"""
    norm: Literal["none", "layer", "batch"]
    """normalisation before each activation of the torso"""
    memory: str | Callable[..., Any]
    """memory after the torso: none, lstm, gru, or module:Class"""
    memory_size: Number
    """units of the memory"""
    bptt: bool
    """backpropagate through the whole rollout; off: one-step gradients from the stored states"""
    frame_stack: Number
    """stacked observations, including the newest"""
    stack_pad: Literal["zeros", "repeat"]
    """padding of the stack at the start of an episode"""
    separate: bool
    """separate networks for policy and critic"""
    detach_critic: bool
    """stop the critic's gradient before the shared trunk"""
    init: Literal["orthogonal", "torch", "columns", "kaiming", "xavier"]
    """initial weights; orthogonal: gains sqrt 2, policy 0.01, value 1; columns: norm 1, policy 0.01"""
    std: Literal["free", "state", "squashed", "fixed"]
    """standard deviation of Gaussian actions: free parameters, fixed, or a function of the state (squashed: variance in
    [0.06, 1.06])"""
    log_std_init: Number
    """initial log standard deviation of Gaussian actions, unless squashed"""
    min_std: Number
    """lower bound on the standard deviation of Gaussian actions"""
    std_lr_scale: Number
    """factor on the learning rate of a free standard deviation"""
    squash_mean: bool
    """tanh on the mean of Gaussian actions, scaled to the action bounds"""
    obs_norm: bool
    """normalise vector observations by their running mean and deviation"""
    one_hot: Literal["scaled", "vector"]
    """Discrete and binary observations; scaled: one-hots of n values times the root of n; vector: as other vectors"""
    image_norm: Literal["none", "global", "pixel"]
    """normalise images by the mean and deviation of all their pixels together, or of each pixel"""
    image_norm_steps: Number
    """agent steps of random play before training that fix the statistics of images; 0: they follow training"""
    obs_scale: Text
    """range LOW:HIGH for the pixels 0 to 255 of images"""
    precision: Literal["float32", "bfloat16", "auto"]
    """precision of torsos for images; weights stay float32; auto: bfloat16 on Atari where the CPU computes in it"""
    init_from: Text | None
    """run or .safetensors file to start from; its weights and normalisers"""
    init_checkpoint: Text
    """checkpoint of --init-from: latest, best or a step; auto: best if there is one"""
    gamma: CoefficientLike
    """discount"""
    entropy_coef: CoefficientLike
    """weight of the entropy bonus, in nats"""
    value_coef: CoefficientLike
    """weight of half the squared value error; acer: weight of half the squared error of Q"""
    optimizer: Text
    """rmsprop_tf, rmsprop, adam, amsgrad or another; rmsprop_tf is TensorFlow's form, and another is any class of
    torch.optim"""
    lr: CoefficientLike
    """learning rate"""
    optimizer_eps: Number
    """epsilon of the denominator; inside the root for rmsprop_tf"""
    optimizer_decay: Number
    """decay of rmsprop's mean square"""
    max_grad_norm: CoefficientLike
    """clip gradients to this global norm; 0: no clipping"""
    rollout_length: Number
    """steps of each environment in a rollout; hogwild: steps of each environment in a rollout; of a list 16,32 worker i
    takes element i"""
    rollouts_per_update: Number
    """consecutive rollouts of each environment in one update; ray: rollouts in one update: of any workers, or with
    send=gradients of one"""
    num_workers: Number
    """data-parallel ranks, which split the environments; 0: on Atari one per core while each has eight environments,
    else 1; ray: worker processes; 0: as many as have room when the run starts, beside the learner's core; hogwild:
    worker processes; 0: one per core"""
    device: Text
    """cpu, cuda, cuda:0, or auto; a list such as cuda:0,cuda:1 gives each rank a GPU; ray: device of the learner: cpu,
    cuda, cuda:0, or auto; workers act on CPUs; hogwild: cpu, cuda, cuda:0, or auto; of a list such as cuda:0,cuda:1
    workers take turns"""
    threads: Number
    """CPU threads of each process; 0: one, or all cores for images and large networks; ray: CPU threads of each worker;
    0: worker_cpus; hogwild: CPU threads of each worker; 0: one"""
    steps: Number
    """agent steps, all environments together; after frame skip"""
    schedule_steps: Number
    """length of schedules in agent steps; 0: --steps"""
    seed: Number
    """seed of every random stream of the run"""
    save_every: Number
    """agent steps between checkpoints"""
    keep_checkpoints: Number
    """number of newest checkpoints to keep"""
    eval_every: Number
    """steps between evaluations; 0: never; -1: 20 a run, on Atari never"""
    eval_every_seconds: Number
    """seconds between evaluations, by the clock, so that no two runs evaluate at the same steps; 0: never"""
    eval_episodes: Number
    """games per evaluation, new ones each time"""
    eval_deterministic: bool | None
    """evaluate by the most probable actions, off: by sampled ones; none: sampled where discrete actions follow images,
    else most probable"""
    max_eval_share: Number
    """steps of evaluations for each step of training; due ones wait; 1: no bound"""
    log_every_seconds: Number
    """seconds between lines of metrics.jsonl"""
    tensorboard: bool
    """write TensorBoard event files"""
    track: Literal["none", "wandb", "mlflow"]
    """also send metrics to wandb or mlflow"""
    log_weights: bool
    """TensorBoard: network graph, histograms at each save, and config"""
    max_minutes: Number
    """stop after this wall time; 0: no limit"""
    return_window: Number
    """training episodes that rollout/ep_rew_mean and stop_at_return cover"""
    stop_at_return: Number | None
    """stop when the mean of the last return_window training episodes reaches this"""
    stop_at_eval: Number | None
    """stop when the mean of an evaluation and of its first 20 games reaches this"""
    ray_address: Text
    """local: this machine alone; auto: the cluster that this machine is part of; or HOST:PORT of its head"""
    worker_cpus: Number
    """CPUs that each worker reserves"""
    send: Literal["auto", "rollouts", "gradients"]
    """what workers send: rollouts, to a central learner (V-trace), or gradients, to a parameter server; auto: gradients
    with a3c and with a replay"""
    max_policy_lag: Number
    """rollouts and gradients whose weights are more updates old are dropped; 0: 8 rounds of all workers"""
    max_restarts: Number
    """workers that are replaced before the run gives up"""
    runtime: Literal["sync", "hogwild", "ray"]
    """sync: collects and learns in turn; hogwild: workers on shared weights; ray: workers on a cluster"""


class _A2CPPOA3C(TypedDict, total=False):
    """Keys of a2c, ppo, a3c, a3g."""

    gae_lambda: CoefficientLike
    """lambda of generalised advantage estimation; 1 gives n-step returns"""
    advantage_norm: bool
    """normalise advantages to mean 0 and deviation 1 over each rollout; ppo: normalise advantages to mean 0 and
    deviation 1"""


class _A2CA3C(TypedDict, total=False):
    """Keys of a2c, a3c, a3g."""

    value_target: Literal["lambda", "return"]
    """what the critic learns: the lambda-return, or the discounted return up to the bootstrap value (lambda 1)"""
    vtrace: bool
    """V-trace importance weights, clipped at 1 (Espeholt et al. 2018); equals GAE where the policy that acted is the
    one that learns"""


class _PPO(TypedDict, total=False):
    """Keys of ppo."""

    epochs: Number
    """times that an update learns from its rollouts"""
    minibatch_size: Number
    """agent steps of one gradient step; with an lstm or gru, whole environments of about this many steps"""
    past_rollouts: Number
    """updates whose rollouts are learned from again with the new ones, corrected by V-trace, from the stored states of
    an lstm or gru"""
    clip: CoefficientLike
    """how far a ratio of probabilities may leave 1; beyond it the loss gains nothing"""
    value_clip: Number | None
    """how far a value may move in an update; none: anywhere"""
    max_kl: Number | None
    """divergence in nats that ends learning from a rollout; none: never"""
    advantage_norm_over: Literal["rollout", "minibatch"]
    """what advantages are normalised over"""


class _A3CACER(TypedDict, total=False):
    """Keys of a3c, a3g, acer."""

    shared_statistics: bool
    """share the optimiser's statistics among workers; off: each has its own"""
    lock: bool
    """one worker at a time steps the optimiser, for comparison; off: no lock"""


class _ACER(TypedDict, total=False):
    """Keys of acer."""

    replay_size: Number
    """agent steps that the replay holds; of all workers together"""
    replay_start: Number
    """agent steps in the replay before it is learnt from"""
    replay_ratio: Number
    """updates from the replay for each from fresh steps; the mean of a random number"""
    replay_save_every: Number
    """agent steps between checkpoints with the replay; 0: only when training stops"""
    truncation: Number | None
    """c, the bound of importance weights; none: no bound"""
    bias_correction: bool
    """correct the bias that the truncation introduces"""
    trust_region: Number | None
    """δ, the bound on leaving the average policy; the largest growth of the divergence from it in an update; none: no
    trust region"""
    average_decay: Number
    """α of the average policy, updated after each update"""
    critic_samples: Number
    """actions sampled for the dueling critic; with continuous actions, for its mean"""
    burn_in: Number
    """replayed steps that only warm the memory up; the first of each rollout, with a memory"""


class A2CKeys(CommonKeys, _A2CPPOA3C, _A2CA3C, total=False):
    """Keys of a2c."""


class PPOKeys(CommonKeys, _A2CPPOA3C, _PPO, total=False):
    """Keys of ppo."""


class A3CKeys(CommonKeys, _A2CPPOA3C, _A2CA3C, _A3CACER, total=False):
    """Keys of a3c and a3g."""


class ACERKeys(CommonKeys, _A3CACER, _ACER, total=False):
    """Keys of acer."""


class EveryKey(CommonKeys, _A2CPPOA3C, _A2CA3C, _PPO, _A3CACER, _ACER, total=False):
    """Keys of all algorithms."""
