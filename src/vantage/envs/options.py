"""Parses the config's options of how an environment is played and shown, and refuses those without effect.

`wrappers` and `atari` apply them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from vantage.config_groups import EnvConfig
from vantage.envs.ids import EnvId
from vantage.errors import ConfigError
from vantage.keys import nearest

ATARI, IMAGE, DISCRETE = "Atari games", "environments that show one image", "environments with Discrete actions"

NEEDS = {"action_subset": DISCRETE, "crop": IMAGE, "screen_size": IMAGE, "grayscale": IMAGE, "max_frames": IMAGE,
         "noop_max": ATARI, "fire_on_reset": ATARI}
"""The kind of environment that an option needs; frame_skip and random_start work on all."""

Margins = tuple[int, int, int, int]
"""Pixels taken off an image: top, bottom, left, right."""

CROP_TABLES: dict[str, tuple[dict[str, tuple[int, int]], int]] = {
    # (first, below): the crop is rows [first, below + 160) and 160 columns. From config.json of
    # dgriff777/rl_a3c_pytorch, 4170f7d.
    "rl-a3c-pytorch": ({"": (34, 34), "asteroids": (16, 34), "beam_rider": (20, 20), "centipede": (36, 56),
                        "ms_pacman": (2, 10), "seaquest": (30, 30), "space_invaders": (8, 36),
                        "video_pinball": (42, 60), "qbert": (12, 40), "boxing": (30, 30)}, 160),
}
"""Crops by game; "" means any other game."""


@dataclass(frozen=True, slots=True)
class EnvOptions:
    """The options, parsed; None and () leave the environment or the Atari protocol unchanged."""

    action_subset: tuple[str, ...] = ()
    """Indices, or meanings of Atari's actions."""
    crop: Margins | str | None = None
    """Margins, or the name of a table."""
    screen_size: tuple[int, int] | None = None
    """Height and width."""
    grayscale: bool | None = None
    frame_skip: tuple[int, int] | None = None
    """Lowest and highest number of frames a step, both possible."""
    max_frames: int | None = None
    noop_max: int | None = None
    random_start: int = 0
    fire_on_reset: bool | None = None

    @classmethod
    def of(cls, config: EnvConfig) -> EnvOptions:
        """The options of `config`. ConfigError for text that cannot be parsed."""
        return cls(_subset(config.action_subset), _crop(config.crop), _size(config.screen_size), config.grayscale,
                   _skip(config.frame_skip), config.max_frames, config.noop_max, config.random_start,
                   config.fire_on_reset)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the options that differ from their defaults."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    def refuse(self, need: str, why: str) -> None:
        """Raise ConfigError if an option is set that needs `need`; `why` says what the environment has instead."""
        for name in self.changed:
            if NEEDS.get(name) == need:
                raise ConfigError(f"{name} has no effect here: it is for {need}, and {why}; leave it out")


def check_options(config: EnvConfig, env: EnvId) -> EnvOptions:
    """The options of `config`. ConfigError for one that has no effect, as far as that is known without building."""
    options = EnvOptions.of(config)
    if env.atari is None:
        options.refuse(ATARI, f"env={env.name!r} is none")
        if isinstance(options.crop, str):
            raise ConfigError(f"crop={config.crop} is a table of Atari games, and env={env.name!r} is none; give the "
                              "pixels to take off as TOP,BOTTOM,LEFT,RIGHT")
    return options


def margins_of(crop: Margins | str | None, game: str, shape: tuple[int, int]) -> Margins:
    """The margins of `crop` for images [H, W] of `game`. ConfigError if nothing is left."""
    if isinstance(crop, str):
        table, side = CROP_TABLES[crop]
        first, below = table.get(game, table[""])
        crop = (first, max(0, shape[0] - below - side), 0, max(0, shape[1] - side))
    top, bottom, left, right = crop or (0, 0, 0, 0)
    if top + bottom >= shape[0] or left + right >= shape[1]:
        raise ConfigError(f"crop={top},{bottom},{left},{right} leaves nothing of images of {shape[0]}x{shape[1]}; take "
                          "off fewer pixels at TOP,BOTTOM,LEFT,RIGHT")
    return top, bottom, left, right


