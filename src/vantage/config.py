"""Every choice of a run as one frozen, validated record; no torch here, so that bad input is answered at once.

`Config` is what config.json holds. Each field's `help` is the text of `vantage train --help`. What is derived from it
lives where it is used.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, get_args, get_type_hints

from vantage.errors import ConfigError
from vantage.schedules import Schedule, parse_number

OPTIMIZERS = ("rmsprop_tf", "rmsprop", "adam", "amsgrad")
"""Those that workers can share; others are classes of torch.optim."""


def _key(default: Any, help: str, *, choices: tuple[str, ...] = (), schedule: bool = False, low: float | None = None,
         high: float | None = None) -> Any:
    return field(default=default, metadata={
        "help": help, "choices": choices, "schedule": schedule, "low": low, "high": high})


@dataclass(frozen=True)
class Config:
    """One run. Coefficients that may change during it are schedules in text (`vantage.schedules`)."""

    algo: str = field(default="a2c", metadata={"help": "algorithm", "choices": ("a2c", "a3c", "a3g", "acer")})
    env: str = field(default="CartPole-v1", metadata={"help": "Gymnasium id, short Atari name (Pong) or module:Class"})
    env_kwargs: str = _key("{}", "JSON object of keyword arguments for the environment")
    steps: int = _key(1_000_000, "agent steps after frame skip, all environments together", low=1, high=10**15)
    schedule_steps: int = _key(0, "steps that schedules run over; 0: steps (a resume with more steps keeps the former)",
                               low=0, high=10**15)
    seed: int = _key(0, "seed of every random stream of the run", low=0, high=2**63 - 1)

    init_from: str | None = _key(None, "begin with the weights and normalisers of this run or exported .safetensors "
                                 "file; step, optimiser and schedules begin anew")
    init_checkpoint: str = _key("auto", "of the run init_from: latest, best or a step; auto: best if there is one")

    # Environments
    num_envs: int = _key(8, "environments in one process", low=1, high=100_000)
    vector: str = _key("sync", "step the environments in this process, or each in a process of its own (not Atari, "
                       "which has threads)", choices=("sync", "async"))
    atari_protocol: str = _key("auto", "auto goes by the id: Pong and NoFrameskip-v4 are classic, ALE/...-v5 is v5",
                               choices=("auto", "classic", "v5", "machado"))
    action_subset: str = _key("all", "the actions that the policy chooses from: indices such as 0,2,3, or on Atari "
                              "meanings such as NOOP,RIGHT,LEFT")
    frame_skip: str = _key("auto", "frames that an action lasts: one number, or a range such as 2-4, drawn from at "
                           "each step, both ends included; auto: 4 on Atari, else 1")
    max_frames: int | None = _key(None, "images show the maximum over this many of a step's last frames; none: 2 on "
                                  "Atari, else 1", low=1, high=1000)
    crop: str = _key("none", "pixels to take off images: TOP,BOTTOM,LEFT,RIGHT, or a table by Atari game "
                     "(rl-a3c-pytorch)")
    screen_size: str = _key("auto", "resize images to this many pixels square, or HEIGHTxWIDTH; auto: 84 on Atari, "
                            "else as they are")
    grayscale: bool | None = _key(None, "images gray or in colour; none: gray on Atari, else as they are")
    noop_max: int | None = _key(None, "Atari: below how many no-ops a game begins with; none: as atari_protocol says",
                                low=0, high=10_000)
    random_start: int = _key(0, "up to how many random actions an episode begins with, of one frame each", low=0,
                             high=10_000)
    fire_on_reset: bool | None = _key(None, "Atari: press FIRE after a reset and a lost life; none: as atari_protocol "
                                      "says")
    obs_scale: str = _key("0:1", "range LOW:HIGH that the pixels 0 to 255 of images are brought to")
    reward: str = _key("raw", "rewards as learnt from: raw, their sign (Atari), or clipped to [-1, 1]; scores are "
                       "always raw", choices=("raw", "sign", "clip"))
    reward_scale: float = _key(1.0, "factor on the rewards as learnt from, after reward")
    reward_floor: float | None = _key(None, "least reward as learnt from, after reward_scale; none: no floor")
    reward_terminates: bool = _key(False, "any reward ends the return, though not the game: each point of Pong by "
                                   "itself")
    max_episode_steps: int = _key(0, "time limit in agent steps; 0 keeps the environment's own", low=0, high=10**12)

    # Processes
    runtime: str = _key("sync", "sync: collecting and learning take turns, as in a2c; hogwild: worker processes "
                        "on shared weights, as a3c and a3g do", choices=("sync", "hogwild"))
    num_workers: int = _key(0, "worker processes of hogwild; of a2c, processes that make each update together, "
                            "dealt out the environments; 0: one per core, of a2c on Atari alone and at least eight "
                            "environments in each", low=0, high=1024)
    shared_statistics: bool = _key(True, "workers share the optimiser's statistics; off: each has its own")
    lock: bool = _key(False, "workers step the optimiser one at a time, for comparison; off: without a lock")
    env_timeout: float = _key(120.0, "seconds without an update after which a worker is taken for hung and replaced; "
                              "0: never", low=0, high=1e9)
    max_restarts: int = _key(10, "workers and evaluators that may be replaced before the run gives up", low=0,
                             high=10**6)

    # Policy
    network: str = _key("auto", "torso for images (a vector goes through an mlp, or conv1d); auto: a3c for images, "
                        "mlp for vectors", choices=("auto", "mlp", "a3c", "nature", "universe", "impala", "maxpool",
                                                    "conv4", "conv5", "conv1d"))
    hidden: str = _key("64,64", "widths of the mlp, for example 64,64")
    activation: str = _key("tanh", "of the mlp; leaky_relu has slope 0.25 below 0",
                           choices=("tanh", "relu", "elu", "silu", "leaky_relu"))
    norm: str = _key("none", "layer normalisation, or batch normalisation by running statistics, before each "
                     "activation of the torso", choices=("none", "layer", "batch"))
    memory: str = _key("none", "what the policy remembers beyond its frames", choices=("none", "lstm", "gru"))
    memory_size: int = _key(256, "cells of the lstm or gru", low=1, high=65_536)
    bptt: bool = _key(True, "backpropagate through the whole rollout; off: one-step gradients from the stored states")
    frame_stack: int = _key(1, "observations that the policy sees at once, the newest included", low=1, high=64)
    stack_pad: str = _key("zeros", "before an episode's first frame the stack holds", choices=("zeros", "repeat"))
    separate: bool = _key(False, "the critic has a trunk of its own")
    detach_critic: bool = _key(False, "the critic's error does not reach the trunk that it shares with the policy")
    init: str = _key("orthogonal", "first weights: orthogonal with gains sqrt 2, policy 0.01, value 1; torch's own; "
                     "columns: normal, each output's of norm 1, policy 0.01; kaiming and xavier, uniform",
                     choices=("orthogonal", "torch", "columns", "kaiming", "xavier"))
    std: str = _key("free", "standard deviation of a Gaussian policy: free parameters, computed from the state "
                    "(squashed: its square between 0.06 and 1.06), or fixed",
                    choices=("free", "state", "squashed", "fixed"))
    log_std_init: float = _key(0.0, "log of a Gaussian's standard deviation at the start, unless that is squashed")
    min_std: float = _key(1e-3, "floor of a Gaussian's standard deviation", low=0)
    squash_mean: bool = _key(False, "a Gaussian's mean through tanh, scaled to the action bounds")
    obs_norm: bool = _key(False, "normalise vector observations by their running mean and deviation")
    image_norm: bool = _key(False, "normalise images by the running mean and deviation of all their pixels")
    reward_norm: bool = _key(False, "divide rewards by the running deviation of the discounted return")

    # Learning
    rollout_length: str = _key("5", "steps of each environment an update; of a list such as 16,32,64 worker i takes "
                               "element i, and from the first again after the last")
    rollouts_per_update: int = _key(1, "rollouts of each environment, one after the other, that make one update", low=1,
                                    high=10_000)
    lr: str = _key("7e-4", "learning rate", schedule=True, low=0, high=1e6)
    gamma: str = _key("0.99", "discount", schedule=True, low=0, high=1)
    gae_lambda: str = _key("1.0", "lambda of generalised advantage estimation; 1 is the n-step return", schedule=True,
                           low=0, high=1)
    value_target: str = _key("lambda", "the critic learns the lambda-return, or the discounted return up to the "
                             "bootstrap value, which is lambda 1", choices=("lambda", "return"))
    entropy_coef: str = _key("0.01", "weight of the entropy bonus, in nats", schedule=True)
    value_coef: str = _key("0.5", "weight of half the squared value error", schedule=True, low=0)
    max_grad_norm: str = _key("0.5", "clip gradients to this global norm; 0: do not clip", schedule=True, low=0)
    advantage_norm: bool = _key(False, "advantages to mean 0 and deviation 1 over each rollout")
    vtrace: bool = _key(False, "V-trace importance weights, clipped at 1 (Espeholt et al. 2018); where the policy that "
                        "acted learns, all are 1 and this is GAE")
    optimizer: str = _key("rmsprop_tf", "rmsprop_tf (TensorFlow's form), rmsprop, adam, amsgrad, or any class of "
                          "torch.optim, such as AdamW")
    optimizer_eps: float = _key(1e-5, "epsilon; inside the root for rmsprop_tf", low=0, high=1)
    optimizer_decay: float = _key(0.99, "decay of rmsprop's mean square", low=0, high=1)

    # Replay (acer)
    replay_size: int = _key(100_000, "acer: agent steps that the replay holds, of all workers together", low=1,
                            high=10**10)
    replay_start: int = _key(10_000, "acer: agent steps in the replay before it is learnt from", low=0, high=10**10)
    replay_ratio: float = _key(4.0, "acer: updates from the replay for each from fresh steps, on average", low=0,
                               high=1000)
    replay_save_every: int = _key(0, "acer: agent steps between checkpoints with the replay; 0: only when training "
                                  "stops", low=0, high=10**15)
    truncation: float | None = _key(10.0, "acer: c, at which importance weights are truncated; none: they are not",
                                    low=0)
    bias_correction: bool = _key(True, "acer: make up for what the truncation takes off")
    trust_region: float | None = _key(1.0, "acer: δ, by how much an update may add to the divergence from the average "
                                      "policy; none: no trust region", low=0)
    average_decay: float = _key(0.99, "acer: α of the average policy, moved after each update", low=0, high=1)
    critic_samples: int = _key(5, "acer, continuous actions: draws from the policy in the dueling critic's mean",
                               low=1, high=10_000)
    burn_in: int = _key(0, "acer with memory: first steps of a replayed rollout that only warm the memory up", low=0,
                        high=10**6)

    # The machine
    device: str = _key("cpu", "cpu, cuda, cuda:0, or auto; a list such as cuda:0,cuda:1 is dealt out to workers")
    precision: str = _key("float32", "of the torsos for images; bfloat16 learns faster from large batches where the "
                          "processor knows it (AMX, AVX-512 BF16, GPUs); weights stay float32",
                          choices=("float32", "bfloat16"))
    threads: int = _key(0, "CPU threads of each process; 0: all cores, or their share of a2c's processes; under "
                        "hogwild one", low=0, high=4096)

    # The run
    save_every: int = _key(200_000, "agent steps between checkpoints", low=1, high=10**15)
    keep_checkpoints: int = _key(3, "how many of the newest checkpoints stay", low=1, high=10**6)
    eval_every: int = _key(-1, "agent steps between evaluations; 0 never; default twenty a run, never on Atari or "
                           "with eval_every_seconds",
                           low=-1, high=10**15)
    eval_every_seconds: float = _key(0.0, "seconds of training between evaluations, besides or instead of eval_every; "
                                     "0: none by the clock", low=0, high=1e9)
    eval_episodes: int = _key(20, "whole games an evaluation", low=1, high=10**6)
    log_every_seconds: float = _key(2.0, "between lines of metrics.jsonl", low=0, high=1e9)
    tensorboard: bool = _key(True, "write TensorBoard event files")
    log_weights: bool = _key(False, "TensorBoard shows the network's graph, histograms of weights and gradients at "
                             "each save, and the config beside the final scores")
    max_minutes: float = _key(0.0, "stop after this wall time; 0: no limit", low=0, high=1e9)
    stop_at_eval: float | None = _key(None, "stop when the mean of an evaluation reaches this; its first 20 games must "
                                      "reach it before the rest are played")
    stop_at_return: float | None = _key(None, "stop when the mean of the last 100 training episodes reaches this")

    def __post_init__(self) -> None:
        for f in fields(self):
            _check(f.name, getattr(self, f.name), f.metadata)
        self.hidden_sizes  # noqa: B018  raises where the list is not one of widths
        self.env_options  # noqa: B018
        self.pixel_range  # noqa: B018
        self.rollout_lengths  # noqa: B018

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """Widths of the mlp."""
        return _whole_numbers("hidden", self.hidden, 65_536, "64,64")

    @property
    def rollout_lengths(self) -> tuple[int, ...]:
        """Steps of a rollout; worker i has element i, from the first again after the last."""
        lengths = _whole_numbers("rollout_length", self.rollout_length, 1_000_000, "20 or 16,32,64")
        if not lengths or (len(lengths) > 1 and self.runtime == "sync"):
            raise ConfigError(f"rollout_length={self.rollout_length!r}: a single process takes one length; a list is "
                              "for the workers of a3c and a3g")
        return lengths

    @property
    def pixel_range(self) -> tuple[float, float]:
        """What the pixels 0 and 255 become."""
        try:
            low, high = (parse_number(part) for part in self.obs_scale.split(":"))
        except ValueError:
            low = high = 0.0
        if not -1e9 <= low < high <= 1e9:
            raise ConfigError(f"obs_scale={self.obs_scale!r} is not a range LOW:HIGH, such as 0:1, 0:255 or -1:1")
        return low, high

    @property
    def env_options(self) -> dict[str, Any]:
        """Keyword arguments of the environment."""
        try:
            options = json.loads(self.env_kwargs)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigError(f"env_kwargs={self.env_kwargs!r} is not JSON: {error}") from None
        if not isinstance(options, dict):
            raise ConfigError(f"env_kwargs={self.env_kwargs!r} is not a JSON object")
        return options

    @property
    def all_threads(self) -> int:
        """CPU threads of all processes that make an update together; 0: all cores."""
        return self.threads * max(1, self.num_workers) if self.runtime == "sync" else self.threads

    @property
    def evaluates(self) -> bool:
        """There are evaluations beside training."""
        return self.eval_every > 0 or self.eval_every_seconds > 0

    def at(self, name: str, step: int) -> float:
        """The value of the scheduled coefficient `name` at `step`."""
        return Schedule.parse(getattr(self, name))(step, self.schedule_steps or self.steps)

    def to_json(self) -> str:
        return json.dumps({f.name: getattr(self, f.name) for f in fields(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> Config:
        """The config that `to_json` wrote; `source` names it in the message of a ConfigError."""
        return cls().override(read_json_object(text, source=source), source=source)

    def override(self, values: Mapping[str, Any], *, source: str) -> Config:
        """This config with `values` in place of its own, in text or as they are; unknown keys are errors."""
        hints = get_type_hints(Config)
        known = {}
        for name, value in values.items():
            if name not in hints:
                raise ConfigError(f"{source}: unknown key {name!r}{nearest(name, hints)}")
            known[name] = convert(name, value, hints[name], source=source)
        return replace(self, **known)


def _whole_numbers(name: str, text: str, most: int, example: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = (0,)
    if any(not 1 <= number <= most for number in numbers):
        raise ConfigError(f"{name}={text!r} is not a list of whole numbers from 1 to {most:,}; write for example "
                          f"{example}")
    return numbers


def read_json_object(text: str, *, source: str,
                     make: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict) -> dict[str, Any]:
    """The JSON object in `text`, or a ConfigError that names `source`; `make` makes each object of its pairs."""
    try:
        values = json.loads(text, object_pairs_hook=make)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
        raise ConfigError(f"{source} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds {type(values).__name__}, not a JSON object")
    return values


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean X?' for the nearest of `known`, or nothing."""
    known = list(known)
    lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    return f"; did you mean {lower[close[0]]}?" if close else ""


