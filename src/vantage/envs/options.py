"""Options of play and display: parsed, and applied as Gymnasium wrappers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage._host.extras import needs
from vantage.envs.config import EnvConfig
from vantage.envs.frames import Frames
from vantage.envs.ids import EnvId
from vantage.envs.interface import Array
from vantage.envs.outcomes import Checked
from vantage.envs.spaces import make_observer
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

ATARI = "Atari games"
IMAGE = "environments that show one image"
DISCRETE = "environments with Discrete actions"
NEEDS = {"action_subset": DISCRETE, "crop": IMAGE, "screen_size": IMAGE, "grayscale": IMAGE,
         "max_frames": IMAGE, "noop_max": ATARI, "fire_on_reset": ATARI, "frame_skip": "",
         "random_start": ""}
"""The kind of environment that each option needs."""

Margins = tuple[int, int, int, int]  # pixels taken off an image: top, bottom, left, right
Range = tuple[int, int]  # lowest and highest number, both possible

# (first, below) by game, "" for any other: the crop is rows [first, below + 160) and 160 columns.
# From config.json of dgriff777/rl_a3c_pytorch, 4170f7d.
CROP_TABLES = {
    "rl-a3c-pytorch": {"": (34, 34), "asteroids": (16, 34), "beam_rider": (20, 20),
                       "centipede": (36, 56), "ms_pacman": (2, 10), "seaquest": (30, 30),
                       "space_invaders": (8, 36), "video_pinball": (42, 60), "qbert": (12, 40),
                       "boxing": (30, 30)},
}
TABLE_SIDE = 160

FORMS = {
    "crop": (r"(\d{1,5}),(\d{1,5}),(\d{1,5}),(\d{1,5})", "none, TOP,BOTTOM,LEFT,RIGHT in pixels to "
             f"take off, such as 34,16,0,0, or a table by game ({', '.join(CROP_TABLES)})"),
    "screen_size": (r"([1-9]\d{0,3})(?:x([1-9]\d{0,3}))?",
                    "auto, a number of pixels such as 84, or HEIGHTxWIDTH"),
    "frame_skip": (r"([1-9]\d{0,3})(?:-([1-9]\d{0,3}))?",
                   "auto, a number of frames such as 4, or a range such as 2-4"),
}
"""The notation of each option that takes numbers, as a pattern and in words."""


def numbers(config: EnvConfig, name: str) -> Any:
    """The numbers of an option in FORMS; a single A means A twice.

    None for the option's default and for the name of a crop table.
    """
    text = getattr(config, name)
    if text == getattr(EnvConfig, name) or (name == "crop" and text in CROP_TABLES):
        return None
    pattern, form = FORMS[name]
    match = re.fullmatch(pattern, text.replace(" ", ""))
    if match is None:
        raise ConfigError(f"{name}={text!r} is not {form}")
    return tuple(int(part or match[1]) for part in match.groups())


def non_defaults(config: EnvConfig) -> list[str]:
    """Names of the options that differ from their defaults."""
    return [name for name in NEEDS if getattr(config, name) != getattr(EnvConfig, name)]


def refuse(config: EnvConfig, need: str, why: str) -> None:
    """ConfigError if an option is set that needs `need`; `why` describes the environment."""
    for name in non_defaults(config):
        if NEEDS[name] == need:
            raise ConfigError(f"{name} has no effect here: it is for {need}, and {why}; leave it "
                              "out")


def check_without_wrappers(config: EnvConfig, subject: str, *names: str) -> None:
    """ConfigError if an option of wrappers, or one of `names`, is set; `subject` says of what."""
    for name in (*NEEDS, *names):
        if getattr(config, name) != getattr(EnvConfig, name):
            remedy = "leave it out"
            if name in NEEDS or name == "max_episode_steps":
                remedy += ", or pass the same to the environment in env_kwargs"
            raise ConfigError(f"{name} has no effect here: {subject}, to which Vantage adds no "
                              f"wrappers; {remedy}")


def check_options(config: EnvConfig, env: EnvId) -> None:
    """ConfigError for options that are malformed or have no effect on `env`.

    `play_of` checks the options that depend on the environment's spaces.
    """
    for name in FORMS:
        numbers(config, name)
    if env.atari is None:
        refuse(config, ATARI, f"env={env.name!r} is not one")
        if config.crop in CROP_TABLES:
            raise ConfigError(f"crop={config.crop} is for Atari games; give the pixels as "
                              "TOP,BOTTOM,LEFT,RIGHT")
        return
    for name in ("obs_as", "obs_shift"):
        if getattr(config, name) not in ("auto", "none", "bytes"):
            raise ConfigError(f"{name} has no effect here: Atari games show images of bytes; leave "
                              "it out")


def margins_of(config: EnvConfig, game: str, shape: tuple[int, int]) -> Margins:
    """The margins that `crop` takes off images [H, W] of `game`. ConfigError if nothing is left."""
    if config.crop in CROP_TABLES:
        first, below = CROP_TABLES[config.crop].get(game, CROP_TABLES[config.crop][""])
        return first, max(0, shape[0] - below - TABLE_SIDE), 0, max(0, shape[1] - TABLE_SIDE)
    top, bottom, left, right = numbers(config, "crop") or (0, 0, 0, 0)
    if top + bottom >= shape[0] or left + right >= shape[1]:
        raise ConfigError(f"crop={config.crop} leaves nothing of images of {shape[0]}x{shape[1]}; "
                          "take off fewer pixels at TOP,BOTTOM,LEFT,RIGHT")
    return top, bottom, left, right


def subset_names(config: EnvConfig) -> tuple[str, ...]:
    """Indices or Atari meanings in `action_subset`; () for all actions."""
    text = config.action_subset
    return () if text == "all" else tuple(name.strip().upper() for name in text.split(","))


def choose_actions(config: EnvConfig, spec: EnvSpec, names: tuple[str, ...]) -> tuple[
        EnvSpec, tuple[str, ...], Array | None]:
    """`spec`, the actions' `names` and the indices, restricted to `action_subset`.

    The indices are None without a subset. Raises ConfigError for an action that is unknown or
    named twice.
    """
    subset = subset_names(config)
    if not subset:
        return spec, names, None
    meanings = names or tuple(map(str, range(spec.action.sizes[0])))
    index_of = {name: i for i, name in enumerate(meanings)}
    index_of |= {str(i): i for i in range(len(meanings))}
    indices = [index_of.get(name, -1) for name in subset]
    if -1 in indices or len(set(indices)) < len(indices):
        raise ConfigError(f"action_subset={config.action_subset} names an unknown action, or one "
                          "twice; the actions are "
                          f"{', '.join(f'{i} {name}' for i, name in enumerate(meanings))}")
    action = ActionSpec("discrete", (len(indices),))
    chosen_names = tuple(names[i] for i in indices) if names else ()
    return replace(spec, action=action), chosen_names, np.array(indices)


@dataclass(frozen=True, slots=True)
class Picture:
    """Crops an image [H, W] or [H, W, C], converts it to gray by luma, and resizes it by area."""

    margins: Margins
    size: tuple[int, int] | None
    gray: bool

    def __call__(self, image: Array) -> Array:
        with needs("atari"):
            import cv2  # here, since most environments do not need it

        top, bottom, left, right = self.margins
        image = image[top:image.shape[0] - bottom, left:image.shape[1] - right]
        if self.gray and image.ndim == 3:
            image = cv2.cvtColor(np.ascontiguousarray(image[..., :3]), cv2.COLOR_RGB2GRAY)
        if self.size is None:
            return image
        return cv2.resize(image, self.size[::-1], interpolation=cv2.INTER_AREA)


def show_images(env: gym.Env[Any, Any], picture: Picture,
                kinds: Mapping[str, str]) -> gym.Env[Any, Any]:
    """Pass images through `picture`; they become [H, W] or [H, W, C]."""
    space = env.observation_space
    spec, observe = make_observer(space, kinds=kinds)
    assert isinstance(spec, ArraySpec) and isinstance(space, spaces.Box)

    def convert(obs: Any) -> Array:
        image = observe(obs)
        return picture(image[0] if len(image) == 1 else image.transpose(1, 2, 0))

    shape = convert(np.zeros(space.shape, space.dtype)).shape
    shown: spaces.Box
    if spec.floats:
        shown = spaces.Box(float(space.low.min()), float(space.high.max()), shape, np.float32)
    else:
        shown = spaces.Box(0, 255 if spec.adapts else int(spec.unit), shape, np.uint8)
    return gym.wrappers.TransformObservation(env, convert, shown)


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """Options of play and display of one environment, with defaults filled in."""

    skip: Range  # frames of a step
    pooled: int  # an observation is the maximum over this many of a step's last frames
    noop_max: int
    random_start: int
    picture: Picture | None
    max_steps: int  # time limit of an episode in steps; 0: the environment's own
    kinds: Mapping[str, str]  # of the parts of the observation, as obs_as says

    @classmethod
    def of(cls, config: EnvConfig, picture: Picture | None, *, skip: int = 1, pooled: int = 1,
           noop_max: int = 0, max_frames: int = 0) -> PlayOptions:
        """The options of `config`, with these defaults.

        `max_frames` is the default time limit in frames.
        """
        low, high = sorted(numbers(config, "frame_skip") or (skip, skip))
        if (config.max_frames or 0) > low:
            raise ConfigError(f"max_frames={config.max_frames} is more than the {low} frames of a "
                              "step; raise frame_skip or lower max_frames")
        default_steps = int(max_frames // ((low + high) / 2))
        return cls(
            skip=(low, high),
            pooled=config.max_frames or min(pooled, low),
            noop_max=noop_max,
            random_start=config.random_start,
            picture=picture,
            max_steps=config.max_episode_steps or default_steps,
            kinds=config.kinds_of_parts)

    @property
    def frames_per_step(self) -> float:
        """Frames of a step; the mean if the number is random."""
        return self.skip[0] if self.skip[0] == self.skip[1] else sum(self.skip) / 2

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """`env`, wrapped to be played and shown with these options, but without a time limit."""
        needs_frames = self.skip != (1, 1) or self.noop_max > 0 or self.random_start > 0
        if needs_frames or self.picture is not None:
            env = Checked(env)
        if needs_frames:
            env = Frames(env, self)
        if self.picture is not None:
            env = show_images(env, self.picture, self.kinds)
        return env


def play_of(config: EnvConfig, env: gym.Env[Any, Any]) -> PlayOptions:
    """The options of `config` for `env`. ConfigError for options that have no effect on it."""
    spec, _ = make_observer(env.observation_space, kinds=config.kinds_of_parts)
    picture = None
    size = numbers(config, "screen_size")
    if not (isinstance(spec, ArraySpec) and spec.kind == "image"):
        refuse(config, IMAGE, "this one's observation is not a single image")
    elif config.grayscale is not None and spec.shape[0] == 1:
        raise ConfigError("grayscale has no effect here: the images are gray; leave it out")
    elif config.grayscale and spec.shape[0] not in (3, 4):
        raise ConfigError(f"grayscale is for RGB and RGBA, and these images have {spec.shape[0]} "
                          "planes; leave it out, and convert them in a wrapper")
    elif config.crop != "none" or size or config.grayscale:
        picture = Picture(margins_of(config, "", (spec.shape[1], spec.shape[2])), size,
                          bool(config.grayscale))
    if not isinstance(env.action_space, spaces.Discrete):
        refuse(config, DISCRETE, f"this one's are {type(env.action_space).__name__}")
    return PlayOptions.of(config, picture)
