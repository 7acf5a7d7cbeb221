"""Gymnasium wrappers of one environment for the options in `options`. Random draws follow the last seeded reset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import MASK, Array
from vantage.envs.options import DISCRETE, IMAGE, EnvOptions, Margins, frames_pooled, in_words, margins_of, subset_of
from vantage.envs.spaces import CHANNELS, make_observer
from vantage.errors import ConfigError
from vantage.specs import ArraySpec


def apply_options(env: gym.Env[Any, Any], options: EnvOptions, max_episode_steps: int) -> gym.Env[Any, Any]:
    """Wrap `env` by the options, and by a time limit in steps of the result. ConfigError for one without effect."""
    spec = make_observer(env.observation_space).spec
    if not (isinstance(spec, ArraySpec) and spec.kind == "image"):
        options.refuse(IMAGE, "this one observes something else")
    elif options.grayscale is not None and spec.shape[0] == 1:
        raise ConfigError("grayscale has no effect here: the images are gray; leave it out")
    if not isinstance(env.action_space, spaces.Discrete):
        options.refuse(DISCRETE, f"this one's are {type(env.action_space).__name__}")
    if options.random_start:
        env = Start(env, random_start=options.random_start)
    skip = options.frame_skip or (1, 1)
    pooled = frames_pooled(options, skip, 1)
    if options.frame_skip is not None:
        env = FrameSkip(env, skip, pooled)
    if options.crop is not None or options.screen_size is not None or options.grayscale:
        env = Resized(env, options.crop, options.screen_size, gray=bool(options.grayscale))
        assert env.observation_space.shape is not None
        width = env.observation_space.shape[2]
        if width in CHANNELS:  # [C, H, W] would be taken for [H, W, C]
            raise ConfigError(f"crop and screen_size leave images {width} pixels wide; leave at least 5")
    if options.action_subset:
        env = ActionSubset(env, options.action_subset)
    return gym.wrappers.TimeLimit(env, max_episode_steps) if max_episode_steps else env


def describe_options(options: EnvOptions) -> tuple[str, ...]:
    """The effects of the options, in words."""
    changed = [word for word, value in (("cropped", options.crop), ("made gray", options.grayscale),
                                        ("resized", options.screen_size)) if value]
    skip = options.frame_skip
    notes = {f"episodes begin with 0 to {options.random_start} random actions": options.random_start,
             f"an action lasts {in_words(skip or (1, 1))} frames, whose rewards add up": skip,
             f"images are the maximum of the last {options.max_frames} frames": (options.max_frames or 1) > 1,
             f"images are {' and '.join(changed)}": changed,
             f"actions chosen from: {', '.join(options.action_subset)}": options.action_subset}
    return tuple(note for note, applies in notes.items() if applies)


class Start(gym.Wrapper[Any, Any, Any, Any]):
    """Begins episodes with 0 to noop_max - 1 actions 0, as ALE draws them, then with 0 to random_start random ones.

    If the episode ends within them, the next one begins without any.
    """

    def __init__(self, env: gym.Env[Any, Any], *, noop_max: int = 0, random_start: int = 0) -> None:
        super().__init__(env)
        self._noop_max, self._random_start = noop_max, random_start
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng((seed, 0))
            self.env.action_space.seed(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        if MASK in info:
            raise ConfigError("random_start ignores action masks, which this environment has; leave it out")
        for action in self._actions():
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                return self.env.reset(options=options)
        return obs, info

    def _actions(self) -> Iterator[Any]:
        for _ in range(int(self._rng.integers(self._noop_max)) if self._noop_max else 0):
            yield 0
        for _ in range(int(self._rng.integers(self._random_start + 1))):
            yield self.env.action_space.sample()


class FrameSkip(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action for a number of frames drawn from `skip`, both ends included, and adds up the rewards.

    The observation is the maximum over the last `pooled` frames of the step, or fewer if the episode ends within it.
    """

    def __init__(self, env: gym.Env[Any, Any], skip: tuple[int, int], pooled: int) -> None:
        super().__init__(env)
        self.pooled, self._skip = pooled, skip
        self._rng = np.random.default_rng()
        self.played = 0
        """Frames of the latest step; 0 for a reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng((seed, 1))
        obs, info = self.env.reset(seed=seed, options=options)
        self.played = 0
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        low, high = self._skip
        frames: deque[Any] = deque(maxlen=self.pooled)
        total: Any = 0.0
        self.played = 0
        for _ in range(low if low == high else int(self._rng.integers(low, high + 1))):
            obs, reward, terminated, truncated, info = self.env.step(action)
            frames.append(obs)
            self.played += 1
            total += reward
            if terminated or truncated:
                break
        obs = frames[0] if len(frames) == 1 else np.maximum.reduce(frames)
        return obs, total, terminated, truncated, info


class ActionSubset(gym.Wrapper[Any, Any, Any, Any]):
    """Offers some of the environment's Discrete actions as 0 to n - 1, in action masks too."""

    def __init__(self, env: gym.Env[Any, Any], subset: tuple[str, ...]) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, spaces.Discrete)
        start, count = int(env.action_space.start), int(env.action_space.n)
        self._indices = subset_of(subset, tuple(map(str, range(count))))
        self._actions = [start + index for index in self._indices]
        self.action_space = spaces.Discrete(len(subset))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._info(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self._actions[action])
        return obs, reward, terminated, truncated, self._info(info)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, MASK: np.asarray(info[MASK])[list(self._indices)]} if MASK in info else info


class Resized(gym.ObservationWrapper[Any, Any, Any]):
    """Crops images, makes them gray by their luma, and resizes them: uint8 [C, H, W]."""

    def __init__(self, env: gym.Env[Any, Any], crop: Margins | str | None, size: tuple[int, int] | None, *,
                 gray: bool = False, game: str = "") -> None:
        super().__init__(env)
        observer = make_observer(env.observation_space)
        assert isinstance(observer.spec, ArraySpec)
        channels, height, width = observer.spec.shape
        self.margins, self.gray = margins_of(crop, game, (height, width)), gray
        self.image: Array = np.zeros((channels, height, width), np.uint8)
        """The latest image before the conversion, [C, H, W]."""
        self._convert, self._show = observer.convert, shrink(self.margins, size)
        height, width = size or (height - sum(self.margins[:2]), width - sum(self.margins[2:]))
        self.observation_space = spaces.Box(0, 255, (1 if gray else channels, height, width), np.uint8)

    def observation(self, observation: Any) -> Array:
        self.image = self._convert(observation)
        image = self.image.transpose(1, 2, 0)
        image = self._show(luma(image[..., :3]) if self.gray else image)
        return image[None] if image.ndim == 2 else np.ascontiguousarray(image.transpose(2, 0, 1))  # OpenCV drops C = 1


def luma(image: Array) -> Array:
    """The gray levels [H, W] of an RGB image [H, W, 3]."""
    import cv2

    gray: Array = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)
    return gray


def shrink(margins: Margins, size: tuple[int, int] | None) -> Callable[[Array], Array]:
    """A function that crops an image [H, W] or [H, W, C] and resizes it by the mean over areas."""
    import cv2

    def show(image: Array) -> Array:
        image = cut(image, margins)
        if size is None or size == image.shape[:2]:
            return image
        resized: Array = cv2.resize(image, (size[1], size[0]), interpolation=cv2.INTER_AREA)
        return resized

    return show


def cut(image: Array, margins: Margins) -> Array:
    """[H, W] or [H, W, C] without its margins."""
    top, bottom, left, right = margins
    return image[top:image.shape[0] - bottom, left:image.shape[1] - right]