def subset_of(subset: tuple[str, ...], meanings: tuple[str, ...]) -> tuple[int, ...]:
    """Indices of the actions in `subset`, of all for (). `meanings` has the name of each action."""
    index_of = {name: i for i, name in enumerate(meanings)} | {str(i): i for i in range(len(meanings))}
    for name in subset:
        if name not in index_of:
            words = ", ".join(f"{i} {meaning}" for i, meaning in enumerate(meanings) if meaning != str(i))
            raise ConfigError(f"action_subset: {name!r} is none of the {len(meanings)} actions "
                              f"({words or f'0 to {len(meanings) - 1}'}){nearest(name, meanings)}")
    indices = tuple(index_of[name] for name in subset or meanings)
    if len(set(indices)) < len(indices):
        raise ConfigError(f"action_subset={','.join(subset)} names an action twice")
    return indices


def frames_pooled(options: EnvOptions, skip: tuple[int, int], default: int) -> int:
    """Number of a step's last frames that are pooled into the observation; ConfigError if a step may have fewer."""
    if options.max_frames is None:
        return min(default, skip[0])
    if options.max_frames > skip[0]:
        raise ConfigError(f"max_frames={options.max_frames} is more than the {skip[0]} frames of a step; raise "
                          "frame_skip or lower max_frames")
    return options.max_frames


def mean_of(skip: tuple[int, int]) -> float | int:
    """Mean number of frames of a step; an int if it is fixed."""
    return skip[0] if skip[0] == skip[1] else sum(skip) / 2


def in_words(skip: tuple[int, int]) -> str:
    """4, or 2-4."""
    return str(skip[0]) if skip[0] == skip[1] else f"{skip[0]}-{skip[1]}"


def _subset(text: str) -> tuple[str, ...]:
    if text == "all":
        return ()
    names = tuple(part.strip().upper() for part in text.split(","))
    if not all(re.fullmatch(r"[A-Z]+|\d{1,6}", name) for name in names):
        raise ConfigError(f"action_subset={text!r} is not a list of actions; write indices such as 0,2,3, names of "
                          "Atari actions such as NOOP,RIGHT,LEFT, or all")
    return tuple(str(int(name)) if name.isdigit() else name for name in names)


def _crop(text: str) -> Margins | str | None:
    if text == "none" or text in CROP_TABLES:
        return None if text == "none" else text
    match = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5}),(\d{1,5})", text.replace(" ", ""))
    if match is None:
        raise ConfigError(f"crop={text!r} is not TOP,BOTTOM,LEFT,RIGHT in pixels to take off, such as 34,16,0,0, nor "
                          f"none or a table by game ({', '.join(CROP_TABLES)}){nearest(text, CROP_TABLES)}")
    top, bottom, left, right = map(int, match.groups())
    return top, bottom, left, right


def _size(text: str) -> tuple[int, int] | None:
    if text == "auto":
        return None
    height, width = _pair(text, "x")
    if not (1 <= height <= 1024 and 1 <= width <= 1024):
        raise ConfigError(f"screen_size={text!r} is not a number of pixels from 1 to 1024, such as 84, nor "
                          "HEIGHTxWIDTH, such as 80x72, nor auto")
    return height, width


def _skip(text: str) -> tuple[int, int] | None:
    if text == "auto":
        return None
    low, high = _pair(text, "-")
    if not 1 <= low <= high <= 1000:
        raise ConfigError(f"frame_skip={text!r} is not a number of frames from 1 to 1000, such as 4, nor a range from "
                          "a smaller to a larger one, such as 2-4, nor auto")
    return low, high


def _pair(text: str, separator: str) -> tuple[int, int]:
    """The numbers of A or AxB, where A alone means both; 0 for other text."""
    match = re.fullmatch(rf"(\d{{1,4}})(?:{separator}(\d{{1,4}}))?", text)
    return (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
