"""Options of resets by the number of the episode: a curriculum, as JSON in a config.

    {"level": 3}                                    for every episode
    [[0, {"level": 1}], [200, {"level": 2}]]        each from an episode of an environment on

In Python, a function of the episode's number is evaluated once, for the first 10,000 episodes, and
becomes such a list, so that a file can hold it and a resumed run has the same options.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.json_text import parse

SAMPLED_EPISODES = 10_000
MOST_STAGES = 1_000
_FORMS = 'write {"level": 3}, or [[0, {"level": 1}], [200, {"level": 2}]] with rising episodes'


@dataclass(frozen=True, slots=True)
class Stages:
    """Options, each from an episode on; no stages for resets without options."""

    starts: tuple[int, ...] = ()
    options: tuple[dict[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str, *, name: str) -> Stages:
        """The stages in the JSON `text` of the key `name`; ConfigError for anything else."""
        source = f"{name}={text!r:.80}"
        try:
            value = parse(text)
        except ValueError as error:
            raise ConfigError(f"{source} is not JSON: {error}; {_FORMS}") from None
        if isinstance(value, dict):
            return cls((0,), (value,)) if value else cls()
        pairs = value if isinstance(value, list) else []
        if not pairs or not all(map(_is_stage, pairs)):
            raise ConfigError(f"{source} is no object and no list of pairs; {_FORMS}")
        starts = tuple(start for start, _ in pairs)
        if starts[0] != 0 or list(starts) != sorted(set(starts)):
            raise ConfigError(f"{source}: episodes have to rise from 0; {_FORMS}")
        return cls(starts, tuple(options for _, options in pairs))

    def at(self, episode: int) -> dict[str, Any] | None:
        """A copy of the options of an episode, which the environment may change; None without."""
        last = None
        for start, options in zip(self.starts, self.options, strict=True):
            if start > episode:
                break
            last = options
        return copy.deepcopy(last)

    def last(self) -> str:
        """The last options as the text of a config."""
        return json.dumps(self.options[-1]) if self.options else "{}"


def sampled(function: Callable[[int], Any], *, name: str) -> str:
    """The text of a function of the episode's number, which is 0 for an environment's first.

    ConfigError if it raises, returns what JSON cannot hold, or changes too often.
    """
    stages: list[tuple[int, str]] = []
    for episode in range(SAMPLED_EPISODES):
        try:
            options = function(episode)
            text = json.dumps(options)
            if not isinstance(options, dict):
                raise TypeError(f"it returned a {type(options).__name__}")
        except Exception as error:
            raise ConfigError(f"{name}, a function of the episode's number, failed for "
                              f"{episode}: {type(error).__name__}: {error}; return a dict of "
                              "numbers, texts, lists and dicts") from error
        if not stages or stages[-1][1] != text:
            stages.append((episode, text))
        if len(stages) > MOST_STAGES:
            raise ConfigError(f"{name} has {MOST_STAGES:,} stages before episode {episode:,}; keep "
                              "options for more episodes, or let the environment draw them")
    return "[" + ", ".join(f"[{start}, {text}]" for start, text in stages) + "]"


def _is_stage(pair: Any) -> bool:
    return (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int
            and isinstance(pair[1], dict))
