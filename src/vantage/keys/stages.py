"""Options of resets by the number of the episode: a curriculum, as JSON in a config.

    {"level": 3}                                    for every episode
    [[0, {"level": 1}], [200, {"level": 2}]]        each from an episode of an environment on

In Python, a function of the episode's number is evaluated once, for the first 10,000 episodes, and
becomes such a list, so that a file can hold it and a resumed run has the same options.
"""

from __future__ import annotations

import copy
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.json_text import LONGEST_TEXT, parse

SAMPLED_EPISODES = 10_000
_FORMS = 'write {"level": 3}, or [[0, {"level": 1}], [200, {"level": 2}]] with rising episodes'


@dataclass(frozen=True, slots=True)
class Stages:
    """Options, each from an episode on; no stages for resets without options."""

    starts: tuple[int, ...] = ()
    options: tuple[dict[str, Any], ...] = ()

    @classmethod
    @lru_cache(maxsize=8)  # every environment reads them, and a list may be long
    def parse(cls, text: str, *, name: str) -> Stages:
        """The stages in the JSON `text` of the key `name`; ConfigError for anything else."""
        source = f"{name}={text!r:.80}"
        try:
            value = parse(text)
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise ConfigError(f"{source} is not JSON: {error}; {_FORMS}") from None
        if isinstance(value, dict):
            return cls((0,), (value,)) if value else cls()
        pairs = value if isinstance(value, list) else []
        if not pairs or not all(map(_is_stage, pairs)):
            raise ConfigError(f"{source} is neither an object nor a list of pairs; {_FORMS}")
        starts = tuple(start for start, _ in pairs)
        if starts[0] != 0 or list(starts) != sorted(set(starts)):
            raise ConfigError(f"{source}: episodes have to rise from 0; {_FORMS}")
        return cls(starts, tuple(options for _, options in pairs))

    def at(self, episode: int) -> dict[str, Any] | None:
        """A copy of the options of an episode, which the environment may change; None without."""
        stage = bisect_right(self.starts, episode)
        return copy.deepcopy(self.options[stage - 1]) if stage else None

    def last(self) -> str:
        """The last options as the text of a config."""
        return json.dumps(self.options[-1]) if self.options else "{}"


def text_of(value: Any, *, name: str) -> str:
    """The text of options from Python: a mapping, a list of stages, or a function of the episode.

    NumPy's numbers and arrays become numbers and lists. ConfigError for what JSON cannot hold.
    """
    text = _sampled(value, name=name) if callable(value) else _as_json(value, name=name)
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"{name} has {len(text):,} characters, and a config holds at most "
                          f"{LONGEST_TEXT:,}; keep options for more episodes, or let the "
                          "environment draw them")
    return text


def _sampled(function: Callable[[int], Any], *, name: str) -> str:
    """The text of a function of the episode's number, which is 0 for an environment's first."""
    stages: list[tuple[int, str]] = []
    for episode in range(SAMPLED_EPISODES):
        try:
            options = function(episode)
            if not isinstance(options, Mapping):
                raise TypeError(f"it returned a {type(options).__name__}")
        except Exception as error:
            raise ConfigError(f"{name}, a function of the episode's number, failed for "
                              f"{episode}: {type(error).__name__}: {error}; return a dict of "
                              "numbers, texts, lists and dicts") from error
        text = _as_json(options, name=f"{name} of episode {episode}")
        if not stages or stages[-1][1] != text:
            stages.append((episode, text))
    return "[" + ", ".join(f"[{start}, {text}]" for start, text in stages) + "]"


def _as_json(value: Any, *, name: str) -> str:
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} does not fit into JSON: {error}; give finite numbers, texts, "
                          "lists and dicts") from None


def _plain(value: Any) -> Any:
    """The numbers and lists for numbers and arrays of NumPy, the dict for another mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    if not hasattr(value, "tolist"):
        raise TypeError(f"it has a {type(value).__name__}")
    return value.tolist()


def _is_stage(pair: Any) -> bool:
    return (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int
            and isinstance(pair[1], dict))