def convert(name: str, value: Any, hint: Any, *, source: str) -> Any:
    """`value`, in text or typed, as the field's type; ConfigError says what was expected.

    A mapping becomes JSON and a sequence a list with commas where the field is text, as env_kwargs and hidden are.
    """
    options = get_args(hint) or (hint,)
    try:
        if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in options):
            if type(None) in options:
                return None
        elif bool in options:
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
        elif str in options:
            if isinstance(value, str):
                return value
            if isinstance(value, Real) and not isinstance(value, bool):
                return str(int(value)) if isinstance(value, Integral) else repr(float(value))
            if isinstance(value, Mapping):
                return json.dumps(value)
            if isinstance(value, list | tuple):
                return ",".join(map(str, value))
        elif isinstance(value, int) and not isinstance(value, bool) and int in options:
            return value  # as a float it would lose its last digits above 2^53
        elif isinstance(value, str) and int in options and value.isdecimal():
            return int(value)
        elif not isinstance(value, bool):
            number = parse_number(value) if isinstance(value, str) else float(value)
            if float in options:
                return number
            if number == int(number):
                return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    expected = {bool: "true or false", int: "a whole number such as 10, 1e6 or 10M", float: "a number",
                str: "text"}[next(o for o in options if o is not type(None))]
    raise ConfigError(f"{source}: {name}={value!r} is not {expected}{' or none' * (type(None) in options)}")


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    if rules.get("choices") and value not in rules["choices"]:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(rules['choices'])}"
                          f"{nearest(str(value), rules['choices'])}")
    try:
        numbers = Schedule.parse(value).values if rules.get("schedule") else (value,)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    for number in numbers:
        if number is None or not isinstance(number, int | float):
            continue
        if number != number or number in (float("inf"), float("-inf")):
            raise ConfigError(f"{name}={value} is not finite")
        if rules.get("low") is not None and number < rules["low"]:
            raise ConfigError(f"{name}={value} is below {rules['low']:g}")
        if rules.get("high") is not None and number > rules["high"]:
            raise ConfigError(f"{name}={value} is above {rules['high']:g}")


