"""The config keys of environments, observations and rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.fields import check_fields, key, read_json_object
from vantage.keys.given_fields import remembering_arguments
from vantage.keys.stages import Stages
from vantage.keys.suggestions import nearest

OBS_KINDS = ("auto", "image", "vector", "codes", "set")
"""Values of `obs_as` for a part of the observation. Older runs have "bytes" for all parts."""


@remembering_arguments
@dataclass(frozen=True)
class EnvConfig:
    """Environments, observations and rewards."""

    id: str = key("CartPole-v1", "Gymnasium id, short Atari name (Pong) or module:Class",
                  open=True)
    num_envs: int = key(8, "environments, divided evenly among the processes; 0, with "
                           "hogwild and ray: envs_per_worker times num_workers",
                        low=0, high=100_000)
    env_kwargs: str = key("{}", "JSON object of keyword arguments for the environment")
    reset_options: str = key("{}", "JSON object of options for reset, or stages by the "
                                   "environment's episodes")
    vector: str = key("sync", "async: each environment in its own process (not Atari)",
                      choices=("sync", "async"))
    env_timeout: float = key(120.0, "seconds without an answer after which an environment counts "
                             "as hung (under hogwild: without an update, a worker); 0: never",
                             low=0, high=1e9)
    atari_protocol: str = key("auto", "auto: Pong and NoFrameskip-v4 are classic, ALE/...-v5 is v5",
                              choices=("auto", "classic", "v5", "machado"))
    action_subset: str = key("all", "actions to choose from: indices (0,2,3), on Atari also "
                                    "meanings (NOOP,LEFT)")
    frame_skip: str = key("auto", "frames per action, or a range such as 2-4 to sample from; auto: "
                                  "4 on Atari")
    max_frames: int | None = key(None, "pixelwise maximum over this many frames; none: 2 on Atari",
                                 low=1, high=1000)
    crop: str = key("none", "pixels to crop: TOP,BOTTOM,LEFT,RIGHT, or a table by game "
                            "(rl-a3c-pytorch)")
    screen_size: str = key("auto", "resize images to N pixels square or HEIGHTxWIDTH; auto: 84 on "
                                   "Atari")
    grayscale: bool | None = key(None,
                                 "convert images to gray; none: on Atari, elsewhere unchanged")
    obs_as: str = key("auto", "take observations for image, vector, codes or set, or by part: "
                      "camera=image,units=set:MASK; bytes: as older runs")
    obs_sets: bool = key(True, "take a Box [N, F] beside its mask NAME_mask [N] for a set of "
                               "entities, unless obs_as says otherwise")
    obs_shift: str = key("auto", "JSON object of numbers to subtract from each part; auto: large "
                                 "offsets; none: no")
    noop_max: int | None = key(None, "Atari: exclusive upper bound on random no-ops at reset",
                               low=0, high=10_000)
    random_start: int = key(0, "upper bound on random one-frame actions at an episode's start",
                            low=0, high=10_000)
    fire_on_reset: bool | None = key(None, "Atari: press FIRE after a reset and a lost life; none: "
                                           "as atari_protocol")
    scale_actions: bool = key(False, "act from -1 to 1 in the bounded dimensions of Box actions, "
                              "scaled to their bounds; off: in the environment's units")
    reward: str = key("raw", "rewards to learn from; clip: to [-1, 1]; scores are raw",
                      choices=("raw", "sign", "clip"))
    reward_scale: float = key(1.0, "factor on rewards, applied after --reward")
    reward_floor: float | None = key(None, "lower bound on rewards, after --reward-scale; none: no "
                                           "bound")
    reward_norm: bool = key(False, "divide rewards by the running deviation of the discounted "
                                   "return")
    reward_terminates: bool = key(False, "a reward ends the return but not the game, as for single "
                                         "points of Pong")
    max_episode_steps: int = key(0, "time limit in agent steps; 0: the environment's own", low=0,
                                 high=10**12)
    short_episode_steps: int = key(0, "time limit of every short_episode_every-th environment in "
                                   "training, for more starts; their scores are not reported; 0: "
                                   "none", low=0, high=10**12)
    short_episode_every: int = key(8, "2: every second environment, 3: every third, ...", low=2,
                                   high=100_000)

    self_play: int = key(0, "past policies to play against, in a game of two players in turn; 0: "
                            "no self-play", low=0, high=1000)
    self_play_every: int = key(10, "updates after which the policy joins the past ones", low=1,
                               high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        self.reset_stages  # noqa: B018  raises unless it is an object or a list of stages
        self.env_options  # noqa: B018  raises unless it is a JSON object
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
    def reset_stages(self) -> Stages:
        """The options of resets by the number of the episode."""
        return Stages.parse(self.reset_options, name="reset_options")

    @property
    def kinds_of_parts(self) -> dict[str, str]:
        """How to read each part of the observation, by its name; "" stands for all other parts."""
        if self.obs_as == "bytes":
            return {"": "bytes"}
        kinds = _named_kinds(self.obs_as)
        if not self.obs_sets and kinds.get("", "auto") == "auto":
            kinds[""] = "no set"
        return kinds

    @property
    def shifts(self) -> dict[str, tuple[float, ...]] | None:
        """Offsets to subtract from each part, by its name; None: detect them at the first reset."""
        if self.obs_shift in ("auto", "none"):
            return None if self.obs_shift == "auto" and self.obs_as != "bytes" else {}
        source = f"obs_shift={self.obs_shift!r:.80}"
        values = read_json_object(self.obs_shift, source=source)
        for numbers in values.values():
            is_list = isinstance(numbers, list)
            if not is_list or not all(type(number) in (int, float) and abs(number) < 1e300
                                      for number in numbers):
                raise ConfigError(f"{source} is not a list of numbers for each part; give auto, "
                                  'none or for example {"clock": [1.7e9]}')
        return {name: tuple(numbers) for name, numbers in values.items()}


def _named_kinds(text: str) -> dict[str, str]:
    """The kind of each part in `obs_as`: a list such as camera=image,map=codes, or a JSON object.

    ConfigError for an unknown kind, and for a part that is named twice.
    """
    given = f"obs_as={text!r:.80}"
    example = "camera=image,map=codes"
    if text.lstrip().startswith("{"):
        values = read_json_object(text, source=given)
        kinds = {part: str(kind) for part, kind in values.items()}
    else:
        pairs = [word.strip().rpartition("=") for word in text.split(",")]
        kinds = {part.strip(): kind.strip() for part, _, kind in pairs}
        if len(kinds) < len(pairs):
            raise ConfigError(f"{given} names a part twice; write for example {example}")
    for kind in kinds.values():
        if kind not in OBS_KINDS and not kind.startswith("set:"):
            raise ConfigError(f"{given}: {kind!r:.40} is not one of {', '.join(OBS_KINDS)}"
                              f"{nearest(kind, OBS_KINDS)}; write for example image, or by part "
                              f"{example}")
    return kinds
